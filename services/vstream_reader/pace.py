"""When a batch of the main stream is handed over."""

import time
from typing import Final

from libs.telemetry import metrics
from services.vstream_reader.decode import StreamDecoder

_MAX_GATHERING_S: Final = 0.1
"""While more of the stream comes, a batch is gathered until it is full, but no longer than this: it bounds latency."""


class Pace:
    """When a batch is handed over, and the stream's counts until then."""

    def __init__(self, labels: tuple[str, str], heartbeat_interval_s: float) -> None:
        self._labels = labels
        self._heartbeat_interval_s = heartbeat_interval_s
        self._taken_s = 0.0
        self._transactions = metrics.READER_TRANSACTIONS.labels(*labels)
        self._reshards = metrics.READER_RESHARDS.labels(*labels)
        self._gathers_until_s = 0.0
        self._counted = self._places_taken = self._reshards_counted = 0

    def is_due(self, *, is_quiet: bool) -> bool:
        """Nothing more has arrived, or too much time has passed since a batch was taken."""
        return is_quiet or time.monotonic() > self._gathers_until_s

    def has_moved(self, decoder: StreamDecoder) -> bool:
        """The position is another than when a batch was taken, be it that nothing captured changed."""
        return decoder.shards.places != self._places_taken

    def taken(self, decoder: StreamDecoder) -> None:
        """A batch was taken."""
        self._places_taken = decoder.shards.places
        self._taken_s = time.monotonic()
        self._gathers_until_s = self._taken_s + _MAX_GATHERING_S

    def is_heartbeat_due(self) -> bool:
        """No batch was taken for so long that one without anything in it is due."""
        return 0 < self._heartbeat_interval_s <= time.monotonic() - self._taken_s

    def count(self, decoder: StreamDecoder) -> None:
        """Add the counts since the last call to the metrics."""
        self._transactions.inc(decoder.progress.transactions - self._counted)
        self._counted = decoder.progress.transactions
        self._reshards.inc(decoder.shards.reshards - self._reshards_counted)
        self._reshards_counted = decoder.shards.reshards
