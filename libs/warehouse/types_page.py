"""``docs/types.md``: every type of MySQL and Oracle, its form in the events, and the column that each warehouse has for it.

``make docs-types`` writes it from the functions that map types; this module adds only the
look of a form and its losses. ``tests/contract/test_types.py`` takes each type through every
warehouse and holds the last column to that.
"""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from libs.formats.connect_schema import connect_field
from libs.mysql.column_type import parse_column_type
from libs.mysql.logical import column, in_value_modes
from libs.oracle.logical import column as oracle_column
from libs.oracle.logical import in_value_modes as in_oracle_modes
from libs.types.table import Column, TableId, TableSchema
from libs.types.value import LogicalKind
from libs.types.value_modes import OracleValueModes, ValueModes
from libs.warehouse.dialect import DIALECTS, Dialect


@dataclass(frozen=True, slots=True)
class TypeFamily:
    """Types that are treated alike."""

    shown: str
    """As the page calls them."""
    examples: tuple[str, ...]
    """Each a type of a column; all of them map alike."""
    note: str = ""
    is_date: bool = False
    """Some values are no days of the calendar."""


FAMILIES: Final = (
    TypeFamily("BIT(1)", ("bit(1)",)),
    TypeFamily("BIT(n), n > 1", ("bit(9)", "bit(64)"), "the bytes are little-endian"),
    TypeFamily(
        "TINYINT, SMALLINT, TINYINT UNSIGNED",
        ("tinyint", "tinyint(1)", "tinyint unsigned", "smallint"),
        "BOOLEAN is TINYINT(1), a number",
    ),
    TypeFamily(
        "SMALLINT UNSIGNED, MEDIUMINT, INT",
        ("smallint unsigned", "smallint(5) unsigned zerofill", "mediumint", "mediumint unsigned", "int"),
        "ZEROFILL is how a number is shown, not its value",
    ),
    TypeFamily("INT UNSIGNED, BIGINT", ("int unsigned", "bigint")),
    TypeFamily("BIGINT UNSIGNED", ("bigint unsigned",)),
    TypeFamily("DECIMAL(p,s), p ≤ 38", ("decimal(38,10)", "decimal(38,10) unsigned zerofill")),
    TypeFamily(
        "DECIMAL(p,s), p > 38", ("decimal(65,30)",), "all digits; a text where the warehouse's decimals are of 38"
    ),
    TypeFamily("FLOAT", ("float",)),
    TypeFamily("DOUBLE, FLOAT(M,D)", ("double", "float(7,4)", "double(9,3)")),
    TypeFamily("DATE", ("date",), is_date=True),
    TypeFamily("TIME, TIME(1) to (3)", ("time", "time(2)", "time(3)"), "microseconds; below 0 and beyond 24 h too"),
    TypeFamily("TIME(4) to (6)", ("time(4)", "time(6)"), "the same"),
    TypeFamily("DATETIME, DATETIME(1) to (3)", ("datetime", "datetime(3)"), is_date=True),
    TypeFamily("DATETIME(4) to (6)", ("datetime(4)", "datetime(6)"), is_date=True),
    TypeFamily("TIMESTAMP(0) to (6)", ("timestamp", "timestamp(3)", "timestamp(6)"), is_date=True),
    TypeFamily("YEAR", ("year",)),
    TypeFamily(
        "CHAR, VARCHAR, TINYTEXT to LONGTEXT",
        ("char(10)", "varchar(300)", "tinytext", "text", "mediumtext", "longtext"),
        "of every character set; PostgreSQL parks a table whose texts hold U+0000",
    ),
    TypeFamily("ENUM", ("enum('a','b','with,comma')",)),
    TypeFamily("SET", ("set('x','y','z')",)),
    TypeFamily(
        "BINARY, VARBINARY, TINYBLOB to LONGBLOB",
        ("binary(4)", "varbinary(16)", "tinyblob", "blob", "mediumblob", "longblob"),
        "zeros at the end included",
    ),
    TypeFamily(
        "JSON", ("json",), "the document as MySQL prints it, without the space after commas and colons; or VARIANT ²"
    ),
    TypeFamily("POINT", ("point",), "well-known binary, SRID, and x and y"),
    TypeFamily(
        "GEOMETRY, LINESTRING, POLYGON, MULTI…, GEOMCOLLECTION",
        (
            "geometry",
            "linestring",
            "polygon",
            "multipoint",
            "multilinestring",
            "multipolygon",
            "geomcollection",
        ),
        "well-known binary and SRID",
    ),
    TypeFamily("VECTOR", ("vector(3)",), "each number the shortest that is the stored float"),
)

_IN_UTC: Final = "`2024-01-02T03:04:05.678Z`, UTC"
_WITH_OFFSET: Final = "`2024-01-02T03:04:05.678+02:00`"
"""Oracle's moments of a zone keep it."""
_FORMS: Final[Mapping[LogicalKind, str]] = {
    LogicalKind.BOOLEAN: "true, false",
    LogicalKind.INT8: "number",
    LogicalKind.INT16: "number",
    LogicalKind.INT32: "number",
    LogicalKind.INT64: "number",
    LogicalKind.FLOAT32: "number",
    LogicalKind.FLOAT64: "number",
    LogicalKind.STRING: "text",
    LogicalKind.BYTES: "base64",
    LogicalKind.BASE64: "base64",
    LogicalKind.BASE64_URL: "base64 with `-` and `_`",
    LogicalKind.HEX: "hexadecimal digits",
    LogicalKind.DECIMAL: "base64 of the unscaled number",
    LogicalKind.DECIMAL_TEXT: "text with all digits",
    LogicalKind.VARIABLE_SCALE_DECIMAL: "object: scale, value in base64",
    LogicalKind.MICRO_DURATION: "microseconds; a month is 30.4375 days",
    LogicalKind.INTERVAL: "`P1Y2M0DT0H0M0S`",
    LogicalKind.XML: "the document as text",
    LogicalKind.DATE: "days since 1970",
    LogicalKind.CONNECT_DATE: "days since 1970",
    LogicalKind.ISO_DATE: "`2024-01-02Z`",
    LogicalKind.TIME_MS: "milliseconds",
    LogicalKind.MICRO_TIME: "microseconds",
    LogicalKind.TIME_NS: "nanoseconds",
    LogicalKind.CONNECT_TIME: "milliseconds",
    LogicalKind.ISO_TIME: "`03:04:05.678Z`",
    LogicalKind.TIMESTAMP_MS: "milliseconds since 1970",
    LogicalKind.TIMESTAMP_US: "microseconds since 1970",
    LogicalKind.TIMESTAMP_NS: "nanoseconds since 1970",
    LogicalKind.CONNECT_TIMESTAMP: "milliseconds since 1970",
    LogicalKind.ISO_TIMESTAMP: "`2024-01-02T03:04:05.678Z`",
    LogicalKind.ZONED_TIMESTAMP: _IN_UTC,
    LogicalKind.YEAR: "number",
    LogicalKind.JSON: "the document as text",
    LogicalKind.ENUM: "the member",
    LogicalKind.ENUM_SET: "members joined by commas",
    LogicalKind.BITS: "base64",
    LogicalKind.GEOMETRY: "object: wkb, srid",
    LogicalKind.POINT: "object: x, y, wkb, srid",
    LogicalKind.FLOAT_VECTOR: "array of numbers",
}

_DOUBLE_DIGITS: Final = 15

_HEAD: Final = """\
# Types

This page lists every type of MySQL and of Oracle ([below](#sources)), its form in the events, and its column in each warehouse.
For example, a `DECIMAL(10,2)` is base64 in the events by default, and `decimal(10,2)` in Iceberg.
`make docs-types` writes it from `libs/warehouse/types_page.py` and the functions that map types; change it there.

The events depend on the handling mode (`values:` of the source's document); the default of each setting is in bold.
The column is the same in all modes, unless the table says otherwise.
`lossless` is about the value that a query of the column gives, and is tested: each type and its edge values go from a real
MySQL through every mode into every warehouse. Another engine reads them there, and the test compares them with MySQL's text.

| MySQL | mode | in the events | Connect schema | Iceberg | Delta | PostgreSQL | ClickHouse | lossless |
|---|---|---|---|---|---|---|---|---|"""

_NOTES: Final = """
¹ A date without month or day (`0000-00-00`, `2024-00-10`) is NULL, and 1970-01-01 if the column is NOT NULL.
A day after the month's end (`2024-02-31`, with ALLOW_INVALID_DATES) becomes a day of the next month.
This is Debezium's form; no warehouse's date type has such days.

² In Iceberg (format 3) and Delta, a tenant's `sink.json_as_variant` makes a JSON column VARIANT
([JSON as VARIANT](sinks/tables.md#json-as-variant)).
It holds each value, tested like the types above, but not its spelling: names are sorted, 1.50 may be read as 1.5 and 1e2 as
100.0, and -0.0 is 0.
Some values do not fit: a number that is no double and has more than 38 digits, a value of 128 MiB and more.
They are dead letters; nothing is rounded.

## Why not …

* **VARIANT for JSON by default?** It does not hold every document, nor its spelling (²), and few engines but Spark, DuckDB and
  delta-rs read it. Text can be converted where needed: `parse_json(doc)` in Spark, `doc::jsonb` in PostgreSQL.
* **JSON in ClickHouse?** Its type sorts the names and gives each path a column of its own; `JSONExtract` reads the text.
* **TIME as a time of day?** MySQL's TIME ranges from -838 to 838 hours.
* **Geometry types?** Few engines read those of Iceberg v3 or of PostGIS. Each of them can be made from well-known binary.

## Sources

**Tencent DTS** delivers MySQL's types; the table holds for it unchanged.

**Vitess** delivers them with these differences:

* `decimal` and `unsigned_bigint` are `string` by default (the columns are the same).
* A FLOAT is a double in the events and `double` in the tables. A copied row has six digits of it, because Vitess copies MySQL's
  text.
* With `time_precision: isostring` a DATE, TIME and DATETIME are MySQL's text, zero dates included, in columns of text
  (`string`, `string`, `text`, `String`).

**Oracle** has types of its own:

| Oracle | mode | in the events | Connect schema | Iceberg | Delta | PostgreSQL | ClickHouse |
|---|---|---|---|---|---|---|---|"""

_ORACLE_NOTES: Final = """
The forms are held against 379 answers of the value converters of Debezium's connector 3.6.1.
No value of a real Oracle server was taken through a warehouse: the demo takes some of these types through Iceberg, over a
stand-in ([oracle.md](oracle.md)).
Warehouses hold microseconds: the last three digits of a TIMESTAMP(9) are in the events alone.
A date before the year 1 is right in the events; `headwater check` ends with an error at one.
"""


@dataclass(frozen=True, slots=True)
class TypeRow:
    """A family in one mode."""

    family: TypeFamily
    mode: str
    """``setting: value``; empty: it is the same in all."""
    column: Column
    """Of the family's first example."""


def loss(column: Column) -> str | None:
    """The loss of the column's events, dates that are no days aside; None: nothing."""
    mysql_type = parse_column_type(column.source_type)
    match column.logical_type.kind:
        case LogicalKind.FLOAT64 if mysql_type.name == "decimal" and (mysql_type.precision or 0) > _DOUBLE_DIGITS:
            return "digits beyond the 15th"
        case LogicalKind.CONNECT_TIME | LogicalKind.CONNECT_TIMESTAMP if mysql_type.fractional_digits > 3:
            return "microseconds"
        case _:
            return None


def _limit(column: Column) -> str | None:
    """Which values have no form: such a row is not delivered (``failure_handling``)."""
    match column.logical_type.kind:
        case LogicalKind.CONNECT_TIME:
            return "below 0 and from 24 h on the row fails"
        case LogicalKind.TIMESTAMP_NS:
            return "before 1678 and after 2261 the row fails"
        case _:
            return None


def type_rows() -> Iterator[TypeRow]:
    """Every family of MySQL in each mode that it depends on."""
    return _rows(FAMILIES, ValueModes(), example_columns)


def _rows(
    families: Sequence[TypeFamily],
    defaults: ValueModes,
    columns_of: Callable[[TypeFamily, ValueModes], tuple[Column, ...]],
) -> Iterator[TypeRow]:
    for family in families:
        usual = columns_of(family, defaults)[0]
        is_explained = False
        for setting in msgspec.structs.fields(type(defaults)):
            if not (isinstance(setting.type, type) and issubclass(setting.type, enum.Enum)):
                continue
            by_form: dict[Column, list[str]] = {}
            for value in setting.type:
                modes = msgspec.structs.replace(defaults, **{setting.name: value})
                text = f"**{value.value}**" if value is setting.default else value.value
                by_form.setdefault(columns_of(family, modes)[0], []).append(text)
            if len(by_form) > 1:
                is_explained = True
                for changed, values in by_form.items():
                    yield TypeRow(family, f"{setting.name}: {', '.join(values)}", changed)
        if not is_explained:
            yield TypeRow(family, "", usual)


def example_columns(family: TypeFamily, modes: ValueModes) -> tuple[Column, ...]:
    """A column of each example, as a source with these modes has it."""
    columns = tuple(column(f"c{number}", example, charset="utf8mb4") for number, example in enumerate(family.examples))
    table_id = TableId(database="types", table="types")
    return in_value_modes(TableSchema(table_id=table_id, columns=columns), modes).columns


ORACLE_FAMILIES: Final = (
    TypeFamily("NUMBER(p,0), p ≤ 2", ("NUMBER(2,0)",)),
    TypeFamily("NUMBER(p,0), p ≤ 4", ("NUMBER(4,0)",)),
    TypeFamily("NUMBER(p,0), p ≤ 9", ("NUMBER(9,0)",)),
    TypeFamily("NUMBER(p,0), p ≤ 18", ("NUMBER(18,0)",)),
    TypeFamily("NUMBER(p,s)", ("NUMBER(38,10)",)),
    TypeFamily("NUMBER, FLOAT", ("NUMBER", "FLOAT(126)")),
    TypeFamily("BINARY_FLOAT", ("BINARY_FLOAT",)),
    TypeFamily("BINARY_DOUBLE", ("BINARY_DOUBLE",)),
    TypeFamily(
        "CHAR, VARCHAR2, NCHAR, NVARCHAR2, CLOB, NCLOB, LONG, ROWID",
        ("CHAR(4)", "VARCHAR2(40)", "NCHAR(4)", "NVARCHAR2(40)", "CLOB", "NCLOB", "LONG", "ROWID"),
    ),
    TypeFamily("RAW, LONG RAW, BLOB", ("RAW(16)", "LONG RAW", "BLOB")),
    TypeFamily("DATE, TIMESTAMP(0) to (3)", ("DATE", "TIMESTAMP(0)", "TIMESTAMP(3)")),
    TypeFamily("TIMESTAMP(4) to (6)", ("TIMESTAMP(4)", "TIMESTAMP(6)")),
    TypeFamily("TIMESTAMP(7) to (9)", ("TIMESTAMP(7)", "TIMESTAMP(9)")),
    TypeFamily(
        "TIMESTAMP WITH (LOCAL) TIME ZONE", ("TIMESTAMP(6) WITH TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE")
    ),
    TypeFamily("INTERVAL YEAR TO MONTH, DAY TO SECOND", ("INTERVAL YEAR(2) TO MONTH", "INTERVAL DAY(2) TO SECOND(6)")),
    TypeFamily("XMLTYPE", ("XMLTYPE",)),
    TypeFamily("JSON", ("JSON",)),
    TypeFamily("BOOLEAN", ("BOOLEAN",)),
)


def oracle_example_columns(family: TypeFamily, modes: ValueModes) -> tuple[Column, ...]:
    """As ``example_columns``, of an Oracle source."""
    assert isinstance(modes, OracleValueModes)
    columns = tuple(oracle_column(f"c{number}", example) for number, example in enumerate(family.examples))
    table_id = TableId(database="TYPES", table="TYPES")
    return in_oracle_modes(TableSchema(table_id=table_id, columns=columns), modes).columns


def types_document() -> str:
    """The page."""
    of_oracle = _rows(ORACLE_FAMILIES, OracleValueModes(), oracle_example_columns)
    return "\n".join(
        [
            _HEAD,
            *map(_line, type_rows()),
            _NOTES,
            *(f"| {' | '.join(_cells(row))} |".replace(_IN_UTC, _WITH_OFFSET) for row in of_oracle),
            _ORACLE_NOTES,
        ]
    )


def _line(row: TypeRow) -> str:
    return f"| {' | '.join([*_cells(row), _lossless(row)])} |"


def _cells(row: TypeRow) -> list[str]:
    field = connect_field(row.column)
    connect = f"{field['type']}, {field['name']}" if "name" in field else field["type"]
    generic = {"decimal(38,10)": "decimal(p,s)", "numeric(38,10)": "numeric(p,s)", "numeric(65,30)": "numeric(p,s)"}
    generic |= {"Decimal(38,10)": "Decimal(p,s)", "Decimal(65,30)": "Decimal(p,s)"}
    types = [dialect.shown(dialect.type_of(row.column)) for dialect in _in_order()]
    return [
        row.family.shown,
        row.mode,
        _FORMS[row.column.logical_type.kind],
        connect,
        *(generic.get(name, name) for name in types),
    ]


def _lossless(row: TypeRow) -> str:
    lost, limit = loss(row.column), _limit(row.column)
    verdict = "yes" if lost is None else f"**no**: {lost} go"
    remarks = [verdict + ", but ¹" * row.family.is_date, limit or ("" if lost else row.family.note)]
    return "; ".join(filter(None, remarks))


def _in_order() -> Iterator[Dialect]:
    return (DIALECTS[name] for name in ("iceberg", "delta", "postgresql", "clickhouse"))


if __name__ == "__main__":
    import sys

    sys.stdout.write(types_document())
