"""Starts checkpoint_committer: ``python -m services.checkpoint_committer --settings FILE``."""

import asyncio
import functools
import sys
import time
from collections.abc import Mapping

import structlog

from libs.kafka.audit_topic import AuditTopic
from libs.kafka.clients import ensure_topics
from libs.kafka.state_log import StateLog
from libs.kafka.tail import LogIdentity, identify_log
from libs.rpc.lifecycle import run_service
from libs.rpc.server import start_server
from libs.telemetry.endpoint import start_endpoint
from protos.headwater.checkpoints.v1.checkpoint_committer_pb2_grpc import add_CheckpointCommitterServicer_to_server
from services.checkpoint_committer.log import log_spec, topic_spec
from services.checkpoint_committer.partitions import Partitions
from services.checkpoint_committer.progress import ProgressBoard
from services.checkpoint_committer.service import SERVICE_NAME, CheckpointCommitterService
from services.checkpoint_committer.settings import CheckpointCommitterSettings
from services.checkpoint_committer.sync import ViewSync
from services.checkpoint_committer.view import CheckpointView, ViewContents

# Of the 10 s that a supervisor gives: running calls get 3, the rest belongs to Kafka and Redis.
GRACE_S = 3.0

log = structlog.get_logger()


async def serve(settings: CheckpointCommitterSettings, stop: asyncio.Event) -> None:
    """Load the checkpoints in force, answer until ``stop`` is set, drain."""
    await asyncio.to_thread(ensure_topics, settings.kafka, [topic_spec(settings)])
    identity = await identify_log(settings.kafka, settings.topic)
    view = CheckpointView(settings.redis, identity.topic_id)
    contents = _usable(await view.load(), identity)
    partitions = Partitions()
    for record in contents.records if contents is not None else ():
        partitions.apply(record)
    from_offsets: Mapping[int, int] = contents.next_offsets if contents is not None else {}
    progress = ProgressBoard(await view.load_progress())
    state_log = StateLog(settings.kafka, log_spec(settings), identity, partitions.apply, from_offsets=from_offsets)
    sync = ViewSync(view, partitions, progress, from_offsets)
    service = CheckpointCommitterService(partitions, progress, state_log, settings)
    endpoint = start_endpoint(
        settings.telemetry, alive=state_log.alive, ready=state_log.ready, degraded=lambda: view.unavailable
    )
    register = functools.partial(add_CheckpointCommitterServicer_to_server, service)
    server = await start_server(settings.grpc, {SERVICE_NAME: register}, AuditTopic(settings.kafka))
    loaded = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(state_log.run(loaded=loaded, load_timeout_s=settings.load_timeout_s))
            await tasks.create_task(loaded.wait())
            syncing = tasks.create_task(_keep_in_sync(sync, state_log, settings.view_interval_s))
            await server.set_serving(True)
            log.info(
                "service_started",
                grpc_port=server.port,
                http_port=endpoint.port,
                source_partitions=len(partitions),
                is_from_view=contents is not None,
            )
            await stop.wait()
            await server.stop(GRACE_S)
            syncing.cancel()
            running.cancel()
        await sync.once(state_log.passed, time.time_ns() // 1000)
    finally:
        await server.stop(0)
        endpoint.close()
        await view.close()


def _usable(contents: ViewContents | None, identity: LogIdentity) -> ViewContents | None:
    """None where the view is of another shape than the topic, or reaches beyond it: then Kafka is read whole."""
    if contents is None:
        return None
    ends = identity.end_offsets
    if set(contents.next_offsets) == set(ends) and all(
        contents.next_offsets[number] <= ends[number] for number in ends
    ):
        return contents
    log.warning("checkpoint_view_discarded", reason="it does not fit the log")
    return None


async def _keep_in_sync(sync: ViewSync, state_log: StateLog, interval_s: float) -> None:
    while True:
        await sync.once(state_log.passed, time.time_ns() // 1000)
        await asyncio.sleep(interval_s)


if __name__ == "__main__":
    sys.exit(run_service("checkpoint_committer", CheckpointCommitterSettings, serve, sys.argv[1:]))
