"""The reference's answers for values, VGTIDs, GTID sets, ranks and epochs (``tests/golden/cases/c_vitess.json``).

Every departure is listed with its reason (docs/vitess-differences.md); anything else that differs fails.
"""

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.errors import HeadwaterError, PipelineHalted
from libs.formats.connect_schema import connect_field
from libs.source.vitess.vgtid import ShardGtid, Vgtid, format_vgtid, parse_vgtid
from libs.types.value_modes import BinaryMode, DecimalMode, TimePrecision, UnsignedBigintMode, VitessValueModes
from protos.vitess import query_pb2
from services.vstream_reader.vgtid import (
    begins_copy,
    inherited_epoch,
    local_vgtid,
    next_epochs,
    parse_shard_position,
    shard_epoch,
)
from tests.unit.vstream_reader.stream import NOT_NULL_PRIMARY, column, event, fields, inserted, replay, start_of, vgtid
from tests.unit.vstream_reader.stream import answer as answer_of

CASES = json.loads((Path(__file__).parents[2] / "golden" / "cases" / "c_vitess.json").read_text(encoding="utf-8"))


def cases(kind: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES["cases"] if case["kind"] == kind]


# --- values ------------------------------------------------------------------------------------------------------------

VALUE_DEPARTURES = {
    "uint64-mode-long-max": "wraps to -1 instead of null: nothing is lost, and a sink undoes it",
    "decimal-mode-precise": "decimal.handling.mode is followed: Connect's Decimal",
    "zero-timestamp-notnull-connect": "a TIMESTAMP is a ZonedTimestamp in every mode, as the connector's reference says",
    "bit16": "Debezium's Bits have the lowest byte first; the connector leaves MySQL's order",
    "geometry-unknown-included": "a Point, not bytes that went through UTF-8",
    "vector": "a FloatVector, not left out",
    "datetime6-2020-00-10 00:00:00.000000": "null, as every date without a month",
    "date-2020-02-30": "runs into March: one impossible day stops nobody",
}
MODES = {
    "time.precision.mode": ("time_precision", TimePrecision),
    "decimal.handling.mode": ("decimal", DecimalMode),
    "bigint.unsigned.handling.mode": ("unsigned_bigint", UnsignedBigintMode),
    "binary.handling.mode": ("binary", BinaryMode),
}


def value_of(given: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The Connect schema and the value of a column ``c`` after a key, as an event has them."""
    config = given.get("config", {})
    modes = VitessValueModes(**{MODES[name][0]: MODES[name][1](mode) for name, mode in config.items() if name in MODES})
    value = given["value"]
    stored = bytes.fromhex(value) if given.get("value_is_hex") and value is not None else value
    given_column = column(
        "c", query_pb2.Type.Value(given["type"]), given["column_type"], given.get("flags", 0), given.get("decimals", 0)
    )
    source = replay(start_of("-80", gtid="MySQL56/a:1"), modes=modes).feed(
        answer_of(
            event("BEGIN"),
            fields(
                column("id", query_pb2.INT64, "bigint", NOT_NULL_PRIMARY),
                given_column,
                texts=given.get("enum_set_string_values", False),
            ),
            inserted(1, stored),
            vgtid({"-80": "a:1-2"}),
            event("COMMIT"),
        )
    )
    (schema,) = source.schemas
    (made,) = source.events()
    return dict(connect_field(schema.column("c"))), made["after"]["c"]


@pytest.mark.parametrize("case", cases("value"))
def test_values_have_the_references_form(case: dict[str, Any]) -> None:
    """Type, schema name and value of a column."""
    if case["id"] in VALUE_DEPARTURES:
        pytest.xfail(VALUE_DEPARTURES[case["id"]])
    expected = case["expect"]

    schema, value = value_of(case["input"])

    wanted = expected["schema"]
    assert schema["type"] == {"float64": "double", "float32": "float"}.get(wanted["type"], wanted["type"])
    assert schema.get("name") == wanted.get("name")
    assert schema["optional"] == wanted.get("optional", False)
    assert schema.get("parameters") == wanted.get("parameters")
    assert value == json_of(expected["value"])


def json_of(value: Any) -> Any:
    """A case's value as JsonConverter writes it."""
    match value:
        case {"$hex": digits}:
            return base64.b64encode(bytes.fromhex(digits)).decode()
        case {"$epoch_ms": milliseconds}:
            return milliseconds
        case _:
            return value


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("uint64-mode-long-max", -1),
        ("decimal-mode-precise", "AeII"),
        ("zero-timestamp-notnull-connect", "1970-01-01T00:00:00Z"),
        ("bit16", base64.b64encode(b"\x34\x12").decode()),
        ("vector", [1.1]),
        ("datetime6-2020-00-10 00:00:00.000000", None),
        ("date-2020-02-30", 18322),
    ],
)
def test_departures_have_their_own_form(name: str, expected: Any) -> None:
    """The value that is written instead."""
    (case,) = [case for case in CASES["cases"] if case["id"] == name]

    _, value = value_of(case["input"])

    assert value == expected


def test_a_geometry_is_a_point() -> None:
    """Undamaged: its well-known binary and its coordinates."""
    (case,) = [case for case in CASES["cases"] if case["id"] == "geometry-unknown-included"]

    schema, value = value_of(case["input"])

    assert schema["name"] == "io.debezium.data.geometry.Point"
    assert (value["x"], value["y"]) == (1.0, 2.0)


# --- positions ---------------------------------------------------------------------------------------------------------


def vgtid_of(entries: list[dict[str, Any]] | None) -> Vgtid:
    return parse_vgtid(json.dumps(entries or []))


@pytest.mark.parametrize("case", cases("vgtid"))
def test_vgtids_are_read_and_written_as_the_reference_does(case: dict[str, Any]) -> None:
    """The same text comes out; parts and phase are known."""
    expected = case["expect"]

    parsed = vgtid_of(case["input"]["json"])

    assert format_vgtid(parsed) == expected["canonical"]
    assert begins_copy(parsed) == expected["copy_phase"]
    assert len(parsed) == expected["shards"]
    if "local" in expected:
        assert format_vgtid(local_vgtid(parsed, case["input"]["local"])) == expected["local"]


@pytest.mark.parametrize("case", cases("gtid"))
def test_gtid_sets_are_read_as_the_reference_does(case: dict[str, Any]) -> None:
    """Version, hosts and sequences."""
    expected = case["expect"]

    place = parse_shard_position(case["input"]["gtid"])

    assert place.version == expected["version"]
    assert sorted(place.hosts) == sorted(expected["hosts"])
    assert sorted(map(str, place.sequences)) == sorted(expected["sequences"])


@pytest.mark.parametrize("case", cases("rank"))
def test_ranks_are_the_references(case: dict[str, Any]) -> None:
    """The sum of the sequences; a text without any is refused."""
    if "expect_error" in case:
        with pytest.raises(ValueError, match="no GTID set"):
            parse_shard_position(case["input"]["gtid"])
    else:
        assert str(parse_shard_position(case["input"]["gtid"]).debezium_rank) == case["expect"]["result"]


@pytest.mark.parametrize("case", cases("lineage"))
def test_epochs_are_inherited_as_in_the_reference(case: dict[str, Any]) -> None:
    """One more than the greatest of the overlapping shards."""
    assert inherited_epoch(case["input"]["shard"], case["input"]["epochs"]) == case["expect"]["result"]


@pytest.mark.parametrize("case", cases("epoch_gtid"))
def test_an_epoch_grows_when_a_host_is_lost(case: dict[str, Any]) -> None:
    """One shard's GTID set and the one before."""
    given = case["input"]

    assert shard_epoch(given["prev_epoch"], given["prev"], given["cur"]) == case["expect"]["result"]


@pytest.mark.parametrize("case", cases("epoch"))
def test_epochs_of_all_shards_are_the_references(case: dict[str, Any]) -> None:
    """Step by step, with the whole map after each."""
    epochs: dict[str, int] = dict(case["input"]["epochs"])
    for step, expected in zip(case["input"]["steps"], case["expect"]["steps"], strict=True):
        if step["prev"] is None:
            continue  # a reader always has a previous VGTID: the one that it asked for
        if "error" in expected:
            with pytest.raises(PipelineHalted):
                next_epochs(epochs, vgtid_of(step["prev"]), vgtid_of(step["cur"]))
            continue

        epochs = next_epochs(epochs, vgtid_of(step["prev"]), vgtid_of(step["cur"]))

        assert epochs == json.loads(expected["map"])
        assert epochs[step["shard"]] == expected["epoch"]


def test_a_binary_key_survives_in_a_vgtid() -> None:
    """Bytes that are no UTF-8 are kept in base64: a copy resumes after the very key."""
    text = (
        '[{"keyspace":"ks","shard":"0","gtid":"MySQL56/a:1","table_p_ks":[{"table_name":"t","lastpk":{"fields":'
        '[{"name":"id","type":"VARBINARY","charset":63,"flags":128}],"rows":[{"lengths":["2"],"values_base64":"//4="}]}}]}]'
    )

    assert format_vgtid(parse_vgtid(text)) == text


@pytest.mark.parametrize("text", ["", "{}", '[{"shard":"-80"}]', "nonsense"])
def test_a_text_that_is_no_vgtid_is_refused(text: str) -> None:
    """With the place of the fault."""
    with pytest.raises(ValueError, match="is no VGTID"):
        parse_vgtid(text)


def test_a_shard_that_loses_its_place_halts() -> None:
    """No order can be made of it; the message names the remedy."""
    place = ShardGtid(keyspace="ks", shard="0", gtid="MySQL56/a:1-3")

    with pytest.raises(HeadwaterError, match="reset"):
        next_epochs({"0": 1}, [place], [msgspec.structs.replace(place, gtid="current")])
