"""Values that the log lacks are read again at the source: each image is the row as it was, or the row fails by name."""

import asyncio
import itertools
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from libs.errors import SourceUnavailable, UndecodableValue
from libs.events.dead_letter import decode_undecoded_row
from libs.source.failure_policy import FailureHandling
from libs.source.oracle.settings import LackingValues
from libs.stand_ins.oracle.answers import Value
from libs.stand_ins.oracle.definitions import column
from libs.stand_ins.oracle.model import Transaction
from libs.stand_ins.oracle.tables import ModelTable, Row
from tests.oracle.log_reading import follow, images
from tests.oracle.reading import Reading, reading, run

COLUMNS = ("ID NUMBER(9) NOT NULL", "NM VARCHAR2(20)", "DOC CLOB", "PIC BLOB")
LONG, OTHER = "long é " * 900, "other 😀 " * 700
AS_OF = r"AS OF SCN :scn WHERE ROWID IN"
Images = list[tuple[str, Any, Any]]


@pytest.fixture
def read() -> Iterator[Reading]:
    with reading() as found:
        yield found


def orders(read: Reading, name: str = "ORDERS") -> ModelTable:
    return read.model.create("SHOP", name, [column(each) for each in COLUMNS], ("ID",))


def insert(read: Reading, table: ModelTable, *rows: Row) -> list[str]:
    transaction = read.model.begin()
    row_ids = [transaction.insert(table, row) for row in rows]
    transaction.commit()
    return row_ids


def row(number: int, doc: Value = LONG, pic: Value = b"\0\1") -> dict[str, Value]:
    return {"ID": number, "NM": "a", "DOC": doc, "PIC": pic}


def begin(read: Reading) -> None:
    """The log is read from here on."""

    async def begun() -> None:
        read.durable(await read.begin())

    asyncio.run(begun())


def read_all(read: Reading) -> Images:
    asyncio.run(follow(read, read.model.scn))
    return images(read)


def image(values: Row | None) -> dict[str, Any] | None:
    """As JSON."""
    if values is None:
        return None
    pic = values["PIC"]
    return {
        "ID": int(str(values["ID"])),
        "NM": values["NM"],
        "DOC": values["DOC"],
        "PIC": None if pic is None else {b"\0\1": "AAE=", b"\2" * 3_000: "AgIC" * 1_000, b"": ""}[pic],  # type: ignore[index]
    }


def committed(transaction: Transaction) -> Images:
    """The events of a transaction's changes so far, by the model."""
    return [
        (
            "c" if change.before is None else "d" if change.after is None else "u",
            image(change.before),
            image(change.after),
        )
        for change in transaction._changes
    ]


def test_an_update_that_leaves_a_document_alone_has_it(read: Reading) -> None:
    """The row was changed again before the reader came: its values are those of its own commit."""
    table = orders(read)
    (row_id,) = insert(read, table, row(1))
    begin(read)
    for values in ({"NM": "b"}, {"DOC": OTHER}, {"DOC": "short"}, {"NM": "c", "PIC": b"\2" * 3_000}, {"DOC": None}):
        change = read.model.begin()
        change.update(table, row_id, values)
        change.commit()
    gone = read.model.begin()
    gone.delete(table, row_id)
    gone.commit()

    found = read_all(read)

    states = [
        row(1),
        {**row(1), "NM": "b"},
        {**row(1, OTHER), "NM": "b"},
        {**row(1, "short"), "NM": "b"},
        {"ID": 1, "NM": "c", "DOC": "short", "PIC": b"\2" * 3_000},
        {"ID": 1, "NM": "c", "DOC": None, "PIC": b"\2" * 3_000},
        None,
    ]
    expected = [("u" if after else "d", image(before), image(after)) for before, after in itertools.pairwise(states)]
    assert found == expected


@pytest.mark.parametrize("seed", range(3))
def test_each_image_is_what_the_row_was(read: Reading, seed: int) -> None:
    """Transactions that change rows again and again, with rollbacks to savepoints.

    Of a row's states within a transaction those may be missing that the log does not hold.
    """
    chance = Random(seed)
    table, plain = orders(read), orders(read, "PLAIN")
    row_ids = insert(read, table, *(row(number) for number in range(4)))
    begin(read)
    expected: list[Images] = []
    for step in range(12):
        transaction = read.model.begin()
        savepoint = 0
        for nth in range(chance.randrange(1, 7)):
            what = chance.choice(["insert", "update", "update", "update", "delete", "savepoint", "back", "plain"])
            free = [each for each in (*row_ids, *transaction.changed(table)) if table.newest(each) is not None]
            if what == "insert":
                document = chance.choice([None, "short", LONG])
                row_ids.append(transaction.insert(table, row(1_000 + len(row_ids), document)))
            elif what == "plain":
                transaction.insert(plain, row(read.model.scn % 1_000_000, None, None))
            elif what == "savepoint":
                savepoint = transaction.savepoint()
            elif what == "back":
                transaction.roll_back_to(savepoint)
            elif free and what == "update":
                documents = chance.choice([{}, {}, {"DOC": chance.choice(["s", OTHER, LONG, None])}, {"PIC": b"\0\1"}])
                transaction.update(table, chance.choice(free), {"NM": f"{step}.{nth}", **documents})
            elif free and what == "delete":
                transaction.delete(table, chance.choice(free))
        expected.append(committed(transaction))
        transaction.commit()

    found = read_all(read)

    for transaction_events in expected:
        rest = folded(transaction_events)
        while rest:
            op, before, after = found.pop(0)
            chain = rest[(before or after or {})["ID"]]
            states = [chain[0][1], *(state for _, _, state in chain)]
            end = states.index(after, 1 if before != after else states.index(before) + 1)
            assert (states[0], op) == (before, "c" if before is None else "d" if after is None else "u")
            del chain[:end]
            rest = {number: left for number, left in rest.items() if left}
    assert found == []


def folded(events: Images) -> dict[int, Images]:
    """The events of each row."""
    found: dict[int, Images] = {}
    for op, before, after in events:
        found.setdefault((before or after or {})["ID"], []).append((op, before, after))
    return found


def changed(read: Reading, count: int = 1) -> ModelTable:
    """Rows whose documents an UPDATE left alone. They were changed since."""
    table = orders(read)
    row_ids = insert(read, table, *(row(number) for number in range(count)))
    begin(read)
    for values in ({"NM": "b"}, {"NM": "c", "DOC": OTHER}):
        change = read.model.begin()
        for row_id in row_ids:
            change.update(table, row_id, values)
        change.commit()
    return table


def test_undo_that_is_gone_fails_the_row_by_name(read: Reading) -> None:
    changed(read)
    read.model.undo_from = read.model.scn + 2

    with pytest.raises(
        UndecodableValue, match=r"SHOP.ORDERS.*column DOC: the source's undo .*ORA-01555.*UNDO_RETENTION"
    ):
        read_all(read)


def test_the_row_that_is_lost_stops_no_other() -> None:
    with reading(handling=FailureHandling.DEAD_LETTER) as read:
        changed(read)
        read.model.undo_from = read.model.scn

        found = read_all(read)

        assert [after["DOC"] for _, _, after in found] == []
        reasons = [decode_undecoded_row(letter).reason for batch in read.batches for letter in batch.dead_letters]
        assert len(reasons) == 2 and all("ORA-01555" in reason for reason in reasons)


def test_the_placeholder_stands_for_it_where_it_is_chosen() -> None:
    with reading(placeholder="gone") as read:
        changed(read)
        read.model.undo_from = read.model.scn + 2

        found = read_all(read)

    assert [(before["DOC"], after["DOC"]) for _, before, after in found] == [("gone", "gone"), ("gone", "gone")]
    assert [after["NM"] for _, _, after in found] == ["b", "c"]


def test_a_statement_since_fails_the_row_by_name(read: Reading) -> None:
    changed(read)
    run(read.listener, "ALTER TABLE SHOP.ORDERS ADD (MORE NUMBER(9))")

    with pytest.raises(UndecodableValue, match="another definition since"):
        read_all(read)


def test_one_lost_document_does_not_lose_those_that_are_asked_for_with_it(read: Reading) -> None:
    changed(read, count=5)
    read.database.faults.fail(AS_OF, 22924)

    found = read_all(read)

    assert read.database.faults.seen
    assert [(before["DOC"], after["DOC"]) for _, before, after in found] == [(LONG, LONG)] * 5 + [(LONG, OTHER)] * 5


def test_a_connection_that_is_lost_meanwhile_costs_nothing(read: Reading) -> None:
    changed(read)
    read.database.faults.end_connection(AS_OF)
    with pytest.raises(SourceUnavailable):
        read_all(read)

    again = read.again()

    assert [(before["DOC"], after["DOC"]) for _, before, after in read_all(again)] == [(LONG, LONG), (LONG, OTHER)]


def test_nothing_is_asked_where_that_is_chosen() -> None:
    with reading(placeholder="gone", lacking_values=LackingValues.UNAVAILABLE) as read:
        changed(read)
        read.database.faults.fail(AS_OF, 600)

        found = read_all(read)

        assert not read.database.faults.seen
    assert [(before["DOC"], after["DOC"]) for _, before, after in found] == [("gone", "gone"), ("gone", "gone")]
