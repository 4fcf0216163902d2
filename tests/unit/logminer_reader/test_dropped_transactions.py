"""``drop-transaction``: a transaction is passed over whole, also after restarts, and holds nothing back any more."""

import asyncio

import pytest

from libs.source.signals import ORACLE_TYPES, DropTransaction, InvalidSignal, parse_signal
from libs.stand_ins.oracle.definitions import column
from libs.stand_ins.oracle.model import Model, Transaction
from libs.stand_ins.oracle.tables import ModelTable
from services.logminer_reader.transactions import OpenTransactions
from tests.oracle.in_process import FixedSchemas, fixed_schema, position_of
from tests.oracle.interleavings import TABLES, Log

XID = "0a0007008e2a0000"


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def table(model: Model) -> ModelTable:
    return model.create("SHOP", "PLAIN", [column(text) for text in TABLES["PLAIN"]], ("ID",))


def log_of(model: Model, table: ModelTable) -> Log:
    return Log(model, FixedSchemas({table.object_id: fixed_schema("PLAIN", TABLES["PLAIN"])}), None, position_of(model))


def insert(transaction: Transaction, table: ModelTable, *ids: int) -> None:
    for number in ids:
        transaction.insert(table, {"ID": number, "NM": "n"})


@pytest.mark.parametrize("has_end", [False, True])
def test_it_is_passed_over_after_each_restart(
    model: Model, table: ModelTable, monkeypatch: pytest.MonkeyPatch, has_end: bool
) -> None:
    log = log_of(model, table)
    lost, kept = model.begin(), model.begin()
    insert(lost, table, 1, 2)
    dropped = OpenTransactions.drop
    seen: list[int] = []

    def dropped_once(transactions: OpenTransactions, scn: int) -> tuple[str, ...]:
        if not seen:
            found = dropped(transactions, lost.xid)
            assert found is not None
            seen.append(found.rows)
        return given(transactions, scn)

    given = OpenTransactions.dropped
    monkeypatch.setattr(OpenTransactions, "dropped", dropped_once)
    insert(kept, table, 10)
    kept.commit()
    asyncio.run(log.read())
    assert seen == [2]
    assert log.position.dropped == (lost.xid.hex(),)

    insert(lost, table, 3)
    other = model.begin()
    insert(other, table, 11)
    other.commit()
    asyncio.run(log.read())
    assert log.position.low_scn is None

    insert(lost, table, 4)
    lost.commit() if has_end else lost.roll_back()
    last = model.begin()
    insert(last, table, 12)
    last.commit()
    asyncio.run(log.read())
    assert [event.after["ID"] for event in log.events] == [10, 11, 12]
    assert log.position.dropped == ()


def test_the_log_may_say_half_of_its_id(model: Model, table: ModelTable) -> None:
    transactions = OpenTransactions(None, memory_bytes=1 << 20, dropped=[XID])
    half = bytes.fromhex(XID)[:4] + b"\xff" * 4
    assert transactions.ended(half, 100) is None
    assert transactions.dropped(100) == (XID,)
    assert transactions.dropped(101) == ()


@pytest.mark.parametrize(
    "data", ["{}", '{"transaction-id": "0a00"}', '{"transaction-id": 7}', '{"transaction-id": "0a0007008e2a000g"}']
)
def test_a_signal_without_an_id_is_refused(data: str) -> None:
    with pytest.raises(InvalidSignal, match="transaction-id"):
        parse_signal(f'{{"type": "drop-transaction", "data": {data}}}', types=ORACLE_TYPES)


def test_other_readers_do_not_know_it() -> None:
    text = f'{{"id": "s", "type": "drop-transaction", "data": {{"transaction-id": "{XID.upper()}"}}}}'
    assert parse_signal(text, types=ORACLE_TYPES) == DropTransaction("s", XID)
    with pytest.raises(InvalidSignal, match="unknown to this reader"):
        parse_signal(text)
