"""Which topics a full micro-batch reads to their ends, and that no event comes twice or never."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.errors import PipelineHalted
from libs.sink_state.read_ahead import ReadAhead, read_ahead_path
from spark.batch.files import batch_files
from spark.batch.read_ahead import nearly_read, range_of, still_ahead

TOPICS = ("a", "b", "c", "d")


def test_least_that_waits_comes_first_and_a_backlog_never() -> None:
    """As many as the limit allows."""
    begins = {topic: {0: 0} for topic in TOPICS}
    newest = {"d": {0: 1_000}, "c": {0: 61}, "b": {0: 30}, "a": {0: 10}}

    assert nearly_read(begins, begins, newest, limit=100) == {"a": {0: 10}, "b": {0: 30}}


def test_a_topic_whose_begin_nobody_knows_is_left_to_spark() -> None:
    """A new one, and one with a new Kafka partition."""
    begins = {"a": {0: 0}, "b": {0: 0}}

    assert nearly_read(begins, begins, {"a": {0: 1}, "b": {0: 1, 1: 1}, "c": {0: 1}}, limit=100) == {"a": {0: 1}}


def test_what_was_read_ahead_is_left_out_until_spark_has_come_there() -> None:
    """Batch after batch of one topic that ends at 50."""
    first = range_of({"a": {0: 0}}, {"a": {0: 10}}, {}, {"a": {0: 50}})
    assert (first.from_offsets, first.to_offsets) == ({"a": {0: 0}}, {"a": {0: 50}})

    ahead = still_ahead(first.to_offsets, {"a": {0: 10}})
    second = range_of({"a": {0: 10}}, {"a": {0: 20}}, ahead, {})
    assert (second.from_offsets, second.to_offsets) == ({"a": {0: 50}}, {"a": {0: 50}})

    last = range_of({"a": {0: 20}}, {"a": {0: 70}}, still_ahead(second.to_offsets, {"a": {0: 20}}), {})
    assert (last.from_offsets, last.to_offsets) == ({"a": {0: 50}}, {"a": {0: 70}})
    assert still_ahead(last.to_offsets, {"a": {0: 70}}) == {}


def test_an_unreadable_file_halts_the_tenant(tmp_path: Path) -> None:
    """Without it events would come twice."""
    path = read_ahead_path(tmp_path, "acme")
    path.parent.mkdir()
    path.write_bytes(b"{rubbish")

    with pytest.raises(PipelineHalted, match="put it back from a backup"):
        batch_files(tmp_path, "acme").read_ahead.load()


steps = st.lists(
    st.tuples(
        st.lists(st.integers(0, 30), min_size=8, max_size=8),  # events that were written before the batch
        st.lists(st.integers(0, 20), min_size=8, max_size=8),  # the share of them that Spark deals
        st.integers(0, 60),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@given(steps)
def test_whatever_spark_deals_each_event_is_taken_in_once(
    batches: list[tuple[list[int], list[int], int, bool]],
) -> None:
    """Four topics of two Kafka partitions; a batch takes those that are read ahead as ranges, and the others as Spark deals
    them. Together they leave no gap and no overlap, with any choice at any time.
    """
    places = [(topic, partition) for topic in TOPICS for partition in (0, 1)]
    newest = dict.fromkeys(places, 0)
    dealt = dict.fromkeys(places, 0)
    taken = dict.fromkeys(places, 0)
    known = ReadAhead()
    for written, share, limit, is_full in batches:
        newest = {place: newest[place] + more for place, more in zip(places, written, strict=True)}
        begins = nested(dealt)
        dealt = {place: min(dealt[place] + more, newest[place]) for place, more in zip(places, share, strict=True)}
        ahead = still_ahead(known.to_offsets, begins)
        ends = nested(dealt)
        reached = {
            topic: {p: max(end, ahead.get(topic, {}).get(p, 0)) for p, end in of.items()} for topic, of in ends.items()
        }
        chosen = nearly_read(begins, reached, nested(newest), limit=limit) if is_full else {}
        known = range_of(begins, ends, ahead, chosen)
        for topic, partition in places:
            is_range = topic in known.to_offsets
            first = known.from_offsets[topic][partition] if is_range else begins[topic][partition]
            last = known.to_offsets[topic][partition] if is_range else ends[topic][partition]
            assert first == taken[topic, partition], "a gap, or twice"
            assert last >= ends[topic][partition]
            taken[topic, partition] = last
        beyond = sum(max(0, end - max(ends[t][p], ahead.get(t, {}).get(p, 0))) for (t, p), end in taken.items())
        assert beyond <= limit


def nested(offsets: dict[tuple[str, int], int]) -> dict[str, dict[int, int]]:
    return {topic: {partition: offsets[topic, partition] for partition in (0, 1)} for topic in TOPICS}
