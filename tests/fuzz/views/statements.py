"""Random tables, rows and changes for tenants' views, and the tenants. A seed decides all before the first statement."""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tests.fuzz.source.program import DATABASES, Program, Step
from tests.fuzz.source.statements import TYPES, random_modes
from tests.fuzz.views.conditions import BYTES, CLOCK, MOMENT, NUMBER, OTHER, TEXT, Typed
from tests.fuzz.views.views import draw_view

TABLE: Final = "v"
STATEMENTS: Final = 25
TENANTS: Final = 8
_NAMES: Final = ("a", "b", "C d", "key", "é", "n1", "1d", "Aa", "select", "x.y", "p", 'q"r')
_SORTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("tinyint", "bool", "smallint", "mediumint", "int", "integer", "bigint", "int8", "int1", "decimal", "dec",
                     "numeric", "fixed", "float", "double", "real", "bit", "year"), NUMBER),
    **dict.fromkeys(("char", "varchar", "nchar", "national", "tinytext", "text", "mediumtext", "longtext", "long", "enum",
                     "set"), TEXT),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), BYTES),
    **dict.fromkeys(("date", "datetime", "timestamp"), MOMENT),
    "time": CLOCK,
}  # fmt: skip
_DATES: Final = ("'2024-02-29'", "'9999-12-31'", "'1000-01-01'", "20200102", "'1969-12-31'", "'2024-03-01'", "NULL")
_DATETIMES: Final = ("'2024-02-29 23:59:59.999999'", "'2001-09-09 01:46:40'", "'1969-12-31 23:59:59.5'", "20200102030405",
                     "'2024-02-29'", "NULL")  # fmt: skip
_TIMESTAMPS: Final = ("'2024-02-29 23:59:59.999999'", "'2001-09-09 01:46:40'", "'2038-01-19 03:14:07'", "'1970-01-01 00:00:01'",
                      "'2024-06-01 12:00:00+05:30'", "NULL")  # fmt: skip
_WITHOUT_CHARSET: Final = ("binary", "byte", "ascii", "unicode", "nchar", "national")


def sort_of(type_sql: str) -> str:
    """Which values it has."""
    if type_sql.endswith("byte"):
        return BYTES
    return _SORTS.get(type_sql.split("(")[0].split(" ")[0], OTHER)


def program_of_seed(seed: int) -> Program:
    """Statements and tenants."""
    drawer = _Drawer(seed)
    steps = tuple(drawer.steps())
    return Program(steps, random_modes(seed), tenants=drawer.tenants, key=drawer.key)


class _Drawer:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = self._random.sample(_NAMES, len(_NAMES))
        self._columns = [
            Typed("id", "int", NUMBER, False),
            *(self._column() for _ in range(self._random.choice((2, 3, 4, 6)))),
        ]
        numbers = [each.name for each in self._columns[1:] if each.sort in (NUMBER, TEXT) and not each.is_optional]
        self.key = self._random.choice(numbers) if numbers and self._random.random() < 0.15 else ""
        qualified = f"{DATABASES[0]}.{TABLE}"
        views = [draw_view(self._random, qualified, self._columns, (self.key or "id",)) for _ in range(TENANTS)]
        self.tenants = tuple(msgspec.json.encode(view).decode() for view in views)

    def _one(self, *choices: str) -> str:
        return self._random.choice(choices)

    def _column(self) -> Typed:
        type_sql = self._one(*TYPES)
        return Typed(self._names.pop(), type_sql, sort_of(type_sql), self._random.random() < 0.7)

    def _definition(self, column: Typed) -> str:
        has_charset = column.sort == TEXT and not any(word in column.type_sql for word in _WITHOUT_CHARSET)
        charset = (
            self._one("", "", "CHARACTER SET latin1", "CHARACTER SET ucs2", "COLLATE utf8mb4_bin")
            if has_charset
            else ""
        )
        return f"{_quoted(column.name)} {column.type_sql} {charset} {'NULL' if column.is_optional else 'NOT NULL'}"

    def steps(self) -> Iterator[Step]:
        definitions = ", ".join(self._definition(column) for column in self._columns)
        yield Step("a", "SET SESSION sql_mode = ''")
        yield Step("a", f"CREATE TABLE {TABLE} ({definitions}, PRIMARY KEY (id))")
        for _ in range(STATEMENTS):
            roll = self._random.random()
            if roll < 0.03:
                yield Step("a", self._altered())
            elif roll < 0.1:
                yield Step("a", "BEGIN")
                for _ in range(self._random.choice((2, 3))):
                    yield Step("a", self._changed())
                yield Step("a", self._one("COMMIT", "COMMIT", "ROLLBACK"))
            else:
                yield Step("a", self._changed())

    def _altered(self) -> str:
        others = [each for each in self._columns[1:] if each.name != self.key]
        chosen = self._random.choice(others)
        match self._one("rename", "rename", "add", "drop"):
            case "rename" if self._names:
                name = self._names.pop()
                self._columns[self._columns.index(chosen)] = Typed(
                    name, chosen.type_sql, chosen.sort, chosen.is_optional
                )
                return f"ALTER TABLE {TABLE} RENAME COLUMN {_quoted(chosen.name)} TO {_quoted(name)}"
            case "drop" if len(others) > 1:
                self._columns.remove(chosen)
                return f"ALTER TABLE {TABLE} DROP COLUMN {_quoted(chosen.name)}"
            case _:
                added = Typed(f"late{len(self._columns)}", "int", NUMBER, True)
                if any(each.name == added.name for each in self._columns):
                    return f"ALTER TABLE {TABLE} COMMENT 'x'"
                self._columns.append(added)
                return f"ALTER TABLE {TABLE} ADD COLUMN {added.name} INT"

    def _changed(self) -> str:
        roll = self._random.random()
        number = self._random.choice((1, 2, 3, 4, 5, 6, 7, 8))
        if roll < 0.4:
            verb = self._one("INSERT IGNORE", "INSERT", "REPLACE", "INSERT IGNORE")
            columns = [each for each in self._columns if not each.is_optional or self._random.random() < 0.9]
            numbers = self._random.sample(range(1, 9), self._random.choice((1, 1, 2, 4)))
            rows = ", ".join(
                f"({', '.join(str(n) if each.name == 'id' else self._value(each) for each in columns)})"
                for n in numbers
            )
            update = ""
            if verb == "INSERT":
                update = f" ON DUPLICATE KEY UPDATE {self._set(columns[-1])}"
            return f"{verb} INTO {TABLE} ({', '.join(_quoted(each.name) for each in columns)}) VALUES {rows}{update}"
        if roll < 0.82:
            chosen = self._random.sample(
                self._columns[1:], min(len(self._columns) - 1, self._random.choice((1, 1, 2, 3)))
            )
            sets = ", ".join(self._set(each) for each in chosen)
            if self._random.random() < 0.1:
                sets = f"id = id + {self._one('8', '-8', '1')}"
            return f"UPDATE IGNORE {TABLE} SET {sets} {self._where(number)}"
        if roll < 0.97:
            return f"DELETE FROM {TABLE} {self._where(number)}"
        return f"TRUNCATE TABLE {TABLE}"

    def _where(self, number: int) -> str:
        return self._one(
            f"WHERE id = {number}", f"WHERE id <= {number}", f"WHERE id >= {number}", "", "ORDER BY id DESC LIMIT 2"
        )

    def _set(self, column: Typed) -> str:
        return f"{_quoted(column.name)} = {self._value(column) if column.name != 'id' else 'id'}"

    def _value(self, column: Typed) -> str:
        values: Sequence[str] = TYPES[column.type_sql]
        if column.sort == MOMENT:
            values = (
                _DATES if column.type_sql == "date" else _DATETIMES if "datetime" in column.type_sql else _TIMESTAMPS
            )
        if not column.is_optional:
            values = [value for value in values if value != "NULL"]
        return self._one(*values)


def _quoted(name: str) -> str:
    return f"`{name}`"
