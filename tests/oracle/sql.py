"""SELECT statements of Oracle's SQL, carried out by DuckDB.

A statement is translated, not recognised by its text: sqlglot reads it as Oracle's, and DuckDB evaluates it over the rows that
a catalogue has of each table. So the queries of any client are answered by an engine that was not written for them.

Limits: two columns of a table may not differ in case alone; a NUMBER without a scale (-127) has ten digits after the point;
``NULL || 'a'`` is NULL.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple, Protocol

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError

from tests.oracle.answers import Column, OracleError, OracleType, Rows, Value


class Table(NamedTuple):
    """A table or view, as it was at some SCN."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    row_ids: Sequence[str] = ()
    """ROWID of each row; empty where the table has none."""


class Catalogue(Protocol):
    """The tables that a session sees."""

    def table(self, owner: str | None, name: str, scn: int | None) -> Table:
        """``scn``: as of then; None is now.

        Raises:
            OracleError: there is no such table (942), or its undo is gone (1555, 8181).
        """
        ...


DUAL: Final = Table([Column("DUMMY", size=1)], [("X",)])
_ROW_ID: Final = "$ROWID"
"""DuckDB has a column ROWID of its own."""
_DUCKDB_TYPES: Final = {
    OracleType.VARCHAR2: "VARCHAR",
    OracleType.CHAR: "VARCHAR",
    OracleType.LONG: "VARCHAR",
    OracleType.CLOB: "VARCHAR",
    OracleType.ROWID: "VARCHAR",
    OracleType.DATE: "TIMESTAMP_S",
    OracleType.TIMESTAMP: "TIMESTAMP",
    OracleType.TIMESTAMP_TZ: "TIMESTAMPTZ",
    OracleType.RAW: "BLOB",
    OracleType.BLOB: "BLOB",
    OracleType.BINARY_FLOAT: "FLOAT",
    OracleType.BINARY_DOUBLE: "DOUBLE",
    OracleType.INTERVAL_DS: "INTERVAL",
}
_ORACLE_TYPES: Final = {
    "VARCHAR": Column("", OracleType.VARCHAR2, 4_000),
    "BLOB": Column("", OracleType.RAW, 2_000),
    "TIMESTAMP_S": Column("", OracleType.DATE, 7),
    "TIMESTAMP": Column("", OracleType.TIMESTAMP, 11, scale=6),
    "TIMESTAMP WITH TIME ZONE": Column("", OracleType.TIMESTAMP_TZ, 13, scale=6),
    "FLOAT": Column("", OracleType.BINARY_FLOAT, 4),
    "DOUBLE": Column("", OracleType.BINARY_DOUBLE, 8),
    "INTERVAL": Column("", OracleType.INTERVAL_DS, 11, scale=6),
}
_NUMBER: Final = Column("", OracleType.NUMBER, 22)
_DIGITS_WITHOUT_SCALE: Final = 10
_NUMBERED_BIND: Final = re.compile(r"('(?:[^']|'')*')|:(\d+)")


def select(statement: str, binds: Sequence[Value], catalogue: Catalogue) -> Rows:
    """The rows of a query.

    Raises:
        OracleError: the statement cannot be read (900), names no table (942) or no column (904), or a table's undo is gone.
    """
    query = _parsed(statement)
    values = _named(query, binds)
    tables = {number: _table(table, values, catalogue) for number, table in enumerate(query.find_all(exp.Table))}
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        for number, table in enumerate(list(query.find_all(exp.Table))):
            _load(engine, f"t{number}", tables[number])
            alias = table.alias or table.name
            table.replace(exp.to_table(f"t{number}", alias=exp.to_identifier(alias, quoted=True)))
        for star in query.find_all(exp.Star):
            if isinstance(star.parent, exp.Count):
                continue
            star.set("except_", [exp.to_identifier(_ROW_ID, quoted=True)] if _has_row_ids(tables.values()) else None)
        try:
            found = engine.execute(query.sql(dialect="duckdb"), _used(query, values))
        except duckdb.BinderException as error:
            raise OracleError(904, f"invalid identifier: {error}") from error
        columns = list(_described(query, [(name, str(kind)) for name, kind, *_ in found.description or ()], tables))
        return Rows(columns, [_as_oracle(row, columns) for row in found.fetchall()])


def _parsed(statement: str) -> exp.Query:
    """The statement as a tree, its names as Oracle reads them: without quotes they are in capitals."""
    text = _NUMBERED_BIND.sub(lambda found: found[1] or f":b{found[2]}", statement)
    try:
        query = sqlglot.parse_one(text, read="oracle")
    except ParseError as error:
        raise OracleError(900, f"invalid SQL statement: {error}") from error
    if not isinstance(query, exp.Query):
        raise OracleError(900, "invalid SQL statement: no query")

    def in_oracle(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Literal) and node.is_string and not node.this:
            return exp.Null()
        if isinstance(node, (exp.Column, exp.Pseudocolumn)) and node.name.upper() == "ROWID":
            return exp.column(exp.to_identifier(_ROW_ID, quoted=True), table=node.args.get("table"))
        if isinstance(node, exp.Identifier) and not node.quoted:
            return exp.to_identifier(node.this.upper(), quoted=True)
        return node

    return query.transform(in_oracle)


def _named(query: exp.Query, binds: Sequence[Value]) -> dict[str, Value]:
    """Bind values by the names of their places, in the order in which the names come first, as Oracle binds by position."""
    names = list(dict.fromkeys(found.name for found in query.find_all(exp.Placeholder, bfs=False)))
    if len(names) != len(binds):
        raise OracleError(1008, "not all variables bound")
    return dict(zip(sorted(names, key=_place), binds, strict=True))


def _place(name: str) -> tuple[int, str]:
    """Numbers in their order."""
    return (int(name[1:]), "") if name[:1] == "b" and name[1:].isdigit() else (0, name)


def _used(query: exp.Query, values: Mapping[str, Value]) -> dict[str, Value]:
    """Those that are left once ``AS OF SCN :scn`` is taken out."""
    return {found.name: values[found.name] for found in query.find_all(exp.Placeholder)}


def _table(table: exp.Table, values: Mapping[str, Value], catalogue: Catalogue) -> Table:
    version = table.args.get("version")
    scn = None
    if version is not None:
        of = version.expression
        found = values[of.name] if isinstance(of, exp.Placeholder) else of.this
        assert isinstance(found, (str, int, Decimal))
        scn = int(found)
    if table.name == "DUAL":
        return DUAL
    return catalogue.table(table.db or None, table.name, scn)


def _load(engine: duckdb.DuckDBPyConnection, name: str, table: Table) -> None:
    columns = [(column.name, _duckdb_type(column)) for column in table.columns]
    rows: Sequence[Sequence[Value]] = table.rows
    if table.row_ids:
        columns.append((_ROW_ID, "VARCHAR"))
        rows = [(*row, row_id) for row, row_id in zip(rows, table.row_ids, strict=True)]
    fields = ", ".join(f'"{column}" {kind}' for column, kind in columns)
    engine.execute(f"CREATE TABLE {name} ({fields})")
    if rows:
        engine.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)


def _duckdb_type(column: Column) -> str:
    if column.type is OracleType.NUMBER:
        return f"DECIMAL(38, {column.scale if column.scale >= 0 else _DIGITS_WITHOUT_SCALE})"
    return _DUCKDB_TYPES[column.type]


def _has_row_ids(tables: Iterable[Table]) -> bool:
    return any(table.row_ids for table in tables)


def _described(query: exp.Query, results: Sequence[tuple[str, str]], tables: Mapping[int, Table]) -> Iterator[Column]:
    """Each column of the result: as its table has it where it is a table's column as it stands, else by DuckDB's type."""
    by_name = {column.name: column for table in tables.values() for column in table.columns}
    by_name[_ROW_ID] = Column("ROWID", OracleType.VARCHAR2, 18)
    left = iter(results)
    stars = sum(each.is_star for each in query.selects)
    a_star = (len(results) - len(query.selects) + stars) // stars if stars else 0
    for each in query.selects:
        if each.is_star:
            yield from (by_name.get(name) or _by_type(name, kind) for name, kind in itertools.islice(left, a_star))
            continue
        _, kind = next(left)
        inner = each.unalias()
        known = by_name.get(inner.name) if isinstance(inner, exp.Column) else None
        plain = inner.name if isinstance(inner, exp.Column) else inner.sql(dialect="oracle").upper()
        name = each.alias or ("ROWID" if plain == _ROW_ID else plain)
        yield _by_type(name, kind) if known is None else dataclasses.replace(known, name=name)


def _by_type(name: str, kind: str) -> Column:
    return dataclasses.replace(_ORACLE_TYPES.get(kind, _NUMBER), name=name)


def _as_oracle(row: Sequence[Any], columns: Sequence[Column]) -> tuple[Value, ...]:
    return tuple(_cell(value, column) for value, column in zip(row, columns, strict=True))


def _cell(value: Any, column: Column) -> Value:
    if isinstance(value, bool):
        return int(value)
    if column.type is OracleType.NUMBER and isinstance(value, float):
        return Decimal(repr(value))
    assert value is None or isinstance(value, (Decimal, int, float, str, bytes, datetime, timedelta)), value
    return value
