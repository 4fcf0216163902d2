"""How far a tenant's tables got: in a file that others read, and in metrics. The last step of a micro-batch."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from libs.durable_file import replace_durably
from libs.sink_state.deleted_range import DeletedRange, remembered
from libs.sink_state.progress import (
    BatchTimings,
    ParkedTable,
    ReachedPosition,
    SinkProgress,
    Standing,
    TableProgress,
    TableTimings,
    Try,
    decode_sink_progress,
    encode_sink_progress,
    table_phases,
)
from libs.telemetry.faults import keep_faults
from libs.telemetry.metrics import (
    SINK_BATCHES,
    SINK_DEAD_LETTERS,
    SINK_LAG,
    SINK_MERGE_SECONDS,
    SINK_PARKED_KEYS,
    SINK_PARKED_TABLES,
    SINK_PHASE_SECONDS,
    SINK_REPLAYED_BATCHES,
    SINK_ROWS,
)
from libs.telemetry.sink_faults import sink_faults
from libs.types.warehouse import WarehouseTable, table_named
from spark.sinks.port import BatchIdentity, Maintained
from spark.transforms.warehouse_columns import TableColumn


@dataclass(frozen=True, slots=True)
class SetAside:
    """The change of a table's parked keys by a batch."""

    held: int
    """Events that were not written."""
    letters: int
    """Those among them that were set aside now."""
    parked_keys: int
    parked_letters: int
    """Of all parked keys."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One table's part of a micro-batch is in the warehouse."""

    written_at_us: int
    timings: TableTimings | None = None
    """None: it was there already."""
    maintained: Maintained | None = None
    ignored: tuple[str, ...] = ()
    """The source's changes that a policy did not deliver."""
    is_left_out: bool = False
    """By policy there is no such table."""
    aside: SetAside = SetAside(0, 0, 0, 0)
    columns: Mapping[str, TableColumn] = field(default_factory=dict)
    """The table's columns now, without Headwater's own; empty: it was not asked, because it held the batch already."""
    positions: tuple[ReachedPosition, ...] = ()
    """Empty: none was looked for."""
    standing: Standing | None = None
    """As it leaves the table; None: it did not touch it."""


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """The outcome for one table of a micro-batch."""

    topic: str
    source: str
    table: str
    warehouse_table: str
    rows: int
    newest_order: str
    newest_committed_at_us: int
    live_changes: Mapping[int, int]
    """How many live changes the source committed when."""
    commit: TableCommit | None = None
    """None: it is parked."""
    parked: ParkedTable | None = None
    """With a commit: the events that still wait."""
    deleted: DeletedRange | None = None
    """Its deletes, of a mirror that keeps nothing of deleted rows."""
    truncated_order: str = ""
    """Its newest truncation, of such a mirror."""
    topic_id: str = ""
    """Of its topic; empty: not known."""

    @property
    def place(self) -> WarehouseTable:
        """Where it lies."""
        return table_named(self.warehouse_table)

    @property
    def written_rows(self) -> int:
        """Those that are in the warehouse now."""
        return 0 if self.commit is None else self.rows - self.commit.aside.held

    @property
    def is_replay(self) -> bool:
        """The warehouse held the batch already."""
        return self.commit is not None and self.commit.timings is None and not self.commit.is_left_out


def progress_path(state_dir: Path, tenant: str) -> Path:
    """The progress file of one tenant."""
    return state_dir / "progress" / f"{tenant}.json"


def load_progress(state_dir: Path, tenant: str) -> SinkProgress:
    """The last record; empty for a tenant that is new, or whose file is of an older release."""
    try:
        return decode_sink_progress(progress_path(state_dir, tenant).read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return SinkProgress(tenant=tenant)


def store_progress(state_dir: Path, progress: SinkProgress) -> None:
    """Replace the file whole: a reader sees the old one or the new one."""
    replace_durably(progress_path(state_dir, progress.tenant), encode_sink_progress(progress))


def has_noted(progress: SinkProgress, batch: BatchIdentity) -> bool:
    """Whether ``batch`` was done and stored, and comes again because Spark does not know."""
    return (progress.query_id, progress.batch_id) == (batch.query_id, batch.batch_id)


def with_batch(
    progress: SinkProgress,
    batch: BatchIdentity,
    outcomes: Sequence[TableOutcome],
    *,
    timings: BatchTimings,
    now_us: int,
    tries: Mapping[str, Try],
    settled: Collection[str] = (),
) -> SinkProgress:
    """``progress`` after a micro-batch. A batch that it holds already is not counted twice; a table that it parked was not
    counted. ``tries``: those that were not asked for; the batch's own writes need none. ``settled``: topics of tables whose
    part of the batch is in ``progress``, because a try of it was found."""
    tables, latency, rows = dict(progress.tables), progress.latency, progress.rows
    for outcome in outcomes:
        known = known_table(progress, outcome)
        if outcome.commit is None:
            tables[outcome.topic] = msgspec.structs.replace(known, parked=outcome.parked)
            continue
        is_repeat = outcome.topic in settled or (has_noted(progress, batch) and known.parked is None)
        tables[outcome.topic] = after = table_after(known, outcome, outcome.commit, is_repeat=is_repeat, now_us=now_us)
        rows += after.rows - known.rows
        if not is_repeat:
            latency = latency.plus(_latencies_s(outcome, outcome.commit.written_at_us))
    written = {outcome.topic for outcome in outcomes if outcome.commit is not None}
    return msgspec.structs.replace(
        progress,
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        written_at_us=now_us,
        rows=rows,
        tables=tables,
        tries={topic: each for topic, each in tries.items() if topic not in written},
        latency=latency,
        latency_p50_s=latency.quantile_s(0.5),
        latency_p99_s=latency.quantile_s(0.99),
        last_batch=timings,
        halted_because=None,
    )


def known_table(progress: SinkProgress, outcome: TableOutcome) -> TableProgress:
    """Its table before it."""
    return progress.tables.get(outcome.topic) or TableProgress(
        topic=outcome.topic,
        source=outcome.source,
        table=outcome.table,
        warehouse_table=outcome.warehouse_table,
    )


def table_after(
    known: TableProgress, outcome: TableOutcome, commit: TableCommit, *, is_repeat: bool, now_us: int
) -> TableProgress:
    """``known`` with the rows of ``commit``; ``is_repeat``: they are counted already."""
    # Facts that are remembered by offsets are of the topic that had them.
    remembered_before = known.deleted if outcome.topic_id in ("", known.topic_id) or not known.topic_id else ()
    return msgspec.structs.replace(
        known,
        rows=known.rows + (0 if is_repeat else outcome.rows - commit.aside.held),
        order=max(known.order, outcome.newest_order),
        committed_at_us=max(known.committed_at_us, outcome.newest_committed_at_us),
        positions=commit.positions or known.positions,
        written_at_us=commit.written_at_us,
        last=commit.timings or known.last,
        files=(commit.maintained and commit.maintained.files) or known.files,
        maintained_at_us=now_us if commit.maintained and commit.maintained.was_due else known.maintained_at_us,
        ignored=commit.ignored,
        parked_keys=commit.aside.parked_keys,
        dead_letters=commit.aside.parked_letters,
        parked=outcome.parked,
        deleted=known.deleted if is_repeat else remembered(remembered_before, outcome.deleted),
        truncated_order=max(known.truncated_order, outcome.truncated_order),
        topic_id=outcome.topic_id or known.topic_id,
        standing=commit.standing or known.standing,
    )


def _latencies_s(outcome: TableOutcome, written_at_us: int) -> dict[float, int]:
    latencies: dict[float, int] = {}
    for committed_at_us, changes in outcome.live_changes.items():
        latency_s = (written_at_us - committed_at_us) / 1e6
        latencies[latency_s] = latencies.get(latency_s, 0) + changes
    return latencies


def observe_batch(warehouse: str, progress: SinkProgress, outcomes: Sequence[TableOutcome]) -> None:
    """The batch in metrics."""
    labels = (progress.tenant, warehouse)
    SINK_BATCHES.labels(*labels).inc()
    SINK_PHASE_SECONDS.labels(*labels, "read").observe(progress.last_batch.read_s)
    if progress.last_batch.show_s:
        SINK_PHASE_SECONDS.labels(*labels, "show").observe(progress.last_batch.show_s)
    for outcome in outcomes:
        if outcome.commit is None or outcome.commit.is_left_out:
            continue
        if outcome.is_replay:
            SINK_REPLAYED_BATCHES.labels(*labels).inc()
            continue
        SINK_ROWS.labels(*labels).inc(outcome.written_rows)
        SINK_DEAD_LETTERS.labels(*labels).inc(outcome.commit.aside.letters)
        timings = outcome.commit.timings
        assert timings is not None  # a table that was written has some
        SINK_MERGE_SECONDS.labels(*labels).observe(timings.write_s)
        for phase, took_s in table_phases(timings).items():
            if took_s is not None:
                SINK_PHASE_SECONDS.labels(*labels, phase).observe(took_s)
    SINK_PARKED_KEYS.labels(*labels).set(sum(table.parked_keys for table in progress.tables.values()))
    SINK_PARKED_TABLES.labels(*labels).set(sum(table.needs_a_human for table in progress.tables.values()))
    newest_us = max((outcome.newest_committed_at_us for outcome in outcomes), default=0)
    if newest_us:
        SINK_LAG.labels(*labels).set(max(0.0, (progress.written_at_us - newest_us) / 1e6))


def report_faults(progress: SinkProgress) -> None:
    """Make the tenant's faults in this process those of ``progress``."""
    keep_faults(sink_faults(progress), lambda scope: scope.tenant == progress.tenant)
