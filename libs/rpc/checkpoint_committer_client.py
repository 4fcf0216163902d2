"""checkpoint_committer from the caller's side: readers own source partitions, hops report how far they got.

A reader starts in this order, and in no other:

1. ``acquire`` the source partition (the fencing token);
2. ``init_transactions`` of its Kafka producer, whose transactional id is the source partition's: from here on
   Kafka refuses the previous owner;
3. ``checkpoint``: nobody but this reader can advance it any more, so it is the place to resume at.

Asking for the checkpoint before 2 may resume before a commit of the previous owner: its events would come twice.
"""

from collections.abc import Sequence
from typing import NamedTuple

from libs.config.connections import GrpcClientSettings
from libs.events.checkpoint_codec import (
    checkpoint_from_proto,
    order_from_proto,
    order_to_proto,
    position_to_proto,
)
from libs.rpc.client import OwnsChannel, answer_of, open_channel
from libs.types.checkpoint import Checkpoint, FencingToken
from libs.types.position import SourcePartition, SourcePosition
from libs.types.progress import Progress
from protos.headwater.checkpoints.v1 import checkpoint_committer_pb2 as pb
from protos.headwater.checkpoints.v1 import checkpoint_committer_pb2_grpc

_SERVICE = "checkpoint_committer"


class Lease(NamedTuple):
    """The answer of ``acquire_lease``."""

    fencing_token: FencingToken
    expires_at_us: int


class CheckpointCommitterClient(OwnsChannel):
    """A channel to checkpoint_committer; make it inside the event loop that uses it, ``close`` it at the end.

    A call waits for a service that restarts, up to ``settings.timeout_s``. Every method raises
    ``ServiceUnavailable`` where there was no answer in time: try again.
    """

    def __init__(self, settings: GrpcClientSettings) -> None:
        self._timeout_s = settings.timeout_s
        self._channel = open_channel(settings)
        self._stub = checkpoint_committer_pb2_grpc.CheckpointCommitterStub(self._channel)  # type: ignore[no-untyped-call]

    async def acquire(self, partition: SourcePartition, owner: str, lease_s: float) -> FencingToken:
        """The fencing token of a lease that holds for ``lease_s`` seconds; ask again within it to renew.

        The same owner keeps its token; a takeover grows it. Durable before it is answered.

        Raises:
            Fenced: another owner holds it; the message says who, and until when. A reader that starts waits and asks
                again; one that renews stops at once.
        """
        return (await self.acquire_lease(partition, owner, lease_s)).fencing_token

    async def acquire_lease(self, partition: SourcePartition, owner: str, lease_s: float) -> Lease:
        """As ``acquire``, with the time at which the lease ends by the service's clock."""
        request = pb.AcquireSourcePartitionRequest(
            source=partition.source, source_partition=partition.name, owner=owner, lease_ms=int(lease_s * 1000)
        )
        call = self._stub.AcquireSourcePartition(request, timeout=self._timeout_s, wait_for_ready=True)
        answer: pb.AcquireSourcePartitionResponse = await answer_of(call, service=_SERVICE)
        return Lease(FencingToken(answer.fencing_token), answer.expires_at_us)

    async def release(self, partition: SourcePartition, owner: str, token: FencingToken) -> None:
        """Give the lease up, so that the next owner waits for nothing; without effect where it is held no more."""
        request = pb.ReleaseSourcePartitionRequest(
            source=partition.source, source_partition=partition.name, owner=owner, fencing_token=token
        )
        call = self._stub.ReleaseSourcePartition(request, timeout=self._timeout_s, wait_for_ready=True)
        await answer_of(call, service=_SERVICE)

    async def checkpoint(self, partition: SourcePartition) -> Checkpoint | None:
        """The newest checkpoint committed when asked (a read barrier); None where the partition was never read."""
        request = pb.GetCheckpointRequest(source=partition.source, source_partition=partition.name)
        call = self._stub.GetCheckpoint(request, timeout=self._timeout_s, wait_for_ready=True)
        answer: pb.GetCheckpointResponse = await answer_of(call, service=_SERVICE)
        return checkpoint_from_proto(answer.checkpoint) if answer.HasField("checkpoint") else None

    async def list_checkpoints(self) -> list[Checkpoint]:
        """Every checkpoint known, by source partition; for display, without the read barrier."""
        call = self._stub.ListCheckpoints(pb.ListCheckpointsRequest(), timeout=self._timeout_s, wait_for_ready=True)
        answer: pb.ListCheckpointsResponse = await answer_of(call, service=_SERVICE)
        return [checkpoint_from_proto(message) for message in answer.checkpoints]

    async def reset(
        self, partition: SourcePartition, *, position: SourcePosition | None, reason: str, starts_over: bool = False
    ) -> None:
        """Set the resume point by hand; None forgets it, so that the next reader starts with a snapshot. Audited.

        ``starts_over``: the snapshot has an epoch above that of the checkpoint in force, so that its events win over all
        earlier ones; without it the epoch is forgotten too.

        Raises:
            Fenced: a reader holds the partition; stop it first.
        """
        request = pb.ResetCheckpointRequest(
            source=partition.source,
            source_partition=partition.name,
            position=position_to_proto(position) if position is not None else None,
            reason=reason,
            starts_over=starts_over,
        )
        call = self._stub.ResetCheckpoint(request, timeout=self._timeout_s, wait_for_ready=True)
        await answer_of(call, service=_SERVICE)

    async def report_progress(self, progress: Sequence[Progress]) -> None:
        """Report how far hops got. Not durable: the next report makes up for a lost one."""
        request = pb.ReportProgressRequest(progress=[progress_to_proto(report) for report in progress])
        call = self._stub.ReportProgress(request, timeout=self._timeout_s, wait_for_ready=True)
        await answer_of(call, service=_SERVICE)

    async def progress(self, tenant: str | None = None) -> list[Progress]:
        """The newest report of each hop, tenant, source partition and table; of one tenant where it is named."""
        request = pb.GetProgressRequest(tenant=tenant or "")
        call = self._stub.GetProgress(request, timeout=self._timeout_s, wait_for_ready=True)
        answer: pb.GetProgressResponse = await answer_of(call, service=_SERVICE)
        return [progress_from_proto(message) for message in answer.progress]

    async def forget_progress(self, tenant: str) -> int:
        """Forget every hop's reports of ``tenant``; how many there were. A hop that reports again is listed again."""
        request = pb.ForgetProgressRequest(tenant=tenant)
        call = self._stub.ForgetProgress(request, timeout=self._timeout_s, wait_for_ready=True)
        answer: pb.ForgetProgressResponse = await answer_of(call, service=_SERVICE)
        return int(answer.reports)


def progress_to_proto(report: Progress) -> pb.Progress:
    """The wire form of ``report``."""
    return pb.Progress(
        tenant=report.tenant,
        hop=report.hop,
        source=report.partition.source,
        source_partition=report.partition.name,
        table=report.table,
        committed_at_us=report.committed_at_us,
        order=order_to_proto(report.order),
        rows=report.rows,
        reported_at_us=report.reported_at_us,
    )


def progress_from_proto(message: pb.Progress) -> Progress:
    """The report that ``message`` carries."""
    return Progress(
        tenant=message.tenant,
        hop=message.hop,
        partition=SourcePartition(source=message.source, name=message.source_partition),
        table=message.table,
        committed_at_us=message.committed_at_us,
        order=order_from_proto(message.order),
        rows=message.rows,
        reported_at_us=message.reported_at_us,
    )
