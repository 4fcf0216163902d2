"""Tables: their names, their columns, their versions.

Their JSON, in the schema history and for tenants, leaves out fields that have their default value: a column takes a
third of the room, and records that were written with these fields are read as well.
"""

from collections.abc import Sequence

import msgspec

from libs.types.value import LogicalType


class TableId(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A table's name within its source."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


class FormerName(msgspec.Struct, frozen=True, kw_only=True):
    """A name that a column had."""

    name: str
    last_version: int
    """The table's last version in which it was called so."""


def name_at(name: str, former_names: Sequence[FormerName], version: int) -> str:
    """The former name of column ``name`` at a version of its table."""
    return next((former.name for former in former_names if version <= former.last_version), name)


class Born(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a column came into an existing table: the value of the rows of before, without later changes of the column."""

    after_version: int
    """The table's last version without it."""
    source_type: str
    logical_type: LogicalType
    is_optional: bool = True
    default_expression: str | None = None
    is_default_computed: bool = False


class Column(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One column, in the source's words and in ours."""

    name: str
    source_type: str
    """The type as the source writes it, lower case: ``decimal(12,2) unsigned``, ``enum('a','b')``."""
    logical_type: LogicalType
    is_optional: bool = True
    """May be NULL."""
    charset: str | None = None
    """The source's name of the character set; None for types without one."""
    is_generated: bool = False
    is_auto_increment: bool = False
    default_expression: str | None = None
    """The DEFAULT as the source writes it, without quotes; None: no default, DEFAULT NULL, or one that the source
    computes for each row (``DEFAULT (uuid())``). Of an expression of constants it is the value."""
    comment: str | None = None
    has_on_update: bool = False
    """ON UPDATE CURRENT_TIMESTAMP: the server sets it when a row changes."""
    is_virtual: bool = False
    """Generated, and computed whenever it is read."""
    is_invisible: bool = False
    """``SELECT *`` leaves it out."""
    is_default_computed: bool = False
    """The DEFAULT is an expression, of which ``default_expression`` is the value where it is constant."""
    former_names: tuple[FormerName, ...] = ()
    """The oldest first, as far as statements that renamed it were followed. A definition that is read again has none."""
    earlier_names: tuple[str, ...] = ()
    """Those that it had while its table was called otherwise, whose versions are counted by themselves."""
    born: Born | None = None
    """As far as statements were followed; None: it came with the table, or nobody knows."""
    is_late: bool = False
    """The table lacked it when it was first recorded, under the names of that time."""
    number: int = 0
    """By which the source's log may name it (Oracle's INTCOL#, from 1); 0: no log does. Known to the reader only."""

    @property
    def all_names(self) -> tuple[str, ...]:
        """The name that it has, and those that it had."""
        return tuple(dict.fromkeys((self.name, *(former.name for former in self.former_names), *self.earlier_names)))

    @property
    def named_after(self) -> int:
        """The table's last version in which no column, or another one, was called as this one is now; 0: none is known."""
        return max(
            0 if self.born is None else self.born.after_version,
            self.former_names[-1].last_version if self.former_names else 0,
        )

    def is_in(self, version: int) -> bool:
        """Whether the table had it at a version."""
        return self.born is None or version > self.born.after_version

    def name_at(self, version: int) -> str:
        """Its name at a version of its table."""
        return name_at(self.name, self.former_names, version)


class Index(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An index of a table; kept because a later DROP INDEX or RENAME INDEX names it."""

    name: str
    """``PRIMARY`` for the primary key."""
    columns: tuple[str, ...]
    """Empty for an index over expressions."""
    is_unique: bool
    prefix_lengths: tuple[int, ...] = ()
    """For each column the number of characters that are indexed, 0 for all; empty: all of every column."""


class TableSchema(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table's columns, in order, at one version."""

    table_id: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    """Columns of the events' key, in its order: the primary key, else the first unique key without NULLs; or what the source's
    ``key_columns`` chose."""
    version: int = 0
    """As schema_history counts it, from 1; 0 before it is recorded."""
    charset: str | None = None
    comment: str | None = None
    ddl: str = ""
    """The ALTER that made this version; only for tenants, and there only where it holds no column that the tenant
    does not see."""
    indexes: tuple[Index, ...] = ()
    """Known to the source's reader only, which derives ``key`` from them; empty for tenants."""
    object_ids: tuple[int, ...] = ()
    """Numbers by which the source's log names the table and its partitions (Oracle's OBJECT_ID), the table's own first. Known
    to the reader only; empty for tenants, and of sources whose logs have names."""
    former_ids: tuple[TableId, ...] = ()
    """Names that the table had, the oldest first; empty for tenants. What hides a table, or some of it, under one
    of them hides it under this one."""

    @property
    def all_ids(self) -> tuple[TableId, ...]:
        """The name that it has, and those that it had."""
        return (self.table_id, *self.former_ids)

    def column(self, name: str) -> Column:
        """The column of that name. Raises KeyError where there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"{self.table_id} (version {self.version}) has no column {name!r}")
