"""The SELECTs of chunks, by the reference's cases, and the keys that are refused."""

import json
from pathlib import Path

import msgspec
import pytest

from libs.mysql.chunk_query import (
    can_order_by,
    chunk_statement,
    is_unique_key,
    last_key_statement,
    pack_key,
    snapshot_key,
)
from libs.mysql.ddl import show_create_to_schema
from libs.types.table import TableId, TableSchema

CASES = {
    case["id"]: case
    for case in json.loads(Path("tests/golden/cases/f_incremental_snapshot.json").read_text(encoding="utf-8"))[
        "chunk_queries"
    ]
}


def table(definition: str) -> TableSchema:
    return show_create_to_schema(TableId(database="s", table="t"), f"CREATE TABLE `t` ({definition})", "utf8mb4")


ONE = table("`pk1` int NOT NULL, PRIMARY KEY (`pk1`)")
TWO = table("`pk1` int NOT NULL, `pk2` int NOT NULL, `val1` text, PRIMARY KEY (`pk1`,`pk2`)")
THREE = table("`pk1` int NOT NULL, `pk2` int NOT NULL, `pk3` int NOT NULL, PRIMARY KEY (`pk1`,`pk2`,`pk3`)")


def place(*values: object) -> bytes:
    return pack_key([str(value).encode() for value in values])


def test_a_key_of_one_column() -> None:
    """As the reference's ``pk1 > 5 AND pk1 <= 10``."""
    case = CASES["chunk-next-one-pk-row-constructor"]
    statement = chunk_statement(
        ONE, "*", ONE.key, behind=place(*case["chunk_end"]), until=place(*case["maximum"]), limit=9
    )

    assert statement == "SELECT * FROM `s`.`t` WHERE (`pk1` > 5) AND (NOT (`pk1` > 10)) ORDER BY `pk1` LIMIT 9"


def test_a_key_of_three_columns() -> None:
    """The reference's alternatives, and a range of the first column in front of them that MySQL finds an index for."""
    case = CASES["chunk-three-pk"]
    statement = chunk_statement(
        THREE, "*", THREE.key, behind=place(*case["chunk_end"]), until=place(*case["maximum"]), limit=9
    )

    behind = "(`pk1` > 1) OR (`pk1` = 1 AND `pk2` > 5) OR (`pk1` = 1 AND `pk2` = 5 AND `pk3` > 3)"
    until = "(`pk1` > 10) OR (`pk1` = 10 AND `pk2` > 50) OR (`pk1` = 10 AND `pk2` = 50 AND `pk3` > 30)"
    assert behind in statement
    assert f"NOT ((`pk1` > 10 OR `pk1` = 10) AND ({until}))" in statement
    assert statement.endswith(" ORDER BY `pk1`, `pk2`, `pk3` LIMIT 9")


def test_where_a_table_ends() -> None:
    """With a condition, and along a surrogate key, which is followed by the key where it is not unique."""
    assert last_key_statement(TWO, TWO.key, condition="val1=foo") == (
        "SELECT `pk1`, `pk2` FROM `s`.`t` WHERE (val1=foo) ORDER BY `pk1` DESC, `pk2` DESC LIMIT 1"
    )
    assert last_key_statement(TWO, snapshot_key(TWO, "pk2")) == (
        "SELECT `pk2`, `pk1` FROM `s`.`t` ORDER BY `pk2` DESC, `pk1` DESC LIMIT 1"
    )
    unique = table("`id` int NOT NULL, `seq` int NOT NULL, PRIMARY KEY (`id`), UNIQUE KEY `s` (`seq`)")
    assert snapshot_key(unique, "seq") == ("seq",)


def test_values_are_compared_as_the_server_prints_them() -> None:
    """Texts in hexadecimal and their own charset, bytes as such, an ENUM by its index: its members' order decides."""
    schema = table(
        "`t` varchar(9) NOT NULL, `b` binary(2) NOT NULL, `e` enum('z','a','it''s') NOT NULL, `f` float NOT NULL, "
        "`bit` bit(9) NOT NULL, `d` datetime NOT NULL, `l` char(2) CHARACTER SET latin2 NOT NULL, "
        "PRIMARY KEY (`t`,`b`,`e`,`f`,`bit`,`d`,`l`)"
    )
    at = pack_key(["ż'".encode(), b"\x00\xff", b"1", b"1.5", b"\x01\x02", b"2024-01-01 00:00:00", b"\xbf"])

    statement = chunk_statement(schema, "*", schema.key, behind=at, limit=1)

    assert "`t` > _utf8mb4 x'c5bc27'" in statement
    assert "`b` > x'00ff'" in statement
    assert "`e` IN (2, 3)" in statement
    assert "`l` > _latin2 x'bf'" in statement
    assert "`e` IN (1, 2, 3)" in chunk_statement(schema, "*", schema.key, behind=pack_key([b"a", b"", b"0"]), limit=1)
    assert "`f` > 1.5e0" in statement
    assert "`bit` > 258" in statement
    assert "`d` > '2024-01-01 00:00:00'" in statement
    last = pack_key([b"a", b"", b"3", b"1e20", b"", b"", b""])
    assert "FALSE" in chunk_statement(schema, "*", schema.key, behind=last, limit=1)


def test_a_place_of_an_earlier_release_bounds_nothing() -> None:
    """Its values had other forms: the table is read from its beginning, and rows come again rather than not at all."""
    at = msgspec.msgpack.encode((b"5", b"6"))

    assert chunk_statement(TWO, "*", TWO.key, behind=at, until=at, limit=9) == (
        "SELECT * FROM `s`.`t` ORDER BY `pk1`, `pk2` LIMIT 9"
    )


def test_a_place_may_have_the_first_columns_alone() -> None:
    assert chunk_statement(TWO, "*", TWO.key, behind=place(3), until=place(9), limit=0) == (
        "SELECT * FROM `s`.`t` WHERE (`pk1` > 3) AND (NOT (`pk1` > 9)) ORDER BY `pk1`, `pk2`"
    )


@pytest.mark.parametrize(
    ("definition", "surrogate", "says"),
    [
        ("`v` int", "", "name a unique column as surrogate-key"),
        ("`v` int, `id` int NOT NULL, PRIMARY KEY (`id`)", "w", "has no column 'w'"),
        ("`v` int, `id` int NOT NULL, PRIMARY KEY (`id`)", "v", "may be NULL"),
        ("`v` json NOT NULL, `id` int NOT NULL, PRIMARY KEY (`id`)", "v", "cannot be ordered by"),
    ],
)
def test_what_cannot_be_read_along_is_refused(definition: str, surrogate: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        snapshot_key(table(definition), surrogate)


def test_uniqueness_is_that_of_whole_columns() -> None:
    prefix = table("`id` int NOT NULL, `t` varchar(99) NOT NULL, PRIMARY KEY (`id`), UNIQUE KEY `p` (`t`(5))")

    assert is_unique_key(prefix, ("id", "t"))
    assert not is_unique_key(prefix, ("t",))
    assert can_order_by(prefix, ("t",))
    assert not can_order_by(prefix, ())
