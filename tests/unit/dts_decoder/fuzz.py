"""Fuzz the DTS decoder: ``python -m tests.unit.dts_decoder.fuzz [INPUTS] [SEED]``. CI runs a bounded slice of it.

Real messages are cut, spliced and bent, byte by byte and field by field, and every one goes the whole way: parts joined,
entries read, rows decoded. Rows or an error of ours are right; anything else ends the run with the input that did it.
"""

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from libs.errors import HeadwaterError
from protos.dts import subscription_pb2 as pb
from tests.unit.dts_decoder.topic import (
    assembler,
    begin,
    checkpoint,
    commit,
    ddl,
    decode,
    envelopes,
    heartbeat,
    insert,
    kafka_message,
    rollback,
    whole,
)

_EDGES: Final = (0, 1, 0x7F, 0x80, 0xFF)
_MOST_MEMORY_MB: Final = 500


def seeds() -> list[bytes]:
    """Serialised Entries that hold something of everything."""
    return [
        pb.Entries(items=entries).SerializeToString()
        for entries in (
            [begin(1), insert(1, 2, 3), commit(1), begin(2), insert(4, gtid=2), commit(2)],
            [begin(1), insert(1), rollback(1), heartbeat(), checkpoint()],
            [ddl("ALTER TABLE orders ADD c INT", 3), insert(1, gtid=4), checkpoint()],
            [*all_types()],
        )
    ]


def all_types() -> list[pb.Entry]:
    """A row of every kind of value."""
    printed = {
        "bigint unsigned": (8, "18446744073709551615"), "decimal(30,4)": (12, "-1.5000"), "decimal(10,2)": (12, "12.50"),
        "double": (10, "1.5e-05"), "float": (9, "2.5"), "date": (13, "2024-02-29"),
        "datetime(6)": (13, "2024-02-29 01:02:03.000004"), "timestamp(3)": (13, "2024-02-29 01:02:03.004 +00:00"),
        "time(3)": (13, "-12:00:00.500"), "year": (4, "2024"), "bit(9)": (4, "257"), "enum('a','b')": (13, "a"),
        "set('x','y')": (13, "x,y"), "json": (11, '{"k": [1, null]}'), "blob": (11, "\x00z"), "binary(4)": (13, "ab"),
        "text": (13, "ż"), "geometry": (11, "\x00" * 30),
    }  # fmt: skip
    columns = [pb.Column(name=f"c{nth}", originalType=name, isKey=nth == 0) for nth, name in enumerate(printed)]
    cells = []
    for kind, value in printed.values():
        is_text = kind in (pb.DATA_TYPE_BYTES, pb.DATA_TYPE_STRING)
        cells.append(
            pb.Data(dataType=kind, charset="utf8mb4", bv=value.encode())
            if is_text
            else pb.Data(dataType=kind, sv=value)
        )
    entry = insert()
    entry.event.dmlEvent.CopyFrom(pb.DMLEvent(columns=columns, rows=[pb.RowChange(newColumns=cells)]))
    entry.header.tableName = "all_types"
    return [begin(1), entry, commit(1)]


def bent(data: bytes, pool: Sequence[bytes], chance: random.Random) -> bytes:
    """``data`` with a few bytes changed, cut out, doubled, or replaced by another's."""
    found = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        place = chance.randrange(len(found) + 1)
        length = chance.randrange(1, 9)
        match chance.randrange(6):
            case 0 if place < len(found):
                found[place] ^= 1 << chance.randrange(8)
            case 1 if place < len(found):
                found[place] = chance.choice(_EDGES)
            case 2:
                del found[place : place + length]
            case 3:
                found[place:place] = found[place : place + length]
            case 4:
                other = chance.choice(pool)
                begin_at = chance.randrange(len(other))
                found[place:place] = other[begin_at : begin_at + 8 * length]
            case _:
                del found[place:]
    return bytes(found)


def run(inputs: int, seed: int) -> int:
    """Take so many inputs; returns how many of them became rows without an error."""
    chance = random.Random(seed)
    pool = seeds()
    schemas = list(decode([whole(*all_types())]).decoder.schemas.values())
    good = 0
    for nth in range(inputs):
        data = bent(chance.choice(pool), pool, chance)
        if not nth % 50:
            pool[chance.randrange(4, 64) % len(pool) if len(pool) > 40 else len(pool) :] = [data or b"\x0a\x00"]
        try:
            good += _take(data, schemas, chance)
        except HeadwaterError:
            pass
        except Exception as error:
            raise AssertionError(f"input {nth} of seed {seed}: {data.hex()}") from error
    return good


def _take(data: bytes, schemas: Sequence[object], chance: random.Random) -> int:
    join = assembler(spill_bytes=chance.choice((0, 64, 1 << 20)), max_bytes=1 << 20)
    values = envelopes(data, chance.randrange(1, 4))
    if not chance.randrange(3):
        nth = chance.randrange(len(values))
        values[nth] = bent(values[nth], values, chance)
    for offset, value in enumerate(values):
        found = join.take(kafka_message(value, offset))
        if found is not None:
            decode([found], schemas=schemas, dead_letters=bool(chance.randrange(2)))  # type: ignore[arg-type]
            return 1
    return 0


def peak_memory_mb() -> float:
    """Of this process."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    wanted, first_seed = (int(each) for each in (*sys.argv[1:], "1000000", "1")[:2])
    done = run(wanted, first_seed)
    assert peak_memory_mb() < _MOST_MEMORY_MB
    sys.stdout.write(f"{wanted:,} inputs, {done:,} decoded without an error, peak {peak_memory_mb():.0f} MB\n")
