"""SELECTs of a table's rows AS OF an SCN: by ROWID, or page by page along its key.

Numbers, moments and intervals come as texts: the driver's objects lack digits, nanoseconds, zones and years before 1.
A place in a key is the texts of its columns, so it can be kept in a checkpoint and taken up again.
(Oracle Database SQL Language Reference, "flashback_query_clause", "ROWID Pseudocolumn", "row_limiting_clause".)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import orjson

from libs.oracle.column_type import parse_column_type
from libs.oracle.ddl_text import quote_identifier, quote_table
from libs.oracle.row_ids import RowIdRange
from libs.types.table import Column, TableSchema

_DATE: Final = "SYYYY-MM-DD HH24:MI:SS"
_FORMATS: Final = {
    "DATE": _DATE,
    "TIMESTAMP": f"{_DATE}.FF9",
    "TIMESTAMP WITH TIME ZONE": f"{_DATE}.FF9 TZR",
    "TIMESTAMP WITH LOCAL TIME ZONE": f"{_DATE}.FF9 TZR",
}
_PRINTED: Final = frozenset({"NUMBER", "FLOAT", "INTERVAL YEAR TO MONTH", "INTERVAL DAY TO SECOND"})
_PLACES: Final = {
    "NUMBER": ":{}",
    "CHAR": ":{}",
    "VARCHAR2": ":{}",
    "NCHAR": ":{}",
    "NVARCHAR2": ":{}",
    "RAW": "HEXTORAW(:{})",
    "DATE": f"TO_DATE(:{{}}, '{_DATE}')",
    "TIMESTAMP": f"TO_TIMESTAMP(:{{}}, '{_DATE}.FF9')",
}
"""By type: SQL of a value whose text is bound. Other types have no order that a text can say."""
MOST_ROW_IDS: Final = 500
"""Of one ``rows_select``."""
_IN_SIZES: Final = (1, 10, 100, MOST_ROW_IDS)
ROW_ID: Final = "ROWID"
"""The key of a table that is read along its storage."""


@dataclass(frozen=True, slots=True)
class Select:
    """A statement and its bind values."""

    sql: str
    binds: dict[str, object]


def selected(column: Column) -> str:
    """SQL of a column's value as the log prints it.

    >>> from libs.oracle.logical import column
    >>> selected(column("AT", "DATE"))
    'TO_CHAR("AT", \\'SYYYY-MM-DD HH24:MI:SS\\')'
    """
    name, oracle_type = quote_identifier(column.name), parse_column_type(column.source_type)
    if oracle_type.name in _FORMATS:
        return f"TO_CHAR({name}, '{_FORMATS[oracle_type.name]}')"
    if oracle_type.name in _PRINTED:
        return f"TO_CHAR({name})"
    if oracle_type.name == "XMLTYPE":
        return f"XMLSERIALIZE(CONTENT {name} AS CLOB)"
    if oracle_type.name == "JSON":
        return f"JSON_SERIALIZE({name} RETURNING CLOB)"
    return name


def can_page_by(schema: TableSchema, key: Sequence[str]) -> bool:
    """Whether rows can be read along these columns."""
    return bool(key) and all(parse_column_type(schema.column(name).source_type).name in _PLACES for name in key)


def range_select(schema: TableSchema, scn: int, part: RowIdRange, condition: str = "") -> Select:
    """The rows of a range of ROWIDs. ``condition``: SQL; empty: all."""
    where = "ROWID BETWEEN CHARTOROWID(:first) AND CHARTOROWID(:last)"
    return Select(_select(schema, scn, where, condition), {"first": part.first, "last": part.last})


def page_select(
    schema: TableSchema, scn: int, key: Sequence[str], behind: bytes, rows: int, condition: str = ""
) -> Select:
    """The next ``rows`` rows along a key, after the place ``behind`` (empty: from the table's beginning).

    ``key``: columns of ``can_page_by``, or ROW_ID alone; the ROWID is then the last column of the result.
    """
    is_by_row_id = tuple(key) == (ROW_ID,)
    where, binds = ("1 = 1", {}) if not behind else _after(schema, key, behind)
    names = ROW_ID if is_by_row_id else ", ".join(map(quote_identifier, key))
    sql = _select(schema, scn, where, condition, ROW_ID if is_by_row_id else "")
    return Select(f"{sql} ORDER BY {names} FETCH FIRST {rows} ROWS ONLY", binds)


def rows_select(schema: TableSchema, scn: int, columns: Sequence[str], row_ids: Sequence[str]) -> Select:
    """ROWID and some columns of some rows. Few texts of statements come of it, so the server seldom parses one.

    >>> from libs.oracle.logical import column
    >>> from libs.types.table import TableId
    >>> schema = TableSchema(table_id=TableId(database="S", table="T"), columns=(column("DOC", "CLOB"),))
    >>> found = rows_select(schema, 7, ["DOC"], ["AAAR3sAAEAAAACXAAA"])
    >>> found.sql
    'SELECT ROWID, "DOC" FROM "S"."T" AS OF SCN :scn WHERE ROWID IN (CHARTOROWID(:r0))'
    """
    places = next(size for size in _IN_SIZES if size >= len(row_ids))
    padded = [*row_ids, *([row_ids[-1]] * (places - len(row_ids)))]
    names = ", ".join(selected(schema.column(name)) for name in columns)
    listed = ", ".join(f"CHARTOROWID(:r{nth})" for nth in range(places))
    table = quote_table(schema.table_id)
    return Select(
        f"SELECT ROWID, {names} FROM {table} AS OF SCN :scn WHERE ROWID IN ({listed})",
        {"scn": scn, **{f"r{nth}": row_id for nth, row_id in enumerate(padded)}},
    )


def place_of(schema: TableSchema, key: Sequence[str], row: Sequence[Any]) -> bytes:
    """Where a row of ``page_select`` stands in the key: its columns' texts, as JSON."""
    if tuple(key) == (ROW_ID,):
        return orjson.dumps([row[-1]])
    by_name = dict(zip((column.name for column in schema.columns), row, strict=True))
    return orjson.dumps([_text(by_name[name]) for name in key])


def _select(schema: TableSchema, scn: int, where: str, condition: str, further: str = "") -> str:
    columns = [*map(selected, schema.columns), *([further] if further else [])]
    also = f" AND ({condition})" if condition.strip() else ""
    return f"SELECT {', '.join(columns)} FROM {quote_table(schema.table_id)} AS OF SCN {scn} WHERE {where}{also}"


def _after(schema: TableSchema, key: Sequence[str], behind: bytes) -> tuple[str, dict[str, object]]:
    """The condition of rows after a place: one column is greater, and those before it are equal."""
    texts = orjson.loads(behind)
    if tuple(key) == (ROW_ID,):
        return "ROWID > CHARTOROWID(:k0)", {"k0": texts[0]}
    names = [quote_identifier(name) for name in key]
    types = [parse_column_type(schema.column(name).source_type).name for name in key]
    values = [_PLACES[each].format(f"k{nth}") for nth, each in enumerate(types)]
    alternatives = [
        " AND ".join([*(f"{names[equal]} = {values[equal]}" for equal in range(nth)), f"{names[nth]} > {values[nth]}"])
        for nth in range(len(names))
    ]
    binds = {f"k{nth}": _bound(each, text) for nth, (each, text) in enumerate(zip(types, texts, strict=True))}
    return f"({' OR '.join(f'({each})' for each in alternatives)})", binds


def _bound(oracle_type: str, text: str) -> object:
    return Decimal(text) if oracle_type == "NUMBER" else text


def _text(value: Any) -> str:
    """Of a key's column, which is never NULL."""
    return value.hex().upper() if isinstance(value, bytes) else str(value)
