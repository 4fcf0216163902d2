"""The DTS decoder alone: from Kafka's bytes to ChangeBatch, and a message in parts of 512 MB. No servers.

Messages are made first and lie in a file; a fresh process reads and decodes them, so that its CPU seconds and its peak memory
are the decoder's, Python and reading the file included. Rows are those of ``workload``'s table, one transaction of 100 rows a
message; an entry holds one row, as an application writes them, or 100, as a bulk statement does.
"""

import json
import random
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from libs.events.batch import BatchBuilder, BatchIdentity
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from protos.dts import subscription_pb2 as pb
from services.dts_decoder.assembly import Assembler, KafkaMessage
from services.dts_decoder.decode import SubscriptionDecoder
from services.dts_decoder.found import UnknownTable
from services.dts_decoder.position import DtsPosition
from services.dts_decoder.values import schema_of_columns

ROWS: Final = 1_000_000
SPLIT_BYTES: Final = 512 << 20
_ROWS_PER_TRANSACTION: Final = 100
_PART_BYTES: Final = 900_000
_LENGTH: Final = struct.Struct("<I")
_UUID: Final = "38cecd93-a9c2-11ec-b952-00163e0d8da5"
_STATUSES: Final = ("new", "paid", "packed", "shipped", "returned")
_COLUMNS: Final = [
    pb.Column(name=name, originalType=original_type, isKey=name == "id")
    for name, original_type in (
        ("id", "bigint"), ("customer_id", "int"), ("status", "varchar(20)"), ("amount", "decimal(12,2)"),
        ("quantity", "int"), ("price", "double"), ("created_at", "datetime(3)"), ("updated_at", "timestamp(6)"),
        ("note", "varchar(255)"), ("payload", "varchar(255)"),
    )
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class DecodeFigures:
    """The cost of decoding to one process."""

    rows: int
    cpu_s: float
    peak_rss_mb: float

    @property
    def rows_per_cpu_s(self) -> float:
        """Row changes a CPU second."""
        return self.rows / self.cpu_s


def measure_decode(folder: Path, rows: int, *, rows_per_entry: int) -> DecodeFigures:
    """Decode ``rows`` rows in a process of its own."""
    path = folder / f"rows-{rows_per_entry}"
    with path.open("wb") as file:
        _write_rows(file, rows, rows_per_entry)
    try:
        return _in_a_process(path)
    finally:
        path.unlink()


def measure_split(folder: Path, size: int = SPLIT_BYTES) -> DecodeFigures:
    """Join and decode one message of ``size`` bytes in parts: a single entry of rows of 10 kB."""
    path = folder / "split"
    with path.open("wb") as file:
        _write_split(file, size)
    try:
        return _in_a_process(path)
    finally:
        path.unlink()


def _in_a_process(path: Path) -> DecodeFigures:
    done = subprocess.run([sys.executable, "-m", "bench.dts", str(path)], check=True, capture_output=True, text=True)
    return DecodeFigures(**json.loads(done.stdout))


# --- messages --------------------------------------------------------------------------------------------------------


def _write_rows(file: IO[bytes], rows: int, rows_per_entry: int) -> None:
    chance = random.Random(7)
    for number in range(rows // _ROWS_PER_TRANSACTION):
        entries = [_begin(number + 1)]
        first = number * _ROWS_PER_TRANSACTION
        changes = [_row(first + nth, chance) for nth in range(_ROWS_PER_TRANSACTION)]
        for nth in range(0, len(changes), rows_per_entry):
            entries.append(_dml(number + 1, changes[nth : nth + rows_per_entry]))
        entries.append(_commit(number + 1))
        data = pb.Entries(items=entries).SerializeToString()
        _write(file, pb.Envelope(version=1, total=1, data=data))


def _write_split(file: IO[bytes], size: int) -> None:
    """The parts are written as they are made: the whole would be twice in memory."""
    columns = [pb.Column(name="id", originalType="bigint", isKey=True), pb.Column(name="v", originalType="longtext")]
    head = pb.DMLEvent(columns=columns).SerializeToString()
    rows = -(-size // 10_000)
    one = [_field(3, pb.RowChange(newColumns=_large(0)).SerializeToString())]
    event_bytes = len(head) + rows * len(one[0])
    header = _header(pb.MESSAGE_TYPE_DML, 1).SerializeToString()
    before = _opening(2, event_bytes)  # Event.dmlEvent
    opening = _field(1, header) + _opening(2, len(before) + event_bytes) + before
    whole = pb.Entries(items=[_begin(1)]).SerializeToString() + _opening(1, len(opening) + event_bytes) + opening + head

    def pieces() -> Iterator[bytes]:
        yield whole
        for number in range(rows):
            yield _field(3, pb.RowChange(newColumns=_large(number)).SerializeToString())
        yield pb.Entries(items=[_commit(1)]).SerializeToString()

    total_bytes = len(whole) + rows * len(one[0]) + len(pb.Entries(items=[_commit(1)]).SerializeToString())
    total = -(-total_bytes // _PART_BYTES)
    index, waiting = 0, b""
    for piece in pieces():
        waiting += piece
        while len(waiting) >= _PART_BYTES:
            _write(file, pb.Envelope(version=1, total=total, index=index, data=waiting[:_PART_BYTES]))
            index, waiting = index + 1, waiting[_PART_BYTES:]
    if waiting:
        _write(file, pb.Envelope(version=1, total=total, index=index, data=waiting))


def _large(number: int) -> list[pb.Data]:
    text = (b"%012d" % number) * 830
    return [
        pb.Data(dataType=pb.DATA_TYPE_INT64, sv=f"{10**11 + number}"),
        pb.Data(dataType=pb.DATA_TYPE_STRING, charset="utf8mb4", bv=text),
    ]


def _write(file: IO[bytes], envelope: pb.Envelope) -> None:
    value = envelope.SerializeToString()
    file.write(_LENGTH.pack(len(value)) + value)


def _field(number: int, content: bytes) -> bytes:
    return _opening(number, len(content)) + content


def _opening(number: int, size: int) -> bytes:
    encoded = bytearray([number << 3 | 2])
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    return bytes(encoded)


def _header(kind: pb.MessageType, gtid: int) -> pb.Header:
    return pb.Header(
        version=1, sourceType=pb.SOURCE_TYPE_MYSQL, messageType=kind, timestamp=1_700_000_000 + gtid // 100, serverId=7,
        fileName="mysql-bin.000005", position=gtid * 1000, gtid=f"{_UUID}:{gtid}", schemaName="bench", tableName="events",
        seqId=gtid,
    )  # fmt: skip


def _begin(gtid: int) -> pb.Entry:
    event = pb.Event(beginEvent=pb.BeginEvent(transactionId="t", threadId=42))
    return pb.Entry(header=_header(pb.MESSAGE_TYPE_BEGIN, gtid), event=event)


def _commit(gtid: int) -> pb.Entry:
    event = pb.Event(commitEvent=pb.CommitEvent(transactionId="t"))
    return pb.Entry(header=_header(pb.MESSAGE_TYPE_COMMIT, gtid), event=event)


def _dml(gtid: int, rows: list[pb.RowChange]) -> pb.Entry:
    return pb.Entry(
        header=_header(pb.MESSAGE_TYPE_DML, gtid), event=pb.Event(dmlEvent=pb.DMLEvent(columns=_COLUMNS, rows=rows))
    )


def _row(row_id: int, chance: random.Random) -> pb.RowChange:
    at = time.gmtime(1_700_000_000 + chance.randrange(10**7))
    clock = time.strftime("%Y-%m-%d %H:%M:%S", at)
    note = (
        pb.Data()
        if chance.random() < 0.2
        else _text(f"note {chance.randrange(10**9)} é 漢 {'x' * chance.randrange(40)}")
    )
    return pb.RowChange(
        newColumns=[
            _number(pb.DATA_TYPE_INT64, row_id),
            _number(pb.DATA_TYPE_INT32, chance.randrange(10**6)),
            _text(chance.choice(_STATUSES)),
            _number(pb.DATA_TYPE_DECIMAL, f"{chance.randrange(10**7) / 100:.2f}"),
            _number(pb.DATA_TYPE_INT32, chance.randrange(100)),
            _number(pb.DATA_TYPE_FLOAT64, repr(chance.random() * 1000)),
            _text(f"{clock}.{chance.randrange(1000):03d}"),
            _text(f"{clock}.{chance.randrange(10**6):06d} +00:00"),
            note,
            _text(f"{chance.getrandbits(600):x}"),
        ]
    )


def _number(data_type: Any, value: object) -> pb.Data:
    return pb.Data(dataType=data_type, sv=str(value))


def _text(value: str) -> pb.Data:
    return pb.Data(dataType=pb.DATA_TYPE_STRING, charset="utf8mb4", bv=value.encode())


# --- the process that decodes ----------------------------------------------------------------------------------------


def decode_file(path: Path) -> DecodeFigures:
    """Decode everything in the file, as the service does, and throw the batches away."""
    batch = BatchBuilder(
        BatchIdentity(source="bench", source_partition="0", connector="dts", run_id="bench", fencing_token=1)
    )
    assembler = Assembler(last_ps=0, spill_bytes=32 << 20, max_bytes=4 << 30, spill_dir=path.parent)
    decoder = SubscriptionDecoder(
        "bench",
        DtsPosition(topic="bench", partition=0, offset=0),
        EventOrder(epoch=0, rank=0, tx_ordinal=0),
        {},
        is_captured=lambda _: True,
        batch=batch,
        transaction_metadata=False,
    )
    rows = 0
    began_s = time.process_time()
    with path.open("rb") as file:
        for offset, value in enumerate(_values(file)):
            whole = assembler.take(KafkaMessage("bench", 0, offset, b"%d" % (offset + 1), value))
            del value
            if whole is None:
                continue
            decoder.tick(time.time_ns())
            for decoded in decoder.feed(whole):
                if isinstance(decoded, UnknownTable):
                    known = schema_of_columns(TableSchema(table_id=_table(), columns=(), version=1), decoded.columns)
                    decoder.apply_schemas({_table(): known})
                if batch.is_full and (decoder.is_between_transactions or batch.is_overfull):
                    rows += batch.take(0)[1]
    decoder.flush()
    rows += batch.take(0)[1]
    cpu_s = time.process_time() - began_s
    return DecodeFigures(rows, cpu_s, _peak_rss_mb())


def _peak_rss_mb() -> float:
    # Not ru_maxrss: it begins with the parent's memory at the fork.
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def _table() -> TableId:
    return TableId(database="bench", table="events")


def _values(file: IO[bytes]) -> Iterator[bytes]:
    while opening := file.read(_LENGTH.size):
        yield file.read(_LENGTH.unpack(opening)[0])


if __name__ == "__main__":
    found = decode_file(Path(sys.argv[1]))
    print(json.dumps({"rows": found.rows, "cpu_s": found.cpu_s, "peak_rss_mb": found.peak_rss_mb}))
