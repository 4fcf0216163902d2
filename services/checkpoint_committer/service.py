"""The gRPC service: checks requests, decides on leases and resets, waits for the log, answers."""

import time
from typing import Any, NoReturn

import grpc
import msgspec
import structlog

from libs.errors import TransientError
from libs.events.checkpoint_codec import checkpoint_to_proto, position_from_proto
from libs.kafka.state_log import Decision, StateLog
from libs.rpc.audit import note_change
from libs.rpc.checkpoint_committer_client import progress_from_proto, progress_to_proto
from libs.telemetry.metrics import CHECKPOINT_RESETS, LEASE_REFUSALS, LEASE_TAKEOVERS, READ_BARRIER_SECONDS
from libs.types.checkpoint import Checkpoint, FencingToken
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from protos.headwater.checkpoints.v1 import checkpoint_committer_pb2 as pb
from protos.headwater.checkpoints.v1 import checkpoint_committer_pb2_grpc
from services.checkpoint_committer.leases import Granted, Held, Lease, LeaseRequest, decide_grant, given_up
from services.checkpoint_committer.log import RESERVED_SOURCES, Entry, Forgotten, Reset, checkpoint_keys, encode
from services.checkpoint_committer.partitions import Partitions, PartitionState
from services.checkpoint_committer.progress import ProgressBoard
from services.checkpoint_committer.settings import CheckpointCommitterSettings

SERVICE_NAME = "headwater.checkpoints.v1.CheckpointCommitter"
SHORTEST_LEASE_MS = 1_000
"""Below it a renewal could not be made in time: it takes a Kafka transaction."""

log = structlog.get_logger()

_Context = grpc.aio.ServicerContext[Any, Any]


class CheckpointCommitterService(checkpoint_committer_pb2_grpc.CheckpointCommitterServicer):
    """See the proto for the promises of each call."""

    def __init__(
        self,
        partitions: Partitions,
        progress: ProgressBoard,
        state_log: StateLog,
        settings: CheckpointCommitterSettings,
    ) -> None:
        self._partitions = partitions
        self._progress = progress
        self._log = state_log
        self._settings = settings

    async def AcquireSourcePartition(
        self, request: pb.AcquireSourcePartitionRequest, context: _Context
    ) -> pb.AcquireSourcePartitionResponse:
        partition = await _checked_partition(request.source, request.source_partition, context)
        longest_ms = int(self._settings.longest_lease_s * 1000)
        if not request.owner or not SHORTEST_LEASE_MS <= request.lease_ms <= longest_ms:
            reason = f"{partition}: an owner and a lease of {SHORTEST_LEASE_MS} to {longest_ms} ms must be given"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        wanted = LeaseRequest(partition, request.owner, request.lease_ms)
        try:
            answer = await self._log.submit(lambda: self._decide_grant(wanted))
        except TransientError as error:
            await _abort_unavailable(context, error)
        if isinstance(answer, Held):
            LEASE_REFUSALS.labels(partition.source, partition.name).inc()
            await _abort_held(context, partition, answer)
        lease = answer.lease
        if answer.previous_owner is not None:
            note_change(
                before={"owner": answer.previous_owner},
                after={"owner": lease.owner, "fencing_token": int(lease.fencing_token)},
            )
            LEASE_TAKEOVERS.labels(partition.source, partition.name).inc()
            log.info(
                "lease_taken_over",
                source=partition.source,
                source_partition=partition.name,
                owner=lease.owner,
                previous_owner=answer.previous_owner or None,
                fencing_token=lease.fencing_token,
            )
        return pb.AcquireSourcePartitionResponse(
            fencing_token=lease.fencing_token, expires_at_us=lease.granted_at_us + lease.lease_ms * 1000
        )

    async def _decide_grant(self, wanted: LeaseRequest) -> Decision[Granted | Held]:
        state = self._partitions.state(wanted.partition)
        decided = decide_grant(
            state.holding, wanted, newest_token=state.newest_token, now_s=time.monotonic(), now_us=_now_us()
        )
        return Decision(decided, [encode(decided.lease)] if isinstance(decided, Granted) else [])

    async def ReleaseSourcePartition(
        self, request: pb.ReleaseSourcePartitionRequest, context: _Context
    ) -> pb.ReleaseSourcePartitionResponse:
        partition = await _checked_partition(request.source, request.source_partition, context)

        async def decide() -> Decision[None]:
            holding = self._partitions.state(partition).holding
            if holding is None or (holding.lease.owner, holding.lease.fencing_token) != (
                request.owner,
                request.fencing_token,
            ):
                return Decision(None)
            released = given_up(holding.lease, fencing_token=holding.lease.fencing_token, now_us=_now_us())
            return Decision(None, [encode(released)])

        try:
            await self._log.submit(decide)
        except TransientError as error:
            await _abort_unavailable(context, error)
        return pb.ReleaseSourcePartitionResponse()

    async def GetCheckpoint(self, request: pb.GetCheckpointRequest, context: _Context) -> pb.GetCheckpointResponse:
        partition = await _checked_partition(request.source, request.source_partition, context)
        await self._wait_for_barrier(partition, context)
        checkpoint = self._partitions.state(partition).standing.checkpoint
        return pb.GetCheckpointResponse(checkpoint=checkpoint_to_proto(checkpoint) if checkpoint is not None else None)

    async def ListCheckpoints(
        self, request: pb.ListCheckpointsRequest, context: _Context
    ) -> pb.ListCheckpointsResponse:
        return pb.ListCheckpointsResponse(
            checkpoints=[checkpoint_to_proto(checkpoint) for checkpoint in self._partitions.checkpoints()]
        )

    async def ResetCheckpoint(
        self, request: pb.ResetCheckpointRequest, context: _Context
    ) -> pb.ResetCheckpointResponse:
        partition = await _checked_partition(request.source, request.source_partition, context)
        if not request.reason.strip():
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{partition}: a reset needs a reason, for the log")
        position = position_from_proto(request.position) if request.HasField("position") else None
        if request.starts_over and position is not None:
            reason = f"{partition}: a reset to a new snapshot takes no position"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        # So that a checkpoint committed before is judged before the reset, and not refused after it.
        await self._wait_for_barrier(partition, context)

        previous = self._partitions.state(partition).standing.checkpoint

        async def decide() -> Decision[Held | None]:
            state = self._partitions.state(partition)
            now_s = time.monotonic()
            if state.holding is not None and state.holding.is_held(now_s):
                return Decision(Held(state.holding.lease.owner, state.holding.ends_at_s - now_s))
            entries = reset_entries(
                partition, state, position, reason=request.reason, now_us=_now_us(), starts_over=request.starts_over
            )
            return Decision(None, [encode(entry) for entry in entries])

        try:
            held = await self._log.submit(decide)
        except TransientError as error:
            await _abort_unavailable(context, error)
        if held is not None:
            await _abort_held(context, partition, held)
        note_change(
            before={"position": _shown(previous.position) if previous is not None else None},
            after={"position": _shown(position) if position is not None else None},
        )
        CHECKPOINT_RESETS.labels(partition.source, partition.name).inc()
        log.warning(
            "checkpoint_reset",
            source=partition.source,
            source_partition=partition.name,
            position=_shown(position) if position is not None else None,
            reason=request.reason,
            peer=context.peer(),
        )
        return pb.ResetCheckpointResponse()

    async def ReportProgress(self, request: pb.ReportProgressRequest, context: _Context) -> pb.ReportProgressResponse:
        try:
            reports = [progress_from_proto(message) for message in request.progress]
        except ValueError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "order.rank is no decimal number")
        for report in reports:
            self._progress.report(report)
        return pb.ReportProgressResponse()

    async def GetProgress(self, request: pb.GetProgressRequest, context: _Context) -> pb.GetProgressResponse:
        reports = self._progress.of(request.tenant or None)
        return pb.GetProgressResponse(progress=[progress_to_proto(report) for report in reports])

    async def ForgetProgress(self, request: pb.ForgetProgressRequest, context: _Context) -> pb.ForgetProgressResponse:
        if not request.tenant:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a tenant must be given")
        reports = self._progress.forget(request.tenant)
        note_change(before={"reports": reports}, after={"reports": 0})
        log.info("progress_forgotten", tenant_id=request.tenant, reports=reports)
        return pb.ForgetProgressResponse(reports=reports)

    async def _wait_for_barrier(self, partition: SourcePartition, context: _Context) -> None:
        started_s = time.perf_counter()
        try:
            await self._log.barrier(self._settings.barrier_timeout_s, keys=checkpoint_keys(partition))
        except TransientError as error:
            await _abort_unavailable(context, error)
        finally:
            READ_BARRIER_SECONDS.observe(time.perf_counter() - started_s)


def _shown(position: SourcePosition) -> str:
    return position.token.decode(errors="backslashreplace")


def reset_entries(
    partition: SourcePartition,
    state: PartitionState,
    position: SourcePosition | None,
    *,
    reason: str,
    now_us: int,
    starts_over: bool = False,
) -> list[Entry]:
    """The records of a reset, all in one Kafka transaction, under a token that overrules every earlier checkpoint.

    The order starts again within the epoch: a position says nothing of it, and the next owner's checkpoints advance by
    their greater token. With ``starts_over`` the checkpoint stays, because the reader goes above its epoch.
    """
    token = FencingToken(state.newest_token + 1)
    previous = state.standing.checkpoint
    lease = Lease(partition=partition, owner="", fencing_token=token, granted_at_us=now_us, lease_ms=0)
    reset = Reset(partition=partition, position=position, fencing_token=token, reason=reason, reset_at_us=now_us)
    if starts_over and previous is not None:
        marked = msgspec.structs.replace(previous, fencing_token=token, published_at_us=now_us, starts_over=True)
        return [reset, lease, marked]
    if position is None:
        return [reset, lease, Forgotten(partition=partition)]
    checkpoint = Checkpoint(
        partition=partition,
        position=position,
        order=EventOrder(epoch=previous.order.epoch if previous is not None else 0, rank=0, tx_ordinal=0),
        fencing_token=token,
        committed_at_us=0,
        published_at_us=now_us,
        rows_published=previous.rows_published if previous is not None else 0,
        changes_topic_id=previous.changes_topic_id if previous is not None else "",
        faults=previous.faults if previous is not None else (),
    )
    return [reset, lease, checkpoint]


async def _checked_partition(source: str, name: str, context: _Context) -> SourcePartition:
    if not source or not name or "/" in source or source in RESERVED_SOURCES:
        reserved = ", ".join(sorted(RESERVED_SOURCES))
        reason = f"source {source!r}, source partition {name!r}: both must be given; no '/' in a source; not {reserved}"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
    return SourcePartition(source=source, name=name)


async def _abort_held(context: _Context, partition: SourcePartition, held: Held) -> NoReturn:
    reason = f"{partition} is owned by {held.owner} for another {held.remaining_s:.1f} s unless it renews"
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, reason)


async def _abort_unavailable(context: _Context, error: TransientError) -> NoReturn:
    await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))


def _now_us() -> int:
    return time.time_ns() // 1000
