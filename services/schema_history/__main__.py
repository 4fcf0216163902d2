"""Starts schema_history: ``python -m services.schema_history --settings FILE``."""

import asyncio
import functools
import sys
import time

import structlog

from libs.kafka.audit_topic import AuditTopic
from libs.kafka.clients import ensure_topics
from libs.kafka.state_log import StateLog
from libs.kafka.tail import identify_log
from libs.rpc.lifecycle import run_service
from libs.rpc.server import start_server
from libs.telemetry.endpoint import start_endpoint
from libs.telemetry.metrics import SCHEMA_HISTORY_LOAD_SECONDS
from protos.headwater.schema_history.v1.schema_history_pb2_grpc import add_SchemaHistoryServicer_to_server
from services.schema_history.log import log_spec, read_whole_log, topic_spec
from services.schema_history.service import SERVICE_NAME, SchemaHistoryService
from services.schema_history.settings import SchemaHistorySettings
from services.schema_history.tables import Tables
from services.schema_history.view import HistoryView

# Of the 10 s that a supervisor gives: running calls get 3, the rest belongs to Kafka and Redis.
GRACE_S = 3.0

log = structlog.get_logger()


async def serve(settings: SchemaHistorySettings, stop: asyncio.Event) -> None:
    """Load the history, answer until ``stop`` is set, drain."""
    started_s = time.monotonic()
    await asyncio.to_thread(ensure_topics, settings.kafka, [topic_spec(settings)])
    identity = await identify_log(settings.kafka, settings.topic)
    view = HistoryView(settings.redis, identity.topic_id)
    contents = await view.load()
    if contents is not None and contents.next_offset > identity.end_offsets[0]:
        log.warning("schema_view_discarded", reason="it reaches beyond the log", next_offset=contents.next_offset)
        contents = None
    tables = Tables(
        view,
        contents,
        lambda: read_whole_log(settings.kafka, settings.topic, identity, timeout_s=settings.load_timeout_s),
    )
    state_log = StateLog(
        settings.kafka,
        log_spec(settings),
        identity,
        tables.apply,
        from_offsets={0: contents.next_offset} if contents is not None else {},
    )
    service = SchemaHistoryService(tables, state_log, barrier_timeout_s=settings.barrier_timeout_s)
    endpoint = start_endpoint(
        settings.telemetry, alive=state_log.alive, ready=state_log.ready, degraded=lambda: view.unavailable
    )
    register = functools.partial(add_SchemaHistoryServicer_to_server, service)
    server = await start_server(settings.grpc, {SERVICE_NAME: register}, AuditTopic(settings.kafka))
    loaded = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(state_log.run(loaded=loaded, load_timeout_s=settings.load_timeout_s))
            syncing = tasks.create_task(_sync_view(tables, state_log, loaded, settings.view_interval_s))
            waiting = tasks.create_task(loaded.wait())
            await waiting
            SCHEMA_HISTORY_LOAD_SECONDS.set(time.monotonic() - started_s)
            await server.set_serving(True)
            log.info(
                "service_started",
                grpc_port=server.port,
                http_port=endpoint.port,
                tables=len(tables),
                is_from_view=contents is not None,
            )
            await stop.wait()
            await server.stop(GRACE_S)
            syncing.cancel()
            running.cancel()
        await tables.sync_view(state_log.passed[0])
    finally:
        await server.stop(0)
        endpoint.close()
        await view.close()


async def _sync_view(tables: Tables, state_log: StateLog, loaded: asyncio.Event, interval_s: float) -> None:
    await loaded.wait()
    while True:
        await tables.sync_view(state_log.passed[0])
        await asyncio.sleep(interval_s)


if __name__ == "__main__":
    sys.exit(run_service("schema_history", SchemaHistorySettings, serve, sys.argv[1:]))
