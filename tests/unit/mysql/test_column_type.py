"""Column types: every spelling of a type is one type, and its text is the server's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.mysql.column_type import MysqlType, UnknownColumnType, parse_column_type
from libs.mysql.logical import canonical_default, column, logical_type
from libs.mysql.sql_lexer import SqlMode
from libs.types.value import LogicalKind


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("INTEGER(11)", "int"),
        ("int(5) zerofill", "int(5) unsigned zerofill"),
        ("int zerofill", "int(10) unsigned zerofill"),
        ("tinyint(1)", "tinyint(1)"),
        ("tinyint(1) unsigned", "tinyint unsigned"),
        ("tinyint(4)", "tinyint"),
        ("BOOL", "tinyint(1)"),
        ("serial", "bigint unsigned"),
        ("int3 signed", "mediumint"),
        ("dec", "decimal(10,0)"),
        ("NUMERIC(5) UNSIGNED", "decimal(5,0) unsigned"),
        ("fixed(6,2)", "decimal(6,2)"),
        ("decimal(0)", "decimal(10,0)"),
        ("float(24)", "float"),
        ("float(25)", "double"),
        ("float(7,3)", "float(7,3)"),
        ("double precision", "double"),
        ("real", "double"),
        ("bit", "bit(1)"),
        ("char", "char(1)"),
        ("char byte", "binary(1)"),
        ("national character varying(9)", "varchar(9)"),
        ("nchar varchar(3)", "varchar(3)"),
        ("long varchar", "mediumtext"),
        ("long varbinary", "mediumblob"),
        ("long", "mediumtext"),
        ("blob(20)", "tinyblob"),
        ("text(70000)", "mediumtext"),
        ("year(4)", "year"),
        ("timestamp(6)", "timestamp(6)"),
        ("datetime(0)", "datetime"),
        ("GeometryCollection", "geomcollection"),
        ("vector", "vector(2048)"),
        ("varchar(5) character set latin1 collate latin1_bin", "varchar(5)"),
        ("enum('a','with,comma','it''s', \"d\", 'e  ')", "enum('a','with,comma','it''s','d','e')"),
        (r"set('a\'b','c\\d')", r"set('a''b','c\\d')"),
        ("enum(x'C3A9')", "enum('é')"),
    ],
)
def test_every_spelling_is_the_servers_type(written: str, canonical: str) -> None:
    """Synonyms are resolved, defaults filled in, display widths gone; the text is SHOW CREATE TABLE's."""
    parsed = parse_column_type(written)

    assert str(parsed) == canonical
    assert parse_column_type(canonical) == parsed


@given(st.lists(st.text(min_size=1).map(lambda text: text.rstrip(" ") or "x"), min_size=1, max_size=5))
def test_members_of_any_text_are_read_back(members: list[str]) -> None:
    """Quotes, backslashes, commas and parentheses in members survive the type's text."""
    declared = MysqlType("enum", members=tuple(members))

    assert parse_column_type(str(declared)) == declared


def test_quotes_follow_the_sql_mode() -> None:
    """With NO_BACKSLASH_ESCAPES a backslash is a character as any other."""
    parsed = parse_column_type(r"enum('a\','b')", SqlMode(backslash_escapes=False))

    assert parsed.members == ("a\\", "b")


@pytest.mark.parametrize("written", ["", "integr", "int)", "varchar(5", "decimal(1,2,3)", "'int'", "int, b int"])
def test_an_unknown_type_is_refused_by_name(written: str) -> None:
    """The error names the type, so that a person knows which column to leave out."""
    with pytest.raises(UnknownColumnType, match="is no column type"):
        parse_column_type(written)


@pytest.mark.parametrize(
    ("source_type", "charset", "kind"),
    [
        ("tinyint unsigned", None, LogicalKind.INT16),
        ("smallint unsigned", None, LogicalKind.INT32),
        ("mediumint unsigned", None, LogicalKind.INT32),
        ("int unsigned", None, LogicalKind.INT64),
        ("bigint unsigned", None, LogicalKind.INT64),
        ("bit(1)", None, LogicalKind.BOOLEAN),
        ("bit(2)", None, LogicalKind.BITS),
        ("tinyint(1)", None, LogicalKind.INT16),
        ("datetime(3)", None, LogicalKind.TIMESTAMP_MS),
        ("datetime(4)", None, LogicalKind.TIMESTAMP_US),
        ("varchar(3)", "binary", LogicalKind.BYTES),
        ("varchar(3)", "utf8mb4", LogicalKind.STRING),
        ("float(7,4)", None, LogicalKind.FLOAT64),
        ("point", None, LogicalKind.POINT),
        ("geomcollection", None, LogicalKind.GEOMETRY),
        ("vector(3)", None, LogicalKind.FLOAT_VECTOR),
    ],
)
def test_logical_types_are_debeziums(source_type: str, charset: str | None, kind: LogicalKind) -> None:
    """Widths, signs, precisions and charsets choose the logical type as Debezium's default modes do."""
    assert logical_type(parse_column_type(source_type), charset).kind is kind


@pytest.mark.parametrize(
    ("source_type", "written", "canonical"),
    [
        ("int", " 29 ", "29"),
        ("int", "1.5", "2"),
        ("int", "0x10", "16"),
        ("tinyint(1)", "true", "1"),
        ("int(5) unsigned zerofill", "12", "00012"),
        ("decimal(8,3)", "1.2", "1.200"),
        ("decimal(5,0) unsigned zerofill", "3", "00003"),
        ("float", "16777217", "16777200"),
        ("float(7,3)", "1.1", "1.100"),
        ("double", "1e20", "1e20"),
        ("bit(4)", "5", "b'101'"),
        ("bit(4)", "b'0101'", "b'101'"),
        ("year", "99", "1999"),
        ("year", "5", "2005"),
        ("date", "20200102", "2020-01-02"),
        ("datetime(3)", "2020-1-2 3:4:5.6789", "2020-01-02 03:04:05.679"),
        ("datetime", "2020-12-31 23:59:59.7", "2021-01-01 00:00:00"),
        ("datetime", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
        ("timestamp(2)", "now(2)", "CURRENT_TIMESTAMP(2)"),
        ("datetime", "localtime", "CURRENT_TIMESTAMP"),
        ("time", "8:00", "08:00:00"),
        ("time(3)", "80000.5", "08:00:00.500"),
        ("time", "-12:30:00", "-12:30:00"),
        ("set('a','b')", "b,a", "a,b"),
        ("binary(3)", "a", "0x610000"),
        ("varbinary(9)", "0x00FF", "0x00FF"),
        ("varchar(9)", "0x41", "0x41"),
        ("date", "no date at all", "no date at all"),
    ],
)
def test_a_default_is_brought_to_the_servers_form(source_type: str, written: str, canonical: str) -> None:
    """Seen on MySQL 9.7: so a column is equal whether its definition or its ALTER was read."""
    assert canonical_default(parse_column_type(source_type), written) == canonical


def test_only_character_types_have_a_charset() -> None:
    """``information_schema`` and statements may say one for others; it means nothing there."""
    assert column("a", "int", charset="utf8mb4").charset is None
    assert column("a", "enum('x')", charset="utf8").charset == "utf8mb3"
