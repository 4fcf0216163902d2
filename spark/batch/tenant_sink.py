"""The common needs of all batches of one tenant: a query makes them once, and no batch changes them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from libs.config.connections import KafkaSettings
from libs.types.patterns import any_column
from libs.types.tenant import Consistency, SinkSettings, TenantSpec
from spark.batch.events_at_hand import Decoders
from spark.batch.files import BatchFiles
from spark.batch.newest_events import NewestEvents
from spark.kafka.delivered_schemas import DeliveredSchemas
from spark.pending.progress import TableOutcome
from spark.pending.work import PendingWork
from spark.sinks.port import Sink


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much a batch may take."""

    offsets: int
    """How many events Spark deals a batch at most."""
    parked_keys: int
    """Of a table; with more the table is parked."""
    tables_in_parallel: int
    fails_on_loss: bool = True
    """Whether events that Kafka has no more halt the tenant."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The tenant's state: a folder of the job, and its copy that outlives the job."""

    folder: Path
    keep: Callable[[], None] = lambda: None
    """Have the state outlive the job's folder; waits. Raises Fenced where another job has the tenant."""
    confirm: Callable[[], None] = lambda: None
    """See that no other job has the tenant, before a table is written; waits and raises as ``keep``."""


@dataclass(frozen=True, slots=True)
class QueryHooks:
    """The query that runs the batches, as they see it."""

    report_applied: Callable[[Sequence[TableOutcome]], None] = lambda _: None
    """Called with the outcome for each table of a batch, when all are committed; it does not raise."""
    metered: Callable[[], AbstractContextManager[None]] = nullcontext
    """The CPU of the thread that enters it is the tenant's."""
    is_stopping: Callable[[], bool] = lambda: False
    """Whether the query is being stopped, so that jobs fail for that alone."""


@dataclass(frozen=True, slots=True)
class TenantSink:
    """One tenant's way into its warehouse."""

    tenant: TenantSpec
    settings: SinkSettings
    sink: Sink
    kafka: KafkaSettings
    schemas: DeliveredSchemas
    state: StateFolder
    pending: PendingWork
    limits: BatchLimits
    files: BatchFiles
    newest_events: NewestEvents
    query: QueryHooks = field(default_factory=QueryHooks)
    decoders: Decoders = field(default_factory=Decoders)

    @property
    def moves_together(self) -> bool:
        """Whether all tables are shown at the end of the same transaction."""
        return self.settings.consistency is Consistency.TRANSACTION

    def tracks(self, column: str) -> bool:
        """Whether a change of ``database.table.column`` opens a new version of its row, in a history."""
        return any_column(self.settings.tracked_columns, column)
