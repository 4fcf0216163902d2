"""A batch's rows into staging tables, as Arrow from Spark's tasks.

Spark hands a Python worker thousands of rows as Arrow's columns, and these go to the server as they are: no Python runs for
a row. A task fills a table of its own, and the driver takes only the tables of tasks that succeeded: a task that Spark runs
twice, or a killed driver's last ones, change nothing.
"""

import io
import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from libs import errors
from libs.clickhouse.connection import connect
from libs.clickhouse.names import STATE_DATABASE, quoted
from libs.errors import HeadwaterError, TransientError
from spark.sinks import port
from spark.sinks.clickhouse.client import errors_named
from spark.sinks.clickhouse.settings import Settings
from spark.transforms.sql_text import quoted as spark_quoted

_OUTCOME: Final = pa.schema([("stage", pa.string()), ("error", pa.string()), ("message", pa.string())])
_OUTCOME_SQL: Final = "stage string, error string, message string"


@dataclass(frozen=True, slots=True)
class StageTarget:
    """Each task's result."""

    settings: Settings
    prefix: str
    """Of the staging tables' names; the number of the task's attempt comes after it."""
    columns: Mapping[str, str]
    """ClickHouse's types by name, in the rows' order."""
    subject: str
    """The table that the rows are for."""


def stage_rows(changes: DataFrame, target: StageTarget) -> list[str]:
    """Send ``changes``; the quoted names of the tables that hold them now.

    Raises:
        HeadwaterError: as ``client.errors_named`` names it.
    """
    # Spark's ``mapInArrow`` takes no names that hold a backtick; the tasks know them.
    numbered = [sf.col(spark_quoted(name)).alias(f"c{number}") for number, name in enumerate(target.columns)]
    rows = changes.select(*numbered).coalesce(target.settings.stage_connections)
    outcomes = rows.mapInArrow(partial(_stage_task, target), _OUTCOME_SQL).collect()
    for outcome in outcomes:
        if outcome.error is not None:
            kind: type[HeadwaterError] = getattr(errors, outcome.error, getattr(port, outcome.error, HeadwaterError))
            raise kind(outcome.message)
    return sorted(outcome.stage for outcome in outcomes)


def _stage_task(target: StageTarget, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a Python worker. Failures go back as rows: Spark would hand on only their text, and that of the driver's."""
    filled = (batch.rename_columns(list(target.columns)) for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    context = TaskContext.get()
    assert context is not None
    stage = quoted(STATE_DATABASE, f"{target.prefix}{context.taskAttemptId()}")
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in target.columns.items())
    try:
        client = connect(target.settings, application="headwater-sink-stage")
        with errors_named(target.settings, target.subject):
            client.command(f"CREATE TABLE {stage} ({columns}) ENGINE = MergeTree ORDER BY tuple()")
            sent = _Counted(itertools.chain([first], filled))
            client.raw_insert(stage, insert_block=_arrow_stream(first.schema, sent), fmt="ArrowStream")
            [[stored]] = client.query(f"SELECT count() FROM {stage}").result_rows
        client.close()
        if stored != sent.rows:
            # The driver may send an INSERT again whose answer was lost.
            raise TransientError(f"{target.subject}: {sent.rows} rows were staged and {stored} came; it is tried again")
        yield _outcome(stage, None)
    except HeadwaterError as error:
        yield _outcome(None, error)


class _Counted:
    """Batches as they come, and how many rows they had."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def _arrow_stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Generator[bytes, None, None]:
    """The batches in Arrow's stream format, piece by piece: a task's rows never lie in memory at once."""
    piece = io.BytesIO()
    with pa.ipc.new_stream(piece, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield piece.getvalue()
            piece.seek(0)
            piece.truncate()
    yield piece.getvalue()


def _outcome(stage: str | None, error: HeadwaterError | None) -> pa.RecordBatch:
    values = [[stage], [None if error is None else type(error).__name__], [None if error is None else str(error)]]
    return pa.record_batch([pa.array(value, pa.string()) for value in values], schema=_OUTCOME)
