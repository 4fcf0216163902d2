"""Values that the log lacks: which changes of a transaction want them, and as of which SCN each is to be read.

An UPDATE prints the large values that it sets, and no other ones; a DELETE prints none. A transaction has its rows locked
from its first change of them to its COMMIT at SCN C. So a value that it leaves alone is the same as of any SCN near C, one that
it sets later is that of C - 1, and one that it set before is known by its own rows. All of it is exact, whatever others commit.

Between two changes of a row a document may have content that the log does not say: pieces that were written into one of unknown
length, trimmed ones. No SCN has it. The two changes are then one event, so each image is one that the row had.

Rows are read as of C + 1 rather than C. The manual does not say whether AS OF an SCN has the commits at it. A newer value there
has an event of its own, which follows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from libs.oracle.log_rows import Operation
from libs.oracle.redo_values import NotLogged, RedoValue, UnreadableRedo
from libs.types.table import TableSchema
from services.logminer_reader.row_changes import ChangedValues, RowChange, row_changes, values_of
from services.logminer_reader.table_version import TableVersion
from services.logminer_reader.transactions import OpenTransaction, StoredRow

_MOST_HELD: Final = 5_000
"""Changes that wait behind one that lacks values."""
_MOST_HELD_CHARACTERS: Final = 8 << 20


class SourceRows(NamedTuple):
    """An answer of the source."""

    found: Mapping[str, Mapping[str, bytes]]
    """JSON of columns by ROWID."""
    lost: Mapping[str, str]
    """Why a row cannot be read as of then, with the remedy, by ROWID. A row in neither was not there."""


class Rereading(Protocol):
    """Reads rows at the source. Blocks."""

    @property
    def batch_rows(self) -> int:
        """So many are to be asked for at once."""
        ...

    def rows(self, schema: TableSchema, columns: Sequence[str], scn: int, row_ids: Sequence[str]) -> SourceRows:
        """Some columns of rows as of an SCN.

        Raises:
            SourceUnavailable, AccessDenied, PipelineHalted: as ``libs.source.oracle.client.query``.
        """
        ...


class _Cell(NamedTuple):
    """A value to be read."""

    is_after: bool
    """Of the image after the change; else of the one before, which an UPDATE's other image takes it from."""
    column: str
    scn: int
    else_scn: int | None
    """Where the row is not there as of ``scn``."""


@dataclass(slots=True)
class FoundValues:
    """What a change's rows and the source say together."""

    values: ChangedValues
    before: dict[str, bytes] = field(default_factory=dict)
    """JSON of columns that ``values.before`` lacks."""
    after: dict[str, bytes] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    """By column: why its value is not to be had, with the remedy."""


@dataclass(slots=True)
class HeldChange:
    """A change, in its place among the others."""

    table: TableVersion
    change: RowChange
    found: FoundValues | None = None
    """None: its rows hold all that is needed, or cannot be read."""
    cells: list[_Cell] = field(default_factory=list)


class _RowPlace(NamedTuple):
    object_id: int
    row_id: str


class _Unread:
    """A value that a change has set, and that the log does not say."""


_UNREAD: Final = _Unread()


class HeldChanges:
    """Changes of one transaction, from the first that lacks a value on."""

    def __init__(
        self, transaction: OpenTransaction, commit_scn: int, table_of: Callable[[StoredRow], TableVersion | None]
    ) -> None:
        """Raises UndoContradiction: as ``row_changes``."""
        self._commit_scn = commit_scn
        self._last_set = _last_set(transaction, table_of)
        """Of rows that are changed more than once: the number of the last change that sets a column."""
        self._state: dict[_RowPlace, dict[str, RedoValue | _Unread]] = {place: {} for place in self._last_set}
        """Of the same rows: values as the changes up to here have set them."""
        self._joined: dict[_RowPlace, HeldChange] = {}
        """Changes that are one with the row's next change, because nobody knows the row between them."""
        self._held: list[HeldChange] = []
        self._lacking = self._characters = 0

    @property
    def is_empty(self) -> bool:
        """No change waits."""
        return not self._held

    def add(self, nth: int, table: TableVersion, change: RowChange) -> None:
        """Hold a change back. ``nth``: its number in ``row_changes``."""
        self._characters += sum(len(row.sql) for row in change.rows)
        held = HeldChange(table, change)
        if table.lacking and change.operation in _IMAGES and change.row_id is not None:
            try:
                values = values_of(change)
                named = ChangedValues(table.plain.named(values.before), table.plain.named(values.after))
            except UnreadableRedo:  # it fails by name when it is delivered
                pass
            else:
                held.found = FoundValues(named)
                place = _RowPlace(change.rows[0].object_id, change.row_id)
                if not self._resolve(held, nth, place, named):
                    return
        self._held.append(held)
        self._lacking += bool(held.cells)

    def _resolve(self, held: HeldChange, nth: int, place: _RowPlace, named: ChangedValues) -> bool:
        """Note the values that a change lacks. False: it is no event."""
        last_set, state = self._last_set.get(place), self._state.get(place, {})
        _add_cells(held, nth, self._commit_scn, last_set, state)
        if last_set is None:
            return True
        _carry(state, held.change.operation, held.table.lacking, named.after)
        is_event = _join(self._joined.pop(place, None), held)
        if is_event and any(
            state[column] is _UNREAD and last > nth for column, last in last_set.items() if column in state
        ):
            self._joined[place] = held
            return False
        return is_event

    def is_full(self, batch_rows: int) -> bool:
        """They are to be taken, before others are added."""
        held = self._held
        return self._lacking >= batch_rows or len(held) >= _MOST_HELD or self._characters >= _MOST_HELD_CHARACTERS

    def take(self, rereading: Rereading) -> list[HeldChange]:
        """All that wait, in their order, with their values read. Blocks. Raises as ``Rereading.rows``."""
        held, self._held = self._held, []
        self._lacking = self._characters = 0
        wanted = [(each, cell) for each in held for cell in each.cells]
        absent = _read(rereading, [(each, cell, cell.scn) for each, cell in wanted])
        again = [(each, cell, cell.else_scn) for each, cell in absent if cell.else_scn is not None]
        absent = [(each, cell) for each, cell in absent if cell.else_scn is None] + _read(rereading, again)
        for each, cell in absent:
            assert each.found is not None
            each.found.lost.setdefault(cell.column, _ABSENT.format(self._commit_scn))
        return held


_IMAGES: Final = frozenset({Operation.INSERT, Operation.UPDATE, Operation.DELETE})
_ABSENT: Final = "the row is not there as of SCN {}; snapshot the table again"


def _last_set(
    transaction: OpenTransaction, table_of: Callable[[StoredRow], TableVersion | None]
) -> dict[_RowPlace, dict[str, int]]:
    seen: set[_RowPlace] = set()
    again: dict[_RowPlace, dict[str, int]] = {}
    for _, place, _, _ in _of_lacking(transaction, table_of):
        if place in seen:
            again[place] = {}
        seen.add(place)
    if again:
        for nth, place, table, change in _of_lacking(transaction, table_of):
            if place in again:
                again[place].update(dict.fromkeys(_set_columns(table, change), nth))
    return again


def _of_lacking(
    transaction: OpenTransaction, table_of: Callable[[StoredRow], TableVersion | None]
) -> Iterable[tuple[int, _RowPlace, TableVersion, RowChange]]:
    for nth, change in enumerate(row_changes(transaction)):
        table = table_of(change.rows[0])
        if table is not None and table.lacking and change.row_id is not None:
            yield nth, _RowPlace(change.rows[0].object_id, change.row_id), table, change


def _set_columns(table: TableVersion, change: RowChange) -> Iterable[str]:
    if change.operation == Operation.UPDATE:
        try:
            return table.plain.named(values_of(change).after)
        except UnreadableRedo:
            pass
    return [column.name for column in table.schema.columns]


def _add_cells(
    held: HeldChange,
    nth: int,
    commit_scn: int,
    last_set: Mapping[str, int] | None,
    state: Mapping[str, RedoValue | _Unread],
) -> None:
    """The values that a change lacks. ``last_set``: None: it is the row's only change."""
    found, operation, key = held.found, held.change.operation, held.table.schema.key
    assert found is not None
    before, after = found.values.before, found.values.after

    def is_set(column: str, first: int) -> bool:
        """By this change, or a later one."""
        if last_set is not None:
            return last_set.get(column, -1) >= first
        return first == nth and (operation == Operation.DELETE or column in after)

    for column in _lacking_of(before, held.table.lacking, key) if operation != Operation.INSERT else ():
        now = state.get(column)
        if column in state and not isinstance(now, _Unread):
            before[column] = now
        elif not is_set(column, nth):
            held.cells.append(_Cell(False, column, commit_scn + 1, None if column in state else commit_scn - 1))
        elif column not in state:  # else the change before this one has the image
            held.cells.append(_Cell(False, column, commit_scn - 1, None))
    is_insert = operation == Operation.INSERT
    for column in _lacking_of(after, held.table.lacking if is_insert else frozenset(), key):
        if not is_set(column, nth + 1):  # else the next change has the image
            held.cells.append(_Cell(True, column, commit_scn + 1, None))


def _lacking_of(image: Mapping[str, RedoValue], large: frozenset[str], key: Sequence[str]) -> list[str]:
    """Large columns that an image does not name, and columns of which it says that the log lacks the value."""
    named = [column for column, value in image.items() if isinstance(value, NotLogged) and column not in key]
    return [*named, *sorted(large - image.keys())]


def _carry(
    state: dict[str, RedoValue | _Unread], operation: int, large: frozenset[str], after: Mapping[str, RedoValue]
) -> None:
    """The values that a change has set, for later changes of the row."""
    if operation == Operation.INSERT:
        state.update(dict.fromkeys(large, _UNREAD))
    for column, value in after.items():
        if isinstance(value, NotLogged):
            state[column] = _UNREAD
        elif column in large or column in state:
            state[column] = value


def _join(former: HeldChange | None, held: HeldChange) -> bool:
    """Make a change one with the one before it. False: nothing is left of both."""
    if former is None:
        return True
    assert former.found is not None and held.found is not None
    begun, operation = former.change.operation, held.change.operation
    values, former_values = held.found.values, former.found.values
    cells = [cell for cell in held.cells if cell.is_after]
    if operation != Operation.DELETE:
        cells += [cell for cell in former.cells if cell.is_after and cell.column not in values.after]
        values.after = former_values.after | values.after
    values.before = former_values.before
    held.cells = cells + [cell for cell in former.cells if not cell.is_after]
    if begun == Operation.INSERT:
        held.change = held.change._replace(operation=begun)
    return not (begun == Operation.INSERT and operation == Operation.DELETE)


def _read(rereading: Rereading, wanted: Sequence[tuple[HeldChange, _Cell, int]]) -> list[tuple[HeldChange, _Cell]]:
    """Fill values in, one query a table and SCN; those whose rows are not there come back."""
    groups: dict[tuple[int, int], list[tuple[HeldChange, _Cell]]] = {}
    for held, cell, scn in wanted:
        groups.setdefault((id(held.table), scn), []).append((held, cell))
    absent = []
    for (_, scn), cells in groups.items():
        row_ids = list(dict.fromkeys(held.change.row_id or "" for held, _ in cells))
        columns = sorted({cell.column for _, cell in cells})
        answer = rereading.rows(cells[0][0].table.schema, columns, scn, row_ids)
        for held, cell in cells:
            found, row_id = held.found, held.change.row_id or ""
            assert found is not None
            if row_id in answer.lost:
                found.lost.setdefault(cell.column, answer.lost[row_id])
            elif (row := answer.found.get(row_id)) is None:
                absent.append((held, cell))
            else:
                (found.after if cell.is_after else found.before)[cell.column] = row[cell.column]
    return absent
