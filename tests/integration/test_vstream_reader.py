"""The VStream reader against the stand-in for vtgate over real MySQL shards: the rows that it gathers are those of the
shards."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
import structlog

from libs.config.connections import GrpcClientSettings, KafkaSettings
from libs.config.load import Secret
from libs.errors import (
    AccessDenied,
    HeadwaterError,
    PipelineHalted,
    PositionPurged,
    SchemaUnknown,
    SourceMisconfigured,
    SourceUnavailable,
)
from libs.events.batch import BatchIdentity
from libs.kafka.clients import ensure_topics
from libs.source.port import HasShards, ReadBatch, ShardProgress
from libs.source.signal_topic import send_signal, signals_topic
from libs.source.vitess.settings import StreamSettings, VtgateSettings
from libs.source.vitess.tasks import TaskSettings
from libs.stand_ins.vtgate.client import execute
from libs.stand_ins.vtgate.cluster import new_shard, on_every_shard
from libs.stand_ins.vtgate.faults import (
    AnonymousColumns,
    Delay,
    Drop,
    End,
    Fault,
    MissingField,
    OversizedRow,
    WrongFields,
)
from libs.stand_ins.vtgate.log_stream import TabletOptions
from libs.stand_ins.vtgate.reshard import reshard
from libs.stand_ins.vtgate.service import Security, VtgateServer
from libs.stand_ins.vtgate.topology import Shard
from libs.stand_ins.vtgate.vstream import ServerOptions
from libs.testing.source_contract import checkpoint_of
from libs.types.checkpoint import Checkpoint, IncrementalSnapshot
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch
from protos.vitess.binlogdata_pb2 import VEventType
from services.vstream_reader.client import Vtgate
from services.vstream_reader.position import decode_position
from services.vstream_reader.settings import SnapshotMode, SnapshotSettings, VstreamReaderSettings
from services.vstream_reader.source import VstreamSource
from services.vstream_reader.tasks import Fellows
from tests.conftest import KafkaBroker, MysqlServer, StartVtgate
from tests.marks import pairs

TIMEOUT_S = 180.0
UNUSED = GrpcClientSettings(address="127.0.0.1:1")


class MemoryHistory:
    """schema_history without its process: versions as it counts them."""

    def __init__(self) -> None:
        self._versions: dict[TableId, list[TableSchema]] = {}

    async def list_tables(self, source: str) -> list[TableSchema]:
        return [versions[-1] for versions in self._versions.values()]

    async def table_schema(self, source: str, table_id: TableId, version: int) -> TableSchema:
        try:
            return self._versions[table_id][version - 1]
        except (KeyError, IndexError):
            raise SchemaUnknown(f"{table_id} {version}") from None

    async def record_schema_change(self, *, table_id: TableId, table_schema: TableSchema, **rest: object) -> int:
        versions = self._versions.setdefault(table_id, [])
        versions.append(msgspec.structs.replace(table_schema, version=len(versions) + 1))
        return len(versions)


class Follower:
    """Reads a source by turns, as a reader that is killed and started again; keeps the rows that a sink would keep."""

    def __init__(
        self,
        server: VtgateServer,
        *,
        history: MemoryHistory | None = None,
        fellows: Fellows | None = None,
        **settings: Any,
    ) -> None:
        self.server = server
        self.keyspace = server.topology.keyspaces[0].name
        self._history = history or MemoryHistory()
        self._fellows = fellows
        self._settings = VstreamReaderSettings(
            **{
                "source": f"src-{self.keyspace}",
                "vtgate": VtgateSettings(host="127.0.0.1", port=server.port),
                "keyspace": self.keyspace,
                "include_tables": (rf"{self.keyspace}\.t",),
                "schema_history": UNUSED,
                "checkpoint_committer": UNUSED,
                **settings,
            }
        )
        self.checkpoint: Checkpoint | None = None
        self._open: list[ReadBatch] = []
        """After the checkpoint: nobody sees them before the next one."""
        self.shards: Sequence[ShardProgress] = ()
        """As the newest stream reported them when it was left."""
        self.ops: list[str] = []
        self.changes: list[tuple[int, tuple[int, int, int]]] = []
        """Keys and orders of the rows that were not copied, as they came."""
        self.images: list[tuple[str, int, dict[str, Any] | None]] = []
        """Of every row: operation, key and new values, as they came."""
        self.reads: list[int] = []
        """Keys of the rows that were copied, as they came."""
        self.ends = False
        self.times_lost = 0
        """How often the main stream was."""
        self.pause_s = 0.0
        """Before each further batch: the reader's batches under way are bounded, so it waits too."""
        self.rows: dict[int, tuple[tuple[int, int, int], dict[str, Any] | None]] = {}
        """By key: the newest order, and the row; None: deleted."""

    @property
    def table(self) -> dict[int, Any]:
        """The rows that a sink has."""
        return {key: row["v"] for key, (_, row) in sorted(self.rows.items()) if row is not None}

    async def read(self, is_enough: Callable[["Follower"], bool]) -> None:
        """Read on from the last checkpoint until it is enough; then break off, wherever that is."""
        await asyncio.wait_for(self._read(is_enough), TIMEOUT_S)

    async def _read(self, is_enough: Callable[["Follower"], bool]) -> None:
        while True:
            source = VstreamSource(self._settings, self._history, None, self._fellows)  # type: ignore[arg-type]  # the same methods
            self._open.clear()
            order = EventOrder(epoch=0, rank=0, tx_ordinal=0)
            identity = BatchIdentity(
                source=self._settings.source, source_partition="0", connector="vitess", run_id="r", fencing_token=1
            )
            try:
                async with (
                    source.open(self.checkpoint, identity) as change_log,
                    aclosing(change_log.batches()) as batches,
                ):  # type: ignore[type-var]
                    async for batch in batches:
                        await asyncio.sleep(self.pause_s)
                        self._open.append(batch)
                        if batch.resume is not None:
                            for each in self._open:
                                self._take(each)
                            self._open.clear()
                            assert batch.resume.order >= order  # else checkpoint_committer passes it over
                            order = batch.resume.order
                            self.checkpoint = msgspec.structs.replace(
                                checkpoint_of(source, batch.resume), incremental=batch.resume.incremental
                            )
                            if is_enough(self):
                                assert isinstance(change_log, HasShards)
                                self.shards = change_log.shards()
                                return
            except SourceUnavailable:
                self.times_lost += 1
                await asyncio.sleep(0.1)  # as libs.source.follow: again from the last checkpoint

    def _take(self, batch: ReadBatch) -> None:
        for entry in ChangeBatch.FromString(batch.payload).entries:
            run = entry.run
            for index, (op, key, value) in enumerate(zip(run.ops.decode(), run.keys, run.values, strict=True)):
                ordinal = 0 if run.is_snapshot else run.first_tx_ordinal + index
                order = (run.epoch, int(run.rank), ordinal)
                row_id, image = json.loads(key)["id"], json.loads(value)["after"]
                self.ops.append(op)
                self.images.append((op, row_id, image))
                if op == "r":
                    self.reads.append(row_id)
                else:
                    self.changes.append((row_id, order))
                if row_id not in self.rows or self.rows[row_id][0] <= order:
                    self.rows[row_id] = (order, image)


def shards_hold(vtgate: VtgateServer) -> dict[int, Any]:
    """The rows of all serving shards."""
    keyspace = vtgate.topology.keyspaces[0].name
    found: dict[int, Any] = {}
    for shard in vtgate.topology.serving(keyspace):
        found |= {int(str(row_id)): v for row_id, v in shard.primary.execute("SELECT id, v FROM t")}
    return dict(sorted(found.items()))


def has_all(follower: Follower) -> bool:
    return follower.table == shards_hold(follower.server)


@pytest.fixture
def vtgate(start_vtgate: StartVtgate) -> VtgateServer:
    """Two shards with 40 rows; a packet of the stand-in's copy holds few of them."""
    server = start_vtgate()
    fill(server)
    return server


def fill(server: VtgateServer) -> None:
    keyspace = server.topology.keyspaces[0].name
    on_every_shard(server.topology, keyspace, ["CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(40))"])
    write(server, "INSERT INTO t (id, v) VALUES " + ",".join(f"({row_id}, 'v{row_id}')" for row_id in range(1, 41)))


def write(server: VtgateServer, *statements: str) -> None:
    for statement in statements:
        execute(server, statement, server.topology.keyspaces[0].name)


def purge_logs(server: VtgateServer) -> None:
    """Of each shard that serves all but the newest file of its log."""
    for shard in server.topology.serving(server.topology.keyspaces[0].name):
        purge_log(shard)


def purge_log(shard: Shard) -> None:
    """All but the newest file of it."""
    shard.primary.execute("FLUSH BINARY LOGS")
    (*_, newest) = shard.primary.execute("SHOW BINARY LOGS")
    shard.primary.execute(f"PURGE BINARY LOGS TO '{newest[0]}'")


# --- copy and stream ---------------------------------------------------------------------------------------------------


async def test_a_copy_that_is_broken_off_goes_on(start_vtgate: StartVtgate) -> None:
    """Killed after each packet, with writes between: every row is there once, and right."""
    server = start_vtgate(options=ServerOptions())
    fill(server)
    follower = Follower(server)
    for kill in range(1, 5):
        before = len(follower.ops)
        await follower.read(lambda f, before=before: len(f.ops) > before)
        write(
            server, f"UPDATE t SET v = 'u{kill}' WHERE id = {kill}", f"INSERT INTO t (id, v) VALUES ({100 + kill}, 'n')"
        )
        write(server, f"DELETE FROM t WHERE id = {20 + kill}")

    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None and has_all(f))

    assert follower.table == shards_hold(server)


async def test_a_copy_with_an_empty_table_that_is_broken_off_goes_on(start_vtgate: StartVtgate) -> None:
    """After that table no key of a shard is known, only its place in the log: no place to go on from."""
    server = start_vtgate()
    fill(server)
    keyspace = server.topology.keyspaces[0].name
    on_every_shard(server.topology, keyspace, ["CREATE TABLE bare (id BIGINT PRIMARY KEY, v INT)"])
    follower = Follower(server, include_tables=(rf"{keyspace}\.(bare|t)",))
    await follower.read(lambda f: f.checkpoint is not None)
    assert follower.checkpoint is not None
    place = decode_position(follower.checkpoint.position)
    assert [entry.shard for entry in place.vgtid if not entry.is_place or place.copied.get(entry.shard) == ()] == []

    await follower.read(lambda f: f.checkpoint.snapshot is None)

    assert sorted(follower.reads) == list(range(1, 41))


async def test_a_row_that_came_into_an_empty_table_and_went_while_nobody_read_is_deleted(
    start_vtgate: StartVtgate,
) -> None:
    """The table was empty when its copy passed, so no key of it is known when the copy of the others goes on."""
    server = start_vtgate(options=ServerOptions(tablet=TabletOptions(copy_rows=1)))
    fill(server)
    write(server, "INSERT INTO t (id, v) VALUES " + ",".join(f"({row_id}, 'v')" for row_id in range(41, 500)))
    keyspace = server.topology.keyspaces[0].name
    on_every_shard(server.topology, keyspace, ["CREATE TABLE bare (id BIGINT PRIMARY KEY, v VARCHAR(40))"])
    follower = Follower(server, include_tables=(rf"{keyspace}\.(bare|t)",))
    follower.pause_s = 0.05
    ids = range(1000, 1008)
    written = False

    def has_come(follower: Follower) -> bool:
        nonlocal written
        if not written:
            write(server, "INSERT INTO bare (id, v) VALUES " + ",".join(f"({row_id}, 'came')" for row_id in ids))
            written = True
        return set(ids) <= follower.rows.keys()

    await follower.read(has_come)
    assert follower.checkpoint is not None
    assert follower.checkpoint.snapshot is not None
    assert "came" not in [image["v"] for op, _, image in follower.images if op == "r" and image is not None]
    write(server, f"DELETE FROM bare WHERE id < {ids[6]}")
    follower.pause_s = 0.0

    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None)

    assert follower.table == shards_hold(server) | dict.fromkeys(ids[6:], "came")


async def test_a_copy_tells_how_many_rows_to_expect(start_vtgate: StartVtgate) -> None:
    """By the shards' own statistics, of the tables that are copied alone; it stays with the copy through a crash."""
    server = start_vtgate(options=ServerOptions(tablet=TabletOptions(copy_rows=4)))
    fill(server)
    keyspace = server.topology.keyspaces[0].name
    beside = ["CREATE TABLE other (id BIGINT PRIMARY KEY)", "INSERT INTO other VALUES (1), (2), (3)"]
    on_every_shard(server.topology, keyspace, [*beside, "ANALYZE TABLE t", "ANALYZE TABLE other"])
    follower = Follower(server)
    await follower.read(lambda f: bool(f.ops))
    begun = follower.checkpoint.snapshot
    for shard in server.topology.serving(keyspace):
        shard.primary.execute("INSERT INTO t SELECT id + 1000, v FROM t")

    await follower.read(
        lambda f: f.checkpoint.snapshot is not None and f.checkpoint.snapshot.rows_copied > begun.rows_copied
    )

    assert begun is not None
    assert begun.rows_estimated == 40
    assert follower.checkpoint.snapshot.rows_estimated == 40


async def test_a_copy_goes_on_without_an_estimate(vtgate: VtgateServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vtgate that does not let the statement through is no reason to copy nothing."""

    async def refused(self: Vtgate, keyspace: str, shard: str) -> dict[str, int]:
        raise PipelineHalted("vtgate refuses it")

    monkeypatch.setattr(Vtgate, "row_estimates", refused)
    follower = Follower(vtgate)

    await follower.read(has_all)

    assert follower.table == shards_hold(vtgate)


async def test_a_copy_leaves_out_tables_whose_rows_are_not_wanted(vtgate: VtgateServer) -> None:
    """Their changes are followed from where the copy begins."""
    keyspace = vtgate.topology.keyspaces[0].name
    on_every_shard(vtgate.topology, keyspace, ["CREATE TABLE u (id BIGINT PRIMARY KEY, v VARCHAR(40))"])
    write(vtgate, "INSERT INTO u (id, v) VALUES (500, 'old'), (501, 'old'), (502, 'old')")
    only_t = SnapshotSettings(include_tables=(rf"{keyspace}\.t",))
    follower = Follower(vtgate, include_tables=(rf"{keyspace}\.[tu]",), snapshot=only_t)
    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None)
    write(vtgate, "UPDATE u SET v = 'new' WHERE id = 501")

    await follower.read(lambda f: 501 in f.table)

    assert follower.ops == ["r"] * 40 + ["u"]
    assert follower.rows.keys() == {*range(1, 41), 501}


async def test_a_copy_of_no_table_at_all_is_refused(vtgate: VtgateServer) -> None:
    """It is a mistake in the pattern; nothing is copied in its place. Once there is nothing to copy, nobody asks."""
    nothing = SnapshotSettings(include_tables=(r"ks\.nothing",))
    follower = Follower(vtgate, snapshot=nothing)
    with pytest.raises(SourceMisconfigured, match=r"matches snapshot\.include_tables \(ks\\\.nothing\): correct"):
        await follower.read(has_all)
    assert not follower.ops
    follower = Follower(vtgate, snapshot=msgspec.structs.replace(nothing, mode=SnapshotMode.NO_DATA))
    await follower.read(lambda f: f.checkpoint is not None and b"current" not in f.checkpoint.position.token)

    write(vtgate, "UPDATE t SET v = 'new' WHERE id = 1")
    await follower.read(lambda f: bool(f.ops))

    assert follower.table == {1: "new"}


async def test_changes_of_both_shards_arrive(vtgate: VtgateServer) -> None:
    """Inserts, updates and deletes, after the copy: a row written before its end may be one of the copy's."""
    follower = Follower(vtgate)
    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None)
    write(
        vtgate,
        "UPDATE t SET v = 'w' WHERE id = 3",
        "DELETE FROM t WHERE id = 4",
        "INSERT INTO t (id, v) VALUES (90, 'x')",
    )

    await follower.read(has_all)

    assert follower.ops.count("r") == 40
    assert {"u", "d", "c"} <= set(follower.ops)


_TEXTS = """CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(9) CHARACTER SET latin1, cyrillic TEXT CHARACTER SET cp1251,
    wide CHAR(5) CHARACTER SET utf16le, japanese VARCHAR(9) CHARACTER SET sjis, e ENUM('2','ä','€') CHARACTER SET latin1,
    s SET('1','ö','ü') CHARACTER SET latin1)"""


@pytest.mark.parametrize("enum_as_text", [True, False])
async def test_text_is_read_in_its_columns_character_set(start_vtgate: StartVtgate, enum_as_text: bool) -> None:
    """From copy and log alike, also where the bytes are UTF-8 by chance. A copy has the members of ENUM and SET in their
    column's set, the log their numbers or, from newer tablets, UTF-8; a member that is a number is no number of a member."""
    server = start_vtgate(options=ServerOptions(tablet=TabletOptions(enum_as_text=enum_as_text)))
    follower = Follower(server)
    on_every_shard(server.topology, follower.keyspace, [_TEXTS])
    values = "'ä', 'жук', 'ß水', 'ｱ表', '2', '1,ü'), ({}, 'Ã¤', NULL, '', '漢字', '€', 'ö,ü'), ({}, '€', '', NULL, '', 'ä', ''"
    write(server, f"INSERT INTO t (id, v, cyrillic, wide, japanese, e, s) VALUES (1, {values.format(2, 3)})")
    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None and len(f.rows) == 3)
    write(server, f"INSERT INTO t (id, v, cyrillic, wide, japanese, e, s) VALUES (11, {values.format(12, 13)})")

    await follower.read(lambda f: len(f.rows) == 6)

    texts = ("v", "cyrillic", "wide", "japanese", "e", "s")
    stored = [
        ("ä", "жук", "ß水", "ｱ表", "2", "1,ü"),
        ("Ã¤", None, "", "漢字", "€", "ö,ü"),
        ("€", "", None, "", "ä", ""),
    ]
    delivered = {row_id: tuple(row[name] for name in texts) for row_id, (_, row) in follower.rows.items() if row}
    assert follower.ops == ["r"] * 3 + ["c"] * 3
    assert delivered == dict(zip((1, 2, 3, 11, 12, 13), stored * 2, strict=True))


async def test_each_shard_tells_how_far_it_was_read(vtgate: VtgateServer) -> None:
    """Of a copy and of changes; the positions are those of the shards themselves."""
    follower = Follower(vtgate)
    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None)
    copied = {shard.shard: shard.rows for shard in follower.shards}
    write(vtgate, "UPDATE t SET v = 'w' WHERE id <= 20")

    await follower.read(has_all)

    serving = {shard.name: shard.primary for shard in vtgate.topology.serving(follower.keyspace)}
    executed = {name: primary.execute("SELECT @@global.gtid_executed")[0][0] for name, primary in serving.items()}
    assert copied.keys() == serving.keys()
    assert sum(copied.values()) == 40
    assert sum(shard.transactions for shard in follower.shards) == 2
    assert sum(shard.rows for shard in follower.shards) == 20
    assert {shard.shard: shard.position.removeprefix("MySQL56/") for shard in follower.shards} == {
        name: "".join(str(gtid).split()) for name, gtid in executed.items()
    }
    assert all(0 <= shard.lag_s < TIMEOUT_S and not shard.is_ended for shard in follower.shards)


async def test_a_purged_log_is_copied_anew_when_needed(vtgate: VtgateServer) -> None:
    """The rows of the second copy win over all before, deleted ones aside: those are gone from the log for good."""
    follower = Follower(vtgate, snapshot=SnapshotSettings(mode=SnapshotMode.WHEN_NEEDED))
    await follower.read(lambda f: has_all(f) and f.checkpoint is not None and f.checkpoint.snapshot is None)
    write(vtgate, "UPDATE t SET v = 'new' WHERE id < 10")
    purge_logs(vtgate)

    await follower.read(has_all)

    assert {order[0] for order, _ in follower.rows.values()} == {2}


@pytest.mark.parametrize("mode", [SnapshotMode.INITIAL, SnapshotMode.NO_DATA])
async def test_a_keyspace_that_was_reset_begins_again_in_a_new_epoch(vtgate: VtgateServer, mode: SnapshotMode) -> None:
    """Its log is purged, so nothing else would read on. All rows are copied, or with no_data what comes is followed."""
    follower = Follower(vtgate, snapshot=SnapshotSettings(mode=mode))
    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None)
    write(vtgate, "UPDATE t SET v = 'before' WHERE id < 10")
    await follower.read(lambda f: len(f.changes) >= 9)
    write(vtgate, "UPDATE t SET v = 'unseen' WHERE id < 10", "DELETE FROM t WHERE id = 40")
    purge_logs(vtgate)
    with pytest.raises(PositionPurged, match="re-snapshot the source"):
        await follower.read(has_all)
    assert follower.checkpoint is not None
    epoch = follower.checkpoint.order.epoch
    follower.checkpoint = msgspec.structs.replace(follower.checkpoint, starts_over=True)
    follower.reads.clear()

    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None)
    write(vtgate, "UPDATE t SET v = 'after' WHERE id < 20")
    await follower.read(lambda f: f.table.get(19) == "after")

    assert not follower.checkpoint.starts_over
    assert sorted(follower.reads) == ([] if mode is SnapshotMode.NO_DATA else [*range(1, 40)])
    found = {row_id: order[0] for row_id, (order, _) in follower.rows.items()}
    renewed = range(1, 20) if mode is SnapshotMode.NO_DATA else range(1, 40)
    assert {found[row_id] for row_id in renewed} == {epoch + 1}
    assert found.get(40, 0) <= epoch


async def test_always_copies_once_more_at_each_start(vtgate: VtgateServer) -> None:
    """Also where the start before broke off: its rows win over all before, and its count begins with them."""
    follower = Follower(vtgate, snapshot=SnapshotSettings(mode=SnapshotMode.ALWAYS))
    for start in (1, 2):
        await follower.read(lambda f: len(f.reads) > 10)
        assert follower.checkpoint is not None
        assert follower.checkpoint.snapshot is not None
        assert 10 < follower.checkpoint.snapshot.rows_copied == len(follower.reads) <= 40, start
        follower.reads.clear()
    write(vtgate, "DELETE FROM t WHERE id = 40")

    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None)

    assert sorted(follower.reads) == [*range(1, 40)]
    assert {order[0] for row_id, (order, _) in follower.rows.items() if row_id != 40} == {3}


@pytest.mark.parametrize("mode", [SnapshotMode.ALWAYS, SnapshotMode.WHEN_NEEDED])
@pytest.mark.parametrize("is_followed", [True, False], ids=["followed", "behind"])
async def test_a_task_copies_its_own_shards_once_more(
    is_followed: bool, mode: SnapshotMode, vtgate: VtgateServer, shard_servers: Callable[[int], list[MysqlServer]]
) -> None:
    """A reshard has made other shards of them than a task would be dealt now, and other tasks go on with theirs."""
    settings = {"tasks": TaskSettings(number=0, of=2), "stream": StreamSettings(stop_on_reshard=True)}
    follower = Follower(vtgate, **settings)
    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None)
    (old,) = {shard.shard for shard in follower.shards}
    _, *free = shard_servers(4)
    halves = [_shard(follower.keyspace, "-40", 500, free[1]), _shard(follower.keyspace, "40-80", 600, free[2])]
    await asyncio.to_thread(reshard, vtgate, halves)
    write(vtgate, "UPDATE t SET v = 'new'")
    if is_followed:
        await follower.read(lambda f: f.checkpoint is not None and b"40-80" in f.checkpoint.position.token)
    if mode is SnapshotMode.WHEN_NEEDED:
        purge_logs(vtgate)
    again = Follower(vtgate, **settings, snapshot=SnapshotSettings(mode=mode))
    again.checkpoint = follower.checkpoint

    await again.read(lambda f: bool(f.reads) and f.checkpoint is not None and f.checkpoint.snapshot is None)

    assert old == "-80"
    assert {shard.shard for shard in again.shards} == {"-40", "40-80"}
    assert again.table.items() <= shards_hold(vtgate).items()
    assert again.table.keys() == follower.table.keys()


async def test_a_table_that_is_not_there_yet_is_waited_for(vtgate: VtgateServer) -> None:
    """By its plain name: the others are copied, and it is captured when it is created."""
    keyspace = vtgate.topology.keyspaces[0].name
    follower = Follower(vtgate, include_tables=(rf"{keyspace}\.t", f"{keyspace}.later"))
    await follower.read(lambda f: has_all(f) and f.checkpoint is not None and f.checkpoint.snapshot is None)
    on_every_shard(vtgate.topology, keyspace, ["CREATE TABLE later (id BIGINT PRIMARY KEY, v VARCHAR(40))"])
    write(vtgate, "INSERT INTO later (id, v) VALUES (7001, 'new')")

    await follower.read(lambda f: 7001 in f.table)


async def test_heartbeats_come_at_a_source_at_rest(vtgate: VtgateServer) -> None:
    """Checkpoints with nothing beside them, every heartbeat_interval_s."""
    follower = Follower(vtgate, heartbeat_interval_s=0.1)
    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None)
    before = len(follower.ops)
    beats = itertools.count(1)

    await follower.read(lambda _: next(beats) == 4)

    assert len(follower.ops) == before


# --- reshards ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stops", "is_told"), [(False, True), (True, True), (False, False)], ids=["follows", "stops", "before Vitess 21"]
)
async def test_a_split_and_a_merge_lose_nothing(
    stops: bool, is_told: bool, start_vtgate: StartVtgate, shard_servers: Callable[[int], list[MysqlServer]]
) -> None:
    """Old shards are read to their journals, then the new ones; their rows are later, in the next epoch. So with a stream that
    vtgate ends at the reshard, and with a vtgate that reports no journal."""
    vtgate = start_vtgate(options=ServerOptions(knows_journal_flag=is_told))
    fill(vtgate)
    follower = Follower(vtgate, stream=StreamSettings(stop_on_reshard=stops))
    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None)
    write(vtgate, "UPDATE t SET v = 'before' WHERE id IN (1, 2, 3, 4, 5, 6)")
    one, _, third = shard_servers(3)
    halves = [_shard(follower.keyspace, "-40", 500, one), _shard(follower.keyspace, "40-80", 600, third)]

    await asyncio.to_thread(reshard, vtgate, halves)
    write(vtgate, "UPDATE t SET v = 'split' WHERE id IN (1, 2, 3)")
    await follower.read(has_all)
    await asyncio.to_thread(reshard, vtgate, [_shard(follower.keyspace, "-", 700, one)])
    write(vtgate, "UPDATE t SET v = 'merged' WHERE id = 1", "DELETE FROM t WHERE id = 2")
    await follower.read(has_all)

    assert follower.table == shards_hold(vtgate)
    assert follower.rows[1][0][0] == 3  # copied in epoch 1, split, merged


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("target_names", [("-40", "40-80"), ("-",)])
async def test_a_reshard_in_the_midst_of_a_copy_loses_nothing(
    stops: bool,
    target_names: tuple[str, ...],
    start_vtgate: StartVtgate,
    shard_servers: Callable[[int], list[MysqlServer]],
) -> None:
    """Rows that the old shards did not copy come from the new ones; rows that had come and were deleted since stay deleted."""
    server = start_vtgate(options=ServerOptions(tablet=TabletOptions(copy_rows=4)))
    fill(server)
    follower = Follower(server, stream=StreamSettings(stop_on_reshard=stops))
    await follower.read(lambda f: len(f.reads) >= 8)
    copied = set(follower.reads)
    servers = shard_servers(len(target_names))
    targets = [
        _shard(follower.keyspace, name, 500 + 100 * number, place)
        for number, (name, place) in enumerate(zip(target_names, servers, strict=True))
    ]

    await asyncio.to_thread(reshard, server, targets)
    gone, changed = sorted(copied)[:2]
    write(server, f"DELETE FROM t WHERE id = {gone}", f"UPDATE t SET v = 'new' WHERE id = {changed}")
    write(server, "DELETE FROM t WHERE id = 40", "INSERT INTO t (id, v) VALUES (90, 'new')")
    await follower.read(lambda f: f.checkpoint.snapshot is None and not f.checkpoint.incremental.tables and has_all(f))

    assert len(copied) < 40
    assert follower.table == shards_hold(server)
    assert follower.checkpoint.incremental.finished[-1].table == f"{follower.keyspace}.t"


async def test_a_stream_that_ends_in_peace_long_after_a_reshard_is_opened_again(
    vtgate: VtgateServer, shard_servers: Callable[[int], list[MysqlServer]]
) -> None:
    """The end of a stream means no reshard then."""
    follower = Follower(vtgate)
    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None)
    one, second = shard_servers(2)
    halves = [_shard(follower.keyspace, "-40", 500, one), _shard(follower.keyspace, "40-80", 600, second)]
    await asyncio.to_thread(reshard, vtgate, halves)
    write(vtgate, "UPDATE t SET v = 'split' WHERE id = 1")

    def is_later(f: Follower) -> bool:
        """After the reshard the stream ends, once; then a change comes."""
        if f.table.get(1) == "split" and not f.ends:
            f.ends = True
            vtgate.faults.arm(End())
            write(vtgate, "UPDATE t SET v = 'later' WHERE id = 1")
        return f.table.get(1) == "later"

    await follower.read(is_later)

    assert not vtgate.faults.armed
    assert follower.table == shards_hold(vtgate)


async def test_a_reader_that_names_its_shards_goes_on_when_they_have_given_way_to_others(
    vtgate: VtgateServer, shard_servers: Callable[[int], list[MysqlServer]]
) -> None:
    """It followed the reshard by itself: to be started again it needs no other settings. One that has not begun does."""
    follower = Follower(vtgate, shards=("-80", "80-"))
    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None)
    one, second = shard_servers(2)
    halves = [_shard(follower.keyspace, "-40", 500, one), _shard(follower.keyspace, "40-80", 600, second)]
    await asyncio.to_thread(reshard, vtgate, halves)
    for value in ("split", "later"):
        write(vtgate, f"UPDATE t SET v = '{value}' WHERE id = 1")
        await follower.read(lambda f, value=value: f.table.get(1) == value)

    assert follower.table == shards_hold(vtgate)
    assert {shard.shard for shard in follower.shards} == {"-40", "40-80", "80-"}
    with pytest.raises(SourceMisconfigured, match="has no shard -80; it has -40, 40-80, 80-"):
        await Follower(vtgate, shards=("-80", "80-")).read(has_all)


async def test_a_stream_that_ends_between_the_journals_of_a_merge_loses_nothing(
    vtgate: VtgateServer, shard_servers: Callable[[int], list[MysqlServer]]
) -> None:
    """One shard has come to its journal, the other not yet: both are read again."""
    follower = Follower(vtgate, stream=StreamSettings(stop_on_reshard=True))
    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None)
    primary = vtgate.topology.shard(follower.keyspace, "80-").primary
    with contextlib.closing(primary.connect()) as connection, connection.cursor() as cursor:
        for number in range(600):
            cursor.execute(f"UPDATE t SET v = 'w{number}'")
    vtgate.faults.arm(End(VEventType.JOURNAL))
    (one,) = shard_servers(1)

    await asyncio.to_thread(reshard, vtgate, [_shard(follower.keyspace, "-", 700, one)])
    write(vtgate, "UPDATE t SET v = 'merged' WHERE id = 1")
    await follower.read(has_all)

    assert not vtgate.faults.armed
    assert follower.table == shards_hold(vtgate)


def _shard(keyspace: str, name: str, uid: int, server: MysqlServer) -> Shard:
    return new_shard(keyspace, name, uid, server.host, server.port)


# --- execute-snapshot --------------------------------------------------------------------------------------------------

MANY = 600
"""Rows of a copy that nobody has received whole when the test acts: packets are small, and rows under way are bounded."""
SLOW = ServerOptions(tablet=TabletOptions(copy_rows=100, packet_bytes=30))


@pytest.fixture
def kafka(kafka_broker: KafkaBroker) -> KafkaSettings:
    """With the topic of signals."""
    kafka = KafkaSettings(bootstrap_servers=kafka_broker.bootstrap_servers)
    ensure_topics(kafka, [signals_topic(1)])
    return kafka


class Signalled:
    """A follower that has finished the first copy and hears signals."""

    def __init__(self, follower: Follower, kafka: KafkaSettings) -> None:
        self.follower = follower
        self._kafka = kafka

    @property
    def copying(self) -> IncrementalSnapshot:
        """As the newest checkpoint has it."""
        assert self.follower.checkpoint is not None
        return self.follower.checkpoint.incremental

    def send(self, kind: str, *tables: str, signal_id: str = "1", condition: str = "", **rest: object) -> None:
        """A signal about tables of the keyspace."""
        names = [f"{self.follower.keyspace}.{table}" for table in tables]
        data: dict[str, object] = {**rest, "data-collections": names} if names else {}
        if condition:
            data["additional-conditions"] = [{"data-collection": name, "filter": condition} for name in names]
        text = json.dumps({"id": signal_id, "type": kind, "data": data})
        send_signal(self._kafka, f"src-{self.follower.keyspace}", text)

    async def copy_in_part(self, *tables: str, condition: str = "") -> None:
        """Forget all rows, as a sink that lost them, and let the reader copy some again; then it is killed."""
        self.follower.rows.clear()
        self.follower.reads.clear()
        await asyncio.to_thread(self.send, "execute-snapshot", *tables or ("t",), condition=condition)
        await self.follower.read(lambda f: len(f.reads) >= 20)
        assert self.copying.tables

    async def read_once(
        self, action: Callable[[], None], is_enough: Callable[[], bool], *, pause_s: float = 0.1
    ) -> None:
        """Read on, and act once some more rows were copied, while the reader runs; slowly then, for it hears a signal some time
        after it was sent, and the copy is not to end before."""
        before, done = len(self.follower.reads), False

        def check(follower: Follower) -> bool:
            nonlocal done
            if not done and len(follower.reads) >= before + 20:
                done, follower.pause_s = True, pause_s
                action()
            return done and is_enough()

        await self.follower.read(check)
        self.follower.pause_s = 0.0

    async def copy_the_rest(self) -> None:
        """Read until nothing more is asked for, and after that the rows that the shards have now."""
        await self.follower.read(lambda f: not self.copying.tables)
        await asyncio.to_thread(write, self.follower.server, "INSERT INTO t (id, v) VALUES (9000, 'last')")
        await self.follower.read(lambda f: 9000 in f.table)


async def signalled(server: VtgateServer, kafka: KafkaSettings, **settings: Any) -> Signalled:
    """Over a table of ``MANY`` rows."""
    fill(server)
    many = ",".join(f"({row_id}, 'v{row_id}')" for row_id in range(41, MANY + 1))
    await asyncio.to_thread(write, server, f"INSERT INTO t (id, v) VALUES {many}")
    follower = Follower(server, kafka=kafka, **settings)
    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None)
    await follower.read(lambda f: f.checkpoint.incremental.signals_offset is not None)
    return Signalled(follower, kafka)


async def test_a_signal_copies_a_table_again(vtgate: VtgateServer, kafka: KafkaSettings) -> None:
    """While the stream goes on: every row comes again as a read, and later changes still win."""
    follower = Follower(vtgate, kafka=kafka)
    await follower.read(lambda f: f.checkpoint is not None and f.checkpoint.snapshot is None)
    await follower.read(lambda f: f.checkpoint.incremental.signals_offset is not None)
    copied = follower.ops.count("r")
    Signalled(follower, kafka).send("execute-snapshot", "t")
    write(vtgate, "UPDATE t SET v = 'w' WHERE id = 3", "DELETE FROM t WHERE id = 4")

    await follower.read(lambda f: f.ops.count("r") >= copied + 39 and not f.checkpoint.incremental.tables)
    write(vtgate, "UPDATE t SET v = 'later' WHERE id = 5")
    await follower.read(has_all)

    assert follower.table == shards_hold(vtgate)


async def test_requests_for_a_table_that_is_being_copied_are_queued(
    start_vtgate: StartVtgate, kafka: KafkaSettings
) -> None:
    """The same one and others: rows that were copied before a request do not answer it. Each ends by itself."""
    mesh = await signalled(start_vtgate(options=SLOW), kafka)
    await mesh.copy_in_part()

    def ask_again() -> None:
        mesh.send("execute-snapshot", "t", signal_id="2")
        mesh.send("execute-snapshot", "t", signal_id="3", condition="id > 590")
        mesh.send("execute-snapshot", "t", signal_id="3 again", condition="id > 590")  # waits already

    await mesh.read_once(ask_again, lambda: len(mesh.copying.tables) == 3)
    await mesh.copy_the_rest()

    ends = [(end.signal_id, end.condition, end.rows_read) for end in mesh.copying.finished]
    assert ends == [("1", "", MANY), ("2", "", MANY), ("3", "id > 590", 10)]
    assert len(mesh.follower.reads) == 2 * MANY + 10


async def test_a_copy_that_a_signal_asked_for_tells_how_far_it_is(
    start_vtgate: StartVtgate, kafka: KafkaSettings
) -> None:
    """Rows of how many, by the shards' statistics: `headwater status` computes the time left from these."""
    server = start_vtgate(options=SLOW)
    mesh = await signalled(server, kafka)
    await asyncio.to_thread(on_every_shard, server.topology, mesh.follower.keyspace, ["ANALYZE TABLE t"])

    await mesh.copy_in_part()

    (copy,) = mesh.copying.tables
    assert 20 <= copy.rows_read < MANY
    assert copy.rows_read == len(mesh.follower.reads)
    assert copy.rows_estimated == MANY
    assert copy.chunks_read > 0


@pytest.mark.parametrize(
    ("target_names", "stops", "reader"),
    pairs(
        target_names={"split": ("-40", "40-80"), "merge": ("-",)},
        stops={"follows": False, "stops": True},
        reader={"running": (True, False), "killed": (False, False), "at rest": (True, True)},
    ),
)
async def test_a_reshard_in_the_midst_of_a_copy_that_a_signal_asked_for_loses_nothing(
    target_names: tuple[str, ...],
    stops: bool,
    reader: tuple[bool, bool],
    start_vtgate: StartVtgate,
    shard_servers: Callable[[int], list[MysqlServer]],
    kafka: KafkaSettings,
) -> None:
    """The old shards' rows that were not copied come from the new ones, also where the reader was dead meanwhile, or where
    nobody writes."""
    is_running, is_at_rest = reader
    server = start_vtgate(options=SLOW)
    mesh = await signalled(server, kafka, stream=StreamSettings(stop_on_reshard=stops))
    await mesh.copy_in_part()
    targets = [
        _shard(mesh.follower.keyspace, name, 500 + 100 * number, place)
        for number, (name, place) in enumerate(zip(target_names, shard_servers(len(target_names)), strict=True))
    ]

    def reshard_and_write() -> None:
        reshard(server, targets)
        if not is_at_rest:
            write(server, "DELETE FROM t WHERE id = 1", "UPDATE t SET v = 'new' WHERE id = 2")

    if is_running:
        await mesh.read_once(reshard_and_write, lambda: True)
    else:
        await asyncio.to_thread(reshard_and_write)
    await mesh.copy_the_rest()

    assert mesh.follower.table == shards_hold(server)
    assert len(mesh.follower.table) == MANY + is_at_rest  # one deleted, one inserted
    assert [end.signal_id for end in mesh.copying.finished] == ["1"]


async def test_a_copy_is_paused_and_goes_on(start_vtgate: StartVtgate, kafka: KafkaSettings) -> None:
    """No row comes meanwhile but changes; then the rest alone, and no row twice, whether the reader was killed or not."""
    server = start_vtgate(options=SLOW)
    mesh = await signalled(server, kafka)
    await mesh.copy_in_part()

    await mesh.read_once(lambda: mesh.send("pause-snapshot"), lambda: mesh.copying.is_paused)
    copied = len(mesh.follower.reads)
    await asyncio.to_thread(write, server, "INSERT INTO t (id, v) VALUES (8000, 'changed')")
    await mesh.follower.read(lambda f: 8000 in f.table)
    is_held = len(mesh.follower.reads) == copied
    await asyncio.to_thread(mesh.send, "resume-snapshot")
    await mesh.copy_the_rest()

    assert is_held
    assert mesh.follower.table == shards_hold(server)
    assert sorted(mesh.follower.reads) in ([*range(1, MANY + 1)], [*range(1, MANY + 1), 8000])


async def test_a_copy_that_was_paused_until_its_log_was_purged_begins_again(
    start_vtgate: StartVtgate, kafka: KafkaSettings
) -> None:
    """The main stream went on; the copy's own place in the log is gone."""
    server = start_vtgate(options=SLOW)
    mesh = await signalled(server, kafka)
    await mesh.copy_in_part()
    await asyncio.to_thread(mesh.send, "pause-snapshot")
    await mesh.follower.read(lambda f: mesh.copying.is_paused)
    everywhere = "UPDATE t SET v = 'w' WHERE id <= 100"
    await asyncio.to_thread(write, server, everywhere)
    await mesh.follower.read(lambda f: sum(v == "w" for v in f.table.values()) == 100)
    purge_logs(server)

    await asyncio.to_thread(mesh.send, "resume-snapshot")
    await mesh.copy_the_rest()

    assert mesh.follower.table == shards_hold(server)


async def test_a_copy_is_stopped_by_table_or_whole(start_vtgate: StartVtgate, kafka: KafkaSettings) -> None:
    """The other tables are copied; one that is asked for again, with other conditions, is begun again."""
    server = start_vtgate(options=SLOW)
    await asyncio.to_thread(
        on_every_shard,
        server.topology,
        server.topology.keyspaces[0].name,
        ["CREATE TABLE u (id BIGINT PRIMARY KEY, v VARCHAR(40))"],
    )
    mesh = await signalled(server, kafka, include_tables=(rf"{server.topology.keyspaces[0].name}\.[tu]",))
    write(server, "INSERT INTO u (id, v) VALUES (7001, 'u'), (7002, 'u'), (7003, 'u')")
    await mesh.copy_in_part("t", "u")

    def stop_and_ask() -> None:
        mesh.send("stop-snapshot", "t")
        mesh.send("execute-snapshot", "t", signal_id="2", condition="id <= 10")

    await mesh.read_once(stop_and_ask, lambda: [copy.signal_id for copy in mesh.copying.tables] == ["1", "2"])
    await mesh.follower.read(lambda f: not mesh.copying.tables)
    ends = [(end.table.rpartition(".")[2], end.signal_id, end.rows_read) for end in mesh.copying.finished]
    await mesh.copy_in_part()
    await mesh.read_once(lambda: mesh.send("stop-snapshot"), lambda: not mesh.copying.tables)

    assert ends == [("u", "1", 3), ("t", "2", 10)]
    assert len(mesh.follower.reads) < MANY
    assert len(mesh.copying.finished) == 2


async def test_a_condition_that_vtgate_cannot_filter_by_is_refused_alone(
    start_vtgate: StartVtgate, kafka: KafkaSettings
) -> None:
    """By name; the request after it is done, and the main stream was not broken off."""
    server = start_vtgate(options=SLOW)
    mesh = await signalled(server, kafka)
    mesh.follower.reads.clear()
    with structlog.testing.capture_logs() as lines:
        mesh.send("execute-snapshot", "t", condition="id IN (1, 2) OR v LIKE 'v1%'")
        mesh.send("execute-snapshot", "t", signal_id="2", condition="id > 10 AND id <= 20 AND v <> 'v15'")
        mesh.send("execute-snapshot", "t", signal_id="3", condition="no_column = 1")
        mesh.send("execute-snapshot", "t", signal_id="4", **{"surrogate-key": "v"})
        mesh.send("log")
        await mesh.follower.read(lambda f: bool(mesh.copying.finished) and not mesh.copying.tables)

    assert sorted(mesh.follower.reads) == [11, 12, 13, 14, 16, 17, 18, 19, 20]
    assert [end.signal_id for end in mesh.copying.finished] == ["2"]
    refused = [line["reason"] for line in lines if line["event"] in ("incremental_table_refused", "signal_refused")]
    assert mesh.follower.times_lost == 0
    assert len(refused) == 3
    assert "'4': surrogate-key: vtgate copies a table along its primary key alone" in refused[0]
    assert "unsupported constraint" in refused[1]
    assert "comparisons of a column with a constant, joined by AND" in refused[1]
    assert "no_column" in refused[2]


@pytest.mark.parametrize("fault", [Drop(0), End(), MissingField("t")], ids=lambda fault: type(fault).__name__)
async def test_a_copy_that_breaks_goes_on_beside_the_stream(
    fault: Fault, start_vtgate: StartVtgate, kafka: KafkaSettings
) -> None:
    """The second stream alone is opened again; the main one does not notice."""
    server = start_vtgate(options=SLOW)
    mesh = await signalled(server, kafka, stream=StreamSettings(heartbeat_interval_s=30))
    await mesh.copy_in_part()
    if isinstance(fault, MissingField):  # the second stream's: of the main one no FIELD comes before a change
        server.faults.arm(fault)
        await mesh.follower.read(lambda f: not mesh.copying.tables)
    else:
        await mesh.read_once(lambda: server.faults.arm(fault), lambda: not mesh.copying.tables, pause_s=0.0)

    assert not server.faults.armed
    assert mesh.follower.times_lost == 0
    assert {row_id: f"v{row_id}" for row_id in range(1, MANY + 1)} == mesh.follower.table
    assert len(mesh.follower.reads) == MANY


# --- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [Drop(7), Drop(30), Delay(12.0), AnonymousColumns("t"), MissingField("t")],
    ids=lambda fault: type(fault).__name__,
)
async def test_what_passes_is_read_again(vtgate: VtgateServer, fault: Fault) -> None:
    """A broken or silent stream, columns named @1, rows without their columns: opened again, nothing lost."""
    vtgate.faults.arm(fault)
    follower = Follower(vtgate, stream=StreamSettings(heartbeat_interval_s=1))

    await follower.read(has_all)
    write(vtgate, "UPDATE t SET v = 'w' WHERE id = 3")
    await follower.read(has_all)

    assert not vtgate.faults.armed


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            WrongFields("t"),
            r"stream after -80 at .*\.t: vtgate sent a row of 2 values where its FIELD event has 3 columns",
        ),
        (OversizedRow("t", 80_000), r"raise vtgate.max_message_bytes above that"),
    ],
)
async def test_what_does_not_pass_halts_with_its_remedy(vtgate: VtgateServer, fault: Fault, message: str) -> None:
    """Nothing of it is delivered; the place is named."""
    vtgate.faults.arm(fault)
    small = VtgateSettings(host="127.0.0.1", port=vtgate.port, max_message_bytes=60_000)

    with pytest.raises(PipelineHalted, match=message):
        await Follower(vtgate, vtgate=small).read(has_all)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"keyspace": "no_such"}, SourceMisconfigured, r"no keyspace 'no_such'; known: "),
        ({"shards": ("-80", "c0-")}, SourceMisconfigured, r"has no shard c0-; it has -80, 80-"),
        ({"include_tables": (r"ks\.nothing",)}, SourceMisconfigured, r"no table of keyspace .* matches include_tables"),
    ],
)
async def test_what_does_not_exist_is_told_before_reading(
    vtgate: VtgateServer, wrong: dict[str, Any], error: type[HeadwaterError], message: str
) -> None:
    """With what does."""
    with pytest.raises(error, match=message):
        await Follower(vtgate, **wrong).read(has_all)


async def test_credentials_are_asked_for(start_vtgate: StartVtgate) -> None:
    """Static authentication: with the password rows come, without it the reader names the settings to check."""
    server = start_vtgate(security=Security(users={"headwater": "secret"}))
    keyspace = server.topology.keyspaces[0].name
    on_every_shard(server.topology, keyspace, ["CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(40))"])
    server.topology.serving(keyspace)[0].primary.execute("INSERT INTO t VALUES (1, 'v')")
    right = VtgateSettings(host="127.0.0.1", port=server.port, user="headwater", password=Secret("secret"))

    with pytest.raises(AccessDenied, match=r"vtgate\.user, vtgate\.password"):
        await Follower(server).read(has_all)
    await Follower(server, vtgate=right).read(has_all)
