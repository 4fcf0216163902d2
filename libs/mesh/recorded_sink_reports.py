"""The reports of Spark jobs about tenants, by the topic in which their operator hears of them: faults, and ends of resyncs.

For a mesh of which Kafka alone is reached. A job reports where an operator places its tenants. Nothing is written.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Final

import msgspec
from confluent_kafka import OFFSET_BEGINNING

from libs.config.connections import KafkaSettings
from libs.events.names import SINK_HANDOVERS_TOPIC
from libs.mesh.tenant_topics import open_consumer, partitions_of, read_to_end
from libs.sink_state.resync import ResyncAnswer, decode_resyncs
from libs.telemetry.faults import SINK_HALTED, TABLE_PARKED, FaultKind
from libs.types.fault import Fault
from libs.types.sink_place import decode_faults, is_faults_key, is_resyncs_key, tenant_of_key

_READ_TIMEOUT_S: Final = 120.0
_FRESH_S: Final = 5.0
"""A command that waits for a sink asks each second."""


class RecordedSinkReports:
    """The newest report of each job about each tenant. The topic is read once, and then its later records.

    Every method blocks, and raises:
        BrokerUnavailable: Kafka does not answer.
        AccessDenied: the user may not read the topic.
    """

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._next: dict[tuple[str, int], int] = {}
        self._faults: dict[str, tuple[Fault, ...]] = {}
        self._resyncs: dict[str, Mapping[str, ResyncAnswer]] = {}
        self._read_at_s: float | None = None

    def parked_tables(self, tenant: str) -> Mapping[tuple[str, str], str]:
        """Why the sink parks a table, by source and ``database.table``; none where no job reports."""
        return {(each.scope.source, each.scope.table): each.happened for each in self._of(TABLE_PARKED, tenant)}

    def halted_because(self, tenant: str) -> str | None:
        """Why the sink writes nothing of a tenant; None: no job reports that."""
        return next((each.happened for each in self._of(SINK_HALTED, tenant)), None)

    def resync_answer(self, tenant: str, request_id: str) -> ResyncAnswer | None:
        """The end of a resync; None: no job has reported it."""
        self._refresh()
        of_tenant = (answers for key, answers in self._resyncs.items() if tenant_of_key(key) == tenant)
        return next((answers[request_id] for answers in of_tenant if request_id in answers), None)

    def _of(self, kind: FaultKind, tenant: str) -> Iterator[Fault]:
        self._refresh()
        for key, faults in self._faults.items():
            if tenant_of_key(key) == tenant:
                yield from (each for each in faults if (each.id, each.scope.tenant) == (kind.id, tenant))

    def _refresh(self) -> None:
        if self._read_at_s is None or time.monotonic() - self._read_at_s >= _FRESH_S:
            self._read_on()
            self._read_at_s = time.monotonic()

    def _read_on(self) -> None:
        with closing(open_consumer(self._kafka)) as consumer:
            places = [(SINK_HANDOVERS_TOPIC, number) for number in partitions_of(consumer, SINK_HANDOVERS_TOPIC)]
            starts = {place: self._next.get(place, OFFSET_BEGINNING) for place in places}
            for message in read_to_end(consumer, starts, timeout_s=_READ_TIMEOUT_S) if starts else ():
                self._take((message.key() or b"").decode(errors="replace"), message.value())
                self._next[str(message.topic()), int(message.partition() or 0)] = int(message.offset() or 0) + 1

    def _take(self, key: str, value: bytes | None) -> None:
        self._faults.pop(key, None)
        self._resyncs.pop(key, None)
        if value is None:
            return
        try:
            if is_faults_key(key):
                self._faults[key] = decode_faults(value).faults
            elif is_resyncs_key(key):
                self._resyncs[key] = decode_resyncs(value).answers
        except msgspec.DecodeError:
            return  # another release's
