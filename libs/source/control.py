"""ReaderControl: what a reader answers about itself (``reader_control.proto``)."""

from typing import TYPE_CHECKING, Any

import grpc

from libs.events.checkpoint_codec import position_to_proto, snapshot_to_proto
from libs.source.publisher import Published
from libs.source.status import ReaderState, ReaderStatus
from protos.headwater.reader_control.v1 import reader_control_pb2 as pb
from protos.headwater.reader_control.v1 import reader_control_pb2_grpc

_STATES = {
    ReaderState.STARTING: pb.READER_STATE_STARTING,
    ReaderState.SNAPSHOTTING: pb.READER_STATE_SNAPSHOTTING,
    ReaderState.STREAMING: pb.READER_STATE_STREAMING,
    ReaderState.PAUSED: pb.READER_STATE_PAUSED,
    ReaderState.HALTED: pb.READER_STATE_HALTED,
}
if TYPE_CHECKING:
    _Context = grpc.aio.ServicerContext[Any, Any]  # generic in the stubs only
else:
    _Context = grpc.aio.ServicerContext


class ReaderControl(reader_control_pb2_grpc.ReaderControlServicer):
    """Answers from a ``ReaderStatus``."""

    def __init__(self, status: ReaderStatus) -> None:
        self._status = status

    async def GetStatus(self, request: pb.GetStatusRequest, context: _Context) -> pb.GetStatusResponse:  # noqa: N802
        """The newest facts; positions and counts are those of the last Kafka transaction committed."""
        status = self._status
        answer = pb.GetStatusResponse(
            source=status.partition.source,
            source_partition=status.partition.name,
            state=_STATES[status.state],
            halted_because=status.halted_because,
        )
        last = status.last
        if last is not None:
            resume = last.resume if isinstance(last, Published) else last
            answer.position.CopyFrom(position_to_proto(resume.position))
            answer.rows_published = last.rows_published
            answer.committed_at_us = resume.committed_at_us
            if resume.snapshot is not None:
                answer.snapshot.CopyFrom(snapshot_to_proto(resume.snapshot))
        return answer

    async def Pause(self, request: pb.PauseRequest, context: _Context) -> pb.PauseResponse:  # noqa: N802
        """No batch is handed over any more; what was is still published."""
        self._status.pause()
        return pb.PauseResponse()

    async def Resume(self, request: pb.ResumeRequest, context: _Context) -> pb.ResumeResponse:  # noqa: N802
        """Go on."""
        self._status.resume()
        return pb.ResumeResponse()
