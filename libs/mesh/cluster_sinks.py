"""The sinks of a mesh elsewhere (``SinkView``): by their tables' commits, and by the reports of Spark jobs to an operator."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from libs.config.connections import KafkaSettings
from libs.config.load import Secret
from libs.errors import InvalidSettings
from libs.events.names import tenant_row_topic
from libs.mesh.catch_up import Behind, Hopeless
from libs.mesh.cluster_view import ClusterView
from libs.mesh.mesh_settings import mesh_sources, notes_dir
from libs.mesh.recorded_checkpoints import RecordedCheckpoints
from libs.mesh.recorded_sink_reports import RecordedSinkReports
from libs.mesh.sink_view import takes_no_signals
from libs.mesh.stored_tables import progress_rows, reached_offsets, spec_in_force, stored_tables
from libs.mesh.tenant_topics import has_records_between, open_consumer
from libs.sink_state.progress import ReachedPosition, SinkProgress, TableProgress
from libs.sink_state.resync import ResyncAnswer
from libs.types.checkpoint import Checkpoint
from libs.types.tenant import TenantSpec
from libs.warehouse_readers.warehouse import TableStore, TenantTable


@dataclass(slots=True)
class ClusterSinks:
    """See ``SinkView``. A job reports the end of a resync where an operator places its tenants."""

    view: ClusterView
    checkpoints: RecordedCheckpoints = field(init=False)
    reports: RecordedSinkReports = field(init=False)
    _stored: dict[str, tuple[TableStore, Sequence[TenantTable]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checkpoints = RecordedCheckpoints(self.kafka)
        self.reports = RecordedSinkReports(self.kafka)

    @property
    def kafka(self) -> KafkaSettings:
        return self.view.kafka

    @property
    def notes_dir(self) -> Path:
        return notes_dir(self.view.settings)

    @property
    def logs_dir(self) -> Path:
        return self.notes_dir / "logs"

    def spec(self, tenant: str) -> TenantSpec:
        return spec_in_force(self.view, tenant)

    def job_warehouse(self, tenant: str) -> tuple[str, Mapping[str, Any]]:
        sink = self.spec(tenant).sink
        settings = None if sink is None else getattr(self.view.settings.warehouses, sink.warehouse, None)
        if sink is None or settings is None:
            lack = (
                "has no sink" if sink is None else f"is in {sink.warehouse}, which warehouses of {self.view.file} lacks"
            )
            raise InvalidSettings(f"tenant {tenant}", [lack])
        return sink.warehouse, in_clear(settings)

    def no_copy_of(self, source: str) -> str | None:
        if not self.view.settings.sources:
            return None
        document = mesh_sources(self.view.settings).get(source)
        return None if document is None else takes_no_signals(source, document)

    def progress(self, tenant: str) -> SinkProgress | None:
        spec = self.spec(tenant)
        store, tables = self._tables(tenant)
        rows = progress_rows(store, tables)
        found = {}
        for table in tables:
            topic = tenant_row_topic(spec, table.source, table.table_id)
            of_table = [row for row in rows if (row["source"], row["table"]) == (table.source, str(table.table_id))]
            found[topic] = _table_progress(topic, table, of_table)
        return SinkProgress(tenant=tenant, tables=found, halted_because=self.reports.halted_because(tenant))

    def by_source(self, sources: Iterable[str]) -> dict[str, list[Checkpoint] | None]:
        return self.checkpoints.by_source(sources)

    def behind(self, tenant: str, topic: str, ends: Mapping[int, int]) -> Behind | None:
        if (because := self.reports.halted_because(tenant)) is not None:
            raise Hopeless(f"the sink of tenant {tenant} is halted: {because}")
        spec = self.spec(tenant)
        store, tables = self._tables(tenant)
        table = next(each for each in tables if tenant_row_topic(spec, each.source, each.table_id) == topic)
        if (table.source, str(table.table_id)) in self.reports.parked_tables(tenant):
            return None  # the sink reads on past it, and answers whether it has got there
        done = reached_offsets(store, table)
        with closing(open_consumer(self.kafka)) as consumer:
            for partition, end in ends.items():
                start = done.get(partition, 0)
                if has_records_between(consumer, topic, partition, start, end, without_tombstones=True):
                    return Behind(f"table {table.place}", f"at most {end - start:,} event(s)")
        return None

    def resync_answer(self, tenant: str, request_id: str) -> ResyncAnswer | None:
        return self.reports.resync_answer(tenant, request_id)

    def _tables(self, tenant: str) -> tuple[TableStore, Sequence[TenantTable]]:
        if tenant not in self._stored:
            self._stored[tenant] = stored_tables(self.view, tenant)
        return self._stored[tenant]


def in_clear(record: msgspec.Struct) -> dict[str, Any]:
    """As a settings file has it: fields with a value, secrets in clear.

    >>> from libs.config.iceberg_catalog import CatalogKind, CatalogSettings
    >>> in_clear(CatalogSettings(kind=CatalogKind.REST, uri="https://c", token=Secret("t")))
    {'kind': 'rest', 'uri': 'https://c', 'token': 't', 'properties': {}, 'busy_timeout_ms': 30000}
    """
    found: dict[str, Any] = {}
    for name in record.__struct_fields__:
        match getattr(record, name):
            case None:
                continue
            case Secret() as secret:
                found[name] = secret.reveal()
            case msgspec.Struct() as nested:
                found[name] = in_clear(nested)
            case value:
                found[name] = msgspec.to_builtins(value)
    return found


def _table_progress(topic: str, table: TenantTable, rows: Sequence[Mapping[str, Any]]) -> TableProgress:
    """As far as the newest commit says it; ``rows``: of ``PROGRESS_SCHEMA``."""
    positions = tuple(
        ReachedPosition(
            source_partition=row["source_partition"] or "",
            order=row["position_order"] or "",
            position=msgspec.json.decode(row["position"]),
        )
        for row in rows
        if row["position"] is not None
    )
    newest = rows[0] if rows else {}
    return TableProgress(
        topic=topic,
        source=table.source,
        table=str(table.table_id),
        warehouse_table=str(table.place),
        order=newest.get("order") or "",
        committed_at_us=_us(newest.get("committed_at")),
        written_at_us=_us(newest.get("written_at")),
        positions=positions,
    )


def _us(moment: Any) -> int:
    return 0 if moment is None else round(moment.timestamp() * 1e6)
