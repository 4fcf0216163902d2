"""The schema registry of tenants' Avro and Protobuf events: Confluent's, Apicurio's, or another with that interface.

Each schema is registered once a process and subject: the registry gives the id that it has already for the same text, so a
restart, or a second router, adds nothing. Confluent's client does the talking; its errors become ours here.

A Protobuf schema gets its fields' numbers from all versions that its subject has, so that they are the registry's to remember.

Its ids are noted in a file. A router that starts while the registry is away goes on with those, and only a schema that was
never registered has to wait.
"""

import hashlib
import itertools
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from httpx2 import HTTPError, ReadError, Response, SyncByteStream

from libs.config.connections import SchemaRegistrySettings
from libs.errors import InvalidSettings, ServiceUnavailable
from libs.formats.protobuf_schema import ProtobufSchema, find_version, numbered, read_protobuf_schema
from libs.types.tenant import EventFormat
from services.router.routes.encode import RegisteredSchema, SchemaNotKnown, SchemaRefused, SchemaText

log = structlog.get_logger()

_INCOMPATIBLE: Final = 409
_UNKNOWN_USER: Final = 401
_NO_RIGHT: Final = 403
_PASSING: Final = (408, 429)
_NO_ADDRESS: Final = 404
_NO_SUBJECT: Final = 40401  # of a registry's own codes, after 404
_SERVERS_FAULT: Final = 500
_REFUSAL_HOLDS_S: Final = 60.0
_MOST_ANSWER_BYTES: Final = 8 << 20
"""A schema of 4,000 columns has 1 MB."""
_MOST_VERSIONS: Final = 10_000
_MOST_VERSIONS_BYTES: Final = 64 << 20
_MOST_READING_S: Final = 60.0
"""Of one subject's versions: no other subject is asked meanwhile. The client keeps those that it has, for the next time."""
_MOST_TRIES: Final = 20
"""Of numbering a schema beside other routers that add versions."""
_LARGEST_ID: Final = 2**31 - 1
"""The wire form has four bytes, and registries count in signed ones."""


class SchemaRegistry:
    """A registry; may be asked from several threads."""

    def __init__(self, settings: SchemaRegistrySettings, notes_file: Path) -> None:
        """``notes_file``: made where there is none; ids of another address do not count.

        Raises:
            InvalidSettings: a certificate cannot be read. Nothing is asked yet.
        """
        self._url = settings.url
        self._notes = _Notes(notes_file, settings.url)
        self._lock = threading.Lock()
        """One at a time: of two lanes that meet a table's new version, the second finds its id."""
        self._known: dict[tuple[str, SchemaText], RegisteredSchema] = {}
        self._refusals: dict[tuple[str, SchemaText], _Refusal] = {}
        try:
            self._client = SchemaRegistryClient(_client_config(settings))
        except (OSError, ValueError) as error:
            raise InvalidSettings("schema_registry", [str(error)]) from error
        session = self._client._rest_client.session  # type: ignore[attr-defined]  # not in the stubs
        session.headers["Accept-Encoding"] = "identity"
        session.event_hooks = {"response": [lambda response: _bound(response, settings.timeout_s)]}

    def register(self, subject: str, schema: SchemaText) -> RegisteredSchema:
        """A schema under a subject, registered if it is not there. Blocks for ``timeout_s`` at most, for each answer.

        Raises:
            SchemaRefused: it is not compatible with the subject's older ones, or the registry denies or does not take it.
            ServiceUnavailable: the registry does not answer, or is at fault; try again.
        """
        with self._lock:
            known = self._known.get((subject, schema))
            if known is None:
                try:
                    known = self._known[subject, schema] = self._register(subject, schema)
                except SchemaRefused as error:
                    self._refusals[subject, schema] = _Refusal(str(error), time.monotonic())
                    raise
                self._refusals.pop((subject, schema), None)
        return known

    def known(self, subject: str, schema: SchemaText) -> RegisteredSchema:
        """An earlier result of ``register``, without a request and without a wait.

        Raises:
            SchemaRefused: the registry refused it less than a minute ago.
            SchemaNotKnown: it was not asked yet, or not lately.
        """
        known = self._known.get((subject, schema))
        if known is not None:
            return known
        refusal = self._refusals.get((subject, schema))
        if refusal is not None and time.monotonic() < refusal.at_s + _REFUSAL_HOLDS_S:
            raise SchemaRefused(refusal.reason)
        raise SchemaNotKnown(f"subject {subject}: its schema is not registered yet")

    def forget_refusals(self) -> None:
        """Request refused schemas again: a document has changed, or a person asks for it."""
        self._refusals = {}

    def _register(self, subject: str, schema: SchemaText) -> RegisteredSchema:
        try:
            registered = self._ask(subject, schema)
        except SchemaRegistryError as error:
            noted = self._noted(subject, schema, error) if error.http_status_code == _UNKNOWN_USER else None
            if noted is None:
                raise self._as_ours(subject, error) from error
            return noted
        except (HTTPError, OSError) as error:
            noted = self._noted(subject, schema, error)
            if noted is not None:
                return noted
            raise ServiceUnavailable(
                f"the schema registry at {self._url} does not answer: {error}; bring it back, or mend schema_registry.url in "
                "the router's settings"
            ) from error
        except (SchemaRefused, ServiceUnavailable):
            raise
        except Exception as error:  # the client's, over an answer of another form
            raise ServiceUnavailable(
                f"the server at {self._url} is no schema registry ({type(error).__name__}); mend schema_registry.url in the "
                "router's settings, or find out who answers there"
            ) from error
        if type(registered.schema_id) is not int or not 0 <= registered.schema_id <= _LARGEST_ID:
            raise ServiceUnavailable(
                f"the schema registry at {self._url} gave {str(registered.schema_id)[:40]!r} as a schema's id, which is none; "
                "find out who answers there"
            )
        self._notes.add(subject, schema, registered)
        log.info("schema_registered", subject=subject, schema_id=registered.schema_id)
        return registered

    def _noted(self, subject: str, schema: SchemaText, error: Exception) -> RegisteredSchema | None:
        noted = self._notes.find(subject, schema)
        if noted is not None:
            log.warning("schema_id_from_notes", subject=subject, schema_id=noted.schema_id, reason=str(error))
        return noted

    def _ask(self, subject: str, schema: SchemaText) -> RegisteredSchema:
        if schema.kind is EventFormat.PROTOBUF:
            return self._register_numbered(subject, read_protobuf_schema(schema.text))
        return RegisteredSchema(self._client.register_schema(subject, Schema(schema.text, "AVRO")), schema.text)

    def _register_numbered(self, subject: str, schema: ProtobufSchema) -> RegisteredSchema:
        """With the numbers that the subject's versions give its fields. Of two routers that add versions at once, the one whose
        version came later sees the other's, and numbers its own again."""
        versions = self._versions(subject)
        same = find_version(schema, [each.schema for each in versions])
        if same is not None:
            return RegisteredSchema(versions[same].schema_id, versions[same].text)
        own_ids: set[int] = set()
        for _ in range(_MOST_TRIES):
            try:
                text = str(numbered(schema, [each.schema for each in versions]))
            except ValueError as error:
                raise SchemaRefused(f"subject {subject}: {error}; delete the subject, and it begins again") from error
            own_ids.add(schema_id := self._client.register_schema(subject, Schema(text, "PROTOBUF")))
            up_to_own = itertools.takewhile(lambda each: each.schema_id != schema_id, self._versions(subject))
            before = [each for each in up_to_own if each.schema_id not in own_ids]
            if len(before) <= len(versions):
                return RegisteredSchema(schema_id, text)
            versions = before
        raise ServiceUnavailable(f"subject {subject}: it gets a new version with each look; it is tried again")

    def _versions(self, subject: str) -> list["_Version"]:
        """Oldest first."""
        try:
            numbers = self._client.get_versions(subject)
        except SchemaRegistryError as error:
            if error.error_code == _NO_SUBJECT:
                return []
            raise
        if len(numbers) > _MOST_VERSIONS:
            raise SchemaRefused(f"subject {subject}: it has more than {_MOST_VERSIONS} versions; delete the subject")
        until_s, size, versions = time.monotonic() + _MOST_READING_S, 0, []
        for number in sorted(numbers):
            versions.append(self._version(subject, number))
            size += len(versions[-1].text)
            if size > _MOST_VERSIONS_BYTES or time.monotonic() > until_s:
                raise SchemaRefused(
                    f"subject {subject}: its {len(numbers)} versions are larger, or slower to read, than any table's; delete "
                    "the subject, or name the topic otherwise"
                )
        return versions

    def _version(self, subject: str, number: int) -> "_Version":
        found = self._client.get_version(subject, number)
        text = found.schema.schema_str or ""
        try:
            return _Version(found.schema_id, text, read_protobuf_schema(text))
        except ValueError as error:
            raise SchemaRefused(
                f"subject {subject}: its version {number} is no Protobuf schema to go on from ({error}); delete that version "
                "or the subject, or name the topic otherwise"
            ) from error

    def _as_ours(self, subject: str, error: SchemaRegistryError) -> SchemaRefused | ServiceUnavailable:
        status = error.http_status_code
        if status >= _SERVERS_FAULT or status in _PASSING:
            return ServiceUnavailable(f"the schema registry at {self._url} answers {status}: {error.error_message}")
        if status == _NO_ADDRESS:
            return ServiceUnavailable(
                f"the schema registry at {self._url} knows no such page (404): mend schema_registry.url; Apicurio's ends with "
                "/apis/ccompat/v7"
            )
        if (
            status == _UNKNOWN_USER
        ):  # everybody's: no tenant's rows are set aside for a password that is being exchanged
            return ServiceUnavailable(
                f"the schema registry at {self._url} does not know the router's user or password (401); mend "
                "schema_registry.username and password, and start the router again"
            )
        if status == _NO_RIGHT:
            return SchemaRefused(
                f"subject {subject}: the schema registry denies the router (403); give schema_registry.username the right to "
                "register there"
            )
        if status == _INCOMPATIBLE:
            return SchemaRefused(
                f"subject {subject}: the registry refuses the table's new schema as incompatible with the older ones "
                f"({error.error_message}); relax the subject's compatibility (NONE), or exclude the column in the tenant's "
                "document; the router asks again every minute, and a snapshot of the table then brings the rows set aside"
            )
        return SchemaRefused(f"subject {subject}: the registry refuses the schema ({status}): {error.error_message}")


def _bound(response: Response, timeout_s: float) -> None:
    """Have an answer end, in size and time. A compressed one was not asked for, and could be of any size."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ReadError("it sends a compressed answer, which nobody asked for")
    assert isinstance(response.stream, SyncByteStream)
    response.stream = _Bounded(response.stream, time.monotonic() + timeout_s)


class _Bounded(SyncByteStream):
    """The bytes of an answer, up to a size and a moment."""

    def __init__(self, stream: SyncByteStream, until_s: float) -> None:
        self._stream = stream
        self._until_s = until_s

    def __iter__(self) -> Iterator[bytes]:
        left = _MOST_ANSWER_BYTES
        for chunk in self._stream:
            left -= len(chunk)
            if left < 0 or time.monotonic() > self._until_s:
                raise ReadError("its answer is larger than any, or does not end")
            yield chunk

    def close(self) -> None:
        self._stream.close()


class _Version(NamedTuple):
    """A version of a subject."""

    schema_id: int
    text: str
    schema: ProtobufSchema


class _Refusal(NamedTuple):
    """The registry's refusals."""

    reason: str
    at_s: float
    """``time.monotonic()``"""


class _Notes:
    """The ids of one registry, in a file: a line of JSON for each."""

    def __init__(self, file: Path, url: str) -> None:
        self._file = file
        self._url = url
        self._known: dict[tuple[str, str], RegisteredSchema] = {}
        """By subject and digest of the schema."""
        if file.exists():
            for line in file.read_text(encoding="utf-8").splitlines():
                self._read(line)

    def _read(self, line: str) -> None:
        try:
            url, subject, digest, schema_id, *text = json.loads(line)
        except ValueError:  # the last one, of a process that was killed
            return
        if url == self._url:
            self._known[subject, digest] = RegisteredSchema(schema_id, *text or [""])

    def find(self, subject: str, schema: SchemaText) -> RegisteredSchema | None:
        """None: it was never registered from here."""
        known = self._known.get((subject, _digest(schema)))
        return known if known is None or known.text else RegisteredSchema(known.schema_id, schema.text)

    def add(self, subject: str, schema: SchemaText, registered: RegisteredSchema) -> None:
        """The newest counts: a registry that was set up again gives others. A text that is as it was asked for is left out."""
        place = (subject, _digest(schema))
        text = [registered.text] if registered.text != schema.text else []
        noted = RegisteredSchema(registered.schema_id, *text or [""])
        if self._known.get(place) != noted:
            self._known[place] = noted
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps([self._url, *place, registered.schema_id, *text]) + "\n")


def _digest(schema: SchemaText) -> str:
    return hashlib.sha256(schema.text.encode()).hexdigest()


def _client_config(settings: SchemaRegistrySettings) -> dict[str, object]:
    """In the words of Confluent's clients. Retries are the lane's, with pauses between."""
    config: dict[str, object] = {"url": settings.url, "timeout": settings.timeout_s, "max.retries": 0}
    if settings.username is not None:
        config["basic.auth.user.info"] = f"{settings.username}:{settings.password.reveal()}"
    files = {
        "ssl.ca.location": settings.tls_ca_file,
        "ssl.certificate.location": settings.tls_certificate_file,
        "ssl.key.location": settings.tls_key_file,
    }
    return config | {name: file for name, file in files.items() if file is not None}
