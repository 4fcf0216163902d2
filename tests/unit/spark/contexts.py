"""A tenant's sink and its batches without Kafka, for tests of single steps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from libs.types.tenant import SinkSettings, TenantSpec
from spark.batch.context import BatchContext
from spark.batch.files import batch_files
from spark.batch.newest_events import NewestEvents
from spark.batch.tenant_sink import BatchLimits, StateFolder, TenantSink
from spark.kafka.delivered_schemas import DeliveredSchemas
from spark.pending.work import pending_work_in
from spark.sinks.port import BatchIdentity

BATCH = BatchIdentity("query", 5)


def tenant_sink(state_dir: Path, tenant: str = "acme", **fields: Any) -> TenantSink:
    """``fields``: those of TenantSink that are others than its own here."""
    sink = TenantSink(
        tenant=TenantSpec(tenant=tenant, sources=()),
        settings=SinkSettings(),
        sink=None,  # type: ignore[arg-type]
        kafka=None,  # type: ignore[arg-type]
        schemas=DeliveredSchemas(None, tenant),  # type: ignore[arg-type]
        state=StateFolder(state_dir),
        pending=pending_work_in(state_dir, tenant),
        limits=BatchLimits(offsets=1_000, parked_keys=1, tables_in_parallel=1),
        files=batch_files(state_dir, tenant),
        newest_events=NewestEvents(None),  # type: ignore[arg-type]
    )
    return replace(sink, **fields)


def context_of(sink: TenantSink, batch: BatchIdentity = BATCH, **fields: Any) -> BatchContext:
    """``fields``: those of BatchContext; a test whose steps ask Spark gives ``spark``."""
    return BatchContext(**{"of": sink, "batch": batch, "spark": None, **fields})
