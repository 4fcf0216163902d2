"""A sink's progress for its readers: counted once, parked tables kept, quantiles within their promise."""

import random
from dataclasses import replace
from pathlib import Path

import msgspec
from prometheus_client import REGISTRY

from libs.sink_state.deleted_range import DeletedRange
from libs.sink_state.progress import (
    BatchTimings,
    LatencyHistogram,
    ParkedTable,
    ReachedPosition,
    SinkProgress,
    TableFiles,
    TableTimings,
    newest_positions,
)
from libs.types.table import TableId
from libs.types.warehouse import warehouse_table
from spark.pending.progress import (
    TableCommit,
    TableOutcome,
    load_progress,
    observe_batch,
    progress_path,
    store_progress,
    with_batch,
)
from spark.sinks.port import BatchIdentity, Maintained

NOW_US = 1_795_224_576_000_000
TIMINGS = TableTimings(rows=7, prepare_s=0.1, write_s=0.5)
FILES = TableFiles(bytes=5_000, data_files=3, delete_files=1)
PARKED = ParkedTable(because="no key; add one", from_offsets={0: 3}, to_offsets={0: 9})


def test_a_replayed_batch_is_counted_once() -> None:
    """Killed between its own record and Spark's, a batch comes again; the numbers stay."""
    batch = BatchIdentity("q", 4)
    once = _after(SinkProgress(tenant="acme"), batch, _outcome(rows=10, latency_s=2))
    twice = _after(once, batch, _outcome(rows=10, latency_s=2))
    next_one = _after(twice, BatchIdentity("q", 5), _outcome(rows=5, latency_s=2, order="3"))

    assert (once.rows, twice.rows, next_one.rows) == (10, 10, 15)
    assert sum(twice.latency.counts.values()) == 10
    assert next_one.tables["t"].order == "3"
    assert next_one.tables["t"].rows == 15


def test_a_parked_table_keeps_its_place_until_it_is_written() -> None:
    """While parked, neither rows nor order move; the remedy stands there until the table is written again."""
    parked = _after(SinkProgress(tenant="acme"), BatchIdentity("q", 0), _outcome(rows=7, parked=PARKED))
    written = _after(parked, BatchIdentity("q", 1), _outcome(rows=9))

    assert (parked.rows, parked.tables["t"].parked, parked.tables["t"].order) == (0, PARKED, "")
    assert (written.rows, written.tables["t"].parked) == (9, None)


def test_what_a_batch_parked_and_writes_when_it_comes_again_is_counted() -> None:
    """The remedy came between: the rows and deletes are in no record yet; those of another table are."""
    batch = BatchIdentity("q", 4)
    deleted = DeletedRange(newest_order="2", from_offsets={0: 3}, to_offsets={0: 9}, schema_versions=(1,))
    other = replace(_outcome(rows=5), topic="u")
    parked = _after(SinkProgress(tenant="acme"), batch, _outcome(rows=7, parked=PARKED), other)
    again = _after(parked, batch, _outcome(rows=7, deleted=deleted), other)

    assert (parked.rows, again.rows) == (5, 12)
    assert {topic: table.rows for topic, table in again.tables.items()} == {"t": 7, "u": 5}
    assert again.tables["t"].deleted == (deleted,)
    assert again.tables["t"].parked is None


def test_each_source_partition_keeps_its_newest_position() -> None:
    """A late change sets none back, a partition that a batch does not name stays, and a replay leaves the known ones."""
    known = (position("-80", "3"), position("80-", "5"))

    assert newest_positions(known, [position("-80", "2")]) == known
    assert newest_positions(known, [position("-80", "4")]) == (position("-80", "4"), position("80-", "5"))
    once = _after(SinkProgress(tenant="acme"), BatchIdentity("q", 0), _outcome(rows=7, positions=known))
    assert _after(once, BatchIdentity("q", 1), _outcome(rows=7)).tables["t"].positions == known


def position(source_partition: str, order: str) -> ReachedPosition:
    return ReachedPosition(source_partition=source_partition, order=order, position={"vgtid": f"at {order}"})


def test_deletes_are_remembered_once() -> None:
    """A replay adds none, a batch without any leaves the known ones, and an older truncation sets none back."""
    deleted = DeletedRange(newest_order="2", from_offsets={0: 3}, to_offsets={0: 9}, schema_versions=(1,))
    later = msgspec.structs.replace(deleted, newest_order="4")
    once = _after(SinkProgress(tenant="acme"), BatchIdentity("q", 0), _outcome(7, deleted=deleted, truncated_order="3"))
    replayed = _after(once, BatchIdentity("q", 0), _outcome(7, deleted=deleted, truncated_order="3"))
    another = _after(replayed, BatchIdentity("q", 1), _outcome(7, truncated_order="1"))
    last = _after(another, BatchIdentity("q", 2), _outcome(7, deleted=later))

    assert (once.tables["t"].deleted, once.tables["t"].truncated_order) == ((deleted,), "3")
    assert replayed.tables["t"] == once.tables["t"]
    assert (another.tables["t"].deleted, another.tables["t"].truncated_order) == ((deleted,), "3")
    assert last.tables["t"].deleted == (deleted, later)


def test_what_is_known_of_a_tables_files_stays_known() -> None:
    """A batch after which the warehouse gave no figures, or nothing was due, leaves the figures of before."""
    due = _outcome(rows=7, maintained=Maintained(FILES, was_due=True))
    once = _after(SinkProgress(tenant="acme"), BatchIdentity("q", 0), due)
    twice = _after(once, BatchIdentity("q", 1), _outcome(rows=7), now_us=NOW_US + 9)

    assert (once.tables["t"].files, once.tables["t"].maintained_at_us, once.tables["t"].last) == (
        FILES,
        NOW_US,
        TIMINGS,
    )
    assert (twice.tables["t"].files, twice.tables["t"].maintained_at_us) == (FILES, NOW_US)


def test_the_phases_of_a_batch_are_observed_where_they_are_known() -> None:
    """Of a write whose parts Spark did not report, the others are; a batch whose tables do not move together shows nothing."""
    told = TableTimings(rows=7, prepare_s=0.1, write_s=0.5, dedupe_s=0.3, merge_s=0.15, commit_s=0.05)
    timings = BatchTimings(read_s=2.0, rows=14)
    outcomes = [_outcome(7, timings=told), _outcome(7)]
    progress = with_batch(
        SinkProgress(tenant="phases"), BatchIdentity("q", 1), outcomes, timings=timings, now_us=NOW_US, tries={}
    )

    observe_batch("iceberg", progress, outcomes)

    def observed(phase: str) -> tuple[float | None, float | None]:
        labels = {"tenant": "phases", "warehouse": "iceberg", "phase": phase}
        name = "headwater_sink_phase_seconds"
        return REGISTRY.get_sample_value(f"{name}_count", labels), REGISTRY.get_sample_value(f"{name}_sum", labels)

    assert observed("read") == (1, 2.0)
    assert observed("prepare") == (2, 0.2)
    assert [observed(phase) for phase in ("dedupe", "merge", "commit")] == [(1, 0.3), (1, 0.15), (1, 0.05)]
    assert observed("maintain") == (2, 0.0)
    assert observed("show") == (None, None)


def test_a_progress_file_is_replaced_whole(tmp_path: Path) -> None:
    """The stored progress is loaded again; a tenant that is new, or a file of another release, begins empty."""
    progress = _after(SinkProgress(tenant="acme"), BatchIdentity("q", 0), _outcome(rows=7, parked=PARKED))

    assert load_progress(tmp_path, "acme") == SinkProgress(tenant="acme")
    store_progress(tmp_path, progress)
    assert load_progress(tmp_path, "acme") == progress
    progress_path(tmp_path, "acme").write_bytes(b'{"tenant": 5}')
    assert load_progress(tmp_path, "acme") == SinkProgress(tenant="acme")


def test_quantiles_are_within_five_percent() -> None:
    """From buckets that grow by 5%, over latencies of milliseconds to hours."""
    chance = random.Random(2)
    latencies_s = sorted(10 ** chance.uniform(-2.5, 4) for _ in range(2_000))
    histogram = LatencyHistogram().plus(dict.fromkeys(latencies_s[::2], 1))
    histogram = histogram.plus(dict.fromkeys(latencies_s[1::2], 1))

    for share in (0.5, 0.99, 1.0):
        exact = latencies_s[round(share * len(latencies_s)) - 1]
        found = histogram.quantile_s(share)
        assert found is not None
        assert exact <= found * 1.000001 <= exact * 1.0501
    assert LatencyHistogram().quantile_s(0.5) is None


def test_no_two_tables_share_a_name() -> None:
    """Names that would be alike once made fit for paths and SQL carry a hash of themselves."""
    names = ["a.b", "a_b", "a b", "a`b", "ä", "a", "A", "a/b", "../x", ""]
    tables = {
        warehouse_table("acme", "shop", TableId(database=database, table=name)) for database in names for name in names
    }

    assert len(tables) == len(names) ** 2
    assert all(
        "/" not in level and "." not in level and "`" not in level for table in tables for level in table.identifier
    )
    assert len({str(table) for table in tables}) == len(tables)


def _after(progress: SinkProgress, batch: BatchIdentity, *outcomes: TableOutcome, now_us: int = NOW_US) -> SinkProgress:
    return with_batch(progress, batch, outcomes, timings=BatchTimings(), now_us=now_us, tries={})


def _outcome(
    rows: int,
    *,
    latency_s: int = 1,
    order: str = "2",
    parked: ParkedTable | None = None,
    maintained: Maintained | None = None,
    positions: tuple[ReachedPosition, ...] = (),
    timings: TableTimings = TIMINGS,
    deleted: DeletedRange | None = None,
    truncated_order: str = "",
) -> TableOutcome:
    return TableOutcome(
        topic="t",
        source="shop",
        table="shop.orders",
        warehouse_table="acme.shop.shop.orders",
        rows=rows,
        newest_order=order,
        newest_committed_at_us=NOW_US - latency_s * 1_000_000,
        live_changes={NOW_US - latency_s * 1_000_000: rows},
        commit=None if parked else TableCommit(NOW_US, timings=timings, maintained=maintained, positions=positions),
        parked=parked,
        deleted=deleted,
        truncated_order=truncated_order,
    )
