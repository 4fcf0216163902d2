"""A window that ends within a change of a large value shows neither part of it: the change comes whole, or not at all.

Fault 12. LogMiner's rows of such a change were seen at a real server (Stack Overflow 68097524).
"""

import asyncio
from collections.abc import Collection, Iterator

import pytest

from libs.oracle.log_rows import Operation
from libs.stand_ins.oracle.answers import Value
from libs.stand_ins.oracle.definitions import column
from libs.stand_ins.oracle.tables import ModelTable
from services.logminer_reader import log_following
from services.logminer_reader.position import decode_position
from services.logminer_reader.windows import Window, Windows
from tests.oracle.log_reading import follow, images
from tests.oracle.reading import Reading, reading

COLUMNS = ("ID NUMBER(9) NOT NULL", "NM VARCHAR2(20)", "DOC CLOB")
LONG = "long é " * 400
CUT_AFTER = [Operation.START, Operation.INSERT, Operation.LOB_LOCATOR, Operation.LOB_WRITE, Operation.UPDATE]


@pytest.fixture
def read() -> Iterator[Reading]:
    with reading() as found:
        yield found


@pytest.fixture
def orders(read: Reading) -> ModelTable:
    return read.model.create("SHOP", "ORDERS", [column(each) for each in COLUMNS], ("ID",))


def begin(read: Reading) -> None:
    async def begun() -> None:
        read.durable(await read.begin())

    asyncio.run(begun())


def end_windows_at(monkeypatch: pytest.MonkeyPatch, ends: Collection[int]) -> None:
    """And where the redo ends."""

    class Cut(Windows):
        def next(self, start: int) -> Window | None:
            window = super().next(start)
            end = min((each for each in ends if each > start), default=None)
            if window is None or end is None or end >= window.end:
                return window
            return Window(window.start, end, tuple(log for log in window.logs if log.first_scn <= end), is_all=False)

    monkeypatch.setattr(log_following, "Windows", Cut)


def row(number: int, document: Value = LONG) -> dict[str, Value]:
    return {"ID": number, "NM": "a", "DOC": document}


def scns_of(read: Reading, operation: Operation, after_scn: int) -> list[int]:
    return [each.scn for each in read.model.redo if each.scn > after_scn and each.piece.operation is operation]


@pytest.mark.parametrize("operation", CUT_AFTER, ids=lambda operation: operation.name)
def test_a_document_whose_rows_two_windows_have_comes_whole(
    read: Reading, orders: ModelTable, operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(read)
    start = read.model.scn
    transaction = read.model.begin()
    transaction.insert(orders, row(1))
    row_id = transaction.insert(orders, row(2, "short"))
    transaction.update(orders, row_id, {"NM": "b"})
    transaction.commit()
    end_windows_at(monkeypatch, [scns_of(read, operation, start)[0]])

    asyncio.run(follow(read, read.model.scn))

    assert images(read) == [
        ("c", None, row(1)),
        ("c", None, row(2, "short")),
        ("u", row(2, "short"), {**row(2, "short"), "NM": "b"}),
    ]


def test_every_record_in_a_window_of_its_own(
    read: Reading, orders: ModelTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader is killed after the first transaction, and the other one began before that."""
    begin(read)
    start = read.model.scn
    first, second = read.model.begin(), read.model.begin()
    second.insert(orders, row(2))
    first.insert(orders, row(1))
    second.insert(orders, row(3))
    first_scn = first.commit()
    assert first_scn is not None
    second.commit()
    end_windows_at(monkeypatch, range(start, read.model.scn))

    asyncio.run(follow(read, first_scn))
    again = read.again()
    assert decode_position(again.resume.position).done_scn == first_scn + 1
    asyncio.run(follow(again, read.model.scn))

    assert images(again) == [("c", None, row(number)) for number in (1, 2, 3)]


def test_the_start_is_looked_for_where_a_restart_lost_it(
    read: Reading, orders: ModelTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No window before the restart had a row of the captured table: all of them were of a change that the window cut."""
    begin(read)
    start = read.model.scn
    transaction = read.model.begin()
    transaction.insert(orders, row(1))
    transaction.commit()
    (write, *_) = scns_of(read, Operation.LOB_WRITE, start)
    end_windows_at(monkeypatch, [write])
    monkeypatch.setattr(log_following, "_POSITION_S", 0.0)

    asyncio.run(follow(read, write - 1))
    again = read.again()
    assert decode_position(again.resume.position).mined_from == write + 1
    asyncio.run(follow(again, read.model.scn))

    assert images(again) == [("c", None, row(1))]
