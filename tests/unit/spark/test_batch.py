"""What a micro-batch makes of one table's events, before the warehouse sees them."""

from pyspark.sql import DataFrame

from libs.events.delivered_schema import DeliveredSchema
from spark.jobs.batch import TableBatch, latest_changes_of
from spark.sinks.port import TableColumn
from spark.transforms.survey import survey
from tests.spark_session import SharedSpark
from tests.unit.spark.events import Change, events, orders_schema

COLUMNS = {"id": TableColumn("int"), "note": TableColumn("string")}


def test_an_event_is_parsed_once(shared: SharedSpark) -> None:
    """Spark moves filters on parsed columns below the parse, which then runs for the filter and again for the row."""
    table = _table(shared, [put(1, 1, "one")], orders_schema())

    plan = _optimized_plan(latest_changes_of(table, COLUMNS, ("id",), after=None))

    assert plan.count("from_json(") == 1


def test_the_merge_does_not_shuffle_the_rows_again(shared: SharedSpark) -> None:
    """They come spread by the key: to find the last change of each took a shuffle already."""
    table = _table(shared, [put(1, 1, "one")], orders_schema())

    latest = latest_changes_of(table, COLUMNS, ("id",), after=None)

    assert _executed_plan(latest).count("Exchange hashpartitioning") == 1
    assert _executed_plan(latest.groupBy("id").count()).count("Exchange hashpartitioning") == 1


def test_no_truncation_becomes_a_row(shared: SharedSpark) -> None:
    """Neither one of a version with a key, which is in ``after``, nor one of an older version without."""
    keyless, keyed = orders_schema(key=()), orders_schema(version=2)
    truncation, later = Change(op="t", rank=4, version=2), put(5, 2, "two", version=2)
    changes = [put(1, 1, "one"), Change(op="t", rank=2), put(3, 1, "uno"), truncation, later]
    table = _table(shared, changes, keyless, keyed)

    everything = latest_changes_of(_table(shared, changes[:3], keyless), COLUMNS, ("id",), after=None)
    after = latest_changes_of(table, COLUMNS, ("id",), after=truncation.order)

    assert [(row["id"], row["note"]) for row in everything.collect()] == [(1, "uno")]
    assert [(row["id"], row["note"]) for row in after.collect()] == [(2, "two")]


def put(rank: int, key: int, note: str, *, version: int = 1) -> Change:
    return Change(op="u", rank=rank, after={"id": key, "note": note}, version=version)


def _table(shared: SharedSpark, changes: list[Change], *schemas: DeliveredSchema) -> TableBatch:
    topic = schemas[0].topic
    batch = events(shared.session, topic, changes)
    return TableBatch(
        topic=topic,
        slices=survey(batch),
        events=batch,
        schemas={schema.table_schema.version: schema for schema in schemas},
        parked=None,
        is_passed_over=False,
    )


def _optimized_plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().optimizedPlan().toString())


def _executed_plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())
