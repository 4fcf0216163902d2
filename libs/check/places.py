"""Where rows stand in a table's key, by the columns that it begins with and that both ends order alike.

    whole numbers                                  by value
    BINARY, VARBINARY                              by their bytes; written in hexadecimal
    texts of a binary collation                    by their characters' codes
    texts of one that is no language's and         the same, written in small letters
      knows no case (most of MySQL's defaults)

Texts are so ordered while they hold *plain* characters alone, as ids do: beyond those each collation has an order of its own,
which no warehouse knows. A row of which a text holds any other has no place.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from libs.check.canonical_text import WHOLE_NUMBERS, End
from libs.check.parts import KeySql, number_key
from libs.check.projection import SourceTable
from libs.mysql.identifiers import quote_identifier
from libs.warehouse_readers.warehouse import StoredTable, TextSpan

Place = tuple[int | str, ...]
"""Of a row: one element for each column."""


class Order(enum.Enum):
    """The order of a column's elements, at both ends."""

    NUMBERS = "numbers"
    BYTES = "bytes"
    CODES = "codes"
    SMALL_LETTERS = "small letters"


@dataclass(frozen=True, slots=True)
class PlaceColumn:
    """A column that places are of."""

    name: str
    """The source's."""
    order: Order


_PLAIN: Final = {
    # Punctuation comes before letters in one collation and after them in the next; the hyphen is before digits in all.
    Order.SMALL_LETTERS: "0-9A-Za-z-",
    Order.CODES: "0-9A-Za-z_.:@/+=-",
}
"""As a regular expression lists them."""
_UTF8: Final = ("utf8", "utf8mb3", "utf8mb4")
COLLATIONS: Final = {
    **dict.fromkeys(("ascii_bin", "latin1_bin", "utf8mb4_0900_bin"), Order.CODES),
    **{f"{charset}_bin": Order.CODES for charset in _UTF8},
    **dict.fromkeys(("ascii_general_ci", "latin1_general_ci", "latin1_swedish_ci"), Order.SMALL_LETTERS),
    **dict.fromkeys(("utf8mb4_0900_ai_ci", "utf8mb4_0900_as_ci"), Order.SMALL_LETTERS),
    **{
        f"{charset}_{name}_ci": Order.SMALL_LETTERS
        for charset in _UTF8
        for name in ("general", "unicode", "unicode_520")
    },
}
"""By name, of MySQL's: those whose order of plain texts is known (tests/integration/test_check_in_chunks.py asks MySQL)."""
_CHARACTERS_OF_A_SHARE: Final = 8
_DIGITS: Final = 36


def place_columns(table: SourceTable) -> tuple[PlaceColumn, ...]:
    """Those that places are of; none: the key begins with something else."""
    types, collations = dict(table.columns), dict(table.collations)
    found: list[PlaceColumn] = []
    for name in table.key:
        order = _order(types.get(name), collations.get(name))
        if order is None:
            break
        found.append(PlaceColumn(name, order))
    return tuple(found)


def _order(data_type: str | None, collation: str | None) -> Order | None:
    if data_type in WHOLE_NUMBERS:
        return Order.NUMBERS
    if data_type in ("binary", "varbinary"):
        return Order.BYTES
    return COLLATIONS.get(collation or "") if data_type in ("char", "varchar") else None


def place_of(columns: Sequence[PlaceColumn], printed: Sequence[str | bytes | None]) -> Place:
    """From MySQL's text of ``selected``."""
    return tuple(_element(column, value or "") for column, value in zip(columns, printed, strict=True))


def _element(column: PlaceColumn, printed: str | bytes) -> int | str:
    text = printed.decode() if isinstance(printed, bytes) else printed
    return int(text) if column.order is Order.NUMBERS else text


def selected(column: PlaceColumn) -> str:
    """SQL for the source: the element of a row that has a place."""
    name = quote_identifier(column.name)
    match column.order:
        case Order.NUMBERS:
            return f"{name} + 0"  # without the zeros of ZEROFILL
        case Order.BYTES:
            return f"HEX({name})"
        case Order.CODES:
            return name
        case Order.SMALL_LETTERS:
            return f"LOWER({name})"


def source_literals(columns: Sequence[PlaceColumn], place: Place) -> list[str]:
    """Literals to compare the source's columns with, so that an index finds the place."""
    return [_source_literal(column, element) for column, element in zip(columns, place, strict=True)]


def _source_literal(column: PlaceColumn, element: int | str) -> str:
    match column.order:
        case Order.NUMBERS:
            return str(element)
        case Order.BYTES:
            return f"X'{element}'"
        case _:
            return f"_utf8mb4'{element}'"  # of plain characters: nothing to escape


def source_plain(columns: Sequence[PlaceColumn]) -> list[str]:
    """SQL for the source: conditions that are all true of the rows that have a place, and of no others."""
    return [
        _is_plain(quote_identifier(column.name), _PLAIN[column.order]) for column in columns if column.order in _PLAIN
    ]


def _is_plain(name: str, plain: str) -> str:
    """Whether a text is ASCII is asked first: without case MySQL takes ſ for an s."""
    return f"(LENGTH(CONVERT({name} USING utf8mb4)) = CHAR_LENGTH({name}) AND {name} NOT REGEXP '[^{plain}]')"


def warehouse_key(column: PlaceColumn, stored: StoredTable, seen_as: str) -> KeySql:
    """The expression to compare in the warehouse, where the column is ``seen_as``."""
    held, end = stored.sql_name(seen_as), End(stored.sql_dialect.value)
    match column.order:
        case Order.NUMBERS:
            return number_key(held, end)
        case Order.BYTES:
            held = f"upper(encode({held}, 'hex'))" if end is End.POSTGRESQL else f"hex({held})"
            return KeySql(_by_codes(held, end), end)
        case Order.CODES:
            return KeySql(_by_codes(held, end), end)
        case Order.SMALL_LETTERS:
            return KeySql(f"lower({_by_codes(held, end)})", end)


def warehouse_plain(column: PlaceColumn, stored: StoredTable, seen_as: str) -> str | None:
    """The condition of ``source_plain`` there; None: each row has a place."""
    if (plain := _PLAIN.get(column.order)) is None:
        return None
    end = End(stored.sql_dialect.value)
    held = _by_codes(stored.sql_name(seen_as), end)
    others = f"'[^{plain}]'"
    found = {
        End.CLICKHOUSE: f"match({held}, {others})",
        End.DUCKDB: f"regexp_matches({held}, {others})",
        End.POSTGRESQL: f"{held} ~ {others}",
    }[end]
    return f"NOT {found}"


def text_span(column: PlaceColumn, seen_as: str, low: str, high: str) -> TextSpan | None:
    """Where a warehouse's texts lie whose elements are between ``low`` and ``high``; None: ``column`` is of bytes.

    >>> text_span(PlaceColumn("id", Order.SMALL_LETTERS), "id", "3f-", "a0")
    TextSpan(column='id', low='3F-', high='a0')
    """
    if column.order is Order.BYTES:
        return None
    # A text in capitals comes before the same one in small letters, and has the same order among its like.
    return TextSpan(seen_as, low.upper() if column.order is Order.SMALL_LETTERS else low, high)


def can_stand_in(column: PlaceColumn, arrow_type: pa.DataType) -> bool:
    """Whether a warehouse's ``arrow_type`` can be compared with its elements."""
    match column.order:
        case Order.NUMBERS:
            is_whole = pa.types.is_decimal(arrow_type) and arrow_type.scale == 0
            return bool(pa.types.is_integer(arrow_type) or is_whole)
        case Order.BYTES:
            kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
            return any(is_kind(arrow_type) for is_kind in kinds)
        case _:
            return bool(pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type))


def share_between(lowest: Place, highest: Place, place: Place) -> float:
    """How much of a key lies before ``place``, about, by its first column.

    >>> share_between((100,), (200,), (125,)), share_between(("00",), ("ff",), ("80",)) > 0.5, share_between((1,), (1,), (1,))
    (0.25, True, 1.0)
    """
    low, high, here = _on_a_scale(lowest[0]), _on_a_scale(highest[0]), _on_a_scale(place[0])
    return 1.0 if high <= low else min(1.0, max(0.0, (here - low) / (high - low)))


def _on_a_scale(element: int | str) -> int:
    """Of a text its first letters and digits, as a number."""
    if isinstance(element, int):
        return element
    characters = element.lower()[:_CHARACTERS_OF_A_SHARE].ljust(_CHARACTERS_OF_A_SHARE, "0")
    digits = "".join(each if each.isascii() and each.isalnum() else "0" for each in characters)
    return int(digits, _DIGITS)


def _by_codes(text: str, end: End) -> str:
    """PostgreSQL would compare, and make letters small, as its database's language has it."""
    return f'({text} COLLATE "C")' if end is End.POSTGRESQL else text
