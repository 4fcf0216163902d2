"""A bounded slice of a subscription in a file, and back into a topic: how a user gives a failing case to the maintainers.

A recording is lines of JSON: first its kind, then a line a Kafka message, in the form of the conformance table
``g_tencent_dts.json`` (``partition``, ``offset``, ``ps``, ``value_hex``). With ``Masker`` values leave as others of the same
kind and length, equal ones equal; names of schemas, tables and columns, and the text of DDL, stay.
"""

import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from google.protobuf.message import DecodeError

from libs.config.connections import KafkaSettings
from libs.errors import AccessDenied, InvalidSettings, SourceUnavailable
from libs.kafka.clients import TopicSpec, client_config, denial_of, ensure_topics, reason_of
from protos.dts import subscription_pb2 as pb

FORMAT: Final = "headwater-dts-recording"
FORMAT_VERSION: Final = 1
_ANSWER_TIMEOUT_S: Final = 15.0
_MOST_FILE_BYTES: Final = 1 << 30
"""Of which ``Slice.max_bytes`` fills an eighth."""
_LARGEST_PARTITION: Final = 10_000
"""``replay`` makes a topic with so many."""


class RecordedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One Kafka message; a line of the file."""

    partition: int
    offset: int
    ps: int | None
    value_hex: str | None
    """None: it could not be read, and so not be masked; it was left out."""

    @property
    def value(self) -> bytes:
        """As it came from Kafka; empty where it was left out."""
        return bytes.fromhex(self.value_hex or "")


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    format: str = FORMAT
    version: int = FORMAT_VERSION
    topic: str
    is_masked: bool
    recorded_at_us: int


@dataclass(frozen=True, slots=True)
class Slice:
    """The recording of a partition."""

    topic: str
    partition: int = 0
    from_offset: int | None = None
    """None: the oldest that is there."""
    max_messages: int = 1_000
    max_bytes: int = 64 << 20


def read_slice(settings: KafkaSettings, wanted: Slice, *, group_id: str) -> Iterator[RecordedMessage]:
    """The messages, in order, up to the topic's present end. Commits nothing: the group's offset stays.

    Raises:
        SourceUnavailable: the broker does not answer.
        AccessDenied: it refuses the user, or the certificate is not trusted.
    """
    faults: list[KafkaError] = []
    consumer = Consumer(
        {**client_config(settings), "group.id": group_id, "enable.auto.commit": False, "error_cb": faults.append}
    )
    place = TopicPartition(wanted.topic, wanted.partition)
    try:
        low, high = consumer.get_watermark_offsets(place, timeout=_ANSWER_TIMEOUT_S)
        following = low if wanted.from_offset is None else max(low, wanted.from_offset)
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, following)])
        seen = seen_bytes = 0
        while following < high and seen < wanted.max_messages and seen_bytes < wanted.max_bytes:
            message = consumer.poll(_ANSWER_TIMEOUT_S)
            if message is None or message.error() is not None:
                return  # the rest are transaction marks
            ps = next((value for name, value in message.headers() or () if name == "ps"), None)
            value = message.value() or b""
            yield RecordedMessage(
                partition=wanted.partition,
                offset=message.offset() or 0,
                ps=int(ps) if ps is not None and bytes(ps).isdigit() else None,
                value_hex=value.hex(),
            )
            following = (message.offset() or 0) + 1
            seen, seen_bytes = seen + 1, seen_bytes + len(value)
    except KafkaException as error:
        consumer.poll(0)  # calls error_cb; a message that came would be left out with all others
        what = f"{wanted.topic}[{wanted.partition}] cannot be read"
        cause = error.args[0]
        if denied := denial_of([*faults, cause] if isinstance(cause, KafkaError) else faults):
            raise AccessDenied(f"{what} ({denied.str()}): check user, password, mechanism and certificate") from error
        raise SourceUnavailable(f"{what}: {reason_of(faults)}") from error
    finally:
        consumer.close()


def write_recording(path: Path, heading: Heading, messages: Iterable[RecordedMessage]) -> int:
    """Write the file again; returns how many messages it holds."""
    count = 0
    with path.open("wb") as file:
        file.write(msgspec.json.encode(heading) + b"\n")
        for message in messages:
            file.write(msgspec.json.encode(message) + b"\n")
            count += 1
    return count


def read_recording(path: Path) -> tuple[Heading, list[RecordedMessage]]:
    """The recording that ``write_recording`` wrote. Raises InvalidSettings: the file is no recording."""
    if path.stat().st_size > _MOST_FILE_BYTES:
        raise InvalidSettings(str(path), [f"is larger than {_MOST_FILE_BYTES >> 20} MiB; record fewer messages"])
    lines = path.read_bytes().splitlines()
    try:
        heading = msgspec.json.decode(lines[0] if lines else b"", type=Heading)
        messages = [_message_of(line) for line in lines[1:]]
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidSettings(str(path), [f"is no recording of a subscription ({error})"]) from error
    if (heading.format, heading.version) != (FORMAT, FORMAT_VERSION):
        raise InvalidSettings(str(path), [f"is {heading.format} {heading.version}; {FORMAT} {FORMAT_VERSION} is known"])
    return heading, messages


def _message_of(line: bytes) -> RecordedMessage:
    """Raises msgspec.DecodeError and ValueError."""
    message = msgspec.json.decode(line, type=RecordedMessage)
    if not 0 <= message.partition <= _LARGEST_PARTITION or not 0 <= message.offset < 2**63:
        raise ValueError(f"partition {message.partition}, offset {message.offset}: no place in a topic")
    bytes.fromhex(message.value_hex or "")
    return message


def replay(settings: KafkaSettings, topic: str, messages: Iterable[RecordedMessage]) -> int:
    """Send the messages to ``topic``, which is made where it is not there, with their partitions and counts.

    Returns how many were sent; rows that the mask left out are not counted. Raises SourceUnavailable.
    """
    wanted = [message for message in messages if message.value_hex is not None]
    partitions = max((message.partition for message in wanted), default=0) + 1
    ensure_topics(settings, [TopicSpec(name=topic, kafka_partitions=partitions)])
    producer = Producer({**client_config(settings), "enable.idempotence": True})
    for message in wanted:
        headers: dict[str, str | bytes] = {} if message.ps is None else {"ps": str(message.ps)}
        producer.produce(topic, value=message.value, partition=message.partition, headers=headers)
        producer.poll(0)
    if producer.flush(60.0):
        raise SourceUnavailable(f"{topic} does not acknowledge")
    return len(wanted)


# --- masking ---------------------------------------------------------------------------------------------------------


class Masker:
    """Replaces the values of a partition's messages, one after another; those in parts come out when they are whole.

    ``salt``: a new one for each recording, so that values cannot be guessed by masking a dictionary.
    """

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._parts: list[tuple[RecordedMessage, pb.Envelope]] = []

    def masked(self, messages: Iterable[RecordedMessage]) -> Iterator[RecordedMessage]:
        """Each message, masked; one that cannot be read loses its value."""
        for message in messages:
            try:
                envelope = pb.Envelope.FromString(message.value)
            except DecodeError:
                yield msgspec.structs.replace(message, value_hex=None)
                continue
            if envelope.index == 0:
                yield from self._left_out()
            self._parts.append((message, envelope))
            if envelope.index + 1 >= envelope.total:
                yield from self._masked_parts()
        yield from self._left_out()

    def _left_out(self) -> Iterator[RecordedMessage]:
        parts, self._parts = self._parts, []
        for message, _ in parts:
            yield msgspec.structs.replace(message, value_hex=None)

    def _masked_parts(self) -> Iterator[RecordedMessage]:
        data = b"".join(envelope.data for _, envelope in self._parts)
        try:
            entries = pb.Entries.FromString(data)
        except DecodeError:
            yield from self._left_out()
            return
        for entry in entries.items:
            for row in entry.event.dmlEvent.rows:
                for cell in (*row.oldColumns, *row.newColumns):
                    self._mask(cell)
        masked = entries.SerializeToString()
        parts, self._parts = self._parts, []
        size = -(-len(masked) // len(parts))
        for nth, (message, envelope) in enumerate(parts):
            envelope.data = masked[nth * size : (nth + 1) * size]
            yield msgspec.structs.replace(message, value_hex=envelope.SerializeToString().hex())

    def _mask(self, cell: pb.Data) -> None:
        if cell.sv:
            cell.sv = self._digits(cell.sv)
        if not cell.bv:
            return
        text = cell.bv.decode("utf-8", errors="replace")
        if _TEMPORAL.fullmatch(text):
            cell.bv = _FIXED_DAY[: min(len(text), 10)].encode() + text[10:].encode() if text[0] != "-" else b"-01:02:03"
        elif cell.dataType == pb.DATA_TYPE_BYTES and _is_json(text):
            cell.bv = b'{"masked": %d}' % len(cell.bv)
        else:
            cell.bv = self._bytes(cell.bv)

    def _digits(self, text: str) -> str:
        """Other digits of the same number; the first is 1, so that every type holds them."""
        stream = iter(str(int.from_bytes(self._hash(text.encode()), "big")) * (1 + len(text) // 70))
        masked, is_first = [], True
        for character in text.partition("e")[0].partition("E")[0]:
            if character.isdigit():
                masked.append("1" if is_first and character != "0" else "0" if is_first else next(stream))
                is_first = is_first and character == "0"
            else:
                masked.append(character)
        return "".join(masked) + text[len(masked) :]

    def _bytes(self, value: bytes) -> bytes:
        digest = self._hash(value).hex().encode()
        return (digest * (1 + len(value) // len(digest)))[: len(value)]

    def _hash(self, value: bytes) -> bytes:
        return hashlib.blake2b(value, key=self._salt, digest_size=32).digest()


_TEMPORAL: Final = re.compile(r"\d{4}-\d\d-\d\d( .*)?|-?\d{2,3}:\d\d:\d\d(\.\d+)?")
_FIXED_DAY: Final = "2001-02-03"


def _is_json(text: str) -> bool:
    try:
        found: Any = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, Mapping | list | str)


def heading_of(wanted: Slice, *, is_masked: bool) -> Heading:
    """The first line of a recording made now."""
    return Heading(topic=wanted.topic, is_masked=is_masked, recorded_at_us=time.time_ns() // 1_000)
