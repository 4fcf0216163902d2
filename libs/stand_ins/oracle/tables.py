"""Tables of the model: definitions, and every committed version of their rows."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from libs.stand_ins.oracle.answers import LOBS, Column, RowId, Value, row_id_of

Row = Mapping[str, Value]
"""A table's row: every column's value."""

_LONG_AGO: Final = datetime(2025, 12, 31)
_FILE: Final = 4
_FIRST_BLOCK: Final = 143
ROWS_A_BLOCK: Final = 64
BLOCKS_AN_EXTENT: Final = 8


class Version(NamedTuple):
    """A row from a commit on, until the next version's."""

    scn: int
    row: Row | None
    """None: it is deleted."""


class Extent(NamedTuple):
    """Blocks of a table that lie beside each other."""

    number: int
    data_object_id: int
    file: int
    first_block: int
    blocks: int


class Named(NamedTuple):
    """A table, as texts name it, and its columns in their order, hidden ones too."""

    owner: str
    name: str
    columns: Sequence[Column]

    def __str__(self) -> str:
        return f'"{self.owner}"."{self.name}"'


@dataclass(slots=True)
class ModelTable:
    """A table, its committed rows at every SCN, and those that open transactions changed."""

    named: Named
    object_id: int
    key: tuple[str, ...] = ()
    """Columns of its primary key."""
    data_object_id: int = 0
    """Of its segment: another one after TRUNCATE."""
    object_version: int = 1
    """Grows with each change of its columns."""
    logs_all_columns: bool = True
    """Supplemental logging of all columns."""
    is_temporary: bool = False
    comment: str | None = None
    made_at: datetime = _LONG_AGO
    changed_at: datetime = _LONG_AGO
    """By the server's clock, its last DDL."""
    changed_at_scn: int = 0
    """SCN of its last DDL."""
    versions: dict[str, list[Version]] = field(default_factory=dict)
    """By ROWID."""
    pending: dict[str, Row | None] = field(default_factory=dict)
    """By ROWID: the state in the one open transaction that changed the row, which has it locked."""
    by_key: dict[tuple[Value, ...], set[str]] = field(default_factory=dict)
    """By values of the key: every ROWID that ever had them."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def lobs(self) -> list[Column]:
        """The columns of LOBs."""
        return [column for column in self.named.columns if column.type in LOBS]

    @property
    def extents(self) -> list[Extent]:
        """Of its segment: as many as its rows ever needed."""
        blocks = [row.block for row in map(row_id_of, self.versions) if row.object_id == self.data_object_id]
        count = (max(blocks, default=_FIRST_BLOCK) - _FIRST_BLOCK) // BLOCKS_AN_EXTENT + 1
        first = [_FIRST_BLOCK + number * BLOCKS_AN_EXTENT for number in range(count)]
        return [
            Extent(number, self.data_object_id, _FILE, block, BLOCKS_AN_EXTENT) for number, block in enumerate(first)
        ]

    def new_row_id(self) -> str:
        """A place that no row has had."""
        block, row = divmod(next(self.numbers), ROWS_A_BLOCK)
        return str(RowId(self.data_object_id, _FILE, _FIRST_BLOCK + block, row))

    def at(self, scn: int, only: Collection[str] | None = None) -> dict[str, Row]:
        """The committed rows as of an SCN, its own commits included; ``only``: none but these."""
        found = {}
        for row_id in self.versions if only is None else only:
            versions = self.versions.get(row_id, ())
            for version in reversed(versions):
                if version.scn <= scn:
                    if version.row is not None:
                        found[row_id] = version.row
                    break
        return found

    def key_of(self, row: Row) -> tuple[Value, ...]:
        """The values of its key."""
        return tuple(row[name] for name in self.key)

    def newest(self, row_id: str) -> Row | None:
        """A row as its writer sees it; None: it is not there."""
        if row_id in self.pending:
            return self.pending[row_id]
        versions = self.versions.get(row_id)
        return versions[-1].row if versions else None

    def row(self, row_id: str) -> Row:
        """The same.

        Raises:
            KeyError: there is none.
        """
        found = self.newest(row_id)
        if found is None:
            raise KeyError(row_id)
        return found
