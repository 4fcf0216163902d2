"""A plain client of VTGate, for tests of the stand-in: asks for a stream and gathers its events."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import grpc

from libs.stand_ins.vtgate.rules import row_values
from protos.vitess.binlogdata_pb2 import Filter, Rule, ShardGtid, VEvent, VEventType, VGtid
from protos.vitess.query_pb2 import BoundQuery, QueryResult
from protos.vitess.topodata_pb2 import TabletType
from protos.vitess.vtgate_pb2 import ExecuteRequest, ExecuteResponse, Session, VStreamFlags, VStreamRequest
from protos.vitess.vtgateservice_pb2_grpc import VitessStub

TIMEOUT_S = 30.0


class Server(Protocol):
    """The server: the stand-in or a replay."""

    @property
    def address(self) -> str:
        """Host and port."""
        ...


@dataclass(frozen=True, slots=True)
class At:
    """A server in another process."""

    address: str


class StreamReader:
    """A VStream call whose responses are gathered by a thread; use it as a context manager."""

    def __init__(
        self,
        server: Server,
        start: Iterable[ShardGtid],
        *,
        tables: Iterable[str | Rule] = (),
        flags: VStreamFlags | None = None,
        tablet_type: "TabletType" = TabletType.PRIMARY,
        metadata: tuple[tuple[str, str], ...] = (),
        channel: grpc.Channel | None = None,
        filter_mode: "Filter.FieldEventMode" = Filter.ERR_ON_MISMATCH,
    ) -> None:
        self._channel = channel or grpc.insecure_channel(
            server.address, options=[("grpc.max_receive_message_length", 64 << 20)]
        )
        rules = [table if isinstance(table, Rule) else Rule(match=table) for table in tables]
        request = VStreamRequest(
            vgtid=VGtid(shard_gtids=list(start)),
            filter=Filter(rules=rules, field_event_mode=filter_mode),
            flags=flags,
            tablet_type=tablet_type,
        )
        self.responses: list[list[VEvent]] = []
        self.error: grpc.RpcError | None = None
        self._changed = threading.Condition()
        self._is_over = False
        self._call = VitessStub(self._channel).VStream(request, metadata=metadata)  # type: ignore[no-untyped-call]
        self._thread = threading.Thread(target=self._gather, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call.cancel()
        self._thread.join()
        self._channel.close()

    def _gather(self) -> None:
        try:
            for response in self._call:
                with self._changed:
                    self.responses.append(list(response.events))
                    self._changed.notify_all()
        except grpc.RpcError as error:
            self.error = error
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    @property
    def events(self) -> list[VEvent]:
        """All so far."""
        with self._changed:
            return [event for response in self.responses for event in response]

    def until(self, is_enough: Callable[[list[VEvent]], bool]) -> list[VEvent]:
        """All events so far, once they are enough. Raises TimeoutError with the events that came instead; or the stream's
        error."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._is_over or is_enough(self._flat()), TIMEOUT_S)
            if is_enough(self._flat()):
                return self._flat()
        if self.error is not None:
            raise self.error
        raise TimeoutError(f"{'the stream ended' if done else 'nothing more came'} after {kinds(self.events)}")

    def until_over(self) -> list[VEvent]:
        """All events, once the server has ended the stream; ``error`` says how."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_over, TIMEOUT_S):
                raise TimeoutError(f"the stream goes on after {kinds(self._flat())}")
        return self.events

    def _flat(self) -> list[VEvent]:
        return [event for response in self.responses for event in response]


def execute(server: Server, sql: str, target: str = "", metadata: tuple[tuple[str, str], ...] = ()) -> QueryResult:
    """The result of a statement through vtgate; an error answer fails."""
    with grpc.insecure_channel(server.address) as channel:
        answer: ExecuteResponse = VitessStub(channel).Execute(  # type: ignore[no-untyped-call]
            ExecuteRequest(session=Session(target_string=target, autocommit=True), query=BoundQuery(sql=sql)),
            metadata=metadata,
            timeout=TIMEOUT_S,
        )
    assert not answer.HasField("error"), answer.error.message
    return answer.result


def kinds(events: Iterable[VEvent]) -> list[str]:
    """The events' types by name."""
    return [VEventType.Name(event.type) for event in events]


def count(kind: "VEventType", at_least: int) -> Callable[[list[VEvent]], bool]:
    """For ``StreamReader.until``: so many events of a type have come."""
    return lambda events: sum(event.type == kind for event in events) >= at_least


@dataclass(frozen=True, slots=True)
class SeenChange:
    """One row change as a client sees it."""

    shard: str
    before: tuple[bytes | None, ...] | None
    after: tuple[bytes | None, ...] | None


def changes(events: Iterable[VEvent], table: str) -> list[SeenChange]:
    """The changes of one table (its bare name), in order."""
    return [
        SeenChange(
            event.shard,
            tuple(row_values(change.before)) if change.HasField("before") else None,
            tuple(row_values(change.after)) if change.HasField("after") else None,
        )
        for event in events
        if event.type == VEventType.ROW and event.row_event.table_name.rpartition(".")[2] == table
        for change in event.row_event.row_changes
    ]


def last_vgtid(events: Iterable[VEvent]) -> VGtid:
    """Where the stream stands."""
    return [event.vgtid for event in events if event.type == VEventType.VGTID][-1]
