"""Random sequences of ADD, DROP, MODIFY, CHANGE, RENAME and defaults, with rows between, and batches cut anywhere.

A statement is drawn from the tables that the server has then. Most values are used once, so that a value in another column, or
of another row, is seen. The names are few, so that a column meets the one that had its name before.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from libs.types.table import TableId
from libs.types.tenant import Deletes, Images, SinkMode, SinkSettings
from tests.fuzz.source.program import DATABASES, Step
from tests.fuzz.source.stored_rows import ServerColumn, ServerTable

SINK: Final = "sink"
"""The session of steps that let the sinks take a batch: ``3`` records, or ``all``. ``3 twice`` takes it once more, as after a
crash before it was noted."""
TABLES: Final = ("t1", "t2", "t3")
_NAMES: Final = ("a", "A", "b", "c", "d", "note", "order")
_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "INT": ("{n}", "-{n}", "0", "2147483647"),
    "BIGINT": ("{n}", "-9223372036854775808", "{n}000000000"),
    "BIGINT UNSIGNED": ("{n}", "18446744073709551615"),
    "SMALLINT": ("{n}", "-32768"),
    "TINYINT(1)": ("0", "1", "7"),
    "DECIMAL(12,2)": ("{n}.25", "-{n}.5", "0"),
    "DECIMAL(20,2)": ("{n}.75", "99999999999999.99"),
    "DECIMAL(50,5)": ("{n}.12345",),
    "FLOAT": ("{n}.5", "0.1"),
    "DOUBLE": ("{n}.125", "1e300", "-0.0", "0.1"),
    "VARCHAR(20)": ("'t{n}'", "''", "'{n}'", "'żółw {n}'"),
    "VARCHAR(60)": ("'v{n}'", "'😀{n}'", "'a\\\\b\"{n}'"),
    "CHAR(8)": ("'c{n}'", "'c '"),
    "TEXT": ("'x{n}'", "REPEAT('ab', 300)"),
    "VARBINARY(16)": ("'b{n}'", "x'00FF'", "''"),
    "BINARY(4)": ("'b'", "x'01'"),
    "DATE": ("'2024-02-29'", "'1000-01-01'", "'9999-12-31'", "DATE '2000-01-01' + INTERVAL {n} DAY"),
    "DATETIME": ("'2024-02-29 12:34:56'", "TIMESTAMP '2000-01-01 00:00:00' + INTERVAL {n} SECOND"),
    "DATETIME(6)": ("'1969-12-31 23:59:59.999999'", "TIMESTAMP '2000-01-01 00:00:00.5' + INTERVAL {n} SECOND"),
    "TIMESTAMP": ("'2024-02-29 12:34:56'", "TIMESTAMP '2000-01-01 00:00:00' + INTERVAL {n} SECOND"),
    "TIME(3)": ("'-838:59:59'", "'12:34:56.789'", "SEC_TO_TIME({n})"),
    "YEAR": ("2024", "1901"),
    "ENUM('new','paid','{x}')": ("'new'", "'paid'", "3"),
    "SET('x','y','z')": ("'x,z'", "''", "'y'"),
    "JSON": ("'{\"a\": {n}}'", "'[1, 1.0, null]'", "'null'"),
    "BIT(9)": ("b'101010101'", "0"),
}  # fmt: skip
_DEFAULTS: Final[Mapping[str, tuple[str, ...]]] = {
    "INT": ("5", "(1 + 1)", "'9'"),
    "BIGINT": ("5",),
    "BIGINT UNSIGNED": ("18446744073709551615",),
    "SMALLINT": ("7",),
    "TINYINT(1)": ("1", "TRUE"),
    "DECIMAL(12,2)": ("1.5", "(1.50 * 2)"),
    "DECIMAL(20,2)": ("7",),
    "DECIMAL(50,5)": ("1",),
    "FLOAT": ("0.1", "1"),
    "DOUBLE": ("0.1", "1e10"),
    "VARCHAR(20)": ("'dflt'", "''", "('pending')", "5", "'it''s'"),
    "VARCHAR(60)": ("'é😀'", "(UPPER('q'))"),
    "CHAR(8)": ("'d'", "TRUE"),
    "TEXT": ("('long')",),
    "VARBINARY(16)": ("''", "'ab'", "x'00'"),
    "BINARY(4)": ("''", "'ab'"),
    "DATE": ("'2020-01-02'", "'200102'", "'0000-00-00'"),
    "DATETIME": ("'2020-01-02 03:04:05'", "CURRENT_TIMESTAMP", "'0000-00-00'"),
    "DATETIME(6)": ("'2020-01-02 03:04:05.5'",),
    "TIMESTAMP": ("CURRENT_TIMESTAMP", "'2020-01-02 03:04:05'", "'0000-00-00'"),
    "TIME(3)": ("'01:02:03.5'", "0"),
    "YEAR": ("2020", "'0'"),
    "ENUM('new','paid','{x}')": ("'NEW'", "'paid'"),
    "SET('x','y','z')": ("'y,x'",),
    "JSON": ("(JSON_OBJECT())",),
    "BIT(9)": ("b'11'",),
}
_WIDER: Final[Mapping[str, str]] = {
    "INT": "BIGINT",
    "SMALLINT": "INT",
    "BIGINT": "INT",
    "FLOAT": "DOUBLE",
    "DECIMAL(12,2)": "DECIMAL(20,2)",
    "VARCHAR(20)": "VARCHAR(60)",
    "VARCHAR(60)": "TEXT",
    "CHAR(8)": "VARCHAR(20)",
    "DATETIME": "DATETIME(6)",
    "DATETIME(6)": "DATETIME",
}
"""Like types, most of which hold what is there."""

State = Mapping[TableId, ServerTable]


def sinks_of(chosen: random.Random, warehouses: Sequence[str]) -> tuple[str, ...]:
    """The sinks of a program's tenants, each a ``SinkSettings``: a mirror, a history and a log in one warehouse."""
    warehouse = chosen.choice(warehouses)
    deletes = chosen.choice((Deletes.HARD, Deletes.HARD, Deletes.SOFT))
    images = chosen.choice((Images.AFTER, Images.AFTER, Images.BEFORE_AND_AFTER))
    sinks = (
        SinkSettings(warehouse=warehouse, mode=SinkMode.MIRROR, deletes=deletes),
        SinkSettings(warehouse=warehouse, mode=SinkMode.HISTORY),
        SinkSettings(warehouse=warehouse, mode=SinkMode.APPEND, images=images),
    )
    return tuple(msgspec.json.encode(sink).decode() for sink in sinks)


class SinkStatements:
    """The steps of one program, drawn from ``state`` as it is then."""

    def __init__(self, chosen: random.Random, state: Callable[[], State]) -> None:
        self._random = chosen
        self._state = state
        self._number = 100

    def steps(self, count: int) -> Iterator[Step]:
        """About so many; at their end each table has a row of its newest version, and all is taken."""
        yield Step("a", "SET SESSION sql_mode = '', time_zone = '+00:00'")
        for name in TABLES:
            yield Step("a", self._create(name))
            yield Step("a", self._insert(self._table(name), self._one(1, 3)))
        for _ in range(count):
            roll = self._random.random()
            if roll < 0.42:
                yield Step("a", self._alter())
            elif roll < 0.5:
                yield from self._transaction()
            elif roll < 0.82:
                yield Step("a", self._rows(self._any()))
            else:
                yield Step(SINK, self._one("1", "2", "3", "5", "8", "13", "all", "2 twice", "all twice"))
        yield Step(SINK, "all")
        for table in self._ours():
            yield Step("a", self._insert(table, 1))
        yield Step(SINK, "all")

    # --- drawing -----------------------------------------------------------------------------------------------------------

    def _one(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _often(self, share: float) -> bool:
        return self._random.random() < share

    def _ours(self) -> list[TableId]:
        return [table for table in self._state() if table.database == DATABASES[0] and table.table in TABLES]

    def _any(self) -> TableId:
        return self._one(*self._ours())

    def _table(self, name: str) -> TableId:
        return TableId(database=DATABASES[0], table=name)

    def _columns(self, table: TableId) -> list[ServerColumn]:
        """All but those of the key."""
        found = self._state()[table]
        return [column for column in found.columns if column.name not in found.primary_key]

    # --- DDL ---------------------------------------------------------------------------------------------------------------

    def _create(self, name: str) -> str:
        key = self._one("id INT NOT NULL, {0}PRIMARY KEY (id)", "id BIGINT NOT NULL, {0}PRIMARY KEY (id)",
                        "id INT NOT NULL, k VARCHAR(9) NOT NULL DEFAULT 'k', {0}PRIMARY KEY (id, k)",
                        "k VARCHAR(9) NOT NULL DEFAULT 'k', id INT NOT NULL, {0}PRIMARY KEY (k, id)")  # fmt: skip
        names = self._random.sample(("a", "b", "c", "d"), self._one(1, 2, 3))
        columns = "".join(f"`{each}` {self._definition()}, " for each in names)
        return f"CREATE TABLE {name} ({key.format(columns)})"

    def _definition(self, type_sql: str | None = None) -> str:
        chosen = type_sql or self._one(*_TYPES)
        words = [chosen.replace("{x}", f"m{self._next()}"), self._one("", "NULL", "NOT NULL")]
        if self._often(0.5):
            words.append(f"DEFAULT {self._one(*_DEFAULTS[chosen])}")
        return " ".join(words)

    def _alter(self) -> str:
        table = self._any()
        clauses = [self._clause(table) for _ in range(self._one(1, 1, 1, 2, 2, 3))]
        return f"ALTER TABLE {table.table} {', '.join(clauses)}"

    def _clause(self, table: TableId) -> str:
        columns = self._columns(table)
        new = f"`{self._one(*_NAMES)}`"
        place = self._one("", "", "", " FIRST", " AFTER id")
        if not columns or self._often(0.3):
            return f"ADD COLUMN {new} {self._definition()}{place}"
        column = self._one(*columns)
        old = f"`{column.name}`"
        type_sql = _named(column.source_type)
        kept = self._definition(type_sql) if type_sql else f"{column.source_type} NULL"
        like = _WIDER.get(type_sql or "", type_sql)
        key = self._one(*self._state()[table].primary_key)
        key_type = "VARCHAR(9)" if key.lower() == "k" else self._one("INT", "BIGINT", "BIGINT")
        other = f"`{self._one(*columns).name}`"
        clause: str = self._one(
            f"DROP COLUMN {old}",
            f"DROP COLUMN {old}",
            f"DROP COLUMN {old}, ADD COLUMN {old} {self._definition()}",
            f"DROP COLUMN {old}, ADD COLUMN {old} {kept}",
            f"DROP COLUMN {old}, CHANGE {other} {old} {self._definition()}",
            f"MODIFY {old} {self._definition()}{place}",
            f"MODIFY {old} {kept}{place}",
            f"MODIFY {old} {self._definition(like)}",
            f"CHANGE {old} {new} {self._definition()}",
            f"CHANGE {old} {new} {kept}",
            f"CHANGE {old} `{column.name.swapcase()}` {self._definition(like)}",
            f"CHANGE {old} {new} {kept}, ADD COLUMN {old} {self._definition()}",
            f"RENAME COLUMN {old} TO {new}",
            f"RENAME COLUMN {old} TO `{column.name.swapcase()}`",
            f"RENAME COLUMN {old} TO {other}, RENAME COLUMN {other} TO {old}",
            f"ALTER COLUMN {old} DROP DEFAULT",
            f"ALTER COLUMN {old} SET DEFAULT {self._one(*_DEFAULTS[type_sql or 'INT'])}",
            f"ALTER COLUMN {old} SET INVISIBLE",
            f"CHANGE `{key}` `{key.swapcase()}` {key_type} NOT NULL",
            f"RENAME COLUMN `{key}` TO `{key.swapcase()}`",
        )
        return clause

    # --- rows --------------------------------------------------------------------------------------------------------------

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _value(self, column: ServerColumn) -> str:
        if column.is_optional and self._often(0.15):
            return "NULL"
        if self._often(0.08):
            return "DEFAULT"
        values = _TYPES.get(_named(column.source_type) or "INT", _TYPES["INT"])
        chosen = values[0] if self._often(0.6) else self._one(*values)
        return chosen.replace("{n}", str(self._next()))

    def _rows(self, table: TableId) -> str:
        name, where = table.table, f"WHERE id = {self._key()}"
        roll = self._random.random()
        columns = self._columns(table)
        if roll < 0.4 or not columns:
            return self._insert(table, self._one(1, 1, 2, 3))
        if roll < 0.75:
            sets = ", ".join(
                f"`{column.name}` = {self._value(column)}"
                for column in self._random.sample(columns, self._one(*range(1, len(columns) + 1)))
            )
            return f"UPDATE {name} SET {sets} {self._one(where, where, '')}"
        if roll < 0.85:
            return f"DELETE FROM {name} {where}"
        if roll < 0.93:
            return f"UPDATE IGNORE {name} SET id = {self._key()} {where}"
        if roll < 0.97:
            return f"DELETE FROM {name}"
        return f"TRUNCATE TABLE {name}"

    def _key(self) -> int:
        return self._random.randrange(6)

    def _insert(self, table: TableId, count: int) -> str:
        columns = self._columns(table)
        key = [name for name in self._state()[table].primary_key if name.lower() == "id"]
        names = ", ".join(f"`{name}`" for name in (*key, *(column.name for column in columns)))
        rows = ", ".join(
            "(" + ", ".join((str(self._key()), *(self._value(column) for column in columns))) + ")"
            for _ in range(count)
        )
        return f"{self._one('REPLACE', 'REPLACE', 'INSERT IGNORE')} INTO {table.table} ({names}) VALUES {rows}"

    def _transaction(self) -> Iterator[Step]:
        yield Step("a", "BEGIN")
        for _ in range(self._one(2, 3, 5)):
            yield Step("a", self._rows(self._any()).replace("TRUNCATE TABLE", "DELETE FROM"))
        yield Step("a", self._one("COMMIT", "COMMIT", "COMMIT", "ROLLBACK"))


def _named(source_type: str) -> str | None:
    """The type as this module has it."""
    lowered = source_type.lower()
    if lowered.startswith("enum"):
        return "ENUM('new','paid','{x}')"
    return next((name for name in _TYPES if name.lower() == lowered), None)
