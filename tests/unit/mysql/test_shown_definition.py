"""Bytes and members that a text of SHOW CREATE lacks are put back."""

import struct

import pytest

from libs.mysql.binlog_events import parse_query
from libs.mysql.ddl import show_create_to_schema
from libs.mysql.shown_definition import doubtful_members, with_members, with_readable_literals
from libs.types.table import TableId

TABLE = TableId(database="shop", table="orders")


@pytest.mark.parametrize(
    ("shown", "readable"),
    [
        (b"DEFAULT (_latin1'\xe9')", "DEFAULT (_latin1 0xE9)"),
        (b"DEFAULT (_latin1 '\xe9')", "DEFAULT (_latin1 0xE9)"),
        (b'DEFAULT (_LATIN1"\xe9""")', "DEFAULT (_LATIN1 0xE922)"),
        (b"(_ucs2'\\0\xe9\\0A\\0\\'')", "(_ucs2 0x00E900410027)"),
        (b"(_sjis'\x95\\\\')", "(_sjis 0x955C)"),
        (b"(_utf8mb4'\xf0\x9f\x98\x80')", "(_utf8mb4'😀')"),
        (b"`_latin1``\xc3\xa9` int COMMENT 'it''s _latin1''\xc3\xa9'", "`_latin1``é` int COMMENT 'it''s _latin1''é'"),
        (b"a\xffb", "a\ufffdb"),
    ],
)
def test_a_literal_with_an_introducer_keeps_its_bytes(shown: bytes, readable: str) -> None:
    assert with_readable_literals(shown) == readable


def test_members_are_put_in_the_place_of_those_that_are_shown() -> None:
    shown = "CREATE TABLE `t` (\n  `a` enum('?','b','x?') NOT NULL,\n  `b``c` set('?','?') DEFAULT '?' COMMENT '?'\n)"

    whole = with_members(shown, {"a": {3: "x\\y", 1: "😀"}, "b`c": {2: "it's"}})

    assert whole == (
        "CREATE TABLE `t` (\n  `a` enum('😀','b','x\\\\y') NOT NULL,\n  `b``c` set('?','it''s') DEFAULT '?' COMMENT '?'\n)"
    )
    assert [column.source_type for column in show_create_to_schema(TABLE, whole).columns] == [
        r"enum('😀','b','x\\y')",
        "set('?','it''s')",
    ]


def test_only_members_that_may_be_beyond_utf8mb3_are_in_doubt() -> None:
    assert doubtful_members(("?", "a", "b?"), "utf8mb4") == (1, 3)
    assert doubtful_members(("?",), "latin1") == ()


def test_a_statement_of_the_log_keeps_the_bytes_of_such_a_literal() -> None:
    """MySQL logs the client's bytes, and takes any after an introducer."""
    utf8mb4 = struct.pack("<BHHH", 4, 45, 45, 45)
    statement = b"ALTER TABLE t ADD a CHAR(1) DEFAULT (_latin1'\xe9') COMMENT '\xc3\xa9'"
    body = struct.pack("<IIBHH", 1, 0, 0, 0, len(utf8mb4)) + utf8mb4 + b"\0" + statement

    assert parse_query(body).statement == "ALTER TABLE t ADD a CHAR(1) DEFAULT (_latin1 0xE9) COMMENT 'é'"
