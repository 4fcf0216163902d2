"""Mining makes the source's tables of its redo, under any transactions, windows, faults and restarts."""

from collections.abc import Iterator
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.model import Model, ModelTable, Transaction
from libs.stand_ins.oracle.server import Listener, listening
from libs.types.table import TableId
from tests.oracle.traffic import COLUMNS, Traffic, order
from tests.unit.logminer_reader.rig import Reader, position_at

ORDERS = TableId(database="SHOP", table="ORDERS")
USERS = {"C##HEADWATER": "secret"}


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def orders(model: Model) -> ModelTable:
    return model.create("SHOP", "ORDERS", COLUMNS)


@pytest.fixture
def listener(model: Model) -> Iterator[Listener]:
    with listening(ModelDatabase(model, USERS)) as found:
        yield found


def insert(model: Model, table: ModelTable, *numbers: int) -> Transaction:
    transaction = model.begin()
    for number in numbers:
        transaction.insert(table, order(number))
    return transaction


def test_only_captured_tables_are_mined(model: Model, orders: ModelTable, listener: Listener) -> None:
    other = model.create("SHOP", "OTHER", COLUMNS)
    start = model.scn
    both = insert(model, orders, 1)
    both.insert(other, order(2))
    both.commit()
    insert(model, other, 3).commit()
    reader = Reader(listener, [ORDERS], position_at(start))

    reader.mine()

    assert reader.rows == {orders.object_id: orders.at(model.scn)}
    assert len(reader.places) == 1
    assert reader.position.done_scn > model.scn - 2  # also while others write, the position moves
    assert reader.position.low_scn is None


def test_an_open_transaction_is_mined_again_after_a_restart(
    model: Model, orders: ModelTable, listener: Listener
) -> None:
    reader = Reader(listener, [ORDERS], position_at(model.scn))
    opened = insert(model, orders, 1)
    first_scn = model.scn
    insert(model, orders, 2).commit()
    reader.mine()
    assert reader.position.low_scn == first_scn

    model.switch_logs()
    opened.insert(orders, order(3))
    opened.commit()
    reader.mine()

    assert reader.rows[orders.object_id] == orders.at(model.scn)
    assert len(reader.places) == 2
    assert reader.position.low_scn is None


def test_a_transaction_larger_than_memory_comes_whole(model: Model, orders: ModelTable, listener: Listener) -> None:
    reader = Reader(listener, [ORDERS], position_at(model.scn), memory_bytes=2_000)
    large, small = insert(model, orders, *range(100)), insert(model, orders, 1_000)
    large.insert(orders, order(1_001))
    large.commit()
    small.commit()

    reader.mine()

    assert reader.rows[orders.object_id] == orders.at(model.scn)


def test_a_rolled_back_transaction_is_forgotten(model: Model, orders: ModelTable, listener: Listener) -> None:
    reader = Reader(listener, [ORDERS], position_at(model.scn), memory_bytes=2_000)
    insert(model, orders, *range(100)).roll_back()

    reader.mine()

    assert reader.places == []
    assert reader.position.low_scn is None


STEPS = st.lists(
    st.sampled_from(
        [
            *("begin", "insert", "insert", "insert", "update", "update", "delete", "savepoint", "back"),
            *("commit", "commit", "abort", "switch", "mine", "kill"),
        ]
    ),
    max_size=80,
)


@settings(max_examples=6, deadline=None)
@given(steps=STEPS, chance=st.randoms(use_true_random=False), memory_bytes=st.sampled_from([500, 64 << 20]))
def test_each_commit_is_delivered_once_whatever_happens(steps: list[str], chance: Random, memory_bytes: int) -> None:
    """Several open transactions, savepoints, log switches, and kills after any transaction."""
    model = Model()
    tables = [model.create("SHOP", name, COLUMNS) for name in ("ORDERS", "Odd 'name'")]
    with listening(ModelDatabase(model, USERS)) as listener:
        traffic = Traffic(model, tables, chance)
        captured = [TableId(database="SHOP", table=table.named.name) for table in tables]
        reader = Reader(listener, captured, position_at(model.scn), memory_bytes=memory_bytes)
        for step in [*steps, "mine"]:
            if step == "mine":
                reader.mine()
            elif step == "kill":
                delivered = len(reader.places) + chance.randrange(3)
                reader.mine(until=lambda each, most=delivered: len(each.places) > most)  # type: ignore[misc]
            else:
                traffic.take(step)

        done = reader.position.done_scn - 1
        assert {table.object_id: reader.rows.get(table.object_id, {}) for table in tables} == {
            table.object_id: table.at(done) for table in tables
        }
        assert reader.places == sorted(set(reader.places))
