"""Gathered runs are one ChangeBatch, in their order."""

from libs.events.batch import OP_CREATE, BatchBuilder, BatchIdentity, RowRun
from libs.types.order import EventOrder
from libs.types.table import TableId
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch

IDENTITY = BatchIdentity(source="s", source_partition="0", connector="vitess", run_id="r", fencing_token=1)


def run_of(table: str) -> RowRun:
    return RowRun(
        table_id=TableId(database="shop", table=table),
        schema_version=1,
        transaction_id="t",
        first_order=EventOrder(epoch=0, rank=1, tx_ordinal=1),
        committed_at_us=1,
        is_snapshot=False,
    )


def test_large_and_small_runs_stand_in_their_order() -> None:
    """A large one is copied when the batch is taken, a small one before: nobody sees which."""
    batch = BatchBuilder(IDENTITY)
    sizes = {"small": 10, "large": 100_000, "last": 20}
    for table, size in sizes.items():
        rows = batch.open_run(run_of(table)).rows
        for nth in range(2):
            rows.append(OP_CREATE, b"%d" % nth, bytes([nth]) * size)
    batch.close_run()
    size_before = batch.size_bytes

    payload, count = batch.take(published_at_us=7)

    made = ChangeBatch.FromString(payload)
    assert (count, made.source, made.published_at_us) == (6, "s", 7)
    assert [(entry.run.table, list(entry.run.keys), list(entry.run.values)) for entry in made.entries] == [
        (table, [b"0", b"1"], [bytes(size), b"\x01" * size]) for table, size in sizes.items()
    ]
    assert 200_060 < size_before <= len(payload)
    assert batch.take(published_at_us=8) == (b"", 0)
