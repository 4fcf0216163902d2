"""The conformance table of Tencent's protocol (``tests/golden/cases/g_tencent_dts.json``; its ``source`` says how it came)."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor as Field

from libs.errors import HeadwaterError
from libs.mysql.logical import column
from libs.types.table import TableId, TableSchema
from libs.types.value import LogicalKind
from protos.dts import subscription_pb2 as pb
from services.dts_decoder.assembly import Assembler, KafkaMessage
from services.dts_decoder.messages import EntryReader
from tests.unit.dts_decoder.topic import TOPIC, assembler, begin, decode, dml, kafka_message, whole

CASES = json.loads((Path(__file__).parents[2] / "golden" / "cases" / "g_tencent_dts.json").read_text())
_EVENTS = {
    1: pb.BeginEvent,
    3: pb.CommitEvent,
    4: pb.DDLEvent,
    5: pb.RollbackEvent,
    6: pb.HeartbeatEvent,
    7: pb.CheckpointEvent,
}
_KINDS = {Field.TYPE_ENUM: "enum", Field.TYPE_MESSAGE: "message", Field.TYPE_STRING: "string", Field.TYPE_BYTES: "bytes",
          Field.TYPE_BOOL: "bool", Field.TYPE_INT32: "int32", Field.TYPE_INT64: "int64", Field.TYPE_UINT32: "uint32",
          Field.TYPE_UINT64: "uint64"}  # fmt: skip


def _by_id(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in cases]


@pytest.mark.parametrize("name", sorted(CASES["schema"]["messages"]))
def test_messages_have_tencents_numbers(name: str) -> None:
    """Every field has the number, the kind and the name that DTS gives it."""
    ours = pb.DESCRIPTOR.message_types_by_name[name].fields_by_number

    for wanted in CASES["schema"]["messages"][name]:
        field = ours[wanted["number"]]
        assert (field.name, field.is_repeated) == (wanted["name"], wanted["repeated"])
        assert _KINDS[field.type] == wanted["kind"]


@pytest.mark.parametrize("name", sorted(CASES["schema"]["enums"]))
def test_enums_have_tencents_numbers(name: str) -> None:
    """Every value has DTS's number; only our names carry the enum's before them."""
    ours = pb.DESCRIPTOR.enum_types_by_name[name].values_by_number

    assert {number: value.name for number, value in ours.items()} == {
        number: f"{_prefix(name)}_{wanted}" for wanted, number in CASES["schema"]["enums"][name].items()
    }


def _prefix(enum_name: str) -> str:
    return {"DMLType": "DML_TYPE"}.get(enum_name) or enum_name.replace("Type", "_TYPE").upper()


@pytest.mark.parametrize("case", _by_id(CASES["messages"]))
def test_a_message_is_read(case: dict[str, Any]) -> None:
    """Each entry of a sample message, by the decoder itself; its row values in the column's own form."""
    message = kafka_message(bytes.fromhex(case["kafka_value_hex"]), 7)
    if "expect_error" in case:
        with pytest.raises(HeadwaterError, match=r"topic-subs-test\[0\]@7"):
            assembler().take(message)
        return

    found = assembler().take(message)

    assert found is not None
    seen = _entries(found.data)
    assert len(seen) == len(case["expect"])
    for one, wanted in zip(seen, case["expect"], strict=True):
        assert one | wanted == one
    made = decode([found])
    changes = [wanted for wanted in case["expect"] if wanted["type"] == "DML"]
    assert [value["op"] for _, _, value in made.rows] == [
        wanted["op"][0].lower().replace("i", "c") for wanted in changes
    ]
    for (_, _, value), wanted in zip(made.rows, changes, strict=True):
        for side in ("before", "after"):
            if side in wanted:
                assert _printed(value[side]) == wanted[side]
    if case.get("commit_offset"):
        assert made.decoder.progress.confirmable_offset == 8


def _entries(data: Any) -> list[dict[str, Any]]:
    """Entries in the case table's words, as the decoder's own reader sees them."""
    reader, found = EntryReader(data), []
    while reader.advance():
        told: dict[str, Any] = {"type": pb.MessageType.Name(reader.message_type).removeprefix("MESSAGE_TYPE_")}
        if reader.event_kind == 2:
            reader.read_dml()
            event = pb.DMLEvent.FromString(reader.event())
            told |= {
                "op": pb.DMLType.Name(reader.dml_type).removeprefix("DML_TYPE_"),
                "schema": reader.schema_name.decode(),
            }
            told |= {"table": reader.table_name.decode(), "keys": [each.name for each in event.columns if each.isKey]}
            assert list(pb.DMLEvent.FromString(reader.columns).columns) == list(event.columns)
            told |= _images(event)
        elif reader.event_kind:
            event = _EVENTS[reader.event_kind].FromString(reader.event())
            told |= {field.name: getattr(event, field.name) for field in event.DESCRIPTOR.fields}
            told |= {"schema": told["schemaName"]} if "schemaName" in told else {}
        found.append(told)
    return found


def _images(event: pb.DMLEvent) -> dict[str, Any]:
    [row] = event.rows
    names = [each.name for each in event.columns]

    def image(cells: Any) -> Any:
        return {name: _raw(cell) for name, cell in zip(names, cells, strict=True)} if cells else None

    return {"before": image(row.oldColumns), "after": image(row.newColumns)}


def _raw(cell: pb.Data) -> str | None:
    if cell.dataType == pb.DATA_TYPE_NIL:
        return None
    return cell.sv or cell.bv.decode()


def _printed(image: dict[str, Any] | None) -> dict[str, Any] | None:
    """A JSON row as the case table prints it: numbers as text, a DECIMAL of two digits out of its base64."""
    if image is None:
        return None
    return {name: _printed_value(name, value) for name, value in image.items()}


def _printed_value(name: str, value: Any) -> Any:
    if isinstance(value, int):
        return str(value)
    if name == "amt" and value is not None:
        unscaled = int.from_bytes(base64.b64decode(value), "big", signed=True)
        return f"{unscaled / 100:.2f}"
    return value


@pytest.mark.parametrize("case", _by_id(CASES["values"]))
def test_a_value_is_read(case: dict[str, Any]) -> None:
    """One value in a column of its type, in the form that the column has by every road."""
    cell = pb.Data.FromString(bytes.fromhex(case["data_hex"]))
    assert pb.DataType.Name(cell.dataType) == f"DATA_TYPE_{case['data_type']}"
    columns = [pb.Column(name="c", originalType=case["mysql_type"])]
    schema = TableSchema(
        table_id=TableId(database="shop", table="orders"), columns=(column("c", case["mysql_type"], charset="utf8mb4"),)
    )

    made = decode([whole(begin(), dml([pb.RowChange(newColumns=[cell])], columns=columns))], schemas=[schema])

    [(_, _, value)] = made.rows
    assert value["after"]["c"] == _form_of(case, schema.columns[0].logical_type.kind)


def _form_of(case: dict[str, Any], kind: LogicalKind) -> Any:
    """The wire form (``libs.types.value``) of the expected value, computed here a second time."""
    wanted = case["expect"]
    if "null" in wanted:
        return None
    if kind is LogicalKind.GEOMETRY:  # four bytes of SRID, then well-known binary
        return {"wkb": base64.b64encode(bytes.fromhex(wanted["hex"])[4:]).decode(), "srid": None}
    if "hex" in wanted:
        return base64.b64encode(bytes.fromhex(wanted["hex"])).decode()
    if "text" in wanted:
        return (
            wanted["text"].replace(" +00:00", "Z").replace(" ", "T")
            if kind is LogicalKind.ZONED_TIMESTAMP
            else wanted["text"]
        )
    if kind is LogicalKind.BOOLEAN:
        return wanted["sv"] == "1"
    if kind is LogicalKind.DECIMAL:
        unscaled = int(wanted["sv"].replace(".", ""))
        length = ((unscaled if unscaled >= 0 else ~unscaled).bit_length() >> 3) + 1
        return base64.b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()
    if kind in (LogicalKind.FLOAT32, LogicalKind.FLOAT64):
        return float(wanted["sv"])
    number = int(wanted["sv"])
    return number - 2**64 if number >= 2**63 else number


@pytest.mark.parametrize("case", _by_id(CASES["stream_scenarios"]))
def test_a_stream_is_followed(case: dict[str, Any]) -> None:
    """Parts, repeats, gaps, and where a consumer may commit."""
    assemblers: dict[int, Assembler] = {}
    seen: list[dict[str, Any]] = []
    confirmable: list[tuple[int, int | None, int]] = []
    for nth, each in enumerate(case["messages"]):
        ps = None if each["ps"] is None else str(each["ps"]).encode()
        message = KafkaMessage(TOPIC, each["partition"], each["offset"], ps, bytes.fromhex(each["value_hex"]))
        try:
            found = assemblers.setdefault(each["partition"], assembler()).take(message)
        except HeadwaterError:
            seen.append({"error_at": nth})
            break
        if found is not None:
            seen.append({"after_message": nth, "entries": len(_entries(found.data))})
            confirmable.append((each["partition"], decode([found]).decoder.progress.confirmable_offset, nth))

    for wanted in case["expect"]:
        if "commit" in wanted:
            commits = [(partition, offset, nth) for partition, offset, nth in confirmable if offset is not None]
            told = wanted["commit"]
            expected = [] if told is None else [(told["partition"], told["offset"], wanted["after_message"])]
            assert commits == expected
        elif "on_revoke" in wanted:
            assert seen == []  # a part waits; a decoder that is opened again has a new assembler
            assert assemblers[0].parts_waiting == 1
        else:
            assert wanted in seen
    told = [wanted for wanted in case["expect"] if "after_message" in wanted and "entries" in wanted]
    if told:
        assert [one for one in seen if "entries" in one] == told
