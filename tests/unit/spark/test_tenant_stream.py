"""Which offsets a tenant's micro-batches have, and how they are noted."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.errors import PipelineHalted
from libs.sink_state.stream_offsets import load_begins, load_stream_offsets
from libs.types.tenant import SourceSelection, TenantSpec
from spark.jvm.errors import EventsLost
from spark.tenant import stream as tenant_stream
from spark.tenant.stream import TenantStream, limited
from spark.tenant.stream_log import StreamLog

TENANT = TenantSpec(tenant="acme", sources=(SourceSelection(name="main"),))
ORDERS, ITEMS = "acme.main.shop.orders", "acme.main.shop.items"


def stream_in(folder: Path, *, limit: int = 100, fails_on_loss: bool = True) -> TenantStream:
    """As a start of the job has it."""
    return TenantStream(StreamLog(folder, "acme"), TENANT, limit=limit, fails_on_loss=fails_on_loss)


def from_zero(partitions: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
    return dict.fromkeys(partitions, 0)


@pytest.fixture(autouse=True)
def _lost_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_stream, "_LOST_FOR_S", 0.0)


def test_a_batch_is_noted_before_it_runs_and_comes_again_until_it_is_done(tmp_path: Path) -> None:
    """With the same offsets, though Kafka has more by then; nothing of other tenants, nor of topics that are no tables."""
    first = stream_in(tmp_path)
    ends = {ORDERS: {0: 5}, "acme2.main.shop.orders": {0: 9}, "acme.headwater.schemas": {0: 3}}

    assert first.has_new(ends)
    assert first.next_batch(ends, from_zero) == 0
    again = stream_in(tmp_path)
    assert again.query_id == first.query_id
    assert again.has_new({})
    assert again.next_batch({ORDERS: {0: 50}}, from_zero) == 0
    assert load_stream_offsets(tmp_path, "acme", 0) == {ORDERS: {0: 5}}
    again.done()

    after = stream_in(tmp_path)
    assert not after.has_new({ORDERS: {0: 5}})
    assert after.has_new({ORDERS: {0: 6}})
    assert after.next_batch({ORDERS: {0: 6}, ITEMS: {0: 2}}, from_zero) == 1
    assert load_stream_offsets(tmp_path, "acme", 1) == {ORDERS: {0: 6}, ITEMS: {0: 2}}


def test_the_first_batch_begins_where_kafka_does(tmp_path: Path) -> None:
    """Of a topic that is there when the query begins its retention may have taken the first records. Later ones have all."""
    stream = stream_in(tmp_path)

    assert stream.next_batch({ORDERS: {0: 50}}, lambda asked: dict.fromkeys(asked, 40)) == 0
    assert load_begins(tmp_path, "acme", 0) == {ORDERS: {0: 40}}
    stream.done()
    with pytest.raises(EventsLost, match=f"^{ITEMS}-0$"):
        stream.next_batch({ORDERS: {0: 50}, ITEMS: {0: 9}}, lambda asked: dict.fromkeys(asked, 3))


@pytest.mark.parametrize("lost", [{}, {ORDERS: {0: 3}}], ids=["gone", "shorter"])
def test_a_topic_that_lost_what_was_read_ends_the_query_unless_losses_are_accepted(
    tmp_path: Path, lost: dict[str, dict[int, int]]
) -> None:
    stream = stream_in(tmp_path)
    stream.next_batch({ORDERS: {0: 5}, ITEMS: {0: 1}}, from_zero)
    stream.done()
    found = {**lost, ITEMS: {0: 2}}

    assert stream.has_new(found)
    with pytest.raises(EventsLost, match=f"^{ORDERS}-0$"):
        stream.next_batch(found, from_zero)

    accepting = stream_in(tmp_path, fails_on_loss=False)
    assert accepting.has_new(found)
    assert accepting.next_batch(found, from_zero) == 1
    assert load_stream_offsets(tmp_path, "acme", 1) == found


def test_a_topic_that_is_missing_for_a_moment_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while it is made again; the stream asks to be looked at once more."""
    stream = stream_in(tmp_path)
    stream.next_batch({ORDERS: {0: 5}}, from_zero)
    stream.done()
    monkeypatch.setattr(tenant_stream, "_LOST_FOR_S", 3_600.0)

    assert not stream.has_new({})
    assert stream.may_have_lost
    assert stream.has_new({ORDERS: {0: 6}})
    assert not stream.may_have_lost


def test_old_batches_go_and_the_last_ones_stay(tmp_path: Path) -> None:
    stream = stream_in(tmp_path)
    for number in range(15):
        stream.next_batch({ORDERS: {0: number + 1}}, from_zero)
        stream.done()

    folder = tmp_path / "checkpoints" / "acme"
    for name in ("offsets", "commits"):
        assert sorted(int(each.name) for each in (folder / name).iterdir()) == list(range(5, 15))


@given(
    st.dictionaries(
        st.sampled_from("abcdef"), st.tuples(st.integers(0, 1_000), st.integers(0, 100_000)), min_size=1, max_size=6
    ),
    st.integers(1, 10_000),
)
def test_a_limited_batch_goes_on_everywhere_and_takes_hardly_more_than_it_may(
    topics: dict[str, tuple[int, int]], limit: int
) -> None:
    """Of each partition with something new at least one offset, so that none waits for ever."""
    begins = {topic: {0: begin} for topic, (begin, _) in topics.items()}
    ends = {topic: {0: begin + size} for topic, (begin, size) in topics.items()}

    chosen = limited(begins, ends, limit)

    taken = {topic: chosen[topic][0] - begins[topic][0] for topic in topics}
    assert all(0 <= taken[topic] <= size for topic, (_, size) in topics.items())
    assert all(taken[topic] > 0 for topic, (_, size) in topics.items() if size)
    assert sum(taken.values()) <= limit + len(topics)


def test_a_log_that_holds_something_else_is_told(tmp_path: Path) -> None:
    stream = stream_in(tmp_path)
    stream.next_batch({ORDERS: {0: 1}}, from_zero)
    (tmp_path / "checkpoints" / "acme" / "offsets" / "0").write_text("rubbish")

    with pytest.raises(PipelineHalted, match="newest batch is 0"):
        stream_in(tmp_path)
