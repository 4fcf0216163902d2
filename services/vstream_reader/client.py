"""Talks to vtgate: a stream's answers as bytes, and statements about keyspaces, shards and tables.

gRPC's errors become ours here, by code and, where Vitess has but one code for several faults, by MySQL's error number.
Protocol: ``protos/vitess/vtgateservice.proto``; credentials: Vitess ``go/vt/grpcclient``, StaticAuthClientCreds.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Final

import grpc

from libs.errors import (
    AccessDenied,
    HeadwaterError,
    PipelineHalted,
    PositionPurged,
    SourceMisconfigured,
    SourceUnavailable,
)
from libs.mysql.identifiers import quote_identifier
from libs.mysql.purged_log import reports_purged_log
from libs.rpc.client import OwnsChannel, channel_to
from libs.rpc.tls import refusal_in, was_closed, why_closed
from libs.source.vitess.settings import VtgateSettings
from protos.vitess import query_pb2, vtgate_pb2, vtgateservice_pb2, vtrpc_pb2
from services.vstream_reader.fields import OTHER_SCHEMA_REMEDY

_SERVICE: Final = vtgateservice_pb2.DESCRIPTOR.services_by_name["Vitess"].full_name
_PLACE: Final = "vtgate"
"""Of our settings."""
_HANDSHAKE_TIMEOUT_S: Final = 3.0
_STATUS_NAME, _STATUS_ROWS = 0, 4
"""Columns of SHOW TABLE STATUS (MySQL manual, 15.7.7.39)."""
_FIRST_BACKOFF_MS: Final = 200
_LAST_BACKOFF_MS: Final = 10_000
_AHEAD_BYTES: Final = 1 << 20
"""Bytes that vtgate may send of a stream ahead of the reader: four of a tablet's packets, 100 MB/s at a round trip of 10 ms."""


_PASSES: Final = frozenset(
    (
        vtrpc_pb2.DEADLINE_EXCEEDED,
        vtrpc_pb2.RESOURCE_EXHAUSTED,
        vtrpc_pb2.FAILED_PRECONDITION,
        vtrpc_pb2.ABORTED,
        vtrpc_pb2.UNAVAILABLE,
        vtrpc_pb2.CLUSTER_EVENT,
    )
)
"""How statements fail while a shard's primary is away, or a reshard or reparent stops them."""


class ShardsNotInStream(PipelineHalted):
    """A reshard joins shards of which a stream reads some alone."""


class Vtgate(OwnsChannel):
    """A channel to vtgate; make it inside the event loop that uses it, ``close`` it at the end."""

    def __init__(self, settings: VtgateSettings, *, has_answered: bool = False) -> None:
        """``has_answered``: this process has had answers before, so a vtgate that hangs up is more likely down than strict.

        Raises:
            InvalidSettings: a TLS file cannot be read, or has the wrong content.
        """
        self._settings = settings
        self.has_answered = has_answered
        self._where = f"{settings.host}:{settings.port}"
        self._metadata = tuple(settings.headers.items())
        if settings.user is not None:
            self._metadata += (("username", settings.user), ("password", settings.password.reveal()))
        self._channel = channel_to(self._where, settings, options=_options(settings), subject="vtgate")
        self._execute = self._channel.unary_unary(
            f"/{_SERVICE}/Execute",
            request_serializer=vtgate_pb2.ExecuteRequest.SerializeToString,
            response_deserializer=vtgate_pb2.ExecuteResponse.FromString,
        )
        # Without a deserializer the answers stay bytes: their rows are read by compiled code.
        self._vstream = self._channel.unary_stream(
            f"/{_SERVICE}/VStream",
            request_serializer=vtgate_pb2.VStreamRequest.SerializeToString,
            response_deserializer=None,
        )

    async def keyspaces(self) -> list[str]:
        """The names of the keyspaces. Raises as ``execute``."""
        return [name for name, *_ in await self.execute("SHOW DATABASES")]

    async def shards(self, keyspace: str) -> list[str]:
        """The shards of a keyspace that serve now, sorted by name. Raises as ``execute``."""
        names = [name.partition("/") for name, *_ in await self.execute("SHOW VITESS_SHARDS")]
        return sorted(shard for owner, _, shard in names if owner == keyspace)

    async def executed(self, keyspace: str) -> dict[str, str]:
        """Where each serving shard's primary stands, as a VGTID says it. A shard that is in it had no journal yet when this was
        asked: a reshard stops a shard's statements first (Vitess, ``traffic_switcher.go``, ``stopSourceWrites``).

        Raises as ``execute``.
        """
        rows = await self.execute(f"SHOW GLOBAL GTID_EXECUTED FROM {quote_identifier(keyspace)}", keyspace=keyspace)
        return {shard: f"MySQL56/{gtid_set.replace(chr(10), '')}" for _, gtid_set, shard in rows}

    async def tables(self, keyspace: str) -> list[str]:
        """The tables of a keyspace. Raises as ``execute``."""
        return [name for name, *_ in await self.execute("SHOW TABLES", keyspace=keyspace)]

    async def row_estimates(self, keyspace: str, shard: str) -> dict[str, int]:
        """How many rows each table of a shard has, by MySQL's statistics: off by half at times. Raises as ``execute``."""
        rows = await self.execute("SHOW TABLE STATUS", keyspace=f"{keyspace}:{shard}")
        return {row[_STATUS_NAME]: int(row[_STATUS_ROWS] or 0) for row in rows}

    async def execute(self, statement: str, *, keyspace: str = "") -> list[tuple[str, ...]]:
        """The rows of a statement as texts; NULL is an empty one.

        Raises:
            SourceUnavailable: no answer; try again.
            AccessDenied, SourceMisconfigured, PipelineHalted: a human is needed.
        """
        request = vtgate_pb2.ExecuteRequest(
            session=vtgate_pb2.Session(autocommit=True, target_string=keyspace),
            query=query_pb2.BoundQuery(sql=statement),
        )
        try:
            answer = await self._execute(request, metadata=self._metadata, timeout=self._settings.timeout_s)
        except grpc.aio.AioRpcError as error:
            raise await self._as_ours(error) from error
        self.has_answered = True
        if answer.error.message:
            kind = SourceUnavailable if answer.error.code in _PASSES else PipelineHalted
            raise kind(f"vtgate at {self._where} refuses {statement!r}: {answer.error.message}")
        return [_texts(row) for row in answer.result.rows]

    async def stream(self, request: vtgate_pb2.VStreamRequest) -> AsyncGenerator[bytes, None]:
        """The answers of a VStream, serialised; ends where vtgate ends it.

        Raises:
            SourceUnavailable: connection lost, or a tablet is; open again.
            PositionPurged: the log from the position asked for is gone.
            AccessDenied, SourceMisconfigured, PipelineHalted: a human is needed.
        """
        call = self._vstream(request, metadata=self._metadata)
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            has_condition = any(_CONDITION.search(rule.filter) for rule in request.filter.rules)
            raise await self._as_ours(error, has_condition=has_condition) from error
        finally:
            call.cancel()

    async def _as_ours(self, error: grpc.aio.AioRpcError, *, has_condition: bool = False) -> HeadwaterError:
        details = error.details() or ""
        if error.code() is grpc.StatusCode.UNAVAILABLE and was_closed(details):
            settings = self._settings
            refusal = await asyncio.to_thread(
                why_closed, settings.host, settings.port, settings, place=_PLACE, timeout_s=_HANDSHAKE_TIMEOUT_S
            )
            if refusal is not None:
                kind = SourceUnavailable if self.has_answered else AccessDenied
                return kind(f"vtgate at {self._where}: {refusal}")
        return error_of(error.code(), details, where=self._where, has_condition=has_condition)


_CANNOT_SEND_LOG: Final = re.compile(r"errno 1236", re.IGNORECASE)
_PURGED: Final = re.compile(r"errno 1789", re.IGNORECASE)
_TOO_LARGE: Final = re.compile(r"larger than max \((\d+) vs\.? \d+\)", re.IGNORECASE)
_UNKNOWN_NAME: Final = re.compile(
    r"node doesn't exist|unknown database|keyspace .* not found|no keyspace matches|no shards? found|not present in the "
    r"database|table .* not found|unknown table|unknown column",
    re.IGNORECASE,
)
_STALE_SCHEMA: Final = re.compile(r"not found in vttablet schema|unknown table .* in schema", re.IGNORECASE)
"""A tablet has not loaded a table yet that is there (Vitess, ``schema/engine.go`` GetTableForPos)."""
_NO_TABLET: Final = re.compile(r"no healthy tablet available|no tablet found|no available tablet", re.IGNORECASE)
_OTHERS_SHARDS: Final = re.compile(r"journaling participants are (?:not )?in the stream", re.IGNORECASE)
_UNFILTERABLE: Final = re.compile(
    r"unsupported constraint|unsupported qualifier for column|unexpected: |syntax error|unsupported filter|"
    r"column \S+ not found in table|unknown column",
    re.IGNORECASE,
)
"""Of a rule's SELECT (Vitess, ``vstreamer/planbuilder.go``). Of one without a condition a tablet says such things while it does
not know a table's columns yet."""
_CONDITION: Final = re.compile(r"\bwhere\b", re.IGNORECASE)
_GTID_MISMATCH: Final = re.compile(r"GTIDSet mismatch|could not decode position", re.IGNORECASE)
_FIELD_MISMATCH: Final = re.compile(r"cannot determine table columns|schema mismatch|columns? mismatch", re.IGNORECASE)


def error_of(code: grpc.StatusCode, details: str, *, where: str, has_condition: bool = False) -> HeadwaterError:
    """Our error for a status of vtgate (grpc.io, "Status codes and their use in gRPC"; Vitess passes on MySQL's numbers).

    ``has_condition``: it was asked for the rows that meet a signal's condition.
    """
    text = f"vtgate at {where}: {details or code.name}"
    if code is grpc.StatusCode.UNAVAILABLE and (refusal := refusal_in(details, place=_PLACE)):
        return AccessDenied(f"vtgate at {where}: {refusal}")
    if _PURGED.search(details) or reports_purged_log(details):
        return PositionPurged(f"{text}; the shard no longer holds the log to resume from: re-snapshot the source")
    if _CANNOT_SEND_LOG.search(details):
        return PipelineHalted(
            f"{text}; the shard's MySQL cannot send its log on from here: where the text says so, raise max_allowed_packet, "
            "else repair the tablet, or read from another (stream.tablet_type, stream.cells)"
        )
    if too_large := _TOO_LARGE.search(details):
        return PipelineHalted(
            f"{text}; one answer has {too_large[1]} bytes: raise vtgate.max_message_bytes above that, or exclude the table"
        )
    if _FIELD_MISMATCH.search(details):
        return PipelineHalted(
            f"{text}; the log was written under another schema than the table has now: {OTHER_SCHEMA_REMEDY}"
        )
    if _OTHERS_SHARDS.search(details):
        return ShardsNotInStream(
            f"{text}; a reshard joins shards that this reader does not read: leave 'shards' empty to read all of them, or "
            "name them too"
        )
    if _GTID_MISMATCH.search(details):
        return PipelineHalted(
            f"{text}; the checkpoint is of another cluster, or ahead of it: copy again by headwater reset"
        )
    if has_condition and _UNFILTERABLE.search(details):
        return SourceMisconfigured(
            f"{text}; vtgate copies by comparisons of a column with a constant, joined by AND: put the condition so "
            "(id > 100 AND status = 'open'), or ask for all rows"
        )
    if _NO_TABLET.search(details):
        return SourceUnavailable(
            f"{text}; a tablet of the type stream.tablet_type must serve each shard, in one of stream.cells where they are "
            "given: SHOW VITESS_TABLETS lists them"
        )
    if _STALE_SCHEMA.search(details):
        return SourceUnavailable(
            f"{text}; this passes when the tablet has reloaded its schema (vtctldclient ReloadSchema)"
        )
    if _UNKNOWN_NAME.search(details) or code is grpc.StatusCode.NOT_FOUND:
        return SourceMisconfigured(f"{text}; correct keyspace, shards or include_tables")
    match code:
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return AccessDenied(f"{text}; check vtgate.user, vtgate.password and the client certificate")
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.UNIMPLEMENTED | grpc.StatusCode.OUT_OF_RANGE:
            return PipelineHalted(f"{text}; vtgate does not understand what is asked of it: is it of another release?")
        case _:
            return SourceUnavailable(text)


def _texts(row: query_pb2.Row) -> tuple[str, ...]:
    texts, place = [], 0
    for length in row.lengths:
        texts.append(row.values[place : place + max(length, 0)].decode())
        place += max(length, 0)
    return tuple(texts)


def _options(settings: VtgateSettings) -> Sequence[tuple[str, int]]:
    keepalive_ms = int(settings.keepalive_s * 1000)
    return (
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms),
        # gRPC 1.85 waits a minute for a ping's answer otherwise, with any keepalive_timeout_ms.
        ("grpc.http2.ping_timeout_ms", keepalive_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.initial_reconnect_backoff_ms", _FIRST_BACKOFF_MS),
        ("grpc.max_reconnect_backoff_ms", _LAST_BACKOFF_MS),
        # Left to itself gRPC measures the way and takes in what it could carry: tens of MB that wait for the decoder.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _AHEAD_BYTES),
    )
