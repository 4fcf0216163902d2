"""Copies of a model database's tables: initial ones AS OF one SCN, resumed ones, incremental ones exact at theirs."""

import asyncio
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from libs.source.incremental import take_signal
from libs.source.oracle.settings import OracleSnapshotSettings
from libs.source.signals import ExecuteSnapshot
from libs.stand_ins.oracle.answers import Column, OracleType
from libs.stand_ins.oracle.tables import ModelTable
from services.logminer_reader import initial_copy
from tests.oracle.copying import Copying
from tests.oracle.reading import Reading, reading, run

ID = Column("ID", OracleType.NUMBER, 22, 18, 0, is_nullable=False)
COLUMNS = (
    ID,
    Column("AMOUNT", OracleType.NUMBER, 22, 12, 2),
    Column("NOTE"),
    Column("MADE", OracleType.DATE, 7),
    Column("SEEN", OracleType.TIMESTAMP, 11, scale=9),
    Column("TAG", OracleType.RAW, 16),
)


@pytest.fixture
def read() -> Iterator[Reading]:
    snapshot = OracleSnapshotSettings(range_mb=1, incremental_chunk_rows=10)
    with reading(snapshot=snapshot) as found:
        yield found


def row(number: int) -> dict[str, Any]:
    return {
        "ID": number,
        "AMOUNT": Decimal("-12.50"),
        "NOTE": f"it's {number} é" if number % 3 else None,
        "MADE": datetime(2024, 2, 29, 1, 2, 3),
        "SEEN": datetime(2024, 1, 2, 3, 4, 5, 678_901),
        "TAG": b"\xff\x00",
    }


def filled(read: Reading, rows: int, *, name: str = "ORDERS", key: tuple[str, ...] = ("ID",)) -> ModelTable:
    table = read.model.create("SHOP", name, COLUMNS, key)
    transaction = read.model.begin()
    for number in range(rows):
        transaction.insert(table, row(number))
    transaction.commit()
    return table


def ids(events: list[dict[str, Any]]) -> list[int]:
    return [event["after"]["ID"] for event in events]


def test_every_row_is_copied_as_of_one_scn(read: Reading) -> None:
    table = filled(read, 700)

    async def copied() -> None:
        position = await read.begin()
        late = read.model.begin()
        late.insert(table, row(700))
        late.commit()
        await Copying(read).copy_all(position)

    asyncio.run(copied())
    events = read.rows()
    assert sorted(ids(events)) == list(range(700))
    first = next(event for event in events if event["after"]["ID"] == 1)
    assert first["after"] == {
        "ID": 1,
        "AMOUNT": "+x4=",
        "NOTE": "it's 1 é",
        "MADE": 1_709_168_523_000,
        "SEEN": 1_704_164_645_678_901_000,
        "TAG": "/wA=",
    }
    assert (first["op"], first["source"]["snapshot"], first["source"]["table"]) == ("r", "true", "ORDERS")
    assert events[0]["source"]["snapshot"] == "first"
    assert read.resume.snapshot is None


@pytest.mark.parametrize("batches", range(1, 5))
def test_a_copy_goes_on_at_the_same_scn_after_a_kill(
    read: Reading, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initial_copy, "_MB", 1 << 16)  # ranges of an extent
    table = filled(read, 900)
    filled(read, 5, name="LINES")
    read.model.create("SHOP", "NOBODY", COLUMNS, ("ID",))

    async def killed() -> None:
        await Copying(read).copy_all(await read.begin(), batches=batches)

    asyncio.run(killed())
    late = read.model.begin()
    late.delete(table, next(iter(table.versions)))
    late.commit()
    after = read.again()

    async def resumed() -> None:
        await Copying(after).copy_all(await after.take_up())

    asyncio.run(resumed())
    assert not after.schemas.quarantined
    assert not after.gatherer.incremental.tables
    names = sorted((event["source"]["table"], event["after"]["ID"]) for event in after.rows())
    assert names == sorted(
        [*(("ORDERS", number) for number in range(900)), *(("LINES", number) for number in range(5))]
    )


def test_an_index_organized_table_is_read_along_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ROWIDs are no places. The stand-in has no such table, so the question is answered for it."""
    monkeypatch.setattr(initial_copy, "_INDEX_ORGANIZED", "SELECT 'IOT' FROM DUAL WHERE :1 <> :2")
    with reading(snapshot=OracleSnapshotSettings(chunk_rows=7)) as read:
        filled(read, 30, key=("TAG", "ID"))

        async def copied() -> None:
            await Copying(read).copy_all(await read.begin())

        asyncio.run(copied())
        assert ids(read.rows()) == list(range(30))


def test_a_condition_chooses_the_rows_that_are_copied() -> None:
    chosen = OracleSnapshotSettings(select_overrides={"SHOP.ORDERS": "ID < 3 OR ID = 5"})
    with reading(snapshot=chosen) as read:
        filled(read, 10)

        async def copied() -> None:
            await Copying(read).copy_all(await read.begin())

        asyncio.run(copied())
        assert sorted(ids(read.rows())) == [0, 1, 2, 5]


@pytest.mark.parametrize("code", [1_555, 1_466])
def test_a_table_whose_rows_of_then_are_gone_goes_on_as_an_incremental_copy(read: Reading, code: int) -> None:
    filled(read, 20)
    filled(read, 20, name="LINES")
    read.database.faults.fail('FROM "SHOP"."LINES" AS OF', code)

    async def copied() -> None:
        await Copying(read).copy_all(await read.begin())

    asyncio.run(copied())
    assert [copy.table for copy in read.resume.incremental.tables] == ["SHOP.LINES"]
    assert [event["source"]["table"] for event in read.rows()] == ["ORDERS"] * 20
    assert read.resume.snapshot is None


@pytest.mark.parametrize("key", [("ID",), (), ("TAG", "ID")], ids=["key", "none", "two"])
def test_an_incremental_chunk_is_exact_at_its_scn(read: Reading, key: tuple[str, ...]) -> None:
    table = filled(read, 35, key=key)

    async def copied() -> list[int]:
        copying = Copying(read)
        read.durable(await read.begin())
        signal = ExecuteSnapshot(signal_id="s", tables=(r"SHOP\.ORDERS",))
        read.gatherer.incremental, notes = take_signal(read.gatherer.incremental, signal, ["SHOP.ORDERS"])
        assert not notes
        chunks: list[int] = []
        for number in range(100, 110):
            await copying.incremental.read_next(0)
            if (scn := copying.incremental.due_scn) is None:
                break
            change = read.model.begin()
            change.insert(table, row(number))  # after the chunk's SCN
            change.commit()
            assert await copying.deliver(scn) == 1
            chunks.append(scn)
        return chunks

    chunks = asyncio.run(copied())
    assert not read.resume.incremental.tables
    assert [end.table for end in read.resume.incremental.finished] == ["SHOP.ORDERS"]
    events = read.rows()
    assert {event["source"]["snapshot"] for event in events} == {"incremental"}
    assert set(range(35)) <= set(ids(events))
    assert len(set(ids(events))) == len(events)
    for event in events:
        later = int(event["source"]["scn"])
        number = event["after"]["ID"]
        made = next(versions[0].scn for versions in table.versions.values() if versions[0].row["ID"] == number)
        assert made <= later
    assert len(chunks) >= 4


def test_a_chunk_read_by_an_older_definition_is_read_again(read: Reading) -> None:
    filled(read, 5)

    async def copied() -> None:
        copying = Copying(read)
        await read.begin()
        signal = ExecuteSnapshot(signal_id="s", tables=("SHOP.ORDERS",))
        read.gatherer.incremental, _ = take_signal(read.gatherer.incremental, signal, ["SHOP.ORDERS"])
        await copying.incremental.read_next(0)
        before = {str(schema.table_id): schema for schema in read.schemas.captured}
        await read.ddl("ALTER TABLE SHOP.ORDERS ADD (EXTRA NUMBER(3))")
        copying.incremental.tables_changed(before)
        assert copying.incremental.due_scn is None
        await copying.incremental.read_next(0)
        scn = copying.incremental.due_scn
        assert scn is not None
        assert await copying.deliver(scn) == 1

    asyncio.run(copied())
    assert [event["after"]["EXTRA"] for event in read.rows()] == [None] * 5


@pytest.mark.parametrize(
    ("surrogate", "table"), [("NOWHERE", "ORDERS"), ("SEEN", "HEAP"), ("ID", "GONE")], ids=["column", "key", "table"]
)
def test_a_copy_that_cannot_be_is_refused_and_the_next_one_goes_on(read: Reading, surrogate: str, table: str) -> None:
    filled(read, 5)
    filled(read, 5, name="HEAP", key=())
    filled(read, 5, name="LINES")

    async def copied() -> int | None:
        copying = Copying(read)
        await read.begin()
        for name, key in ((table, surrogate), ("LINES", "")):
            signal = ExecuteSnapshot(signal_id=name, tables=(f"SHOP.{name}",), surrogate_key=key)
            read.gatherer.incremental, _ = take_signal(read.gatherer.incremental, signal, [f"SHOP.{name}"])
        await copying.incremental.read_next(0)
        assert copying.incremental.due_scn is None
        await copying.incremental.read_next(0)
        return copying.incremental.due_scn

    assert asyncio.run(copied()) is not None
    assert [copy.table for copy in read.gatherer.incremental.tables] == ["SHOP.LINES"]


def test_a_row_that_cannot_be_written_is_named(read: Reading) -> None:
    narrow = Column("ID", OracleType.NUMBER, 22, 2, 0, is_nullable=False)
    table = read.model.create("SHOP", "NARROW", (narrow,), ("ID",))
    transaction = read.model.begin()
    transaction.insert(table, {"ID": 1_000})
    transaction.commit()

    async def copied() -> None:
        await Copying(read).copy_all(await read.begin())

    with pytest.raises(Exception, match=r"SHOP\.NARROW\.ID \(NUMBER\(2,0\)\)"):
        asyncio.run(copied())


def test_an_application_changes_the_model_by_sql(read: Reading) -> None:
    filled(read, 1)
    run(read.listener, "UPDATE SHOP.ORDERS SET NOTE = 'x' WHERE ID = 0")

    async def copied() -> None:
        await Copying(read).copy_all(await read.begin())

    asyncio.run(copied())
    assert read.rows()[0]["after"]["NOTE"] == "x"
