"""Places: the columns that they cover, and the columns that a warehouse must hold to be asked for them."""

import pyarrow as pa
import pytest

from libs.check.places import Order, PlaceColumn, can_stand_in, place_columns, place_of, share_between
from libs.check.projection import SourceTable
from libs.types.table import TableId

COLUMNS = (
    ("number", "bigint"), ("uuid", "binary"), ("code", "varchar"), ("id", "char"), ("name", "varchar"), ("kind", "enum"),
    ("price", "decimal"), ("note", "text"), ("old", "varchar"),
)  # fmt: skip
COLLATIONS = (
    ("code", "utf8mb4_bin"), ("id", "utf8mb4_0900_ai_ci"), ("name", "utf8mb4_da_0900_ai_ci"), ("kind", "utf8mb4_bin"),
    ("note", "utf8mb4_bin"), ("old", "latin1_swedish_ci"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("key", "orders"),
    [
        (("number", "uuid"), (Order.NUMBERS, Order.BYTES)),
        (("uuid", "number"), (Order.BYTES, Order.NUMBERS)),
        (("code", "id"), (Order.CODES, Order.SMALL_LETTERS)),
        (("old",), (Order.SMALL_LETTERS,)),
        (("number", "name", "code"), (Order.NUMBERS,)),  # Danes have aa after z
        (("kind",), ()),  # by the places of its values
        (("price",), ()),
        (("note",), ()),
        ((), ()),
    ],
)
def test_places_are_of_what_the_key_begins_with_while_both_ends_order_it_alike(
    key: tuple[str, ...], orders: tuple[Order, ...]
) -> None:
    table = SourceTable(TableId(database="shop", table="items"), COLUMNS, key, frozenset(key), COLLATIONS)

    found = place_columns(table)

    assert [column.name for column in found] == list(key[: len(orders)])
    assert tuple(column.order for column in found) == orders


@pytest.mark.parametrize(
    ("order", "held", "can"),
    [
        (Order.NUMBERS, pa.int64(), True),
        (Order.NUMBERS, pa.decimal128(20, 0), True),
        (Order.NUMBERS, pa.decimal128(20, 2), False),
        (Order.NUMBERS, pa.string(), False),
        (Order.BYTES, pa.binary(), True),
        (Order.BYTES, pa.binary(16), True),
        (Order.BYTES, pa.string(), False),  # written in base 64 or in hexadecimal
        (Order.CODES, pa.large_string(), True),
        (Order.SMALL_LETTERS, pa.string(), True),
        (Order.SMALL_LETTERS, pa.binary(), False),
    ],
)
def test_a_warehouse_is_asked_where_it_holds_what_elements_are_compared_with(
    order: Order, held: pa.DataType, can: bool
) -> None:
    assert can_stand_in(PlaceColumn("k", order), held) is can


def test_a_place_is_read_from_what_either_client_prints() -> None:
    columns = (PlaceColumn("a", Order.NUMBERS), PlaceColumn("b", Order.CODES))

    assert place_of(columns, ("-7", "x")) == place_of(columns, (b"-7", b"x")) == (-7, "x")


def test_how_far_a_text_is_goes_by_its_first_letters_and_digits() -> None:
    shares = [share_between(("0000",), ("ffff",), (place,)) for place in ("0000", "4000", "8000", "c-é", "ffff")]

    assert shares == sorted(shares)
    assert shares[0] == 0.0 and shares[-1] == 1.0 and 0.4 < shares[2] < 0.6
