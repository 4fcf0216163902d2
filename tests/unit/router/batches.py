"""Runs for the router's tests, and the records that aiokafka's reader finds in the batches made of them."""

from collections.abc import Sequence
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch

from libs.events.run_rows import RunRows
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch, Entry
from protos.headwater.changes.v1.change_batch_pb2 import Run as RunMessage
from services.router.batches.changes import Run, read_entries
from services.router.records.record_batch import CODECS, Codec, RecordBatch, Records, empty_batch, take_body
from services.router.records.record_bytes import BatchRecords, PassedRows

MOMENT_MS = 1_700_000_000_123


def run_of(rows: Sequence[tuple[int, bytes, bytes]], *, first: int = 1, snapshot: bool = False) -> Run:
    """A run as the router reads it, of (op, key, value)."""
    gathered = RunRows()
    for row in rows:
        gathered.append(*row)
    head = RunMessage(ops=gathered.ops, first_tx_ordinal=first, is_snapshot=snapshot)
    entry = Entry(run=RunMessage.FromString(head.SerializeToString() + gathered.encoded()))
    _, (run,) = read_entries(ChangeBatch(entries=[entry]).SerializeToString())
    assert isinstance(run, Run)
    return run


def built(batch: BatchRecords, codec: Codec) -> bytes:
    """The batch's bytes, as a transactional producer sends them."""
    count = batch.record_count
    sent = RecordBatch(take_body(batch, codec), MOMENT_MS)
    sent._set_producer_state(11, 22, 33)
    whole = sent._build()

    assert sent.size() == len(whole)
    assert sent.record_count() == count
    assert sent._build() is whole
    return bytes(whole)


def read_back(records: Records | PassedRows, compression: str = "none") -> list[Any]:
    """All of these records, from one batch or several."""
    codec = CODECS[compression]()
    read: list[Any] = []
    done, count = 0, len(records) if isinstance(records, PassedRows) else len(records.values)
    while done < count:
        batch = empty_batch(codec)
        done = batch.add_rows(records, done) if isinstance(records, PassedRows) else batch.add_columns(*records, done)
        whole = DefaultRecordBatch(built(batch, codec))
        assert whole.validate_crc()
        read += whole
    return read
