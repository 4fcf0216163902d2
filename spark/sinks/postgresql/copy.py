"""A batch's rows into staging tables, by COPY from Spark's tasks.

Spark's own code makes each row a line of COPY's text format. Arrow hands a Python worker thousands of lines as one piece of
memory, and that piece goes to the server as it is: no Python runs for a row. Measured against Spark's JDBC writer in
docs/sinks.md.

A task fills a table of its own in one transaction, and the driver takes only the tables of tasks that succeeded: a task that
Spark runs twice, or a killed driver's last ones, change nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import psycopg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from libs import errors
from libs.errors import HeadwaterError
from libs.postgresql.connection import connect
from libs.postgresql.names import STATE_SCHEMA, quoted
from spark.sinks import port
from spark.sinks.postgresql.client import table_error
from spark.sinks.postgresql.copy_text import copy_line
from spark.sinks.postgresql.settings import Settings

_OUTCOME: Final = pa.schema([("stage", pa.string()), ("error", pa.string()), ("message", pa.string())])
_OUTCOME_SQL: Final = "stage string, error string, message string"


@dataclass(frozen=True, slots=True)
class StageTarget:
    """What each task makes."""

    settings: Settings
    prefix: str
    """Of the staging tables' names; the number of the task's attempt comes behind it."""
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
            kind = getattr(errors, outcome.error, None) or getattr(port, outcome.error, HeadwaterError)
            raise kind(outcome.message)
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


def lines_of(batch: pa.RecordBatch) -> memoryview:
    """The text of a batch's only column, in one piece: Arrow keeps values one behind the other."""
    lines: Any = batch.column(0)
    _, offsets, data = lines.buffers()
    ends = memoryview(offsets).cast("q" if pa.types.is_large_string(lines.type) else "i")
    return memoryview(data)[ends[lines.offset] : ends[lines.offset + len(lines)]]


def _outcome(stage: str | None, error: HeadwaterError | None) -> pa.RecordBatch:
    values = [[stage], [None if error is None else type(error).__name__], [None if error is None else str(error)]]
    return pa.record_batch([pa.array(value, pa.string()) for value in values], schema=_OUTCOME)
