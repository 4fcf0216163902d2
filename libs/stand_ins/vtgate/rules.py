"""Which tables, columns and rows a stream's filter lets through.

Vitess source ``planbuilder.go``: the first rule that matches a table counts; its filter is empty, a key range, or a SELECT
of one table. Row conditions are asked of MySQL itself, so that collations hold while streaming as they do in the copy.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from libs.mysql.identifiers import quote_identifier
from libs.source.mysql.client import Connection, query
from libs.stand_ins.vtgate.topology import Refused
from libs.stand_ins.vtgate.vindex import KeyRange, keyspace_id
from protos.vitess.binlogdata_pb2 import Filter
from protos.vitess.query_pb2 import Field, Row


@dataclass(frozen=True, slots=True)
class TableRule:
    """The streamed part of one table."""

    columns: tuple[str, ...] = ()
    """Empty: all."""
    condition: str = ""
    """SQL; empty: all rows."""
    key_range: KeyRange | None = None


def rule_of(filter_: Filter, table: str) -> TableRule | None:
    """None: the table is not streamed. Raises Refused: a rule's filter cannot be understood."""
    for rule in filter_.rules:
        if _matches(rule.match, table):
            return _parsed(rule.filter, table)
    return None


def _matches(match: str, table: str) -> bool:
    if match.startswith("/"):
        return re.search(match[1:], table) is not None
    return match == table


def _parsed(text: str, table: str) -> TableRule:
    if not text:
        return TableRule()
    if re.fullmatch(r"[0-9a-f]*-[0-9a-f]*", text):
        return TableRule(key_range=KeyRange.parse(text))
    try:
        statement = sqlglot.parse_one(text, read="mysql")
    except sqlglot.ParseError as error:
        raise Refused("INVALID_ARGUMENT", f"syntax error in filter {text!r}: {error}") from error
    source = statement.find(exp.Table)
    if not isinstance(statement, exp.Select) or source is None or source.name != table:
        raise Refused("INVALID_ARGUMENT", f"unsupported filter for table {table}: {text}")
    where = statement.args.get("where")
    if where is not None:
        _require_filterable(where.this)
    has_star = any(isinstance(column, exp.Star) for column in statement.expressions)
    columns = () if has_star else tuple(column.alias_or_name for column in statement.expressions)
    return TableRule(columns=columns, condition=where.this.sql(dialect="mysql") if where else "")


_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


def _require_filterable(condition: exp.Expr) -> None:
    """Filters of ``analyzeWhere``: columns compared with constants, joined by AND; the newest releases also IS NOT NULL.

    Raises Refused, as a tablet words it.
    """
    match condition:
        case exp.And():
            _require_filterable(condition.left)
            _require_filterable(condition.right)
        case exp.Paren():
            _require_filterable(condition.this)
        case exp.Not() if isinstance(condition.this, exp.Is) and isinstance(condition.this.expression, exp.Null):
            pass
        case _ if not isinstance(condition, _COMPARISONS):
            raise Refused("UNKNOWN", f"unsupported constraint: {condition.sql(dialect='mysql')}")
        case _ if not isinstance(condition.left, exp.Column) or not isinstance(condition.right, exp.Literal | exp.Neg):
            raise Refused("UNKNOWN", f"unexpected: {condition.sql(dialect='mysql')}")


class RowFilter:
    """Lets a table's streamed rows through, or not, and cuts them to the columns asked for."""

    def __init__(self, rule: TableRule, table: str, fields: Sequence[Field], vindex_column: str) -> None:
        self._rule = rule
        self._table = table
        self._fields = fields
        names = [field.name for field in fields]
        self._places = [names.index(name) for name in rule.columns] if rule.columns else list(range(len(names)))
        self._vindex_place = names.index(vindex_column) if rule.key_range else 0
        self._has_scratch_table = False

    @property
    def fields(self) -> list[Field]:
        """Of the columns asked for."""
        return [self._fields[place] for place in self._places]

    def passed(self, row: Row, connection: Connection) -> Row | None:
        """The row cut to its columns; None: it is not streamed."""
        if self._rule.key_range is None and not self._rule.condition and not self._rule.columns:
            return row
        values = row_values(row)
        if self._rule.key_range and not self._rule.key_range.holds(keyspace_id(int(values[self._vindex_place] or 0))):
            return None
        if self._rule.condition and not self._holds(values, connection):
            return None
        chosen = [values[place] for place in self._places]
        return row_of(chosen)

    def _holds(self, values: Sequence[bytes | None], connection: Connection) -> bool:
        scratch = quote_identifier("vstream_filter")
        table = quote_identifier(self._table)
        if not self._has_scratch_table:
            query(connection, "SET SESSION sql_log_bin = 0")
            query(connection, f"DROP TEMPORARY TABLE IF EXISTS {scratch}")
            query(connection, f"CREATE TEMPORARY TABLE {scratch} LIKE {table}")
            self._has_scratch_table = True
        query(connection, f"DELETE FROM {scratch}")
        query(connection, f"INSERT INTO {scratch} VALUES ({', '.join(['%s'] * len(values))})", *values)
        return bool(query(connection, f"SELECT 1 FROM {scratch} WHERE {self._rule.condition}"))


def row_values(row: Row) -> list[bytes | None]:
    """A row's values one by one; None is NULL."""
    values: list[bytes | None] = []
    place = 0
    for length in row.lengths:
        values.append(None if length < 0 else row.values[place : place + length])
        place += max(length, 0)
    return values


def row_of(values: Sequence[bytes | None]) -> Row:
    """The other way round."""
    return Row(
        lengths=[-1 if value is None else len(value) for value in values],
        values=b"".join(value for value in values if value is not None),
    )
