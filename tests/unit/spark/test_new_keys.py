"""A table has a key of a batch if a look at every key says so, with any columns and types of keys."""

import datetime
import decimal
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import functions as sf

from libs.mysql.logical import column
from libs.types.tenant import SinkMode, SinkSettings
from spark.batch.write import sink_table
from spark.sinks.new_keys import ask
from spark.transforms.local_rows import local_rows
from spark.transforms.sql_text import quoted
from tests.spark_session import SharedSpark
from tests.unit.spark.contexts import context_of, tenant_sink
from tests.unit.spark.events import orders_schema
from tests.unit.spark.test_small_tables import put, table_batch

VALUES: dict[str, Callable[[random.Random], Any]] = {
    "string": lambda chance: "".join(chance.choice("aAbZé🐬~'\\\0") for _ in range(chance.randrange(3))),
    "binary": lambda chance: chance.randbytes(chance.randrange(3)),
    "decimal(12,4)": lambda chance: decimal.Decimal(chance.randrange(-30, 30)) / 4,
    "date": lambda chance: datetime.date(1, 1, 1) + datetime.timedelta(days=chance.randrange(40)),
    "timestamp_ntz": lambda chance: datetime.datetime(1969, 12, 31, 23, 59, 59, chance.randrange(40)),
    "boolean": lambda chance: chance.random() < 0.5,
    "bigint": lambda chance: chance.randrange(-9, 9),
}


def test_keys_are_new_where_no_stored_one_is_among_them(shared: SharedSpark, tmp_path: Path) -> None:
    """Keys of one to three columns; whether or not they are, stored rows with one of them lie within the stated bounds."""
    chance, spark = random.Random(59), shared.session
    sink = context_of(tenant_sink(tmp_path, settings=SinkSettings(mode=SinkMode.MIRROR), sink=shared.sink))
    told = []
    for _ in range(8):
        types = chance.choices([*VALUES], k=chance.randrange(1, 4))
        names = [f"k.{place}`" for place in range(len(types))]
        columns = [column(name, "int", is_optional=False) for name in names]
        schema = orders_schema(*columns, key=(*names,))
        table = sink_table(sink, table_batch(spark, schema, [put(1, 1, "any", op="r")]))
        table = replace(table, are_first=True, is_copy=True, changes=1)
        row_type = ", ".join(f"{quoted(name)} {kind}" for name, kind in zip(names, types, strict=True))
        keys = [tuple(VALUES[kind](chance) for kind in types) for _ in range(14)]
        batch, stored = {*keys[: chance.randrange(1, 8)]}, {*keys[8:]}

        answer = ask(local_rows(spark, [*stored], row_type), table, local_rows(spark, [*batch], row_type))

        assert answer.are_new == batch.isdisjoint(stored), (types, batch, stored)
        assert answer.within is not None
        both = local_rows(spark, [*batch], row_type).alias("t")
        assert both.where(sf.expr(answer.within)).count() == len(batch)
        told.append(answer.are_new)

    assert {*told} == {True, False}
