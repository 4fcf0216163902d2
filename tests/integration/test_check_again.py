"""Rows that differ are looked at again: a change on its way is distinguished from a fault, however the source is written to.

The source is a real MySQL; a test sets the warehouse's table for each look.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from libs.check.compare import Comparison, Difference
from libs.check.mysql_rows import MysqlRows, consistent_snapshot
from libs.check.projection import ExpectedTable, expected_tables
from libs.check.second_look import LOOKS, Suspected, Verdict, look_again
from libs.check.source import AskedSource
from libs.config.load import Secret
from libs.source.mysql.settings import DatabaseSettings
from libs.types.tenant import SinkMode, SinkSettings, SourceSelection
from tests.conftest import MysqlServer


@dataclass(slots=True)
class Held:
    """A warehouse's table of two columns that a test fills; reads of it are counted."""

    rows: dict[int, str]
    columns: tuple[str, ...] = ("id", "note")
    asked_for: list[object] = field(default_factory=list)

    def count(self) -> int:
        return len(self.rows)

    def sorted_rows(
        self, columns: Sequence[str], key: Sequence[str], *, among: Any = None, **_: Any
    ) -> Iterator[pa.RecordBatch]:
        self.asked_for.append(among)
        table = {"id": sorted(self.rows), "note": [self.rows[number] for number in sorted(self.rows)]}
        yield pa.record_batch({name: table[name] for name in columns})


@dataclass(slots=True)
class Rig:
    """A table of notes, and the rows that the warehouse has of it."""

    server: MysqlServer
    database: str
    held: Held

    @contextlib.contextmanager
    def ask(self) -> Iterator[AskedSource]:
        with consistent_snapshot(settings(self.server)) as connection:
            yield MysqlRows(connection)

    def judge(self, suspects: Sequence[int], wait: Callable[[], object], folder: Path, limit: int = 10) -> Verdict:
        """The verdict of further looks at rows that differed."""
        table = expected(self, "notes")
        first = Comparison(rows_compared=9, rows_different=len(suspects), suspects=[(number,) for number in suspects])
        suspected = Suspected(table, table.columns, SinkSettings(mode=SinkMode.MIRROR), lambda: self.held, first)  # type: ignore[arg-type,return-value]
        assert suspected.is_distinguishable
        [verdict] = look_again([suspected], self.ask, wait, limit=limit, temporary_dir=folder)
        return verdict

    def set_note(self, number: int, note: str) -> None:
        self.server.execute(f"UPDATE {self.database}.notes SET note = '{note}' WHERE id = {number}")


def settings(server: MysqlServer) -> DatabaseSettings:
    return DatabaseSettings(host=server.host, port=server.port, user="root", password=Secret(""))


def expected(rig: Rig, table: str) -> ExpectedTable:
    selection = SourceSelection(name="shop", include_tables=(rf"{rig.database}\.{table}",))
    with rig.ask() as source:
        [found] = expected_tables(selection, source.tables())
    return found


@pytest.fixture
def rig(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> Rig:
    database = unique_name("again")
    mysql_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.notes (id INT PRIMARY KEY, note VARCHAR(20))",
        f"INSERT INTO {database}.notes VALUES (1, 'one'), (2, 'two'), (3, 'three')",
    )
    return Rig(mysql_server, database, Held({1: "one", 2: "two", 3: "three"}))


def test_what_arrives_meanwhile_is_no_difference(rig: Rig, tmp_path: Path) -> None:
    """Changed, inserted and deleted rows that the tables hold once they have caught up."""
    rig.held.rows = {1: "old", 3: "three", 4: "deleted at the source"}

    verdict = rig.judge([1, 2, 4], lambda: rig.held.__setattr__("rows", {1: "one", 2: "two", 3: "three"}), tmp_path)

    assert (verdict.comparison.rows_different, verdict.undecided) == (0, 0)
    assert rig.held.asked_for == [("id", {1, 2, 4})]


def test_what_the_source_did_not_touch_differs_for_certain(rig: Rig, tmp_path: Path) -> None:
    """Another value, a row too few, a row too many; others change meanwhile and say nothing."""
    rig.held.rows = {1: "uno", 3: "three", 7: "nobody's"}

    verdict = rig.judge([1, 2, 3, 7], lambda: rig.set_note(3, "changed"), tmp_path, limit=2)

    found = verdict.comparison
    assert (found.rows_different, verdict.undecided, found.rows_compared) == (3, 0, 9)
    assert found.first[0] == Difference((1,), "note", "one", "uno")
    assert len(found.first) == 2
    assert found.suspects == [(1,), (2,), (7,)]


def test_what_changes_at_every_look_stays_undecided(rig: Rig, tmp_path: Path) -> None:
    """It is neither called equal nor different, and the looks end."""
    looks = 0

    def change() -> None:
        nonlocal looks
        looks += 1
        rig.set_note(2, f"change {looks}")
        rig.held.rows[2] = f"an older one than change {looks}"

    verdict = rig.judge([2], change, tmp_path)

    assert looks == LOOKS
    assert (verdict.comparison.rows_different, verdict.undecided) == (0, 1)


def test_what_changed_once_is_judged_at_the_next_look(rig: Rig, tmp_path: Path) -> None:
    """And differs where the warehouse does not follow."""
    changes = iter(["first", None])

    def change() -> None:
        if (note := next(changes)) is not None:
            rig.set_note(2, note)
        rig.held.rows[2] = "neither"

    verdict = rig.judge([2], change, tmp_path)

    assert [(each.source, each.warehouse) for each in verdict.comparison.first] == [("first", "neither")]


KEYS = {
    "BIGINT UNSIGNED": ("18446744073709551615", "0"),
    "DECIMAL(30,10)": ("-12345678901234567890.0000000001", "0"),
    "VARCHAR(20) CHARACTER SET latin1": ("'café'", "'it''s %s \\\\\\\\'"),
    "CHAR(5)": ("'a'", "''"),
    "VARBINARY(9)": ("X'00ff5c27'", "''"),
    "BINARY(3)": ("X'01'", "X'000000'"),
    "DATE": ("'1000-01-01'", "'9999-12-31'"),
    "TIME(6)": ("'-838:59:58.000001'", "'00:00:07'"),
    "DATETIME(6)": ("'2024-02-29 23:59:59.999999'", "'1970-01-01 00:00:01'"),
    "TIMESTAMP(3)": ("'2038-01-19 03:14:07.999'", "'1970-01-01 00:00:02'"),
    "ENUM('x','y z')": ("'x'", "'y z'"),
    "BIT(9)": ("b'100000001'", "b'0'"),
    "YEAR": ("1901", "2155"),
}


@pytest.mark.parametrize("data_type", KEYS)
def test_rows_are_found_again_by_keys_of_every_type(rig: Rig, data_type: str) -> None:
    """The literal of a key means the row that it came from, and no other."""
    values = KEYS[data_type]
    listed = ", ".join(f"({value}, {number})" for number, value in enumerate(values))
    rig.server.execute(
        f"CREATE TABLE {rig.database}.keyed (k {data_type}, n INT, PRIMARY KEY (k, n))",
        f"INSERT INTO {rig.database}.keyed VALUES {listed}, ({values[0]}, 99)",
    )
    table = expected(rig, "keyed")
    with rig.ask() as source:
        rows = list(source.rows(table, table.columns))
    suspected = Suspected(table, table.columns, SinkSettings(), lambda: None, Comparison(0, len(rows), 0, [], rows))

    assert suspected.is_distinguishable
    for row in rows:
        [condition] = suspected.conditions([row])
        with rig.ask() as source:
            assert list(source.rows_of(table, table.columns, condition)) == [row]


@pytest.mark.parametrize(("definition", "value"), [("FLOAT", "0.1"), ("DATE", "'0000-00-00'")])
def test_rows_that_their_keys_may_not_find_are_left_alone(rig: Rig, definition: str, value: str) -> None:
    """They would look as if they were missing at the source."""
    rig.server.execute(f"CREATE TABLE {rig.database}.keyed (k {definition} PRIMARY KEY)")
    rig.server.execute("SET SESSION sql_mode = ''", f"INSERT INTO {rig.database}.keyed VALUES ({value})")
    table = expected(rig, "keyed")
    with rig.ask() as source:
        rows = list(source.rows(table, table.columns))
    first = Comparison(0, len(rows), 0, [], rows)

    assert not Suspected(table, table.columns, SinkSettings(), lambda: None, first).is_distinguishable
