"""Statements through vtgate, for the commands: a keyspace's tables, its shards' places, their rows.

``check``, ``status``, ``validate`` and the embedded stack's probes call this. It shares nothing with the reader's client
(``services/vstream_reader/client.py``), which reads streams: ``check`` must not trust the code that it checks. Protocol:
``protos/vitess/vtgateservice.proto``. Statements of Vitess's own: Vitess documentation, "MySQL Query Language Extensions".
"""

from types import TracebackType
from typing import Final, Self

import grpc

from libs.errors import AccessDenied, SourceMisconfigured, SourceUnavailable
from libs.mysql.gtid import GtidSet
from libs.mysql.identifiers import quote_identifier
from libs.rpc.tls import client_credentials, refusal_in, was_closed, why_closed
from libs.source.vitess.settings import VtgateSettings
from protos.vitess import query_pb2, vtgate_pb2
from protos.vitess.vtgateservice_pb2_grpc import VitessStub
from protos.vitess.vtrpc_pb2 import Code

TIMEOUT_S: Final = 60.0
HANDSHAKE_TIMEOUT_S: Final = 3.0
MAX_ANSWER_BYTES: Final = 256 << 20
_DENIED: Final = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
_PASSING: Final = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.ABORTED, Code.RESOURCE_EXHAUSTED})

TextRow = tuple[bytes | None, ...]
"""Values as MySQL printed them; None: NULL."""


class Vtgate:
    """A connection to vtgate; use it as a context manager."""

    def __init__(self, settings: VtgateSettings) -> None:
        """Raises InvalidSettings: a TLS file cannot be read, or has the wrong content."""
        self._settings = settings
        self.where = f"vtgate at {settings.host}:{settings.port}"
        self._metadata = tuple(settings.headers.items())
        if settings.user is not None:
            self._metadata += (("username", settings.user), ("password", settings.password.reveal()))
        self._channel = _open_channel(settings)
        self._stub = VitessStub(self._channel)  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def execute(self, statement: str, *, target: str = "") -> list[TextRow]:
        """The rows of a statement. ``target``: ``keyspace``, or ``keyspace:shard`` for one shard alone.

        Raises:
            SourceUnavailable: no answer, or a tablet is away; try again.
            AccessDenied, SourceMisconfigured: vtgate refuses; the message has its words.
        """
        request = vtgate_pb2.ExecuteRequest(
            session=vtgate_pb2.Session(autocommit=True, target_string=target),
            query=query_pb2.BoundQuery(sql=statement),
        )
        try:
            answer = self._stub.Execute(request, metadata=self._metadata, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            text = f"{self.where}: {error.details() or error.code().name}"
            if error.code() in _DENIED:
                raise AccessDenied(f"{text}; check vtgate.user, vtgate.password and the client certificate") from error
            if refusal := self._refusal(error.details() or ""):
                raise AccessDenied(f"{self.where}: {refusal}") from error
            raise SourceUnavailable(text) from error
        if answer.error.message:
            text = f"{self.where} refuses {statement[:200]!r}: {answer.error.message}"
            raise (SourceUnavailable if answer.error.code in _PASSING else SourceMisconfigured)(text)
        return [_values(row) for row in answer.result.rows]

    def _refusal(self, details: str) -> str | None:
        """The part of TLS that keeps the two apart; None: nothing does."""
        settings = self._settings
        if was_closed(details):
            return why_closed(settings.host, settings.port, settings, place="vtgate", timeout_s=HANDSHAKE_TIMEOUT_S)
        return refusal_in(details, place="vtgate")

    def keyspaces(self) -> list[str]:
        """Their names. Raises as ``execute``."""
        return [_text(name) for name, *_ in self.execute("SHOW DATABASES")]

    def shards(self, keyspace: str) -> list[str]:
        """The shards of a keyspace that serve now, sorted by name. Raises as ``execute``."""
        names = [_text(name).partition("/") for name, *_ in self.execute("SHOW VITESS_SHARDS")]
        return sorted(shard for owner, _, shard in names if owner == keyspace)

    def tables(self, keyspace: str) -> list[str]:
        """The tables of a keyspace. Raises as ``execute``."""
        return [_text(name) for name, *_ in self.execute("SHOW TABLES", target=keyspace)]

    def executed(self, keyspace: str) -> dict[str, GtidSet]:
        """Every transaction that each shard's primary has committed until now. Raises as ``execute``."""
        rows = self.execute(f"SHOW GLOBAL GTID_EXECUTED FROM {quote_identifier(keyspace)}", target=keyspace)
        return {_text(shard): GtidSet.parse(_text(gtid_set).replace("\n", "")) for _, gtid_set, shard in rows}


def _text(value: bytes | None) -> str:
    return (value or b"").decode()


def _values(row: query_pb2.Row) -> TextRow:
    values: list[bytes | None] = []
    place = 0
    for length in row.lengths:
        values.append(row.values[place : place + length] if length >= 0 else None)
        place += max(length, 0)
    return tuple(values)


def _open_channel(settings: VtgateSettings) -> grpc.Channel:
    target = f"{settings.host}:{settings.port}"
    options = [("grpc.max_receive_message_length", MAX_ANSWER_BYTES)]
    credentials = client_credentials(settings, subject="vtgate")
    if credentials is None:
        return grpc.insecure_channel(target, options=options)
    return grpc.secure_channel(target, credentials, options=options)
