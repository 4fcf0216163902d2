"""Metrics of a turn of ``headwater check --every``."""

from libs.check.run import CheckReport
from libs.telemetry.metrics import (
    CHECK_COMPARED_ROWS,
    CHECK_DIFFERENT_ROWS,
    CHECK_ENDED,
    CHECK_READ_ROWS,
    CHECK_SECONDS,
    CHECK_UNDECIDED_ROWS,
)

_OF_TABLES = (CHECK_COMPARED_ROWS, CHECK_READ_ROWS, CHECK_DIFFERENT_ROWS, CHECK_UNDECIDED_ROWS)


def record_turn(report: CheckReport, *, took_s: float, ended_at_s: float) -> None:
    """Set every metric from ``report``; a table that is no longer compared has none."""
    for gauge in _OF_TABLES:
        gauge.clear()
    record_tables(report)
    CHECK_SECONDS.set(took_s)
    CHECK_ENDED.set(ended_at_s)


def record_tables(report: CheckReport) -> None:
    """Set those of the tables of ``report``, and leave the others, and those of tables that could not be compared."""
    for check in report.tables:
        if check.not_compared:
            continue
        labels = (check.tenant, check.source, str(check.table.table_id))
        CHECK_COMPARED_ROWS.labels(*labels).set(check.comparison.rows_compared)
        CHECK_READ_ROWS.labels(*labels).set(check.rows_read)
        CHECK_DIFFERENT_ROWS.labels(*labels).set(check.comparison.rows_different + len(check.faults))
        CHECK_UNDECIDED_ROWS.labels(*labels).set(check.undecided)
