"""``python -m services.vstream_reader --settings FILE``: follow one Vitess keyspace. Wires, waits for SIGTERM, nothing else."""

import asyncio
import sys
from functools import partial

import libs.telemetry.without_rich  # noqa: F401  # before anything loads structlog
from libs.errors import InvalidSettings
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.rpc.lifecycle import run_service
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.follow import follow
from libs.source.process import serve_reader
from libs.source.status import ReaderStatus
from libs.source.vitess.tasks import changes_partition, partition_name
from services.vstream_reader.beginning import TakeOver
from services.vstream_reader.position import SOURCE_KIND
from services.vstream_reader.settings import VstreamReaderSettings, mistakes_in
from services.vstream_reader.source import VstreamSource
from services.vstream_reader.tasks import CommittedFellows, Fellows, is_former_partition, take_over


async def follow_vstream(settings: VstreamReaderSettings, status: ReaderStatus) -> None:
    """Read and publish until cancelled."""
    async with (
        SchemaHistoryClient(settings.schema_history) as schema_history,
        CheckpointCommitterClient(settings.checkpoint_committer) as committer,
    ):
        await follow(
            VstreamSource(settings, schema_history, _takeover(settings, committer), _fellows(settings, committer)),
            connector=SOURCE_KIND,
            kafka=settings.kafka,
            committer=committer,
            lease_s=settings.lease_s,
            status=status,
            changes_partition=changes_partition(partition_name(settings.tasks)),
            heartbeat_interval_s=settings.heartbeat_interval_s,
            hears_signals=True,
            is_former=partial(is_former_partition, settings.tasks),
        )


def _takeover(settings: VstreamReaderSettings, committer: CheckpointCommitterClient) -> TakeOver:
    return partial(
        take_over,
        settings.tasks,
        settings.source,
        committer=committer,
        kafka=settings.kafka,
        lease_s=settings.lease_s,
    )


def _fellows(settings: VstreamReaderSettings, committer: CheckpointCommitterClient) -> Fellows | None:
    if settings.tasks is None:
        return None
    return CommittedFellows(tasks=settings.tasks, source=settings.source, committer=committer, kafka=settings.kafka)


async def serve(settings: VstreamReaderSettings, stop: asyncio.Event) -> None:
    """Check the settings, then read until ``stop`` is set."""
    if mistakes := mistakes_in(settings):
        raise InvalidSettings("vstream_reader", mistakes)
    await serve_reader(settings, stop, source_partition=partition_name(settings.tasks), follow=follow_vstream)


if __name__ == "__main__":
    sys.exit(run_service("vstream_reader", VstreamReaderSettings, serve, sys.argv[1:]))
