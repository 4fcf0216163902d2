"""A turn that is spread over time: its order, its pauses, and where it is taken up."""

import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from libs.cli import check as command
from libs.errors import InvalidSettings, TransientError
from libs.local.check.rounds import NotAllCompared, Piece, joined, load_last, still_to_do, store_last
from libs.local.check.run import CheckReport

ALL = [Piece("shop", "a.t"), Piece("shop", "b.t"), Piece("web", "a.t")]


def test_what_is_left_is_behind_what_was_done_also_where_that_is_gone() -> None:
    assert still_to_do(ALL, None) == ALL
    assert still_to_do(ALL, ALL[0]) == ALL[1:]
    assert still_to_do(ALL, Piece("shop", "aa.dropped")) == ALL[1:]
    assert still_to_do(ALL, ALL[2]) == []


def test_the_place_outlives_the_process(tmp_path: Path) -> None:
    """A file that is somebody else's, or half a one, is none."""
    file = tmp_path / "place.json"
    assert load_last(file) is load_last(None) is None

    store_last(file, ALL[1])
    assert load_last(file) == ALL[1]
    store_last(file, None)
    assert not file.exists()
    file.write_text("{")
    assert load_last(file) is None


def test_a_turn_says_what_its_pieces_found() -> None:
    report = joined([CheckReport((), True, ("a", "b"), 1.0), CheckReport((), False, ("b",), 2.0)])

    assert (report.source_moved, report.notes, report.worked_s) == (True, ("a", "b"), 3.0)


class Turn:
    """A turn of ``ALL``, of which some fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **failing: Exception) -> None:
        self.compared: list[tuple[Sequence[str], Sequence[str]]] = []
        self.pauses_s: list[float] = []
        self.failing = failing
        monkeypatch.setattr(command, "pieces", lambda *_: ALL)
        monkeypatch.setattr(command, "_compare", self.compare)
        # Not the module's own function: other threads sleep too.
        monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=time.monotonic, sleep=self.pauses_s.append))

    def compare(self, asked: Any) -> CheckReport:
        self.compared.append((asked.sources, asked.tables))
        if (error := self.failing.get(asked.tables[0][0])) is not None:
            raise error
        return CheckReport((), False, (), worked_s=2.0)

    def run(self, file: Path | None = None) -> CheckReport:
        asked = command._Asked(lambda _: None, (), (), 10, 1.0, False, False, None)  # type: ignore[arg-type,return-value]
        return command._compare_slowly(asked, 0.25, file)


def test_behind_each_table_comes_a_pause_by_what_it_took(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "place.json"
    store_last(file, ALL[0])
    turn = Turn(monkeypatch)

    turn.run(file)

    assert turn.compared == [(("shop",), (r"b\.t",)), (("web",), (r"a\.t",))]
    assert turn.pauses_s == [6.0, 6.0]
    assert not file.exists()


def test_a_table_that_fails_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn has failed all the same; where all of it failed, for the reason that it has."""
    turn = Turn(monkeypatch, b=TransientError("not caught up"))
    with pytest.raises(NotAllCompared, match="1 of 3 tables, the first because not caught up"):
        turn.run()
    assert len(turn.compared) == 3

    turn = Turn(monkeypatch, a=InvalidSettings("x", ["y"]), b=InvalidSettings("x", ["z"]))
    with pytest.raises(InvalidSettings, match="y"):
        turn.run()
