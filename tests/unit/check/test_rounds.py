"""A turn that is spread over time: its order, its chunks and rests, and where it is taken up."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from libs.check.chunks import Chunk
from libs.check.compare import Comparison
from libs.check.places import Order, Place, PlaceColumn
from libs.check.projection import ExpectedTable, SourceTable
from libs.check.rounds import (
    Begun,
    NotAllCompared,
    Piece,
    Total,
    Turn,
    joined,
    load_turn,
    shape_of,
    so_far,
    still_to_do,
    store_turn,
    with_chunk,
)
from libs.check.run import CheckReport, TableCheck
from libs.cli import check as command
from libs.errors import InvalidSettings, TransientError
from libs.types.table import TableId
from libs.types.tenant import SinkSettings, SourceSelection, TenantSpec

ALL = [Piece("shop", "a.t"), Piece("shop", "b.t"), Piece("web", "a.t")]


def test_what_is_left_is_behind_what_was_done_also_where_that_is_gone() -> None:
    assert still_to_do(ALL, None) == ALL
    assert still_to_do(ALL, ALL[0]) == ALL[1:]
    assert still_to_do(ALL, Piece("shop", "aa.dropped")) == ALL[1:]
    assert still_to_do(ALL, ALL[2]) == []


BEGUN = Begun(
    piece=ALL[1], shape="s", up_to=(7, 2**64 - 1), chunks=3, whole=("globex",), totals=(Total(tenant="acme"),)
)


def test_the_place_outlives_the_process(tmp_path: Path) -> None:
    """In the midst of a table, too. A file that is somebody else's, or half a one, is none."""
    file = tmp_path / "place.json"
    assert load_turn(file) == load_turn(None) == Turn()

    turn = Turn().behind(ALL[0]).with_begun(BEGUN)
    store_turn(file, turn)
    assert load_turn(file) == turn
    assert (turn.begun_of(ALL[1]), turn.begun_of(ALL[2])) == (BEGUN, None)
    store_turn(file, turn.behind(None))
    assert load_turn(file).begun == (BEGUN,)
    store_turn(file, turn.without_begun(ALL[1]).behind(None))
    assert not file.exists()
    file.write_text("{")
    assert load_turn(file) == Turn()


def chunk_of(up_to: int | None) -> Chunk:
    return Chunk((PlaceColumn("id", Order.NUMBERS),), None, None if up_to is None else (up_to,), (0,), (9,), 10, 0.5)


def checked(tenant: str, chunk: Chunk | None, *, different: int = 0, fault: str = "") -> TableCheck:
    table = ExpectedTable(TableId(database="a", table="t"), ("id",), (), None)
    comparison = Comparison(rows_compared=10, rows_different=different, cells_compared=20)
    faults = (fault,) if fault else ()
    return TableCheck(
        tenant, "shop", table, comparison, (), faults, undecided=1, is_sure=True, rows_read=2, chunk=chunk
    )


def test_chunks_add_up_to_their_table() -> None:
    """At each tenant; one whose table was compared whole is done, and a fault that all of them have is one."""
    first, last = chunk_of(5), chunk_of(None)
    begun = with_chunk(
        ALL[0],
        None,
        first,
        "s",
        CheckReport((checked("acme", first, different=2, fault="f"), checked("globex", None)), False, worked_s=1.5),
    )
    assert (begun.up_to, begun.chunks, begun.whole) == ((5,), 1, ("globex",))

    report = CheckReport((checked("acme", last, different=3, fault="f"),), False, worked_s=2.0)
    begun = with_chunk(ALL[0], begun, last, "s", report)
    whole = so_far(begun, report)
    [table] = whole.tables

    assert whole.worked_s == 3.5
    assert (begun.whole, table.chunks, table.chunk, table.faults) == (("globex",), 2, None, ("f",))
    assert table.comparison == Comparison(rows_compared=20, rows_different=5, cells_compared=40)
    assert (table.undecided, table.rows_read, table.is_sure) == (2, 4, True)


def test_a_table_has_another_shape_where_its_columns_or_what_tenants_get_of_it_changed() -> None:
    table = SourceTable(TableId(database="a", table="t"), (("id", "int"), ("v", "text")), ("id",), frozenset({"id"}))
    spec = TenantSpec(tenant="acme", sources=(SourceSelection(name="shop"),), sink=SinkSettings())
    other = SourceSelection(name="shop", exclude_tables=(r"a\.x",))
    elsewhere = SourceSelection(name="shop", include_tables=(r"b\..*",))

    def shape(table: SourceTable = table, *specs: TenantSpec) -> str:
        return shape_of("shop", table, specs or (spec,))

    shapes = [
        shape(),
        shape(dataclasses.replace(table, key=("v",))),
        shape(dataclasses.replace(table, columns=(("id", "bigint"), ("v", "text")))),
        shape(table, spec, TenantSpec(tenant="globex", sources=spec.sources, sink=SinkSettings())),
        shape(table, TenantSpec(tenant="acme", sources=(other,), sink=SinkSettings())),
    ]
    assert len(set(shapes)) == len(shapes)
    assert shape(table, spec, TenantSpec(tenant="globex", sources=(elsewhere,), sink=SinkSettings())) == shape()


def test_a_turn_says_what_its_pieces_found() -> None:
    report = joined([CheckReport((), True, ("a", "b"), 1.0), CheckReport((), False, ("b",), 2.0)])

    assert (report.source_moved, report.notes, report.worked_s) == (True, ("a", "b"), 3.0)


@dataclass
class Clock:
    """Of the command alone: other threads sleep too."""

    now_s: float = 0.0
    rests_s: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.rests_s.append(seconds)
        self.now_s += seconds


class Slow:
    """A turn of ``ALL``, of which some fail; each table has chunks that end at ``ends``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *ends: int, **failing: Exception) -> None:
        self.compared: list[tuple[str, Place | None]] = []
        self.ends = (*ends, None)
        self.failing = failing
        self.shape = "s"
        self.parked = ""
        self.clock = Clock()
        monkeypatch.setattr(command, "pieces", lambda *_: ALL)
        monkeypatch.setattr(command, "next_chunk", self.next_chunk)
        monkeypatch.setattr(command, "_compare", self.compare)
        monkeypatch.setattr(command, "time", self.clock)

    def next_chunk(self, _mesh: object, _tenants: object, _piece: Piece, begun: Begun | None, rows: int) -> Any:
        is_same = begun is not None and begun.shape == self.shape
        after = begun.up_to if begun is not None and is_same else None
        nth = 0 if after is None else self.ends.index(after[0]) + 1
        up_to = self.ends[nth]
        return Chunk(("id",), after, None if up_to is None else (up_to,), (0,), (0,), rows, 0.5), self.shape

    def compare(self, asked: Any, *_: object) -> CheckReport:
        """It waits for a second and reads for two."""
        self.clock.now_s += 3.0
        table, chunk = asked.tables[0].replace("\\", ""), asked.chunk
        self.compared.append((table, chunk.after))
        for place in (table[0], f"{table[0]}_{chunk.up_to and chunk.up_to[0]}"):
            if (error := self.failing.get(place)) is not None:
                raise error
        found = checked("acme", chunk, different=int(table[0] == "b"))
        if table[0] in self.parked:
            found = dataclasses.replace(checked("acme", None), not_compared="parked: do this")
        return CheckReport((found,), False, (), worked_s=2.0)

    def run(self, file: Path | None = None) -> CheckReport:
        asked = command._Asked(lambda _: None, (), (), 10, 1.0, False, False, None)  # type: ignore[arg-type,return-value]
        return command._compare_slowly(asked, command._Pace(0.25, 10, file))


def test_behind_each_chunk_comes_a_rest_by_what_it_took(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The wait was a part of it. After a restart the tables that were not done come first."""
    file = tmp_path / "place.json"
    store_turn(file, Turn(last=ALL[0]))
    turn = Slow(monkeypatch, 5)

    report = turn.run(file)

    assert turn.compared == [("b.t", None), ("b.t", (5,)), ("a.t", None), ("a.t", (5,))]
    assert turn.clock.rests_s == [5.0] * 4
    assert [(each.chunks, each.comparison.rows_compared) for each in report.tables] == [(2, 20), (2, 20)]
    assert not file.exists()


def test_a_turn_that_is_cut_off_within_a_table_goes_on_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the counts of the chunks before; the chunk that was cut off is compared again."""
    file = tmp_path / "place.json"
    turn = Slow(monkeypatch, 5, 6, b_6=KeyboardInterrupt())  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        turn.run(file)

    again = Slow(monkeypatch, 5, 6)
    report = again.run(file)

    assert again.compared == [("b.t", (5,)), ("b.t", (6,)), ("a.t", None), ("a.t", (5,)), ("a.t", (6,))]
    assert [each.comparison.rows_different for each in report.tables] == [3, 0]
    assert not file.exists()


def test_a_table_that_changed_meanwhile_is_begun_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "place.json"
    with pytest.raises(KeyboardInterrupt):
        Slow(monkeypatch, 5, b_None=KeyboardInterrupt()).run(file)  # type: ignore[arg-type]

    again = Slow(monkeypatch, 5)
    again.shape = "another"
    report = again.run(file)

    assert again.compared[:2] == [("b.t", None), ("b.t", (5,))]
    assert report.tables[0].comparison.rows_compared == 20
    assert "shop: b.t starts again: its columns, its key or a tenant's document changed" in capsys.readouterr().out


def test_a_table_that_fails_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn has failed all the same; where all of it failed, for the reason that it has."""
    turn = Slow(monkeypatch, b=TransientError("not caught up"))
    with pytest.raises(NotAllCompared, match="1 of 3 tables, the first because not caught up"):
        turn.run()
    assert len(turn.compared) == 3

    turn = Slow(monkeypatch, a=InvalidSettings("x", ["y"]), b=InvalidSettings("x", ["z"]))
    with pytest.raises(InvalidSettings, match="y"):
        turn.run()


def test_a_table_that_fails_in_its_midst_goes_on_there_in_the_next_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else one that takes days might never be done."""
    file = tmp_path / "place.json"
    with pytest.raises(NotAllCompared):
        Slow(monkeypatch, 5, b_None=TransientError("away")).run(file)

    again = Slow(monkeypatch, 5)
    again.run(file)

    assert ("b.t", None) not in again.compared
    assert [table for table, _ in again.compared] == ["a.t", "a.t", "b.t", "a.t", "a.t"]


def test_a_parked_table_is_told_once_and_fails_the_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its further chunks are not asked for; the others are compared."""
    turn = Slow(monkeypatch, 5)
    turn.parked = "b"

    with pytest.raises(NotAllCompared, match=r"1 of 3 tables, the first because acme: a\.t: parked: do this"):
        turn.run(tmp_path / "place.json")

    assert turn.compared == [("a.t", None), ("a.t", (5,)), ("b.t", None), ("a.t", None), ("a.t", (5,))]
    assert not (tmp_path / "place.json").exists()


def test_a_terminal_shows_how_far_a_table_is() -> None:
    """By its keys, with the rows that the chunks before had."""
    begun = Begun(piece=ALL[0], shape="s", up_to=(5,), chunks=1, totals=(Total(tenant="acme", rows_compared=200_000),))

    assert command.progress_line(ALL[0], None, chunk_of(5)) == f"shop: a.t {'█' * 12}{'░' * 12} 50%:"
    assert command.progress_line(ALL[0], begun, chunk_of(9)).endswith(" 50%, 200,000 rows compared:")
    key = (PlaceColumn("a", Order.NUMBERS), PlaceColumn("b", Order.CODES))
    first, last = Chunk(key, (1, "x"), (3, "y"), (), (), 9, 1.0), Chunk(key, (3, "y"), None, (), (), 9, 1.0)
    assert command.keys_of(first) == "a, b after 1, x up to 3, y"
    assert command.keys_of(last) == "a, b after 3, y or of other characters"
