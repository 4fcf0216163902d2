"""Messages in parts, DTS's count of messages, and mistakes in them."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.errors import DiskFull, PositionPurged, UndecodableMessage
from protos.dts import subscription_pb2 as pb
from services.dts_decoder.assembly import KafkaMessage
from tests.unit.dts_decoder.topic import TOPIC, assembler, envelopes, insert, kafka_message

DATA = pb.Entries(items=[insert(*range(50))]).SerializeToString()


@given(parts=st.integers(1, 40), spill_bytes=st.sampled_from([0, 100, 1 << 20]))
def test_parts_are_joined_whatever_their_number(parts: int, spill_bytes: int) -> None:
    """Also where they wait in a file."""
    join = assembler(spill_bytes=spill_bytes)

    found = [join.take(kafka_message(value, offset)) for offset, value in enumerate(envelopes(DATA, parts))]

    assert found[:-1] == [None] * (parts - 1)
    assert found[-1] is not None
    assert bytes(found[-1].data) == DATA
    assert (found[-1].first_offset, found[-1].last_offset, found[-1].ps) == (0, parts - 1, parts)


def test_a_released_message_can_still_be_read_behind_the_place() -> None:
    """Released bytes leave memory; the rest is there."""
    data = bytes(range(256)) * 100_000
    join = assembler(spill_bytes=0)
    found = [join.take(kafka_message(value, offset)) for offset, value in enumerate(envelopes(data, 3))][-1]
    assert found is not None

    found.release(20_000_000)

    assert found.data[20_000_000:20_000_256] == data[20_000_000:20_000_256]


def _mangled(values: list[bytes], nth: int, **fields: int) -> list[bytes]:
    envelope = pb.Envelope.FromString(values[nth])
    for name, value in fields.items():
        setattr(envelope, name, value)
    return [*values[:nth], envelope.SerializeToString(), *values[nth + 1 :]]


WHOLE = envelopes(DATA, 3)


@pytest.mark.parametrize(
    ("values", "offset", "reason"),
    [
        pytest.param([b"\xff\xff\xff"], 0, "no Envelope", id="rubbish"),
        pytest.param([WHOLE[0][:-3]], 0, "reaches beyond", id="truncated"),
        pytest.param(_mangled(WHOLE, 0, version=2), 0, "version 2", id="version"),
        pytest.param(_mangled(WHOLE, 0, total=0), 0, "part 0 of 0", id="no-parts"),
        pytest.param(_mangled(WHOLE, 1, index=2), 1, "part 1 should follow", id="out-of-order"),
        pytest.param(_mangled(WHOLE, 1, index=3), 1, "part 3 of 3", id="beyond-the-last"),
        pytest.param(_mangled(WHOLE, 1, total=4), 1, "3 were announced", id="total-changes"),
        pytest.param(WHOLE[1:], 0, "part 0 is missing", id="first-part-missing"),
    ],
)
def test_a_wrong_part_is_named_with_its_place(values: list[bytes], offset: int, reason: str) -> None:
    """Topic, partition and offset; the parts before it can be set aside, and a new message begins well."""
    join = assembler()
    with pytest.raises(UndecodableMessage, match=rf"topic-subs-test\[0\]@{offset}: .*{reason}"):
        for place, value in enumerate(values):
            join.take(kafka_message(value, place))

    aside = list(join.set_aside())

    assert [place for place, _ in aside] == list(range(offset))
    assert all(pb.Envelope.FromString(value).total == 3 for _, value in aside)
    [one] = envelopes(DATA, 1)
    assert join.take(kafka_message(one, offset + 1)) is not None


@pytest.mark.parametrize(("ps", "reason"), [(None, "no header ps"), (b"x1", "no number"), (b"9" * 30, "no number")])
def test_a_message_without_its_count_is_refused(ps: bytes | None, reason: str) -> None:
    """Without DTS's count no gap could be seen."""
    with pytest.raises(UndecodableMessage, match=reason):
        assembler().take(KafkaMessage(TOPIC, 0, 4, ps, WHOLE[0]))


def test_a_gap_names_what_is_missing_and_the_remedy() -> None:
    """Lost messages halt; there is no way on but a snapshot."""
    join = assembler(last_ps=10)

    with pytest.raises(PositionPurged, match=r"messages 11 to 14 .*re-snapshot"):
        join.take(kafka_message(WHOLE[0], 99, ps=15))


def test_repeats_in_the_middle_of_a_split_do_not_disturb_it() -> None:
    """A part whose count came already is dropped."""
    join = assembler()
    join.take(kafka_message(WHOLE[0], 0))
    join.take(kafka_message(WHOLE[1], 1))
    join.take(kafka_message(WHOLE[1], 2, ps=2))

    found = join.take(kafka_message(WHOLE[2], 3, ps=3))

    assert found is not None
    assert bytes(found.data) == DATA
    assert join.repeats == 1


def test_a_split_that_grows_without_end_is_refused() -> None:
    """A message of 4 GB parts would fill the disk."""
    join = assembler(max_bytes=len(DATA) // 2)

    with pytest.raises(UndecodableMessage, match="max_message_bytes"):
        for offset, value in enumerate(WHOLE):
            join.take(kafka_message(value, offset))


def test_no_room_for_a_large_message_is_said(tmp_path: Path) -> None:
    """A folder that is not there: the error names it and the remedy."""
    join = assembler(spill_bytes=0, spill_dir=tmp_path / "gone")

    with pytest.raises(DiskFull, match="spill_dir"):
        join.take(kafka_message(WHOLE[0], 0))


def test_reading_may_begin_in_the_middle_of_a_split() -> None:
    """Where a snapshot has the rows of before; but once only."""
    join = assembler(begins_anywhere=True)

    assert join.take(kafka_message(WHOLE[1], 1)) is None
    assert join.take(kafka_message(WHOLE[2], 2)) is None
    [one] = envelopes(DATA, 1)
    assert join.take(kafka_message(one, 3)) is not None
    with pytest.raises(UndecodableMessage):
        join.take(kafka_message(WHOLE[1], 4))


@given(st.lists(st.binary(max_size=60), max_size=6), st.data())
def test_no_bytes_crash_it(values: list[bytes], data: Any) -> None:
    """Any bytes are taken, or refused by name."""
    join = assembler(spill_bytes=8)
    for offset, value in enumerate(values):
        try:
            join.take(kafka_message(value, offset, ps=data.draw(st.integers(0, 8))))
        except (UndecodableMessage, PositionPurged):
            list(join.set_aside())
