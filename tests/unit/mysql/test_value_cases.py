"""The conformance table of values: stored bytes, declared type and handling modes in, schema and value out.

The cases were recorded from Debezium 3.6.1 (``tests/golden/cases/d_mysql_values.json``). Where we depart from it the reason
stands in DEPARTURES, and docs/debezium-differences.md explains it to users; anything else that differs fails.
"""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from libs.errors import UndecodableValue
from libs.formats.connect_schema import connect_default, connect_field
from libs.mysql import binlog_events
from libs.mysql.ddl import apply_ddl
from libs.mysql.json_binary import json_text
from libs.mysql.logical import in_value_modes
from libs.mysql.row_image import rows_decoder, undecodable, wire_columns
from libs.types.table import TableSchema
from libs.types.value_modes import BinaryMode, DecimalMode, TimePrecision, UnsignedBigintMode, ValueModes
from tests.unit.mysql.test_row_events import decode, event, rows_of

SUITE = json.loads((Path(__file__).parents[2] / "golden" / "cases" / "d_mysql_values.json").read_text(encoding="utf-8"))
CASES: list[dict[str, Any]] = SUITE["cases"]

DEPARTURES = {
    "year-zero-notnull": (0, "YEAR 0 is 0000; Debezium's stream makes it 1900 and its snapshot 2000"),
    "year-zero-null": (0, "YEAR 0 is 0000; Debezium's stream makes it 1900 and its snapshot 2000"),
    "date-year-18": (-712863, "year 18 is year 18: MySQL has read two-digit years already when it stores them"),
    "datetime-year-18": (-61591317904000, "year 18 is year 18: MySQL has read two-digit years already"),
    "float-7-4": (1.1, "the shortest number that is the stored FLOAT, as for every FLOAT"),
    "boolean-1": (1, "BOOLEAN is TINYINT(1) to the server, whose own SHOW CREATE TABLE is what a snapshot sees"),
    "boolean-0": (0, "BOOLEAN is TINYINT(1) to the server, whose own SHOW CREATE TABLE is what a snapshot sees"),
    "null-in-notnull-boolean": (0, "as boolean-0"),
    "schema-default-09": (0, "as boolean-0"),
    "varchar-binary": ({"$hex": "fffe"}, "charset binary is bytes, and MySQL itself makes the column a VARBINARY"),
    "schema-default-38": ("it's", "a doubled quote in a literal is one quote"),
}
"""Value (or default) that we give, and why."""
OTHER_SCHEMAS = {"boolean-1", "boolean-0", "null-in-notnull-boolean", "schema-default-09", "varchar-binary"}
RAISES = {"set-over": "a bit without a member is damage; Debezium leaves a comma for it"}
JSON_DEPARTURES = {
    "json-double-neg-small": "-0.00000015",
    "json-double-big": "1.7976931348623157e308",
    "json-opaque-datetime": '"2015-01-15 23:24:25.000000"',
    "json-opaque-datetime-us": '"2015-01-15 23:24:25.120000"',
    "json-opaque-blob": '"base64:type252:yv66vg=="',
    # MySQL leaves this in a NOT NULL column that an ALTER added; it prints it so.
    "json-empty-bytes": "null",
}
"""JSON is written as MySQL itself prints it, without its spaces: the same in snapshot and log."""
_WIRE_TYPES = {
    "TINY": 1, "SHORT": 2, "LONG": 3, "FLOAT": 4, "DOUBLE": 5, "LONGLONG": 8, "INT24": 9, "DATE": 10, "YEAR": 13,
    "VARCHAR": 15, "BIT": 16, "TIMESTAMP_V2": 17, "DATETIME_V2": 18, "TIME_V2": 19, "VECTOR": 242, "JSON": 245,
    "NEWDECIMAL": 246, "ENUM": 247, "SET": 248, "BLOB": 252, "STRING": 254, "GEOMETRY": 255,
}  # fmt: skip


def _schema(case: dict[str, Any]) -> TableSchema:
    charset = f" CHARACTER SET {case['charset']}" if "charset" in case else ""
    [change] = apply_ddl({}, "d", f"CREATE TABLE t (c {case['ddl_type']}{charset}) CHARACTER SET utf8mb4")
    assert change.schema is not None
    modes = ValueModes(
        time_precision=TimePrecision(case.get("temporal", "adaptive_time_microseconds")),
        decimal=DecimalMode(case.get("decimal", "precise")),
        unsigned_bigint=UnsignedBigintMode(case.get("bigint_unsigned", "long")),
        binary=BinaryMode(case.get("binary", "bytes")),
    )
    return in_value_modes(change.schema, modes)


def _metadata(wire: dict[str, Any]) -> bytes:
    """The table map's bytes for a column, from the number that the cases have."""
    meta = wire["meta"]
    match wire["type"]:
        case "TIME_V2" | "DATETIME_V2" | "TIMESTAMP_V2" | "FLOAT" | "DOUBLE" | "BLOB" | "JSON" | "GEOMETRY" | "VECTOR":
            return bytes([meta])
        case "NEWDECIMAL":
            return bytes([meta & 255, meta >> 8])
        case "VARCHAR":
            return int(meta).to_bytes(2, "little")
        case "BIT":
            return bytes([meta & 255, meta >> 8])
        case "ENUM" | "SET":
            return bytes([_WIRE_TYPES[wire["type"]], wire["length"] or 1])
        case "STRING":
            return bytes([254, meta])
        case _:
            return b""


def _decoded(case: dict[str, Any]) -> Any:
    schema = _schema(case)
    if case.get("input") == "null":
        layout = {"varchar": (15, b"\x14\0"), "datetime": (18, b"\0"), "json": (245, b"\4"), "bit": (16, b"\0\1")}
        kind = case["ddl_type"].split("(")[0].split()[0]
        wire_type, metadata = layout.get(kind) or {"set": (254, b"\xf8\1"), "boolean": (1, b"")}[kind]
        stored, nulls = b"", b"\xff"
    else:
        wire = case["wire"]
        wire_type = 254 if wire["type"] in ("ENUM", "SET") else _WIRE_TYPES[wire["type"]]
        metadata, stored, nulls = _metadata(wire), bytes.fromhex(wire["hex"]), b"\xfe"
    decoder = rows_decoder(schema, wire_columns(bytes([wire_type]), metadata))
    try:
        *_, run = decode(decoder, event(binlog_events.WRITE_ROWS, 1, nulls + stored))
    except ValueError as error:
        raise undecodable(schema, decoder, error) from error
    [(_, _, value)] = rows_of(run)
    return value["after"]["c"]


def _expected(value: Any) -> Any:
    match value:
        case {"$hex": digits}:
            return base64.b64encode(bytes.fromhex(digits)).decode()
        case {"$decimal": digits}:
            unscaled = int(digits.replace(".", ""))
            size = ((unscaled if unscaled >= 0 else ~unscaled).bit_length() >> 3) + 1
            return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()
        case {"$epoch_ms": milliseconds}:
            return milliseconds
        case dict():
            return {name: _expected(member) for name, member in value.items()}
        case _:
            return value


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_type_has_the_recorded_schema(case: dict[str, Any]) -> None:
    """Connect type, name, parameters, optional or not, and the default of the declared type in the given modes."""
    if case["id"] in OTHER_SCHEMAS:
        return
    [column] = _schema(case).columns
    wanted, field = case["expect"]["schema"], connect_field(column)

    widths = {"float": "float32", "double": "float64"}
    assert widths.get(field["type"], field["type"]) == wanted["type"]
    assert field.get("name") == wanted.get("name")
    assert field.get("parameters") == wanted.get("parameters")
    assert field["optional"] == wanted.get("optional", False)


@pytest.mark.parametrize("case", [c for c in CASES if "schema_default" in c["expect"]], ids=lambda case: case["id"])
def test_a_default_is_the_recorded_one(case: dict[str, Any]) -> None:
    """In the JSON form of the column's values."""
    [column] = _schema(case).columns

    assert connect_default(column) == _expected(DEPARTURES.get(case["id"], (case["expect"]["schema_default"],))[0])


@pytest.mark.parametrize(
    "case", [c for c in CASES if "wire" in c or c.get("input") == "null"], ids=lambda case: case["id"]
)
def test_a_stored_value_is_written_as_recorded(case: dict[str, Any]) -> None:
    """Row image in, JSON out; a case that the reference only reports as an error is a named error here too."""
    if "expect_error" in case or case["id"] in RAISES:
        with pytest.raises(UndecodableValue, match=r"d\.t\.c"):
            _decoded(case)
        return
    wanted = _expected(DEPARTURES.get(case["id"], (case["expect"].get("value"),))[0])
    value = _decoded(case)
    if case["expect"]["schema"]["type"] == "float64" and case["id"] not in DEPARTURES:
        wanted = float(wanted)

    assert value == wanted


@pytest.mark.parametrize("case", SUITE["json_binary"], ids=lambda case: case["id"])
def test_binary_json_is_printed_as_recorded(case: dict[str, Any]) -> None:
    """Byte for byte as MySQL prints it, spaces aside."""
    stored = bytes.fromhex(case["hex"])
    if "expect_error" in case and case["id"] not in JSON_DEPARTURES:
        with pytest.raises(UndecodableValue):
            json_text(stored)
        return

    assert json_text(stored) == JSON_DEPARTURES.get(case["id"], case.get("expect"))


def test_every_departure_has_a_case() -> None:
    """Of those that the whole table has; the cases that are kept here may be a part of it."""
    known = {case["id"] for case in CASES}

    assert len(known & DEPARTURES.keys()) >= 9
