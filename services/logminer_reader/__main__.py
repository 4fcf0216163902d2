"""``python -m services.logminer_reader --settings FILE``: follow one Oracle database. It wires, and waits for SIGTERM."""

import sys
from functools import partial
from pathlib import Path

import libs.telemetry.without_rich  # noqa: F401  # before anything loads structlog
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.rpc.lifecycle import run_service
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.follow import follow
from libs.source.process import serve_reader
from libs.source.status import ReaderStatus
from services.logminer_reader.position import SOURCE_KIND, SOURCE_PARTITION
from services.logminer_reader.settings import LogminerReaderSettings
from services.logminer_reader.source import OracleSource


async def follow_redo(settings: LogminerReaderSettings, status: ReaderStatus) -> None:
    """Read and publish until cancelled."""
    async with (
        SchemaHistoryClient(settings.schema_history) as schema_history,
        CheckpointCommitterClient(settings.checkpoint_committer) as committer,
    ):
        await follow(
            OracleSource(settings, schema_history),
            connector=SOURCE_KIND,
            kafka=settings.kafka,
            committer=committer,
            lease_s=settings.lease_s,
            status=status,
            spill_dir=Path(settings.spill_dir),
            heartbeat_interval_s=settings.heartbeat_interval_s,
            hears_signals=True,
        )


serve = partial(serve_reader, source_partition=SOURCE_PARTITION, follow=follow_redo)

if __name__ == "__main__":
    sys.exit(run_service("logminer_reader", LogminerReaderSettings, serve, sys.argv[1:]))
