"""The Faust app: consumes the changes topics and hands every batch to its lane. The only module that imports faust.

Faust does the consumer group: membership, assignment, fetching, back-pressure. It writes nothing
and commits nothing: its own exactly-once mode leaves records to topics that the app does not consume outside the
transaction (seen: 260 repeated of 12,000 in four kills). Two of its settings matter for correctness:
``processing_guarantee="exactly_once"`` makes its consumer ``read_committed``, and ``acks=False`` keeps it from committing
offsets of batches that no lane has written.

The order at an assignment: revoked (lanes end), assigned (lanes start to open), rebalance complete (every lane is open: old
owners are fenced and their offsets final), and only then Faust reads the committed offsets and fetches from there.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import faust
import structlog
from faust.assignor.client_assignment import ClientAssignment
from faust.assignor.partition_assignor import MemberAssignmentMapping, MemberMetadataMapping, PartitionAssignor

from libs.config.connections import KafkaSettings
from libs.errors import HeadwaterError, PipelineHalted, TransientError
from libs.kafka.clients import tls_context
from libs.kafka.oauth import TokenProvider
from services.router.assignment import deal
from services.router.lane.lanes import ChangesPartition, Lanes
from services.router.settings import RouterSettings
from services.router.transactions.metering import FetchMeter
from services.router.transactions.outputs import WaitingBatch

log = structlog.get_logger()

_STOP_TIMEOUT_S: Final = 2.0
"""Faust was seen to take 40 s for a stop; once lanes are closed nothing can be lost by not waiting."""
_CRASH_CHECK_S: Final = 0.2
_BUFFERED_BATCHES: Final = 1_000
"""Never reached: a full buffer makes Faust's consumer sleep for a second, which left lanes idle four fifths of the time in a
catch-up. ``_paced`` bounds the buffer, by the lanes' room."""
_POLLED_BATCHES: Final = 4


class SinglePartitions(PartitionAssignor):
    """Has the group's leader deal single partitions (ADR 10).

    Faust's own gives partitions of one number of all topics that have as many to one member, for streams that are joined:
    sources of one partition each would all lie with one router, however many there are.
    """

    def _perform_assignment(self, cluster: Any, member_metadata: MemberMetadataMapping) -> MemberAssignmentMapping:
        self._update_member_urls({member: self._get_client_metadata(each) for member, each in member_metadata.items()})
        subscriptions = {member: frozenset(each.subscription) for member, each in member_metadata.items()}
        topics = sorted(frozenset[str]().union(*subscriptions.values()))
        dealt = deal(subscriptions, {topic: cluster.partitions_for_topic(topic) or () for topic in topics})
        assignments = {member: ClientAssignment(actives=given, standbys={}) for member, given in dealt.items()}
        return self._protocol_assignments(
            assignments,
            self._get_changelog_distribution(assignments),
            self._get_external_topic_distribution(assignments),
            {topic: group for group, topic in enumerate(topics)},
        )


class ChangesConsumer:
    """Faust's consumer of the changes topics. ``run`` until cancelled, then ``stop``."""

    def __init__(self, settings: RouterSettings, topics: Sequence[str], lanes: Lanes) -> None:
        self._lanes = lanes
        self._fetching = FetchMeter()
        self._app = _make_app(settings)
        changes = self._app.topic(
            *topics, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw", acks=False
        )
        self._app.agent(changes, name="router")(self._dispatch)
        consumer: Any = self._app.consumer  # its type does not name the callback
        consumer.callback = self._paced(consumer.callback)
        self._app.on_partitions_revoked.connect(self._on_revoked)
        self._app.on_partitions_assigned.connect(self._on_assigned)
        self._app.on_rebalance_complete.connect(self._on_rebalance_complete)

    async def run(self) -> None:
        """Consume until cancelled.

        Raises:
            TransientError: Faust's consumer failed; start the process again.
            PipelineHalted: this Faust would deliver aborted records.
        """
        if not self._app.in_transaction:
            raise PipelineHalted("Faust's consumer is not read_committed; pin the release of faust-streaming that is")
        await self._app.start()
        while not self._app.crashed:
            await asyncio.sleep(_CRASH_CHECK_S)
            self._fetching.tick()
        reason = self._app.crash_reason
        if isinstance(reason, HeadwaterError):
            raise reason
        raise TransientError(f"the consumer of the changes topics failed: {reason!r}")

    async def stop(self) -> None:
        """Leave the group, so that others take over at once; gives up after some seconds."""
        try:
            await asyncio.wait_for(self._app.stop(), _STOP_TIMEOUT_S)
        except TimeoutError:
            log.info("consumer_left_behind", reason="Faust did not stop in time; the group finds out by its timeout")

    def _paced(self, to_agent: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
        """Called by Faust's consumer for each message: passes it to the agent when its lane has room.

        Faust stops waiting here by itself when a rebalance begins; the message is fetched again after it.
        """

        async def callback(message: Any) -> None:
            partition = ChangesPartition(message.topic, message.partition)
            await self._lanes.wait_for_room(partition, len(message.value or b""))
            await to_agent(message)

        return callback

    async def _dispatch(self, stream: Any) -> None:
        async for event in stream.events():
            message = event.message
            partition = ChangesPartition(message.topic, message.partition)
            batch = WaitingBatch(message.offset, message.value or b"", self._fetching.lap_ns())
            await self._lanes.offer(partition, message.generation_id, batch)

    async def _on_revoked(self, _app: Any, /, *_: Any, signal: Any, **__: Any) -> None:
        """All lanes end, not only the revoked: Faust's assignor gives all partitions again at each rebalance."""
        await self._lanes.close()

    async def _on_assigned(self, app: Any, /, *arguments: Any, signal: Any, **_: Any) -> None:
        (assigned,) = arguments
        partitions = [ChangesPartition(tp.topic, tp.partition) for tp in assigned]
        log.info("partitions_assigned", generation=app.consumer_generation_id, partitions=len(partitions))
        await self._lanes.open(partitions, app.consumer_generation_id)

    async def _on_rebalance_complete(self, app: Any, /, *_: Any, signal: Any, **__: Any) -> None:
        try:
            await self._lanes.opened()
            self._fetching.lap_ns()  # a rebalance is no batch's
        except HeadwaterError as error:
            await app.crash(error)
            raise


def _make_app(settings: RouterSettings) -> faust.App:
    for library in ("faust", "mode"):
        logging.getLogger(library).setLevel(logging.WARNING)  # a line for each of its inner services otherwise
    app = faust.App(
        settings.group,
        broker=[f"aiokafka://{server.strip()}" for server in settings.kafka.bootstrap_servers.split(",")],
        broker_credentials=_credentials(settings.kafka),
        broker_session_timeout=settings.session_timeout_s,
        broker_heartbeat_interval=settings.heartbeat_interval_s,
        broker_max_poll_records=_POLLED_BATCHES,
        consumer_max_fetch_size=settings.fetch_bytes,
        consumer_auto_offset_reset="earliest",
        processing_guarantee="exactly_once",
        stream_buffer_maxsize=_BUFFERED_BATCHES,
        topic_disable_leader=True,
        topic_allow_declare=False,
        web_enabled=False,
        PartitionAssignor=SinglePartitions,
        store="memory://",
        datadir=str(Path(settings.state_folder) / "faust"),
    )
    # Without it (Faust's own command line sets it) processing_guarantee is not looked at, and the consumer is
    # read_uncommitted: batches that a reader aborted were seen to be delivered.
    app.in_worker = True
    return app


def _credentials(kafka: KafkaSettings) -> Any:
    context = tls_context(kafka)
    if kafka.oauth is not None:
        return faust.OAuthCredentials(oauth_cb=TokenProvider(kafka.oauth), ssl_context=context)
    if kafka.sasl_mechanism is not None:
        return faust.SASLCredentials(
            username=kafka.sasl_username or "",
            password=kafka.sasl_password.reveal() if kafka.sasl_password else "",
            mechanism=kafka.sasl_mechanism.value,
            ssl_context=context,
        )
    return None if context is None else faust.SSLCredentials(context)
