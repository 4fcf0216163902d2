"""Notes beside offsets, as confluent_kafka hands them out: with bytes of other memory after them."""

from typing import Any

from confluent_kafka import TopicPartition

from libs.kafka.offset_note import note_of
from services.router.kafka.straggler_offsets import noted_topic_id, own_note, straggler_count


class Overread:
    """An offset whose note was read too far."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    @property
    def metadata(self) -> str:
        return self._raw.decode()


def test_a_note_is_read_whatever_stands_after_it() -> None:
    note = own_note(["late", "later"], "VJobZ107Qa+swPZEm8i2lw")
    for after in (b"", b"\xff\xfe", b"straggling=9;", b"\x01topic=x;"):
        read: Any = Overread(note.encode() + after)

        assert straggler_count(note_of(read)) == 2
        assert noted_topic_id(note_of(read)) == "VJobZ107Qa+swPZEm8i2lw"


def test_an_offset_without_a_note_has_an_empty_one() -> None:
    assert note_of(TopicPartition("changes", 0, 5)) == ""
