"""Signals of the source's table: copies begin, pause, go on and stop, and quarantines end."""

import asyncio
from collections.abc import Iterator

import pytest

from libs.config.connections import KafkaSettings
from libs.oracle.log_position import snapshot_order
from libs.stand_ins.oracle.answers import Column, OracleType
from libs.types.table import TableId
from services.logminer_reader.mined_rows import MinedRow
from services.logminer_reader.signals import Signals
from services.logminer_reader.transactions import OpenTransactions
from tests.oracle.reading import Reading, reading

ID = Column("ID", OracleType.NUMBER, 22, 18, 0, is_nullable=False)
EXECUTE = '{"type": "INCREMENTAL", "data-collections": ["SHOP\\\\..*"]}'


@pytest.fixture
def read() -> Iterator[Reading]:
    with reading() as found:
        found.model.create("SHOP", "ORDERS", (ID,), ("ID",))
        found.model.create("SHOP", "LINES", (ID,), ("ID",))
        yield found


def after(
    read: Reading,
    *rows: tuple[object, ...],
    quarantined: str = "",
    transactions: OpenTransactions | None = None,
) -> list[str]:
    """The tables that wait."""

    async def act() -> None:
        position = await read.begin()
        if quarantined:
            read.schemas.quarantine(TableId(database="SHOP", table=quarantined), "a test")
        signals = Signals("src", KafkaSettings(), read.schemas, read.gatherer)
        signals.transactions = transactions
        for row in rows:
            await signals.take_row(row, snapshot_order(0, position.done_scn), position)

    asyncio.run(act())
    return [copy.table for copy in read.gatherer.incremental.tables]


def test_a_copy_of_matching_tables_is_asked_for(read: Reading) -> None:
    assert after(read, ("1", "execute-snapshot", EXECUTE)) == ["SHOP.LINES", "SHOP.ORDERS"]


def test_a_copy_pauses_goes_on_and_stops(read: Reading) -> None:
    assert after(read, ("1", "execute-snapshot", EXECUTE), ("2", "pause-snapshot", "{}"))
    assert read.gatherer.incremental.is_paused
    stop = '{"type": "INCREMENTAL", "data-collections": ["SHOP.LINES"]}'
    assert after(read, ("3", "resume-snapshot", "{}"), ("4", "stop-snapshot", stop)) == ["SHOP.ORDERS"]
    assert not read.gatherer.incremental.is_paused


def test_a_row_that_is_no_signal_does_nothing(read: Reading) -> None:
    assert after(read, ("1", "execute-snapshot", "no JSON"), ("1", "execute-snapshot"), ("1", "dance", "{}")) == []


def test_a_quarantined_table_is_taken_up_again_with_the_definition_of_now(read: Reading) -> None:
    assert after(read, ("1", "execute-snapshot", EXECUTE), quarantined="ORDERS") == ["SHOP.LINES", "SHOP.ORDERS"]
    assert not read.schemas.quarantined


def test_a_table_that_is_gone_stays_quarantined(read: Reading) -> None:
    async def act() -> None:
        position = await read.begin()
        read.schemas.quarantine(TableId(database="SHOP", table="ORDERS"), "a test")
        del read.model.tables["SHOP", "ORDERS"]
        signals = Signals("src", KafkaSettings(), read.schemas, read.gatherer)
        await signals.take_row(("1", "execute-snapshot", EXECUTE), snapshot_order(0, position.done_scn), position)

    asyncio.run(act())
    assert list(read.schemas.quarantined) == ["SHOP.ORDERS"]


def test_an_open_transaction_is_dropped_and_another_one_is_refused(
    read: Reading, capsys: pytest.CaptureFixture[str]
) -> None:
    transactions = OpenTransactions(None, memory_bytes=1 << 20)
    xid = bytes.fromhex("0a0007008e2a0000")
    transactions.add(
        MinedRow(9, xid, 1, "0x1", 0, 1, 0, 0, 0, 7, 1, "AAA", None, "APP", 1, "SHOP", "ORDERS", None, "insert …")
    )
    drop = f'{{"transaction-id": "{xid.hex()}"}}'
    after(read, ("1", "drop-transaction", drop), ("2", "drop-transaction", drop), transactions=transactions)
    after(read, ("3", "drop-transaction", drop))

    assert (len(transactions), transactions.dropped(9)) == (0, (xid.hex(),))
    said = capsys.readouterr().out
    assert "transaction_dropped" in said
    assert "rows_lost=1" in said
    assert said.count("signal_refused") == 2
