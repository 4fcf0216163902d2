"""``headwater check`` as a command that goes on."""

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import NoReturn

import pytest
from click.testing import CliRunner

from libs.check.compare import Comparison, Difference
from libs.check.projection import ExpectedTable
from libs.check.run import CheckReport, TableCheck
from libs.cli import check
from libs.cli.main import headwater
from libs.errors import SourceUnavailable
from libs.types.table import TableId
from tests.headwater_command import run_here


@pytest.fixture(autouse=True)
def _terminated_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def _lost(_tables: Sequence[str]) -> NoReturn:
    raise SourceUnavailable("the connection was lost")


def _ended_meanwhile(tables: Sequence[str]) -> NoReturn:
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        _lost(tables)


@pytest.mark.parametrize("options", [(), ("--share", "0.5")])
def test_sigterm_is_the_end_whatever_breaks_by_it(monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    """A connection that is closed in the midst of an answer, say, is an error of its own."""
    turns: list[Callable[[Sequence[str]], NoReturn]] = [_ended_meanwhile, _lost]
    monkeypatch.setattr(check, "_stack", lambda *_, **__: lambda tables: turns.pop()(tables))

    answer = CliRunner().invoke(headwater, ["check", "--every", "1", *options])

    assert answer.exit_code == 0, answer.output
    assert answer.output.count("not compared: the connection was lost") == 1


@pytest.mark.parametrize("options", [(), ("--every", "1")])
def test_a_comparison_is_one_document_for_programs(monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    """A line for each turn of those that go on, of which the second is broken off here."""
    table = ExpectedTable(TableId(database="shop", table="orders"), ("id",), (), None)
    first = Difference((7,), "total", Decimal("1.5"), Decimal("2.5"))
    comparison = Comparison(rows_compared=10, rows_different=1, cells_compared=20, first=[first])
    turns = [CheckReport((TableCheck("acme", "shop", table, comparison, (), rows_read=1),), False, ("a note",))]

    def compared(_asked: object) -> CheckReport:
        if not turns:
            raise KeyboardInterrupt
        return turns.pop()

    monkeypatch.setattr(check, "_compare_at_once", compared)
    monkeypatch.setattr(check.time, "sleep", lambda _: None)

    done = run_here("check", "--json", *options)

    document = json.loads(done.stdout)
    assert (document["rows_compared"], document["differences"], document["notes"]) == (10, 1, ["a note"])
    (found,) = document["tables"]
    assert (found["table"], found["first_differences"]) == (
        "shop.orders",
        ["id=7: total: source 1.5, warehouse 2.5"],
    )
    assert done.exit_code == (130 if options else 1)
    assert len(done.stdout.splitlines()) == 1 or not options


def test_a_pattern_that_matches_no_table_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was compared for it, and "0 difference(s)" would be believed."""
    table = ExpectedTable(TableId(database="shop", table="orders"), ("id",), (), None)
    compared = TableCheck("acme", "shop", table, Comparison(), ())
    monkeypatch.setattr(check, "_compare_at_once", lambda asked: CheckReport((compared,) * bool(asked.tables), False))

    idle = run_here("check", "--table", "orders", "--table", r"shop\.o.*")
    found = run_here("check", "--table", r"shop\.o.*")

    says = "headwater: check: --table 'orders': matches no table; it must match database.table whole: "
    assert idle.output.startswith(says), idle.output
    assert "compared were shop.orders" in idle.output
    assert (idle.exit_code, found.exit_code) == (2, 0)
