"""Replaying the log that Debezium was recorded on gives the events that Debezium wrote.

The statements of the stream are those of ``samples2.sql``. Every departure stands in DEPARTURES with its reason, as a
pair of values; anything else that differs fails.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog.testing

from libs.events.batch import BatchBuilder, BatchIdentity
from libs.mysql import binlog_events
from libs.mysql.ddl import TableChangeKind, apply_ddl
from libs.mysql.gtid import ExecutedGtids, GtidSet
from libs.mysql.packets import Packets
from libs.types.table import TableId, TableSchema
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch
from services.binlog_reader import log_tables
from services.binlog_reader.decode import DdlStatement, LogDecoder
from services.binlog_reader.position import BinlogPosition

GOLDEN = Path(__file__).parents[2] / "golden" / "debezium-mysql"
STREAM_STARTS = 12384
"""Where the recorded connector's snapshot ended and its stream began."""
SERVER = "cd154958-e548-11f1-84e4-02fc00000001"

_JSON = (
    r'{"a":[1,null,true,false,{"k":[]}],"d":0.1,"e":{},"n":%s,"s":"zażółć 😀","big":18446744073709551615,"esc":"q\"\\/\u0001",'
    r'"neg":-9223372036854775808%s}'
)
_JSON_OF_MOMENTS = (
    '{"u":5,"da":"2024-01-02","dt":"2024-01-02 03:04:05.678901","tm":"%s","bin":"%s","dbl":1.0,"dec":12.3400}'
)
DEPARTURES: dict[tuple[str, str], tuple[Any, Any]] = {
    ("y", "YEAR 0 is the value 0000; Debezium's stream writes 1900 and its snapshot 2000"): (1900, 0),
    ("en", "an ENUM member with a comma is the member; Debezium's stream leaves a backslash of its own in it"): (
        "with\\,comma",
        "with,comma",
    ),
    ("f", "the shortest number that is the stored FLOAT; Java prints at least two digits"): (1.4e-45, 1e-45),
    ("dt6", "year 1 is year 1; Debezium's time adjuster makes it 2001"): (978_307_200_000_000, -62_135_596_800_000_000),
    ("js", "a double is printed as MySQL prints it, in snapshot and log; Debezium has two forms"): (
        _JSON % ("-15000000000", ""),
        _JSON % ("-15000000000.0", ""),
    ),
    ("js", "the same, in the row that was changed"): (
        _JSON % ("-15000000000", ',"added":1'),
        _JSON % ("-15000000000.0", ',"added":1'),
    ),
    ("js", "a TIME inside a document is MySQL's text, Debezium garbles it; opaque bytes keep their type"): (
        _JSON_OF_MOMENTS % ("13:0-35:0-57.00000-789", "yv4="),
        _JSON_OF_MOMENTS % ("-12:34:56.789000", "base64:type15:yv4="),
    ),
}
"""(column, reason) → (the value that Debezium recorded, ours). No other value may differ, in these columns neither."""


def recorded(table: str) -> list[dict[str, Any]]:
    lines = (GOLDEN / "v1" / f"v1.smp.{table}.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    return [event for event in events if event["value"] and event["value"]["payload"]["source"]["snapshot"] == "false"]


def schemas_before_the_stream() -> dict[TableId, TableSchema]:
    schemas: dict[TableId, TableSchema] = {}
    for statement in re.split(r";\s*\n", (GOLDEN / "samples.sql").read_text(encoding="utf-8")):
        create = statement.find("CREATE TABLE")
        if create >= 0:
            for change in apply_ddl(schemas, "smp", statement[create:]):
                assert change.schema is not None
                schemas[change.table_id] = msgspec.structs.replace(change.schema, version=1)
    return schemas


_Event = tuple[str, dict[str, Any] | None, dict[str, Any]]


@pytest.fixture(scope="module")
def replayed() -> list[_Event]:
    return replay()[0]


def replay(*, takes_at_once: bool = False) -> tuple[list[_Event], Mapping[str, str]]:
    """(table, key, value) of each event, in log order; and the tables that were quarantined, with the reason.

    ``takes_at_once``: the batch is taken after each event of the log, else at the end.
    """
    batch = BatchBuilder(
        BatchIdentity(source="v1", source_partition="0", connector="mysql", run_id="run", fencing_token=1)
    )
    decoder = LogDecoder(
        "v1",
        BinlogPosition(gtid_set=f"{SERVER}:1-5124", file="binlog.000004", pos=STREAM_STARTS),
        ExecutedGtids(GtidSet.parse(f"{SERVER}:1-5124")),
        schemas_before_the_stream(),
        is_captured=lambda table_id: table_id.database == "smp",
        batch=batch,
        checksum_bytes=4,
        transaction_metadata=True,
    )
    payloads: list[bytes] = []
    for data, place, end in log_events():
        for ddl in decoder.feed(Packets(data, [(place, end)])):
            if ddl is not None:
                apply_statement(decoder, ddl)
        if takes_at_once:
            payloads.append(batch.take(0)[0])
    payloads.append(batch.take(0)[0])
    entries = [entry for payload in payloads for entry in ChangeBatch.FromString(payload).entries]
    events = [event for entry in entries for event in events_of(entry.run)]
    return events, decoder.tables.quarantined


def apply_statement(decoder: LogDecoder, ddl: DdlStatement) -> None:
    changed: dict[TableId, TableSchema | None] = {}
    for change in apply_ddl(decoder.tables.schemas, ddl.database, ddl.statement):
        if change.kind is TableChangeKind.RENAME and change.previous_id is not None:
            changed[change.previous_id] = None
        changed[change.table_id] = change.schema
    decoder.tables.apply_schemas(changed)


def log_events() -> Iterator[tuple[bytes, int, int]]:
    data = (GOLDEN / "source.binlog.000004").read_bytes()
    place = 4
    while place < len(data):
        size = binlog_events.read_header(data, place)[3]
        if place >= STREAM_STARTS or place < 200:  # the format description, then the stream
            yield data, place, place + size
        place += size


def events_of(run: Any) -> Iterator[_Event]:
    for key, value in zip(run.keys, run.values, strict=True):
        yield run.table, json.loads(key) if key else None, json.loads(value)


@pytest.mark.parametrize(
    "table", ["all_types", "comp_pk", "no_pk", "uniq_only", "defaults_t", "fresh", "fresher", "ctas", "odd-name tbl"]
)
def test_a_replayed_log_gives_the_recorded_events(table: str, replayed: list[_Event]) -> None:
    """Keys, images, source and transaction blocks are those that Debezium wrote, event by event."""
    expected = recorded(table.replace(" ", "_"))

    events = [(key, value) for name, key, value in replayed if name == table]

    assert [key for key, _ in events] == [event["key"] and event["key"]["payload"] for event in expected]
    for (_, value), event in zip(events, expected, strict=True):
        payload = event["value"]["payload"]
        for image in ("before", "after"):
            assert printed(value[image]) == printed(with_departures(payload[image]))
        assert value["op"] == payload["op"]
        assert value["transaction"] == payload["transaction"]
        assert comparable_source(value["source"]) == comparable_source(payload["source"])
        assert list(value) == list(payload)
        assert list(value["source"]) == list(payload["source"])


def test_every_departure_is_met_in_the_recording(
    replayed: list[_Event],
) -> None:
    """A reason that no event needs any more goes; each value of ours that DEPARTURES names is seen."""
    images = [image for event in recorded("all_types") for image in images_of(event["value"]["payload"])]
    ours = [image for _, _, value in replayed for image in images_of(value)]

    for (column, reason), (theirs, mine) in DEPARTURES.items():
        assert any(same(image[column], theirs) for image in images), reason
        assert any(same(image.get(column), mine) for image in ours), reason


def images_of(payload: dict[str, Any]) -> list[dict[str, Any]]:
    return [image for image in (payload["before"], payload["after"]) if image is not None]


def with_departures(image: dict[str, Any] | None) -> dict[str, Any] | None:
    """The image that Debezium recorded, with our values where we depart from it."""
    if image is None:
        return None
    departed = dict(image)
    for (column, _), (theirs, ours) in DEPARTURES.items():
        if column in departed and same(departed[column], theirs):
            departed[column] = ours
    return departed


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1, 1.0 and true are three values."""
    return json.dumps(one) == json.dumps(other)


def printed(image: dict[str, Any] | None) -> str:
    return json.dumps(image, ensure_ascii=False)


def comparable_source(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "version"}


def test_a_batch_may_be_taken_after_any_event(replayed: list[_Event]) -> None:
    """Inside a transaction too, and between rows events of one table: the decoder opens another run."""
    events, _ = replay(takes_at_once=True)

    assert list(map(without_processing_time, events)) == list(map(without_processing_time, replayed))


def without_processing_time(event: _Event) -> _Event:
    table, key, value = event
    return table, key, {name: each for name, each in value.items() if not name.startswith("ts_")}


def test_orders_grow_along_the_log(replayed: Any) -> None:
    """No two events of a log share an order, and each is above the one before it."""
    totals = [(value["transaction"]["id"], value["transaction"]["total_order"]) for _, _, value in replayed]

    assert len(totals) == len(set(totals))


def test_an_unforeseen_error_of_a_table_quarantines_it_alone(
    replayed: list[_Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = log_tables.rows_decoder

    def failing(schema: TableSchema, *more: Any, **named: Any) -> Any:
        if schema.table_id.table == "comp_pk":
            raise ZeroDivisionError
        return made(schema, *more, **named)

    monkeypatch.setattr(log_tables, "rows_decoder", failing)

    with structlog.testing.capture_logs():  # drawing a trace takes a second
        events, quarantined = replay()

    assert [name for name, _, _ in events] == [name for name, _, _ in replayed if name != "comp_pk"]
    assert list(quarantined) == ["smp.comp_pk"]
    assert "ZeroDivisionError" in quarantined["smp.comp_pk"]
