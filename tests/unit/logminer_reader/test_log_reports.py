"""How far the redo is read, and a transaction that stays open, as metrics and as a fault."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from libs.oracle.log_position import LogminerPosition
from libs.oracle.log_rows import Operation
from libs.telemetry.faults import TRANSACTION_OPEN_LONG, lasting_faults, lift_fault
from libs.types.fault import FaultScope
from services.logminer_reader.log_reports import LogReports
from services.logminer_reader.log_steps import LogSteps
from services.logminer_reader.transactions import OpenTransactions
from tests.unit.logminer_reader.test_log_steps import A, B, row

SOURCE = "reported"
POSITION = LogminerPosition(dbid=1, resetlogs_change=1, resetlogs_id=1, done_scn=100)


@pytest.fixture(autouse=True)
def no_fault() -> Iterator[None]:
    yield
    lift_fault(TRANSACTION_OPEN_LONG, FaultScope(source=SOURCE))


def value(name: str) -> float | None:
    return REGISTRY.get_sample_value(f"headwater_oracle_{name}", {"source": SOURCE, "source_partition": "0"})


def long_open() -> list[str]:
    return [fault.happened for fault in lasting_faults() if fault.id == TRANSACTION_OPEN_LONG.id]


def made(*rows: Any) -> tuple[LogSteps, OpenTransactions]:
    transactions = OpenTransactions(None, memory_bytes=1 << 20, whole_from_scn=100)
    steps = LogSteps(POSITION, transactions)
    steps.take(rows)
    steps.end_window(130)
    return steps, transactions


def test_a_transaction_that_stays_open_is_a_fault_until_it_ends() -> None:
    now = datetime.now(UTC).replace(tzinfo=None)
    steps, transactions = made(
        row(110, A)._replace(timestamp=now - timedelta(hours=5)),
        row(111, B)._replace(timestamp=now),
        row(112, B, Operation.ROLLBACK),
    )
    reports = LogReports(SOURCE)

    reports.window_ended(POSITION, steps, transactions)

    assert (value("done_scn"), value("mined_from_scn"), value("open_transactions")) == (100, 100, 1)
    assert value("rolled_back_transactions_total") == 1
    assert 5 * 3_600 <= (value("oldest_transaction_seconds") or 0) < 6 * 3_600
    (happened,) = long_open()
    assert A.hex() in happened and "since SCN 110" in happened

    steps.take([row(140, A, Operation.COMMIT)])
    steps.end_window(150)
    reports.window_ended(POSITION, steps, transactions)

    assert (value("open_transactions"), value("oldest_transaction_seconds"), long_open()) == (0, 0, [])
    assert value("rolled_back_transactions_total") == 1
