"""Whether a table goes on where the sink left it."""

import pytest

from libs.sink_state.progress import ParkedTable, SinkProgress, Standing, TableProgress
from libs.types.tenant import SinkMode
from spark.batch.continuity import broken_off, made_again, outside_ranges, unaccounted, whole_topic
from spark.sinks.port import BatchIdentity
from spark.transforms.survey import Slice

BATCH = BatchIdentity("q", 7)
LEFT = Standing(id="a", batch="q:5")


@pytest.mark.parametrize("mode", list(SinkMode))
@pytest.mark.parametrize(
    ("known", "found", "said"),
    [
        (LEFT, LEFT, None),
        (LEFT, Standing(id="a", batch="q:7"), None),  # this batch: it was killed after its commit
        (LEFT, Standing(id="a", batch="q:6"), None),  # the progress is older than the table, and the checkpoint is not
        (LEFT, Standing(id="", batch="q:5"), None),  # a warehouse without ids
        (Standing(), None, None),
        (Standing(), Standing(id="a", batch="q:5"), None),  # the progress was removed, or is of an older release
        (Standing(), Standing(id="a"), None),  # made, and nothing written yet
        (LEFT, None, "gone"),
        (LEFT, Standing(id="b", batch="q:5"), "another table"),
        (LEFT, Standing(id="a", batch="q:4"), "set back"),
        (LEFT, Standing(id="a"), "set back"),
        (LEFT, Standing(id="a", batch="other:9"), "set back"),
        (LEFT, Standing(id="a", batch="q:8"), "older checkpoint"),
        (Standing(), Standing(id="a", batch="q:8"), "older checkpoint"),
    ],
)
def test_a_table_goes_on_only_where_it_was_left(
    known: Standing, found: Standing | None, said: str | None, mode: SinkMode
) -> None:
    because = broken_off("acme", "shop.orders", known, found, BATCH, mode)

    assert (because is None) == (said is None)
    assert said is None or (because is not None and said in because and "acme" in because)


@pytest.mark.parametrize(("known", "found"), [(LEFT, LEFT), (Standing(), LEFT)])
def test_a_query_that_began_anew_writes_no_log_twice(known: Standing, found: Standing) -> None:
    """A mirror and a history know each event by its order."""
    anew = BatchIdentity("anew", 0)

    assert "checkpoint" in (broken_off("acme", "shop.orders", known, found, anew, SinkMode.APPEND) or "")
    assert broken_off("acme", "shop.orders", known, found, anew, SinkMode.MIRROR) is None
    assert broken_off("acme", "shop.orders", known, found, anew, SinkMode.HISTORY) is None
    assert broken_off("acme", "shop.orders", known, None, anew, SinkMode.APPEND) is None


def test_a_table_that_is_built_anew_need_not_be_as_it_was_left() -> None:
    """But a batch that the warehouse would take for an old one writes nothing."""

    def of(found: Standing | None) -> str | None:
        return broken_off("acme", "shop.orders", LEFT, found, BATCH, SinkMode.APPEND, is_resynced=True)

    assert of(None) is None
    assert of(Standing(id="b", batch="other:1")) is None
    assert "older checkpoint" in (of(Standing(id="a", batch="q:9")) or "")


def test_losses_are_accepted_but_no_event_comes_twice() -> None:
    def of(found: Standing | None, batch: BatchIdentity = BATCH) -> str | None:
        return broken_off("acme", "shop.orders", LEFT, found, batch, SinkMode.APPEND, accepts_losses=True)

    assert of(None) is None
    assert of(Standing(id="a", batch="q:2")) is None
    assert of(LEFT, BatchIdentity("anew", 0)) is not None


def test_events_that_nothing_has_are_told() -> None:
    """Of tables that are neither written nor parked up to there."""
    parked = ParkedTable(because="", from_offsets={0: 2}, to_offsets={0: 5})
    table = TableProgress(topic="t", source="shop", table="shop.t", warehouse_table="a.b.c.d", parked=parked)
    progress = SinkProgress(tenant="acme", tables={"t": table})

    assert unaccounted({"t": {0: 5}, "u": {0: 3}}, {"u"}, progress) == []
    assert unaccounted({"t": {0: 6}, "u": {0: 3}}, {"u"}, progress) == ["t"]
    assert unaccounted({"t": {0: 5, 1: 1}}, (), progress) == ["t"]
    assert unaccounted({"v": {0: 1}}, (), progress) == ["v"]


def _read(topic: str, rows: int, begin: int, end: int) -> Slice:
    return Slice(
        topic=topic,
        schema_version=1,
        rows=rows,
        from_offsets={0: begin},
        to_offsets={0: end},
        oldest_order="a",
        newest_order="b",
        newest_place=None,
        newest_committed_at_us=0,
        newest_keyless=None,
        oldest_keyless=None,
        newest_delete=None,
        partial_rows=0,
        first_rows=0,
        snapshot_rows=0,
        numbers=None,
        live_changes={},
        image_bytes=0,
    )


def test_a_batch_has_the_records_of_its_offsets_and_no_others() -> None:
    """Fewer than its offsets are right: markers of transactions and tombstones have some."""
    ranges = {"t": ({0: 5}, {0: 9}), "u": ({}, {0: 3})}

    assert outside_ranges(ranges, [_read("t", 2, 5, 8), _read("t", 2, 6, 9), _read("u", 3, 0, 3)]) == []
    assert outside_ranges(ranges, [_read("t", 1, 4, 6)]) == ["t"]
    assert outside_ranges(ranges, [_read("t", 1, 8, 10)]) == ["t"]
    assert outside_ranges(ranges, [_read("t", 3, 5, 9), _read("t", 2, 5, 9)]) == ["t"]  # one of them came twice
    assert outside_ranges(ranges, [_read("v", 1, 0, 1)]) == ["v"]


def test_a_topic_is_told_by_its_id() -> None:
    known = TableProgress(topic="t", source="shop", table="shop.orders", warehouse_table="a.b.c.d", topic_id="one")

    assert made_again("acme", known, "one") is None
    assert made_again("acme", known, "") is None  # Kafka does not say
    because = made_again("acme", known, "two") or ""
    for said in ("topic t", "one", "two", "headwater resync acme shop.orders"):
        assert said in because
    waiting = whole_topic(because, {0: 7, 1: 3})
    assert (waiting.from_offsets, waiting.to_offsets) == ({0: 0, 1: 0}, {0: 7, 1: 3})
