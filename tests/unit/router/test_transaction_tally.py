"""Dead letters of one writer's transactions: their fault, the copy that ends it, and transactions that are aborted."""

from collections.abc import Iterator

import pytest
import structlog

from libs.telemetry.faults import EVENTS_SET_ASIDE, lasting_faults, lift_fault
from services.router.delivery.delivery import Delivery
from services.router.records.record_batch import NO_RECORDS
from services.router.transactions.metering import Meter
from services.router.transactions.tally import TransactionTally

LETTERS = Delivery((), NO_RECORDS, dead_letters=2, table="s.t", reason="too large")
COPIED = Delivery((), NO_RECORDS, rows=1, table="s.t")


@pytest.fixture
def tally() -> Iterator[TransactionTally]:
    """Of a source whose faults end with the test."""
    yield TransactionTally("tally", {}, Meter(), structlog.get_logger())
    for fault in lasting_faults():
        if fault.scope.source == "tally":
            lift_fault(EVENTS_SET_ASIDE, fault.scope)


def happened() -> list[str]:
    """The texts of the source's faults."""
    return [fault.happened for fault in lasting_faults() if fault.scope.source == "tally"]


def run(tally: TransactionTally, *deliveries: Delivery, commits: bool = True) -> None:
    """One transaction of acme."""
    for delivery in deliveries:
        tally.add("acme", delivery, 0, 0.0)
    tally.report()
    if commits:
        tally.count()
    else:
        tally.forget()


def test_a_fault_is_raised_before_the_commit(tally: TransactionTally) -> None:
    """A router that is killed right after the commit never reads the events again."""
    tally.add("acme", LETTERS, 0, 0.0)
    tally.report()

    assert happened() == ["s.t: 2 events are dead letters: too large"]


def test_letters_of_an_aborted_transaction_are_counted_once(tally: TransactionTally) -> None:
    run(tally, LETTERS, commits=False)
    run(tally, LETTERS)
    run(tally, LETTERS)

    assert happened() == ["s.t: 4 events are dead letters: too large"]


def test_a_copy_ends_a_fault_by_its_commit(tally: TransactionTally) -> None:
    """The rows of an aborted one are not there."""
    run(tally, LETTERS)
    run(tally, COPIED, commits=False)
    assert happened() == ["s.t: 2 events are dead letters: too large"]

    run(tally, COPIED)
    assert happened() == []


@pytest.mark.parametrize(
    ("deliveries", "expected"),
    [
        ((LETTERS, COPIED), []),
        ((COPIED, LETTERS), ["s.t: 2 events are dead letters: too large"]),
    ],
)
def test_the_last_in_a_transaction_counts(
    tally: TransactionTally, deliveries: tuple[Delivery, ...], expected: list[str]
) -> None:
    """A copy that comes after letters brings their rows again."""
    run(tally, *deliveries)

    assert happened() == expected
