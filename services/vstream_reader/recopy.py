"""Incremental snapshots (``execute-snapshot``): tables copied again by a second VStream, beside the one that goes on.

The second stream copies one table at a time and delivers its copied rows only; changes come in the main stream. A copied row
has the place of its copy in its shard's log as its order: a change after it wins, and one before it, which the main stream may
yet bring, does not. So neither stream waits for the other. How far the copy got stands in the checkpoint with the rows, and a
reader that is started again goes on there.

vtgate copies nothing from the shards that a reshard brings. So a table whose copy a reshard cuts short is copied from its
beginning, from the shards that the main stream reads once it has followed the reshard. Whichever stream meets it first: a copy
of shards that the main stream has left is not gone on with either. Rows that came twice have their orders.

A fault of the second stream stays its own: a table or condition that vtgate refuses leaves the list, everything
that passes is tried again, and the main stream goes on meanwhile.
"""

import time
from collections.abc import Callable, Iterable, Set
from typing import Final

import msgspec
import structlog

from libs.config.connections import KafkaSettings
from libs.errors import HeadwaterError, PipelineHalted, PositionPurged, TransientError
from libs.source.incremental import chunk_delivered, drop_first, from_beginning, has_begun, put_first, take_signal
from libs.source.kept_faults import lift_after_copy
from libs.source.signal_outcomes import note_finished, note_given_up, note_refused, note_taken
from libs.source.signal_topic import SignalTopic, passed_signal
from libs.source.signals import ExecuteSnapshot, InvalidSignal, LogMessage, Signal, id_of, parse_signal
from libs.source.vitess.vgtid import EMPTY, ShardGtid
from libs.telemetry import metrics
from libs.telemetry.faults import COPY_REFUSED, lift_fault, raise_fault
from libs.types.checkpoint import IncrementalSnapshot, TableCopy
from libs.types.fault import FaultScope
from libs.types.position import SourcePartition, SourcePosition
from protos.vitess import vtgate_pb2
from services.vstream_reader.client import ShardsNotInStream
from services.vstream_reader.copy_progress import copying_shards
from services.vstream_reader.decode import StreamDecoder
from services.vstream_reader.position import SOURCE_KIND, VitessPosition, begun_again, decode_position, position_of
from services.vstream_reader.settings import VstreamReaderSettings
from services.vstream_reader.snapshot import recopy_request

log = structlog.get_logger()

RESHARD: Final = "reshard"
"""Stands for the signal's id where no signal asked for a copy."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
"""Before a second stream that broke is opened again, twice as long each time that it brought nothing."""

MakeDecoder = Callable[[VitessPosition, tuple[str, ...]], StreamDecoder]
"""A decoder of copied rows alone, at a position, for some tenants or (none named) for all."""


class Recopy:
    """The signals' requests, and the second stream that serves them."""

    def __init__(
        self,
        settings: VstreamReaderSettings,
        state: IncrementalSnapshot,
        *,
        labels: tuple[str, str],
        make_decoder: MakeDecoder,
    ) -> None:
        self._settings = settings
        self.state = state
        """For the checkpoint."""
        self._labels = labels
        self._topic: SignalTopic | None = None
        self._make_decoder = make_decoder
        self.decoder: StreamDecoder | None = None
        """Of the second stream, while there is one."""
        self._opened: TableCopy | None = None
        """Its tables, as of its opening."""
        self._running: TableCopy | None = None
        """The same as it stands now: the first in ``state``, unless a signal has acted since."""
        self._left: frozenset[str] = frozenset()
        """Shards that the second stream saw ending: the main stream has to leave them before the copy begins again."""
        self._begun_us: dict[str, int] = {}
        """When this process began a table's copy; without those that an earlier one began."""
        self._opens_at_s = 0.0
        self._pause_s = _FIRST_PAUSE_S

    def follow_signals(self, kafka: KafkaSettings) -> None:
        """From where the checkpoint says; without one, from the beginning that was kept."""
        source, name = self._labels
        partition = SourcePartition(source=source, name=name)
        self._topic = SignalTopic(kafka, partition, self.state)

    def close(self) -> None:
        """End the signals' thread. Blocks shortly."""
        if self._topic is not None:
            self._topic.close()

    # --- signals -----------------------------------------------------------------------------------------------------------

    def take_signals(self, captured: Iterable[str]) -> bool:
        """Act on arrived signals; returns whether there were any. ``captured``: names ``keyspace.table``."""
        records = self._topic.records() if self._topic is not None else []
        for record in records:
            if record.text is not None:
                try:
                    self._act_on(parse_signal(record.text), captured)
                except InvalidSignal as error:
                    log.warning("signal_refused", reason=str(error))
                    note_refused(self._labels, id_of(record.text), str(error))
                    metrics.SIGNALS.labels(*self._labels, "refused").inc()
            self.state = passed_signal(self.state, record)
        return bool(records)

    def _act_on(self, signal: Signal, captured: Iterable[str]) -> None:
        """Raises InvalidSignal: vtgate cannot do it; nothing of it is done."""
        if isinstance(signal, LogMessage):
            log.info("signal_logged", signal_id=signal.signal_id, message=signal.message)
            note_taken(self._labels, signal, self.state)
        else:
            if isinstance(signal, ExecuteSnapshot) and signal.surrogate_key:
                raise InvalidSignal(
                    f"execute-snapshot {signal.signal_id!r}: surrogate-key: vtgate copies a table along its primary key alone; "
                    "send the signal without it"
                )
            self.state, notes = take_signal(self.state, signal, captured)
            log.info("signal_taken", signal=type(signal).__name__, signal_id=signal.signal_id, not_done=notes)
            note_taken(self._labels, signal, self.state, notes)
        metrics.SIGNALS.labels(*self._labels, "taken").inc()

    def want(self, tables: Iterable[str]) -> None:
        """Copy tables again that a reshard kept from being copied to their end; names ``keyspace.table``."""
        names = tuple(tables)
        signal = ExecuteSnapshot(signal_id=RESHARD, tables=names)
        self.state, _ = take_signal(self.state, signal, names)

    # --- the second stream -------------------------------------------------------------------------------------------------

    @property
    def _wanted(self) -> TableCopy | None:
        return None if self.state.is_paused or not self.state.tables else self.state.tables[0]

    @property
    def is_busy(self) -> bool:
        """Something is wanted, or is being copied: the second stream may be to open or to end."""
        return self._wanted is not None or self.decoder is not None

    def is_to_end(self, main_shards: Set[str]) -> bool:
        """The second stream copies unwanted tables (stopped, or waiting ones), or from shards that the main stream has
        left."""
        if self.decoder is None:
            return False
        return self._wanted != self._running or not self.decoder.shards.copy.shards <= main_shards

    def ended(self) -> None:
        """The second stream was closed."""
        self._opened = self._running = self.decoder = None

    def due(self, main: StreamDecoder, now_s: float) -> vtgate_pb2.VStreamRequest | None:
        """The second stream to open now, beside ``main``; None: none is wanted, or it runs, or waits."""
        copy, shards = self._wanted, main.shards.names
        # Before its first VGTID the main stream may not know the shards of its keyspace.
        if copy is None or self.decoder is not None or now_s < self._opens_at_s or self._left & shards or "" in shards:
            return None
        self._left = frozenset()
        position = _place_of(copy, shards)
        goes_on = position is not None
        if position is None:
            position = _beginning(self._settings.keyspace, main.shards.place)
            copy = _restarted(copy, position)
            self.state = put_first(self.state, copy)
            self._begun_us[copy.table] = time.time_ns() // 1_000
        self._opened = self._running = copy
        self.decoder = self._make_decoder(position, copy.for_tenants)
        log.info("recopy_begins", table=copy.table, condition=copy.condition, goes_on=goes_on)
        return recopy_request(self._settings, position, copy.table.partition(".")[2], copy.condition)

    def pass_over(self) -> None:
        """The main stream reads no shard, so nothing is to be copied: requests count as done."""
        while (copy := self._wanted) is not None:
            self.state = chunk_delivered(self.state, copy, is_last=True)
            note_finished(self._labels, copy)

    @property
    def running(self) -> TableCopy | None:
        """The second stream's tables and progress; None: there is none."""
        return self._running

    def expect(self, rows: int) -> None:
        """The table that is being copied has about so many rows."""
        assert self._opened is not None
        assert self._running is not None
        self._opened = msgspec.structs.replace(self._opened, rows_estimated=rows)
        self._running = msgspec.structs.replace(self._running, rows_estimated=rows)
        self.state = put_first(self.state, self._running)

    def delivered(self) -> bool:
        """Everything that ``decoder`` was fed is in the batch: the state for the checkpoint after it. True: the second stream
        has no more to bring."""
        decoder, opened = self.decoder, self._opened
        assert decoder is not None
        assert opened is not None
        if decoder.shards.copy.cut_short:
            self._begin_again(frozenset(decoder.shards.copy.cut_short), "a reshard ended its shards")
            return True
        here = msgspec.structs.replace(
            opened,
            last_key=decoder.shards.position.token,
            rows_read=opened.rows_read + decoder.progress.rows_copied,
            chunks_read=opened.chunks_read + decoder.progress.transactions,
        )
        before, self._running = self._running, here
        is_done = not decoder.shards.copy.is_running
        self.state = chunk_delivered(self.state, here, is_last=is_done)
        if before is not None and here.chunks_read > before.chunks_read:
            self._pause_s = _FIRST_PAUSE_S
            metrics.INCREMENTAL_CHUNKS.labels(*self._labels).inc(here.chunks_read - before.chunks_read)
        if is_done:
            log.info("incremental_table_finished", table=here.table, rows_read=here.rows_read)
            lift_fault(COPY_REFUSED, FaultScope(source=self._settings.source, table=here.table))
            note_finished(self._labels, here)
            begun_us = self._begun_us.pop(here.table, None)
            if begun_us is not None and not here.condition and not here.for_tenants:
                lift_after_copy(self._settings.source, here.table, begun_us=begun_us)
        return is_done

    def broke(self, error: HeadwaterError | None, now_s: float) -> None:
        """The second stream ended before its copy did: with an error, or as at a reshard where vtgate is set to end streams
        (``stream.stop_on_reshard``). The table is tried again, from its beginning where that is due; or it leaves the list.
        """
        decoder, running = self.decoder, self._running
        assert decoder is not None
        assert running is not None
        match error:
            case None if decoder.shards.begun.held:
                if decoder.shards.begun.held & decoder.shards.copy.shards:
                    self._begin_again(decoder.shards.begun.held, "a reshard ended its shards")
                self._left = decoder.shards.begun.held
            case PositionPurged() | ShardsNotInStream():
                # The shard stood still for too long; or the shard to join was finished, or is another task's, and the main
                # stream will end by that.
                self._begin_again(frozenset(), str(error))
                self._wait(now_s, running.table, error)
            case None | TransientError():
                self._wait(now_s, running.table, error)
            case _:
                log.error("incremental_table_refused", table=running.table, reason=str(error))
                scope = FaultScope(source=self._settings.source, table=running.table)
                raise_fault(COPY_REFUSED, scope, happened=str(error))
                note_given_up(self._labels, [running], str(error))
                self.state = drop_first(self.state)

    def _begin_again(self, left: frozenset[str], reason: str) -> None:
        assert self._running is not None
        log.warning("recopy_restarted", table=self._running.table, reason=reason)
        self._left = left
        self.state = put_first(self.state, from_beginning(self._running))

    def _wait(self, now_s: float, table: str, error: HeadwaterError | None) -> None:
        reason = str(error) if error is not None else "vtgate ended the stream"
        log.warning("recopy_interrupted", table=table, reason=reason, again_in_s=self._pause_s)
        self._opens_at_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def _place_of(copy: TableCopy, shards: Set[str]) -> VitessPosition | None:
    """Where a copy goes on; None: it begins, or begins again since a reshard has ended shards that it had not finished.

    ``shards``: of the main stream. Shards that ended when they were finished are left out: nothing more is to come of them.
    """
    if not has_begun(copy):
        return None
    try:
        place = decode_position(SourcePosition(source_kind=SOURCE_KIND, token=copy.last_key))
    except PipelineHalted as error:
        log.warning("recopy_restarted", table=copy.table, reason=str(error))
        return None
    copying = copying_shards(place)
    if not copying <= shards:
        ended = ", ".join(sorted(copying - shards))
        log.warning("recopy_restarted", table=copy.table, reason=f"a reshard ended its shards {ended}")
        return None
    place = msgspec.structs.replace(place, vgtid=tuple(entry for entry in place.vgtid if entry.shard in shards))
    return begun_again(place, {shard for shard, keys in place.copied.items() if not keys})


def _beginning(keyspace: str, main: VitessPosition) -> VitessPosition:
    """Of a copy, in the epochs of the main stream."""
    return VitessPosition(
        vgtid=tuple(ShardGtid(keyspace=keyspace, shard=entry.shard, gtid=EMPTY) for entry in main.vgtid),
        # A shard that gets its first place enters the next epoch (vgtid.shard_epoch): that shall be the main stream's.
        epochs={shard: epoch - 1 for shard, epoch in main.epochs.items()},
    )


def _restarted(copy: TableCopy, beginning: VitessPosition) -> TableCopy:
    """The copy as one that has begun: a later request for the table has it read again afterwards."""
    return msgspec.structs.replace(
        copy, last_key=position_of(beginning).token, rows_read=0, rows_estimated=0, chunks_read=0
    )
