"""Which requests to build a table again are due, through kills, repeats and queries that begin again."""

from pathlib import Path
from typing import Any

import pytest

from libs.sink_state.read_ahead import ReadAhead
from libs.sink_state.resync import ResyncAnswer, ResyncRequest, resyncs_path
from libs.sink_state.stream_offsets import offsets_path
from spark.batch.context import BatchContext
from spark.batch.resync import _ends, due_resyncs, gives_up, refuse
from spark.sinks.port import BatchIdentity, TableRefused
from tests.unit.spark.contexts import BATCH, context_of, tenant_sink

TOPIC = "acme.shop.shop.orders"


def context(state_dir: Path, batch: BatchIdentity = BATCH, **fields: Any) -> BatchContext:
    return context_of(tenant_sink(state_dir), batch, **fields)


def request(name: str, topic: str = TOPIC) -> ResyncRequest:
    return ResyncRequest(id=name, topic=topic, from_offsets={0: 3}, to_offsets={0: 9})


def test_of_several_requests_the_newest_counts(tmp_path: Path) -> None:
    sink = context(tmp_path)

    due = due_resyncs(sink, [request("a"), request("b"), request("c", "acme.shop.shop.items")])

    assert {topic: each.id for topic, each in due.items()} == {TOPIC: "b", "acme.shop.shop.items": "c"}
    answer = sink.pending.resyncs.of("a")
    assert answer is not None
    assert "newer request" in answer.refused_because


def test_a_refused_request_stays_refused_when_its_batch_comes_again(tmp_path: Path) -> None:
    """The batch's own events were applied instead, under its identity: the table would be taken for built."""
    refuse(context(tmp_path), request("a"), "because")

    assert due_resyncs(context(tmp_path), [request("a")]) == {}


def test_a_request_that_was_fulfilled_acts_once(tmp_path: Path) -> None:
    """Only the batch that did it meets it again, to find that the table holds it; a query that begins again passes over it."""
    sink = context(tmp_path)
    done = ResyncAnswer(topic=TOPIC, query_id=BATCH.query_id, batch_id=BATCH.batch_id, at_us=1, is_done=True)
    sink.pending.resyncs.store("a", done)

    assert set(due_resyncs(sink, [request("a")])) == {TOPIC}
    assert due_resyncs(context(tmp_path, BatchIdentity("query", 6)), [request("a")]) == {}
    assert due_resyncs(context(tmp_path, BatchIdentity("anew", 5)), [request("a")]) == {}


def test_a_building_that_fails_is_tried_again_a_few_times_over_restarts(tmp_path: Path) -> None:
    assert [gives_up(context(tmp_path), request("a")) for _ in range(3)] == [False, False, True]
    assert set(due_resyncs(context(tmp_path), [request("a")])) == {TOPIC}


def test_answers_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    path = resyncs_path(tmp_path, "acme")
    path.parent.mkdir()
    path.write_text("{")

    assert context(tmp_path).pending.resyncs.of("a") is None


def test_a_sink_that_is_not_past_the_copy_does_not_build(tmp_path: Path) -> None:
    """A query that began again reads old requests before the events that they are about."""
    path = offsets_path(tmp_path, "acme", BATCH.batch_id)
    path.parent.mkdir(parents=True)
    path.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"{TOPIC}":{{"0":8}}}}')
    with pytest.raises(TableRefused, match="has not read topic"):
        _ends(context(tmp_path), request("a"))

    path.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"{TOPIC}":{{"0":12}}}}')

    assert _ends(context(tmp_path), request("a")) == {0: 12}
    ahead = ReadAhead(from_offsets={TOPIC: {0: 8}}, to_offsets={TOPIC: {0: 20}})
    assert _ends(context(tmp_path, ahead=ahead), request("a")) == {0: 20}
