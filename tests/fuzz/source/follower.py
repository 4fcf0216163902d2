"""A reader in this process, without Kafka, and a mirror of its events.

The mirror has the rows that a tenant may keep: by their images, moved and renamed as schema_history says. An event that
does not fit it (an update whose image before is not the row) is a difference too.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from libs.errors import SchemaUnknown
from libs.events.batch import BatchIdentity
from libs.events.schema_change import SchemaChangeKind
from libs.source.key_columns import KeyColumns
from libs.source.port import ReadBatch, Source
from libs.testing.source_contract import checkpoint_of
from libs.types.checkpoint import Checkpoint
from libs.types.order import EventOrder
from libs.types.table import Column, TableId, TableSchema
from libs.types.value import UNAVAILABLE_VALUE
from libs.types.value_modes import ValueModes
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch, Entry, Run
from tests.fuzz.source.followed import Followed

TIMEOUT_S: Final = 30.0


class Difference(Exception):
    """The reader's rows are not the server's, and nothing says so."""


@dataclass(frozen=True, slots=True)
class Change:
    """A version of a table, as schema_history was reported of it."""

    order: EventOrder
    table_id: TableId
    kind: SchemaChangeKind
    schema: TableSchema | None
    renamed_from: TableId | None


class KeptHistory:
    """schema_history's answers, without its service."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    async def record_schema_change(
        self,
        *,
        table_id: TableId,
        kind: SchemaChangeKind,
        order: EventOrder,
        table_schema: TableSchema | None,
        renamed_from: TableId | None = None,
        **_: Any,
    ) -> int:
        version = sum(change.table_id == table_id for change in self.changes) + 1
        schema = None if table_schema is None else msgspec.structs.replace(table_schema, version=version)
        self.changes.append(Change(order, table_id, kind, schema, renamed_from))
        return version

    async def table_schema(self, source: str, table_id: TableId, version: int) -> TableSchema:
        for change in self.changes:
            if change.table_id == table_id and change.schema is not None and change.schema.version == version:
                return change.schema
        raise SchemaUnknown(f"{table_id} {version}")

    async def list_tables(self, source: str, order: EventOrder | None = None) -> list[TableSchema]:
        tables = {change.table_id: change.schema for change in self.changes}
        return [schema for schema in tables.values() if schema is not None]


@dataclass(frozen=True, slots=True)
class Published:
    """An event of a row."""

    table_id: TableId
    op: str
    key: bytes
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    def says_the_same(self, other: "Published") -> bool:
        """A value that one of them lacks is not compared."""
        return (self.op, self.key) == (other.op, other.key) and all(
            (mine is None) == (theirs is None) and (mine is None or theirs is None or _are_alike(mine, theirs))
            for mine, theirs in ((self.before, other.before), (self.after, other.after))
        )


@dataclass(slots=True)
class MirrorTable:
    schema: TableSchema
    rows: list[dict[str, Any]] = field(default_factory=list)
    is_doubted: bool = False
    """It was reported that the rows may differ: they are taken from the server at the next comparison."""
    has_changed: bool = True
    """Set to False by each comparison."""


@dataclass
class Follower:
    """One reader's life; ``restart`` begins the next one at its checkpoint."""

    followed: Followed
    values: ValueModes
    history: KeptHistory = field(default_factory=KeptHistory)
    mirror: dict[TableId, MirrorTable] = field(default_factory=dict)
    reported: list[str] = field(default_factory=list)
    """Every word that reports a difference, in order."""
    events: int = 0
    key_columns: tuple[KeyColumns, ...] = ()
    on_batch: Callable[[bytes], None] = lambda _payload: None
    """Given each batch of the reader's."""
    on_event: Callable[[Published], None] = lambda _event: None
    """Given each event, once it fitted the mirror."""
    _checkpoint: Checkpoint | None = None
    _opened: AsyncExitStack | None = None
    _batches: AsyncGenerator[ReadBatch, None] | None = None
    _source: Source | None = None
    altered: list[tuple[TableId, TableSchema, TableSchema]] = field(default_factory=list)
    """Tables that a statement altered, as they were and as they are. Each comparison empties the list."""
    _seen: list[Entry] = field(default_factory=list)
    _applied_changes: int = 0
    _doubts: set[str] = field(default_factory=set)
    _copied: dict[TableId, list[dict[str, Any]]] | None = None
    """Of an incremental snapshot that is under way: the rows that it has read."""

    async def begin(self) -> None:
        """Take the snapshot; a reader that has a checkpoint goes on from there."""
        self._source = self.followed.source(self.history, self.values, self.key_columns)
        self._opened = AsyncExitStack()
        change_log = await self._opened.enter_async_context(self._source.open(self._checkpoint, self._identity))
        self._batches = _closable(change_log.batches())
        if self._checkpoint is None:
            while self._checkpoint is None or self._checkpoint.snapshot is not None:
                await self._take_batch()
            self._apply()

    async def end(self) -> None:
        """Close the reader; the mirror stays."""
        batches, self._batches = self._batches, None
        opened, self._opened = self._opened, None
        if batches is not None:
            await batches.aclose()
        if opened is not None:
            await opened.aclose()

    async def restart(self) -> None:
        """Another reader goes on at the checkpoint."""
        await self.end()
        self._seen.clear()
        await self.begin()

    async def copy_again(self) -> None:
        """A reader without a checkpoint copies every row."""
        self._checkpoint = None
        self.mirror.clear()
        self.history.changes.clear()
        self._applied_changes = 0
        await self.restart()

    async def copy(self, transaction: str) -> Mapping[TableId, list[dict[str, Any]]]:
        """The rows that an incremental snapshot reads, whose signal is the transaction of that GTID. Raises as ``catch_up``."""
        self._copied = {}
        try:
            await self.catch_up(transaction)
            while self._checkpoint is not None and self._checkpoint.incremental.tables:
                await self._take_batch()
            self._apply()
            return self._copied
        finally:
            self._copied = None

    async def catch_up(self, transaction: str) -> None:
        """Until the transaction of that GTID has been read. Raises Difference, and any error that halts the reader."""
        while not self._has_read(transaction):
            await self._take_batch()
        self._apply()

    @property
    def _identity(self) -> BatchIdentity:
        return BatchIdentity(
            source=self.followed.name, source_partition="0", connector="mysql", run_id="r", fencing_token=1
        )

    def _has_read(self, transaction: str) -> bool:
        return self._checkpoint is not None and self.followed.has_read(self._checkpoint.position, transaction)

    async def _take_batch(self) -> None:
        assert self._batches is not None
        assert self._source is not None
        try:
            batch = await asyncio.wait_for(anext(self._batches), TIMEOUT_S)
        except TimeoutError:
            raise Difference("the reader does not come to the server's last transaction") from None
        self.on_batch(batch.payload)
        self._seen.extend(ChangeBatch.FromString(batch.payload).entries)
        for table, words in self.followed.reported(batch):
            self._tell(table, words)
        if batch.resume is not None:
            self._checkpoint = checkpoint_of(self._source, batch.resume)

    @property
    def quarantined(self) -> Mapping[str, str]:
        """Tables whose rows are passed over."""
        return self.followed.quarantined

    @staticmethod
    def is_lacking(row: Mapping[str, Any]) -> bool:
        """Whether a value of it is not in the log."""
        return UNAVAILABLE_VALUE in row.values()

    def _tell(self, table: str, words: str) -> None:
        self.reported.append(f"{table}: {words}")
        self._doubts.add(table)

    # --- the mirror ------------------------------------------------------------------------------------------------------

    def _apply(self) -> None:
        """Versions and rows that were read, in their order."""
        changes = self.history.changes[self._applied_changes :]
        self._applied_changes = len(self.history.changes)
        steps: list[tuple[tuple[int, int, int], int, Change | Run]] = [
            (_place(change.order), 0, change) for change in changes
        ]
        for entry in self._seen:
            if entry.WhichOneof("entry") == "run":
                run = entry.run
                steps.append(((run.epoch, int(run.rank), run.first_tx_ordinal), 1, run))
        self._seen.clear()
        steps.sort(key=lambda step: step[:2])
        for place, _, step in steps:
            if isinstance(step, Change):
                self._follow(step)
            else:
                self._write(step, place)
        for table in self._doubts:
            for table_id, kept in self.mirror.items():
                if str(table_id) == table:
                    kept.is_doubted = kept.has_changed = True
        self._doubts.clear()

    def _follow(self, change: Change) -> None:
        """A name keeps its rows: a table that is made again, or renamed to it, comes with a truncation, or is reported of."""
        before = self.mirror.get(change.table_id)
        if change.schema is None:
            return
        if before is None:
            self.mirror[change.table_id] = MirrorTable(change.schema)
            return
        is_same = change.kind is SchemaChangeKind.ALTER and change.renamed_from is None
        if is_same:
            self.altered.append((change.table_id, before.schema, change.schema))
        rows = [moved(row, before.schema, change.schema) for row in before.rows]
        is_doubted = before.is_doubted or (is_same and not keeps_values(before.schema, change.schema))
        self.mirror[change.table_id] = MirrorTable(change.schema, rows, is_doubted)

    def _write(self, run: Run, place: tuple[int, int, int]) -> None:
        table_id = TableId(database=run.database, table=run.table)
        table = self.mirror.get(table_id)
        if table is None:
            raise Difference(f"{table_id}: rows at {place}, and no version of the table")
        table.has_changed = True
        removed: dict[str, Any] | None = None
        for op, key, value in zip(run.ops.decode(), run.keys, run.values, strict=True):
            self.events += 1
            event = json.loads(value)
            before, after = event["before"], event["after"]
            self.on_event(Published(table_id, op, key, before, after))
            if op == "t":
                table.rows.clear()
                table.is_doubted = False
                continue
            if op == "r" and self._copied is not None:
                self._copied.setdefault(table_id, []).append(after)
                continue
            if table.is_doubted:
                continue
            if key and after is not None:
                expected = {name: after[name] for name in table.schema.key}
                if UNAVAILABLE_VALUE not in expected.values() and json.loads(key) != expected:
                    raise Difference(f"{table_id}: the key {key!r} is not that of {after}")
            if op in "udD":
                removed = _taken(table, before, op)
            if op in "cruC":
                if set(after) != {column.name for column in table.schema.columns}:
                    raise Difference(
                        f"{table_id}: {op} has the columns {sorted(after)}, the table {table.schema.columns}"
                    )
                kept = removed if op in "uC" and removed is not None else {}
                lacking = [name for name, each in after.items() if each == UNAVAILABLE_VALUE and name not in kept]
                if op in "cr" and lacking:
                    raise Difference(f"{table_id}: a new row ({op}) lacks {lacking}")
                table.rows.append(
                    {name: kept.get(name) if each == UNAVAILABLE_VALUE else each for name, each in after.items()}
                )


def _place(order: EventOrder) -> tuple[int, int, int]:
    return (order.epoch, order.rank, order.tx_ordinal)


def _taken(table: MirrorTable, before: dict[str, Any] | None, op: str) -> dict[str, Any]:
    if before is None:
        raise Difference(f"{table.schema.table_id}: {op} has no image before")
    for nth, row in enumerate(table.rows):
        if all(
            each == UNAVAILABLE_VALUE or canonical(row.get(name)) == canonical(each) for name, each in before.items()
        ):
            return table.rows.pop(nth)
    raise Difference(f"{table.schema.table_id}: {op} of a row that is not there: {before}; there are {table.rows}")


def canonical(value: Any) -> str:
    """A value's one text: -0.0 is not 0, true is not 1."""
    return json.dumps(value, sort_keys=True)


def _are_alike(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    return mine.keys() == theirs.keys() and all(
        UNAVAILABLE_VALUE in (each, theirs[name]) or canonical(each) == canonical(theirs[name])
        for name, each in mine.items()
    )


def previous_column(column: Column, before: TableSchema) -> Column | None:
    """The column that it was."""
    if column.born is not None and column.born.after_version >= before.version > 0:
        return None
    names = {column.name.lower(), *(former.name.lower() for former in column.former_names)}
    was = column.name_at(before.version).lower()
    return next(
        (each for each in before.columns if each.name.lower() == was),
        next((each for each in before.columns if each.name.lower() in names), None),
    )


def moved(row: Mapping[str, Any], before: TableSchema, after: TableSchema) -> dict[str, Any]:
    """A row of before under the names of after. A column that is new is taken from the server."""
    sources = {column.name: previous_column(column, before) for column in after.columns}
    return {name: None if old is None else row.get(old.name) for name, old in sources.items()}


def keeps_values(before: TableSchema, after: TableSchema) -> bool:
    """Whether every row of before has its values in after, and none but these."""
    for column in after.columns:
        old = previous_column(column, before)
        if old is None or (old.logical_type, old.source_type, old.charset, old.is_optional) != (
            column.logical_type,
            column.source_type,
            column.charset,
            column.is_optional,
        ):
            return False
    return True


def tables_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows as texts that can be sorted and compared."""
    return sorted(canonical(row) for row in rows)


async def _closable(batches: AsyncIterator[ReadBatch]) -> AsyncGenerator[ReadBatch, None]:
    async for batch in batches:
        yield batch
