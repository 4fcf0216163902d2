"""One text for each value, written as SQL for both ends, so that databases can compare rows without handing them out.

Two values whose texts are equal have the same canonical value (``values``); the other way round not always: MySQL prints 1e15
as ``1e15`` and -1.5e-9 with all its zeros, and DuckDB the other way round; 2024-02-31 is March's second in the warehouse; a
document's names may have been written in another order. Where only texts differ, more rows are read than differ, and those
are then found equal. So an expression here may be a poor one, and must never be one that hides a difference. Types without
one, and why:

    BIT(n), n > 1        little-endian bytes in the warehouse
    DECIMAL as double    the source's document says ``decimal: double``: digits are gone
    FLOAT of Vitess      known in six digits only
    FLOAT(M,D)           held in four bytes at the source and in eight in the warehouse
    times as text        one moment has several
    geometries, VECTOR   of another form
    masks by a key       their keys stay here; hashes of other values than texts, because their spelling is the reader's
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from libs.check.projection import ExpectedColumn
from libs.check.values import BINARY_TYPES, TEXT_TYPES, from_arrow
from libs.clickhouse.names import literal
from libs.mysql.identifiers import quote_identifier
from libs.types.tenant import ColumnMask
from libs.warehouse_readers.warehouse import SqlDialect

WHOLE_NUMBERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_SUM_DIGITS: Final = 15
"""Of a row's SHA-256, in hexadecimal: 60 bits, which fit a BIGINT. That two different rows have the same: 1 in 10**18."""
_SHA_BITS: Final = {"sha256": 256, "sha512": 512}
_EXPONENT: Final = r"e\+?(-?)0*"
"""MySQL prints 1e20 and 1.5e-7, the others 1e+20 and 1.5e-07."""
_SEPARATOR: Final = r'((?:"(?:[^"\\]|\\.)*"|[^",:])*)([,:]|$) ?'
"""The text before a comma or colon that is in no string, or before the end, and that mark. MySQL prints a space after it."""
_WITH_SPACE: Final = literal(r"\1\2 ")
"""In ClickHouse, whose strings have escapes."""


class End(enum.Enum):
    """Where an expression runs."""

    MYSQL = "mysql"
    CLICKHOUSE = SqlDialect.CLICKHOUSE.value
    DUCKDB = SqlDialect.DUCKDB.value
    POSTGRESQL = SqlDialect.POSTGRESQL.value


@dataclass(frozen=True, slots=True)
class ColumnText:
    """A column's text, as SQL at both ends; NULL for NULL."""

    source: str
    warehouse: str
    has_commas: bool = True
    """It may hold any character."""


def column_text(
    column: ExpectedColumn, arrow_type: pa.DataType, sql_name: str, dialect: SqlDialect
) -> ColumnText | None:
    """The texts of a column that the warehouse holds as ``arrow_type`` under ``sql_name``; None: there is none.

    Raises:
        TypeError: the source's values cannot stand in such a column.
    """
    if column.mask is not None:
        return _masked_text(column, column.mask, arrow_type, sql_name)
    from_arrow(column.data_type, arrow_type)
    return _plain_text(column, arrow_type, sql_name, dialect)


def _plain_text(
    column: ExpectedColumn, arrow_type: pa.DataType, sql_name: str, dialect: SqlDialect
) -> ColumnText | None:
    name, held = quote_identifier(column.name), f"CAST({sql_name} AS TEXT)"
    match column.data_type:
        case "bit" if pa.types.is_boolean(arrow_type):
            return _of_number(f"{name} + 0", f"CAST(CAST({sql_name} AS INTEGER) AS TEXT)")
        case data_type if data_type in WHOLE_NUMBERS or data_type == "year":
            if pa.types.is_integer(arrow_type) or (pa.types.is_decimal(arrow_type) and arrow_type.scale == 0):
                return _of_number(f"{name} + 0", held)  # + 0: without the zeros of ZEROFILL
        case "decimal" if not pa.types.is_floating(arrow_type):
            printed = f"CAST({name} AS CHAR)"
            digits = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {printed}))"
            return ColumnText(
                f"CASE WHEN LOCATE('.', {printed}) > 0 THEN {digits} ELSE {printed} END",
                _without_last_zeros(held, dialect),
                # A text is any value.
                has_commas=not pa.types.is_decimal(arrow_type),
            )
        case "double" | "float" if column.data_type == "double" or pa.types.is_float32(arrow_type):
            number = f"CAST({name} AS DOUBLE)" if column.data_type == "float" else f"{name} + 0e0"
            if dialect is SqlDialect.CLICKHOUSE:
                return _of_number(number, _clickhouse_double(f"toFloat64({sql_name})"))
            text = f"CAST(CAST({sql_name} AS FLOAT8) AS TEXT)"
            text = f"regexp_replace(regexp_replace({text}, '{_EXPONENT}', 'e\\1'), '\\.0$', '')"
            return _of_number(number, text)
        case "date" if pa.types.is_date(arrow_type):
            zero = "NULL" if column.is_optional else "'1970-01-01'"
            text = {
                SqlDialect.CLICKHOUSE: f"toString({sql_name})",
                SqlDialect.DUCKDB: f"strftime({sql_name}, '%Y-%m-%d')",
                SqlDialect.POSTGRESQL: f"to_char({sql_name}, 'YYYY-MM-DD')",
            }[dialect]
            return ColumnText(_unless_no_day(name, f"CAST({name} AS CHAR)", zero), text, has_commas=False)
        case "time" if pa.types.is_integer(arrow_type):
            size = f"(ABS(TIME_TO_SEC({name})) * 1000000 + MICROSECOND({name}))"
            return _of_number(f"IF({name} < TIME'00:00:00', -1, 1) * {size}", held)
        case "datetime" | "timestamp" if pa.types.is_timestamp(arrow_type):
            zero = "NULL" if column.is_optional else "'1970-01-01 00:00:00.000000'"
            in_utc = sql_name if arrow_type.tz is None else f"({sql_name} AT TIME ZONE 'UTC')"
            text = {
                SqlDialect.CLICKHOUSE: f"toString({sql_name})",  # of six digits, in UTC
                # Without zones: see ``libs.warehouse_readers.warehouse``.
                SqlDialect.DUCKDB: f"strftime({sql_name}, '%Y-%m-%d %H:%M:%S.%f')",
                SqlDialect.POSTGRESQL: f"to_char({in_utc}, 'YYYY-MM-DD HH24:MI:SS.US')",
            }[dialect]
            printed = f"DATE_FORMAT({name}, '%Y-%m-%d %H:%i:%s.%f')"
            return ColumnText(_unless_no_day(name, printed, zero), text, has_commas=False)
        case "json":
            spaced = f"regexp_replace({held}, '{_SEPARATOR}', '\\1\\2 ', 'g')"
            if dialect is SqlDialect.CLICKHOUSE:
                spaced = f"replaceRegexpAll({held}, {literal(_SEPARATOR)}, {_WITH_SPACE})"
            return ColumnText(f"CAST({name} AS CHAR)", f"rtrim({spaced}, ' ')")
        case data_type if data_type in TEXT_TYPES:
            return ColumnText(_text(name), held)
        case data_type if data_type in BINARY_TYPES and not _is_text(arrow_type):
            text = {
                SqlDialect.CLICKHOUSE: f"hex({sql_name})",
                SqlDialect.DUCKDB: f"hex({sql_name})",
                SqlDialect.POSTGRESQL: f"upper(encode({sql_name}, 'hex'))",
            }[dialect]
            return ColumnText(f"HEX({name})", text)
    return None


def _masked_text(column: ExpectedColumn, mask: ColumnMask, arrow_type: pa.DataType, sql_name: str) -> ColumnText | None:
    """Of masks that MySQL can compute; as ``projection.masked_value`` has them."""
    if not _is_text(arrow_type):
        return None
    held = f"CAST({sql_name} AS TEXT)"
    if mask.set_null:
        return ColumnText("NULL", held)
    if mask.constant is not None:
        return ColumnText(_literal(mask.constant), held)
    if column.data_type not in TEXT_TYPES:
        return None
    text = _text(quote_identifier(column.name))
    if mask.truncate_chars is not None:
        return ColumnText(f"LEFT({text}, {mask.truncate_chars})", held)
    if mask.keep_last is not None:
        length, kept = f"CHAR_LENGTH({text})", mask.keep_last
        shown = f"CONCAT(REPEAT('*', {length} - {kept}), RIGHT({text}, {kept}))"
        return ColumnText(f"IF({length} <= {kept}, REPEAT('*', {length}), {shown})", held)
    if mask.hash is not None and mask.hash.algorithm in _SHA_BITS:
        salted = f"CONCAT({_literal(mask.hash.salt)}, {text})"
        return ColumnText(f"SHA2({salted}, {_SHA_BITS[mask.hash.algorithm]})", held)
    return None


def row_texts(columns: Sequence[ColumnText], dialect: SqlDialect) -> tuple[str, str]:
    """One text for the values of several columns, at the source and in the warehouse: other values, another text."""
    length = {
        SqlDialect.CLICKHOUSE: "length",
        SqlDialect.DUCKDB: "strlen",
        SqlDialect.POSTGRESQL: "octet_length",
    }[dialect]
    source = [
        f"COALESCE(CONCAT(LENGTH({each.source}), ':', {each.source}), '-')"
        if each.has_commas
        else f"COALESCE({each.source}, '-')"
        for each in columns
    ]
    warehouse = [
        f"COALESCE(CAST({length}({each.warehouse}) AS TEXT) || ':' || {each.warehouse}, '-')"
        if each.has_commas
        else f"COALESCE({each.warehouse}, '-')"
        for each in columns
    ]
    return f"CONCAT({', '.join(_between(source, ','))})", _joined(_between(warehouse, ","))


def _joined(parts: Sequence[str]) -> str:
    """One after the other, as a tree that grows with their number's logarithm: databases bound how deep an expression is, and
    one after the other is as deep as a table is wide."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return f"({_joined(parts[:middle])} || {_joined(parts[middle:])})"


def fingerprint(text: str, end: End) -> str:
    """SQL of a number for a text, the same at every end; the sum of many does not overflow."""
    digits = f"LEFT({text_hash(text, end)}, {_SUM_DIGITS})"
    match end:
        case End.MYSQL:
            return f"CAST(CONV({digits}, 16, 10) AS UNSIGNED)"
        case End.CLICKHOUSE:
            # A sum has its summands' type, but for small ones, and wraps at its end.
            return f"toUInt128(reinterpretAsUInt64(reverse(unhex(concat('0', {digits})))))"
        case End.DUCKDB:
            return f"CAST('0x' || {digits} AS BIGINT)"
        case End.POSTGRESQL:
            return f"CAST(CAST('x' || {digits} AS BIT({4 * _SUM_DIGITS})) AS BIGINT)"


def text_hash(text: str, end: End) -> str:
    """SQL of the SHA-256 of a text, in hexadecimal. (MySQL 9.7 has no MD5.)"""
    match end:
        case End.MYSQL:
            return f"SHA2({text}, 256)"
        case End.CLICKHOUSE:
            return f"lower(hex(SHA256({text})))"
        case End.DUCKDB:
            return f"sha256({text})"
        case End.POSTGRESQL:
            return f"encode(sha256(convert_to({text}, 'UTF8')), 'hex')"


def _of_number(source: str, warehouse: str) -> ColumnText:
    return ColumnText(f"CAST({source} AS CHAR)", warehouse, has_commas=False)


def _without_last_zeros(held: str, dialect: SqlDialect) -> str:
    """Of a decimal's digits, as a number's text or a text's."""
    if dialect is SqlDialect.CLICKHOUSE:
        return f"if(position({held}, '.') > 0, rtrim(rtrim({held}, '0'), '.'), {held})"
    return f"CASE WHEN strpos({held}, '.') > 0 THEN rtrim(rtrim({held}, '0'), '.') ELSE {held} END"


def _clickhouse_double(number: str) -> str:
    """ClickHouse prints all digits before the point up to 1e21, MySQL up to 1e15."""
    printed = f"toString(abs({number}))"
    digits = f"rtrim(replaceOne({printed}, '.', ''), '0')"
    places = f"if(position({printed}, '.') > 0, position({printed}, '.') - 1, length({printed}))"
    first = f"if({number} < 0, '-', ''), left({digits}, 1)"
    further = f"if(length({digits}) > 1, concat('.', substring({digits}, 2)), '')"
    long = f"concat({first}, {further}, 'e', toString({places} - 1))"
    return f"if(abs({number}) >= 1e15 AND abs({number}) < 1e21, {long}, toString({number}))"


def _unless_no_day(name: str, printed: str, zero: str) -> str:
    """A date without month or day has the readers' form."""
    return f"IF(MONTH({name}) = 0 OR DAYOFMONTH({name}) = 0, {zero}, {printed})"


def _text(name: str) -> str:
    return f"CONVERT({name} USING utf8mb4)"


def _literal(text: str) -> str:
    return f"_utf8mb4 X'{text.encode().hex()}'"


def _between(parts: Sequence[str], separator: str) -> list[str]:
    return [each for part in parts for each in (f"'{separator}'", part)][1:]


def _is_text(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type))
