"""One micro-batch of a tenant, once it is read: every step on its tables needs it, and none changes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from libs.sink_state.cut import Cut
from libs.sink_state.progress import ParkedTable
from libs.sink_state.read_ahead import ReadAhead
from libs.sink_state.stream_offsets import joined_offsets, load_earlier_offsets
from libs.types.tenant import SinkSettings, TenantSpec
from spark.batch.tenant_sink import BatchLimits, StateFolder, TenantSink
from spark.kafka.delivered_schemas import DeliveredSchemas
from spark.pending.tries import Tries, no_tries
from spark.pending.work import PendingWork
from spark.sinks.port import BatchIdentity, Sink


@dataclass(frozen=True, slots=True)
class BatchContext:
    """A micro-batch and its tenant."""

    of: TenantSink
    batch: BatchIdentity
    spark: SparkSession
    """The session that all its tables use."""
    cut: Cut = field(default_factory=Cut)
    """Where tables do not move together, nothing is cut off."""
    ahead: ReadAhead = field(default_factory=ReadAhead)
    tries: Tries = field(default_factory=no_tries)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Kafka's own ids of the tables' topics."""

    @property
    def tenant(self) -> TenantSpec:
        """As in ``of``, and so are the next seven."""
        return self.of.tenant

    @property
    def settings(self) -> SinkSettings:
        return self.of.settings

    @property
    def sink(self) -> Sink:
        return self.of.sink

    @property
    def kafka(self) -> KafkaSettings:
        return self.of.kafka

    @property
    def schemas(self) -> DeliveredSchemas:
        return self.of.schemas

    @property
    def state(self) -> StateFolder:
        return self.of.state

    @property
    def pending(self) -> PendingWork:
        return self.of.pending

    @property
    def limits(self) -> BatchLimits:
        return self.of.limits


def ended_before(context: BatchContext, topic: str, parked: ParkedTable | None = None) -> dict[int, int]:
    """By Kafka partition of ``topic``, where the former batches ended; for a parked table, the start of its waiting events."""
    dealt = load_earlier_offsets(context.state.folder, context.tenant.tenant, context.batch.batch_id)
    ended = joined_offsets(dealt.get(topic, {}), context.ahead.from_offsets.get(topic, {}), choose=max)
    return ended if parked is None else {**ended, **parked.from_offsets}
