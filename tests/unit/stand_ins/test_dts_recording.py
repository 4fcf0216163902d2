"""Recordings of a subscription: the file, and masks that keep kind, length and equality."""

from pathlib import Path

import pytest

from libs.errors import InvalidSettings
from libs.stand_ins.dts.recording import Masker, RecordedMessage, Slice, heading_of, read_recording, write_recording
from protos.dts import subscription_pb2 as pb
from services.dts_decoder.assembly import KafkaMessage
from tests.unit.dts_decoder.fuzz import all_types
from tests.unit.dts_decoder.topic import TOPIC, assembler, begin, commit, decode, envelopes, insert

SALT = b"x" * 32


def _recorded(*values: bytes) -> list[RecordedMessage]:
    return [
        RecordedMessage(partition=0, offset=nth, ps=nth + 1, value_hex=value.hex()) for nth, value in enumerate(values)
    ]


def _decoded(messages: list[RecordedMessage]) -> list[dict[str, object]]:
    join = assembler()
    taken = [join.take(KafkaMessage(TOPIC, 0, each.offset, str(each.ps).encode(), each.value)) for each in messages]
    made = decode([found for found in taken if found is not None])
    return [value["after"] for _, _, value in made.rows]


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Heading and messages."""
    heading, messages = heading_of(Slice(TOPIC), is_masked=False), _recorded(b"a", b"\x00\xff")

    assert write_recording(tmp_path / "r.jsonl", heading, messages) == 2
    assert read_recording(tmp_path / "r.jsonl") == (heading, messages)


@pytest.mark.parametrize(
    "text", ["", "{}", "no json", '{"topic":"t","is_masked":false,"recorded_at_us":1,"version":9}']
)
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    """With its name."""
    path = tmp_path / "r.jsonl"
    path.write_text(text)

    with pytest.raises(InvalidSettings, match=r"r\.jsonl"):
        read_recording(path)


@pytest.mark.parametrize("parts", [1, 5])
def test_masked_rows_are_decoded_like_real_ones(parts: int) -> None:
    """Every type still fits its column, also in parts, and no text is left."""
    secret = "secret of ours"
    entry = insert(1, 2)
    for row in entry.event.dmlEvent.rows:
        row.newColumns[1].bv = secret.encode()
    data = pb.Entries(items=[begin(9), entry, commit(9), *all_types()]).SerializeToString()

    masked = list(Masker(SALT).masked(_recorded(*envelopes(data, parts))))

    assert secret.encode() not in b"".join(each.value for each in masked)
    rows = _decoded(masked)
    assert len(rows) == 3
    assert rows[0]["v"] == rows[1]["v"]
    assert len(str(rows[0]["v"])) == len(secret)


def test_what_cannot_be_read_is_left_out_when_masked() -> None:
    """A value that nobody could mask does not leave."""
    whole, cut = envelopes(pb.Entries(items=[begin(), insert(1), commit()]).SerializeToString(), 2)

    masked = list(Masker(SALT).masked(_recorded(b"\xff\xff", whole, b"\xff")))

    assert [each.value_hex for each in masked] == [None, None, None]
    assert cut
