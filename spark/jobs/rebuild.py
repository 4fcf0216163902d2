"""A table as its source had it at a past moment, built from its log into a table beside. ``python -m spark.jobs.rebuild``.

``headwater rebuild`` starts it, in a session of its own: the tenant's stream goes on, and none of its tables is written to.
Its progress stands on standard output, a JSON object a line; the last one has the outcome (``Rebuilt``).

    open_log ▶ bounds_of ▶ state_at ▶ create_with ▶ compared

Exit codes: 0 built, 1 start again, 2 a mistake of the caller's; the last line then has the reason.
"""

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

from libs.config.load import load_settings
from libs.errors import InvalidSettings
from libs.sink_state.rebuild import AS_OF_PROPERTY, REBUILT_FROM_PROPERTY, Moment, RebuildSettings, Rebuilt
from libs.types.warehouse import COMMITTED_AT_COLUMN, ORDER_COLUMN, SOURCE_PROPERTY, TABLE_PROPERTY, WarehouseTable
from spark.session.start import open_session
from spark.settings import SessionSettings
from spark.sinks.port import Sink, StoredLog, TableRefused
from spark.sinks.registry import open_sinks
from spark.sinks.settled import name_taken
from spark.transforms.state_at import LogBounds, bounds_of, compared, state_at, unknown_rows

_EXIT_RESTART: Final = 1
_EXIT_MISTAKE: Final = 2
NAME: Final = "rebuild"

Report = Callable[[str], None]


def main(argv: Sequence[str]) -> int:
    """Build one table; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m spark.jobs.rebuild")
    parser.add_argument("--settings", type=Path, required=True)
    arguments = parser.parse_args(argv)
    try:
        settings = load_settings(RebuildSettings, path=arguments.settings, environ={}, subject=NAME)
        mistakes: list[str] = []
        sinks = open_sinks(settings.warehouses, mistakes=mistakes)
        if mistakes:
            raise InvalidSettings(NAME, mistakes)
        session = msgspec.convert(settings.session, SessionSettings)
        with tempfile.TemporaryDirectory(prefix="headwater-rebuild-") as scratch:
            local = {"spark.local.dir": scratch, **session.config}
            _print_step("starting Spark")
            spark = open_session(
                msgspec.structs.replace(session, config=local), sinks.values(), name=f"headwater-{NAME}"
            )
            try:
                rebuilt = rebuild(spark, sinks[settings.warehouse], settings, report=_print_step)
            finally:
                spark.stop()
    except (InvalidSettings, TableRefused) as error:
        _write({"failed": str(error)})
        return _EXIT_MISTAKE
    except Exception as error:  # Spark's own, from any of its layers
        traceback.print_exc()
        _write({"failed": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"})
        return _EXIT_RESTART
    _write(rebuilt)
    return 0


def rebuild(spark: SparkSession, sink: Sink, settings: RebuildSettings, *, report: Report = lambda _: None) -> Rebuilt:
    """Build the table, in one commit.

    Raises:
        TableRefused: it is impossible; the message has the reason and the remedy. Nothing was written.
    """
    place = WarehouseTable(namespace=settings.namespace, name=settings.table)
    into = WarehouseTable(namespace=settings.namespace, name=settings.into)
    if sink.exists(spark, into):
        raise name_taken(into)
    with sink.open_log(spark, place) as log:
        return _rebuilt(spark, sink, settings, place, into, log, report)


def _rebuilt(
    spark: SparkSession,
    sink: Sink,
    settings: RebuildSettings,
    place: WarehouseTable,
    into: WarehouseTable,
    log: StoredLog,
    report: Report,
) -> Rebuilt:
    began_s = time.monotonic()
    key = settings.key or log.key
    _check(log, place, key, settings.unavailable)
    until = _until(settings.as_of)
    report("reading the log")
    bounds = bounds_of(log.rows, until)
    _check_reach(place, settings.as_of, bounds)
    then = log.rows.transform(state_at(until, bounds.truncation, key=key, unavailable=settings.unavailable))
    report(f"building {into} from {bounds.changes:,} change(s)")
    database = log.table.partition(".")[0]
    noted = {
        SOURCE_PROPERTY: log.source,
        TABLE_PROPERTY: f"{database}.{settings.into}",
        REBUILT_FROM_PROPERTY: str(place),
        AS_OF_PROPERTY: settings.as_of.text,
    }
    sink.create_with(spark, into, then, noted, like=place)
    report("comparing it with the log's end")
    built = sink.read(spark, into)
    everything = sf.lit(True)
    now_bounds = bounds_of(log.rows, everything)
    now = log.rows.transform(state_at(everything, now_bounds.truncation, key=key, unavailable=settings.unavailable))
    differences = compared(built, now, key=key).first()
    unknown = log.rows.transform(unknown_rows(until, key=key)).first()
    assert differences is not None
    assert unknown is not None
    return Rebuilt(
        table=str(into),
        rows=built.count(),
        changes=bounds.changes,
        log_begins_at_us=bounds.begins_at_us or 0,
        log_ends_at_us=bounds.ends_at_us or 0,
        same=differences.same,
        changed_since=differences.changed_since,
        gone_since=differences.gone_since,
        come_since=differences.come_since,
        unknown_existed=unknown.existed,
        unknown_may_have_existed=unknown.may_have_existed,
        took_s=round(time.monotonic() - began_s, 1),
    )


def _check(log: StoredLog, place: WarehouseTable, key: Sequence[str], unavailable: Sequence[str]) -> None:
    if not key:
        raise TableRefused(
            f"{place}: its source has no key, so that no column says which changes are of one row; "
            "name the columns that do by --key"
        )
    columns = log.rows.columns
    if missing := [name for name in (*key, *unavailable) if name not in columns]:
        raise TableRefused(f"{place}: has no column {', '.join(missing)}; it has {', '.join(columns)}")


def _until(as_of: Moment) -> Column:
    if as_of.order is not None:
        return sf.col(ORDER_COLUMN) <= as_of.order
    return sf.col(COMMITTED_AT_COLUMN) <= sf.timestamp_micros(sf.lit(as_of.at_us))


def _check_reach(place: WarehouseTable, as_of: Moment, bounds: LogBounds) -> None:
    if not bounds.changes and bounds.truncation is None:
        begins = "is empty" if bounds.begins_at_us is None else f"begins at {Moment(at_us=bounds.begins_at_us).text}"
        raise TableRefused(f"{place}: the log {begins}: it has nothing of {as_of.text}")


def _print_step(doing: str) -> None:
    _write({"doing": doing})


def _write(line: object) -> None:
    sys.stdout.write(f"{msgspec.json.encode(line).decode()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
