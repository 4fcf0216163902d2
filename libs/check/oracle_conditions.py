"""A tenant's row filter as Oracle's SQL.

A filter is in the language of ``libs.tenants.row_filter``, which is MySQL's. Comparisons of columns with literals mean the
same to Oracle, once written so: names in their own case, CHAR without its padding, moments as moments. Anything else is
refused, because a condition that means something else would show differences that are none.
"""

import datetime
from collections.abc import Mapping
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from libs.check.oracle_values import moment_literal, text_literal
from libs.oracle.column_type import parse_column_type
from libs.oracle.ddl_text import quote_identifier

_NUMBERS: Final = frozenset({"NUMBER", "FLOAT", "BINARY_FLOAT", "BINARY_DOUBLE"})
_TEXTS: Final = frozenset({"CHAR", "VARCHAR2", "NCHAR", "NVARCHAR2"})
_PADDED: Final = frozenset({"CHAR", "NCHAR"})
_MOMENTS: Final = frozenset({"DATE", "TIMESTAMP"})
_OPERATORS: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


class NotTranslated(Exception):
    """A condition that this module does not write in Oracle's SQL; the message has the part."""


def oracle_condition(where: str, types: Mapping[str, str]) -> str:
    """``where`` for Oracle. ``types``: of the table's columns, by name.

    Raises:
        NotTranslated: a part of it is none of the comparisons above.
    """
    try:
        tree = sqlglot.parse_one(where, read="mysql")
    except SqlglotError as error:
        raise NotTranslated(f"{where}: {(str(error).splitlines() or ['it cannot be read'])[0]}") from error
    return _condition(tree, types)


def _condition(node: exp.Expr, types: Mapping[str, str]) -> str:
    match node:
        case exp.Paren():
            return f"({_condition(node.this, types)})"
        case exp.And() | exp.Or():
            word = "AND" if isinstance(node, exp.And) else "OR"
            return f"({_condition(node.this, types)} {word} {_condition(node.expression, types)})"
        case exp.Not():
            return f"NOT ({_condition(node.this, types)})"
        case exp.Is() if isinstance(node.expression, exp.Null):
            return f"{_name(node.this, types)} IS NULL"
        case exp.In() if node.expressions:
            listed = ", ".join(_literal(each, node.this, types) for each in node.expressions)
            return f"{_column(node.this, types)} IN ({listed})"
        case exp.Between():
            low, high = (_literal(node.args[end], node.this, types) for end in ("low", "high"))
            return f"{_column(node.this, types)} BETWEEN {low} AND {high}"
        case exp.Like() if _type(node.this, types) in _TEXTS:
            return f"{_column(node.this, types)} LIKE {_literal(node.expression, node.this, types)} ESCAPE '\\'"
        case _ if type(node) in _OPERATORS:
            return _comparison(node, types)
        case _:
            raise NotTranslated(node.sql(dialect="mysql"))


def _comparison(node: exp.Expr, types: Mapping[str, str]) -> str:
    left, right, operator = node.this, node.expression, _OPERATORS[type(node)]
    if isinstance(left, exp.Column):
        return f"{_column(left, types)} {operator} {_literal(right, left, types)}"
    if not isinstance(right, exp.Column):
        raise NotTranslated(left.sql(dialect="mysql"))
    return f"{_literal(left, right, types)} {operator} {_column(right, types)}"


def _column(node: exp.Expr, types: Mapping[str, str]) -> str:
    """A column to compare. Oracle compares a CHAR with its padding left out of account, and the router does not."""
    name = _name(node, types)
    return f"CAST({name} AS VARCHAR2(4000))" if _type(node, types) in _PADDED else name


def _name(node: exp.Expr, types: Mapping[str, str]) -> str:
    return quote_identifier(_found(node, types))


def _type(node: exp.Expr, types: Mapping[str, str]) -> str:
    return parse_column_type(types[_found(node, types)]).name


def _found(node: exp.Expr, types: Mapping[str, str]) -> str:
    """The column that is named, as Oracle has it: a filter's names are compared without their case."""
    if isinstance(node, exp.Column):
        names = [name for name in types if name.lower() == node.name.lower()]
        if len(names) == 1:
            return names[0]
    raise NotTranslated(node.sql(dialect="mysql"))


def _literal(node: exp.Expr, column: exp.Expr, types: Mapping[str, str]) -> str:
    """A literal that a column is compared with. An empty text is NULL to Oracle, and not to a filter."""
    oracle_type, text = _type(column, types), node.name
    negative = isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal)
    if oracle_type in _NUMBERS and (negative or isinstance(node, exp.Literal)) and not node.is_string:
        return f"-{node.this.name}" if negative else text
    if isinstance(node, exp.Literal) and node.is_string and text:
        if oracle_type in _TEXTS:
            return text_literal(text)
        if oracle_type in _MOMENTS:
            return _moment(text)
    raise NotTranslated(node.sql(dialect="mysql"))


def _moment(text: str) -> str:
    try:
        return moment_literal(datetime.datetime.fromisoformat(text))
    except ValueError as error:
        raise NotTranslated(f"'{text}'") from error
