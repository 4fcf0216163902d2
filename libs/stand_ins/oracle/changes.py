"""INSERT, UPDATE and DELETE: the rows and values are found by a query, then changed in the session's transaction.

Limits: no RETURNING, no MERGE, no subquery as a SET clause of several columns.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from functools import lru_cache
from typing import Protocol

from sqlglot import exp

from libs.stand_ins.oracle import sql
from libs.stand_ins.oracle.answers import Column, OracleError, OracleType, Rows, Value
from libs.stand_ins.oracle.model import Model, Transaction
from libs.stand_ins.oracle.sql import Queries
from libs.stand_ins.oracle.tables import ModelTable

_PLAIN = 127


class Changer(Protocol):
    """The session that changes."""

    model: Model

    @property
    def transaction(self) -> Transaction:
        """The open one, or a new one."""
        ...

    def named(self, owner: str | None, name: str) -> ModelTable:
        """A table, or ``OracleError``."""
        ...


def change(statement: str, binds: Sequence[Value], session: Changer, queries: Queries) -> int:
    """Carry a statement out; how many rows it changed.

    Raises:
        OracleError: as the server's. Its earlier changes are taken back.
    """
    tree = _parsed(statement)
    if tree.args.get("returning") is not None:
        raise OracleError(900, "invalid SQL statement: RETURNING")
    values = sql.named_binds(statement, binds)
    begin = session.transaction.savepoint()
    try:
        with session.model.lock:
            match tree:
                case exp.Insert():
                    return _insert(tree, values, session, queries)
                case exp.Update():
                    return _update(tree, values, session, queries)
                case exp.Delete():
                    return _delete(tree, values, session, queries)
    except OracleError:
        session.transaction.roll_back_to(begin)
        raise
    raise OracleError(900, "invalid SQL statement")


@lru_cache(maxsize=256)
def _parsed(statement: str) -> exp.Expr:
    return sql.parsed(statement.rstrip("; \n"))


def _insert(tree: exp.Insert, values: Mapping[str, Value], session: Changer, queries: Queries) -> int:
    place = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    table = session.named(place.db or None, place.name)
    visible = [column.name for column in table.named.columns if not column.is_hidden and not column.is_virtual]
    names = [each.name for each in tree.this.expressions] if isinstance(tree.this, exp.Schema) else visible
    columns = [_column(table, name) for name in names]
    if isinstance(tree.expression, exp.Values):
        rows = [_evaluated(each.expressions, values, queries) for each in tree.expression.expressions]
    else:
        query = tree.expression.copy()
        rows = [tuple(row) for row in queries.carry_out(query, _used(query, values)).rows]
    for row in rows:
        if len(row) != len(columns):
            raise OracleError(947, "not enough values")
        given = {column.name: _fitted(column, value) for column, value in zip(columns, row, strict=True)}
        session.transaction.insert(table, _whole(table, given))
    return len(rows)


def _whole(table: ModelTable, given: Mapping[str, Value]) -> dict[str, Value]:
    """With defaults that are literals."""
    row: dict[str, Value] = {}
    for column in table.named.columns:
        if column.name in given:
            row[column.name] = given[column.name]
        elif column.default is not None and not column.is_virtual:
            row[column.name] = default_of(column)
        else:
            row[column.name] = None
        if row[column.name] is None and not column.is_nullable:
            raise OracleError(
                1400, f'cannot insert NULL into ("{table.named.owner}"."{table.named.name}"."{column.name}")'
            )
    return row


def default_of(column: Column) -> Value:
    """The value of a DEFAULT that is a literal; else NULL."""
    text = (column.default or "").strip()
    if text.startswith("'") and text.endswith("'"):
        return _fitted(column, text[1:-1].replace("''", "'"))
    try:
        return _fitted(column, Decimal(text))
    except InvalidOperation:
        return None


def _update(tree: exp.Update, values: Mapping[str, Value], session: Changer, queries: Queries) -> int:
    table = session.named(tree.this.db or None, tree.this.name)
    columns = [_column(table, each.this.name) for each in tree.expressions]
    wanted = [each.expression for each in tree.expressions]
    rows = _free_rows(table, tree.this, wanted, tree.args.get("where"), values, session, queries)
    for row_id, *row in rows:
        fitted = {column.name: _fitted(column, value) for column, value in zip(columns, row, strict=True)}
        for column in columns:
            if fitted[column.name] is None and not column.is_nullable:
                raise OracleError(1407, f'cannot update ("{column.name}") to NULL')
        session.transaction.update(table, str(row_id), fitted)
    return len(rows)


def _delete(tree: exp.Delete, values: Mapping[str, Value], session: Changer, queries: Queries) -> int:
    place = tree.this or tree.args["tables"][0]
    table = session.named(place.db or None, place.name)
    rows = _free_rows(table, place, [], tree.args.get("where"), values, session, queries)
    for row_id, *_ in rows:
        session.transaction.delete(table, str(row_id))
    return len(rows)


def _free_rows(
    table: ModelTable,
    place: exp.Table,
    wanted: Sequence[exp.Expr],
    where: exp.Expr | None,
    values: Mapping[str, Value],
    session: Changer,
    queries: Queries,
) -> list[Sequence[Value]]:
    """The rows that a condition finds. Where another transaction has changed one, its end is waited for and they are found
    again."""
    while True:
        only = _found_by_key(table, where, values)
        rows = list(_rows(place, wanted, where, values, queries, only).rows)
        if not session.model.waited(table, [str(row[0]) for row in rows], session.transaction):
            return rows


def _rows(
    place: exp.Table,
    wanted: Sequence[exp.Expr],
    where: exp.Expr | None,
    values: Mapping[str, Value],
    queries: Queries,
    only: Collection[str] | None,
) -> Rows:
    """ROWID and values of the rows that a condition finds, among those of ``only``."""
    constants = [_constant(each, values) for each in wanted]
    asked = [each for each, constant in zip(wanted, constants, strict=True) if constant is None]
    query = exp.select(exp.column(sql.ROW_ID, quoted=True), *(each.copy() for each in asked)).from_(place.copy())
    if where is not None:
        query.set("where", where.copy())
    found = queries.carry_out(query, _used(query, values), only)

    def row_of(row: Sequence[Value]) -> list[Value]:
        left = iter(row[1:])
        return [row[0], *(next(left) if constant is None else constant[0] for constant in constants)]

    return Rows(found.columns, [row_of(row) for row in found.rows])


def _found_by_key(table: ModelTable, where: exp.Expr | None, values: Mapping[str, Value]) -> Collection[str] | None:
    """Where a condition gives each column of the key a value: the rows that ever had it. None: all rows are looked at."""
    given: dict[str, Value] = {}
    for each in (
        where.this.flatten() if where is not None and isinstance(where.this, exp.And) else [where and where.this]
    ):
        if isinstance(each, exp.EQ) and isinstance(each.this, exp.Column):
            constant = _constant(each.expression, values)
            if constant is not None:
                given[each.this.name] = _fitted(_column(table, each.this.name), constant[0])
    if not table.key or not given.keys() >= set(table.key):
        return None
    return table.by_key.get(tuple(given[name] for name in table.key), ())


def _evaluated(wanted: Sequence[exp.Expr], values: Mapping[str, Value], queries: Queries) -> tuple[Value, ...]:
    """Expressions without a table."""
    constants = [_constant(each, values) for each in wanted]
    asked = [each.copy() for each, constant in zip(wanted, constants, strict=True) if constant is None]
    left: list[Value] = []
    if asked:
        query = exp.select(*asked).from_(exp.to_table("DUAL"))
        (row,) = queries.carry_out(query, _used(query, values)).rows
        left = list(row)
    rest = iter(left)
    return tuple(next(rest) if constant is None else constant[0] for constant in constants)


def _constant(node: exp.Expr, values: Mapping[str, Value]) -> tuple[Value] | None:
    """A bind value or literal as it stands, so that no engine makes it coarser; None: it has to be evaluated."""
    if isinstance(node, exp.Placeholder):
        return (values[node.name],)
    if isinstance(node, exp.Literal):
        return (node.name,) if node.is_string else (Decimal(node.name),)
    if isinstance(node, exp.Null):
        return (None,)
    if isinstance(node, exp.Anonymous) and node.name in ("EMPTY_CLOB", "EMPTY_BLOB"):
        return ("",) if node.name == "EMPTY_CLOB" else (b"",)
    return None


def _used(query: exp.Expr, values: Mapping[str, Value]) -> dict[str, Value]:
    return {found.name: values[found.name] for found in query.find_all(exp.Placeholder)}


def _column(table: ModelTable, name: str) -> Column:
    found = next((column for column in table.named.columns if column.name == name), None)
    if found is None:
        raise OracleError(904, f'"{name}": invalid identifier')
    return found


def _fitted(column: Column, value: Value) -> Value:
    """A value as the column stores it.

    Raises:
        OracleError: it has no such form, or is too long.
    """
    if value is None:
        return None
    match column.type:
        case OracleType.NUMBER:
            return _number(column, value)
        case OracleType.BINARY_FLOAT | OracleType.BINARY_DOUBLE:
            return float(str(value))
        case OracleType.VARCHAR2 | OracleType.CHAR | OracleType.LONG:
            return _text(column, value)
        case OracleType.CLOB:
            return "" if value == "" else str(value)
        case OracleType.RAW | OracleType.BLOB:
            return bytes.fromhex(value) if isinstance(value, str) else value
        case OracleType.DATE | OracleType.TIMESTAMP | OracleType.TIMESTAMP_TZ | OracleType.TIMESTAMP_LTZ:
            return _moment(column, value)
    return value


def _number(column: Column, value: Value) -> Decimal:
    try:
        number = Decimal(str(value))
    except InvalidOperation as error:
        raise OracleError(1722, "invalid number") from error
    if column.scale == -_PLAIN:
        return number
    with localcontext(prec=300):
        number = number.quantize(Decimal(1).scaleb(-column.scale), ROUND_HALF_UP)
    if column.precision and abs(number) >= Decimal(10) ** (column.precision - column.scale):
        raise OracleError(1438, "value larger than specified precision allowed for this column")
    return number


def _text(column: Column, value: Value) -> str | None:
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    if column.type is OracleType.CHAR:
        text = text.ljust(column.characters or column.size)
    is_long = len(text) > column.characters if column.characters else len(text.encode()) > column.size
    if is_long:
        raise OracleError(12899, f'value too large for column "{column.name}"')
    return text or None


def _moment(column: Column, value: Value) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise OracleError(1861, "literal does not match format string") from error
    if not isinstance(value, datetime):
        raise OracleError(932, f"inconsistent datatypes: expected {column.type.name}")
    if column.type in (OracleType.TIMESTAMP_TZ, OracleType.TIMESTAMP_LTZ):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    plain = value.replace(tzinfo=None)
    return plain.replace(microsecond=0) if column.type is OracleType.DATE else plain
