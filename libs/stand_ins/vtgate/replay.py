"""Serves a recorded stream to each client, as fast as it is taken: for the bench, and for recorded input.

A record has the form of ``tests/golden/debezium-vitess`` holds: for each response its length in four big-endian bytes, then
the ``vtgate.VStreamResponse``. The bytes go out as they are; nothing is parsed. After the last response the stream stays
open and silent, or the server's ``HEARTBEAT`` comes, as from a shard that nobody writes to.
"""

import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Final

import grpc

from libs.servers.ports import LOOPBACK
from libs.stand_ins.vtgate.execute import answer_about
from protos.vitess.binlogdata_pb2 import FieldEvent, VEvent, VEventType
from protos.vitess.vtgate_pb2 import ExecuteRequest, ExecuteResponse, VStreamRequest, VStreamResponse

_POLL_S: Final = 0.2
_STOP_GRACE_S: Final = 1.0
_LENGTH: Final = struct.Struct(">I")


def write_record(path: Path, responses: Iterable[VStreamResponse]) -> None:
    """Write a record that ``ReplayServer`` serves."""
    with path.open("wb") as file:
        for response in responses:
            encoded = response.SerializeToString()
            file.write(_LENGTH.pack(len(encoded)) + encoded)


def read_record(path: Path) -> list[bytes]:
    """Each response's bytes. Raises ValueError: the record is cut off."""
    data = path.read_bytes()
    responses: list[bytes] = []
    place = 0
    while place < len(data):
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size
        if place + length > len(data):
            raise ValueError(f"{path} is cut off at byte {place}")
        responses.append(data[place : place + length])
        place += length
    return responses


class ReplayServer:
    """One record, from its beginning for each VStream call."""

    def __init__(self, path: Path, *, port: int = 0, hold: Path | None = None) -> None:
        """``hold``: nothing but heartbeats is sent before this file is there."""
        self._responses = read_record(path)
        self._executed, self._tables = _seen(self._responses)
        self._wanted_port = port
        self._hold = hold
        self._stop = threading.Event()
        self._server: grpc.Server | None = None
        self.port = 0

    def start(self) -> "ReplayServer":
        """Listen on loopback; ``port`` says where."""
        server = grpc.server(
            futures.ThreadPoolExecutor(max_workers=8, thread_name_prefix="replay"),
            options=[("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)],
        )
        handlers = {
            "VStream": grpc.unary_stream_rpc_method_handler(
                self._vstream,
                request_deserializer=VStreamRequest.FromString,
                response_serializer=None,  # bytes already
            ),
            "Execute": grpc.unary_unary_rpc_method_handler(
                self._execute,
                request_deserializer=ExecuteRequest.FromString,
                response_serializer=ExecuteResponse.SerializeToString,
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("vtgateservice.Vitess", handlers),))
        self.port = server.add_insecure_port(f"{LOOPBACK}:{self._wanted_port}")
        server.start()
        self._server = server
        return self

    def stop(self) -> None:
        """Break the streams off."""
        assert self._server is not None
        self._stop.set()
        self._server.stop(_STOP_GRACE_S).wait()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{LOOPBACK}:{self.port}"

    def _vstream(self, request: VStreamRequest, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from self._heartbeats(request, context, lambda: self._hold is None or self._hold.exists())
        yield from self._responses
        yield from self._heartbeats(request, context, lambda: False)

    def _heartbeats(
        self, request: VStreamRequest, context: grpc.ServicerContext, is_over: Callable[[], bool]
    ) -> Iterator[bytes]:
        silent_since_s = time.monotonic()
        while not is_over() and context.is_active() and not self._stop.wait(_POLL_S):
            interval_s = request.flags.heartbeat_interval
            if interval_s and time.monotonic() - silent_since_s >= interval_s:
                silent_since_s = time.monotonic()
                beat = VEvent(type=VEventType.HEARTBEAT, current_time=time.time_ns())
                yield VStreamResponse(events=[beat]).SerializeToString()

    def _execute(self, request: ExecuteRequest, context: grpc.ServicerContext) -> ExecuteResponse:
        shards = {keyspace: sorted(executed) for keyspace, executed in self._executed.items()}
        target = request.session.target_string
        result = answer_about(request.query.sql, target, shards, self._tables, self._executed)
        if result is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"a replay does not execute: {request.query.sql}")
        return ExecuteResponse(session=request.session, result=result)


def _seen(responses: Iterable[bytes]) -> tuple[dict[str, dict[str, str]], dict[str, list[str]]]:
    """By keyspace the shards, each with its last position, and the tables, as the record's positions and fields name them."""
    shards: dict[str, dict[str, str]] = {}
    tables: dict[str, dict[str, None]] = {}
    for encoded in responses:
        for event in VStreamResponse.FromString(encoded).events:
            for position in event.vgtid.shard_gtids:
                shards.setdefault(position.keyspace, {})[position.shard] = position.gtid
            if event.type == VEventType.FIELD:
                _note_table(event.field_event, tables)
    return shards, {name: sorted(found) for name, found in tables.items()}


def _note_table(described: FieldEvent, tables: dict[str, dict[str, None]]) -> None:
    tables.setdefault(described.keyspace, {})[described.table_name.rpartition(".")[2]] = None
