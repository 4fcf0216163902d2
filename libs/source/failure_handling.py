"""A reader's treatment of a row that it cannot decode (Debezium: ``event.processing.failure.handling.mode``).

This is about definite errors, which lie in the data and come again however often it is read (``libs.errors.InvalidEvent``).
Transient ones, of the world, are tried again with growing pauses in every mode (``TransientError``); errors that need a
human for the whole log, such as a purged position, always halts (``PipelineHalted``).
"""

import structlog

from libs.source.failure_policy import FailureHandling
from libs.telemetry import metrics
from libs.telemetry.faults import ROWS_SET_ASIDE, raise_fault
from libs.types.fault import FaultScope

log = structlog.get_logger()


class LeftOut:
    """A reader's setting applied to undecodable rows: they are counted, reported, and kept for the next batch."""

    def __init__(self, handling: FailureHandling, source: str, source_partition: str) -> None:
        self._handling = handling
        self._source = source
        self._count = metrics.READER_SET_ASIDE.labels(source, source_partition, handling.value)
        self._letters: list[bytes] = []

    @property
    def goes_on(self) -> bool:
        """Whether anything is left out at all: else the reader raises the error."""
        return self._handling is not FailureHandling.FAIL

    @property
    def is_empty(self) -> bool:
        """No dead letter waits for a batch."""
        return not self._letters

    def add(self, reason: str, letter: bytes, *, table: str = "") -> None:
        """Something could not be decoded, for ``reason``; ``letter`` is its record in the dead-letter topic.

        ``table``: ``database.table``, where the reader knows it.
        """
        self._count.inc()
        raise_fault(ROWS_SET_ASIDE, FaultScope(source=self._source, table=table), happened=reason)
        if self._handling is not FailureHandling.SKIP:
            log.warning("set_aside", handling=self._handling.value, reason=reason)
        if self._handling is FailureHandling.DEAD_LETTER:
            self._letters.append(letter)

    def taken(self) -> tuple[bytes, ...]:
        """The dead letters for a ``ReadBatch``; none waits any more."""
        letters, self._letters = tuple(self._letters), []
        return letters
