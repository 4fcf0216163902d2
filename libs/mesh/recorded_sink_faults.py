"""The faults that Spark jobs report of tenants' tables, by the topic in which their operator hears of them.

For a mesh of which Kafka alone is reached. A job reports where an operator places its tenants. Nothing is written.
"""

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Final

import msgspec
from confluent_kafka import OFFSET_BEGINNING

from libs.config.connections import KafkaSettings
from libs.events.names import SINK_HANDOVERS_TOPIC
from libs.mesh.tenant_topics import open_consumer, partitions_of, read_to_end
from libs.telemetry.faults import TABLE_PARKED
from libs.types.fault import Fault
from libs.types.sink_place import decode_faults, is_faults_key, tenant_of_key

_READ_TIMEOUT_S: Final = 120.0
_FRESH_S: Final = 5.0
"""Whoever waits for a sink asks each second."""


class RecordedSinkFaults:
    """The newest report of each job about each tenant. The topic is read once, and then its later records."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._next: dict[tuple[str, int], int] = {}
        self._newest: dict[str, tuple[Fault, ...]] = {}
        self._read_at_s: float | None = None

    def parked_tables(self, tenant: str) -> Mapping[tuple[str, str], str]:
        """Why the sink parks a table, by source and ``database.table``; none where no job reports. Blocks.

        Raises:
            BrokerUnavailable: Kafka does not answer.
            AccessDenied: the user may not read the topic.
        """
        if self._read_at_s is None or time.monotonic() - self._read_at_s >= _FRESH_S:
            self._read_on()
            self._read_at_s = time.monotonic()
        return {
            (fault.scope.source, fault.scope.table): fault.happened
            for key, faults in self._newest.items()
            if tenant_of_key(key) == tenant
            for fault in faults
            if (fault.id, fault.scope.tenant) == (TABLE_PARKED.id, tenant)
        }

    def _read_on(self) -> None:
        with closing(open_consumer(self._kafka)) as consumer:
            places = [(SINK_HANDOVERS_TOPIC, number) for number in partitions_of(consumer, SINK_HANDOVERS_TOPIC)]
            starts = {place: self._next.get(place, OFFSET_BEGINNING) for place in places}
            for message in read_to_end(consumer, starts, timeout_s=_READ_TIMEOUT_S) if starts else ():
                self._take((message.key() or b"").decode(errors="replace"), message.value())
                self._next[str(message.topic()), int(message.partition() or 0)] = int(message.offset() or 0) + 1

    def _take(self, key: str, value: bytes | None) -> None:
        if not is_faults_key(key):
            return
        self._newest.pop(key, None)
        try:
            self._newest |= {} if value is None else {key: decode_faults(value).faults}
        except msgspec.DecodeError:
            return  # another release's
