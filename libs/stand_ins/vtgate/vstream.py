"""One stream out of all shards': the work of vtgate's vstream_manager.

Vitess source ``go/vt/vtgate/vstream_manager.go``. Each shard has a thread that reads its tablet; a transaction is sent
whole, in as many responses as the tablet sent packets, with no other shard's events between. GTID and LASTPK become a
VGTID: where *every* shard stands. A journal ends its shards' streams when the last of its participants has met it; then the
new shards' begin, unless the client wants to stop there.
"""

import queue
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from libs.errors import HeadwaterError
from libs.stand_ins.vtgate.copy_phase import TabletRequest, TabletStream
from libs.stand_ins.vtgate.faults import OK, Faults
from libs.stand_ins.vtgate.log_stream import TabletOptions
from libs.stand_ins.vtgate.schemas import Schemas
from libs.stand_ins.vtgate.topology import LOG_HEARTBEAT_S, Refused, Topology
from protos.vitess.binlogdata_pb2 import Filter, Journal, MigrationType, Rule, ShardGtid, VEvent, VEventType, VGtid
from protos.vitess.topodata_pb2 import TabletType
from protos.vitess.vtgate_pb2 import VStreamFlags, VStreamRequest, VStreamResponse

MAX_SKEW_S: Final = 2
"""Shards whose events lie further apart are aligned, under minimize_skew; MySQL's time has whole seconds."""
STOP_ON_RESHARD_DELAY_S: Final = 0.5
"""So long a stream that ends at a journal stays open, so that the client has received it (``stopOnReshardDelay``)."""
_QUEUED_RESPONSES: Final = 8
_POLL_S: Final = 0.2
_TRANSACTION_ENDS: Final = frozenset((VEventType.COMMIT, VEventType.DDL, VEventType.OTHER))


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """An operator's choices for the whole server."""

    tablet: TabletOptions = field(default_factory=TabletOptions)
    chunk_events: int | None = None
    """A transaction's events are sent in responses of at most so many; None: in the tablet's packets."""
    knows_journal_flag: bool = True
    """Journals go to streams that ask for them; before Vitess 21 they are only with ``stop_on_reshard``."""


@dataclass(slots=True)
class _JournalMet:
    """A journal, and which of its shards have come to it."""

    journal: Journal
    waiting_for: set[tuple[str, str]]
    done: threading.Event = field(default_factory=threading.Event)


class VStream:
    """One client's stream; ``responses`` is run once, ``close`` ends it from any thread."""

    def __init__(
        self,
        request: VStreamRequest,
        topology: Topology,
        *,
        options: ServerOptions,
        schemas: Schemas,
        faults: Faults,
    ) -> None:
        self._topology = topology
        self._options = options
        self._schemas = schemas
        self._faults = faults
        self._flags = request.flags if request.HasField("flags") else VStreamFlags()
        self._tablet_type = request.tablet_type or TabletType.PRIMARY
        self._filter = request.filter if request.filter.rules else Filter(rules=[Rule(match="/.*")])
        self._positions = _resolved(request.vgtid, topology)
        self._lock = threading.Lock()
        self._queue: queue.Queue[VStreamResponse | Refused | None] = queue.Queue(_QUEUED_RESPONSES)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._copied: set[tuple[str, str]] = set()
        self._journals: dict[int, _JournalMet] = {}
        self._shard_times: dict[tuple[str, str], int] = {}
        self._sent_at_s = time.monotonic()

    def responses(self) -> Iterator[VStreamResponse]:
        """Until the client goes, or a reshard ends the stream. Raises Refused."""
        with self._lock:
            for shard_gtid in self._positions:
                self._start(shard_gtid)
        try:
            while not self._stop.is_set():
                try:
                    item = self._queue.get(timeout=_POLL_S)
                except queue.Empty:
                    if (heartbeat := self._heartbeat()) is not None:
                        yield heartbeat
                    continue
                if item is None:
                    return
                if isinstance(item, Refused):
                    raise item
                self._sent_at_s = time.monotonic()
                sent, error = self._faults.meet(item.events)
                if sent:
                    yield VStreamResponse(events=sent) if len(sent) < len(item.events) or error else item
                if error is not None and error.code == OK:
                    return
                if error is not None:
                    raise error
        finally:
            self.close()

    def close(self) -> None:
        """End the shards' threads; returns at once."""
        self._stop.set()

    def join(self) -> None:
        """Wait until they have ended: a second or so, because a silent log is heard from twice a second."""
        for thread in tuple(self._threads):
            thread.join()

    def _heartbeat(self) -> VStreamResponse | None:
        interval_s = self._flags.heartbeat_interval
        if not interval_s or time.monotonic() - self._sent_at_s < interval_s:
            return None
        self._sent_at_s = time.monotonic()
        return VStreamResponse(events=[VEvent(type=VEventType.HEARTBEAT, current_time=time.time_ns())])

    # --- shards ------------------------------------------------------------------------------------------------------------

    def _start(self, shard_gtid: ShardGtid) -> None:
        thread = threading.Thread(target=self._run, args=(shard_gtid,), daemon=True, name=f"shard {shard_gtid.shard}")
        self._threads.append(thread)
        thread.start()

    def _run(self, shard_gtid: ShardGtid) -> None:
        try:
            self._stream_shard(shard_gtid)
        except Refused as error:
            self._put(error)
        except HeadwaterError as error:
            self._put(Refused("UNAVAILABLE", f"vttablet: {error}"))
        except Exception as error:  # a bug of the stand-in: the client's test must see it, not wait for it
            self._put(Refused("INTERNAL", f"the stand-in failed: {error!r}"))
            raise

    def _stream_shard(self, shard_gtid: ShardGtid) -> None:
        """Read the shard's tablet; again from where it stood when another server has taken over its role."""
        keyspace, name = shard_gtid.keyspace, shard_gtid.shard
        while not self._stop.is_set():
            shard = self._topology.shard(keyspace, name)
            tablet = shard.tablet(self._tablet_type, _cells(self._flags))
            has_moved = threading.Event()
            stream = TabletStream(
                shard,
                tablet,
                TabletRequest(
                    position=shard_gtid.gtid,
                    table_p_ks=tuple(shard_gtid.table_p_ks),
                    filter=self._filter,
                    tables_to_copy=tuple(self._flags.tables_to_copy),
                    with_heartbeat_table=self._flags.stream_keyspace_heartbeats,
                ),
                vindex_columns=self._topology.keyspace(keyspace).vindex_columns,
                options=self._options.tablet,
                schemas=self._schemas,
                stop=self._stop,
            )
            pending: list[list[VEvent]] = []
            heard_at_s = time.monotonic()
            try:
                for packet in stream.packets():
                    if self._stop.is_set():
                        return
                    if packet:
                        heard_at_s = time.monotonic()
                    elif (
                        time.monotonic() - heard_at_s > LOG_HEARTBEAT_S / 2
                    ):  # the server also beats over skipped events
                        self._note_time(shard_gtid, int(time.time()))
                    pending, is_over = self._take(shard_gtid, pending, packet)
                    if is_over:
                        return
                    if not pending and not packet and self._has_moved(shard_gtid, tablet):
                        has_moved.set()
                        break
            except HeadwaterError:
                if not self._has_moved(shard_gtid, tablet):
                    raise
                has_moved.set()
            if not has_moved.is_set():
                return

    def _has_moved(self, shard_gtid: ShardGtid, tablet: object) -> bool:
        shard = self._topology.shard(shard_gtid.keyspace, shard_gtid.shard)
        return shard.tablet(self._tablet_type, _cells(self._flags)) != tablet

    def _take(
        self, shard_gtid: ShardGtid, pending: list[list[VEvent]], packet: list[VEvent]
    ) -> tuple[list[list[VEvent]], bool]:
        """Send whole transactions; give back the rest, and whether the shard's stream is over."""
        current: list[VEvent] = []
        for place, event in enumerate(packet):
            match event.type:
                case VEventType.FIELD | VEventType.ROW:
                    self._rename_table(event, shard_gtid.keyspace)
                    current.append(event)
                case VEventType.HEARTBEAT:
                    pass
                case VEventType.JOURNAL:
                    is_sent = self._sends_journals and event.journal.migration_type == MigrationType.SHARDS
                    end = _commit_after(packet, place)
                    if is_sent:
                        self._send(shard_gtid, [*pending, [*current, *packet[place:end]]])
                    if self._join_journal(shard_gtid, event.journal):
                        return [], True  # a BEGIN that was not sent never is
                    if is_sent:
                        return self._take(shard_gtid, [], packet[end:])
                case VEventType.COPY_COMPLETED:
                    current.append(event)
                    if (all_copied := self._all_copied(event)) is not None:
                        current.append(all_copied)
                    self._send(shard_gtid, [*pending, current])
                    pending, current = [], []
                case kind if kind in _TRANSACTION_ENDS:
                    current.append(event)
                    self._align(shard_gtid, event)
                    self._send(shard_gtid, [*pending, current])
                    pending, current = [], []
                case _:
                    current.append(event)
        return ([*pending, current] if current else pending), False

    @property
    def _sends_journals(self) -> bool:
        is_asked = self._flags.include_reshard_journal_events and self._options.knows_journal_flag
        return is_asked or self._flags.stop_on_reshard

    def _rename_table(self, event: VEvent, keyspace: str) -> None:
        if not self._flags.exclude_keyspace_from_table_name:
            named = event.field_event if event.type == VEventType.FIELD else event.row_event
            named.table_name = f"{keyspace}.{named.table_name}"

    # --- sending -----------------------------------------------------------------------------------------------------------

    def _send(self, shard_gtid: ShardGtid, chunks: Sequence[Sequence[VEvent]]) -> None:
        """A transaction, in one response for each chunk, with no other shard's events between."""
        with self._lock:
            for chunk in self._cut(chunks):
                events = [self._with_vgtid(shard_gtid, event) for event in chunk]
                self._put(VStreamResponse(events=events))

    def _cut(self, chunks: Sequence[Sequence[VEvent]]) -> Iterator[Sequence[VEvent]]:
        limit = self._options.chunk_events
        if limit is None:
            yield from chunks
            return
        whole = [event for chunk in chunks for event in chunk]
        for place in range(0, len(whole), limit):
            yield whole[place : place + limit]

    def _with_vgtid(self, shard_gtid: ShardGtid, event: VEvent) -> VEvent:
        """The event, or the VGTID that stands for it; the caller holds the lock."""
        if event.type == VEventType.GTID:
            shard_gtid.gtid = event.gtid
        elif event.type == VEventType.LASTPK:
            last = event.last_p_k_event.table_last_p_k
            kept = [known for known in shard_gtid.table_p_ks if known.table_name != last.table_name]
            if not event.last_p_k_event.completed:
                kept.append(last)
            del shard_gtid.table_p_ks[:]
            shard_gtid.table_p_ks.extend(kept)
        else:
            return event
        vgtid = VGtid(shard_gtids=self._positions)
        return VEvent(type=VEventType.VGTID, vgtid=vgtid, keyspace=event.keyspace, shard=event.shard)

    def _put(self, item: VStreamResponse | Refused | None) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=_POLL_S)
                return
            except queue.Full:
                continue

    def _all_copied(self, event: VEvent) -> VEvent | None:
        with self._lock:
            self._copied.add((event.keyspace, event.shard))
            if all((shard.keyspace, shard.shard) in self._copied for shard in self._positions):
                return VEvent(type=VEventType.COPY_COMPLETED)
        return None

    def _align(self, shard_gtid: ShardGtid, event: VEvent) -> None:
        """Under minimize_skew: wait while another shard lags by more than ``MAX_SKEW_S``; a silent one is not."""
        if not self._flags.minimize_skew or not event.timestamp:
            return
        self._note_time(shard_gtid, event.timestamp)
        waited_s = 0.0
        while not self._stop.is_set() and waited_s < 10 * MAX_SKEW_S:
            with self._lock:
                is_complete = len(self._shard_times) >= len(self._positions)
                slowest = min(self._shard_times.values())
            if is_complete and event.timestamp - slowest <= MAX_SKEW_S:
                return
            time.sleep(_POLL_S)
            waited_s += _POLL_S

    def _note_time(self, shard_gtid: ShardGtid, timestamp: int) -> None:
        """How far the shard is; a silent one is at the present."""
        with self._lock:
            self._shard_times[shard_gtid.keyspace, shard_gtid.shard] = timestamp

    # --- reshards ----------------------------------------------------------------------------------------------------------

    def _join_journal(self, shard_gtid: ShardGtid, journal: Journal) -> bool:
        """Wait for the journal's other shards; then the new ones take over. False: the journal concerns none of the stream's.

        Raises Refused: the stream has some of the journal's shards but not all.
        """
        if journal.migration_type == MigrationType.TABLES:
            return False
        own = (shard_gtid.keyspace, shard_gtid.shard)
        with self._lock:
            met = self._journals.get(journal.id)
            if met is None:
                streamed = {(shard.keyspace, shard.shard) for shard in self._positions}
                participants = {(shard.keyspace, shard.shard) for shard in journal.participants}
                if not participants & streamed:
                    return False
                if not participants <= streamed:
                    raise Refused(
                        "UNKNOWN",
                        f"not all journaling participants are in the stream: journal: {sorted(participants)}, "
                        f"stream: {sorted(streamed)}",
                    )
                met = self._journals[journal.id] = _JournalMet(journal, participants)
            met.waiting_for.discard(own)
            is_last = not met.waiting_for
            if is_last and not self._flags.stop_on_reshard:
                self._replace_shards(met.journal)
        if is_last:
            if self._flags.stop_on_reshard:
                time.sleep(STOP_ON_RESHARD_DELAY_S)
                self._put(None)
            met.done.set()
        while not met.done.wait(_POLL_S) and not self._stop.is_set():
            pass
        return True

    def _replace_shards(self, journal: Journal) -> None:
        """The caller holds the lock."""
        gone = {(shard.keyspace, shard.shard) for shard in journal.participants}
        self._positions = [shard for shard in self._positions if (shard.keyspace, shard.shard) not in gone]
        for target in journal.shard_gtids:
            self._positions.append(target)
            self._start(target)


def _commit_after(packet: Sequence[VEvent], place: int) -> int:
    """The place after the COMMIT that follows ``place``."""
    for later in range(place, len(packet)):
        if packet[later].type == VEventType.COMMIT:
            return later + 1
    return len(packet)


def _cells(flags: VStreamFlags) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in flags.cells.split(",") if cell.strip())


def _resolved(asked: VGtid, topology: Topology) -> list[ShardGtid]:
    """The positions with every keyspace and shard named (``resolveParams``). Raises Refused."""
    if not asked.shard_gtids:
        raise Refused("INVALID_ARGUMENT", "vgtid must have at least one value with a starting position")
    found: list[ShardGtid] = []
    for shard_gtid in _with_keyspaces(asked, topology):
        if shard_gtid.shard:
            topology.shard(shard_gtid.keyspace, shard_gtid.shard)
            found.append(shard_gtid)
            continue
        if shard_gtid.gtid not in ("", "current"):
            raise Refused(
                "INVALID_ARGUMENT",
                f"if shards are unspecified, the Gtid value must be 'current' or empty; got: {asked}",
            )
        found += [
            ShardGtid(keyspace=shard.keyspace, shard=shard.name, gtid=shard_gtid.gtid)
            for shard in topology.serving(shard_gtid.keyspace)
        ]
    return found


def _with_keyspaces(asked: VGtid, topology: Topology) -> list[ShardGtid]:
    first = asked.shard_gtids[0]
    is_pattern = first.keyspace.startswith("/")
    if len(asked.shard_gtids) != 1 or not (is_pattern or not first.keyspace):
        return list(asked.shard_gtids)
    if not is_pattern and first.gtid != "current":
        raise Refused("INVALID_ARGUMENT", f"for an empty keyspace, the Gtid value must be 'current': {asked}")
    pattern = re.compile(first.keyspace[1:])
    found = [
        ShardGtid(keyspace=keyspace.name, gtid=first.gtid)
        for keyspace in topology.keyspaces
        if pattern.search(keyspace.name)
    ]
    if not found:
        raise Refused("INVALID_ARGUMENT", f"no keyspace matches {first.keyspace}")
    return found
