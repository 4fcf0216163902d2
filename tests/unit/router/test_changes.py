"""ChangeBatches read in place: the values that protobuf's classes would read, and rubbish."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch, Entry, Run, TableChange, TransactionBoundary
from services.router.batches.changes import Run as RunInPlace
from services.router.batches.changes import read_entries

TEXT = st.text(max_size=5)
RUNS = st.lists(
    st.tuples(st.sampled_from(b"cudrtDC"), st.binary(max_size=5), st.binary(max_size=200)), max_size=9
).flatmap(
    lambda rows: st.builds(
        Run,
        database=TEXT,
        table=TEXT,
        schema_version=st.integers(0, (1 << 32) - 1),
        transaction_id=TEXT,
        epoch=st.integers(0, (1 << 32) - 1),
        rank=TEXT,
        first_tx_ordinal=st.integers(0, (1 << 64) - 1),
        committed_at_us=st.integers(-(1 << 63), (1 << 63) - 1),
        is_snapshot=st.booleans(),
        ops=st.just(bytes(op for op, _, _ in rows)),
        keys=st.just([key for _, key, _ in rows]),
        values=st.just([value for _, _, value in rows]),
        for_tenants=st.lists(TEXT, max_size=3),
    )
)
ENTRIES = st.one_of(
    st.builds(Entry, run=RUNS),
    st.builds(Entry, table_change=st.builds(TableChange, database=TEXT, value=st.binary(max_size=9))),
    st.builds(Entry, transaction_boundary=st.builds(TransactionBoundary, transaction_id=TEXT)),
)
BATCHES = st.builds(
    ChangeBatch,
    source=TEXT,
    fencing_token=st.integers(0, (1 << 64) - 1),
    published_at_us=st.integers(-1, 1 << 60),
    entries=st.lists(ENTRIES, max_size=5),
    removed_fields=st.lists(TEXT, max_size=3),
    has_ordered_transactions=st.booleans(),
)
FIELDS = [field.name for field in Run.DESCRIPTOR.fields]


@given(BATCHES)
def test_batch_is_read_as_protobuf_reads_it(batch: ChangeBatch) -> None:
    """Every field of every entry, in order, and the fields around the entries."""
    head, entries = read_entries(batch.SerializeToString())

    expected = [getattr(entry, entry.WhichOneof("entry")) for entry in batch.entries]
    for entry, message in zip(entries, expected, strict=True):
        if isinstance(entry, RunInPlace):
            read = {name: getattr(entry, name) for name in FIELDS} | {"for_tenants": [*entry.for_tenants]}
            assert read == {name: getattr(message, name) for name in FIELDS}
            assert len(entry) == len(message.values)
            assert entry.largest_key == max(map(len, message.keys), default=0)
            assert entry.largest_value == max(map(len, message.values), default=0)
        else:
            assert entry == message
    del batch.entries[:]
    assert ChangeBatch.FromString(head) == batch


def test_fields_that_a_newer_reader_adds_are_passed_over() -> None:
    """In the batch and in a run."""
    unknown = b"\xc0\x3e\x05"  # field 1000, a number
    run = Run(table="t", ops=b"c", keys=[b"k"], values=[b"v"]).SerializeToString() + unknown
    payload = ChangeBatch(source="s").SerializeToString() + unknown + b"\x3a%c\x0a%c" % (len(run) + 2, len(run)) + run

    head, (read,) = read_entries(payload)

    assert ChangeBatch.FromString(head).source == "s"
    assert isinstance(read, RunInPlace)
    assert (read.table, read.keys, read.values) == ("t", [b"k"], [b"v"])


@pytest.mark.parametrize(
    "entry",
    [
        Entry(),
        Entry(run=Run(ops=b"cc", keys=[b"k"], values=[b"v"])),
        Entry(run=Run(ops=b"c", keys=[b"k", b"l"], values=[b"v"])),
        Entry(run=Run(ops=b"c", keys=[b"k"])),
    ],
)
def test_entry_that_does_not_add_up_is_refused(entry: Entry) -> None:
    """Rows would get one another's values."""
    with pytest.raises(ValueError, match=r"a run of|an entry"):
        read_entries(ChangeBatch(entries=[entry]).SerializeToString())


@given(BATCHES, st.data())
def test_damaged_batch_is_an_error_or_a_batch(batch: ChangeBatch, data: st.DataObject) -> None:
    """Cut short or with a byte changed: nothing is read beyond its end."""
    payload = bytearray(batch.SerializeToString())
    if payload:
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(payload[: data.draw(st.integers(0, len(payload)))])

    try:
        _, entries = read_entries(cut)
    except (ValueError, DecodeError):
        return

    for entry in entries:
        if isinstance(entry, RunInPlace):
            assert len(entry.keys) == len(entry.values) == len(entry.ops)
