"""Records for topics of tenants, and the common values of all that one batch gives."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from libs.events.names import (
    CONTEXT_CONNECTOR_HEADER,
    CONTEXT_LOGICAL_NAME_HEADER,
    CONTEXT_RUN_HEADER,
    CONTEXT_TASK_HEADER,
    ORDER_HEADER,
    SCHEMA_VERSION_HEADER,
)
from libs.formats.connect_schema import HEADER_TEXT, payload_prefix
from libs.types.order import EventOrder
from libs.types.table import TableSchema
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch
from services.router.batches.batch_reading import form_of
from services.router.records.record_batch import NO_HEADERS, Records, encode_header, join_headers
from services.router.records.record_bytes import PassedRows
from services.router.routes.book import RouteView
from services.router.routes.filter_index import FilterIndex
from services.router.routes.match import Announcement, Target


class Delivery(NamedTuple):
    """The same records for one or several topics, in order. A tuple, because each run makes one: a fifth of a dataclass'
    cost."""

    targets: tuple[Target, ...]
    records: Records | PassedRows
    rows: int = 0
    """Row events among the records; tombstones and schemas are none."""
    filtered: int = 0
    """Row events that the tenants' filter held back."""
    dead_letters: int = 0
    """Records that are dead letters."""
    table: str = ""
    """Of dead letters and of rows that were copied: ``database.table``."""
    reason: str = ""
    """The reason of the last dead letter; empty where the whole table is refused, which a fault reports."""


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """Where a ChangeBatch lies in Kafka."""

    topic: str
    kafka_partition: int
    offset: int


class Announced:
    """The table schemas that this lane has written for tenants since it started."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, int], TableSchema] = {}
        self._indexes: set[FilterIndex] = set()

    def is_new(self, index: FilterIndex) -> bool:
        """Whether its groups were not asked about yet; from now on they were."""
        if index in self._indexes:
            return False
        self._indexes.add(index)
        return True

    def unannounced(self, announcements: Sequence[Announcement]) -> list[Delivery]:
        """Schemas not yet written, or changed by a tenant's new document; they count as written from now on."""
        deliveries = []
        for announcement in announcements:
            topic, schema = announcement.delivered.topic, announcement.delivered.table_schema
            written = self._written.get((topic, schema.version))
            if written is not schema:
                self._written[topic, schema.version] = schema
                if written != schema:
                    deliveries.append(
                        Delivery(
                            (announcement.target,), single_record(announcement.key, announcement.value, NO_HEADERS)
                        )
                    )
        return deliveries


def single_record(key: bytes | None, value: bytes | None, headers: bytes) -> Records:
    return Records((key,), (value,), (headers,))


class DeliveryContext:
    """The common values of all entries of one batch."""

    __slots__ = ("_headers", "announced", "batch", "form", "max_event_bytes", "place", "view")

    def __init__(
        self, batch: ChangeBatch, view: RouteView, announced: Announced, place: BatchPlace, max_event_bytes: int
    ) -> None:
        self.batch = batch
        self.form = form_of(batch)
        self.view = view
        self.announced = announced
        self.place = place
        self.max_event_bytes = max_event_bytes
        self._headers: dict[tuple[bool, int], tuple[bytes, bytes]] = {}

    def headers(self, *, is_json: bool) -> tuple[bytes, ...]:
        batch = self.batch
        return _context_headers(batch.source, batch.source_partition, batch.connector, batch.run_id, is_json)

    def around_order(self, *, is_json: bool, schema_version: int) -> tuple[bytes, bytes]:
        """The header bytes before and after a row's order."""
        around = self._headers.get((is_json, schema_version))
        if around is None:
            order = encode_header(ORDER_HEADER, _header_value(_ANY_ORDER, is_json=is_json))
            version = encode_header(SCHEMA_VERSION_HEADER, _header_value(b"%d" % schema_version, is_json=is_json))
            before, behind = join_headers(*self.headers(is_json=is_json), order, version).rsplit(_ANY_ORDER, 1)
            around = self._headers[is_json, schema_version] = (before, behind)
        return around


_ANY_ORDER: Final = EventOrder(epoch=0, rank=0, tx_ordinal=0).sort_key().encode()
"""All have the same length."""


@functools.lru_cache(maxsize=64)
def _context_headers(source: str, partition: str, connector: str, run_id: str, is_json: bool) -> tuple[bytes, ...]:
    """Debezium's context headers, as SimpleHeaderConverter or as JsonConverter writes them.

    Tasks of its Vitess connector with offsets of their own are called as our source partitions are; any other is "0", as there.
    """
    texts = {
        CONTEXT_LOGICAL_NAME_HEADER: source,
        CONTEXT_TASK_HEADER: partition,
        CONTEXT_CONNECTOR_HEADER: connector,
        CONTEXT_RUN_HEADER: run_id,
    }
    return tuple(encode_header(name, _header_value(text.encode(), is_json=is_json)) for name, text in texts.items())


def _header_value(text: bytes, *, is_json: bool) -> bytes:
    """Text as it is, or as JSON with its schema."""
    return payload_prefix(HEADER_TEXT) + msgspec.json.encode(text.decode()) + b"}" if is_json else text
