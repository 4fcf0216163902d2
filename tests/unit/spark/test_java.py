"""The session's JVM, and what it is asked for."""

import pytest
from py4j.java_gateway import JVMView
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from libs.mysql.logical import column
from libs.types.table import TableSchema
from spark.transforms.parse_events import parse_events
from spark.transforms.value_types import decoded
from tests.sink_topics import table_id
from tests.spark_session import SharedSpark


def test_a_table_s_columns_have_java_look_for_no_class(shared: SharedSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for what a session's first table needs. It would look in each of some hundred jars, for each column of each table
    of each batch."""
    amount = column("amount", "decimal(12,2)")
    first, schema = (
        TableSchema(table_id=table_id(name), columns=(amount,), key=(), version=1) for name in ("items", "orders")
    )

    def read(images: DataFrame, schema: TableSchema) -> DataFrame:
        return images.transform(parse_events(schema)).select(
            decoded(amount, sf.col("row").getField("amount")).alias("amount")
        )

    images = shared.session.createDataFrame([('{"amount": "AfQ="}',)], "image string")
    read(images, first)
    asked: list[str] = []
    look_for = JVMView.__getattr__

    def note(jvm: JVMView, name: str) -> object:
        asked.append(name)
        return look_for(jvm, name)

    monkeypatch.setattr(JVMView, "__getattr__", note)
    rows = read(images, schema)
    monkeypatch.undo()

    assert asked == []
    assert [str(row.amount) for row in rows.collect()] == ["5.00"]
