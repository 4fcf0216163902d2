"""SELECT statements of Oracle's SQL, carried out by DuckDB.

A statement is translated, not recognised by its text: sqlglot reads it as Oracle's, and DuckDB evaluates it over the rows that
a catalogue has of each table. So the queries of any client are answered by an engine that was not written for them.
Where a query reads one table, its plain columns come as the table has them: DuckDB finds the rows alone. So no type of
DuckDB's makes a value coarser.

Limits: two columns of a table may not differ in case alone. In a condition, a NUMBER without a scale has ten digits after the
point. ROWNUM stands only in a condition of its own.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any, Final, NamedTuple, Protocol

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.transforms import eliminate_join_marks

from libs.stand_ins.oracle import functions
from libs.stand_ins.oracle.answers import Column, Months, OracleError, OracleType, RowId, Rows, Value, row_id_of


class Table(NamedTuple):
    """A table or view, as it was at some SCN."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    row_ids: Sequence[str] | None = None
    """ROWID of each row; None where the table has none."""


class Catalogue(Protocol):
    """The tables that a session sees, and the functions that ask the database."""

    def table(self, owner: str | None, name: str, scn: int | None, only: Collection[str] | None = None) -> Table:
        """``scn``: as of then; None is now. ``only``: no rows but these, by ROWID; None: all.

        Raises:
            OracleError: there is no such table (942), or its undo is gone (1555, 8181).
        """
        ...

    def function(self, name: str, arguments: Sequence[Value]) -> Value:
        """A function's value, such as DBMS_METADATA.GET_DDL.

        Raises:
            OracleError: there is no such function (904), or it has no answer.
        """
        ...


DUAL: Final = Table([Column("DUMMY", size=1)], [("X",)])
ROW_ID: Final = "$ROWID"
"""DuckDB has a column ROWID of its own."""
_CLOB: Final = "AS_CLOB"
"""A macro of a text that a driver gets as a CLOB."""
_NTH: Final = "$NTH"
"""The place of a row in its table."""
_ARROW_TYPES: Final = {
    OracleType.VARCHAR2: pa.string(),
    OracleType.CHAR: pa.string(),
    OracleType.LONG: pa.string(),
    OracleType.CLOB: pa.string(),
    OracleType.ROWID: pa.string(),
    OracleType.DATE: pa.timestamp("s"),
    OracleType.TIMESTAMP: pa.timestamp("us"),
    OracleType.TIMESTAMP_TZ: pa.timestamp("us", "UTC"),
    OracleType.TIMESTAMP_LTZ: pa.timestamp("us", "UTC"),
    OracleType.RAW: pa.binary(),
    OracleType.BLOB: pa.binary(),
    OracleType.BINARY_FLOAT: pa.float32(),
    OracleType.BINARY_DOUBLE: pa.float64(),
    OracleType.INTERVAL_DS: pa.duration("us"),
    OracleType.INTERVAL_YM: pa.int32(),
}
_ORACLE_TYPES: Final = {
    "VARCHAR": Column("", OracleType.VARCHAR2, 4_000),
    "CLOB": Column("", OracleType.CLOB, 4_000),
    "BLOB": Column("", OracleType.RAW, 2_000),
    "TIMESTAMP_S": Column("", OracleType.DATE, 7),
    "DATE": Column("", OracleType.DATE, 7),
    "TIMESTAMP": Column("", OracleType.TIMESTAMP, 11, scale=6),
    "TIMESTAMP WITH TIME ZONE": Column("", OracleType.TIMESTAMP_TZ, 13, scale=6),
    "FLOAT": Column("", OracleType.BINARY_FLOAT, 4),
    "DOUBLE": Column("", OracleType.BINARY_DOUBLE, 8),
    "INTERVAL": Column("", OracleType.INTERVAL_DS, 11, scale=6),
}
_NUMBER: Final = Column("", OracleType.NUMBER, 22)
_WITHOUT_SCALE: Final = -127
_DIGITS_WITHOUT_SCALE: Final = 10
_DIGITS: Final = 300
"""More than any sum of NUMBERs has."""
_BIND: Final = re.compile(r"('(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/)|:(\w+)", re.DOTALL)
_COLUMNS_LIKE_WORDS: Final = re.compile(
    r"('(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/)|\b(ROLLBACK)\b", re.I | re.DOTALL
)
"""Names of columns that sqlglot reads as statements."""
_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In, exp.Ordered)


class Queries:
    """The queries of one connection, with an engine of its own."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._engine: duckdb.DuckDBPyConnection | None = None

    def select(self, statement: str, binds: Sequence[Value]) -> Rows:
        """The rows of a query.

        Raises:
            OracleError: the statement cannot be read (900), names no table (942) or no column (904), or a table's undo is
                gone.
        """
        return self.carry_out(parsed(statement), named_binds(statement, binds))

    def carry_out(self, query: exp.Expr, values: Mapping[str, Value], only: Collection[str] | None = None) -> Rows:
        """The same for a tree that ``parsed`` made; ``values`` by the names of bind variables. ``only``: the rows of its one
        table that the condition may be true of, where that is known."""
        if not isinstance(query, exp.Query):
            raise OracleError(900, "invalid SQL statement: no query")
        folded = _folded(query, values, self._catalogue)
        return self._executed(folded, values, only)

    def _executed(self, query: exp.Query, values: Mapping[str, Value], only: Collection[str] | None) -> Rows:
        places = [place for place in query.find_all(exp.Table) if not _is_cte(place)]
        tables = {number: _table(place, values, self._catalogue, only) for number, place in enumerate(places)}
        exact = _exact(query, tables)
        engine = self._opened()
        for number, place in enumerate(places):
            # Qualified, so that no view of the same name is meant.
            engine.register(f"t{number}", _arrow(tables[number], _named_in(query)))
            alias = exp.to_identifier(place.alias or place.name, quoted=True)
            place.replace(exp.alias_(exp.to_table(f"t{number}"), alias, table=True))
        text = _as_duckdb(query, tables, exact)
        try:
            found = engine.execute(text, _used(query, values))
            described = [(name, str(kind)) for name, kind, *_ in found.description or ()]
            rows = found.fetchall()
        except (duckdb.BinderException, duckdb.CatalogException) as error:
            raise OracleError(904, f"invalid identifier: {error}") from error
        except (duckdb.ConversionException, duckdb.InvalidInputException) as error:
            raise OracleError(1722, f"invalid number: {error}") from error
        if exact is not None:
            return exact.rows(described, rows)
        columns = list(_described(query, described, tables))
        return Rows(columns, [_as_oracle(row, columns) for row in rows])

    def _opened(self) -> duckdb.DuckDBPyConnection:
        if self._engine is None:
            self._engine = duckdb.connect(config={"threads": 1})
            self._engine.execute("SET TimeZone = 'UTC'")
            for macro in functions.MACROS:
                self._engine.execute(macro)
            for name, (function, kinds, result) in functions.FUNCTIONS.items():
                self._engine.create_function(name, function, list(kinds), result)
            for name, (kind, result) in functions.OF_THE_DATABASE.items():
                ask = functools.partial(self._asked, name)
                self._engine.create_function(name, ask, [kind], result)
        return self._engine

    def _asked(self, name: str, argument: Value) -> Value:
        return self._catalogue.function(name, [argument])


def parsed(statement: str) -> exp.Expr:
    """The statement as a tree, its names as Oracle reads them: without quotes they are in capitals.

    Raises:
        OracleError: 900, it cannot be read.
    """
    text = _BIND.sub(lambda found: found[1] or f":{_named_place(found[2])}", statement)
    text = _COLUMNS_LIKE_WORDS.sub(lambda found: found[1] or f'"{found[2].upper()}"', text)
    try:
        tree = sqlglot.parse_one(text, read="oracle")
    except (ParseError, sqlglot.errors.TokenError) as error:
        raise OracleError(900, f"invalid SQL statement: {error}") from error
    for select in list(tree.find_all(exp.Select)):
        if any(column.args.get("join_mark") for column in select.find_all(exp.Column)):
            eliminate_join_marks(select)
    named = tree.transform(_named_in_oracle)
    assert isinstance(named, exp.Expr)
    for node in reversed(list(named.walk())):
        if (other := _in_oracle(node)) is not node:
            node.replace(other)
    for select in named.find_all(exp.Select):
        _without_row_numbers(select)
        select.set("hint", None)
        select.set("locks", None)
    return named


def _named_in_oracle(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Literal) and node.is_string and not node.this:
        return exp.Null()
    if isinstance(node, exp.Identifier) and not node.quoted:
        return exp.Identifier(this=node.this.upper(), quoted=True)
    return node


def _in_oracle(node: exp.Expr) -> exp.Expr:
    """What DuckDB calls otherwise."""
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Anonymous):
        package = node.this.sql(dialect="oracle").upper().replace('"', "").removeprefix("SYS.").replace(".", "_")
        return exp.Anonymous(this=f"{package}_{node.expression.name.upper()}", expressions=node.expression.expressions)
    if isinstance(node, exp.Anonymous) and not isinstance(node.parent, exp.Dot):
        return exp.Anonymous(this=node.name.upper(), expressions=node.expressions)
    if isinstance(node, exp.DPipe):
        return exp.Anonymous(this="JOINED", expressions=[node.this, node.expression])
    if isinstance(node, exp.Cast) and node.to.this in (exp.DataType.Type.DATE, exp.DataType.Type.DATETIME):
        return exp.cast(node.this, "TIMESTAMP_S", dialect="duckdb")  # Oracle's DATE has a time
    if isinstance(node, (exp.DateTrunc, exp.TimestampTrunc)) and node.text("unit").upper() == "DD":
        node.set("unit", exp.Literal.string("DAY"))
    if isinstance(node, (exp.Systimestamp, exp.CurrentTimestamp)):
        return exp.Anonymous(this="SYSDATE" if node.args.get("sysdate") else "SYSTIMESTAMP", expressions=[])
    if isinstance(node, (exp.Column, exp.Pseudocolumn)):
        if node.name.upper() == "ROWID":
            return exp.column(exp.to_identifier(ROW_ID, quoted=True), table=node.args.get("table"))
        if node.name.upper() in ("SYSTIMESTAMP", "SYSDATE", "USER") and not node.args.get("table"):
            return exp.Anonymous(this=node.name.upper(), expressions=[])
    return node


def _without_row_numbers(select: exp.Select) -> None:
    """``ROWNUM <= n`` as a limit."""
    where = select.args.get("where")
    for condition in list(where.find_all(exp.LT, exp.LTE, exp.EQ)) if where else ():
        if isinstance(condition.this, exp.Column) and condition.this.name == "ROWNUM":
            limit = condition.expression
            select.set("limit", exp.Limit(expression=limit - 1 if isinstance(condition, exp.LT) else limit))
            condition.replace(exp.true())


def named_binds(statement: str, binds: Sequence[Value]) -> dict[str, Value]:
    """Bind values by the names of their places.

    A driver sends one value for each place, in the order of the text, or one for each name.

    Raises:
        OracleError: 1008, there are more or fewer.
    """
    places = bind_places(statement)
    names = list(dict.fromkeys(places))
    if len(binds) not in (len(places), len(names)):
        raise OracleError(1008, "not all variables bound")
    values = [str(value) if isinstance(value, RowId) else value for value in binds]
    return dict(zip(places if len(binds) == len(places) else names, values, strict=True))


def bind_places(statement: str) -> list[str]:
    """The names of a statement's bind variables, as often and in the order as they stand."""
    return [_named_place(found[2]) for found in _BIND.finditer(statement) if found[2]]


def _named_place(name: str) -> str:
    """A number is no name."""
    return f"b{name}" if name.isdigit() else name


def _used(query: exp.Query, values: Mapping[str, Value]) -> dict[str, Value]:
    """Those that are left once ``AS OF SCN :scn`` is taken out."""
    return {found.name: values[found.name] for found in query.find_all(exp.Placeholder)}


def _folded(query: exp.Query, values: Mapping[str, Value], catalogue: Catalogue) -> exp.Query:
    """Functions that ask the database, as their values; each has constant arguments."""

    def value_of(node: exp.Expr) -> exp.Expr:
        if (
            isinstance(node, exp.ToChar)
            and isinstance(node.this, exp.Anonymous)
            and node.this.name not in functions.OF_THE_ENGINE
        ):
            moment = catalogue.function(node.this.name, [_constant(each, values) for each in node.this.expressions])
            return exp.Literal.string(functions.to_char(moment, node.text("format")) or "")
        if not isinstance(node, exp.Anonymous) or node.name in functions.OF_THE_ENGINE:
            return node
        arguments = [each.expression if isinstance(each, exp.Kwarg) else each for each in node.expressions]
        if node.name in functions.OF_THE_DATABASE and any(each.find(exp.Column) for each in arguments):
            return node
        found = catalogue.function(node.name, [_constant(each, values) for each in arguments])
        if isinstance(found, datetime):
            kind = "TIMESTAMPTZ" if found.tzinfo else "TIMESTAMP_S" if node.name == "SYSDATE" else "TIMESTAMP"
            return exp.cast(exp.Literal.string(found.isoformat(sep=" ")), kind, dialect="duckdb")
        if isinstance(found, str):
            text = exp.Literal.string(found)
            return exp.Anonymous(this=_CLOB, expressions=[text]) if node.name in functions.CLOBS else text
        return exp.Null() if found is None else exp.Literal.number(str(found))

    folded = query.transform(value_of)
    assert isinstance(folded, exp.Query)
    return folded


def _constant(node: exp.Expr, values: Mapping[str, Value]) -> Value:
    if isinstance(node, exp.Placeholder):
        return values[node.name]
    if isinstance(node, exp.Literal):
        return node.name if node.is_string else Decimal(node.name)
    if isinstance(node, exp.Null):
        return None
    raise OracleError(3001, f"unimplemented feature: {node.sql(dialect='oracle')} as a function's argument")


def _is_cte(place: exp.Table) -> bool:
    names = {cte.alias for with_ in place.root().find_all(exp.With) for cte in with_.expressions}
    return not place.db and place.name in names


def _table(place: exp.Table, values: Mapping[str, Value], catalogue: Catalogue, only: Collection[str] | None) -> Table:
    version = place.args.get("version")
    scn = None
    if version is not None:
        scn = _scn(version.expression, values)
    if place.name == "DUAL":
        return DUAL
    return catalogue.table(place.db or None, place.name, scn, only)


def _scn(node: exp.Expr, values: Mapping[str, Value]) -> int:
    """A number, or a sum."""
    if isinstance(node, exp.Paren):
        return _scn(node.this, values)
    if isinstance(node, exp.Add):
        return _scn(node.this, values) + _scn(node.expression, values)
    found = _constant(node, values)
    assert isinstance(found, (str, int, Decimal))
    return int(found)


def _named_in(query: exp.Query) -> set[str] | None:
    """The columns that a query names; None: all of them are read."""
    if any(not isinstance(star.parent, exp.Count) for star in query.find_all(exp.Star)):
        return None
    return {column.name for column in query.find_all(exp.Column)}


def _arrow(table: Table, names: set[str] | None) -> pa.Table:
    """The rows as DuckDB reads them."""
    arrays = {_NTH: pa.array(range(len(table.rows)), pa.int64())}
    if table.row_ids is not None:
        arrays[ROW_ID] = pa.array(table.row_ids, pa.string())
    for place, column in enumerate(table.columns):
        if names is None or column.name in names:
            arrays[column.name] = _array(column, [row[place] for row in table.rows])
    return pa.table(arrays)


def _array(column: Column, values: list[Value]) -> pa.Array:
    if column.type is OracleType.NUMBER:
        scale = column.scale if column.scale > _WITHOUT_SCALE else _DIGITS_WITHOUT_SCALE
        whole = [None if value is None else _within(Decimal(str(value)), max(scale, 0)) for value in values]
        return pa.array(whole, pa.decimal128(38, max(scale, 0)))
    if column.type is OracleType.INTERVAL_YM:
        return pa.array([value.months if isinstance(value, Months) else None for value in values], pa.int32())
    if column.type is OracleType.ROWID:
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    return pa.array(values, _ARROW_TYPES[column.type])


def _within(number: Decimal, scale: int) -> Decimal:
    """The number as a DECIMAL of 38 digits holds it."""
    with localcontext(prec=_DIGITS):
        greatest = Decimal(10) ** (38 - scale) - 1
        return round(min(max(number, -greatest), greatest), scale)


class _Exact(NamedTuple):
    """A query of one table, without groups: its values are those of the table's rows."""

    table: Table
    selects: list[exp.Expr]
    """Without stars."""

    def rows(self, described: Sequence[tuple[str, str]], found: Sequence[Sequence[Any]]) -> Rows:
        """``found`` has each row's place last."""
        makers = [self._maker(each, described[place][1]) for place, each in enumerate(self.selects)]
        columns = [column for column, _ in makers]
        return Rows(
            columns,
            [tuple(make(row[-1], row[place]) for place, (_, make) in enumerate(makers)) for row in found],
        )

    def _maker(self, select: exp.Expr, kind: str) -> tuple[Column, Any]:
        """A column, and how its values are made of the place of a row and of DuckDB's value."""
        inner, title = select.unalias(), select.alias or _title(select)
        if isinstance(inner, exp.Column) and inner.name == ROW_ID and (row_ids := self.table.row_ids) is not None:
            return Column(title, OracleType.ROWID, 10), lambda nth, _: row_id_of(row_ids[nth])
        if isinstance(inner, exp.Column) and (place := self._place(inner.name)) is not None:
            column = dataclasses.replace(self.table.columns[place], name=title)
            return column, lambda nth, _: self.table.rows[nth][place]
        if isinstance(inner, exp.ToChar) and (printed := _printed_column(inner)) is not None:
            place = self._place(printed.name)
            if place is not None:
                form, in_utc = inner.text("format"), printed is not inner.this
                return Column(title), lambda nth, _: _printed(self.table.rows[nth][place], form, in_utc=in_utc)
        column = _by_type(title, _kind(inner, kind))
        return column, lambda _, value: _cell(value, column)

    def _place(self, name: str) -> int | None:
        return next((place for place, column in enumerate(self.table.columns) if column.name == name), None)


def _exact(query: exp.Query, tables: Mapping[int, Table]) -> _Exact | None:
    """None: DuckDB's values are taken."""
    if not isinstance(query, exp.Select) or len(tables) != 1 or query.find(exp.Subquery, exp.With, exp.AggFunc):
        return None
    if query.args.get("group") or query.args.get("distinct") or query.args.get("joins"):
        return None
    selects: list[exp.Expr] = []
    for each in query.selects:
        if each.is_star:
            selects += [exp.column(column.name, quoted=True) for column in tables[0].columns if not column.is_hidden]
        else:
            selects.append(each)
    return _Exact(tables[0], selects)


def _as_duckdb(query: exp.Query, tables: Mapping[int, Table], exact: _Exact | None) -> str:
    if exact is not None:
        query = query.copy()
        query.set("expressions", [*(_evaluated(each) for each in exact.selects), exp.column(_NTH, quoted=True)])
    hidden = [_NTH] + [ROW_ID] * any(table.row_ids is not None for table in tables.values())
    for star in query.find_all(exp.Star):
        if not isinstance(star.parent, exp.Count):
            star.set("except_", [exp.to_identifier(name, quoted=True) for name in hidden])
    for column in list(query.find_all(exp.Column)):
        if column.name == ROW_ID and isinstance(comparison := column.parent, _COMPARISONS):
            _compare_as_row_ids(comparison)
    return query.sql(dialect="duckdb")


def _evaluated(select: exp.Expr) -> exp.Expr:
    """A text that is made of the table's own value is not evaluated."""
    inner = select.unalias()
    is_given = isinstance(inner, exp.ToChar) and _printed_column(inner) is not None
    return exp.alias_(exp.Null(), select.alias or "TEXT", quoted=True) if is_given else select.copy()


def _printed_column(inner: exp.ToChar) -> exp.Column | None:
    """The column that ``TO_CHAR`` prints, be it by SYS_EXTRACT_UTC; None: it prints something else."""
    found = inner.this
    if isinstance(found, exp.Anonymous) and found.name == "SYS_EXTRACT_UTC":
        (found,) = found.expressions
    return found if isinstance(found, exp.Column) else None


def _printed(value: Value, form: str, *, in_utc: bool) -> str | None:
    if in_utc and isinstance(value, datetime):
        value = value.astimezone(UTC)
    return functions.to_char(value, form)


def _compare_as_row_ids(comparison: exp.Expr) -> None:
    """ROWIDs have the order of their digits, which is not that of their letters."""
    sides = [side for name in ("this", "expression", "low", "high") if (side := comparison.args.get(name)) is not None]
    for side in [*sides, *comparison.expressions] if isinstance(comparison, exp.In) else sides:
        if not isinstance(side, exp.Anonymous) or side.name != "ROWID_KEY":
            side.replace(exp.Anonymous(this="ROWID_KEY", expressions=[side.copy()]))


def _described(query: exp.Query, results: Sequence[tuple[str, str]], tables: Mapping[int, Table]) -> Iterator[Column]:
    """Each column of the result: as its table has it where it is a table's column as it stands, else by DuckDB's type."""
    by_name = {column.name: column for table in tables.values() for column in table.columns}
    by_name[ROW_ID] = Column("ROWID", OracleType.VARCHAR2, 18)
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
        name = each.alias or _title(each)
        yield _by_type(name, _kind(inner, kind)) if known is None else dataclasses.replace(known, name=name)


def _title(select: exp.Expr) -> str:
    if isinstance(select, exp.Column):
        return "ROWID" if select.name == ROW_ID else select.name
    return select.sql(dialect="oracle").upper()


def _kind(select: exp.Expr, kind: str) -> str:
    return "CLOB" if isinstance(select, exp.Anonymous) and select.name == _CLOB else kind


def _by_type(name: str, kind: str) -> Column:
    return dataclasses.replace(_ORACLE_TYPES.get(kind, _NUMBER), name=name)


def _as_oracle(row: Sequence[Any], columns: Sequence[Column]) -> tuple[Value, ...]:
    return tuple(_cell(value, column) for value, column in zip(row, columns, strict=True))


def _cell(value: Any, column: Column) -> Value:
    if isinstance(value, bool):
        return int(value)
    if column.type is OracleType.NUMBER and isinstance(value, float):
        return Decimal(repr(value))
    if column.type is OracleType.ROWID and isinstance(value, str):
        return row_id_of(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    assert value is None or isinstance(value, (Decimal, int, float, str, bytes, datetime, timedelta)), value
    return value
