"""Random sequences of statements and rows of one table, and the table that the source has at their end: a plain model of
MySQL's ALTER.

``tests/unit/spark/test_schema_sequences.py`` compares the sinks' plans with it, and the integration test of that name compares
the model with a server.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from libs.mysql.ddl import apply_ddl, show_create_to_schema
from libs.types.table import TableId, TableSchema

TABLE = TableId(database="shop", table="orders")
CREATE = "CREATE TABLE orders (id INT NOT NULL PRIMARY KEY, a INT, b INT NOT NULL)"
_NAMES = ("a", "A", "b", "c", "d")
_KEYS = 5


@dataclass(frozen=True, slots=True)
class Statement:
    text: str


@dataclass(frozen=True, slots=True)
class Written:
    """A row as the source has it after an insert or an update."""

    row: Mapping[str, Any]


Step = Statement | Written


@dataclass(slots=True)
class _Column:
    """One column for its life, under each of its names."""

    name: str
    type: str = "INT"
    default: int | None = None
    is_required: bool = False

    @property
    def definition(self) -> str:
        default = "" if self.default is None else f" DEFAULT {self.default}"
        return f"{self.type}{' NOT NULL' if self.is_required else ''}{default}"


@dataclass(slots=True)
class Source:
    """The table as MySQL has it."""

    columns: list[_Column] = field(default_factory=lambda: [_Column("a"), _Column("b", is_required=True)])
    rows: dict[int, dict[int, Any]] = field(default_factory=dict)
    """By key, by the column's identity."""
    uncertain: set[tuple[int, int]] = field(default_factory=set)
    """Key and column: its type was changed to one that stored values do not fit, and the row was not written since."""

    def table(self) -> dict[int, dict[str, Any]]:
        """By key: the rows under the columns' names."""
        return {key: {each.name: row[id(each)] for each in self.columns} for key, row in self.rows.items()}

    def is_certain(self, key: int, name: str) -> bool:
        """Whether a mirror promises the value: see docs/sinks/schema-changes.md, "Type changes"."""
        [column] = [each for each in self.columns if each.name == name]
        return (key, id(column)) not in self.uncertain


def steps(chosen: random.Random, source: Source, count: int) -> Iterator[Step]:
    """``source`` follows."""
    kept: list[_Column] = []  # a column that is gone keeps its identity from being given out again
    for _ in range(count):
        if chosen.random() < 0.5:
            key = chosen.randrange(_KEYS)
            row = {id(each): _value(chosen, each) for each in source.columns}
            source.rows[key] = row
            source.uncertain -= {(key, id(each)) for each in source.columns}
            yield Written({"id": key, **{each.name: row[id(each)] for each in source.columns}})
        elif clauses := _clauses(chosen, source, kept):
            yield Statement(f"ALTER TABLE orders {', '.join(clauses)}")


def _value(chosen: random.Random, column: _Column) -> Any:
    if not column.is_required and chosen.random() < 0.2:
        return None
    number = chosen.randrange(100, 200)
    return f"t{number}" if column.type.startswith("VARCHAR") else number


def _clauses(chosen: random.Random, source: Source, kept: list[_Column]) -> list[str]:
    """One or two, of different columns; MySQL reads each by the names of before."""
    before = list(source.columns)
    chosen.shuffle(before)
    clauses: list[str] = []
    for _ in range(chosen.choice((1, 1, 2, 2, 3))):
        taken = {each.name.lower() for each in source.columns}
        free = [name for name in _NAMES if name.lower() not in taken]
        kind = chosen.choice(("add", "add", "drop", "rename", "change", "default", "nullable", "type"))
        if kind == "add" and free:
            column = _Column(chosen.choice(free), "INT", chosen.choice((None, 5, 9)), chosen.random() < 0.5)
            given = column.default if column.default is not None or not column.is_required else 0
            clauses.append(f"ADD COLUMN {column.name} {column.definition}")
            source.columns.append(column)
            for row in source.rows.values():
                row[id(column)] = given
            continue
        if not before or kind == "add":
            continue
        column = before.pop()
        if kind == "drop" and len(source.columns) > 1:
            clauses.append(f"DROP COLUMN {column.name}")
            source.columns.remove(column)
            kept.append(column)
        elif kind in ("rename", "change") and free:
            old, column.name = column.name, chosen.choice([*free, column.name.swapcase()])
            how = f"RENAME COLUMN {old} TO {column.name}"
            clauses.append(how if kind == "rename" else f"CHANGE {old} {column.name} {column.definition}")
        elif kind == "default" and not column.type.startswith("VARCHAR"):
            column.default = chosen.choice((None, 7))
            how = "DROP DEFAULT" if column.default is None else f"SET DEFAULT {column.default}"
            clauses.append(f"ALTER COLUMN {column.name} {how}")
        elif kind == "nullable" and column.is_required:
            column.is_required = False
            clauses.append(f"MODIFY {column.name} {column.definition}")
        elif kind == "type":
            _change_type(chosen, source, column)
            clauses.append(f"CHANGE {column.name} {_cased(chosen, column)} {column.definition}")
    return clauses


def _cased(chosen: random.Random, column: _Column) -> str:
    column.name = chosen.choice((column.name, column.name.swapcase()))
    return column.name


def _change_type(chosen: random.Random, source: Source, column: _Column) -> None:
    if column.type == "INT":
        column.type = chosen.choice(("BIGINT", "VARCHAR(20)"))
    elif column.type == "BIGINT":
        column.type = "VARCHAR(20)"
    if column.type.startswith("VARCHAR"):
        column.default = None
        for key, row in source.rows.items():
            value = row[id(column)]
            row[id(column)] = value if value is None or isinstance(value, str) else str(value)
            source.uncertain.add((key, id(column)))


def numbered(before: TableSchema | None, statement: str) -> TableSchema:
    """The table after a statement, as the history counts its versions."""
    if before is None:
        first = show_create_to_schema(TABLE, statement)
        return _version(first, 1)
    [change] = apply_ddl({TABLE: before}, TABLE.database, statement)
    assert change.schema is not None
    return _version(change.schema, before.version + 1)


def _version(schema: TableSchema, version: int) -> TableSchema:
    return msgspec.structs.replace(schema, version=version)
