"""Rows of a table as Spark has them, as Arrow by Spark's tasks.

A task asks for a part of the rows, and hands ClickHouse's columns on: no Python runs for a row. It reads the rows that are
there when a task runs, so a frame is read before its table is written.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from libs.clickhouse.connection import connect
from libs.clickhouse.names import quoted
from libs.errors import HeadwaterError
from libs.warehouse.clickhouse import sql_type
from libs.warehouse.spark_types import MAX_DECIMAL_DIGITS, UNSIGNED_BIGINT
from spark.sinks.clickhouse.client import errors_named
from spark.sinks.clickhouse.settings import Settings
from spark.sinks.clickhouse.statements import SETTINGS

_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")
# The answer is whole when it begins to come, so that none that is cut off is taken for all there is.
_WHOLE: Final = {"wait_end_of_query": 1}


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows of a table."""

    place: str
    """Quoted."""
    columns: Mapping[str, str]
    """The dialect's types by name."""
    key: Sequence[str]
    """By which the rows are dealt out to tasks."""
    where: str
    """A condition."""
    is_final: bool
    """Of the rows of a key the newest counts."""

    def query(self, what: str, more: str = "") -> str:
        """``what`` of the rows for which ``more`` is also true."""
        condition = f"({self.where}) AND {more}" if more else self.where
        final = " FINAL" if self.is_final else ""
        return f"SELECT {what} FROM {self.place}{final} WHERE {condition}{SETTINGS}"

    def part_query(self, part: int, parts: int) -> str:
        """The rows of one of ``parts`` tasks, their columns in order."""
        what = ", ".join(_read(name, own) for name, own in self.columns.items())
        if parts == 1:
            return self.query(what)
        hashed = f"cityHash64({', '.join(map(quoted, self.key))})"
        # A key with a NULL has none.
        return self.query(what, f"ifNull({hashed} % {parts}, 0) = {part}")


def read_rows(spark: SparkSession, settings: Settings, selection: Selection, *, tasks: int, subject: str) -> DataFrame:
    """The rows of ``selection``, asked for whenever the frame is used; ``subject``: the table, for errors.

    ``tasks``: how many ask, each for its part; 0: none does, there are no rows.
    """
    types = [sql_type(own) for own in selection.columns.values()]
    schema = ", ".join(f"c{number} {kind}" for number, kind in enumerate(types))
    queries = [selection.part_query(part, tasks) for part in range(tasks)]
    numbers = spark.range(0, tasks, 1, max(tasks, 1))
    wanted = to_arrow_schema(cast(StructType, StructType.fromDDL(schema)))
    rows = numbers.mapInArrow(partial(_read_task, settings, queries, wanted, subject), schema)
    # Spark's ``mapInArrow`` takes no names that hold a backtick.
    return rows.select(*(sf.col(f"c{number}").alias(name) for number, name in enumerate(selection.columns)))


def _read_task(
    settings: Settings, queries: Sequence[str], wanted: pa.Schema, subject: str, numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs in a Python worker."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            try:
                with errors_named(settings, subject):
                    yield from _rows(settings, queries[number], wanted)
            except HeadwaterError as error:
                # Spark reports causes too, and the driver's may quote a row.
                raise type(error)(str(error)) from None


def _rows(settings: Settings, query: str, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    client = connect(settings, application="headwater-sink-read")
    try:
        # Of texts and bytes alike ClickHouse has strings; as bytes they come as they are.
        with client.query_arrow_stream(query, settings=_WHOLE, use_strings=False) as blocks:
            for block in blocks:
                columns = [column.cast(field.type) for column, field in zip(block.columns, wanted, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=wanted)
    finally:
        client.close()


def _read(name: str, own: str) -> str:
    """A column as Spark can have it."""
    column = quoted(name)
    if sql_type(own) == UNSIGNED_BIGINT:
        return f"CAST({column}, 'Nullable(Decimal(20, 0))')"
    if (number := _DECIMAL.fullmatch(own)) and int(number[1]) > MAX_DECIMAL_DIGITS:
        return f"toDecimalString({column}, {number[2]})"  # all its digits, as events have them
    return column
