"""``headwater check``: source and tenants' tables compared, every row and column.

    wait until caught up ▶ one snapshot of the source ▶ for each tenant and table, or a chunk of one (``chunks``): counts and
      checksums by part of the key
      (``checksums``) ▶ of the parts that differ two sorted streams of rows, merged
      ▶ the rows that differ, once more: were they on their way? (``second_look``)

The expected rows come from the source itself (``source``) and ``projection``, the delivered ones from the warehouse;
nothing of the readers, the router or the sink takes part in the comparison.
"""

import functools
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from libs.check.checksums import (
    differing_parts,
    hash_cut,
    range_cut,
    source_condition,
    summable,
    warehouse_condition,
)
from libs.check.chunks import Chunk, can_be_bounded, source_bounds, warehouse_bounds
from libs.check.compare import Comparison, compare_as_bags, compare_by_key, compare_sorted, together
from libs.check.compared import ComparedMesh, chosen_tenants, temporary_folder
from libs.check.delivered import OtherType, delivered_columns, delivered_rows, unlogged_columns
from libs.check.parts import Cut
from libs.check.projection import ExpectedColumn, ExpectedTable, SourceTable, as_stored, expected_tables
from libs.check.second_look import Suspected, look_again
from libs.check.source import AskedSource, asked
from libs.mesh.catch_up import source_positions, wait_until_caught_up
from libs.mesh.documents import DtsDocument, SourceDocument
from libs.mesh.executed import Executed
from libs.mesh.source_tables import is_captured
from libs.source.key_columns import chosen_key
from libs.types.table import TableId
from libs.types.tenant import Operation, SinkMode, SinkSettings, TenantSpec, UnknownColumns
from libs.types.warehouse import warehouse_table
from libs.warehouse.schema_changes import VARIANT
from libs.warehouse_readers.iceberg_variants import VariantsUnreadable
from libs.warehouse_readers.warehouse import KeyCondition, StoredTable, all_of

DEFAULT_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class TableCheck:
    """The findings about one table of one tenant."""

    tenant: str
    source: str
    table: ExpectedTable
    comparison: Comparison
    columns: tuple[str, ...]
    faults: tuple[str, ...] = ()
    """Differences that are not rows': missing or additional columns, a table that cannot be compared."""
    undecided: int = 0
    """Rows that the source changed whenever they were looked at."""
    is_sure: bool = False
    """The differences are no changes on their way, whether or not the source was written to."""
    conditions: tuple[str, ...] = ()
    """SQL that is true of those rows that differ, where the differences are sure."""
    is_summed: bool = False
    """By checksums; else all of it row by row."""
    rows_read: int = 0
    """Rows that were compared one by one."""
    read_columns: tuple[str, ...] = ()
    """Columns of a summed table without a checksum: of all rows they were compared row by row."""
    chunk: Chunk | None = None
    """Of which rows all this is said; None: of the whole table."""
    chunks: int = 0
    """Of the whole table: how many it is the sum of. 0: it was compared at once."""
    not_compared: str = ""
    """Why it was not, with the remedy."""

    @property
    def is_equal(self) -> bool:
        """No difference of any kind."""
        return not (self.comparison.rows_different or self.faults or self.not_compared)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Everything that a check found."""

    tables: tuple[TableCheck, ...]
    source_moved: bool
    """The source was written to while it was compared: a difference that is not sure may be a change on its way."""
    notes: tuple[str, ...] = field(default=())
    worked_s: float = 0.0
    """How long sources and warehouses were read, without waits and second looks, in seconds."""

    @property
    def rows_compared(self) -> int:
        """Rows of all tables."""
        return sum(table.comparison.rows_compared for table in self.tables)

    @property
    def rows_read(self) -> int:
        """Of those, the ones that were compared one by one."""
        return sum(table.rows_read for table in self.tables)

    @property
    def cells_compared(self) -> int:
        """Values of all rows that both sides have."""
        return sum(table.comparison.cells_compared for table in self.tables)

    @property
    def differences(self) -> int:
        """Rows that differ, and faults of whole tables."""
        return sum(table.comparison.rows_different + len(table.faults) for table in self.tables)

    @property
    def not_compared(self) -> tuple[str, ...]:
        """The tables of which nothing can be said, each with the reason."""
        return tuple(
            f"{table.tenant}: {table.table.table_id}: {table.not_compared}"
            for table in self.tables
            if table.not_compared
        )


def check(
    mesh: ComparedMesh,
    tenants: Collection[str] = (),
    *,
    limit: int,
    tables: Sequence[str] = (),
    sources: Collection[str] = (),
    timeout_s: float = DEFAULT_TIMEOUT_S,
    reads_all: bool = False,
    chunk: Chunk | None = None,
    whole: Collection[str] = (),
    on_progress: Callable[[str], None] = lambda _: None,
) -> CheckReport:
    """Compare the tables of ``tenants`` (none: of all that have a sink); ``limit`` differences a table are kept.

    ``tables``: regular expressions; where there are any, only tables of the source are compared whose ``database.table`` one
    of them matches whole. ``sources``: none but those, where there are any. ``reads_all``: row by row, without checksums; the
    same differences are found. ``chunk``: only those rows, where ``tables`` and ``sources`` leave one table; of a tenant
    whose table cannot be asked for them it is compared whole, of those in ``whole`` not at all. Memory is bounded: neither side
    of a table is ever held whole, except where a mask hides its key.

    Raises:
        InvalidSettings: no such tenant, or it has no sink; or no row was ever written.
        NotCaughtUp: the tables still lag after ``timeout_s``.
        SourceUnavailable, AccessDenied: the source cannot be read.
        KeyUnusable: the key of a tenant's mask is not there.
    """
    chosen = chosen_tenants(mesh, tenants)
    named = {selection.name for spec in chosen for selection in spec.sources} & mesh.sources.keys()
    compare = Comparing(limit, reads_all, tuple(tables), chunk, frozenset(whole))
    notes = [
        *mesh.notes,
        *(
            f"{spec.tenant}: its document leaves operations of {selection.name} out, so its tables differ as they should"
            for spec in chosen
            for selection in spec.sources
            if set(selection.skip_operations) - {Operation.TRUNCATE}
        ),
    ]
    found: list[TableCheck] = []
    moved, worked_s = False, 0.0
    for source in sorted(named & set(sources) if sources else named):
        of_source = _compare_source(mesh, source, chosen, compare, timeout_s=timeout_s, on_progress=on_progress)
        found += of_source.checks
        moved = moved or of_source.is_moving
        worked_s += of_source.worked_s
        notes += of_source.about_keys
    return CheckReport(tuple(found), moved, tuple(notes), worked_s)


@dataclass(frozen=True, slots=True)
class _OfSource:
    """The findings about one source."""

    checks: list[TableCheck]
    is_moving: bool
    """It was written to meanwhile."""
    about_keys: list[str]
    """Notes about its keys."""
    worked_s: float


def _compare_source(
    mesh: ComparedMesh,
    source: str,
    tenants: Sequence[TenantSpec],
    compare: "Comparing",
    *,
    timeout_s: float,
    on_progress: Callable[[str], None],
) -> _OfSource:
    parked: dict[tuple[str, str], str] = {}

    def wait_for_all() -> Executed:
        wanted = source_positions(mesh.sources, [source])
        if mesh.hops is not None:
            wait_until_caught_up(mesh.hops, tenants, wanted, timeout_s=timeout_s, on_progress=on_progress)
        # After the wait, which passes over their events as the sink does.
        for spec in tenants:
            of_tenant = mesh.parked(spec.tenant).items()
            parked.update({(spec.tenant, table): why for (whose, table), why in of_tenant if whose == source})
        return wanted[source]

    waited_for = wait_for_all()
    started_s = time.monotonic()
    with asked(mesh.sources[source]) as answering:
        before = answering.executed()
        # After the wait: a stack that was just started makes it with its first rows.
        with temporary_folder(mesh) as folder:
            looked = list(_check_source(mesh, answering, source, tenants, compare, Path(folder), parked, on_progress))
        compared = {each.check.table.table_id for each in looked}
        tables = [table for table in answering.tables() if table.table_id in compared]
        about_keys = list(_notes_on_keys(source, mesh.sources[source], tables))
    worked_s = time.monotonic() - started_s
    is_moving = before != waited_for or source_positions(mesh.sources, [source])[source] != before
    if mesh.hops is not None:
        on_progress("looking again at the rows that differ")
        looked = _looked_again(mesh, source, looked, wait_for_all, compare.limit)
        looked = [_unless_parked(each, parked) for each in looked]
    return _OfSource([each.check for each in looked], is_moving, about_keys, worked_s)


@dataclass(frozen=True, slots=True)
class Comparing:
    """How tables are compared."""

    limit: int
    """Differences of a table that are kept."""
    reads_all: bool
    """No checksums."""
    tables: tuple[str, ...] = ()
    """Regular expressions for ``database.table``; none: all."""
    chunk: Chunk | None = None
    """None: whole tables."""
    whole: frozenset[str] = frozenset()
    """Tenants whose table is done, for every chunk."""

    def is_asked_for(self, table: TableId) -> bool:
        """Whether the table is to be compared."""
        return not self.tables or any(re.fullmatch(pattern, str(table)) for pattern in self.tables)


@dataclass(frozen=True, slots=True)
class _Looked:
    """The findings of the first look, and the input of a second one."""

    check: TableCheck
    suspected: Suspected | None = None
    """None: no row of the table can be looked at again."""


def _looked_again(
    mesh: ComparedMesh,
    source: str,
    looked: Sequence[_Looked],
    wait_for_all: Callable[[], Executed],
    limit: int,
) -> list[_Looked]:
    """The same tables, the rows that differed judged again where they can be."""
    places = [
        nth
        for nth, each in enumerate(looked)
        if each.suspected is not None and each.check.comparison.rows_different and each.suspected.is_distinguishable
    ]
    suspected = [each for nth in places if (each := looked[nth].suspected) is not None]
    if not suspected:
        return list(looked)
    with temporary_folder(mesh) as folder:
        verdicts = look_again(
            suspected,
            lambda: asked(mesh.sources[source]),
            wait_for_all,
            limit=limit,
            temporary_dir=Path(folder),
        )
    found = list(looked)
    for nth, table, verdict in zip(places, suspected, verdicts, strict=True):
        found[nth] = _Looked(
            replace(
                looked[nth].check,
                comparison=verdict.comparison,
                undecided=verdict.undecided,
                is_sure=True,
                conditions=tuple(table.conditions(verdict.comparison.suspects)),
            ),
            table,
        )
    return found


def _unless_parked(looked: _Looked, parked: Mapping[tuple[str, str], str]) -> _Looked:
    """Of a table that was parked meanwhile no difference is sure: it lacked the rows that the second look waited for."""
    check = looked.check
    why = parked.get((check.tenant, str(check.table.table_id)))
    if why is None or not check.comparison.rows_different:
        return looked
    return _Looked(_not_compared(check.tenant, check.source, check.table, why))


def _not_compared(tenant: str, source: str, table: ExpectedTable, why: str) -> TableCheck:
    return TableCheck(
        tenant, source, table, Comparison(), tuple(column.name for column in table.columns), not_compared=why
    )


def _notes_on_keys(source: str, document: SourceDocument, tables: Iterable[SourceTable]) -> Iterator[str]:
    """Of tables whose events have a key that does not identify rows."""
    if isinstance(document, DtsDocument) or not document.key_columns:
        return
    for table in tables:
        key = chosen_key(table.table_id, (name for name, _ in table.columns), document.key_columns)
        if key and not (table.key and set(table.key) <= set(key)):
            yield (
                f"{source}: key_columns gives {table.table_id} the key {', '.join(key)}: of rows that share it a mirror holds "
                "the last one, and the others are reported as missing"
            )


def _check_source(
    mesh: ComparedMesh,
    answering: AskedSource,
    source: str,
    tenants: Sequence[TenantSpec],
    compare: Comparing,
    folder: Path,
    parked: Mapping[tuple[str, str], str],
    on_progress: Callable[[str], None],
) -> Iterator[_Looked]:
    captured = [
        table
        for table in answering.tables()
        if is_captured(mesh.sources[source], table.table_id) and compare.is_asked_for(table.table_id)
    ]
    for spec in tenants:
        if spec.tenant in compare.whole:
            continue
        assert spec.sink is not None
        selections = [selection for selection in spec.sources if selection.name == source]
        warehouse = mesh.warehouse_of(spec.tenant) if selections else None
        key_of = functools.partial(mesh.mask_key, spec.tenant)
        for selection in selections:
            assert warehouse is not None
            for table in expected_tables(selection, captured, spec.format.names_of_fields, key_of):
                if (why := parked.get((spec.tenant, str(table.table_id)))) is not None:
                    yield _Looked(_not_compared(spec.tenant, source, table, why))
                    continue
                if (refused := answering.refusal(table)) is not None:
                    yield _Looked(_not_compared(spec.tenant, source, table, refused))
                    continue
                on_progress(f"comparing {spec.tenant}: {table.table_id}")
                place = warehouse_table(spec.tenant, source, table.table_id)
                load = functools.partial(warehouse.load, place)
                yield _check_table(answering, spec, source, table, load, compare, folder)


def _unknown_note(spec: TenantSpec, source: str) -> str:
    """Why a column may be kept back that the document does not exclude: its source alone knows when it came."""
    if all(each.unknown_columns is UnknownColumns.DELIVER for each in spec.sources if each.name == source):
        return ""
    return (
        ": if it came later than its table, unknown_columns: refuse keeps it back; name it in include_columns, masks or "
        "exclude_columns"
    )


def _check_table(
    answering: AskedSource,
    spec: TenantSpec,
    source: str,
    table: ExpectedTable,
    load: Callable[[], StoredTable | None],
    compare: Comparing,
    folder: Path,
) -> _Looked:
    assert spec.sink is not None
    mode = spec.sink.mode
    try:
        stored = load()
    except VariantsUnreadable as error:
        return _Looked(TableCheck(spec.tenant, source, table, Comparison(), (), (f"it cannot be compared: {error}",)))
    delivered = delivered_columns(stored, spec.sink)
    table = as_stored(table, delivered)
    columns = [column for column in table.columns if stored is None or column.seen_as in delivered]
    names = tuple(column.name for column in columns)
    faults = [
        f"column {column.seen_as} is missing in the warehouse{_unknown_note(spec, source)}"
        for column in table.columns
        if stored is not None and column.seen_as not in delivered
    ]
    lower = {name.lower() for name in delivered}
    faults += [
        f"column {name} must not be in the warehouse, and is" for name in table.withheld if name.lower() in lower
    ]
    if not set(table.key) <= set(names):
        faults.append("the warehouse lacks a column of the key: no row can be compared")
        return _Looked(TableCheck(spec.tenant, source, table, Comparison(), names, tuple(faults)))
    if mode is SinkMode.APPEND and not table.key:
        faults = ["an append table without a key does not say which rows are current: it cannot be compared"]
        return _Looked(TableCheck(spec.tenant, source, table, Comparison(), names, tuple(faults)))
    chunk = compare.chunk if compare.chunk is not None and can_be_bounded(compare.chunk, columns, stored) else None
    ends = _Ends(answering, stored, spec.sink, table, tuple(columns), folder)
    if chunk is not None:
        ends = _of_chunk(ends, chunk)
    try:
        found = None if compare.reads_all else _compare_by_sums(ends, compare.limit)
        if found is None:
            comparison = _compare_rows(ends, compare.limit)
            found = _Found(comparison, rows_read=comparison.rows_compared)
    except OtherType as error:
        beside = sorted(name for name in delivered if name.startswith(f"{error.column}{VARIANT}"))
        hint = f"; values after its change of type are in {', '.join(beside)}" if beside else ""
        return _Looked(TableCheck(spec.tenant, source, table, Comparison(), names, (*faults, f"{error}{hint}")))
    check = TableCheck(
        spec.tenant,
        source,
        table,
        found.comparison,
        names,
        tuple(faults),
        is_summed=found.is_summed,
        rows_read=found.rows_read,
        read_columns=found.read_columns,
        chunk=None if chunk is None or chunk.is_whole else chunk,
    )
    return _Looked(check, Suspected(table, tuple(columns), spec.sink, load, found.comparison, answering.sql))


@dataclass(frozen=True, slots=True)
class _Ends:
    """A table at both ends."""

    source: AskedSource
    stored: StoredTable | None
    sink: SinkSettings
    table: ExpectedTable
    columns: tuple[ExpectedColumn, ...]
    """Those that both have."""
    folder: Path
    only: KeyCondition | None = None
    """Which of the warehouse's rows are compared, as ``table`` says which of the source's; None: all."""
    chunk: Chunk | None = None


def _of_chunk(ends: _Ends, chunk: Chunk) -> _Ends:
    bounds = source_bounds(chunk)
    narrowed = ends if bounds is None else _narrowed(ends, bounds, ends.columns)
    only = None if ends.stored is None else warehouse_bounds(chunk, ends.columns, ends.stored)
    return replace(narrowed, only=only, chunk=chunk)


@dataclass(frozen=True, slots=True)
class _Found:
    comparison: Comparison
    is_summed: bool = False
    rows_read: int = 0
    read_columns: tuple[str, ...] = ()


def _compare_by_sums(ends: _Ends, limit: int) -> _Found | None:
    """None: it cannot be done, or most rows differ; then all of them are compared."""
    source = ends.source.sums
    if source is None or ends.stored is None:
        return None
    cut_by, cut = (None, None) if ends.chunk is None else _first_cut(ends.chunk)
    if (rows := summable(ends.table, ends.columns, ends.stored, cut_by=cut_by)) is None:
        return None
    differing = differing_parts(source, ends.stored, ends.sink, ends.table, rows, ends.folder, cut=cut, only=ends.only)
    if differing.is_most:
        return None
    equal = Comparison(rows_compared=differing.rows_equal, cells_compared=differing.rows_equal * len(ends.columns))
    read = Comparison()
    if differing.chosen.parts:
        meant = source_condition(rows, differing.chosen)
        only = warehouse_condition(rows, ends.table, differing.chosen)
        read = _compare_rows(_narrowed(ends, meant, ends.columns, only), limit)
    rows_read = read.rows_compared
    if rows.by_row:
        wanted = {*ends.table.key, *(column.name for column in rows.by_row)}
        columns = tuple(column for column in ends.columns if column.name in wanted)
        meant = f"NOT {source_condition(rows, differing.chosen)}"
        only = KeyCondition(f"NOT {warehouse_condition(rows, ends.table, differing.chosen).sql}")
        further = _compare_rows(_narrowed(ends, meant, columns, only), limit)
        rows_read += further.rows_compared
        equal = replace(further, cells_compared=equal.cells_compared)
    names = tuple(column.name for column in rows.by_row)
    return _Found(together(equal, read, limit), is_summed=True, rows_read=rows_read, read_columns=names)


def _first_cut(chunk: Chunk) -> tuple[str, Cut]:
    """By which column, and how."""
    nth = chunk.cut_column
    low, high = chunk.first[nth], chunk.last[nth]
    if isinstance(low, int) and isinstance(high, int):
        return chunk.columns[nth].name, range_cut(low, high, chunk.rows)
    return chunk.columns[nth].name, hash_cut(chunk.rows)


def _narrowed(
    ends: _Ends, condition: str, columns: tuple[ExpectedColumn, ...], only: KeyCondition | None = None
) -> _Ends:
    """Only the source's rows that meet a condition, the warehouse's that meet ``only``, and only ``columns``."""
    where = condition if ends.table.where is None else f"({ends.table.where}) AND {condition}"
    table = replace(ends.table, where=where)
    return replace(ends, table=table, columns=columns, only=all_of(ends.only, only))


def _compare_rows(ends: _Ends, limit: int) -> Comparison:
    """Raises OtherType."""
    expected = ends.source.rows(ends.table, ends.columns)
    actual = delivered_rows(ends.stored, ends.sink, ends.table, ends.columns, ends.folder, only=ends.only)
    if not ends.table.key:
        return compare_as_bags(expected, actual, limit=limit)
    compare = compare_by_key if ends.table.is_key_masked else compare_sorted
    names = tuple(column.name for column in ends.columns)
    unlogged = unlogged_columns(ends.sink, ends.columns)
    return compare(expected, actual, columns=names, key=ends.table.key, limit=limit, unlogged=unlogged)
