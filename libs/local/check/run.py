"""``headwater check``: source and tenants' tables compared row by row, every column.

    wait until caught up ▶ one snapshot of the source ▶ for each tenant and table: two sorted streams, merged

The expected rows come from the source itself (``source``) and ``projection``, the delivered ones from the warehouse;
nothing of the readers, the router or the sink takes part in the comparison.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from libs.errors import InvalidSettings
from libs.local.catch_up import source_positions, wait_until_caught_up
from libs.local.check.compare import Comparison, Row, compare_as_bags, compare_by_key, compare_sorted
from libs.local.check.projection import (
    ExpectedColumn,
    ExpectedTable,
    SourceTable,
    delivered_mask,
    expected_tables,
)
from libs.local.check.source import AskedSource, asked, missing_transactions
from libs.local.check.values import Convert, from_arrow
from libs.local.documents import Documents, DtsDocument, SourceDocument, mask_keys, nearest
from libs.local.home import Home
from libs.local.warehouse import StoredTable
from libs.local.warehouses import warehouse_of
from libs.source.key_columns import chosen_key
from libs.types.tenant import Deletes, Operation, SinkMode, SinkSettings, TenantSpec
from libs.types.warehouse import (
    DELETED_COLUMN,
    IMAGE_COLUMN,
    IS_CURRENT_COLUMN,
    OP_COLUMN,
    ORDER_COLUMN,
    own_columns,
    warehouse_table,
)
from libs.warehouse.schema_changes import VARIANT

DEFAULT_TIMEOUT_S: Final = 120.0
CATCH_UP_TRIES: Final = 3
"""How often to wait again when the source was written to meanwhile."""


@dataclass(frozen=True, slots=True)
class TableCheck:
    """What was found about one table of one tenant."""

    tenant: str
    source: str
    table: ExpectedTable
    comparison: Comparison
    columns: tuple[str, ...]
    faults: tuple[str, ...] = ()
    """Differences that are not rows': missing or additional columns, a table that cannot be compared."""

    @property
    def is_equal(self) -> bool:
        """No difference of any kind."""
        return not self.comparison.rows_different and not self.faults


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Everything that a check found."""

    tables: tuple[TableCheck, ...]
    source_moved: bool
    """The source was written to while it was compared: a difference may be a change on its way."""
    notes: tuple[str, ...] = field(default=())

    @property
    def rows_compared(self) -> int:
        """Rows of all tables."""
        return sum(table.comparison.rows_compared for table in self.tables)

    @property
    def cells_compared(self) -> int:
        """Values of all rows that both sides have."""
        return sum(table.comparison.cells_compared for table in self.tables)

    @property
    def differences(self) -> int:
        """Rows that differ, and faults of whole tables."""
        return sum(table.comparison.rows_different + len(table.faults) for table in self.tables)


def check(
    home: Home,
    documents: Documents,
    tenant: str | None,
    *,
    is_up: bool,
    limit: int,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    on_progress: Callable[[str], None] = lambda _: None,
) -> CheckReport:
    """Compare the tables of ``tenant`` (None: of all that have a sink); ``limit`` differences a table are kept.

    ``is_up``: whether the stack runs, so that there is something to wait for. Memory is bounded: neither side of a
    table is ever held whole, except where a mask hides its key.

    Raises:
        InvalidSettings: no such tenant, or it has no sink; or the stack never wrote a row.
        NotCaughtUp: the tables are still behind after ``timeout_s``.
        SourceUnavailable, AccessDenied: the source cannot be read.
        KeyUnusable: the key of a tenant's mask is not there.
    """
    tenants = _chosen(documents, tenant)
    sources = sorted({selection.name for spec in tenants for selection in spec.sources})
    notes = [] if is_up else ["the stack is not up: what the tables lack may wait in Kafka (`headwater up --detach`)"]
    notes += [
        f"{spec.tenant}: its document leaves operations of {selection.name} out, so its tables differ from it as they should"
        for spec in tenants
        for selection in spec.sources
        if set(selection.skip_operations) - {Operation.TRUNCATE}
    ]
    found: list[TableCheck] = []
    moved = False
    for source in sources:
        for _ in range(CATCH_UP_TRIES):
            waited_for = source_positions(documents, [source])
            if is_up:
                wait_until_caught_up(home, tenants, waited_for, timeout_s=timeout_s, on_progress=on_progress)
            with asked(documents.sources[source]) as answering:
                seen = answering.executed()
                is_quiet = not missing_transactions(seen, waited_for[source])
            if is_quiet:
                break
        with asked(documents.sources[source]) as answering:
            before = answering.executed()
            # Behind the wait: a stack that was just started makes it with its first rows.
            checked = list(_check_source(home, documents, answering, source, tenants, limit, on_progress))
            compared = {each.table.table_id for each in checked}
            tables = [table for table in answering.tables() if table.table_id in compared]
            notes += _notes_on_keys(source, documents.sources[source], tables)
            found += checked
        after = source_positions(documents, [source])[source]
        moved = moved or not is_quiet or after != before or before != seen
    return CheckReport(tuple(found), moved, tuple(notes))


def _notes_on_keys(source: str, document: SourceDocument, tables: Iterable[SourceTable]) -> Iterator[str]:
    """Of tables whose events have a key that does not tell their rows apart."""
    if isinstance(document, DtsDocument) or not document.key_columns:
        return
    for table in tables:
        key = chosen_key(table.table_id, (name for name, _ in table.columns), document.key_columns)
        if key and not (table.key and set(table.key) <= set(key)):
            yield (
                f"{source}: key_columns gives {table.table_id} the key {', '.join(key)}: of rows that share it a mirror holds "
                "the last one, and the others are told as missing"
            )


def _chosen(documents: Documents, tenant: str | None) -> list[TenantSpec]:
    if tenant is not None and tenant not in documents.tenants:
        raise InvalidSettings(
            f"tenant {tenant}", [f"has no document in tenants/; {nearest(tenant, sorted(documents.tenants))}"]
        )
    chosen = [
        spec for name, spec in sorted(documents.tenants.items()) if tenant in (None, name) and spec.sink is not None
    ]
    if not chosen:
        raise InvalidSettings(f"tenant {tenant or 'of any name'}", ["has no sink, so there is no table to compare"])
    return chosen


def _check_source(
    home: Home,
    documents: Documents,
    answering: AskedSource,
    source: str,
    tenants: Sequence[TenantSpec],
    limit: int,
    on_progress: Callable[[str], None],
) -> Iterator[TableCheck]:
    captured = answering.tables()
    with tempfile.TemporaryDirectory(prefix="check-", dir=home.data_dir) as folder:
        for spec in tenants:
            assert spec.sink is not None
            selections = [selection for selection in spec.sources if selection.name == source]
            warehouse = warehouse_of(home, documents, spec.tenant) if selections else None
            for selection in selections:
                assert warehouse is not None
                key_of = partial(mask_keys(home).key, spec.tenant)
                for table in expected_tables(selection, captured, spec.format.field_names, key_of):
                    on_progress(f"comparing {spec.tenant}: {table.table_id}")
                    place = warehouse_table(spec.tenant, source, table.table_id)
                    yield _check_table(answering, spec, source, table, warehouse.load(place), limit, Path(folder))


def _check_table(
    answering: AskedSource,
    spec: TenantSpec,
    source: str,
    table: ExpectedTable,
    stored: StoredTable | None,
    limit: int,
    folder: Path,
) -> TableCheck:
    assert spec.sink is not None
    mode = spec.sink.mode
    delivered = _delivered_columns(stored, own_columns(mode, spec.sink.deletes))
    columns = [column for column in table.columns if stored is None or column.seen_as in delivered]
    names = tuple(column.name for column in columns)
    expected = answering.rows(table, columns)
    faults = [
        f"column {column.seen_as} is missing in the warehouse"
        for column in table.columns
        if stored is not None and column.seen_as not in delivered
    ]
    faults += [f"column {name} must not be in the warehouse, and is" for name in table.withheld if name in delivered]
    if not set(table.key) <= set(names):
        faults.append("the warehouse lacks a column of the key: no row can be compared")
        return TableCheck(spec.tenant, source, table, Comparison(), names, tuple(faults))
    if mode is SinkMode.APPEND and not table.key:
        faults = ["an append table without a key does not say which rows are current: it cannot be compared"]
        return TableCheck(spec.tenant, source, table, Comparison(), names, tuple(faults))
    if stored is None:
        actual: Iterator[Row] = iter(())  # no row was delivered yet, which is right where none is expected
    else:
        batches = stored.sorted_rows(
            tuple(column.seen_as for column in columns),
            tuple(column.seen_as for name in table.key for column in columns if column.name == name),
            latest_by=(ORDER_COLUMN, OP_COLUMN) if mode is SinkMode.APPEND else None,
            where=_current_rows(spec.sink),
            temporary_dir=folder,
        )
        actual = _canonical_rows(batches, columns)
    try:
        if not table.key:
            comparison = compare_as_bags(expected, actual, limit=limit)
        else:
            compare = compare_by_key if table.is_key_masked else compare_sorted
            comparison = compare(expected, actual, columns=names, key=table.key, limit=limit)
    except _OtherType as error:
        beside = sorted(name for name in delivered if name.startswith(f"{error.column}{VARIANT}"))
        hint = f"; what came since its type changed is in {', '.join(beside)}" if beside else ""
        return TableCheck(spec.tenant, source, table, Comparison(), names, (*faults, f"{error}{hint}"))
    return TableCheck(spec.tenant, source, table, comparison, names, tuple(faults))


class _OtherType(Exception):
    """A column of the warehouse is of a type that the source's values cannot stand in."""

    def __init__(self, column: str, reason: TypeError) -> None:
        super().__init__(f"column {column}: {reason}")
        self.column = column


def _current_rows(sink: SinkSettings) -> str | None:
    """Which rows of the table stand for rows of the source: a condition; None: all."""
    if sink.mode is SinkMode.HISTORY:
        return f"{IS_CURRENT_COLUMN} = true"
    if sink.mode is SinkMode.APPEND:
        return f"{IMAGE_COLUMN} = 'after' OR {OP_COLUMN} = '{Operation.DELETE.value}'"
    return f"{DELETED_COLUMN} = false" if sink.deletes is Deletes.SOFT else None


def _delivered_columns(stored: StoredTable | None, own: Sequence[str]) -> frozenset[str]:
    if stored is None:
        return frozenset()
    return frozenset(name for name in stored.columns if name not in own)


def _canonical_rows(batches: Iterator[pa.RecordBatch], columns: Sequence[ExpectedColumn]) -> Iterator[Row]:
    for batch in batches:
        cells = [_canonical_column(column, batch.column(index)) for index, column in enumerate(columns)]
        yield from zip(*cells, strict=True)


def _canonical_column(column: ExpectedColumn, values: pa.Array) -> Sequence[object]:
    cells: list[object] = values.to_pylist()
    if column.mask is not None:
        mask, data_type = column.mask, column.data_type
        texts = (None if cell is None else str(cell) for cell in cells)
        return [delivered_mask(mask, data_type, text, column.key) for text in texts]
    try:
        convert: Convert | None = from_arrow(column.data_type, values.type)
    except TypeError as error:
        raise _OtherType(column.seen_as, error) from error
    return cells if convert is None else [None if cell is None else convert(cell) for cell in cells]
