"""Handling modes of values: a recorded stream read by Debezium's Vitess connector and by ours, the same column by column."""

from pathlib import Path

import pytest

from libs.stand_ins.vtgate.client import StreamReader, changes, count, execute
from libs.stand_ins.vtgate.cluster import on_every_shard
from libs.stand_ins.vtgate.replay import write_record
from libs.stand_ins.vtgate.service import VtgateServer
from libs.types.value_modes import BinaryMode, DecimalMode, TimePrecision, UnsignedBigintMode, VitessValueModes
from protos.vitess.binlogdata_pb2 import ShardGtid, VEventType
from protos.vitess.vtgate_pb2 import VStreamResponse
from tests.differential.recorded import debezium_reads, our_records
from tests.differential.test_debezium_on_the_stand_in import Topic, vtgate  # noqa: F401

pytestmark = pytest.mark.rest(
    because="unit/vstream_reader/test_golden_replay.py holds events to those that the connector wrote"
)

TABLE = """CREATE TABLE v (id BIGINT PRIMARY KEY, big BIGINT UNSIGNED, tiny TINYINT UNSIGNED, amount DECIMAL(20,4),
    ratio DOUBLE, part FLOAT, day DATE, clock TIME, clock3 TIME(3), clock6 TIME(6), seen DATETIME, seen3 DATETIME(3),
    seen6 DATETIME(6), stamped TIMESTAMP(3) NULL, made YEAR, code BINARY(4), raw VARBINARY(20), pile BLOB,
    kind ENUM('a','b'), tags SET('x','y'), note TEXT) DEFAULT CHARSET utf8mb4"""
ROWS = (
    "(1, 7, 255, 12345678.9012, 0.5, 0.25, '2024-02-29', '23:59:59', '12:34:56.789', '01:02:03.000004', "
    "'2024-02-29 12:34:56', '2024-02-29 12:34:56.500', '2024-02-29 12:34:56.123456', '2024-02-29 12:34:56.5', 2024, "
    "x'00ff', x'fbff3f', x'0102fe', 'b', 'x,y', 'naïve 𝄞')",
    "(2, 9223372036854775807, 0, -0.0001, -1e300, -0.25, '1969-12-31', '00:00:00', '00:00:00.001', '00:00:00.000001', "
    "'1000-01-01 00:00:00', '1969-12-31 23:59:59.999', '1969-12-31 23:59:59.999999', '1970-01-01 00:00:01', 1901, "
    "x'61626364', x'', '', 'a', '', '')",
    f"(4{20 * ', NULL'})",
)
MODES = {
    "adaptive": VitessValueModes(),
    "connect": VitessValueModes(
        time_precision=TimePrecision.CONNECT, unsigned_bigint=UnsignedBigintMode.LONG, binary=BinaryMode.HEX
    ),
    "isostring": VitessValueModes(
        time_precision=TimePrecision.ISO_STRING,
        unsigned_bigint=UnsignedBigintMode.PRECISE,
        binary=BinaryMode.BASE64,
    ),
    "url-safe": VitessValueModes(
        time_precision=TimePrecision.ADAPTIVE_TIME_MICROSECONDS,
        decimal=DecimalMode.STRING,
        binary=BinaryMode.BASE64_URL_SAFE,
    ),
}
DIFFERENT = {"stamped"}
"""TIMESTAMP: see docs/vitess-differences.md."""


@pytest.mark.parametrize("mode", MODES)
def test_the_same_values(
    vtgate: VtgateServer,  # noqa: F811
    bootstrap_servers: str,
    tmp_path: Path,
    mode: str,
) -> None:
    """Of copied rows and of changed ones: each value and its schema."""
    keyspace = vtgate.topology.keyspaces[0].name
    prefix, modes = f"v_{keyspace}", MODES[mode]
    _record(vtgate, keyspace, tmp_path / "record")
    [(_, ours)] = our_records(tmp_path / "record", prefix, keyspace, (f"{keyspace}.v",), modes=modes).items()
    options = {
        "table.include.list": f"{keyspace}.v",
        "time.precision.mode": modes.time_precision.value,
        "decimal.handling.mode": modes.decimal.value,
        "bigint.unsigned.handling.mode": modes.unsigned_bigint.value,
        "binary.handling.mode": modes.binary.value,
    }
    with debezium_reads(
        tmp_path / "record", tmp_path / "connect", bootstrap_servers, keyspace=keyspace, prefix=prefix, options=options
    ) as connector:
        topic = Topic(bootstrap_servers, f"{prefix}.{keyspace}.v")
        theirs = topic.until(len(ours), connector)
        topic.close()

    assert len(ours) == len(theirs) == 3 + 3 + 2  # copied, changed, deleted with its tombstone
    for mine, record in zip(ours, theirs, strict=True):
        assert mine.key == record.key
        assert (mine.value is None) == (record.value is None)
        if record.value is None:
            continue
        for image in ("before", "after"):
            assert _left(mine.value["payload"][image]) == _left(record.value["payload"][image])
            assert _fields(mine.value, image) == _fields(record.value, image)


def _left(image: dict | None) -> dict | None:
    return None if image is None else {name: value for name, value in image.items() if name not in DIFFERENT}


def _fields(value: dict, image: str) -> dict:
    """Of each column its schema, without the digits of a BIGINT UNSIGNED: this connector reports none, that of MySQL does."""
    [found] = [field for field in value["schema"]["fields"] if field["field"] == image]
    fields = {field["field"]: field for field in found["fields"]}
    fields["big"].get("parameters", {}).pop("connect.decimal.precision", None)
    return fields


def _record(vtgate: VtgateServer, keyspace: str, path: Path) -> None:  # noqa: F811
    on_every_shard(vtgate.topology, keyspace, [TABLE])
    columns = (
        "id, big, tiny, amount, ratio, part, day, clock, clock3, clock6, seen, seen3, seen6, stamped, made, code, raw, pile, "
        "kind, tags, note"
    )
    for row in ROWS:
        execute(vtgate, f"INSERT INTO v ({columns}) VALUES {row}", keyspace)
    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=["v"]) as stream:
        stream.until(count(VEventType.COPY_COMPLETED, 3))
        for row_id in (1, 2, 4):
            execute(vtgate, f"UPDATE v SET note = 'changed', tiny = {row_id} WHERE id = {row_id}", keyspace)
        execute(vtgate, "DELETE FROM v WHERE id = 1", keyspace)
        stream.until(lambda events: len(changes(events, "v")) >= 3 + 3 + 1)
        write_record(path, [VStreamResponse(events=events) for events in stream.responses])
