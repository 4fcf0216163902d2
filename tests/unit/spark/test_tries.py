"""The outcomes of tries of parked tables: asked of the warehouse, by any batch, and given to the next one."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from libs.events.dead_letter import ReplayRequest
from libs.sink_state.cut import Cut
from libs.sink_state.deleted_range import DeletedRange
from libs.sink_state.parked_keys import ParkedKey, ParkedKeysOfTable, ReplayAnswer
from libs.sink_state.progress import (
    BatchTimings,
    ParkedTable,
    SinkProgress,
    TableProgress,
    Try,
    decode_sink_progress,
    encode_sink_progress,
)
from libs.sink_state.resync import ResyncRequest
from libs.types.warehouse import WarehouseTable
from spark.batch.apply import settled_tries
from spark.batch.commit import _apply_resync
from spark.batch.plan import Asked as AskedFor
from spark.batch.plan import Resync, _table_batch
from spark.batch.tenant_sink import StateFolder, TenantSink
from spark.pending.progress import TableCommit, TableOutcome, load_progress, store_progress, table_after, with_batch
from spark.pending.tries import Settled, Tries, settle
from spark.sinks.port import BatchIdentity, TableRefused
from tests.unit.spark.contexts import context_of, tenant_sink

TOPIC = "acme.shop.shop.orders"
WAITS = ParkedTable(because="no key; add one", from_offsets={0: 10}, to_offsets={0: 90})
PARKED = TableProgress(
    topic=TOPIC, source="shop", table="shop.orders", warehouse_table=TOPIC, rows=10, order="10", parked=WAITS
)
DELETED = DeletedRange(newest_order="50", from_offsets={0: 10}, to_offsets={0: 90}, schema_versions=(1,))
WRITTEN = msgspec.structs.replace(PARKED, rows=50, order="50", deleted=(DELETED,), parked=None)
BATCH = BatchIdentity("query", 5)
TRIED = Try(query_id="query", batch_id=5, offsets={0: 89}, ends={0: 90}, becomes=WRITTEN)
KEY = ParkedKey(event_key="{}", reason="so", kafka_partition=0, offset=3, order="9", parked_at_us=1, last_offset=3)
PROGRESS = SinkProgress(
    tenant="acme", query_id="query", batch_id=4, rows=30, tables={TOPIC: PARKED}, tries={TOPIC: TRIED}
)


class Asked:
    """A sink that has a batch, or has it not, or does not answer."""

    def __init__(self, *, has: bool = True, error: Exception | None = None) -> None:
        self.questions: list[tuple[str, BatchIdentity, Mapping[int, int]]] = []
        self._has = has
        self._error = error

    def is_applied(self, _: object, table: WarehouseTable, batch: BatchIdentity, offsets: Mapping[int, int]) -> bool:
        self.questions.append((str(table), batch, offsets))
        if self._error is not None:
            raise self._error
        return self._has


def settled(
    sink: Asked, batch: BatchIdentity = BATCH, progress: SinkProgress = PROGRESS, *, may_wait: bool = True
) -> Settled:
    return settle(sink, None, batch, progress, may_wait=may_wait)  # type: ignore[arg-type]


def noted_in(state_dir: Path, found: Settled, keep: Callable[[], None] = lambda: None) -> Tries:
    store_progress(state_dir, found.stored)
    return Tries(state_dir, found, keep)


def test_a_batch_that_comes_again_finds_what_it_wrote() -> None:
    """All of it: rows, order and deletes. The file has it parked yet, so that a batch which comes a third time finds it too."""
    sink = Asked()

    found = settled(sink)

    assert sink.questions == [(TOPIC, BATCH, {0: 89})]
    assert (found.of_batch, found.of_earlier) == ({TOPIC}, set())
    assert found.progress == msgspec.structs.replace(PROGRESS, rows=70, tables={TOPIC: WRITTEN}, tries={})
    assert found.stored == PROGRESS
    assert list(map(str, found.places)) == [TOPIC]


@pytest.mark.parametrize("later", [BatchIdentity("query", 6), BatchIdentity("anew", 5)])
def test_a_later_batch_goes_on_behind_what_an_earlier_one_wrote(later: BatchIdentity) -> None:
    """Also under another query's batch. It is settled for good before the table is written under another identity."""
    joined = msgspec.structs.replace(WAITS, to_offsets={0: 95, 1: 4})
    parked = msgspec.structs.replace(PARKED, parked=joined)

    found = settled(Asked(), later, msgspec.structs.replace(PROGRESS, tables={TOPIC: parked}))

    waits = msgspec.structs.replace(joined, from_offsets={0: 90}, copies_from={0: 90}, is_catching_up=True)
    assert found.progress.tables == {TOPIC: msgspec.structs.replace(WRITTEN, parked=waits)}
    assert (found.of_batch, found.of_earlier, found.progress.tries) == (set(), {TOPIC}, {})
    assert found.stored == found.progress


def test_of_a_piece_the_rest_waits_on() -> None:
    """With the batch's own events, which do not count as waiting before it has ended."""
    rest = msgspec.structs.replace(WAITS, from_offsets={0: 40}, to_offsets={0: 99}, is_catching_up=True)
    piece = msgspec.structs.replace(
        TRIED, ends={0: 40}, becomes=msgspec.structs.replace(WRITTEN, parked=msgspec.structs.replace(rest))
    )

    found = settled(Asked(), progress=msgspec.structs.replace(PROGRESS, tries={TOPIC: piece}))

    assert found.progress.tables[TOPIC].parked == msgspec.structs.replace(rest, copies_from={0: 40})


def test_what_was_not_written_waits_as_it_did() -> None:
    found = settled(Asked(has=False))

    assert found.progress == msgspec.structs.replace(PROGRESS, tries={})
    assert (found.of_batch, found.of_earlier, found.places) == (set(), set(), ())
    assert found.not_found == {TOPIC: TRIED}


@pytest.mark.parametrize(
    ("sink", "query_id", "waits"),
    [
        (Asked(has=False), "query", True),
        (Asked(has=True), "query", False),
        (Asked(error=TableRefused("rights are missing; GRANT them")), "query", False),
        (Asked(has=False), "anew", False),
    ],
)
def test_dead_letters_that_a_try_took_up_wait_again_if_it_was_not_written(
    tmp_path: Path, sink: Asked, query_id: str, waits: bool
) -> None:
    """A query that began again has forgotten them, with every other key."""
    tenant, later = sink_of(tmp_path, sink), BatchIdentity(query_id, 6)
    tenant.pending.parked_keys.store(TOPIC, later, ParkedKeysOfTable(released={"1": KEY}, released_by=5))

    settled_tries(tenant, None, later, PROGRESS, Cut())  # type: ignore[arg-type]

    assert tenant.pending.parked_keys.of_table(TOPIC, later).keys == ({"1": KEY} if waits else {})


def test_what_nobody_answers_for_is_asked_again(tmp_path: Path) -> None:
    """Until then nothing of the table is written, and the try stays noted, through the batch's end too. Where nothing may join
    the waiting events meanwhile the batch fails."""
    refused = TableRefused("acme.shop.shop.orders: rights are missing; GRANT them")

    found = settled(Asked(error=refused))
    tries = noted_in(tmp_path, found)

    assert found.progress == found.stored == PROGRESS
    assert tries.is_unknown(TOPIC)
    tries.leave(TOPIC, msgspec.structs.replace(TRIED, batch_id=6))
    assert ended(tries, BATCH).tries == {TOPIC: TRIED}
    with pytest.raises(TableRefused):
        settled(Asked(error=refused), may_wait=False)


def test_a_try_is_durable_and_kept_before_anything_is_written(tmp_path: Path) -> None:
    """Beside others' that this batch found, and has to find should it come again; it ends with the written progress."""
    other, kept = "acme.shop.shop.items", []
    noted = msgspec.structs.replace(
        PROGRESS,
        tables={TOPIC: PARKED, other: msgspec.structs.replace(PARKED, topic=other)},
        tries={other: msgspec.structs.replace(TRIED, becomes=msgspec.structs.replace(WRITTEN, topic=other))},
    )
    tries = noted_in(
        tmp_path, settled(Asked(), progress=noted), lambda: kept.append(load_progress(tmp_path, "acme").tries)
    )

    tries.begin(TOPIC, TRIED)

    assert load_progress(tmp_path, "acme") == msgspec.structs.replace(noted, tries={**noted.tries, TOPIC: TRIED})
    assert kept == [{**noted.tries, TOPIC: TRIED}]
    assert ended(tries, BATCH, outcome(commit=TableCommit(1))).tries == {}
    assert ended(tries, BATCH, outcome(parked=WAITS)).tries == {TOPIC: TRIED}


def test_a_table_whose_part_was_found_is_not_counted_again() -> None:
    """It may be built again by the same batch, which finds itself done."""
    found, commit = settled(Asked()), TableCommit(1)

    after = ended(Tries(Path(), found, lambda: None), BATCH, outcome(commit=commit))

    assert (after.rows, after.tables[TOPIC].rows, after.tables[TOPIC].deleted) == (70, 50, (DELETED,))
    assert table_after(PARKED, outcome(), commit, is_repeat=False, now_us=1).rows == 50


def test_what_an_earlier_batch_wrote_is_settled_for_good_before_anything_else(tmp_path: Path) -> None:
    """And kept; the events that wait after it are due at once."""
    kept: list[SinkProgress] = []
    state = StateFolder(tmp_path, keep=lambda: kept.append(load_progress(tmp_path, "acme")))
    tenant = replace(sink_of(tmp_path, Asked()), state=state)
    assert tenant.pending.retries.is_due(TOPIC, 1)

    tries = settled_tries(tenant, None, BatchIdentity("query", 6), PROGRESS, Cut())  # type: ignore[arg-type]

    assert tries.settled.progress.tables == {TOPIC: WRITTEN}
    assert kept == [tries.settled.progress]
    assert tenant.pending.retries.is_due(TOPIC, 1)
    settled_tries(tenant, None, BATCH, PROGRESS, Cut())  # type: ignore[arg-type]
    assert len(kept) == 1


def test_where_batches_are_cut_nothing_joins_what_nobody_answers_for(tmp_path: Path) -> None:
    """Events that a cut held back lie among the written ones. Elsewhere the table waits alone, and is not built either."""
    tenant = sink_of(tmp_path, Asked(error=TableRefused("rights are missing; GRANT them")))
    with pytest.raises(TableRefused):
        settled_tries(tenant, None, BATCH, PROGRESS, Cut(query_id="query", batch_id=5))  # type: ignore[arg-type]
    request = ResyncRequest(id="a", topic=TOPIC, from_offsets={}, to_offsets={0: 90})
    tries = settled_tries(tenant, None, BATCH, PROGRESS, Cut())  # type: ignore[arg-type]
    context = context_of(tenant, BATCH, tries=tries)

    assert _apply_resync(context, Resync(request, PARKED, ())) is None

    answer = context.pending.resyncs.of("a")
    assert answer is not None
    assert "did not answer whether it has the last try" in answer.refused_because


def test_of_a_table_that_nobody_answers_for_a_batch_without_its_events_does_nothing(tmp_path: Path) -> None:
    """Dead letters that it is to take up wait too, as its answer says. It counts as tried: batches do not wake one another."""
    tenant = sink_of(tmp_path, Asked(error=TableRefused("rights are missing; GRANT them")))
    tries = settled_tries(tenant, None, BATCH, PROGRESS, Cut())  # type: ignore[arg-type]
    context = context_of(tenant, BATCH, tries=tries)
    context.pending.parked_keys.store(TOPIC, BATCH, ParkedKeysOfTable(keys={"1": KEY}))
    nothing = AskedFor(replays={}, resyncs=(), retried=frozenset())
    letters = replace(nothing, replays={TOPIC: [ReplayRequest(id="r", topic=TOPIC)]})

    for asked in (nothing, letters):
        assert _table_batch(context, PROGRESS, TOPIC, [], None, asked) is None  # type: ignore[arg-type]

    assert not context.pending.retries.is_any_due([TOPIC])
    table = context.pending.parked_keys.of_table(TOPIC, BATCH)
    assert table.keys == {"1": KEY}
    assert table.answers == {"r": ReplayAnswer(batch_id=BATCH.batch_id, keys=1, refused=1)}


def sink_of(state_dir: Path, sink: Asked) -> TenantSink:
    return tenant_sink(state_dir, sink=sink)


def test_progress_of_an_older_release_has_no_tries() -> None:
    fields = msgspec.json.decode(encode_sink_progress(PROGRESS))
    del fields["tries"]

    assert decode_sink_progress(msgspec.json.encode(fields)) == msgspec.structs.replace(PROGRESS, tries={})
    assert decode_sink_progress(encode_sink_progress(PROGRESS)) == PROGRESS


def outcome(commit: TableCommit | None = None, parked: ParkedTable | None = None) -> TableOutcome:
    return TableOutcome(
        topic=TOPIC,
        source="shop",
        table="shop.orders",
        warehouse_table=TOPIC,
        rows=40,
        newest_order="50",
        newest_committed_at_us=1,
        live_changes={},
        commit=commit,
        parked=parked,
        deleted=DELETED,
    )


def ended(tries: Tries, batch: BatchIdentity, *outcomes: TableOutcome) -> SinkProgress:
    """The progress after a batch."""
    return with_batch(
        tries.settled.progress,
        batch,
        outcomes,
        timings=BatchTimings(),
        now_us=1,
        tries=tries.open,
        settled=tries.settled.of_batch,
    )
