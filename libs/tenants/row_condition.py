"""The compiler of row filters: SQL conditions, as sqlglot parses them, into functions of a row.
``row_filter`` says what they mean.

A module of its own for sqlglot's sake: it takes 29 MB, and a router whose tenants filter nothing does without.
"""

import base64
import binascii
import datetime
import difflib
import enum
import itertools
import math
import operator
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import reduce
from typing import Any, Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from libs.errors import InvalidEvent, UndecodableValue
from libs.tenants.filter_values import EXACT, Evaluate, FilterKey, Interval, WireRow, decimal_of_wire
from libs.types.table import Column, TableSchema
from libs.types.value import UNAVAILABLE_VALUE, LogicalKind


class _Domain(enum.Enum):
    """Kinds of values that can be compared with one another."""

    NUMBER = "a number"
    TEXT = "text"
    BYTES = "bytes"
    MOMENT = "a date or time"
    """Microseconds since 1970."""
    CLOCK = "a time of day"
    """Microseconds."""
    TRUTH = "a condition"
    DOCUMENT = "a JSON document"
    """Can only be tested for NULL."""
    ANY = "anything"
    """A column while no table is known, NULL, or the place of a mistake."""


@dataclass(frozen=True, slots=True)
class _Term:
    """A compiled expression."""

    domain: _Domain
    evaluate: Evaluate
    is_float: bool = False
    constant: Any = None
    """Its value where it is a literal."""
    is_constant: bool = False
    is_year: bool = False
    """A column of years."""


_DIALECT: Final = Dialect.get_or_raise("mysql")
_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})
_PREFIXES: Final = frozenset({TokenType.NOT, TokenType.DASH, TokenType.TILDE, TokenType.PLUS, TokenType.PARAMETER})
_MISTAKEN: Final = _Term(_Domain.ANY, lambda _row: None)
_MAX_CONDITION_CHARACTERS: Final = 8_000
"""Longer ones are lists that belong into a table."""
_MOST_DIGITS: Final = 65
_MOST_BITS: Final = 64
_MAX_DEPTH: Final = 60
"""Below the limit of Python's stack, also when rows are judged, from any caller."""


def compile_condition(
    where: str, table: TableSchema | None, mistakes: list[str], used: set[str], keys: list[FilterKey] | None = None
) -> Evaluate:
    """A condition as a function of a row, its mistakes, the columns that it uses and its keys added to what is given; without a
    table its syntax alone is looked at."""
    if len(where) > _MAX_CONDITION_CHARACTERS:
        mistakes.append(f"is longer than {_MAX_CONDITION_CHARACTERS} characters; shorten it")
        return _MISTAKEN.evaluate
    try:
        tokens = _DIALECT.tokenize(where)
        if _is_deep(tokens):
            mistakes.append("is nested too deeply; write it flatter")
            return _MISTAKEN.evaluate
        if any(comment.startswith(("!", "M!")) for token in tokens for comment in token.comments):
            mistakes.append("has a comment /*! … */, whose text MySQL runs; write the text without it, or leave it out")
            return _MISTAKEN.evaluate
        if any(one.text == two.text == "!" and two.start == one.end + 1 for one, two in itertools.pairwise(tokens)):
            mistakes.append("has !!, which MySQL takes for one !; write NOT, or nothing")
            return _MISTAKEN.evaluate
        statements = _DIALECT.parser().parse(tokens, where)
        if len(statements) != 1 or statements[0] is None:
            mistakes.append("must be one condition, without a semicolon")
            return _MISTAKEN.evaluate
        compiler = _Compiler(table, mistakes, used)
        holds = compiler.condition(statements[0])
        if keys is not None and not mistakes:
            keys += compiler.keys(statements[0])
        return holds
    except SqlglotError as error:
        mistakes.append(f"is not SQL: {(str(error).splitlines() or ['it cannot be read'])[0]}")
    except RecursionError:
        mistakes.append("is nested too deeply; write it flatter")
    except Exception as error:  # of the parser's: all of its errors are mistakes of this condition
        mistakes.append(f"cannot be read ({type(error).__name__}); {_LANGUAGE}")
    return _MISTAKEN.evaluate


def _is_deep(tokens: Sequence[Token]) -> bool:
    """Whether the parser would recurse deeper than any condition needs. Said before it does: how deep it may is the stack's."""
    depth = prefixes = 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        prefixes = prefixes + 1 if token.token_type in _PREFIXES else 0
        if max(depth, prefixes) > _MAX_DEPTH:
            return True
    return False


class _Compiler:
    """Compiles one condition. Mistakes are appended, and compiling goes on, so that all are reported at once."""

    def __init__(self, table: TableSchema | None, mistakes: list[str], used: set[str]) -> None:
        self._table = table
        self._mistakes = mistakes
        self._used = used
        self._depth = 0

    def condition(self, node: exp.Expr) -> Evaluate:
        """An expression where a truth value is wanted: numbers are true unless 0."""
        term = self.term(node)
        match term.domain:
            case _Domain.TRUTH | _Domain.ANY:
                return term.evaluate
            case _Domain.NUMBER:
                return _map_known(term.evaluate, lambda number: number != 0)
            case _:
                self._mistaken(f"{_sql(node)} is {term.domain.value}, not a condition; compare it with something")
                return _MISTAKEN.evaluate

    def keys(self, node: exp.Expr) -> list[FilterKey]:
        """Of the conjuncts of a condition without mistakes, the narrowest first: one with values, else an interval."""
        conjuncts = _conjuncts(node)
        found = [key for key in map(self._key_of, conjuncts) if key is not None]
        with_values = [key for key in found if key.interval is None]
        if with_values:
            return [replace(key, is_whole=len(conjuncts) == 1) for key in with_values]
        intervals: dict[str, list[FilterKey]] = {}
        for key in found:
            intervals.setdefault(key.column, []).append(key)
        return [
            replace(
                of_column[0],
                interval=reduce(Interval.within, (key.interval for key in of_column if key.interval is not None)),
                is_whole=len(conjuncts) == len(of_column),
            )
            for of_column in intervals.values()
        ]

    def _key_of(self, node: exp.Expr) -> FilterKey | None:
        """Of one conjunct."""
        match node:
            case exp.EQ():
                left, right = node.this, node.expression
                column, literal = (left, right) if isinstance(left, exp.Column) else (right, left)
                return self._key(column, [literal], node)
            case exp.In() if node.expressions:
                return self._key(node.this, node.expressions, node)
            case exp.Or():
                keys = [self._key_of(each.unnest()) for each in node.flatten()]
                columns = {None if key is None or key.interval is not None else key.column for key in keys}
                first = keys[0]
                if first is None or columns != {first.column}:
                    return None
                return replace(
                    first, values=frozenset(value for key in keys if key is not None for value in key.values)
                )
            case exp.Between():
                low = self._key(node.this, [node.args["low"]], node)
                high = self._key(node.this, [node.args["high"]], node)
                if low is None or high is None:
                    return None
                return replace(low, values=frozenset(), interval=Interval(*low.values, *high.values))
            case exp.GT() | exp.GTE() | exp.LT() | exp.LTE():
                return self._interval_key(node)
            case _:
                return None

    def _interval_key(self, node: exp.Expr) -> FilterKey | None:
        left, right = node.this, node.expression
        is_turned = not isinstance(left, exp.Column)
        key = self._key(right, [left], node) if is_turned else self._key(left, [right], node)
        if key is None:
            return None
        (bound,) = key.values
        is_low, has_bound = isinstance(node, exp.GT | exp.GTE) != is_turned, isinstance(node, exp.GTE | exp.LTE)
        interval = Interval(low=bound, has_low=has_bound) if is_low else Interval(high=bound, has_high=has_bound)
        return replace(key, values=frozenset(), interval=interval)

    def _key(self, column: exp.Expr, literals: Sequence[exp.Expr], node: exp.Expr) -> FilterKey | None:
        """None where a value is computed, or is compared as another kind than the column's own."""
        if not isinstance(column, exp.Column):
            return None
        own = self.term(column)
        values: set[Any] = set()
        for literal in literals:
            left, right = self._comparable(own, self.term(literal), node)
            if left is not own or not right.is_constant or right.domain is _Domain.ANY:
                return None
            values.add(right.constant)
        found = None if self._table is None else _find_column(self._table, column.name)
        return None if found is None else FilterKey(found.name, own.evaluate, frozenset(values))

    def term(self, node: exp.Expr) -> _Term:
        """Any expression. An argument of the node that is not known here is a mistake: it could turn the meaning."""
        if self._depth >= _MAX_DEPTH:
            return self._mistaken(f"is nested deeper than {_MAX_DEPTH} levels; write it flatter")
        self._depth += 1
        try:
            return self._term(node)
        finally:
            self._depth -= 1

    def _term(self, node: exp.Expr) -> _Term:
        allowed = _ARGUMENTS.get(type(node))
        if allowed is None:
            return self._mistaken(f"{_sql(node)}: {_construct(node)} is not supported; {_LANGUAGE}")
        if extra := [name for name, value in node.args.items() if value and name not in allowed]:
            return self._mistaken(f"{_sql(node)}: {', '.join(extra)} is not supported; {_LANGUAGE}")
        match node:
            case exp.Paren():
                return self.term(node.this)
            case exp.Column():
                return self._column(node)
            case exp.Literal() | exp.Null() | exp.Boolean() | exp.HexString() | exp.BitString() | exp.Cast():
                return self._literal(node)
            case exp.And() | exp.Or():
                return self._junction(node)
            case exp.Not():
                return _Term(_Domain.TRUTH, _map_known(self.condition(node.this), operator.not_))
            case exp.Neg() | exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
                return self._arithmetic(node)
            case exp.Is():
                return self._is(node)
            case exp.In():
                return self._in(node)
            case exp.Between():
                return self._between(node)
            case exp.Like() | exp.Escape():
                return self._like(node)
            case _:
                return self._comparison(node)

    def _mistaken(self, mistake: str) -> _Term:
        if mistake not in self._mistakes:
            self._mistakes.append(mistake)
        return _MISTAKEN

    # -- leaves

    def _column(self, node: exp.Column) -> _Term:
        if self._table is None:
            return _Term(_Domain.ANY, lambda _row: None)
        if node.table and node.table.lower() != self._table.table_id.table.lower():
            return self._mistaken(f"{_sql(node)}: only columns of the row's own table can be used")
        column = _find_column(self._table, node.name)
        if column is None:
            return self._mistaken(
                f"{_sql(node)}: {self._table.table_id} has no such column{_nearest(node, self._table)}"
            )
        reading = _reading_of(column)
        if reading is None:
            return self._mistaken(f"{_sql(node)}: values of type {column.source_type} cannot be used in a condition")
        self._used.add(column.name)
        domain, decode = reading
        is_float = column.logical_type.kind in (LogicalKind.FLOAT32, LogicalKind.FLOAT64)
        is_year = column.logical_type.kind is LogicalKind.YEAR
        return _Term(domain, _load(column.name, decode), is_float, is_year=is_year)

    def _literal(self, node: exp.Expr) -> _Term:
        match node:
            case exp.Null():
                return _constant(_Domain.ANY, None)
            case exp.Boolean():
                return _constant(_Domain.NUMBER, int(node.this))
            case exp.HexString():
                return _constant(
                    _Domain.BYTES, bytes.fromhex(str(node.this).zfill(len(node.this) + len(node.this) % 2))
                )
            case exp.BitString():
                if len(node.this) > _MOST_BITS:
                    return self._mistaken(
                        f"{_sql(node)}: has more than {_MOST_BITS} bits, which no number of MySQL has"
                    )
                return _constant(_Domain.NUMBER, int(node.this, 2))
            case exp.Cast():
                return self._typed_literal(node)
            case exp.Literal() if node.is_string:
                return _constant(_Domain.TEXT, node.this)
            case _:
                return self._number(node)

    def _number(self, node: exp.Expr) -> _Term:
        """MySQL refuses a double that is out of range, and holds 65 digits of any other number (manual 14.23, 11.1.2)."""
        text = str(node.this)
        try:
            if "e" in text.lower():
                number = float(text)
                if math.isinf(number):
                    return self._mistaken(f"{_sql(node)}: is larger than any number of MySQL")
                return _constant(_Domain.NUMBER, number, is_float=True)
            if sum(map(str.isdigit, text)) > _MOST_DIGITS:
                return self._mistaken(
                    f"{_sql(node)}: has more than {_MOST_DIGITS} digits, which no number of MySQL has"
                )
            return _constant(_Domain.NUMBER, Decimal(text) if "." in text else int(text))
        except (ValueError, ArithmeticError):
            return self._mistaken(f"{_sql(node)}: is no number")

    def _typed_literal(self, node: exp.Cast) -> _Term:
        """``DATE '2024-01-31'``, ``TIMESTAMP '…'``, ``TIME '…'`` (MySQL manual 11.1.3)."""
        domain = _TYPED_LITERALS.get(node.to.this)
        if domain is None or not (isinstance(node.this, exp.Literal) and node.this.is_string):
            return self._mistaken(f"{_sql(node)}: a conversion is not supported; {_LANGUAGE}")
        return self._converted(_constant(_Domain.TEXT, node.this.this), domain, node)

    # -- conditions

    def _junction(self, node: exp.And | exp.Or) -> _Term:
        parts = [self.condition(part) for part in node.flatten()]
        decisive = isinstance(node, exp.Or)

        def evaluate(row: WireRow) -> bool | None:
            outcome: bool | None = not decisive
            for part in parts:
                value: bool | None = part(row)
                if value is decisive:
                    return decisive
                if value is None:
                    outcome = None
            return outcome

        return _Term(_Domain.TRUTH, evaluate)

    def _comparison(self, node: exp.Expr) -> _Term:
        left, right = self._comparable(self.term(node.this), self.term(node.expression), node)
        if isinstance(node, exp.NullSafeEQ):
            return _Term(_Domain.TRUTH, lambda row: left.evaluate(row) == right.evaluate(row))
        return _Term(_Domain.TRUTH, _both_known(left.evaluate, right.evaluate, _COMPARISONS[type(node)]))

    def _is(self, node: exp.Is) -> _Term:
        wanted = node.expression
        if isinstance(wanted, exp.Null):
            operand = self.term(node.this).evaluate
            return _Term(_Domain.TRUTH, lambda row: operand(row) is None)
        if isinstance(wanted, exp.Boolean):
            truth, condition = bool(wanted.this), self.condition(node.this)
            return _Term(_Domain.TRUTH, lambda row: condition(row) is truth)
        return self._mistaken(f"{_sql(node)}: IS takes NULL, TRUE or FALSE")

    def _in(self, node: exp.In) -> _Term:
        subject = self.term(node.this)
        items = [self.term(item) for item in node.expressions]
        if subject.domain is _Domain.NUMBER and _is_wrapped_in(node, self._table):
            return self._mistaken(
                f"{_sql(node)}: beside numbers of another kind MySQL takes one beyond the column's for another number; write "
                "it in a comparison of its own"
            )
        pairs = [self._comparable(subject, item, node) for item in items]
        equals = [_both_known(left.evaluate, right.evaluate, operator.eq) for left, right in pairs]

        def evaluate(row: WireRow) -> bool | None:
            outcome: bool | None = False
            for equal in equals:
                value = equal(row)
                if value:
                    return True
                if value is None:
                    outcome = None
            return outcome

        return _Term(_Domain.TRUTH, evaluate)

    def _between(self, node: exp.Between) -> _Term:
        subject = self.term(node.this)
        lower, low = self._comparable(subject, self.term(node.args["low"]), node)
        upper, high = self._comparable(subject, self.term(node.args["high"]), node)
        is_above = _both_known(lower.evaluate, low.evaluate, operator.ge)
        is_below = _both_known(upper.evaluate, high.evaluate, operator.le)

        def evaluate(row: WireRow) -> bool | None:
            above, below = is_above(row), is_below(row)
            if above is False or below is False:
                return False
            return None if above is None or below is None else True

        return _Term(_Domain.TRUTH, evaluate)

    def _like(self, node: exp.Expr) -> _Term:
        escape = "\\"
        like = node
        if isinstance(node, exp.Escape):
            like = node.this
            if not isinstance(like, exp.Like) or not isinstance(node.expression, exp.Literal):
                return self._mistaken(f"{_sql(node)}: ESCAPE takes one character")
            escape = node.expression.this
        if len(escape) != 1:
            return self._mistaken(f"{_sql(node)}: ESCAPE takes one character")
        if not (isinstance(like.expression, exp.Literal) and like.expression.is_string):
            return self._mistaken(f"{_sql(node)}: LIKE takes a pattern in quotes")
        subject = self.term(like.this)
        if subject.domain not in (_Domain.TEXT, _Domain.ANY):
            return self._mistaken(f"{_sql(node)}: LIKE takes text, and {_sql(like.this)} is {subject.domain.value}")
        is_like = _like_matcher(like.expression.this, escape)
        is_negated = bool(like.args.get("negate"))
        return _Term(_Domain.TRUTH, _map_known(subject.evaluate, lambda text: is_like(text) is not is_negated))

    # -- arithmetic

    def _arithmetic(self, node: exp.Expr) -> _Term:
        terms = [self.term(side) for side in (node.this, node.args.get("expression")) if side is not None]
        for term, side in zip(terms, (node.this, node.args.get("expression")), strict=False):
            if term.domain not in (_Domain.NUMBER, _Domain.ANY):
                return self._mistaken(f"{_sql(node)}: cannot calculate with {_sql(side)}, which is {term.domain.value}")
        is_float = any(term.is_float for term in terms)
        left, *rest = (_as_float(term) if is_float else term for term in terms)
        if not rest:
            negate = operator.neg if is_float else EXACT.minus
            if left.is_constant and left.constant is not None:
                return _constant(_Domain.NUMBER, negate(left.constant), is_float=is_float)
            return _Term(_Domain.NUMBER, _map_known(left.evaluate, negate), is_float)
        calculate = (_FLOAT_ARITHMETIC if is_float else _EXACT_ARITHMETIC)[type(node)]
        return _Term(_Domain.NUMBER, _both_known(left.evaluate, rest[0].evaluate, calculate), is_float)

    # -- agreement of types

    def _comparable(self, left: _Term, right: _Term, node: exp.Expr) -> tuple[_Term, _Term]:
        """The two terms brought to one domain."""
        if left.domain is _Domain.TRUTH:
            left = _Term(_Domain.NUMBER, _map_known(left.evaluate, int))
        if right.domain is _Domain.TRUTH:
            right = _Term(_Domain.NUMBER, _map_known(right.evaluate, int))
        if _is_text_constant(right) and left.domain in _TEXT_CONVERSIONS:
            right = self._converted(right, left.domain, node)
        elif _is_text_constant(left) and right.domain in _TEXT_CONVERSIONS:
            left = self._converted(left, right.domain, node)
        domains = {left.domain, right.domain}
        if _Domain.DOCUMENT in domains:
            return self._mistaken(f"{_sql(node)}: a JSON document can only be tested with IS NULL"), _MISTAKEN
        if len(domains) > 1 and _Domain.ANY not in domains:
            mistake = f"{_sql(node)}: cannot compare {left.domain.value} with {right.domain.value}"
            return self._mistaken(mistake), _MISTAKEN
        if any(one.is_year and _has_two_digits(other.constant) for one, other in ((left, right), (right, left))):
            return self._mistaken(f"{_sql(node)}: a year has four digits; MySQL takes 24 for 2024"), _MISTAKEN
        if left.is_float or right.is_float:  # MySQL compares as floating-point numbers then (manual 14.3)
            return _as_float(left), _as_float(right)
        return left, right

    def _converted(self, literal: _Term, domain: _Domain, node: exp.Expr) -> _Term:
        try:
            return _constant(domain, _TEXT_CONVERSIONS[domain](literal.constant))
        except ValueError:
            return self._mistaken(f"{_sql(node)}: {literal.constant!r} is not {domain.value}")


def _has_two_digits(number: Any) -> bool:
    return number is not None and 0 < number < 100


def _conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """The conjuncts of a condition; brackets taken off."""
    node = node.unnest()
    if not isinstance(node, exp.And):
        return [node]
    return [conjunct for part in node.flatten() for conjunct in _conjuncts(part)]


_LANGUAGE: Final = (
    "a condition has comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, + - * / and literals over the row's columns"
)
_COMPARISONS: Final[Mapping[type[exp.Expr], Callable[[Any, Any], Any]]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_ARGUMENTS: Final[Mapping[type[exp.Expr], frozenset[str]]] = {
    **dict.fromkeys((*_COMPARISONS, exp.NullSafeEQ, exp.And, exp.Or), frozenset({"this", "expression"})),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Is, exp.Escape), frozenset({"this", "expression"})),
    **dict.fromkeys((exp.Paren, exp.Not, exp.Neg, exp.Null), frozenset({"this"})),
    **dict.fromkeys((exp.Boolean, exp.HexString, exp.BitString), frozenset({"this", "is_integer"})),
    exp.Div: frozenset({"this", "expression", "safe", "typed"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Column: frozenset({"this", "table"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.In: frozenset({"this", "expressions"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.Like: frozenset({"this", "expression", "negate"}),
}


_MORE_DIGITS: Final = 4
"""``div_precision_increment``, as it is by default."""
_MOST_FRACTION_DIGITS: Final = 30
_ROUNDING: Final = Context(prec=EXACT.prec, rounding=ROUND_HALF_UP)


def _divide(left: Any, right: Any) -> Any:
    """MySQL rounds a quotient to four digits more than its first operand has: 2 / 3 is 0.6667 (manual 14.6.1)."""
    if right == 0:
        return None
    return _rounded(EXACT.divide(left, right), _fraction_digits(left) + _MORE_DIGITS)


def _multiply(left: Any, right: Any) -> Any:
    return _rounded(EXACT.multiply(left, right), _fraction_digits(left) + _fraction_digits(right))


def _rounded(number: Decimal, digits: int) -> Decimal:
    return _ROUNDING.quantize(number, Decimal(1).scaleb(-min(digits, _MOST_FRACTION_DIGITS)))


def _fraction_digits(number: Decimal | int) -> int:
    exponent = number.as_tuple().exponent if isinstance(number, Decimal) else 0
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _divide_floats(left: float, right: float) -> float | None:
    return None if right == 0 else left / right  # division by zero is NULL (MySQL manual 14.6.1)


_EXACT_ARITHMETIC: Final[Mapping[type[exp.Expr], Callable[[Any, Any], Any]]] = {
    exp.Add: EXACT.add,
    exp.Sub: EXACT.subtract,
    exp.Mul: _multiply,
    exp.Div: _divide,
}
_FLOAT_ARITHMETIC: Final[Mapping[type[exp.Expr], Callable[[Any, Any], Any]]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: _divide_floats,
}


def _map_known(operand: Evaluate, function: Callable[[Any], Any]) -> Evaluate:
    """``function`` of a value; NULL stays NULL."""

    def evaluate(row: WireRow) -> Any:
        value = operand(row)
        return None if value is None else function(value)

    return evaluate


def _both_known(left: Evaluate, right: Evaluate, function: Callable[[Any, Any], Any]) -> Evaluate:
    """``function`` of two values; NULL when either is."""

    def evaluate(row: WireRow) -> Any:
        first = left(row)
        if first is None:
            return None
        second = right(row)
        return None if second is None else function(first, second)

    return evaluate


def _is_wrapped_in(node: exp.In, table: TableSchema | None) -> bool:
    """MySQL may write a number of such a list into 64 bits with another sign: -1 IN (1.0, 18446744073709551615) is true of
    a BIGINT column, and 18446744073709551615 IN (1.0, -1) of an unsigned one (seen on 9.7)."""
    if table is None or not isinstance(node.this, exp.Column):
        return False
    column = _find_column(table, node.this.name)
    is_unsigned = column is not None and column.source_type.startswith("bigint") and "unsigned" in column.source_type
    held = range(1 << 64) if is_unsigned else range(-1 << 63, 1 << 63)
    integers = [number for item in node.expressions if (number := _integer(item)) is not None]
    return len(integers) < len(node.expressions) and any(number not in held for number in integers)


def _integer(node: exp.Expr) -> int | None:
    if isinstance(node, exp.Neg):
        number = _integer(node.this)
        return None if number is None else -number
    is_integer = isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit()
    return int(node.this) if is_integer else None


def _constant(domain: _Domain, value: Any, *, is_float: bool = False) -> _Term:
    return _Term(domain, lambda _row: value, is_float, value, True)


def _as_float(term: _Term) -> _Term:
    if term.is_float or term.domain is _Domain.ANY:
        return term
    if term.is_constant:
        return _constant(term.domain, float(term.constant), is_float=True)
    return _Term(term.domain, _map_known(term.evaluate, float), True)


def _is_text_constant(term: _Term) -> bool:
    return term.is_constant and term.domain is _Domain.TEXT


def _like_matcher(pattern: str, escape: str) -> Callable[[str], bool]:
    """``%`` any characters, ``_`` exactly one, ``escape`` the next one itself (MySQL manual 14.8.1).

    The parts between ``%`` are found one after the other, each at its first place: no text makes it try again, as a regular
    expression would.
    """
    parts, lengths = [""], [0]
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            parts.append("")
            lengths.append(0)
            continue
        if character == escape:
            parts[-1] += re.escape(next(characters, escape))
        else:
            parts[-1] += "." if character == "_" else re.escape(character)
        lengths[-1] += 1
    first, *middle = [re.compile(part, re.DOTALL) for part in parts]
    if not middle:
        return lambda text: first.fullmatch(text) is not None
    last = middle.pop()

    def is_like(text: str) -> bool:
        found = first.match(text)
        for part in middle:
            if found is None:
                return False
            found = part.search(text, found.end())
        last_begins = len(text) - lengths[-1]
        return found is not None and last_begins >= found.end() and last.fullmatch(text, last_begins) is not None

    return is_like


def _sql(node: Any) -> str:
    text = node.sql(dialect="mysql", unsupported_level=ErrorLevel.IGNORE)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _construct(node: exp.Expr) -> str:
    return "a function" if isinstance(node, exp.Func) else type(node).__name__.upper()


# --- columns ----------------------------------------------------------------------------------------------------------


def _find_column(table: TableSchema, name: str) -> Column | None:
    """MySQL compares column names without case (manual 11.2.3)."""
    for column in table.columns:
        if column.name.lower() == name.lower():
            return column
    return None


def _nearest(node: exp.Column, table: TableSchema) -> str:
    names = [column.name for column in table.columns]
    close = difflib.get_close_matches(node.name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(names[:20])}"


def _load(name: str, decode: Callable[[Any], Any] | None) -> Evaluate:
    """Reads one column of a row and decodes it."""

    def evaluate(row: WireRow) -> Any:
        value = row[name]
        if value is None:
            return None
        if value == UNAVAILABLE_VALUE:
            raise InvalidEvent(f"the log does not hold column {name!r}, which the row filter needs")
        if decode is None:
            return value
        try:
            return decode(value)
        except (ValueError, TypeError, binascii.Error) as error:
            raise UndecodableValue(f"column {name!r} holds a value that is not of its type") from error

    return evaluate


_WHOLE_NUMBERS: Final = frozenset(
    {
        LogicalKind.BOOLEAN,
        LogicalKind.INT8,
        LogicalKind.INT16,
        LogicalKind.INT32,
        LogicalKind.INT64,
        LogicalKind.YEAR,
    }
)


def _reading_of(column: Column) -> tuple[_Domain, Callable[[Any], Any] | None] | None:
    """The domain of a column's values and how its JSON form is read; None where it cannot be compared at all."""
    match column.logical_type.kind:
        case LogicalKind.INT64 if "unsigned" in column.source_type:
            return _Domain.NUMBER, lambda number: number + 2**64 if number < 0 else number
        case kind if kind in _WHOLE_NUMBERS:
            return _Domain.NUMBER, int
        case LogicalKind.FLOAT32:
            return _Domain.NUMBER, _single
        case LogicalKind.FLOAT64:
            return _Domain.NUMBER, float
        case LogicalKind.DECIMAL:
            scale = column.logical_type.scale
            return _Domain.NUMBER, lambda text: decimal_of_wire(text, scale)
        case LogicalKind.VARIABLE_SCALE_DECIMAL:
            return _Domain.NUMBER, lambda number: decimal_of_wire(number["value"], number["scale"])
        case LogicalKind.BITS:
            return _Domain.NUMBER, lambda text: int.from_bytes(base64.b64decode(text), "little")
        case LogicalKind.STRING | LogicalKind.ENUM | LogicalKind.ENUM_SET | LogicalKind.INTERVAL:
            return _Domain.TEXT, None
        case LogicalKind.DECIMAL_TEXT:
            return _Domain.NUMBER, Decimal
        case LogicalKind.BYTES | LogicalKind.BASE64:
            return _Domain.BYTES, base64.b64decode
        case LogicalKind.BASE64_URL:
            return _Domain.BYTES, base64.urlsafe_b64decode
        case LogicalKind.HEX:
            return _Domain.BYTES, bytes.fromhex
        case LogicalKind.DATE | LogicalKind.CONNECT_DATE:
            return _Domain.MOMENT, lambda days: days * _DAY_US
        case LogicalKind.TIMESTAMP_MS | LogicalKind.CONNECT_TIMESTAMP:
            return _Domain.MOMENT, lambda millis: millis * 1000
        case LogicalKind.TIMESTAMP_US:
            return _Domain.MOMENT, int
        case LogicalKind.TIMESTAMP_NS:
            return _Domain.MOMENT, lambda nanos: nanos // 1000
        case LogicalKind.ZONED_TIMESTAMP | LogicalKind.ISO_TIMESTAMP | LogicalKind.ISO_DATE:
            return _Domain.MOMENT, _wire_moment_us
        case LogicalKind.TIME_MS | LogicalKind.CONNECT_TIME:
            return _Domain.CLOCK, lambda millis: millis * 1000
        case LogicalKind.MICRO_TIME | LogicalKind.MICRO_DURATION:
            return _Domain.CLOCK, int
        case LogicalKind.TIME_NS:
            return _Domain.CLOCK, lambda nanos: nanos // 1000
        case LogicalKind.ISO_TIME:
            return _Domain.CLOCK, lambda text: _clock_us(text.removesuffix("Z"))
        case LogicalKind.JSON | LogicalKind.XML:
            return _Domain.DOCUMENT, None
        case _:
            return None


def _single(number: float | str) -> float:
    """MySQL compares the four bytes that a FLOAT has: 0.1 in it is more than 0.1. A text is NaN or an infinity."""
    return float(struct.unpack("<f", struct.pack("<f", float(number)))[0])


# --- literals that stand for times and bytes ----------------------------------------------------------------------------

_DAY_US: Final = 86_400_000_000
_MOMENT: Final = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?)?Z?", re.ASCII
)
_WIRE_MOMENT: Final = re.compile(
    r"(-?\d{4})(-\d\d-\d\d(?:T\d\d:\d\d:\d\d)?)(\.\d{1,6})?\d{0,3}(?:Z|([+-])(\d\d):(\d\d))?", re.ASCII
)
_CYCLES: Final = 25
"""Of 400 years, after which the calendar begins again: it makes a year from -9999 on one that has four digits."""
_CLOCK: Final = re.compile(r"(-?)(\d{1,3}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?", re.ASCII)


def _wire_moment_us(text: str) -> int:
    """Of an event's text, which may have an offset, nanoseconds, and a year before 1 (Oracle's)."""
    match = _WIRE_MOMENT.fullmatch(text)
    if match is None:
        raise ValueError("no date or time")
    year, rest, micros, sign, hours, minutes = match.groups()
    shifted = int(year) + (_CYCLES * 400 if year.startswith("-") else 0)
    local = _moment_us(f"{shifted:04d}{rest}{micros or ''}") - (int(year) < 0) * _CYCLES * 146_097 * _DAY_US
    offset_us = 60_000_000 * (60 * int(hours or 0) + int(minutes or 0))
    return local + offset_us if sign == "-" else local - offset_us


def _moment_us(text: str) -> int:
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError("no date or time")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 60):
        raise ValueError("no date or time")
    # Days from civil; Python's own dates end at year 1 and refuse the 31 February that MySQL may store.
    era, year_of_era = divmod(year - (month <= 2), 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    days = era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
    return days * _DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000 + _fraction_us(match[7])


def _moment_of_literal(text: str) -> int:
    """MySQL compares with no day that its calendar lacks; zeros stand for parts that a date lacks (manual 13.2.2)."""
    moment = _moment_us(text)
    year, month, day = (int(part.rstrip("Z")) for part in re.split("[-T ]", text)[:3])
    if month and day:
        datetime.date(year or _LEAP_YEAR, month, day)
    return moment


_LEAP_YEAR: Final = 2000


def _clock_us(text: str) -> int:
    match = _CLOCK.fullmatch(text)
    if match is None or int(match[3]) > 59 or int(match[4] or 0) > 59:
        raise ValueError("no time of day")
    seconds = (int(match[2]) * 60 + int(match[3])) * 60 + int(match[4] or 0)
    micros = seconds * 1_000_000 + _fraction_us(match[5])
    return -micros if match[1] else micros


def _fraction_us(digits: str | None) -> int:
    return int((digits or "").ljust(6, "0"))


_TEXT_CONVERSIONS: Final[Mapping[_Domain, Callable[[str], Any]]] = {
    _Domain.MOMENT: _moment_of_literal,
    _Domain.CLOCK: _clock_us,
    _Domain.BYTES: str.encode,
}
_TYPED_LITERALS: Final[Mapping[Any, _Domain]] = {
    exp.DataType.Type.DATE: _Domain.MOMENT,
    exp.DataType.Type.TIMESTAMPTZ: _Domain.MOMENT,
    exp.DataType.Type.TIMESTAMP: _Domain.MOMENT,
    exp.DataType.Type.DATETIME: _Domain.MOMENT,
    exp.DataType.Type.TIME: _Domain.CLOCK,
}
