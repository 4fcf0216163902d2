"""A batch's rows into staging tables, by COPY from Spark's tasks.

Spark's own code makes each row a line of COPY's text format. Arrow hands a Python worker thousands of lines as one piece of
memory, and that piece goes to the server as it is: no Python runs for a row. Measured against Spark's JDBC writer in
docs/sinks/postgresql.md.

A task fills a table of its own in one transaction, and the driver takes only the tables of tasks that succeeded: a task that
Spark runs twice, or a killed driver's last ones, change nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark import TaskContext
from pyspark.sql import DataFrame

from libs import errors
from libs.errors import HeadwaterError
from libs.postgresql.connection import connect
from libs.postgresql.names import STATE_SCHEMA, quoted
from spark.sinks import port
from spark.sinks.port import KAFKA_PARTITION_COLUMN, OFFSET_COLUMN, RefusedRow
from spark.sinks.postgresql.client import row_refusal, table_error
from spark.sinks.postgresql.copy_text import copy_line
from spark.sinks.postgresql.settings import Settings

_OUTCOME: Final = pa.schema([("stage", pa.string()), ("error", pa.string()), ("message", pa.string())])
_OUTCOME_SQL: Final = "stage string, error string, message string"
_PROBED: Final = pa.schema(
    [("kafka_partition", pa.int32()), ("offset", pa.int64()), ("error", pa.string()), ("message", pa.string())]
)
_PROBED_SQL: Final = "kafka_partition int, offset bigint, error string, message string"
_PROBE_TABLE: Final = "headwater_probe"
"""No digit: see ``_first_refused``."""


@dataclass(frozen=True, slots=True)
class StageTarget:
    """Each task's result."""

    settings: Settings
    prefix: str
    """Of the staging tables' names; the number of the task's attempt comes after it."""
    columns: str
    """Their names and types, in the lines' order."""
    subject: str
    """The table that the rows are for."""


def copy_into_stages(changes: DataFrame, columns: Mapping[str, str], target: StageTarget) -> list[str]:
    """Copy ``changes`` (Spark's types by column, in order); the quoted names of the tables that hold them now.

    Raises:
        HeadwaterError: as ``client.table_error`` names it.
    """
    lines = changes.select(copy_line(columns).alias("line")).coalesce(target.settings.copy_connections)
    outcomes = lines.mapInArrow(partial(_copy_task, target), _OUTCOME_SQL).collect()
    for outcome in outcomes:
        if outcome.error is not None:
            _raise(outcome.error, outcome.message)
    return sorted(outcome.stage for outcome in outcomes)


def _copy_task(target: StageTarget, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a Python worker. Failures go back as rows: Spark would hand on only their text, and that of the driver's."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    context = TaskContext.get()
    assert context is not None
    name = f"{target.prefix}{context.taskAttemptId()}"
    stage = quoted(STATE_SCHEMA, name)
    try:
        with connect(target.settings, application="headwater-sink-copy") as connection:
            # Unlogged: after a crash of the server the batch comes again. No vacuum either: it lives for seconds.
            connection.execute(f"CREATE UNLOGGED TABLE {stage} ({target.columns}) WITH (autovacuum_enabled = false)")
            with connection.cursor() as cursor, cursor.copy(f"COPY {stage} FROM STDIN") as copy:
                copy.write(lines_of(first))
                for batch in filled:
                    copy.write(lines_of(batch))
        yield _outcome(stage, None)
    except HeadwaterError as error:
        yield _outcome(None, error)
    except psycopg.Error as error:
        yield _outcome(None, table_error(target.settings, target.subject, error))


@dataclass(frozen=True, slots=True)
class Probe:
    """The table on which each task of ``find_refused_rows`` tries its rows."""

    settings: Settings
    columns: Mapping[str, str]
    """Types by PostgreSQL's names, in the lines' order."""
    subject: str
    at_most: int


def find_refused_rows(changes: DataFrame, columns: Mapping[str, str], probe: Probe) -> list[RefusedRow]:
    """Which of ``changes`` (``columns`` as in ``copy_into_stages``, and ``kafka_partition`` and ``offset``) cannot be copied.

    Only asked for when a copy has failed: each refused row costs a copy of the thousands around it.

    Raises:
        HeadwaterError: as ``client.table_error`` names it, where it is not about a row.
    """
    lines = changes.select(KAFKA_PARTITION_COLUMN, OFFSET_COLUMN, copy_line(columns).alias("line"))
    found = (
        lines.coalesce(probe.settings.copy_connections).mapInArrow(partial(_probe_task, probe), _PROBED_SQL).collect()
    )
    for row in found:
        if row.error is not None:
            _raise(row.error, row.message)
    return [RefusedRow(row.kafka_partition, row.offset, row.message) for row in found]


def _probe_task(probe: Probe, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a Python worker."""
    refused: list[tuple[int | None, int | None, str | None, str]] = []
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in probe.columns.items())
    try:
        with (
            connect(probe.settings, application="headwater-sink-probe") as connection,
            connection.transaction(force_rollback=True),
        ):
            connection.execute(sql.SQL(f"CREATE TEMPORARY TABLE {_PROBE_TABLE} ({columns}) ON COMMIT DROP"))
            for batch in batches:
                rows = batch.to_pylist()
                while rows and len(refused) <= probe.at_most:
                    place, because = _first_refused(connection, probe, [row["line"] for row in rows])
                    if because is None:
                        break
                    refused.append((rows[place][KAFKA_PARTITION_COLUMN], rows[place][OFFSET_COLUMN], None, because))
                    rows = rows[place + 1 :]
    except HeadwaterError as error:
        refused = [(None, None, type(error).__name__, str(error))]
    except psycopg.Error as error:
        named = table_error(probe.settings, probe.subject, error)
        refused = [(None, None, type(named).__name__, str(named))]
    if refused:
        yield pa.RecordBatch.from_pylist(
            [dict(zip(_PROBED.names, each, strict=True)) for each in refused], schema=_PROBED
        )


def _first_refused(connection: Any, probe: Probe, lines: list[str]) -> tuple[int, str | None]:
    """The first bad line, counted from 0, and its mistake; lines before it are fine. None: all are."""
    try:
        with (
            connection.transaction(force_rollback=True),
            connection.cursor() as cursor,
            cursor.copy(sql.SQL(f"COPY {_PROBE_TABLE} FROM STDIN")) as copy,
        ):
            copy.write("".join(lines))
    except psycopg.Error as error:
        because = row_refusal(error)
        # "COPY headwater_probe, line 3, column note: …", in the server's language: the first number is the line's.
        number = re.search(r"\d+", error.diag.context or "")
        if because is None or number is None:
            raise
        place = int(number[0]) - 1
        named = [
            name for name in probe.columns if f" {name}" in (error.diag.context or "")[number.end() :].split(":")[0]
        ]
        column = f"column {max(named, key=len)}: " if named else ""
        return place, f"{column}{because}; then `headwater dead-letter replay`"
    return 0, None


def _raise(error: str, message: str) -> NoReturn:
    kind: type[HeadwaterError] = getattr(errors, error, getattr(port, error, HeadwaterError))
    raise kind(message)


def lines_of(batch: pa.RecordBatch) -> memoryview:
    """The text of a batch's only column, in one piece: Arrow keeps values one after the other."""
    lines: Any = batch.column(0)
    _, offsets, data = lines.buffers()
    ends = memoryview(offsets).cast("q" if pa.types.is_large_string(lines.type) else "i")
    return memoryview(data)[ends[lines.offset] : ends[lines.offset + len(lines)]]


def _outcome(stage: str | None, error: HeadwaterError | None) -> pa.RecordBatch:
    values = [[stage], [None if error is None else type(error).__name__], [None if error is None else str(error)]]
    return pa.record_batch([pa.array(value, pa.string()) for value in values], schema=_OUTCOME)
