"""How far a mesh elsewhere has got, from Kafka and the tables' own commits, which can be read from anywhere.

Where a Spark job is stands on its disk; but each commit says how far its table got (ADR 18).
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer

from libs.check.projection import selected_tables
from libs.check.source import asked
from libs.config.connections import KafkaSettings
from libs.events.names import tenant_row_topic
from libs.mesh.catch_up import Behind
from libs.mesh.documents import SourceDocument
from libs.mesh.recorded_checkpoints import RecordedCheckpoints
from libs.mesh.source_tables import is_captured
from libs.mesh.stored_tables import reached_offsets
from libs.mesh.tenant_topics import end_offsets, has_records_between
from libs.types.checkpoint import Checkpoint
from libs.types.table import TableId
from libs.types.tenant import TenantSpec
from libs.types.warehouse import warehouse_table
from libs.warehouse_readers.warehouse import TableStore, TenantTable


@dataclass(frozen=True, slots=True)
class ClusterHops:
    """See ``libs.mesh.catch_up.Hops``."""

    kafka: KafkaSettings
    sources: Mapping[str, SourceDocument]
    warehouse_of: Callable[[str], TableStore]
    is_compared: Callable[[TableId], bool]
    """Other tables are not waited for."""
    checkpoints: RecordedCheckpoints
    parked: Callable[[str], Mapping[tuple[str, str], str]] = lambda _: {}
    """A tenant's parked tables, which are not waited for; as ``ComparedMesh.parked``."""

    def by_source(self, sources: Iterable[str]) -> dict[str, list[Checkpoint] | None]:
        return self.checkpoints.by_source(sources)

    def sink_hop(self, consumer: Consumer, tenant: TenantSpec) -> Callable[[], Behind | None]:
        return functools.partial(self._sink_behind, consumer, tenant, _Waiting())

    def _sink_behind(self, consumer: Consumer, tenant: TenantSpec, waiting: "_Waiting") -> Behind | None:
        if not waiting.is_known:
            waiting.tables.update(self._tables(tenant))
            waiting.ends.update(end_offsets(self.kafka, waiting.tables))
            waiting.is_known = True
        parked = self.parked(tenant.tenant)
        for topic, table in list(waiting.tables.items()):
            if (table.source, str(table.table_id)) in parked:
                del waiting.tables[topic]
                continue
            done = reached_offsets(self.warehouse_of(tenant.tenant), table)
            ends = {partition: end for (name, partition), end in waiting.ends.items() if name == topic}
            for partition, end in ends.items():
                start = done.get(partition, 0)
                if has_records_between(consumer, topic, partition, start, end, without_tombstones=True):
                    return Behind(f"table {table.place}", f"at most {end - start:,} event(s)")
            del waiting.tables[topic]
        return None

    def _tables(self, tenant: TenantSpec) -> dict[str, TenantTable]:
        found = {}
        for selection in tenant.sources:
            document = self.sources.get(selection.name)
            if document is None:
                continue
            with asked(document) as answering:
                tables = [table.table_id for table in selected_tables(selection, answering.tables())]
            for table_id in tables:
                if not (is_captured(document, table_id) and self.is_compared(table_id)):
                    continue
                place = warehouse_table(tenant.tenant, selection.name, table_id)
                topic = tenant_row_topic(tenant, selection.name, table_id)
                found[topic] = TenantTable(tenant.tenant, selection.name, table_id, place)
        return found


@dataclass(slots=True)
class _Waiting:
    """A tenant's tables that lag the ends which their topics had when the wait began."""

    tables: dict[str, TenantTable] = field(default_factory=dict)
    """By topic."""
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    is_known: bool = False
