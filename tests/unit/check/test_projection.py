"""The rows and columns of a table that a tenant should have."""

import hashlib
import json
from typing import Any

import pytest

from libs.check.projection import (
    ANY_HASH,
    SourceTable,
    as_stored,
    delivered_mask,
    expected_tables,
    masked_value,
)
from libs.mysql.logical import column
from libs.types.table import TableId, TableSchema
from libs.types.tenant import (
    ColumnMask,
    ColumnRename,
    EncryptMask,
    FormatMask,
    HashMask,
    HmacMask,
    KeyFrom,
    NameAdjustment,
    PreservedFormat,
    RowFilter,
    SourceSelection,
)
from services.router.routes.project import compile_projection

ORDERS = SourceTable(
    TableId(database="shop", table="orders"),
    (("id", "bigint"), ("email", "varchar"), ("note", "text"), ("total", "decimal")),
    ("id",),
)
AUDIT = SourceTable(TableId(database="shop", table="audit"), (("id", "bigint"),), ("id",))
HASH = ColumnMask(columns=".*", hash=HashMask(salt="pepper"))


def test_a_column_whose_name_changed_its_case_is_the_one_that_the_warehouse_has() -> None:
    """``RENAME COLUMN note TO Note``, of the key too; of two that differ in case alone each is its own."""
    [table] = expected_tables(SourceSelection(name="shop", include_tables=(r"shop\.orders",)), (ORDERS,))

    found = as_stored(table, {"ID", "Email", "email", "NOTE"})

    assert [column.seen_as for column in found.columns] == ["ID", "email", "NOTE", "total"]
    assert [column.name for column in found.columns] == ["id", "email", "note", "total"]
    assert found.key == ("id",)


def test_only_selected_tables_are_expected() -> None:
    """Patterns match whole names; an exclusion wins."""
    selection = SourceSelection(name="shop", include_tables=(r"shop\..*",), exclude_tables=(r"shop\.aud",))
    narrow = SourceSelection(name="shop", include_tables=(r"shop\..*",), exclude_tables=(r"shop\.audit",))

    assert len(expected_tables(selection, [ORDERS, AUDIT])) == 2
    assert [table.table_id for table in expected_tables(narrow, [ORDERS, AUDIT])] == [ORDERS.table_id]


def test_columns_and_rows_are_narrowed() -> None:
    """Filters are joined with AND; an excluded column must not be there; the first mask that matches counts."""
    selection = SourceSelection(
        name="shop",
        row_filters=(
            RowFilter(tables=r"shop\.orders", where="total > 1 OR id = 2"),
            RowFilter(tables=r"shop\..*", where="id > 0"),
            RowFilter(tables=r"other\..*", where="FALSE"),
        ),
        exclude_columns=(r"shop\.orders\.note",),
        masks=(
            ColumnMask(columns=r".*\.email", constant="x"),
            ColumnMask(columns=r"shop\.orders\.email", hash=HashMask(salt="s")),
        ),
    )

    (table,) = expected_tables(selection, [ORDERS])

    assert table.where == "(total > 1 OR id = 2) AND (id > 0)"
    assert [column.name for column in table.columns] == ["id", "email", "total"]
    assert table.withheld == ("note",)
    assert table.columns[1].mask is not None
    assert table.columns[1].mask.constant == "x"
    assert not table.is_key_masked


def test_only_included_columns_are_expected() -> None:
    """An exclusion wins; all others must not be there."""
    selection = SourceSelection(
        name="shop", include_columns=(r".*\.(id|email|note)", r".*\.tot"), exclude_columns=(r".*\.note",)
    )

    (table,) = expected_tables(selection, [ORDERS])

    assert [column.name for column in table.columns] == ["id", "email"]
    assert table.withheld == ("note", "total")


def test_columns_are_expected_under_the_tenants_names() -> None:
    """The name that the source is asked by, and the name that the warehouse is asked by."""
    prices = SourceTable(ORDERS.table_id, (("id", "bigint"), ("unit-price", "decimal")), ("id",))

    (table,) = expected_tables(SourceSelection(name="shop"), [prices], NameAdjustment.AVRO)

    assert [(column.name, column.seen_as) for column in table.columns] == [("id", "id"), ("unit-price", "unit_price")]


@pytest.mark.parametrize(
    ("data_type", "text", "hashed"),
    [
        ("varchar", "ä@b", "ä@b"),
        ("bigint", "18446744073709551615", "-1"),
        ("decimal", "12.50", "12.50"),
        ("date", "1970-01-02", "1"),
        ("datetime", "1970-01-01 00:00:01.000", "1000"),
        ("datetime", "1970-01-01 00:00:01.000000", "1000000"),
        ("varbinary", b"\x00\x01", "AAE="),
    ],
)
def test_a_hash_is_of_the_events_text(data_type: str, text: str | bytes, hashed: str) -> None:
    """The salt, then the value as Debezium's JSON spells it."""
    expected = hashlib.sha256(b"pepper" + hashed.encode()).hexdigest()

    assert masked_value(HASH, data_type, text) == expected


def test_null_stays_null_under_a_hash_and_not_under_a_constant() -> None:
    """A constant hides even that there was nothing."""
    assert masked_value(HASH, "varchar", None) is None
    assert masked_value(ColumnMask(columns=".*", constant="***"), "varchar", None) == "***"


def test_where_spelling_decides_only_the_form_is_checked() -> None:
    """A float has several right texts: that it is a hash of the right length is all that can be said."""
    assert masked_value(HASH, "float", "0.1") == ANY_HASH
    assert delivered_mask(HASH, "float", "0" * 64) == ANY_HASH
    assert delivered_mask(HASH, "float", "0.1") == "0.1"


KEY = b"0123456789abcdef"
KEYED = KeyFrom(file="pii")
MASKS = {
    "hash": {"hash": HashMask(salt="pepper")},
    "hmac": {"hmac": HmacMask(key_from=KEYED, algorithm="sha512")},
    "encrypt": {"encrypt": EncryptMask(key_from=KEYED)},
    "set_null": {"set_null": True},
    "constant": {"constant": "***"},
}
TEXT_MASKS = {
    "keep_last": {"keep_last": 3},
    "truncate": {"truncate_chars": 3},
    "email": {"format_preserving": FormatMask(kind=PreservedFormat.EMAIL, key_from=KEYED)},
    "phone": {"format_preserving": FormatMask(kind=PreservedFormat.PHONE, key_from=KEYED)},
}
VALUES = [
    ("varchar(80)", "varchar", "Ann.Smith@example.org", '"Ann.Smith@example.org"'),
    ("varchar(80)", "varchar", "+49 170 1234567", '"+49 170 1234567"'),
    ("varchar(80)", "varchar", "ä", '"ä"'),
    ("varchar(80)", "varchar", None, "null"),
    ("bigint", "bigint", "-7", "-7"),
    ("bigint unsigned", "bigint", "18446744073709551615", "-1"),
    ("decimal(10,2)", "decimal", "12.50", '"BOI="'),
    ("date", "date", "1970-01-02", "1"),
    ("double", "double", "0.1", "0.1"),
    ("varbinary(9)", "varbinary", b"\x00\x01", '"AAE="'),
]


@pytest.mark.parametrize("way", [*MASKS, *TEXT_MASKS])
@pytest.mark.parametrize(("source_type", "data_type", "text", "wire"), VALUES)
def test_router_and_check_agree(way: str, source_type: str, data_type: str, text: Any, wire: str) -> None:
    """The router's masked value, undone or not, is the one that is expected from MySQL's own text."""
    if way in TEXT_MASKS and data_type != "varchar":
        return
    mask = ColumnMask(columns=".*", **{**MASKS, **TEXT_MASKS}[way])
    table = TableSchema(table_id=ORDERS.table_id, columns=(column("c", source_type),))
    projection = compile_projection(table, SourceSelection(name="s", masks=(mask,)), key_of=lambda _: KEY)

    delivered = json.loads(projection.masks["c"](wire.encode()))

    assert delivered_mask(mask, data_type, delivered, KEY) == masked_value(mask, data_type, text, KEY)
    if text is not None and way not in ("truncate", "keep_last"):
        assert delivered != text


@pytest.mark.parametrize("way", [way for way in {**MASKS, **TEXT_MASKS} if way not in ("set_null", "constant")])
def test_another_value_is_a_difference(way: str) -> None:
    """Also where only the undone form is compared."""
    mask = ColumnMask(columns=".*", **{**MASKS, **TEXT_MASKS}[way])
    values = ("+49 170 1234567", "+48 171 1234568") if way == "phone" else ("ann@example.org", "bob@example.com")
    table = TableSchema(table_id=ORDERS.table_id, columns=(column("c", "varchar(80)"),))
    projection = compile_projection(table, SourceSelection(name="s", masks=(mask,)), key_of=lambda _: KEY)
    delivered = json.loads(projection.masks["c"](json.dumps(values[0]).encode()))

    assert delivered_mask(mask, "varchar", delivered, KEY) != masked_value(mask, "varchar", values[1], KEY)


def test_a_value_in_the_clear_is_a_difference() -> None:
    """Where a key's mask should stand."""
    for way in ("encrypt", "hmac", "email"):
        mask = ColumnMask(columns=".*", **{**MASKS, **TEXT_MASKS}[way])
        clear = "ann@example.org"

        assert delivered_mask(mask, "varchar", clear, KEY) != masked_value(mask, "varchar", clear, KEY)


def test_renamed_columns_are_expected_under_their_new_names() -> None:
    """By the first rename that names them, and only then made such as Avro takes."""
    selection = SourceSelection(name="shop", rename_columns=(ColumnRename(columns=r".*\.note", to="remark-s"),))

    (table,) = expected_tables(selection, [ORDERS], NameAdjustment.AVRO)

    assert [column.seen_as for column in table.columns] == ["id", "email", "remark_s", "total"]
