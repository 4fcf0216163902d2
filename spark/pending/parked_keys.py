"""Which keys of a tenant's tables are parked, kept through restarts. ``set_aside`` decides; this only remembers.

The file is written, and kept, after the letters and before the table's commit. Cut off before it, the batch comes again and
writes the same letters again; cut off after it, the batch finds its keys parked, and only its commit is left to do.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from libs.durable_file import replace_durably
from libs.errors import PipelineHalted
from libs.sink_state.parked_keys import (
    ParkedKeysOfTable,
    TenantParkedKeys,
    decode_parked_keys,
    encode_parked_keys,
    parked_keys_path,
)
from spark.sinks.port import BatchIdentity

_ANSWERS_KEPT = 50


class ParkedKeysFile:
    """One tenant's file; for any thread."""

    def __init__(self, state_dir: Path, tenant: str, *, keep: Callable[[], None] = lambda: None) -> None:
        """``keep``: called after each change; its exceptions reach the caller."""
        self._keep = keep
        self._path = parked_keys_path(state_dir, tenant)
        self._tenant = tenant
        self._lock = threading.Lock()
        self._known: TenantParkedKeys | None = None

    def of_table(self, topic: str, batch: BatchIdentity) -> ParkedKeysOfTable:
        """As ``batch`` finds them: keys that it released itself, before it was cut off, are still parked.

        Raises:
            PipelineHalted: the file cannot be read; put it back.
        """
        with self._lock:
            table = self._read(batch).tables.get(topic, ParkedKeysOfTable())
        if table.released_by == batch.batch_id:
            return msgspec.structs.replace(table, keys={**table.keys, **table.released}, released={}, released_by=-1)
        return table

    def has_released(self, topic: str, batch: BatchIdentity) -> bool:
        """Whether ``batch`` released keys already: cut off since, it may have written them."""
        with self._lock:
            table = self._read(batch).tables.get(topic, ParkedKeysOfTable())
        return bool(table.released) and table.released_by == batch.batch_id

    def take_back(self, topic: str, batch: BatchIdentity) -> None:
        """Park again the keys that ``batch`` released: its table was not written. The batch is of the query that goes on."""
        if self.has_released(topic, batch):
            self.store(topic, batch, self.of_table(topic, batch))

    def report_refused(self, topic: str, batch: BatchIdentity) -> None:
        """Answer ``batch``'s replays that the keys stay parked: its table was not written, or nobody knows."""
        with self._lock:
            table = self._read(batch).tables.get(topic, ParkedKeysOfTable())
        answers = {
            request: msgspec.structs.replace(answer, refused=answer.keys)
            if answer.batch_id == batch.batch_id
            else answer
            for request, answer in table.answers.items()
        }
        if answers != table.answers:
            self.store(topic, batch, msgspec.structs.replace(table, answers=answers))

    def store(self, topic: str, batch: BatchIdentity, table: ParkedKeysOfTable) -> None:
        """Replace the file whole, durably, and have it kept."""
        with self._lock:
            known = self._read(batch)
            self._known = msgspec.structs.replace(known, tables={**known.tables, topic: _shortened(table)})
            replace_durably(self._path, encode_parked_keys(self._known))
        self._keep()

    def _read(self, batch: BatchIdentity) -> TenantParkedKeys:
        if self._known is None:
            try:
                self._known = decode_parked_keys(self._path.read_bytes())
            except FileNotFoundError:
                self._known = TenantParkedKeys(tenant=self._tenant)
            except msgspec.DecodeError as error:
                raise PipelineHalted(
                    f"{self._path} cannot be read: without it events of parked keys would be written out of order; put it "
                    "back from a backup, or write the tenant's tables again (docs/sinks/repair.md, 'Write tables again')"
                ) from error
        if self._known.query_id != batch.query_id:
            # The query began again, and with it every topic.
            self._known = TenantParkedKeys(tenant=self._tenant, query_id=batch.query_id)
        return self._known


def _shortened(table: ParkedKeysOfTable) -> ParkedKeysOfTable:
    newest = sorted(table.answers, key=lambda request: table.answers[request].batch_id)[-_ANSWERS_KEPT:]
    return msgspec.structs.replace(table, answers={request: table.answers[request] for request in newest})
