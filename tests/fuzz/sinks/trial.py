"""One program: a table's changes on a real server, through the reader's code and the router's, to tenants' warehouses.

The reader and the router run in this process; the records that the router would write go to a real broker. A step of the sinks
gives ``apply_batch`` the next records, cut where the program says. Then the log is compared with the events, the history with
the versions that they make, and a mirror, once it has all, with the source's rows.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from libs.mysql.column_type import parse_column_type
from libs.source.mysql.client import query
from libs.tenants.mask_keys import MaskKeys
from libs.types.table import Column, TableId, TableSchema
from libs.types.tenant import SinkMode
from libs.types.warehouse import warehouse_table
from libs.warehouse.spark_types import spark_type
from services.router.batches.batch_reading import read_changes
from services.router.delivery.deliver import deliver_batch
from services.router.delivery.delivery import Announced, BatchPlace
from services.router.routes.book import RouteBook
from services.router.routes.topic_claims import TopicClaims
from spark.transforms.fill import fill_of
from tests.conftest import MysqlServer
from tests.fuzz.sinks.model import Cells, Event, Key, cells_of, compare_history, compare_log, compare_rows, event_of
from tests.fuzz.sinks.statements import SINK
from tests.fuzz.sinks.warehouses import SOURCE, TenantLife, Warehouses, sink_settings
from tests.fuzz.source.follower import Change, Difference, previous_column
from tests.fuzz.source.program import DATABASES, Program, Step
from tests.fuzz.source.stored_rows import server_tables
from tests.fuzz.source.trial import Counts, Trial, last_transaction
from tests.unit.router.batches import read_back

_WIDER: Final = frozenset(
    {("smallint", "int"), ("smallint", "bigint"), ("int", "bigint"), ("float", "double"), ("double", "float")}
    | {("bigint", "int"), ("bigint", "smallint"), ("int", "smallint")}
)
"""Changes of a type after which a stored value is the source's still."""
_EXPECTED_WORDS: Final = ("exchange", "merged by the key")
"""Of a reason for which a table may stand still."""


@dataclass
class SinkCounts(Counts):
    """Of sinks too."""

    batches: int = 0
    compared: int = 0
    """Tables."""
    rows: int = 0
    parked: Counter[str] = field(default_factory=Counter)


@dataclass
class _Table:
    """A table as the source has it now."""

    schema: TableSchema
    rows: dict[Key, Cells] = field(default_factory=dict)
    uncertain: set[tuple[Key, str]] = field(default_factory=set)
    is_judged: bool = True
    """Whether the reader passes its rows on."""


@dataclass
class _Tenant:
    life: TenantLife
    sent: list[tuple[str, Event | None]] = field(default_factory=list)
    """Topic and event of each record, in order; None: no row."""
    taken: int = 0
    """How many of them it has."""
    parked: set[str] = field(default_factory=set)

    @property
    def mode(self) -> SinkMode:
        return self.life.settings.mode

    def ends(self) -> dict[str, int]:
        """Where its topics are read to."""
        return dict(Counter(topic for topic, _ in self.sent[: self.taken]))


class SinkTrial(Trial):
    """A ``Trial`` that compares warehouses."""

    def __init__(self, server: MysqlServer, program: Program, counts: SinkCounts, warehouses: Warehouses) -> None:
        super().__init__(server, program.values, counts)
        self._counted = counts
        self._payloads: list[bytes] = []
        self.follower.on_batch = self._payloads.append
        self._warehouses = warehouses
        lives = [TenantLife(warehouses, sink_settings(text)) for text in program.tenants]
        self._tenants = {life.name: _Tenant(life) for life in lives}
        keys = MaskKeys(Path("unused"), {})
        self._routes = RouteBook(SOURCE, [life.spec for life in lives], self._fetch, TopicClaims(), keys).view()
        self._announced = Announced()
        self._topics: set[str] = set()
        self._followed: dict[TableId, _Table] = {}
        self._changes = 0
        self._offsets = itertools.count()

    async def close(self) -> None:
        for tenant in self._tenants.values():
            tenant.life.close()
        await super().close()

    async def take(self, step: Step) -> bool:
        if step.session != SINK:
            return await super().take(step)
        if not self._has_begun:
            await self._begin()
        size, _, again = step.text.partition(" ")
        for tenant in self._tenants.values():
            self._apply(tenant, None if size == "all" else int(size), is_cut_off=again == "twice")
        return True

    def _fetch(self, table_id: TableId, version: int) -> TableSchema:
        return self._versions_of(table_id)[version]

    def _versions_of(self, table_id: TableId) -> dict[int, TableSchema]:
        changes = self.follower.history.changes
        return {each.schema.version: each.schema for each in changes if each.schema and each.table_id == table_id}

    # --- from the source to the broker -------------------------------------------------------------------------------------

    async def _compare(self, step: Step) -> None:
        """Follow the source; ``take`` compares when a sink took a batch."""
        [(uuid, executed)] = query(self._admin, "SELECT @@server_uuid, @@GLOBAL.gtid_executed")
        if executed == self._executed:
            return
        self._executed = executed
        if last := last_transaction(uuid, executed):
            await self._guarded(partial(self.follower.catch_up, last))
        self._judge_words()
        if len(self.follower.history.changes) != self._changes:
            self.tables = server_tables(self._admin, DATABASES)
        rewritten = self._deliver()
        for change in self.follower.history.changes[self._changes :]:
            self._follow(change)
        self._changes = len(self.follower.history.changes)
        for table_id, table in self._followed.items():
            table.is_judged = table.is_judged and str(table_id) not in self.follower.quarantined
            table.uncertain -= {
                (key, name) for key, name in table.uncertain if key in rewritten.get(table_id, frozenset())
            }
            if table_id in self.tables:
                self._read(table, rewritten.get(table_id, set()))

    def _deliver(self) -> dict[TableId, set[Key]]:
        """Send the tenants the events that were read; the keys of the rows that were written."""
        written: dict[TableId, set[Key]] = {}
        for payload in self._payloads:
            place, changes = BatchPlace(f"headwater.changes.{SOURCE}", 0, next(self._offsets)), read_changes(payload)
            for delivery in deliver_batch(changes, self._routes, self._announced, place, max_event_bytes=1_000_000):
                if delivery.dead_letters:
                    raise Difference(f"the router set aside {delivery.table}: {delivery.reason}")
                records = read_back(delivery.records)
                for target in delivery.targets:
                    for record in records:
                        self._send(target.tenant, target.topic.name, record, written)
        self._payloads.clear()
        self._warehouses.flush()
        return written

    def _send(self, tenant: str, topic: str, record: Any, written: dict[TableId, set[Key]]) -> None:
        if topic not in self._topics:
            self._topics.add(topic)
            self._warehouses.create_topic(topic)
        self._warehouses.write(topic, record)
        table_id = next((each for each in self._tables() if topic == f"{tenant}.{SOURCE}.{each}"), None)
        if table_id is None:
            return  # of no table
        event = event_of(record, self._versions_of(table_id))
        self._tenants[tenant].sent.append((topic, event))
        if event is not None and event.after is not None:
            written.setdefault(table_id, set()).add(event.key)

    def _tables(self) -> Iterator[TableId]:
        yield from dict.fromkeys(change.table_id for change in self.follower.history.changes)

    # --- the source's rows -------------------------------------------------------------------------------------------------

    def _follow(self, change: Change) -> None:
        """A version: cells that no sink can know are uncertain until their row is written."""
        after = change.schema
        if after is None:
            return
        table = self._followed.get(change.table_id)
        if table is None:
            self._followed[change.table_id] = _Table(after)
            return
        before, table.schema = table.schema, after
        moved: set[tuple[Key, str]] = set()
        rows: dict[Key, Cells] = {key: {} for key in table.rows}
        for column in after.columns:
            old, keys = previous_column(column, before), set(table.rows)
            for key, row in table.rows.items():
                if old is not None and old.name in row:
                    rows[key][column.name] = row[old.name]
            if old is None:
                fill = fill_of(column, [before, after])
                doubted = keys if fill is None else set()
            elif _keeps_values(old, column):
                doubted = {key for key, name in table.uncertain if name == old.name.lower()}
            else:
                doubted = keys
            moved |= {(key, column.name.lower()) for key in doubted}
        table.uncertain, table.rows = moved, rows

    def _read(self, table: _Table, written: set[Key]) -> None:
        """The rows as the source has them. A statement that changed values of a row that was not ``written`` was reported."""
        rows: dict[Key, Cells] = {}
        for row in self._snapshot(table.schema):
            cells = cells_of(row, table.schema)
            rows[tuple(str(cells[name]) for name in table.schema.key)] = cells
        for key in table.rows.keys() & rows.keys() - written:
            before = table.rows[key]
            table.uncertain |= {
                (key, name.lower()) for name, cell in rows[key].items() if name in before and before[name] != cell
            }
        table.rows = rows
        self.counts.cells += len(rows) * len(table.schema.columns)

    # --- the warehouses ----------------------------------------------------------------------------------------------------

    def _apply(self, tenant: _Tenant, size: int | None, *, is_cut_off: bool) -> None:
        before = tenant.taken
        tenant.taken = len(tenant.sent) if size is None else min(len(tenant.sent), tenant.taken + size)
        if tenant.taken == before:
            return
        self._counted.batches += 1
        try:
            tenant.life.apply(tenant.ends(), is_cut_off=is_cut_off)
        except Exception as error:
            raise Difference(f"{_name(tenant)} halted: {type(error).__name__}: {str(error)[:1500]}") from error
        self._judge_progress(tenant)
        touched = {topic for topic, _ in tenant.sent[before : tenant.taken]}
        for table_id, table in self._followed.items():
            topic = f"{tenant.life.name}.{SOURCE}.{table_id}"
            if table.is_judged and topic in touched and topic not in tenant.parked:
                try:
                    self._compare_table(tenant, table_id, table, topic)
                except Difference as difference:
                    raise Difference(f"{_name(tenant)} {table_id}: {difference}") from difference

    def _judge_progress(self, tenant: _Tenant) -> None:
        for topic, table in tenant.life.progress.tables.items():
            if table.dead_letters:
                raise Difference(f"{_name(tenant)}: set aside {table.dead_letters} events of {topic}")
            if table.parked is None:
                continue
            expected = next((words for words in _EXPECTED_WORDS if words in table.parked.because), None)
            if expected is None:
                raise Difference(f"{_name(tenant)}: parked {topic}: {table.parked.because}")
            if topic not in tenant.parked:
                self._counted.parked[f"{tenant.life.settings.warehouse}: {expected}"] += 1
            tenant.parked.add(topic)

    def _compare_table(self, tenant: _Tenant, table_id: TableId, table: _Table, topic: str) -> None:
        stored = tenant.life.warehouse.rows(warehouse_table(tenant.life.name, SOURCE, table_id))
        events = [event for of, event in tenant.sent[: tenant.taken] if of == topic and event is not None]
        self._counted.compared += 1
        self._counted.rows += len(stored)
        if tenant.mode is SinkMode.APPEND:
            compare_log(stored, events, tenant.life.settings.images)
            return
        if tenant.mode is SinkMode.HISTORY:
            compare_history(stored, events)
        has_all = not any(of == topic for of, _ in tenant.sent[tenant.taken :])
        newest = next((event.schema.version for event in reversed(events) if event.op != "t"), None)
        if has_all and newest == table.schema.version:
            compare_rows(stored, table.schema, table.rows, table.uncertain)


def _name(tenant: _Tenant) -> str:
    return f"{tenant.life.settings.warehouse} {tenant.mode.value}"


def _keeps_values(old: Column, column: Column) -> bool:
    """Whether a sink has a stored value of the former type as the source has it now."""
    if old.source_type == column.source_type and old.is_optional == column.is_optional:
        return True
    before, after = parse_column_type(old.source_type), parse_column_type(column.source_type)
    was, now = spark_type(old), spark_type(column)
    if (was, now) in _WIDER:
        return old.is_optional == column.is_optional or column.is_optional
    is_text = before.name in ("varchar", "char", "text") and after.name in ("varchar", "char", "text")
    return (
        was == now
        and (before.name == after.name or is_text)
        and (old.is_optional == column.is_optional or column.is_optional)
    )
