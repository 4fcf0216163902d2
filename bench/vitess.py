"""Vitess: a copy and a stream, recorded once, read by the VStream reader and by Debezium's Vitess connector.

The stand-in for vtgate serves a record as bytes, so that the client is measured: from the moment the record may flow until its
last event is in the tenant's topic, CPU seconds of reader and router against those of Connect's JVM. Both are connected and
idle before that. Rows are those of ``workload``'s table, in one shard; transactions of 100 rows. A second stream is of 256
shards in turn; both readers then leave the other shards' places out of each event. A third has them in each: 18 KB.
"""

import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.catch_up import TENANT, CatchUp, EndOfTopic, cost_of, measure_peer, measured, router_settings
from bench.debezium_vitess import debezium_vitess
from bench.stack import REPOSITORY, Servers, Service, bench_stack, wait_until
from bench.workload import DATABASE, ROWS_PER_TRANSACTION, TABLE
from libs.events.names import row_topic
from libs.servers.ports import LOOPBACK, free_port
from libs.servers.process import ProcessSpec, start, stop, wait_ready
from libs.stand_ins.vtgate.replay import write_record
from libs.types.table import TableId
from protos.vitess import binlogdata_pb2 as binlogdata
from protos.vitess import query_pb2 as query
from protos.vitess.vtgate_pb2 import VStreamResponse

COPIED_ROWS: Final = 1_000_000
STREAMED_EVENTS: Final = 500_000
SHARDS: Final = 256
SHARDED_EVENTS: Final = 200_000
WHOLE_VGTID_EVENTS: Final = 10_000
SOURCE: Final = "bench"
PEER_PREFIX: Final = "debezium"
_SHARD: Final = "-"
_MANY_SHARDS: Final = tuple(
    f"{f'{first:02x}' if first else ''}-{f'{first + 1:02x}' if first < SHARDS - 1 else ''}" for first in range(SHARDS)
)
_HOST: Final = "11111111-2222-3333-4444-555555555555"
_ROWS_PER_PACKET: Final = 700  # about the 250 KB of a tablet's packet
_READY_TIMEOUT_S: Final = 120.0
_TIMEOUT_S: Final = 600.0
_STOP_TIMEOUT_S: Final = 10.0
_NOT_NULL, _KEY, _NUMBER = 1, 2, 32768


@dataclass(frozen=True, slots=True)
class VitessFigures:
    """The cost of each part, ours and, where it ran, the peer's."""

    copied: CatchUp
    streamed: CatchUp
    sharded: CatchUp
    """A stream of ``SHARDS`` shards."""
    whole_vgtid: CatchUp
    """The same, each event with the places of all of them."""


def measure_vitess(folder: Path, *, with_peer: bool, scale: float = 1.0) -> VitessFigures:
    """The parts, one after the other, each with servers and processes of its own.

    Raises:
        ServiceUnavailable: Debezium did not start, or failed on the way; the message has the end of its log.
    """
    copied, streamed = int(COPIED_ROWS * scale), int(STREAMED_EVENTS * scale)
    sharded, whole_vgtid = int(SHARDED_EVENTS * scale), int(WHOLE_VGTID_EVENTS * scale)
    return VitessFigures(
        copied=_measure(folder / "copy", _copy(copied), copied, mode="initial", with_peer=with_peer),
        streamed=_measure(folder / "stream", _stream(streamed), streamed, mode="never", with_peer=with_peer),
        sharded=_measure(
            folder / "shards",
            _stream(sharded, _MANY_SHARDS),
            sharded,
            mode="never",
            with_peer=with_peer,
            use_local_vgtid=True,
        ),
        whole_vgtid=_measure(
            folder / "whole-vgtid",
            _stream(whole_vgtid, _MANY_SHARDS),
            whole_vgtid,
            mode="never",
            with_peer=with_peer,
        ),
    )


def _measure(
    folder: Path,
    record: Iterator[VStreamResponse],
    row_events: int,
    *,
    mode: str,
    with_peer: bool,
    use_local_vgtid: bool = False,
) -> CatchUp:
    folder.mkdir(parents=True)
    write_record(folder / "record", record)
    with bench_stack(folder) as (servers, start_service):
        with _vtgate(folder, "ours") as (port, let_flow):
            reader, router = _start_ours(folder, servers, start_service, port, mode, use_local_vgtid)
            end = EndOfTopic(servers, row_topic(TENANT, SOURCE, TableId(database=DATABASE, table=TABLE)))

            def catch_up() -> None:
                let_flow()
                wait_until(
                    lambda: _is_done(end, row_events, reader, router), timeout_s=_TIMEOUT_S, what="the last event"
                )

            run = measured(catch_up, lambda: (reader.usage(), router.usage()))
        peer = None
        if with_peer:
            with (
                _vtgate(folder, "peer") as (port, let_flow),
                _debezium(folder, servers, port, mode, use_local_vgtid) as connector,
            ):
                peer_end = EndOfTopic(servers, f"{PEER_PREFIX}.{DATABASE}.{TABLE}")
                peer = measure_peer(connector, peer_end, row_events - 1, begin=let_flow)  # of copies: a record a row
        return cost_of(run, row_events, peer)


def _is_done(end: EndOfTopic, row_events: int, *services: Service) -> bool:
    for service in services:
        service.usage()  # raises when it has ended
    return end.shows(0, after=row_events)


def _start_ours(
    folder: Path,
    servers: Servers,
    start_service: Callable[[str, Mapping[str, Any]], Service],
    vtgate_port: int,
    mode: str,
    use_local_vgtid: bool,
) -> tuple[Service, Service]:
    shared = {"kafka": {"bootstrap_servers": servers.bootstrap_servers}, "redis": {"url": servers.redis_url}}
    history, committer = start_service("schema_history", shared), start_service("checkpoint_committer", shared)
    clients = {
        "kafka": shared["kafka"],
        "schema_history": {"address": history.grpc_address},
        "checkpoint_committer": {"address": committer.grpc_address},
    }
    router = start_service("router", {**clients, **router_settings(folder)})
    reader = {
        "source": SOURCE,
        "vtgate": {"host": LOOPBACK, "port": vtgate_port},
        "keyspace": DATABASE,
        "snapshot": {"mode": mode},
        "events": {"use_local_vgtid": use_local_vgtid},
        "spill_dir": str(folder),
    }
    return start_service("vstream_reader", {**clients, **reader}), router


def _debezium(folder: Path, servers: Servers, vtgate_port: int, mode: str, use_local_vgtid: bool) -> Any:
    """Tuned as the MySQL connector is (``bench/debezium.py``)."""
    local = {"transforms": "local", "transforms.local.type": "io.debezium.connector.vitess.transforms.UseLocalVgtid"}
    options = {
        **(local if use_local_vgtid else {}),
        "snapshot.mode": mode,
        "table.include.list": f"{DATABASE}.{TABLE}",
        "max.batch.size": 8_192,
        "max.queue.size": 32_768,
    }
    return debezium_vitess(
        folder / "debezium",
        servers.bootstrap_servers,
        vtgate_port=vtgate_port,
        keyspace=DATABASE,
        topic_prefix=PEER_PREFIX,
        options=options,
    )


@contextmanager
def _vtgate(folder: Path, name: str) -> Iterator[tuple[int, Callable[[], None]]]:
    """The stand-in, which holds the record back: its port, and a function that lets it flow."""
    port, gate = free_port(), folder / f"{name}.gate"
    spec = ProcessSpec(
        name=f"vtgate-{name}",
        command=(
            *(sys.executable, "-m", "libs.stand_ins.vtgate", "--replay", str(folder / "record")),
            *("--port", str(port), "--hold", str(gate)),
        ),
        environ={},
        working_dir=REPOSITORY,
        ready=lambda: f"listening on {LOOPBACK}:{port}" in (folder / "logs" / f"vtgate-{name}.log").read_text(),
    )
    with ExitStack() as exits:
        running = start(spec, folder / "logs", dies_with_parent=True)
        exits.callback(stop, running, _STOP_TIMEOUT_S)
        wait_ready(running, _READY_TIMEOUT_S)
        yield port, gate.touch


# --- the record ------------------------------------------------------------------------------------------------------


def _copy(rows: int) -> Iterator[VStreamResponse]:
    """The responses that vtgate sends of a copy, in its order (``libs/stand_ins/vtgate/copy_phase.py``); row 0 is the last."""
    chance = random.Random(7)
    place = {_SHARD: f"{_HOST}:1-1000"}
    yield _response(_event("BEGIN"), _fields(), _vgtid(place), _event("COMMIT"))
    ids = [*range(1, rows), 0]
    for first in range(0, rows, _ROWS_PER_PACKET):
        packet = ids[first : first + _ROWS_PER_PACKET]
        copied = (_rows(None, _row(row_id, chance)) for row_id in packet)
        yield _response(_event("BEGIN"), *copied, _vgtid(place, last_id=max(packet)), _event("COMMIT"))
    yield _response(_event("BEGIN"), _vgtid(place), _event("COMMIT"))
    yield _response(_event("COPY_COMPLETED", shard=_SHARD))
    yield _response(_event("COPY_COMPLETED", shard=""))


def _stream(row_events: int, shards: Sequence[str] = (_SHARD,)) -> Iterator[VStreamResponse]:
    """60 inserts, 30 updates and 10 deletes a transaction, each a statement of its own; a change of row 0 is the last. The
    transactions are the shards' in turn."""
    chance = random.Random(7)
    now_s = int(time.time())
    places = dict.fromkeys(shards, f"{_HOST}:1-1000")
    yield _response(_vgtid(places), _event("OTHER", shard=shards[0]))
    next_id = 1
    for number in range(row_events // ROWS_PER_TRANSACTION):
        changes = []
        shard = shards[number % len(shards)]
        for nth in range(ROWS_PER_TRANSACTION):
            row = _row(next_id, chance)
            next_id += 1
            before = _row(next_id - 1, chance) if nth % 10 >= 6 else None
            changes.append(_rows(before, None if nth % 10 == 9 else row, shard=shard, timestamp=now_s))
        if (number + 1) * ROWS_PER_TRANSACTION >= row_events:
            changes[-1] = _rows(None, _row(0, chance), shard=shard, timestamp=now_s)
        opening = [_event("BEGIN", shard=shard, timestamp=now_s), *([_fields(shard)] if number < len(shards) else [])]
        places[shard] = f"{_HOST}:1-{1001 + number // len(shards)}"
        commit = _event("COMMIT", shard=shard, timestamp=now_s)
        yield _response(*opening, *changes, _vgtid(places, shard=shard), commit)


def _response(*events: binlogdata.VEvent) -> VStreamResponse:
    return VStreamResponse(events=events)


def _event(kind: str, *, timestamp: int = 0, shard: str = _SHARD, **rest: Any) -> binlogdata.VEvent:
    return binlogdata.VEvent(type=kind, timestamp=timestamp, keyspace=DATABASE, shard=shard, **rest)


def _vgtid(places: Mapping[str, str], *, last_id: int | None = None, shard: str = _SHARD) -> binlogdata.VEvent:
    keys = []
    if last_id is not None:
        key = query.QueryResult(fields=[_COLUMNS[0]], rows=[_packed([b"%d" % last_id])])
        keys = [binlogdata.TableLastPK(table_name=TABLE, lastpk=key)]
    shard_gtids = [
        binlogdata.ShardGtid(keyspace=DATABASE, shard=name, gtid=f"MySQL56/{gtid}", table_p_ks=keys)
        for name, gtid in places.items()
    ]
    return _event("VGTID", shard=shard, vgtid=binlogdata.VGtid(shard_gtids=shard_gtids))


def _column(name: str, kind: str, column_type: str, *, flags: int = 0, charset: int = 63, **rest: Any) -> query.Field:
    return query.Field(
        name=name, type=kind, column_type=column_type, flags=flags, charset=charset, table=TABLE, org_table=TABLE,
        database=DATABASE, org_name=name, **rest,
    )  # fmt: skip


_COLUMNS: Final = (
    _column("id", "INT64", "bigint", flags=_NOT_NULL | _KEY | _NUMBER),
    _column("customer_id", "INT32", "int", flags=_NOT_NULL | _NUMBER),
    _column("status", "VARCHAR", "varchar(20)", flags=_NOT_NULL, charset=255),
    _column("amount", "DECIMAL", "decimal(12,2)", flags=_NOT_NULL | _NUMBER, column_length=14, decimals=2),
    _column("quantity", "INT32", "int", flags=_NOT_NULL | _NUMBER),
    _column("price", "FLOAT64", "double", flags=_NOT_NULL | _NUMBER),
    _column("created_at", "DATETIME", "datetime(3)", flags=_NOT_NULL, decimals=3),
    _column("updated_at", "TIMESTAMP", "timestamp(6)", flags=_NOT_NULL, decimals=6),
    _column("note", "VARCHAR", "varchar(255)", charset=255),
    _column("payload", "VARCHAR", "varchar(255)", flags=_NOT_NULL, charset=255),
)
"""``workload.CREATE_TABLE``."""


def _fields(shard: str = _SHARD) -> binlogdata.VEvent:
    described = binlogdata.FieldEvent(
        table_name=f"{DATABASE}.{TABLE}", fields=_COLUMNS, keyspace=DATABASE, shard=shard, enum_set_string_values=True
    )
    return _event("FIELD", shard=shard, field_event=described)


def _rows(
    before: query.Row | None, after: query.Row | None, *, shard: str = _SHARD, timestamp: int = 0
) -> binlogdata.VEvent:
    change = binlogdata.RowChange(before=before, after=after)
    event = binlogdata.RowEvent(
        table_name=f"{DATABASE}.{TABLE}", row_changes=[change], keyspace=DATABASE, shard=shard, flags=1
    )
    return _event("ROW", shard=shard, timestamp=timestamp, row_event=event)


def _row(row_id: int, chance: random.Random) -> query.Row:
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1_700_000_000 + chance.randrange(10**7)))
    note = None
    if chance.random() >= 0.2:
        note = f"note {chance.randrange(10**9)} é 漢 {'x' * chance.randrange(40)}".encode()
    return _packed(
        [
            b"%d" % row_id,
            b"%d" % chance.randrange(10**6),
            chance.choice((b"new", b"paid", b"packed", b"shipped", b"returned")),
            b"%.2f" % (chance.randrange(10**7) / 100),
            b"%d" % chance.randrange(100),
            repr(chance.random() * 1000).encode(),
            f"{clock}.{chance.randrange(1000):03d}".encode(),
            f"{clock}.{chance.randrange(10**6):06d}".encode(),
            note,
            b"%x" % chance.getrandbits(600),
        ]
    )


def _packed(values: list[bytes | None]) -> query.Row:
    return query.Row(
        lengths=[-1 if value is None else len(value) for value in values],
        values=b"".join(value for value in values if value is not None),
    )
