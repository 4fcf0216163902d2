"""Our record batches are Kafka's: read back by aiokafka's reader, which checks the checksum."""

import random

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from services.router.records.partitioner import kafka_partition_of
from services.router.records.record_batch import (
    CODECS,
    MAX_BATCH_BYTES,
    MAX_BATCH_RECORDS,
    MAX_SENT_BYTES,
    NO_HEADERS,
    Records,
    empty_batch,
    encode_header,
    join_headers,
    lead_headers,
    payload_size,
)
from services.router.records.record_bytes import BatchRecords, PassedRows, ordinal_headers, total_size
from tests.unit.router.batches import MOMENT_MS, built, read_back, run_of

SIX_HEADERS = [(f"name-{number}", b"value" * number) for number in range(6)]


def encoded(pairs: list[tuple[str, bytes]]) -> bytes:
    """A record's headers."""
    return join_headers(*(encode_header(name, value) for name, value in pairs))


def mixed_records(count: int) -> Records:
    """Keys, values and headers of all lengths, with nothing in some places."""
    chance = random.Random(7)

    def text(limit: int) -> bytes | None:
        return None if chance.random() < 0.1 else b"ab" * chance.randrange(limit)

    keys = [text(100) for _ in range(count)]
    values = [text(20_000) for _ in range(count)]
    return Records(keys, values, [encoded(SIX_HEADERS[: chance.randrange(7)]) for _ in range(count)])


def batch_of(records: Records, compression: str = "none") -> bytes:
    """All of them in one batch, however large."""
    codec = CODECS[compression]()
    batch = BatchRecords(codec.take_piece, most_bytes=1 << 40, most_kept_bytes=1 << 40, most_records=1 << 40)

    assert batch.add_columns(*records, 0) == len(records.values)
    return built(batch, codec)


def test_uncompressed_batch_is_byte_for_byte_aiokafkas() -> None:
    """An independent writer of the same records gives the same bytes."""
    records = mixed_records(300)
    theirs = DefaultRecordBatchBuilder(2, 0, 1, 11, 22, 33, 1 << 30)
    for offset, (key, value, headers) in enumerate(zip(*records, strict=True)):
        count = headers[0] // 2
        assert theirs.append(offset, MOMENT_MS, key, value, SIX_HEADERS[:count]) is not None

    # The reader sets the leader epoch itself, and it is outside of the checksum; aiokafka writes 0 or -1 there by release.
    expected = bytes(theirs.build())

    whole = batch_of(records)

    assert whole[16:] == expected[16:]
    assert whole[:12] == expected[:12]


@pytest.mark.parametrize("compression", CODECS)
def test_batch_is_read_back_in_every_compression(compression: str) -> None:
    """Columns of all lengths, over many pieces."""
    records = mixed_records(300)

    batch = DefaultRecordBatch(batch_of(records, compression))

    assert batch.validate_crc()
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (11, 22, 33)
    read = list(batch)
    assert [(record.key, record.value) for record in read] == list(zip(records.keys, records.values, strict=True))
    assert [record.offset for record in read] == list(range(300))
    assert [encoded(list(record.headers)) for record in read] == list(records.headers)
    assert {record.timestamp for record in read} == {MOMENT_MS}


def test_compressed_batch_is_smaller() -> None:
    """It is compressed indeed."""
    records = mixed_records(300)

    assert all(len(batch_of(records, name)) < len(batch_of(records)) / 2 for name in CODECS if name != "none")


def test_largest_count_is_read_back() -> None:
    """The places of ten thousand records; the next would be one too many."""
    count = MAX_BATCH_RECORDS + 1
    records = Records([b"k"] * count, [b"v"] * count, [NO_HEADERS] * count)
    codec = CODECS["lz4"]()
    batch = empty_batch(codec)

    assert batch.add_columns(*records, 0) == MAX_BATCH_RECORDS
    assert [record.offset for record in DefaultRecordBatch(built(batch, codec))] == list(range(MAX_BATCH_RECORDS))


def test_leading_header_stands_before_the_others() -> None:
    """As a key change wants it."""
    others = encoded(SIX_HEADERS)

    assert lead_headers(encode_header("first", b"1"), others) == encoded([("first", b"1"), *SIX_HEADERS])


def random_bytes(size: int) -> bytes:
    """Bytes that nothing makes smaller."""
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("value", [b"ab" * 20_000, random_bytes(40_000)])
def test_batch_ends_below_what_a_broker_takes(compression: str, value: bytes) -> None:
    """Whether or not the records can be compressed: as it is sent, and as a consumer unpacks it."""
    records = Records([b"k"] * 200, [value] * 200, [NO_HEADERS] * 200)
    codec = CODECS[compression]()
    batch, done, sizes = empty_batch(codec), 0, []

    while done < 200:
        done = batch.add_columns(*records, done)
        assert batch.size_bytes <= MAX_BATCH_BYTES
        sizes.append(len(built(batch, codec)))

    assert max(sizes) <= MAX_SENT_BYTES + 200
    assert len(sizes) < 13


def test_record_larger_than_a_batch_goes_alone() -> None:
    """Between its neighbours, whole."""
    records = Records([None] * 3, [b"x", random_bytes(3_000_000), b"y"], [NO_HEADERS] * 3)
    codec = CODECS["lz4"]()
    batch, ends = empty_batch(codec), []

    while (ends or [0])[-1] < 3:
        ends.append(batch.add_columns(*records, (ends or [0])[-1]))
        batch.take_pieces()

    assert ends == [1, 2, 3]
    assert [record.value for record in read_back(records, "lz4")] == records.values


@pytest.mark.parametrize("compression", CODECS)
def test_codec_serves_batches_that_grow_beside_one_another(compression: str) -> None:
    """Pieces of several topics' batches come in turns; a copy goes its own way."""
    codec = CODECS[compression]()
    one, other = empty_batch(codec), empty_batch(codec)
    parts = [mixed_records(12) for _ in range(3)]
    for part in parts:
        one.add_columns(*part, 0)
        other.add_columns(part.values, part.keys, part.headers, 0)
    copy = one.copy()
    copy.add_columns([b"copied"], [b"alone"], [NO_HEADERS], 0)

    read = [[(record.key, record.value) for record in DefaultRecordBatch(built(b, codec))] for b in (one, other, copy)]

    pairs = [pair for part in parts for pair in zip(part.keys, part.values, strict=True)]
    assert read == [pairs, [(value, key) for key, value in pairs], [*pairs, (b"copied", b"alone")]]


def test_batch_is_empty_once_it_was_taken() -> None:
    """And may be filled again."""
    codec = CODECS["lz4"]()
    batch = empty_batch(codec)
    for value in (b"first", b"second"):
        batch.add_columns([b"k"], [value], [NO_HEADERS], 0)

        assert [record.value for record in DefaultRecordBatch(built(batch, codec))] == [value]
        assert (batch.record_count, batch.size_bytes, len(batch)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("records", "start", "error"),
    [
        (Records([b"k"], [b"v", b"v"], [b"\x00"]), 0, IndexError),
        (Records([b"k"], [], [b"\x00"]), 0, IndexError),
        (Records([b"k"], [b"v"], []), 0, IndexError),
        (Records([b"k"], [b"v"], [b"\x00"]), -1, IndexError),
        (Records(["k"], [b"v"], [b"\x00"]), 0, TypeError),  # type: ignore[list-item]
        (Records([b"k"], [7], [b"\x00"]), 0, TypeError),  # type: ignore[list-item]
        (Records([b"k"], [b"v"], [None]), 0, TypeError),  # type: ignore[list-item]
        (Records({}, [b"v"], [b"\x00"]), 0, IndexError),  # type: ignore[arg-type]
        (Records(None, [b"v"], [b"\x00"]), 0, TypeError),  # type: ignore[arg-type]
    ],
)
def test_columns_of_something_else_are_refused(records: Records, start: int, error: type[Exception]) -> None:
    """Compiled code must not read past them."""
    with pytest.raises(error):
        empty_batch(CODECS["none"]()).add_columns(*records, start)


# --- rows in place --------------------------------------------------------------------------------------------------


ROWS = st.lists(st.tuples(st.sampled_from(b"cudr"), st.binary(max_size=8), st.binary(max_size=300)), max_size=40)


@given(ROWS, st.booleans(), st.booleans(), st.sampled_from([(b"", b""), (b'{"k":', b'{"v":'), (b"", b'{"v":')]))
def test_rows_become_what_their_columns_would(
    rows: list[tuple[int, bytes, bytes]], snapshot: bool, tombstones: bool, prefixes: tuple[bytes, bytes]
) -> None:
    """Keys, values, tombstones, schemas around both and each row's headers, as one would write them out."""
    before, behind = b"\x02" + encode_header("order", b"?" * 10)[:-10], b""
    passed = PassedRows(
        run_of(rows, first=9, snapshot=snapshot),
        before=before,
        behind=behind,
        tombstones=tombstones,
        key_prefix=prefixes[0],
        value_prefix=prefixes[1],
    )
    expected = []
    for number, (op, key, value) in enumerate(rows):
        around_key = prefixes[0] + key + b"}" if prefixes[0] else key
        headers = (("order", b"%010d" % (9 if snapshot else 9 + number)),)
        expected.append((around_key if key else None, prefixes[1] + value + b"}" if prefixes[1] else value, headers))
        if tombstones and op == ord("d"):
            expected.append((expected[-1][0], None, headers))

    read = [(record.key, record.value, tuple(record.headers)) for record in read_back(passed)]

    assert read == expected
    assert payload_size(passed) == sum(len(key or b"") + len(value or b"") for key, value, _ in expected)
    assert len(passed) == len(rows)


@pytest.mark.parametrize("prefix", [b"", b'{"schema":7,"payload":'])
def test_rows_are_spread_by_their_whole_keys(prefix: bytes) -> None:
    """Each row into its Kafka partition, in order; those without a key together."""
    rows = [(ord("c"), b"" if number % 10 == 0 else b"key-%d" % number, b"%d" % number) for number in range(200)]
    passed = PassedRows(
        run_of(rows),
        before=b"\x02" + encode_header("", b"?" * 10)[:-10],
        behind=b"",
        tombstones=False,
        key_prefix=prefix,
    )

    numbers = passed.kafka_partitions(5, 3)

    codec = CODECS["none"]()
    for partition in range(5):
        batch = empty_batch(codec)
        assert batch.add_rows(passed, 0, numbers, partition) == 200
        expected = []
        for _, key, value in rows:
            whole = prefix + key + b"}" if prefix else key
            if (kafka_partition_of(whole, 5) if key else 3) == partition:
                expected.append((whole if key else None, value))
        read = [(record.key, record.value) for record in DefaultRecordBatch(built(batch, codec))] if expected else []
        assert read == expected


def test_delete_and_its_tombstone_stay_together() -> None:
    """A batch has room for both or takes neither."""
    codec = CODECS["none"]()
    passed = PassedRows(
        run_of([(ord("c"), b"1", b"x"), (ord("d"), b"2", b"y")]), before=b"\x00", behind=b"", tombstones=True
    )
    batch = BatchRecords(codec.take_piece, most_bytes=1 << 20, most_kept_bytes=1 << 20, most_records=2)

    assert [batch.add_rows(passed, 0), batch.record_count] == [1, 1]
    batch.take_pieces()
    assert [batch.add_rows(passed, 1), batch.record_count] == [2, 2]


def test_rows_of_something_else_are_refused() -> None:
    """Compiled code must not read past them."""
    passed = PassedRows(run_of([(ord("c"), b"1", b"x")]), before=b"", behind=b"", tombstones=True)
    batch = empty_batch(CODECS["none"]())

    with pytest.raises(IndexError):
        batch.add_rows(passed, -1)
    with pytest.raises(IndexError):
        batch.add_rows(passed, 0, b"", 0)
    with pytest.raises(OverflowError):
        PassedRows(run_of([(ord("c"), b"1", b"x")], first=10_000_000_000), before=b"", behind=b"", tombstones=True)
    assert batch.add_rows(passed, 5) == 1
    assert batch.record_count == 0


# --- columns --------------------------------------------------------------------------------------------------------


def test_rows_without_anything_have_no_size() -> None:
    """As a tombstone's value."""
    assert (total_size([None, b"ab", b""]), total_size(())) == (2, 0)
    with pytest.raises(TypeError):
        total_size(["text"])  # type: ignore[list-item]


def test_rows_are_counted_in_their_headers() -> None:
    """Ten digits, so that the text's order is theirs; there is no eleventh."""
    assert ordinal_headers(b"<", b">", 9, 2) == [b"<0000000009>", b"<0000000010>"]
    assert ordinal_headers(b"", b"", 9_999_999_999, 1) == [b"9999999999"]
    for first in (-1, 10_000_000_000):
        with pytest.raises(OverflowError):
            ordinal_headers(b"", b"", first, 1)
