"""``python -m services.dts_decoder --settings FILE``: follow one partition of a subscription. Wires, waits for SIGTERM."""

import asyncio
import sys

import libs.telemetry.without_rich  # noqa: F401  # before anything loads structlog
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.rpc.lifecycle import run_service
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.follow import follow
from libs.source.process import serve_reader
from libs.source.status import ReaderStatus
from services.dts_decoder.position import SOURCE_KIND
from services.dts_decoder.settings import DtsDecoderSettings
from services.dts_decoder.source import DtsSource


async def follow_subscription(settings: DtsDecoderSettings, status: ReaderStatus) -> None:
    """Read and publish until cancelled."""
    async with (
        SchemaHistoryClient(settings.schema_history) as schema_history,
        CheckpointCommitterClient(settings.checkpoint_committer) as committer,
    ):
        await follow(
            DtsSource(settings, schema_history, status),
            connector=SOURCE_KIND,
            kafka=settings.kafka,
            committer=committer,
            lease_s=settings.lease_s,
            status=status,
            changes_partition=settings.subscription.partition,
        )


async def serve(settings: DtsDecoderSettings, stop: asyncio.Event) -> None:
    """Until ``stop``; fits ``run_service``."""
    await serve_reader(
        settings, stop, source_partition=str(settings.subscription.partition), follow=follow_subscription
    )


if __name__ == "__main__":
    sys.exit(run_service("dts_decoder", DtsDecoderSettings, serve, sys.argv[1:]))
