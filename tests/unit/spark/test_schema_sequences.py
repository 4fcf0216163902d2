"""Through any statements on a table, a mirror has the source's rows and a log every value that was written, wherever batches
are cut.

The sinks' plans and fills, carried out on rows in memory; a warehouse's part in them is in the contract tests.
"""

import functools
import random
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, cast

from pyspark.sql import SparkSession

from libs.types.table import TableSchema
from libs.types.tenant import ChangePolicies, Deletes, SinkMode
from libs.types.warehouse import warehouse_table
from libs.warehouse.dialect import DIALECTS, Dialect
from libs.warehouse.schema_changes import StoredColumn, first_columns, places_of
from libs.warehouse.spark_types import spark_type
from spark.sinks.evolution import evolution
from spark.sinks.port import Reached, Sink, SinkColumn, SinkTable
from spark.sinks.ready_table import ready_table
from spark.transforms.fill import fill_of
from spark.transforms.warehouse_columns import Fill, TableColumn
from tests.schema_sequences import CREATE, TABLE, Source, Statement, Step, Written, numbered, steps

SEEDS = 120
STEPS = 14
Batch = list[tuple[TableSchema, Mapping[str, Any]]]


class MemorySink:
    """A warehouse of one table."""

    def __init__(self, dialect: Dialect, mode: SinkMode) -> None:
        self.dialect = dialect
        self.mode = mode
        self.columns: dict[str, StoredColumn] = {}
        self.fills: dict[str, Fill] = {}
        self.version: int | None = None
        self.rows: list[dict[str, Any]] = []
        self.delivered: dict[int, TableSchema] = {}

    def take(self, batch: Batch) -> None:
        """As ``spark.batch.apply`` has it."""
        versions = {schema.version: schema for schema, _ in batch}
        self.delivered |= versions
        ordered = [versions[number] for number in sorted(versions)]
        _, columns = ready_table(
            cast("SparkSession", None), cast("Sink", self), [self._table(each, ordered) for each in ordered]
        )
        for schema, row in batch:
            by_name = {name.lower(): value for name, value in row.items()}
            taken = {name: (column.sources or {}).get(schema.version) for name, column in columns.items()}
            made = {
                name: self._filled(name, schema.version) if source is None else by_name[source.lower()]
                for name, source in taken.items()
            }
            if self.mode is SinkMode.MIRROR:
                self.rows = [each for each in self.rows if each["id"] != row["id"]]
            self.rows.append(made)

    def ensure_table(self, _: SparkSession, table: SinkTable) -> Mapping[str, TableColumn]:
        """As a sink's, with the fills of a mirror."""
        fills = {column.name: column.fill for column in table.columns if column.fill}
        if self.version is None:
            self.columns, self.version = first_columns(table.schema, self.dialect), table.schema.version
            self.fills = {name: fill for name, fill in fills.items() if fill.since_version > table.oldest_version}
        elif changes := evolution(self._columns(), self.version, table, self.dialect):
            called = changes.renamed
            self.fills = {called.get(name, name): fill for name, fill in self.fills.items()}
            self.rows = [{called.get(name, name): value for name, value in row.items()} for row in self.rows]
            for column in changes.added:
                if column.fill is not None:
                    self.fills[column.name] = column.fill
                for row in self.rows:
                    assert column.name not in row
                    row[column.name] = self._filled(column.name, 0)
            self.columns = dict(changes.columns)
            self.version = changes.version or self.version
            assert all(row.keys() == self.columns.keys() for row in self.rows)
        return self._columns()

    def _columns(self) -> dict[str, TableColumn]:
        return {name: TableColumn("", self.fills.get(name), column) for name, column in self.columns.items()}

    def _filled(self, name: str, version: int) -> Any:
        fill = None if self.mode is SinkMode.APPEND else self.fills.get(name)
        return None if fill is None or version >= fill.since_version else constant(fill)

    def _table(self, schema: TableSchema, versions: Sequence[TableSchema]) -> SinkTable:
        return SinkTable(
            name=warehouse_table("acme", "shop", TABLE),
            mode=self.mode,
            deletes=Deletes.HARD,
            columns=tuple(
                SinkColumn(each.name, spark_type(each), fill=fill_of(each, versions)) for each in schema.columns
            ),
            key=schema.key,
            topic="acme.shop.shop.orders",
            source="shop",
            table=str(TABLE),
            schema=schema,
            oldest_version=versions[0].version,
            reached=Reached(order="", committed_at_us=0, offsets={}),
            policies=ChangePolicies(),
            schema_at=self.delivered.get,
        )


def constant(fill: Fill) -> Any:
    """The value of the expression, of those that these tables have."""
    [text] = re.findall(r"'([^']*)'", fill.expression)
    return text if fill.expression.endswith("AS STRING)") else int(text)


def test_a_mirror_has_the_rows_of_its_source() -> None:
    for seed, dialect in product(range(SEEDS), DIALECTS.values()):
        source, history, batches = made(seed)
        sink = MemorySink(dialect, SinkMode.MIRROR)

        for batch in batches:
            sink.take(batch)

        newest, _ = batches[-1][-1]
        places = places_of(sink.columns, newest, sink.dialect)
        rows = {row["id"]: row for row in sink.rows}
        for key, row in source.table().items():
            expected = {name: value for name, value in row.items() if source.is_certain(key, name)}
            found = {name: rows[key][places[name]] for name in expected}
            assert found == expected, (seed, key, history)


def test_a_log_has_every_value_that_was_written() -> None:
    for seed, dialect in product(range(SEEDS), DIALECTS.values()):
        _, history, batches = made(seed)
        sink = MemorySink(dialect, SinkMode.APPEND)

        for batch in batches:
            sink.take(batch)

        written = [values(step.row) for step in history if isinstance(step, Written)]
        assert [values(row) for row in sink.rows[:-1]] == written, (seed, history)


@functools.cache
def made(seed: int) -> tuple[Source, list[Step], list[Batch]]:
    chosen, source = random.Random(seed), Source()
    history = list(steps(chosen, source, STEPS))
    return source, history, cut(chosen, history)


def values(row: Mapping[str, Any]) -> list[str]:
    return sorted(str(value) for value in row.values() if value is not None)


def cut(chosen: random.Random, history: Sequence[Step]) -> list[Batch]:
    """Rows, each under the version that it was written in; versions without a row are never delivered. The last batch has a
    row, so that the table is ready for the newest version."""
    schema = numbered(None, CREATE)
    batches: list[Batch] = []
    batch: Batch = []
    for step in history:
        match step:
            case Statement(text=text):
                schema = numbered(schema, text)
            case Written(row=row):
                batch.append((schema, row))
        if batch and chosen.random() < 0.3:
            batches.append(batch)
            batch = []
    last = {"id": 99, **{column.name: 0 for column in schema.columns if column.name != "id"}}
    return [*batches, [*batch, (schema, last)]]
