"""Our record batches are Kafka's: read back by aiokafka's reader, which checks the checksum."""

import random

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from services.router.record_batch import (
    COMPRESSIONS,
    MAX_BATCH_RECORDS,
    NO_HEADERS,
    RecordBatch,
    Records,
    encode_body,
    encode_header,
    how_many_fit,
    join_headers,
    lead_headers,
    payload_size,
    records_size,
)
from services.router.record_bytes import encode_records, ordinal_headers, total_size

MOMENT_MS = 1_700_000_000_123
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


def built(records: Records, compression: str = "none") -> bytes:
    """The batch's bytes, as a transactional producer sends them."""
    size = records_size(records, payload_size(records))
    batch = RecordBatch(encode_body(records, size_bytes=size, compression=compression), MOMENT_MS)
    batch._set_producer_state(11, 22, 33)
    whole = batch._build()

    assert batch.size() == len(whole)
    assert batch.record_count() == len(records.values)
    assert batch._build() is whole
    return whole


def test_uncompressed_batch_is_byte_for_byte_aiokafkas() -> None:
    """An independent writer of the same records gives the same bytes."""
    records = mixed_records(300)
    theirs = DefaultRecordBatchBuilder(2, 0, 1, 11, 22, 33, 1 << 30)
    for offset, (key, value, headers) in enumerate(zip(*records, strict=True)):
        count = headers[0] // 2
        assert theirs.append(offset, MOMENT_MS, key, value, SIX_HEADERS[:count]) is not None

    # The reader sets the leader epoch anew, and it is outside of the checksum; aiokafka writes 0 or -1 there by release.
    expected = bytes(theirs.build())

    whole = built(records)

    assert whole[16:] == expected[16:]
    assert whole[:12] == expected[:12]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_batch_is_read_back_in_every_compression(compression: str) -> None:
    """Columns of all lengths, over many pieces."""
    records = mixed_records(300)

    batch = DefaultRecordBatch(built(records, compression))

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

    assert all(len(built(records, name)) < len(built(records)) / 2 for name in COMPRESSIONS if name != "none")


def test_largest_count_is_read_back() -> None:
    """The places of ten thousand records."""
    records = Records([b"k"] * MAX_BATCH_RECORDS, [b"v"] * MAX_BATCH_RECORDS, [NO_HEADERS] * MAX_BATCH_RECORDS)

    assert [record.offset for record in DefaultRecordBatch(built(records, "lz4"))] == list(range(MAX_BATCH_RECORDS))


def test_leading_header_stands_before_the_others() -> None:
    """As a key change wants it."""
    others = encoded(SIX_HEADERS)

    assert lead_headers(encode_header("first", b"1"), others) == encoded([("first", b"1"), *SIX_HEADERS])


def test_size_is_never_below_what_records_take() -> None:
    """Or a batch could come out larger than a broker takes."""
    records = mixed_records(300)

    size = records_size(records, payload_size(records))

    taken = len(encode_records(*records, 0, 300))
    assert taken <= size < taken + 300 * 20


def test_records_that_fit_are_counted_from_the_start_given() -> None:
    """The first that does not fit ends the count, though later ones would."""
    records = Records([None] * 4, [b"x" * 80, b"x" * 79, b"x" * 300, b""], [NO_HEADERS] * 4)

    assert [how_many_fit(records, start, 201) for start in range(5)] == [2, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("records", "end", "error"),
    [
        (Records([b"k"], [b"v"], [b"\x00"]), 2, IndexError),
        (Records([b"k"], [], [b"\x00"]), 1, IndexError),
        (Records(["k"], [b"v"], [b"\x00"]), 1, TypeError),  # type: ignore[list-item]
        (Records([b"k"], [7], [b"\x00"]), 1, TypeError),  # type: ignore[list-item]
        (Records([b"k"], [b"v"], [None]), 1, TypeError),  # type: ignore[list-item]
        (Records({}, [b"v"], [b"\x00"]), 1, IndexError),  # type: ignore[arg-type]
        (Records(None, [b"v"], [b"\x00"]), 1, TypeError),  # type: ignore[arg-type]
    ],
)
def test_columns_of_something_else_are_refused(records: Records, end: int, error: type[Exception]) -> None:
    """Compiled code must not read past them."""
    with pytest.raises(error):
        encode_records(*records, 0, end)


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
