"""The session's JVM, and the calls that reach it."""

import pytest
from py4j.java_gateway import JavaClass, JavaPackage, JVMView
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from libs.mysql.logical import column
from libs.types.table import TableSchema
from spark.jvm.java import java_array, java_class
from spark.transforms.local_rows import local_rows
from spark.transforms.parse_events import parse_events
from spark.transforms.value_types import decoded
from tests.sink_topics import table_id
from tests.spark_session import SharedSpark


def test_a_table_s_columns_have_java_look_for_no_class(shared: SharedSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    """Except for the classes that a session's first table needs. It would look in each of some hundred jars, for each column of
    each table of each batch."""
    amount = column("amount", "decimal(12,2)")
    first, schema = (
        TableSchema(table_id=table_id(name), columns=(amount,), key=(), version=1) for name in ("items", "orders")
    )

    def read(images: DataFrame, schema: TableSchema) -> DataFrame:
        return images.transform(parse_events(schema)).select(
            decoded(amount, sf.col("row").getField("amount")).alias("amount")
        )

    images = local_rows(shared.session, [('{"amount": "AfQ="}',)], "image string")
    read(images, first)
    asked = asked_of_java(monkeypatch)
    rows = read(images, schema)
    monkeypatch.undo()

    assert asked == []
    assert [str(row.amount) for row in rows.collect()] == ["5.00"]


def asked_of_java(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of packages, classes and static members that py4j has Java look for, until ``monkeypatch`` is undone."""
    asked: list[str] = []

    def note(kind: type) -> None:
        look_for = kind.__getattr__

        def noted(of: object, name: str) -> object:
            asked.append(name)
            return look_for(of, name)

        monkeypatch.setattr(kind, "__getattr__", noted)

    for kind in (JVMView, JavaPackage, JavaClass):
        note(kind)
    return asked


def test_the_end_of_a_list_has_java_look_for_no_class(shared: SharedSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of Java's, and PySpark asks of which of thirteen classes; but for the session's first."""
    items = java_class(shared.session, "java.util.List").of("a", "b")
    list(items)
    asked = asked_of_java(monkeypatch)
    found = list(items)
    monkeypatch.undo()

    assert found == ["a", "b"]
    assert asked == []


@pytest.mark.parametrize("items", [[], ["a"], ["a", "", "ä.b"], ["a", ""], ["a\0b", "c"], ["x"] * 20])
def test_an_array_has_the_items_that_it_is_made_of(shared: SharedSpark, items: list[str]) -> None:
    assert list(java_array(shared.session, "String", items)) == items
    assert list(java_array(shared.session, "Object", items)) == items


def test_an_array_of_objects_may_hold_none_and_arrays(shared: SharedSpark) -> None:
    inner = java_array(shared.session, "String", ["a", "b"])

    [alone] = java_array(shared.session, "Object", [inner])
    nothing, among, number = java_array(shared.session, "Object", [None, inner, 7])

    assert list(alone) == list(among) == ["a", "b"]
    assert (nothing, number) == (None, 7)
