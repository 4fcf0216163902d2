"""Reading a table page by page through vtgate: its statements, and the shards that are asked."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from libs.check import vitess_rows
from libs.check.projection import ExpectedColumn, ExpectedTable
from libs.check.vitess_rows import VitessRows, page_statement
from libs.types.table import TableId
from libs.types.tenant import ColumnMask

TABLE_ID = TableId(database="shop", table="items")


def table(*key: str, where: str | None = None, mask: ColumnMask | None = None, **types: str) -> ExpectedTable:
    columns = tuple(ExpectedColumn(name, kind, mask if name in key else None, name) for name, kind in types.items())
    return ExpectedTable(TABLE_ID, key, columns, where)


def test_a_page_begins_behind_the_last_row() -> None:
    """By a condition on the first key column alone, which an index can serve, and then exactly."""
    items = table("a", "b", a="bigint", b="int", v="varchar")

    statement = page_statement(items, items.columns, ("7", "3"))

    assert statement == (
        "SELECT `a`, `b`, `v`, `a`, `b` FROM `items` WHERE `a` >= 7 AND (`a` > 7 OR (`a` = 7 AND (`b` > 3))) "
        f"ORDER BY `a`, `b` LIMIT {vitess_rows.PAGE_ROWS}"
    )


def test_the_tenants_condition_stays_whole() -> None:
    """An OR of the tenant's does not reach beyond its parentheses."""
    items = table("a", where="v = 1 OR v = 2", a="int", v="int")

    assert "WHERE (v = 1 OR v = 2) AND `a` >= 5" in page_statement(items, items.columns, ("5",))
    assert page_statement(items, items.columns, None).count("WHERE (v = 1 OR v = 2) ORDER") == 1


def test_without_a_key_there_are_no_pages() -> None:
    """No row marks a place to go on from."""
    assert "LIMIT" not in page_statement(table(v="int"), (ExpectedColumn("v", "int", None, "v"),), None)


class Shards:
    """A vtgate whose shards hold rows; it answers the statements of ``page_statement`` for a table with key ``id``."""

    def __init__(self, **rows: Sequence[tuple[int, str]]) -> None:
        self._rows = {name.replace("_", "-"): sorted(values) for name, values in rows.items()}
        self.asked: list[str] = []

    def shards(self, keyspace: str) -> list[str]:
        return sorted(self._rows)

    def execute(self, statement: str, *, target: str) -> list[tuple[bytes | None, ...]]:
        self.asked.append(target)
        behind = re.search(r"`id` > (-?\d+)", statement)
        limit = re.search(r"LIMIT (\d+)", statement)
        rows = [row for row in self._rows[target.partition(":")[2]] if behind is None or row[0] > int(behind[1])]
        page = rows[: int(limit[1])] if limit else rows
        return [(b"%d" % number, text.encode(), b"%d" % number) for number, text in page]


def read(vtgate: Any, wanted: ExpectedTable) -> list[tuple[Any, ...]]:
    return list(VitessRows(vtgate, "shop").rows(wanted, wanted.columns))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7])
def test_every_row_of_every_shard_comes_once_in_key_order(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that are just full are the edge: the next one may be empty."""
    monkeypatch.setattr(vitess_rows, "PAGE_ROWS", 2)
    rows = [(number, f"v{number}") for number in range(-3, count - 3)]
    vtgate = Shards(**{"_80": rows[::2], "80_": rows[1::2]})

    assert read(vtgate, table("id", id="bigint", v="varchar")) == rows


def test_a_masked_key_has_no_order() -> None:
    """Nothing is merged then: the comparison sorts by itself."""
    masked = table("id", mask=ColumnMask(columns=".*", constant="*"), id="bigint", v="varchar")

    assert sorted(read(Shards(**{"_80": [(1, "a")], "80_": [(2, "b")]}), masked)) == [("*", "a"), ("*", "b")]
