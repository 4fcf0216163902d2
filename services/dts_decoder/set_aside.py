"""Entries that cannot be decoded: raised as an error, or set aside so that the others go on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from libs.errors import InvalidEvent, UndecodableMessage
from libs.events.varint import varint
from protos.dts import subscription_pb2 as pb
from services.dts_decoder.assembly import WholeMessage
from services.dts_decoder.header_text import text_of
from services.dts_decoder.messages import EntryReader

_LENGTH_DELIMITED: Final = 2  # the wire type of bytes, text and messages


@dataclass(frozen=True, slots=True)
class SetAside:
    """Undecodable bytes as they came: one entry, or the rest of a message."""

    place: str
    offset: int
    entry: int
    reason: str
    entries: bytes
    """Serialised ``Entries``."""
    table: str = ""
    """``database.table`` of a row; empty: not known."""


TakeAside = Callable[[SetAside], None]


def refuse(
    take_aside: TakeAside | None,
    message: WholeMessage,
    nth: int,
    reason: str,
    entries: bytes,
    error: InvalidEvent | None = None,
    *,
    table: str = "",
) -> None:
    """Set aside ``entries``, which begin with the message's entry ``nth``; without ``take_aside`` raise.

    Raises:
        InvalidEvent: of the error's own kind; without an error UndecodableMessage. It names topic, partition and offset.
    """
    where = reason if reason.startswith(message.topic) else f"{message.place}, entry {nth}: {reason}"
    if take_aside is None:
        kind = type(error) if error is not None else UndecodableMessage
        raise kind(where) from error
    take_aside(SetAside(message.place, message.first_offset, nth, where, entries, table))


def entry_of_row(reader: EntryReader, row: bytes) -> bytes:
    """Entries that hold one row, with its header and its columns."""
    header = pb.Header(
        version=reader.version,
        sourceType=reader.source_type,  # type: ignore[arg-type]
        messageType=pb.MESSAGE_TYPE_DML,
        timestamp=reader.timestamp_s,
        serverId=reader.server_id,
        fileName=text_of(reader.file_name),
        position=reader.position,
        gtid=text_of(reader.gtid),
        schemaName=text_of(reader.schema_name),
        tableName=text_of(reader.table_name),
        seqId=reader.seq_id,
    )
    # Serialised fields that stand one after another are one message, also where the row's bytes are broken.
    event = pb.DMLEvent(dmlEventType=reader.dml_type).SerializeToString() + reader.columns + row  # type: ignore[arg-type]
    event = _field(pb.Event.DMLEVENT_FIELD_NUMBER, event)
    entry = _field(pb.Entry.HEADER_FIELD_NUMBER, header.SerializeToString()) + _field(
        pb.Entry.EVENT_FIELD_NUMBER, event
    )
    return _field(pb.Entries.ITEMS_FIELD_NUMBER, entry)


def _field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(len(content)) + content
