"""Vitess as the fuzzer follows it: two shards on one MySQL, the stand-in's vtgate over gRPC, the VStream reader's own code.

A keyspace has one name for its tables, a shard a database of its own. A statement about rows goes to one of the shards, by
its text; any other to both. A FIELD event says how a table is, and comes with the next row: after an ALTER only the rows
that come then are compared, and the rows before them are copied again.
"""

import logging
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from libs.errors import HeadwaterError
from libs.events.dead_letter import decode_undecoded_row
from libs.mysql.gtid import GtidSet
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.failure_policy import FailureHandling
from libs.source.kept_faults import raise_again
from libs.source.key_columns import KeyColumns
from libs.source.mysql.client import query
from libs.source.port import ReadBatch, Source
from libs.source.vitess.settings import VtgateSettings
from libs.stand_ins.vtgate.cluster import topology_of
from libs.stand_ins.vtgate.service import VtgateServer
from libs.stand_ins.vtgate.topology import database_name
from libs.telemetry.faults import ROWS_CHANGED_UNSEEN, lasting_faults
from libs.types.position import SourcePosition
from libs.types.table import TableId, TableSchema
from libs.types.value_modes import ValueModes, VitessValueModes
from services.vstream_reader.position import decode_position
from services.vstream_reader.settings import VstreamReaderSettings
from services.vstream_reader.source import VstreamSource
from spark.transforms.fill import fill_of
from tests.conftest import MysqlServer
from tests.fuzz.source.constants import UNREADABLE, value_of
from tests.fuzz.source.followed import UNUSED, holds
from tests.fuzz.source.follower import Difference, MirrorTable, Published, previous_column
from tests.fuzz.source.program import COPY, DATABASES, READER, Step
from tests.fuzz.source.stored_rows import Cell, ServerTable, cell_of, is_same, server_tables, stored_rows
from tests.fuzz.source.trial import IS_OF_ROWS, Counts, Trial, last_transaction, same_rows

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # the stand-in's parser warns of each statement that it lacks

KEYSPACE: Final = DATABASES[0]
SHARDS: Final = ("-80", "80-")
_SHARD_DATABASES: Final = tuple(database_name(KEYSPACE, shard) for shard in SHARDS)
_MARKER: Final = "fz_marker"
_NOT_OF_VITESS: Final = re.compile(
    r"fz_[ab]|binlog_row_image\s*=\s*'?(?:MINIMAL|NOBLOB)|binlog_row_value_options\s*=\s*'PARTIAL_JSON|"
    r"binlog_row_metadata|INVISIBLE|sql_generate_invisible|autocommit\s*=\s*0|CREATE (?:TEMPORARY|FUNCTION|PROCEDURE)|TRIGGER",
    re.IGNORECASE,
)
_ONE_SHARD: Final = re.compile(r"\s*(?:INSERT|UPDATE|DELETE|REPLACE|WITH)\b", re.IGNORECASE)


def takes(step: Step) -> bool:
    """One keyspace, without a database's name; whole row images (Vitess asks for them); no XA by an application; no INVISIBLE
    column: vttablet learns a table's columns by ``SELECT *`` (vitess #9783)."""
    return step.session != "x" and step.text != COPY and not _NOT_OF_VITESS.search(step.text)


class VitessFollowed:
    """A keyspace."""

    name = "fz-vitess"
    quarantined: Mapping[str, str] = {}

    def __init__(self, server: MysqlServer) -> None:
        self._server = server
        self._vtgate: VtgateServer | None = None
        self._said: dict[str, str] = {}
        raise_again(self.name, None)

    def start(self) -> None:
        """Make the shards' databases, and serve them."""
        place = (self._server.host, self._server.port)
        self._vtgate = VtgateServer(topology_of({KEYSPACE: dict.fromkeys(SHARDS, place)})).start()

    def note_tables(self) -> None:
        """From now on the tables are as they are now: as vttablet's --track_schema_versions, without its delay."""
        assert self._vtgate is not None
        tablet = self._vtgate.topology.serving(KEYSPACE)[0].primary
        self._vtgate.schemas.note(tablet, GtidSet.parse(tablet.position().removeprefix("MySQL56/")))

    def source(self, history: Any, values: ValueModes, key_columns: Sequence[KeyColumns]) -> Source:
        assert self._vtgate is not None
        settings = VstreamReaderSettings(
            source=self.name,
            vtgate=VtgateSettings(host="127.0.0.1", port=self._vtgate.port),
            keyspace=KEYSPACE,
            schema_history=UNUSED,
            checkpoint_committer=UNUSED,
            values=msgspec.convert(msgspec.to_builtins(values), VitessValueModes),
            key_columns=tuple(key_columns),
            failure_handling=FailureHandling.DEAD_LETTER,
        )
        return VstreamSource(settings, cast(SchemaHistoryClient, history))

    def has_read(self, position: SourcePosition, transaction: str) -> bool:
        vgtid = decode_position(position).vgtid
        return all(holds(entry.gtid.removeprefix("MySQL56/"), transaction) for entry in vgtid)

    def reported(self, batch: ReadBatch) -> Iterator[tuple[str, str]]:
        for letter in batch.dead_letters:
            row = decode_undecoded_row(letter)
            yield f"{row.database}.{row.table}", f"set aside: {row.reason}"
        for fault in lasting_faults():
            if fault.scope.source != self.name or fault.id != ROWS_CHANGED_UNSEEN.id:
                continue
            if self._said.get(fault.scope.table) != fault.happened:
                self._said[fault.scope.table] = fault.happened
                yield fault.scope.table, f"rows changed unseen: {fault.happened}"

    def close(self) -> None:
        if self._vtgate is not None:
            self._vtgate.stop()


class VitessTrial(Trial):
    """A ``Trial`` over shards."""

    def __init__(self, server: MysqlServer, values: ValueModes, counts: Counts) -> None:
        self._followed = VitessFollowed(server)
        super().__init__(server, values, counts, lambda _: self._followed, beside=None)
        self._marked = 0
        self._came: list[Published] = []
        self._is_over = False
        """The shards' tables are not alike any more: a keyspace has one schema."""
        self._stale: set[TableId] = set()
        """Tables of before a statement: whether they changed shows with their next row."""
        self._reported_of: set[str] = set()
        self.follower.on_event = self._came.append

    def open(self) -> None:
        self._clear()
        self._followed.start()
        for database in _SHARD_DATABASES:
            query(self._admin, f"CREATE TABLE `{database}`.t0 (id INT PRIMARY KEY, a VARCHAR(9))")
            query(self._admin, f"CREATE TABLE `{database}`.{_MARKER} (id INT PRIMARY KEY, n INT)")
        self._followed.note_tables()
        self.tables = self._look()

    def _clear(self) -> None:
        for database in _SHARD_DATABASES:
            query(self._admin, f"DROP DATABASE IF EXISTS `{database}`")

    async def take(self, step: Step) -> bool:
        return not self._is_over and await super().take(step)

    def _execute(self, step: Step) -> bool:
        chosen = range(len(SHARDS))
        if _ONE_SHARD.match(step.text):
            chosen = range((only := zlib.crc32(step.text.encode()) % len(SHARDS)), only + 1)
        taken = [
            self._execute_in(
                f"{step.session} {SHARDS[nth]}", _SHARD_DATABASES[nth], step.text, is_counted=nth == chosen[0]
            )
            for nth in chosen
        ]
        return any(taken)

    def _look(self) -> dict[TableId, ServerTable]:
        """The keyspace's tables."""
        found = server_tables(self._admin, _SHARD_DATABASES)
        by_shard: list[dict[TableId, ServerTable]] = [
            {
                TableId(database=KEYSPACE, table=table_id.table): table
                for table_id, table in found.items()
                if table_id.database == database and table_id.table != _MARKER
            }
            for database in _SHARD_DATABASES
        ]
        self._is_over = by_shard[0] != by_shard[1]
        return by_shard[0]

    async def _begin(self) -> None:
        self._has_begun = True
        self._followed.note_tables()
        await self._guarded(self.follower.begin)
        await self._catch_up()
        self._judge_words()
        self._compare_all()

    async def _compare(self, step: Step) -> None:
        [(executed,)] = query(self._admin, "SELECT @@GLOBAL.gtid_executed")
        if executed == self._executed and step.session != READER:
            return
        if not IS_OF_ROWS.match(step.text):
            self._followed.note_tables()
            self.tables = self._look()
            if self._is_over:
                return
            self._stale |= set(self.follower.mirror)
        await self._catch_up()
        self._judge_words()
        self._reported_of |= {words.partition(":")[0] for words in self._new_words}
        self._compare_all()
        if any(event.table_id in self._stale or self._mirror(event.table_id).is_doubted for event in self._came):
            self._stale.clear()
            self._reported_of.clear()
            self.follower.altered.clear()
            await self._guarded(self.follower.copy_again)
            await self._catch_up()
            self._judge_words()
            self._compare_all()
        self._came.clear()

    async def _catch_up(self) -> None:
        """Up to a row that is written now: its FIELD and VGTID come after all before it."""
        self._marked += 1
        for database in _SHARD_DATABASES:
            query(self._admin, f"REPLACE INTO `{database}`.{_MARKER} VALUES (1, {self._marked})")
        [(uuid, executed)] = query(self._admin, "SELECT @@server_uuid, @@GLOBAL.gtid_executed")
        self._executed = executed
        await self._guarded(lambda: self.follower.catch_up(last_transaction(uuid, executed)))
        self._came[:] = [event for event in self._came if event.table_id.table != _MARKER]

    def _mirror(self, table_id: TableId) -> MirrorTable:
        return self.follower.mirror[table_id]

    def _compare_all(self) -> None:
        for table_id, seen in self.tables.items():
            mirror = self.follower.mirror.get(table_id)
            came = [event for event in self._came if event.table_id == table_id]
            schema = mirror.schema if mirror is not None else None
            if mirror is not None and str(table_id) in self._reported_of:
                mirror.is_doubted = True  # also where its first row came after the report
            is_waiting = mirror is not None and (mirror.is_doubted or table_id in self._stale) and not came
            if mirror is None or schema is None or is_waiting:
                continue
            self._compare_columns(schema, seen)
            try:
                stored = self._stored_rows(schema)
            except HeadwaterError:  # a virtual column that the server itself cannot compute
                continue
            self.counts.cells += len(stored) * len(schema.columns)
            if mirror.is_doubted:
                self._compare_last(came, schema, stored)
                if str(table_id) not in self._reported_of:
                    self._compare_new_columns(came, schema, stored)
                continue
            ours = [tuple(cell_of(column, row[column.name]) for column in schema.columns) for row in mirror.rows]
            if not same_rows(stored, ours, schema):
                raise Difference(f"{table_id}: the stream gave {ours}, the shards have {stored}")

    def _compare_columns(self, schema: TableSchema, seen: ServerTable) -> None:
        mine = [(column.name, column.is_optional) for column in schema.columns]
        theirs = [(column.name, column.is_optional) for column in seen.columns]
        if mine != theirs:
            raise Difference(f"{schema.table_id}: columns {mine}, server {theirs}")

    def _compare_last(self, came: Sequence[Published], schema: TableSchema, stored: list[tuple[Cell, ...]]) -> None:
        """After an ALTER: the row of the last event is one of the shards'."""
        after = came[-1].after
        if after is None or self.follower.is_lacking(after):
            return
        ours = tuple(cell_of(column, after[column.name]) for column in schema.columns)
        if not any(same_rows([row], [ours], schema) for row in stored):
            raise Difference(f"{schema.table_id}: the stream gave {ours}, the shards have {stored}")

    def _compare_new_columns(
        self, came: Sequence[Published], schema: TableSchema, stored: list[tuple[Cell, ...]]
    ) -> None:
        """The rows of before have in a new column what a sink fills, by the columns of FIELD events."""
        for place, column in enumerate(schema.columns):
            versions = [
                version
                for table_id, before, after in self.follower.altered
                if table_id == schema.table_id and previous_column(column, before) is None
                for version in (before, after)
            ]
            fill = fill_of(column, versions) if versions else None
            expected = None if fill is None else value_of(fill.expression, column)
            if not versions or expected is UNREADABLE:
                continue
            sent = Counter(
                repr(cell_of(column, event.after[column.name]))
                for event in came
                if event.after is not None and column.name in event.after
            )
            for row in stored:
                if not is_same(row[place], expected, column) and not sent[repr(row[place])]:
                    raise Difference(
                        f"{schema.table_id}.{column.name} ({column.source_type}): rows of before have {row[place]!r}, a sink "
                        f"fills {expected!r} ({fill})"
                    )

    def _stored_rows(self, schema: TableSchema) -> list[tuple[Cell, ...]]:
        return [
            row
            for database in _SHARD_DATABASES
            for row in stored_rows(
                self._admin,
                msgspec.structs.replace(schema, table_id=TableId(database=database, table=schema.table_id.table)),
            )
        ]
