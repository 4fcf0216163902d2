"""A table map's facts beyond widths, against the schema that is held."""

import pytest

from libs.errors import SchemaContradiction
from libs.mysql.ddl import show_create_to_schema
from libs.mysql.table_map_metadata import Collations, TableFacts, parse_facts, require_agreement
from libs.types.table import TableId, TableSchema

TABLE = """CREATE TABLE t (
  y YEAR, u INT UNSIGNED NOT NULL, s BIGINT, e ENUM('a','ź') CHARACTER SET latin2, st SET('x','y'), name VARCHAR(9),
  PRIMARY KEY (u)
)"""
NAMES = ("y", "u", "s", "e", "st", "name")


def schema(definition: str = TABLE) -> TableSchema:
    return show_create_to_schema(TableId(database="d", table="t"), definition)


def packed(*texts: bytes) -> bytes:
    return b"".join(bytes((len(text),)) + text for text in texts)


def field(kind: int, value: bytes) -> bytes:
    return bytes((kind, len(value))) + value


def metadata(
    *,
    unsigned: int = 0b1100_0000,
    key: bytes = b"\x01",
    members: bytes = b"\xbc",
    texts: bytes = field(2, b"\xfc\xff\x00"),
    sets: bytes = field(11, b"\x09\xfc\xff\x00"),
) -> bytes:
    """As a server with binlog_row_metadata=FULL writes it: the collations are utf8mb4_0900_ai_ci and latin2_general_ci."""
    return b"".join(
        (
            field(1, bytes((unsigned,))),
            texts,
            field(4, packed(*(name.encode() for name in NAMES))),
            field(5, b"\x02" + packed(b"x", b"y")),
            field(6, b"\x02" + packed(b"a", members)),
            field(8, key),
            sets,
        )
    )


def test_all_facts_are_read() -> None:
    """Fields stand in any order, each after its type and length."""
    assert parse_facts(metadata()) == TableFacts(
        unsigned=b"\xc0",
        names=NAMES,
        set_members=((b"x", b"y"),),
        enum_members=((b"a", b"\xbc"),),
        key=(1,),
        text_collations=Collations(255),
        member_collations=Collations(None, {0: 9, 1: 255}),
    )
    assert parse_facts(field(2, b"\x08\x01\x3f\x03\x2e")).text_collations == Collations(8, {1: 63, 3: 46})
    assert parse_facts(field(9, b"\x01\x00\x05\x0a")).key == (1, 5)
    assert parse_facts(b"") == TableFacts()


def test_a_true_schema_agrees() -> None:
    """Members are compared in their column's character set, and a YEAR is no sign of anything."""
    require_agreement(schema(), parse_facts(metadata()))
    require_agreement(schema(), parse_facts(b""))


@pytest.mark.parametrize(
    ("facts", "definition", "told"),
    [
        (metadata(), TABLE.replace("name VARCHAR", "nick VARCHAR"), r"d\.t\.nick: the log calls it 'name'"),
        (metadata(unsigned=0b1110_0000), TABLE, r"d\.t\.s: the log has it unsigned"),
        (metadata(unsigned=0b1000_0000), TABLE, r"d\.t\.u: the log has it signed"),
        (metadata(members=b"b"), TABLE, r"d\.t\.e: the log gives the enum other members"),
        (metadata(), TABLE.replace("'y'", "'z'"), r"d\.t\.st: the log gives the set other members"),
        (
            metadata(texts=field(2, b"\x08")),
            TABLE,
            r"d\.t\.name: the log has it in the character set latin1 where .* utf8mb4",
        ),
        (metadata(texts=field(3, b"\x3f")), TABLE, r"d\.t\.name: the log has it in the character set binary"),
        (metadata(sets=field(10, b"\x09")), TABLE, r"d\.t\.st: the log has it in the character set latin2"),
        (metadata(key=b"\x02"), TABLE, r"primary key \(s\) where .* \(u\)"),
    ],
)
def test_a_contradiction_names_the_column(facts: bytes, definition: str, told: str) -> None:
    """Though the widths of both are the same."""
    with pytest.raises(SchemaContradiction, match=told):
        require_agreement(schema(definition), parse_facts(facts))


def test_collations_of_bytes_and_of_a_later_server_agree() -> None:
    """A BLOB has collation 63; a number that is not known here says nothing."""
    own = schema("CREATE TABLE t (b BLOB, a VARCHAR(9) CHARACTER SET latin1, c CHAR(3) BYTE, j JSON, g POINT)")

    require_agreement(own, TableFacts(text_collations=Collations(63, {1: 8})))
    require_agreement(own, TableFacts(text_collations=Collations(63, {1: 2000})))


def test_a_vector_is_among_the_texts_and_an_unknown_one_says_nothing() -> None:
    own = schema("CREATE TABLE t (v VECTOR(3), t VARCHAR(3) CHARACTER SET latin1, b BLOB)")

    require_agreement(own, TableFacts(text_collations=Collations(63, {1: 8})))
    require_agreement(own, TableFacts(text_collations=Collations(None, {0: 63, 1: 8, 2: 63})))
    require_agreement(own, TableFacts(text_collations=Collations(None, {0: 8, 1: 63})))


def test_members_of_the_charset_binary_are_bytes_that_a_definition_prints() -> None:
    """``ENUM(…) CHARACTER SET binary`` has no codec, and is read. Bytes that are no UTF-8 are in no definition as they are."""
    own = schema("CREATE TABLE t (e ENUM('a','é') CHARACTER SET binary, s SET('x') CHARACTER SET binary)")

    require_agreement(own, TableFacts(enum_members=((b"a", "é".encode()),), set_members=((b"x",),)))
    require_agreement(own, TableFacts(enum_members=((b"a", b"\xe9"),)))
    with pytest.raises(SchemaContradiction):
        require_agreement(own, TableFacts(enum_members=((b"a", b"b"),)))
