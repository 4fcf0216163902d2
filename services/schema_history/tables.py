"""The history as the process knows it: the head of every table, and those older versions that were needed.

The state of the gRPC service. It changes in ``apply`` only, which the log calls once for each record. After a start
from the Redis view it holds one change for each table; older ones come from the view when asked for, and when the view
fails, all come from Kafka at once.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from libs.kafka.tail import LogRecord
from libs.telemetry.metrics import SCHEMA_HISTORY_REBUILDS, SCHEMA_HISTORY_TABLES
from libs.types.order import EventOrder
from libs.types.table import TableId
from services.schema_history import log as kafka_log
from services.schema_history.history import RecordedChange, TableHead, advance, schema_at
from services.schema_history.view import HistoryView, TableKey, ViewContents, in_parts

WATCH_QUEUE_CHANGES: Final = 10_000
"""Changes that may wait for a watcher before its stream is ended; it may come back."""

log = structlog.get_logger()

ReadWholeLog = Callable[[], Awaitable[list[RecordedChange]]]


class Watcher:
    """One watcher's queue; ``None`` at its end: it was too slow."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.queue: asyncio.Queue[RecordedChange | None] = asyncio.Queue(WATCH_QUEUE_CHANGES + 1)

    def notify(self, change: RecordedChange) -> bool:
        """Queue ``change``; False: the queue is full and ends with None."""
        is_full = self.queue.qsize() >= WATCH_QUEUE_CHANGES
        self.queue.put_nowait(None if is_full else change)
        return not is_full


class Tables:
    """See the module."""

    def __init__(self, view: HistoryView, contents: ViewContents | None, read_whole_log: ReadWholeLog) -> None:
        """``contents`` None: the log will be applied from its beginning."""
        self._view = view
        self._read_whole_log = read_whole_log
        self._heads: dict[TableKey, TableHead] = dict(contents.heads) if contents is not None else {}
        self._names: dict[str, list[TableId]] = {}
        """By source, as ``names_of`` answers, until a table comes along."""
        self._known: dict[TableKey, dict[int, RecordedChange]] = defaultdict(dict)
        for key, head in self._heads.items():
            self._known[key][head.newest.version] = head.newest
            _count_table(key, None, head)
        self._is_complete = contents is None
        self._completing = asyncio.Lock()
        self._unsynced: list[tuple[int, TableKey]] = []
        """Offset in the log and table of each change that the view may lack."""
        self._synced_offset = contents.next_offset if contents is not None else 0
        self._watchers: set[Watcher] = set()

    def apply(self, record: LogRecord) -> None:
        """Take one record of the log in; one that is known already changes nothing."""
        change = kafka_log.decode(record)
        if change is None:
            return
        key = (change.source, change.table_id)
        head = self._heads.get(key)
        if head is not None and change.version <= head.last_version:
            return
        if head is None:
            self._names.pop(change.source, None)
        self._heads[key] = advance(head, change)
        self._known[key][change.version] = change
        self._unsynced.append((record.offset, key))
        _count_table(key, head, self._heads[key])
        for watcher in [watcher for watcher in self._watchers if watcher.source == change.source]:
            if not watcher.notify(change):
                self._watchers.discard(watcher)

    def head(self, key: TableKey) -> TableHead | None:
        """None: the table was never recorded."""
        return self._heads.get(key)

    def names_of(self, source: str) -> list[TableId]:
        """All tables of a source, dropped ones too, in order."""
        names = self._names.get(source)
        if names is None:
            names = self._names[source] = sorted(table_id for name, table_id in self._heads if name == source)
        return names

    async def version(self, key: TableKey, version: int) -> RecordedChange | None:
        """One version of a table; None: it was never recorded."""
        head = self._heads.get(key)
        if head is None or not 1 <= version <= head.last_version:
            return None
        await self._fetch(key, [version])
        return self._known[key].get(version)

    async def versions(self, key: TableKey) -> list[RecordedChange]:
        """Every version of a table, in the order of recording."""
        head = self._heads.get(key)
        if head is None:
            return []
        await self._fetch(key, range(1, head.last_version + 1))
        return [change for _, change in sorted(self._known[key].items())]

    async def at(self, key: TableKey, order: EventOrder | None) -> RecordedChange | None:
        """The change in force at ``order`` (None: now); None where there was no such table yet, or no longer."""
        head = self._heads.get(key)
        if head is None:
            return None
        if order is None or head.newest.order <= order:
            change: RecordedChange | None = head.newest
        else:
            change = schema_at(await self.versions(key), order)
        return change if change is not None and not change.is_drop else None

    async def _fetch(self, key: TableKey, wanted: list[int] | range) -> None:
        known = self._known[key]
        missing = [version for version in wanted if version not in known]
        if not missing or self._is_complete:
            return
        known.update(await self._view.versions(key, missing))
        if any(version not in known for version in missing):
            await self._complete()

    async def _complete(self) -> None:
        """Fetch everything from Kafka: the view lacks some of it."""
        async with self._completing:
            if self._is_complete:
                return
            SCHEMA_HISTORY_REBUILDS.inc()
            for change in await self._read_whole_log():
                self._known[change.source, change.table_id].setdefault(change.version, change)
            self._is_complete = True
            log.info("schema_history_read_whole", tables=len(self._heads))

    async def sync_view(self, passed_offset: int) -> None:
        """Bring the Redis view up to ``passed_offset``, below which all is applied; mends an empty or older view."""
        for upto, keys in self._steps_to(passed_offset):
            changes = [change for key in keys for change in self._superseded(key)]
            reaches = await self._view.extend(
                self._synced_offset, upto, changes, {key: self._heads[key] for key in keys}
            )
            if reaches is False:
                upto, reaches = passed_offset, await self._replace_view(passed_offset)
            if not reaches:
                return
            self._synced_offset = upto
            self._unsynced = [entry for entry in self._unsynced if entry[0] >= upto]
            if upto == passed_offset:
                return

    def _steps_to(self, passed_offset: int) -> list[tuple[int, set[TableKey]]]:
        """Tables that changed, a part at a time, each with the offset that the view reaches by it."""
        # Own changes are applied before the log is read up to them: those wait for the next time.
        covered = sorted((offset, key) for offset, key in self._unsynced if offset < passed_offset)
        parts = list(in_parts(covered)) or [[]]
        ends = [*(part[-1][0] + 1 for part in parts[:-1]), passed_offset]
        return [(end, {key for _, key in part}) for end, part in zip(ends, parts, strict=True)]

    def _superseded(self, key: TableKey) -> list[RecordedChange]:
        """The known changes of a table that its head does not hold."""
        newest = self._heads[key].newest.version
        return [change for version, change in self._known[key].items() if version != newest]

    async def _replace_view(self, passed_offset: int) -> bool:
        if self._is_complete:
            SCHEMA_HISTORY_REBUILDS.inc()
        await self._complete()
        superseded = [change for key in self._heads for change in self._superseded(key)]
        is_replaced = await self._view.replace(passed_offset, superseded, dict(self._heads))
        if is_replaced:
            changes = len(self._heads) + len(superseded)
            log.info("schema_view_rebuilt", tables=len(self._heads), changes=changes, next_offset=passed_offset)
        return is_replaced

    def watch(self, source: str) -> tuple[Watcher, list[RecordedChange]]:
        """A watcher of the changes from now on, and the newest change of each table until now. ``unwatch`` it."""
        watcher = Watcher(source)
        self._watchers.add(watcher)
        return watcher, [self._heads[source, table_id].newest for table_id in self.names_of(source)]

    def unwatch(self, watcher: Watcher) -> None:
        """Forget a watcher."""
        self._watchers.discard(watcher)

    def __len__(self) -> int:
        return len(self._heads)


def _count_table(key: TableKey, before: TableHead | None, after: TableHead) -> None:
    existed = before is not None and not before.newest.is_drop
    SCHEMA_HISTORY_TABLES.labels(key[0]).inc(int(not after.newest.is_drop) - int(existed))
