"""A batch's contents, by one look at its events."""

import random
from typing import Any

import pytest
from pyspark.sql import functions as sf

from spark.transforms.local_rows import local_rows
from spark.transforms.survey import survey
from spark.transforms.warehouse_columns import Truncation
from tests.spark_session import SharedSpark
from tests.unit.spark.events import COMMITTED_AT_US, Change, events

TOPIC = "acme.shop.shop.orders"
EVENT = (
    "topic string, schema_version int, kafka_partition int, offset bigint, `order` string, op string, "
    "committed_at_us bigint, key string, is_partial boolean, image string"
)


def _change(rank: int, *, key: int, op: str = "c", version: int = 1) -> Change:
    return Change(op=op, rank=rank, after={"id": key, "note": "x"}, version=version)


def _event(offset: int, **given: Any) -> tuple[Any, ...]:
    change = _change(offset, key=offset)
    event = {
        "topic": TOPIC,
        "schema_version": 1,
        "kafka_partition": 0,
        "offset": offset,
        "order": change.order,
        "op": change.op,
        "committed_at_us": change.committed_at_us,
        "key": f'{{"id":{offset}}}',
        "is_partial": False,
        "image": "{}",
    }
    return tuple({**event, **given}.values())


def test_a_survey_counts_each_version(shared: SharedSpark) -> None:
    """Rows, offsets, newest order and commit time of each slice; snapshot rows are not live."""
    changes = [_change(3, key=1, op="r"), _change(3, key=2, op="r"), _change(5, key=1), _change(4, key=2)]
    first = events(shared.session, TOPIC, changes)
    second = events(shared.session, TOPIC, [_change(6, key=3, version=2)], is_wrapped=True)

    _, slices, _ = survey(first.union(second))

    assert [(part.schema_version, part.rows) for part in slices] == [(1, 4), (2, 1)]
    assert (dict(slices[0].from_offsets), dict(slices[0].to_offsets)) == ({0: 0}, {0: 4})
    assert slices[0].newest_order == _change(5, key=1).order
    assert slices[0].newest_committed_at_us == COMMITTED_AT_US + 5
    assert slices[0].live_changes == {COMMITTED_AT_US + 4: 1, COMMITTED_AT_US + 5: 1}
    assert (slices[0].oldest_order, slices[0].partial_rows) == (_change(3, key=1, op="r").order, 0)
    assert slices[0].newest_keyless is slices[0].oldest_keyless is None


def test_records_that_the_router_did_not_write_are_left_out_and_named(shared: SharedSpark) -> None:
    """They lack an order, a version, or both; the events beside them go on, and so do other topics."""
    own = events(shared.session, TOPIC, [_change(1, key=1), _change(2, key=2)])
    without_order = own.where("offset = 0").withColumn("order", sf.lit(None).cast("string"))
    without_version = own.where("offset = 1").withColumn("schema_version", sf.lit(None).cast("int"))
    foreign = without_order.unionByName(without_version).withColumn("topic", sf.lit("acme.shop.shop.items"))

    kept, slices, strays = survey(own.unionByName(foreign).unionByName(without_order))

    assert sorted(str(row.order) for row in kept.collect()) == [_change(1, key=1).order, _change(2, key=2).order]
    assert [(part.topic, part.rows) for part in slices] == [(TOPIC, 2)]
    assert {(each.topic, each.records) for each in strays} == {(TOPIC, 1), ("acme.shop.shop.items", 1)}
    assert all(
        "were passed over: not the router wrote them, whose headers headwater.order and headwater.schema-version"
        in str(each)
        for each in strays
    )


def test_what_several_tasks_found_is_one_slice(shared: SharedSpark) -> None:
    """Two Kafka partitions, either read by several tasks; deletes, partial events and an image that is away."""
    chance = random.Random(3)
    rows = [_event(offset, kafka_partition=offset % 2) for offset in range(1, 101)]
    rows += [_event(101, op="d", is_partial=True), _event(102, op="u", key='{"id":-7}', image=None, is_partial=None)]
    chance.shuffle(rows)

    _, [found], _ = survey(local_rows(shared.session, rows, EVENT).repartition(5))

    assert (found.rows, found.first_rows, found.partial_rows, found.snapshot_rows) == (102, 100, 1, 0)
    assert (found.from_offsets, found.to_offsets) == ({1: 1, 0: 2}, {1: 100, 0: 103})
    assert (found.oldest_order, found.newest_order) == (_change(1, key=1).order, _change(102, key=1).order)
    assert found.newest_place == (0, 102)
    assert (found.numbers, found.newest_delete) == ((-7, 101), _change(101, key=1).order)
    assert found.image_bytes == 2 * 101
    assert found.newest_committed_at_us == COMMITTED_AT_US + 102
    assert sum(found.live_changes.values()) == 102


def test_commit_times_of_many_events_are_told_as_quantiles(shared: SharedSpark) -> None:
    """Of 100,000 events, a second apart: fifty times, each within a hundredth of all of where it belongs."""
    count = 100_000
    many = shared.session.range(1, count + 1, numPartitions=1).select(
        sf.lit(TOPIC).alias("topic"),
        sf.lit(1).alias("schema_version"),
        sf.lit(0).alias("kafka_partition"),
        sf.col("id").alias("offset"),
        sf.lpad(sf.col("id").cast("string"), 10, "0").alias("order"),
        sf.lit("u").alias("op"),
        (sf.col("id") * 1_000_000).alias("committed_at_us"),
        sf.lit('{"id":1}').alias("key"),
        sf.lit(False).alias("is_partial"),
        sf.lit("{}").alias("image"),
    )

    _, [found], _ = survey(many)

    assert set(found.live_changes.values()) == {count // 50}
    for share, committed_at_us in enumerate(sorted(found.live_changes)):
        assert committed_at_us / 1_000_000 == pytest.approx((share + 0.5) / 50 * count, abs=count / 100)


@pytest.mark.parametrize(
    ("keys", "numbers"),
    [
        (['{"id":9223372036854775807}', '{"id":-9223372036854775808}'], (-(2**63), 2**63 - 1)),
        (['{"id":1}', '{"id":9223372036854775808}'], None),
        (['{"id":1}', '{"id":1.5}'], None),
        (['{"id":1}', '{"id":""}'], None),
        (['{"id":1}', '{"id":}'], None),
        (['{"id":1}', '{"id":-}'], None),
        (['{"id":1}', None], None),
        (["1", "12"], (1, 12)),
    ],
)
def test_last_numbers_of_keys(shared: SharedSpark, keys: list[str | None], numbers: tuple[int, int] | None) -> None:
    rows = [_event(offset, key=key) for offset, key in enumerate(keys, 1)]

    _, [found], _ = survey(local_rows(shared.session, rows, EVENT))

    assert found.numbers == numbers


def test_events_without_a_key_are_told_apart(shared: SharedSpark) -> None:
    """The oldest and the newest; one without a commit time has none of its own."""
    rows = [_event(1), _event(2, key=None), _event(3, key=None), _event(4, key=None, committed_at_us=None), _event(5)]

    _, [found], _ = survey(local_rows(shared.session, rows, EVENT).repartition(3))

    assert found.oldest_keyless == Truncation(_change(2, key=1).order, COMMITTED_AT_US + 2)
    assert found.newest_keyless == Truncation(_change(4, key=1).order, 0)
