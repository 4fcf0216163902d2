"""What a tenant should have of a table."""

import hashlib

import pytest

from libs.local.check.projection import ANY_HASH, SourceTable, delivered_mask, expected_tables, masked_value
from libs.types.table import TableId
from libs.types.tenant import ColumnMask, HashMask, NameAdjustment, RowFilter, SourceSelection

ORDERS = SourceTable(
    TableId(database="shop", table="orders"),
    (("id", "bigint"), ("email", "varchar"), ("note", "text"), ("total", "decimal")),
    ("id",),
)
AUDIT = SourceTable(TableId(database="shop", table="audit"), (("id", "bigint"),), ("id",))
HASH = ColumnMask(columns=".*", hash=HashMask(salt="pepper"))


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


def test_columns_are_expected_under_the_tenants_names() -> None:
    """What the source is asked by, and what the warehouse is asked by."""
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
