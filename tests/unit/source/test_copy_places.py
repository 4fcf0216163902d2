"""An unfinished copy's places after a DDL that changes the order of a table."""

from libs.mysql.ddl import show_create_to_schema
from libs.source.mysql.snapshot import without_places
from libs.types.checkpoint import RangeProgress, SnapshotProgress
from libs.types.table import TableId, TableSchema

T = TableId(database="s", table="t")


def table(key: str, more: str = "") -> TableSchema:
    return show_create_to_schema(T, f"CREATE TABLE `t` (`k` {key} NOT NULL{more}, PRIMARY KEY (`k`))", "utf8mb4")


def test_a_table_whose_key_sorts_otherwise_is_copied_from_its_beginning() -> None:
    """The index of an ENUM's member, for example, is another one once members come before it."""
    progress = SnapshotProgress(
        finished_tables=("s.a",),
        current_table="s.t",
        last_key=b"x",
        ranges=(RangeProgress(table="s.t", last_key=b"x"), RangeProgress(table="s.u", last_key=b"y")),
        rows_copied=9,
    )

    after = without_places(progress, {T: table("enum('b','c')")}, {T: table("enum('a','b','c')")})

    assert after == SnapshotProgress(
        finished_tables=("s.a",), ranges=(RangeProgress(table="s.u", last_key=b"y"),), rows_copied=9
    )


def test_a_ddl_that_leaves_the_order_leaves_the_places() -> None:
    progress = SnapshotProgress(ranges=(RangeProgress(table="s.t", last_key=b"x"),))

    assert without_places(progress, {T: table("int")}, {T: table("int", ", `v` int")}) == progress
    assert without_places(progress, {T: table("int")}, {T: None}) == progress
    assert without_places(None, {T: table("int")}, {T: table("bigint")}) is None
