"""The form of a topic's events: JSON as it comes, JSON with its schemas around it, or Avro or Protobuf with the ids of
registered schemas.

``match`` makes an ``Encoding`` once for the tenants that share bytes; ``deliver`` asks it about each event that is not
JSON, and about single rows.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from libs.errors import InvalidEvent
from libs.formats.avro_schema import avro_schema_text
from libs.formats.binary_writers import AvroWriter, ProtobufWriter
from libs.formats.connect_schema import ConnectSchema, payload_prefix
from libs.formats.protobuf_schema import protobuf_schema, read_protobuf_schema
from libs.types.tenant import EventFormat, FormatSettings, HeaderForm


class EventSchemas(NamedTuple):
    """The Connect schemas of a topic's events."""

    key: ConnectSchema | None
    """None: the events have no key."""
    value: ConnectSchema


class SchemaText(NamedTuple):
    """A schema as it is to be registered."""

    kind: EventFormat
    text: str
    """Of Protobuf: numbered as if it had no earlier version."""


class RegisteredSchema(NamedTuple):
    """A schema as the registry has it."""

    schema_id: int
    text: str
    """Of Protobuf: with the numbers that its subject's versions gave it."""


class SchemaIds(Protocol):
    """A schema registry, as far as events need one; see ``services.router.routes.schema_registry``."""

    def register(self, subject: str, schema: SchemaText) -> RegisteredSchema:
        """A subject's schema, registered if need be. Blocks.

        Raises:
            SchemaRefused: the registry will not have it, or there is no registry.
            ServiceUnavailable: it does not answer; try again.
        """

    def known(self, subject: str, schema: SchemaText) -> RegisteredSchema:
        """The same from this process's memory, without a request.

        Raises:
            SchemaRefused: the registry refused it a moment ago, or there is no registry.
            SchemaNotKnown: ask by ``register``, where nobody else waits.
        """

    def forget_refusals(self) -> None:
        """Let refused schemas be requested again."""


class SchemaNotKnown(Exception):
    """This process did not have a schema registered yet."""


class KnownSchemas:
    """A registry without requests: work for all tenants must not wait for a server of some."""

    def __init__(self, registry: SchemaIds) -> None:
        self._registry = registry

    def register(self, subject: str, schema: SchemaText) -> RegisteredSchema:
        """Raises as ``SchemaIds.known``."""
        return self._registry.known(subject, schema)

    known = register

    def forget_refusals(self) -> None:
        """See ``SchemaIds``."""
        self._registry.forget_refusals()


class SchemaRefused(InvalidEvent):
    """The registry will not have a schema: the table's events are set aside for this tenant. The message has the remedy."""


class NoSchemaRegistry:
    """In the place of a registry, where the settings name none."""

    def register(self, subject: str, schema: SchemaText) -> RegisteredSchema:
        """Raises SchemaRefused."""
        raise SchemaRefused(
            f"subject {subject}: format {schema.kind.value} needs a schema registry, and the router knows none; set "
            "schema_registry.url in its settings"
        )

    known = register

    def forget_refusals(self) -> None:
        """None is remembered."""


class WireIds(NamedTuple):
    """The registered schemas whose ids stand in front of a topic's keys and values."""

    key: RegisteredSchema | None
    value: RegisteredSchema


_MAGIC: Final = 0
"""Of Confluent's wire form: this byte, the id in four, of Protobuf which message of the schema it is, the record (Schema
Registry documentation, "Wire format")."""
_FIRST_MESSAGE: Final = b"\0"
"""The list of indexes [0], which is one byte instead of two."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """The form of a group's events."""

    tombstones: bool
    key_prefix: bytes = b""
    """With schemas: the bytes before the payload, see ``payload_prefix``; empty without schemas, or without a key."""
    value_prefix: bytes = b""
    key_writer: AvroWriter | ProtobufWriter | None = None
    """Of a binary form, and of events that have a key."""
    value_writer: AvroWriter | ProtobufWriter | None = None
    """Of a binary form."""
    has_json_headers: bool = False
    """Headers are JSON with their Connect schemas; else text."""

    @property
    def around_payloads(self) -> int:
        """How many bytes the schemas add to the JSON payloads of a key and a value."""
        return sum(len(prefix) + 1 for prefix in (self.key_prefix, self.value_prefix) if prefix)

    @property
    def leaves_values(self) -> bool:
        """A value is its payload."""
        return self.value_writer is None and not self.value_prefix

    @property
    def is_json(self) -> bool:
        """Events pass as the reader wrote them, perhaps with something around them."""
        return self.value_writer is None

    def key(self, payload: bytes) -> bytes | None:
        """A key; None for an empty payload. Raises InvalidEvent where the form cannot hold it."""
        if not payload:
            return None
        if self.key_writer is not None:
            return self.key_writer.write(payload)
        return self.key_prefix + payload + b"}" if self.key_prefix else payload

    def value(self, payload: bytes) -> bytes:
        """A value. Raises InvalidEvent where the form cannot hold it."""
        if self.value_writer is not None:
            return self.value_writer.write(payload)
        return self.value_prefix + payload + b"}" if self.value_prefix else payload

    def key_in_header(self, payload: bytes) -> bytes:
        """A key as other events' headers name it: its JSON."""
        key = self.key(payload) if self.has_json_headers else payload
        return key or b"null"


def needs_schemas(event_format: FormatSettings) -> bool:
    """Whether ``encoding`` has to know the schemas of such events."""
    return event_format.schemas or event_format.kind is not EventFormat.JSON


def wire_ids(
    event_format: FormatSettings, topic: str, schemas: EventSchemas | None, registry: SchemaIds
) -> WireIds | None:
    """The ids of a topic's schemas, under its subjects ``<topic>-key`` and ``<topic>-value``; None for a form without ids.

    Raises:
        SchemaRefused, ServiceUnavailable: see ``SchemaIds.register``.
    """
    kind = event_format.kind
    if kind is EventFormat.JSON or schemas is None:
        return None
    key = None if schemas.key is None else registry.register(f"{topic}-key", _schema_text(kind, schemas.key))
    return WireIds(key, registry.register(f"{topic}-value", _schema_text(kind, schemas.value)))


def _schema_text(kind: EventFormat, schema: ConnectSchema) -> SchemaText:
    is_avro = kind is EventFormat.AVRO
    return SchemaText(kind, avro_schema_text(schema) if is_avro else str(protobuf_schema(schema)))


def encoding(event_format: FormatSettings, schemas: EventSchemas | None, ids: WireIds | None) -> Encoding:
    """How events of ``schemas`` are written; ``ids`` are those of ``wire_ids``."""
    if schemas is None:
        return _PLAIN[event_format.tombstones]
    if ids is None:
        return Encoding(
            tombstones=event_format.tombstones,
            key_prefix=b"" if schemas.key is None else payload_prefix(schemas.key),
            value_prefix=payload_prefix(schemas.value),
            has_json_headers=event_format.headers is HeaderForm.JSON,
        )
    kind = event_format.kind
    return Encoding(
        tombstones=event_format.tombstones,
        key_writer=None if schemas.key is None or ids.key is None else _writer(kind, schemas.key, ids.key),
        value_writer=_writer(kind, schemas.value, ids.value),
    )


_PLAIN: Final = {tombstones: Encoding(tombstones=tombstones) for tombstones in (False, True)}
"""One object for all tenants, so that a run is encoded once."""


def _writer(kind: EventFormat, schema: ConnectSchema, registered: RegisteredSchema) -> AvroWriter | ProtobufWriter:
    opening = bytes((_MAGIC, *registered.schema_id.to_bytes(4, "big")))
    if kind is EventFormat.AVRO:
        return AvroWriter(schema, opening)
    return ProtobufWriter(schema, read_protobuf_schema(registered.text), opening + _FIRST_MESSAGE)
