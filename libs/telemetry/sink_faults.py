"""The faults in a tenant's sink progress: one reading of it for the job's metrics and for ``headwater status``."""

from collections.abc import Mapping

from libs.sink_state.progress import SinkProgress, TableProgress
from libs.telemetry.faults import KEYS_PARKED, SINK_HALTED, TABLE_PARKED, FaultKind
from libs.types.fault import FaultScope


def sink_faults(progress: SinkProgress) -> Mapping[FaultKind, Mapping[FaultScope, str]]:
    """Every fault of the tenant: by kind and scope what happened. Kinds without a fault are there, empty."""
    halted = {} if progress.halted_because is None else {FaultScope(tenant=progress.tenant): progress.halted_because}
    tables = progress.tables.values()
    return {
        SINK_HALTED: halted,
        TABLE_PARKED: {
            _scope(progress, table): table.parked.because
            for table in tables
            if table.parked is not None and table.needs_a_human
        },
        KEYS_PARKED: {
            _scope(progress, table): f"{table.parked_keys:,} key(s) parked with {table.dead_letters:,} dead letter(s)"
            for table in tables
            if table.parked_keys
        },
    }


def _scope(progress: SinkProgress, table: TableProgress) -> FaultScope:
    return FaultScope(source=table.source, tenant=progress.tenant, table=table.table)
