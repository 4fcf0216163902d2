"""The batches of a reader: both streams gather rows here, and each batch is cut with the place to resume from."""

import dataclasses
import time

from libs.events.batch import BatchBuilder, BatchIdentity
from libs.events.dead_letter import UndecodedRow, encode_undecoded_row
from libs.source.failure_handling import LeftOut
from libs.source.port import ReadBatch, ResumePoint
from libs.source.vitess.settings import TransactionMetadata
from libs.types.order import EventOrder
from services.vstream_reader.settings import VstreamReaderSettings


class Gatherer:
    """Rows, schema changes and rows left out, in stream order, until they are taken as a batch."""

    def __init__(self, settings: VstreamReaderSettings, identity: BatchIdentity) -> None:
        self.entries = BatchBuilder(
            dataclasses.replace(
                identity,
                removed_fields=settings.events.remove_fields,
                has_ordered_transactions=settings.events.transaction_metadata is TransactionMetadata.ORDERED,
            )
        )
        self._left_out = LeftOut(settings.failure_handling, settings.source, identity.source_partition)
        self._greatest = EventOrder(epoch=0, rank=0, tx_ordinal=0)

    @property
    def goes_on(self) -> bool:
        """A row that cannot be decoded is left out, and the others go on."""
        return self._left_out.goes_on

    def set_aside(self, row: UndecodedRow) -> None:
        """A row that could not be decoded."""
        self._left_out.add(row.reason, encode_undecoded_row(row), table=f"{row.database}.{row.table}")

    def greatest(self, order: EventOrder) -> EventOrder:
        """The greatest order that was asked about, this one included: a shard that was let go may have had it, and no
        checkpoint may go backwards."""
        self._greatest = max(self._greatest, order)
        return self._greatest

    def take(self, resume: ResumePoint | None) -> ReadBatch:
        """Everything gathered, as one batch."""
        payload, rows = self.entries.take(time.time_ns() // 1_000)
        return ReadBatch(payload=payload, rows=rows, resume=resume, dead_letters=self._left_out.taken())
