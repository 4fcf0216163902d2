"""Which of several tables has a topic whose names Kafka makes one (``a b`` and ``a_b``): the same in all routers, at any time.

The owner of a topic is noted: before a table's first row its schema stands in the tenant's ``table-schemas`` topic, in the same
transaction. So of the tables that map to a topic the one that was announced there last has it, as long as it exists and the
tenant gets it; of those that never were, the first by name. Which tables exist schema_history knows, and only where two of them
meet is Kafka asked. What a process has once found it keeps to until the table is gone, or its tenant gets it no more.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from libs.config.connections import KafkaSettings
from libs.errors import ServiceUnavailable
from libs.events.delivered_schema import decode_delivered_schema
from libs.events.names import folded_topic, row_topic, row_topic_template, table_schemas_topic
from libs.kafka.clients import client_config
from libs.tenants.view import is_selected
from libs.types.table import TableId
from libs.types.tenant import TenantSpec

_READ_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 1.0

TableOf = tuple[str, TableId]
"""A source and a table of it."""
TablesNow = Callable[[str], Collection[TableId]]
"""The tables of a source that exist now; blocks. Raises ServiceUnavailable."""
Announced = Callable[[str, str], Sequence[TableOf]]
"""The tables that were written to a tenant's topic, as ``folded_topic`` has it, the last one first; blocks. Raises
ServiceUnavailable."""


class TopicCollision(Exception):
    """Two tables would be written to one topic: the rows of the other are set aside."""


class TopicClaims:
    """Which table writes to which topic, for all lanes of this process: two tables never share one unnoticed."""

    def __init__(
        self, tables_now: TablesNow = lambda _source: (), announced: Announced = lambda _tenant, _topic: ()
    ) -> None:
        self._tables_now = tables_now
        self._announced = announced
        self._owners: dict[str, TableOf] = {}
        """By topic, as ``folded_topic`` has it."""
        self._tables: dict[str, _Tables] = {}
        """By source, as they were asked for last, with ``_met``."""
        self._met: dict[str, set[TableId]] = {}
        """By source, those that rows came of and that were not known: one that is gone has rows yet if a router lags."""
        self._lock = threading.Lock()

    def release(self, source: str, table_id: TableId) -> bool:
        """The table is gone; whether it had a topic that another may have now."""
        self.look_again(source)
        with self._lock:
            owned = [topic for topic, owner in self._owners.items() if owner == (source, table_id)]
            for topic in owned:
                del self._owners[topic]
        return bool(owned)

    def look_again(self, source: str) -> None:
        """Ask for the source's tables again when they are needed next."""
        with self._lock:
            self._met.pop(source, None)
            if source in self._tables:
                self._tables[source].is_asked = False

    def claim(self, spec: TenantSpec, source: str, table_id: TableId) -> None:
        """Note that a tenant's table has its topic.

        Raises:
            TopicCollision: the topic belongs to another table that the tenant gets.
            ServiceUnavailable: its owner cannot be known now; try again.
        """
        topic, mine = row_topic(spec.tenant, source, table_id, row_topic_template(spec)), (source, table_id)
        place = folded_topic(topic)
        owner = self._owner(spec, place)
        if owner is None:
            found = self._find(spec, place, mine)
            with self._lock:
                owner = self._owners.get(place)
                if owner is None or not _selects(spec, owner):  # else another lane was faster
                    owner = self._owners[place] = found
        if owner != mine:
            raise TopicCollision(
                f"topic {topic}: tables {owner[1]} of {owner[0]} and {table_id} of {source} both map to it, since Kafka "
                "allows only letters, digits and ._- in names, and takes . and _ for the same; rename one of them, name the "
                "topics otherwise (topics.name), or exclude it in the tenant's document; "
                f"rows of {owner[1]} go there, as it had the topic first, or comes first by name"
            )

    def _owner(self, spec: TenantSpec, topic: str) -> TableOf | None:
        with self._lock:
            owner = self._owners.get(topic)
        return owner if owner is not None and _selects(spec, owner) else None

    def _find(self, spec: TenantSpec, topic: str, mine: TableOf) -> TableOf:
        rivals = {mine}
        for source in dict.fromkeys((mine[0], *(each.name for each in spec.sources))):
            alike = self._alike(row_topic_template(spec), source, topic.removeprefix(spec.tenant), mine)
            rivals |= {(source, table_id) for table_id in alike if _selects(spec, (source, table_id))}
        if len(rivals) == 1:
            return mine
        return next((each for each in self._announced(spec.tenant, topic) if each in rivals), min(rivals))

    def _alike(self, template: str, source: str, topic: str, mine: TableOf) -> Sequence[TableId]:
        """The tables of a source with that topic. One that rows come of, and that is not known yet, has them all asked for."""
        with self._lock:
            tables = self._tables.setdefault(source, _Tables(source))
            is_asked = tables.is_asked and (source != mine[0] or mine[1] in tables.all)
        if not is_asked:
            with self._lock:
                met = self._met.setdefault(source, set())
                met |= {mine[1]} if source == mine[0] else set()
            now = {*self._tables_now(source), *met}
            with self._lock:
                tables.become(now)
        with self._lock:
            return tuple(tables.with_topic(template, topic))


class _Tables:
    """A source's. A table more or less changes its own entries alone: thousands may come one by one."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.all: set[TableId] = set()
        self.is_asked = False
        """Whether ``all`` may be used."""
        self._by_topic: dict[str, dict[str, dict[TableId, None]]] = {}
        """By template and topic, without the tenant, as ``folded_topic`` has it."""

    def become(self, now: set[TableId]) -> None:
        """The tables are these."""
        gone, new = self.all - now, now - self.all
        for template, named in self._by_topic.items():
            for table_id in gone:
                named[self._topic(template, table_id)].pop(table_id)
            for table_id in new:
                named.setdefault(self._topic(template, table_id), {})[table_id] = None
        self.all, self.is_asked = now, True

    def with_topic(self, template: str, topic: str) -> Collection[TableId]:
        """Those of that topic."""
        if template not in self._by_topic:
            named: dict[str, dict[TableId, None]] = {}
            for table_id in self.all:
                named.setdefault(self._topic(template, table_id), {})[table_id] = None
            self._by_topic[template] = named
        return self._by_topic[template].get(topic, {}).keys()

    def _topic(self, template: str, table_id: TableId) -> str:
        return folded_topic(row_topic("", self._source, table_id, template))


def _selects(spec: TenantSpec, table: TableOf) -> bool:
    return any(each.name == table[0] and is_selected(each, table[1]) for each in spec.sources)


def _topic_of(key: bytes) -> str:
    """Of a record of ``table-schemas``."""
    return key.decode(errors="replace").rpartition("@")[0]


def _announced_in(message: Message, topic: str) -> TableOf | None:
    """The table that a record of ``table-schemas`` announces for ``topic``; None: none."""
    key, value = message.key(), message.value()
    if key is None or value is None or folded_topic(_topic_of(bytes(key))) != topic:
        return None
    try:
        delivered = decode_delivered_schema(value)
    except msgspec.DecodeError:  # not written by a router: it does not name the topic's owner
        return None
    return delivered.source, delivered.table_schema.table_id


def announced_tables(kafka: KafkaSettings, tenant: str, topic: str) -> list[TableOf]:
    """The tables that were written to a tenant's topic, or are being written, the last one first. ``topic``: as
    ``folded_topic`` has it. Blocks.

    Records of an open transaction count: its table is about to have the topic.

    Raises:
        ServiceUnavailable: Kafka does not answer.
    """
    consumer = Consumer(
        client_config(kafka)
        | {
            "group.id": "headwater-router-claims",  # librdkafka wants one; nothing is committed under it
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
        }
    )
    written: dict[TableOf, None] = {}
    schemas_topic, deadline_s = table_schemas_topic(tenant), time.monotonic() + _READ_TIMEOUT_S
    try:
        # librdkafka gives a topic that is not there half a minute to come, unless it is asked.
        found = consumer.list_topics(schemas_topic, timeout=_READ_TIMEOUT_S).topics[schemas_topic]
        if found.error is not None and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return []
        # librdkafka reports an end after a fetch that came back empty, and of none where writes do not pause.
        _, end = consumer.get_watermark_offsets(TopicPartition(schemas_topic, 0), timeout=_READ_TIMEOUT_S)
        consumer.assign([TopicPartition(schemas_topic, 0, 0)])
        following = 0
        while following < end and time.monotonic() < deadline_s:
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise ServiceUnavailable(f"{schemas_topic} cannot be read: {error}")
                following = end  # the rest are markers of transactions
            else:
                following = int(message.offset() or 0) + 1
                if (table := _announced_in(message, topic)) is not None:
                    written.pop(table, None)  # so that it stands last
                    written[table] = None
        if following >= end:
            return list(reversed(written))
    except KafkaException as error:
        raise ServiceUnavailable(f"{schemas_topic} cannot be read: {error}") from error
    finally:
        consumer.close()
    raise ServiceUnavailable(f"{schemas_topic} was not read to its end in {_READ_TIMEOUT_S:.0f} s")
