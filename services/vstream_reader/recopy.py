"""Incremental snapshots (``execute-snapshot``): tables copied again by a second VStream, beside the one that goes on.

The second stream copies one table at a time and delivers its copied rows only; changes come in the main stream. A copied row
has the place of its copy in its shard's log as its order: a change after it wins, and one before it, which the main stream may
yet bring, does not. So neither stream waits for the other. How far the copy got stands in the checkpoint with the rows, and a
reader that is started again goes on there.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import structlog

from libs.config.connections import KafkaSettings
from libs.errors import HeadwaterError, PipelineHalted
from libs.source.incremental import chunk_delivered, drop_table, is_same_copy, take_signal
from libs.source.signal_topic import SignalTopic
from libs.source.signals import ExecuteSnapshot, InvalidSignal, LogMessage, Signal, parse_signal
from libs.telemetry import metrics
from libs.types.checkpoint import IncrementalSnapshot, TableCopy
from libs.types.position import SourcePartition, SourcePosition
from protos.vitess import vtgate_pb2
from services.vstream_reader.decode import StreamDecoder
from services.vstream_reader.position import SOURCE_KIND, VitessPosition, decode_position
from services.vstream_reader.settings import VstreamReaderSettings
from services.vstream_reader.snapshot import recopy_request
from services.vstream_reader.vgtid import EMPTY, ShardGtid

log = structlog.get_logger()

RESHARD: Final = "reshard"
"""Stands for the signal's id where no signal asked for a copy."""

MakeDecoder = Callable[[VitessPosition, tuple[str, ...]], StreamDecoder]
"""A decoder of copied rows alone, at a position, for some tenants or (none named) for all."""


class Recopy:
    """What signals asked for, and the second stream that does it."""

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
        self._copy: TableCopy | None = None
        self.decoder: StreamDecoder | None = None
        """Of the second stream, while there is one."""

    def follow_signals(self, kafka: KafkaSettings) -> None:
        """From where the checkpoint says; without one, from the beginning that was kept."""
        source, name = self._labels
        partition = SourcePartition(source=source, name=name)
        self._topic = SignalTopic(kafka, partition, from_offset=self.state.signals_offset)

    def close(self) -> None:
        """End the signals' thread. Blocks shortly."""
        if self._topic is not None:
            self._topic.close()

    # --- signals -----------------------------------------------------------------------------------------------------------

    def take_signals(self, captured: Iterable[str]) -> bool:
        """Act on what has come; whether any did. ``captured``: names ``keyspace.table``."""
        records = self._topic.records() if self._topic is not None else []
        for record in records:
            if record.text is not None:
                try:
                    self._act_on(parse_signal(record.text), captured)
                except InvalidSignal as error:
                    log.warning("signal_refused", reason=str(error))
                    metrics.SIGNALS.labels(*self._labels, "refused").inc()
            self.state = msgspec.structs.replace(self.state, signals_offset=record.next_offset)
        return bool(records)

    def _act_on(self, signal: Signal, captured: Iterable[str]) -> None:
        if isinstance(signal, LogMessage):
            log.info("signal_logged", signal_id=signal.signal_id, message=signal.message)
        else:
            self.state, notes = take_signal(self.state, signal, captured)
            log.info("signal_taken", signal=type(signal).__name__, signal_id=signal.signal_id, not_done=notes)
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
    def is_to_end(self) -> bool:
        """The second stream copies what nobody wants now: it was stopped, or waits."""
        wanted = self._wanted
        return self._copy is not None and (wanted is None or not is_same_copy(wanted, self._copy))

    def ended(self) -> None:
        """The second stream was closed."""
        self._copy = self.decoder = None

    def due(self, main: VitessPosition) -> vtgate_pb2.VStreamRequest | None:
        """The second stream to open now; None: none is wanted, or it runs. ``main``: where the main stream stands."""
        copy = self._wanted
        if copy is None or self._copy is not None:
            return None
        position = _position_of(copy, self._settings.keyspace, main)
        self._copy, self.decoder = copy, self._make_decoder(position, copy.for_tenants)
        log.info("recopy_begins", table=copy.table, goes_on=bool(copy.last_key))
        if copy.surrogate_key:
            log.warning("surrogate_key_not_used", table=copy.table, reason="vtgate copies along the primary key")
        return recopy_request(self._settings, position, copy.table.partition(".")[2], copy.condition)

    def delivered(self) -> None:
        """Everything that ``decoder`` was fed is in the batch: the state for the checkpoint behind it."""
        decoder, copy = self.decoder, self._copy
        assert decoder is not None
        assert copy is not None
        here = msgspec.structs.replace(
            copy,
            last_key=decoder.position.token,
            rows_read=copy.rows_read + decoder.rows_copied,
            chunks_read=copy.chunks_read + decoder.transactions,
        )
        is_done = not decoder.is_copying
        self.state = chunk_delivered(self.state, here, is_last=is_done)
        if is_done:
            log.info("recopy_finished", table=copy.table, rows_read=here.rows_read)

    @property
    def is_done(self) -> bool:
        """The second stream has copied its table."""
        return self.decoder is not None and not self.decoder.is_copying

    def refuse(self, error: HeadwaterError) -> None:
        """The table cannot be copied: it is taken off the list, and the others go on."""
        assert self._copy is not None
        log.error("recopy_refused", table=self._copy.table, reason=str(error))
        self.state = drop_table(self.state, self._copy.table)
        self.ended()


def _position_of(copy: TableCopy, keyspace: str, main: VitessPosition) -> VitessPosition:
    """Where the copy of a table stands; at its beginning, in the epochs of the main stream."""
    if copy.last_key:
        try:
            return decode_position(SourcePosition(source_kind=SOURCE_KIND, token=copy.last_key))
        except PipelineHalted as error:
            log.warning("recopy_begins_anew", table=copy.table, reason=str(error))
    return VitessPosition(
        vgtid=tuple(ShardGtid(keyspace=keyspace, shard=entry.shard, gtid=EMPTY) for entry in main.vgtid),
        # A shard that gets its first place enters the next epoch (vgtid.shard_epoch): that shall be the main stream's.
        epochs={shard: epoch - 1 for shard, epoch in main.epochs.items()},
    )
