"""ReaderControl: a reader's answers about itself (``reader_control.proto``)."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc

from libs.errors import BrokerUnavailable
from libs.events.checkpoint_codec import incremental_to_proto, position_to_proto, snapshot_to_proto
from libs.rpc.audit import note_change
from libs.source.publisher import Published
from libs.source.signal_outcomes import recent_signals
from libs.source.signals import InvalidSignal
from libs.source.status import ReaderState, ReaderStatus
from protos.headwater.reader_control.v1 import reader_control_pb2 as pb
from protos.headwater.reader_control.v1 import reader_control_pb2_grpc

_STATES = {
    ReaderState.STARTING: pb.READER_STATE_STARTING,
    ReaderState.SNAPSHOTTING: pb.READER_STATE_SNAPSHOTTING,
    ReaderState.STREAMING: pb.READER_STATE_STREAMING,
    ReaderState.PAUSED: pb.READER_STATE_PAUSED,
    ReaderState.HALTED: pb.READER_STATE_HALTED,
    ReaderState.CONNECTING: pb.READER_STATE_CONNECTING,
    ReaderState.DISCONNECTED: pb.READER_STATE_DISCONNECTED,
}
if TYPE_CHECKING:
    _Context = grpc.aio.ServicerContext[Any, Any]  # generic in the stubs only
else:
    _Context = grpc.aio.ServicerContext


class ReaderControl(reader_control_pb2_grpc.ReaderControlServicer):
    """Answers from a ``ReaderStatus``; ``send_signal`` (blocking) makes a signal durable and returns its offset."""

    def __init__(self, status: ReaderStatus, send_signal: Callable[[str], int]) -> None:
        self._status = status
        self._send_signal = send_signal

    async def GetStatus(self, request: pb.GetStatusRequest, context: _Context) -> pb.GetStatusResponse:  # noqa: N802
        """The newest facts; positions and counts are those of the last Kafka transaction committed."""
        status = self._status
        answer = pb.GetStatusResponse(
            source=status.partition.source,
            source_partition=status.partition.name,
            state=_STATES[status.state],
            halted_because=status.halted_because,
            quarantined=status.quarantined(),
        )
        if status.interruption is not None:
            answer.last_error = status.interruption.error
            answer.error_since_us = status.interruption.since_us
            answer.next_try_us = status.interruption.next_try_us
        for shard in status.shards():
            answer.shards.add(
                shard=shard.shard,
                position=shard.position,
                epoch=shard.epoch,
                committed_at_us=shard.committed_at_us,
                lag_s=shard.lag_s,
                transactions=shard.transactions,
                rows=shard.rows,
                rows_copied=shard.rows_copied,
                is_copying=shard.is_copying,
                is_ended=shard.is_ended,
            )
        for signal in recent_signals((status.partition.source, status.partition.name)):
            answer.signals.add(
                signal_id=signal.signal_id,
                kind=signal.kind,
                at_us=signal.at_us,
                refused_because=signal.refused_because,
                not_done=signal.not_done,
                tables=signal.tables,
                waiting=len(signal.waiting),
                finished=signal.finished,
                rows_read=signal.rows_read,
                given_up=signal.given_up,
                given_up_count=signal.given_up_count,
                copied_by=sorted({signal_id for _, signal_id in list(signal.waiting)}),
            )
        last = status.last
        if last is not None:
            resume = last.resume if isinstance(last, Published) else last
            answer.position.CopyFrom(position_to_proto(resume.position))
            answer.rows_published = last.rows_published
            answer.committed_at_us = resume.committed_at_us
            if resume.snapshot is not None:
                answer.snapshot.CopyFrom(snapshot_to_proto(resume.snapshot))
            if status.snapshot_remaining_s is not None:
                answer.snapshot_remaining_s = status.snapshot_remaining_s
            answer.incremental.CopyFrom(incremental_to_proto(resume.incremental))
            if status.incremental_remaining_s is not None:
                answer.incremental_remaining_s = status.incremental_remaining_s
        return answer

    async def Pause(self, request: pb.PauseRequest, context: _Context) -> pb.PauseResponse:  # noqa: N802
        """Hand over no further batch; those handed over are still published."""
        before = self._status.state.value
        self._status.pause()
        note_change(before={"state": before}, after={"state": self._status.state.value})
        return pb.PauseResponse()

    async def Resume(self, request: pb.ResumeRequest, context: _Context) -> pb.ResumeResponse:  # noqa: N802
        """Go on."""
        before = self._status.state.value
        self._status.resume()
        note_change(before={"state": before}, after={"state": self._status.state.value})
        return pb.ResumeResponse()

    async def SendSignal(self, request: pb.SendSignalRequest, context: _Context) -> pb.SendSignalResponse:  # noqa: N802
        """Into the signals topic, from where the reader takes it."""
        try:
            return pb.SendSignalResponse(offset=await asyncio.to_thread(self._send_signal, request.signal))
        except InvalidSignal as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except BrokerUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        raise AssertionError("abort raises")
