"""Changes of a type that may change stored values, in which a tenant's rows could then differ."""

import pytest

from libs.mysql.ddl import show_create_to_schema, unseen_rows
from libs.mysql.unseen_values import may_change_values
from libs.types.table import Column, TableId


def column(definition: str) -> Column:
    (found,) = show_create_to_schema(TableId(database="d", table="t"), f"CREATE TABLE t (c {definition})").columns
    return found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("INT", "BIGINT"),
        ("INT UNSIGNED", "BIGINT"),
        ("INT", "DECIMAL(10)"),
        ("INT", "DOUBLE"),
        ("INT", "VARCHAR(20)"),
        ("DECIMAL(8,2)", "DECIMAL(10,4)"),
        ("DATETIME", "DATETIME(6)"),
        ("DATE", "DATETIME"),
        ("VARCHAR(9)", "VARCHAR(10)"),
        ("VARCHAR(9)", "TEXT"),
        ("CHAR(9)", "VARCHAR(9)"),
        ("VARCHAR(9) CHARACTER SET latin1", "VARCHAR(9) CHARACTER SET utf8mb4"),
        ("ENUM('a','b')", "ENUM('b','a','c')"),
        ("BIT(3)", "BIT(8)"),
        ("VARBINARY(4)", "BLOB"),
        ("INT NOT NULL", "INT"),
        ("INT UNSIGNED", "DECIMAL(20,2) UNSIGNED"),
        ("INT", "CHAR(11)"),
        ("DECIMAL(5,2)", "VARCHAR(8)"),
        ("SET('a','b')", "SET('c','a','d','b')"),
        ("INT NOT NULL AUTO_INCREMENT PRIMARY KEY", "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY"),
    ],
)
def test_what_holds_as_much_changes_nothing(old: str, new: str) -> None:
    assert not may_change_values(column(old), column(new), is_strict=False)


@pytest.mark.parametrize(
    ("old", "new", "also_strict"),
    [
        ("BIGINT", "INT", False),
        ("INT", "DECIMAL(20,2) UNSIGNED", False),
        ("INT", "DOUBLE UNSIGNED", False),
        ("INT", "VARCHAR(10)", False),
        ("DECIMAL(5,2)", "CHAR(7)", False),
        ("SET('a','b')", "SET('b','a')", True),
        ("INT NOT NULL PRIMARY KEY", "INT NOT NULL AUTO_INCREMENT PRIMARY KEY", True),
        ("INT", "INT UNSIGNED", False),
        ("INT", "INT NOT NULL", False),
        ("DECIMAL(10,4)", "DECIMAL(10,2)", True),
        ("DECIMAL(10,2)", "DECIMAL(8,2)", False),
        ("DECIMAL(10,2)", "INT", True),
        ("DOUBLE", "FLOAT", True),
        ("FLOAT", "DOUBLE", True),
        ("DOUBLE", "DOUBLE(10,2)", True),
        ("BIGINT", "DOUBLE", True),
        ("DATETIME(6)", "DATETIME(3)", True),
        ("DATETIME", "DATE", True),
        ("TIME(6)", "TIME", True),
        ("DATETIME", "TIMESTAMP", True),
        ("VARCHAR(10)", "VARCHAR(5)", True),
        ("VARCHAR(10)", "CHAR(10)", True),
        ("TEXT", "TINYTEXT", True),
        ("VARCHAR(9) CHARACTER SET utf8mb4", "VARCHAR(9) CHARACTER SET latin1", False),
        ("ENUM('a','b')", "ENUM('a')", True),
        ("VARCHAR(9)", "ENUM('a')", True),
        ("BIT(8)", "BIT(3)", False),
        ("JSON", "TEXT", True),
    ],
)
def test_what_holds_less_may_change_values(old: str, new: str, also_strict: bool) -> None:
    assert may_change_values(column(old), column(new), is_strict=False)
    assert may_change_values(column(old), column(new), is_strict=True) == also_strict


@pytest.mark.parametrize(
    ("definition", "is_reported"),
    [
        ("TIMESTAMP NOT NULL DEFAULT ('1970-01-01 00:00:01')", True),
        ("TIMESTAMP NULL DEFAULT '2024-01-02 03:04:05'", True),
        ("TIMESTAMP NOT NULL DEFAULT '0000-00-00 00:00:00'", False),
        ("JSON DEFAULT ('{\"a\": 1}')", False),
        ("JSON DEFAULT (JSON_OBJECT('a', RAND()))", True),
        ("JSON", False),
        ("JSON DEFAULT (NULL)", False),
        ("DATE DEFAULT '0000-05-10'", True),
        ("DATE DEFAULT '0000-00-10'", False),
        ("DATETIME DEFAULT ('2024-01-02 03:04:05')", False),
        ("INT DEFAULT (5)", False),
        ("VARCHAR(40) DEFAULT (UUID())", True),
    ],
)
def test_a_new_column_is_reported_where_no_sink_knows_the_value_of_earlier_rows(
    definition: str, is_reported: bool
) -> None:
    table = show_create_to_schema(TableId(database="d", table="t"), "CREATE TABLE t (id INT PRIMARY KEY)")
    statement = f"ALTER TABLE t ADD COLUMN c {definition}"
    found = unseen_rows("d", statement, tables={table.table_id: table})

    assert (found is not None) == is_reported
