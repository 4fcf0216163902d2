"""Replaying the VStream that Debezium's Vitess connector was recorded on gives the events that it wrote.

Every departure is listed in DEPARTURES with its reason (docs/vitess-differences.md); anything else that differs fails.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from libs.formats.connect_schema import (
    EnvelopeForm,
    key_schema,
    schema_change_key_schema,
    schema_change_value_schema,
    value_schema,
)
from libs.source.vitess.settings import EventSettings, TransactionMetadata
from libs.types.table import TableId, TableSchema
from services.vstream_reader.found import DdlStatement
from tests.unit.vstream_reader.stream import Replay, replay, start_of

GOLDEN = Path(__file__).parents[2] / "golden" / "debezium-vitess"
COPIED = 4

DEPARTURES = {
    "ts0": "a TIMESTAMP is ISO 8601 in UTC, as its schema says; 3.5.0 left MySQL's text in it",
    "ts6": "the same",
    "js": "JSON without the spaces that MySQL prints, so that copy and stream give one form",
    "b1": "a BIT is delivered; Debezium leaves the column out",
    "b8": "the same",
    "b64": "the same",
    "geo": "a geometry is delivered; Debezium leaves the column out",
}


def recorded(name: str) -> list[dict[str, Any]]:
    lines = (GOLDEN / "w1" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def answers(name: str) -> list[bytes]:
    data = (GOLDEN / f"input_vstream_{name}.bin").read_bytes()
    parts, place = [], 0
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], "big")
        parts.append(data[place + 4 : place + 4 + size])
        place += 4 + size
    return parts


@pytest.fixture(scope="module")
def replayed() -> Replay:
    return replay(
        start_of("0", keyspace="smp"),
        source="w1",
        keyspace="smp",
        is_captured=lambda table_id: str(table_id) == "smp.t",
        events=EventSettings(transaction_metadata=TransactionMetadata.ON),
        is_copying=True,
    ).feed(*answers("copy"))


@pytest.fixture(scope="module")
def events(replayed: Replay) -> list[tuple[str, bytes, dict[str, Any]]]:
    return [
        (op, key, json.loads(value))
        for run in replayed.runs()
        for op, key, value in zip(run.ops.decode(), run.keys, run.values, strict=True)
    ]


def test_the_replayed_stream_gives_the_recorded_events(events: list[tuple[str, bytes, dict[str, Any]]]) -> None:
    """Keys, images, operations, source and transaction blocks are those that Debezium wrote, event by event."""
    expected = [record for record in recorded("w1.smp.t") if record["value"] is not None]

    assert [json.loads(key) for _, key, _ in events] == [record["key"]["payload"] for record in expected]
    for nth, ((_, _, value), record) in enumerate(zip(events, expected, strict=True)):
        payload = record["value"]["payload"]
        is_copied = nth < COPIED
        for image in ("before", "after"):
            assert without_departures(value[image]) == without_departures(payload[image])
        # Debezium says of copied rows that they were created, in transactions, outside a snapshot.
        assert value["op"] == ("r" if is_copied else payload["op"])
        assert value["transaction"] == (None if is_copied else payload["transaction"])
        assert comparable_source(value["source"], is_copied) == comparable_source(payload["source"], is_copied)
        assert list(value) == list(payload)
        assert list(value["source"]) == list(payload["source"])


def test_bits_and_geometries_are_delivered(events: list[tuple[str, bytes, dict[str, Any]]]) -> None:
    """Values that Debezium leaves out: BIT as Debezium's Bits (the lowest byte first), a POINT as its Point."""
    images = {value["after"]["id"]: value["after"] for _, _, value in events if value["after"]}

    assert [images[101][name] for name in ("b1", "b8", "b64", "geo")] == [None, None, None, None]
    assert [images[102][name] for name in ("b1", "b8", "b64")] == [False, "AA==", "AAAAAAAAAAA="]
    assert [images[103][name] for name in ("b1", "b8", "b64")] == [True, "/w==", "//////////8="]
    assert [images[row_id]["geo"]["srid"] for row_id in (102, 103)] == [None, 4326]


def test_a_changed_key_is_a_delete_and_a_create(events: list[tuple[str, bytes, dict[str, Any]]]) -> None:
    """The two halves stand side by side, so that each can name the other's key in its headers."""
    ops = "".join(op for op, _, _ in events)

    assert ops == "rrrr" + "cccc" + "u" + "DC" + "d" + "c"


def without_departures(image: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if image is None else {name: value for name, value in image.items() if name not in DEPARTURES}


def comparable_source(block: dict[str, Any], is_copied: bool) -> dict[str, Any]:
    left_out = {"version"} | ({"snapshot"} if is_copied else set())
    return {name: value for name, value in block.items() if name not in left_out}


def test_a_statement_is_found_at_its_place(replayed: Replay) -> None:
    """The schema-change event has Debezium's statement and VGTID."""
    (record,) = recorded("w1")
    payload = record["value"]["payload"]

    (statement,) = [found for found in replayed.found if isinstance(found, DdlStatement)]

    assert statement.statement == payload["ddl"]
    assert json.loads(statement.vgtid) == payload["source"]["vgtid"]


def test_each_form_of_the_table_has_a_version(replayed: Replay) -> None:
    """The column that the statement added is in the second version only."""
    first, second = replayed.schemas

    assert [column.name for column in second.columns] == [*[column.name for column in first.columns], "extra"]


def test_the_schemas_around_events_are_the_recorded_ones(replayed: Replay) -> None:
    """Key, value, and schema-change event, but for the columns that Debezium leaves out."""
    before, after = replayed.schemas
    form = EnvelopeForm(connector="vitess")
    first, *_, last = [record for record in recorded("w1.smp.t") if record["value"] is not None]
    (statement,) = recorded("w1")

    for schema, record in ((before, first), (after, last)):
        assert key_schema("w1", schema) == record["key"]["schema"]
        assert without_left_out(value_schema("w1", schema, form)) == record["value"]["schema"]
    assert schema_change_key_schema(form) == statement["key"]["schema"]
    assert schema_change_value_schema(form) == statement["value"]["schema"]


def without_left_out(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as Debezium has it, which knows no BIT and no geometry, and does not escape an ENUM member's comma."""
    for image in schema["fields"][:2]:
        image["fields"] = [field for field in image["fields"] if field["field"] not in ("b1", "b8", "b64", "geo")]
        for field in image["fields"]:
            if field["field"] == "en":
                field["parameters"] = {"allowed": field["parameters"]["allowed"].replace("\\,", ",")}
    return schema


def test_a_schema_lacks_what_events_lack() -> None:
    """Removed members, and the two of ordered transactions."""
    table = TableSchema(table_id=TableId(database="ks", table="t"), columns=())
    form = EnvelopeForm("vitess", ("source.vgtid", "transaction.id", "ts_ns"), has_ordered_transactions=True)

    members = {field["field"]: field for field in value_schema("w1", table, form)["fields"]}

    assert "ts_ns" not in members
    assert "vgtid" not in [field["field"] for field in members["source"]["fields"]]
    assert [field["field"] for field in members["transaction"]["fields"]] == [
        "total_order",
        "data_collection_order",
        "transaction_epoch",
        "transaction_rank",
    ]
