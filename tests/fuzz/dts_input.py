"""An input of the fuzzer: a stream of a subscription's messages, taken the whole way from Kafka's bytes to a ChangeBatch.

A byte of choices, and the messages:

| bits | mean |
|---|---|
| 0 | rows that cannot be decoded are set aside, instead of halting |
| 1 | a message in parts goes through a file |
| 2 | the rest is one Entries, in one to four parts (bits 3 and 4); else Envelopes, each after its length (2 bytes) |
| 5 | the tables are known |
"""

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson

from libs.errors import HeadwaterError
from services.dts_decoder.assembly import WholeMessage
from tests.unit.dts_decoder.fuzz import all_types
from tests.unit.dts_decoder.topic import assembler, decode, envelopes, insert, kafka_message, whole

KEPT = Path(__file__).parents[1] / "golden" / "dts-fuzz" / "corpus.zip"
SET_ASIDE, SPILLED, ENTRIES, KNOWN_TABLES = 1, 2, 4, 32
_PARTS_PLACE = 3
_KNOWN = tuple(decode([whole(*all_types()), whole(insert(1))]).decoder.schemas.values())


def kept_inputs() -> list[bytes]:
    """The inputs of an earlier run of the fuzzer that reached something each, the smallest for it."""
    with zipfile.ZipFile(KEPT) as kept:
        return [kept.read(name) for name in sorted(kept.namelist())]


def of_messages(values: Sequence[bytes], choices: int) -> bytes:
    """The input of these Kafka messages."""
    return bytes([choices]) + b"".join(len(value).to_bytes(2, "big") + value for value in values)


def of_entries(data: bytes, choices: int, *, parts: int = 1) -> bytes:
    """The input of one serialised Entries."""
    return bytes([choices | ENTRIES | parts - 1 << _PARTS_PLACE]) + data


def take(data: bytes) -> int:
    """How many rows come of it: 0 too where an error of ours does. Every row is JSON, as strict as it gets.

    Any other error is a fault of the decoder.
    """
    if not data:
        return 0
    choices, rest = data[0], data[1:]
    join = assembler(spill_bytes=64 if choices & SPILLED else 1 << 20, max_bytes=1 << 20)
    parts = 1 + (choices >> _PARTS_PLACE & 3)
    sent = envelopes(rest, parts) if choices & ENTRIES else list(_behind_lengths(rest))
    joined: list[WholeMessage] = []
    try:
        for offset, value in enumerate(sent):
            found = join.take(kafka_message(value, offset))
            if found is not None:
                joined.append(found)
        made = decode(joined, schemas=_KNOWN if choices & KNOWN_TABLES else (), dead_letters=bool(choices & SET_ASIDE))
    except HeadwaterError:
        return 0
    rows = [row for batch in made.batches for entry in batch.entries for row in entry.run.values]
    for row in rows:
        orjson.loads(row)
    return len(rows)


def _behind_lengths(data: bytes) -> Iterator[bytes]:
    place = 0
    while place + 2 <= len(data):
        length = int.from_bytes(data[place : place + 2], "big")
        yield data[place + 2 : place + 2 + length]
        place += 2 + length
