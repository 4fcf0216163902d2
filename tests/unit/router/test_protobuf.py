"""Protobuf events: the wire form, the records, and how a registry's versions give fields their numbers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote

import pytest

from libs.config.connections import SchemaRegistrySettings
from libs.errors import ServiceUnavailable
from libs.events.dead_letter import decode_dead_letter
from libs.formats.connect_schema import (
    MYSQL_FORM,
    TRANSACTION_VALUE,
    ConnectSchema,
    key_schema,
    schema_change_value_schema,
    value_schema,
)
from libs.formats.protobuf_schema import protobuf_schema, read_protobuf_schema
from libs.types.order import EventOrder
from libs.types.tenant import EventFormat, FormatSettings, NameAdjustment, TopicSettings
from services.router.routes.encode import SchemaRefused, SchemaText
from services.router.routes.match import NO_REGISTRY
from services.router.routes.schema_registry import SchemaRegistry
from tests.unit.events.golden import records
from tests.unit.formats.test_avro_writer import plain, struct_of
from tests.unit.formats.test_protobuf_writer import expected, parsed, values
from tests.unit.router.test_avro import FakeRegistry, avro_book, event
from tests.unit.router.test_deliver import (
    ORDERS,
    add_run,
    builder,
    deliver,
    orders,
    recorded_rows,
    records_of,
    taken,
    tenant,
)

PROTOBUF = FormatSettings(kind=EventFormat.PROTOBUF)


def read_one(schema: ConnectSchema, written: bytes) -> Any:
    """The value after magic, id and the first message's index."""
    assert (written[0], written[5]) == (0, 0)
    return values(schema, parsed(str(protobuf_schema(schema)), written[6:]))


@pytest.mark.parametrize("table", ["comp_pk", "no_pk", "uniq_only", "odd-name tbl", "defaults_t"])
def test_records_have_the_values_of_the_json(table: str) -> None:
    """Keys, rows, tombstones, key changes: record by record those of a tenant with JSON; headers too, whose keys stay text."""
    _, versions, batch = recorded_rows(table)
    names = FormatSettings(field_names=NameAdjustment.AVRO)
    book = avro_book(
        tenant("p", format=PROTOBUF), tenant("j", format=names), registry=FakeRegistry(), source="v1", schemas=versions
    )
    deliveries = deliver(batch, book)
    topic = f"v1.smp.{table.replace(' ', '_')}"
    views = [book.routes("smp", table, each.version).groups[0].projection.schema for each in versions.values()]
    by_version = {
        str(view.version).encode(): (
            key_schema("v1", view, NameAdjustment.AVRO),
            value_schema("v1", view, MYSQL_FORM, NameAdjustment.AVRO),
        )
        for view in views
    }

    as_protobuf, as_json = records_of(deliveries, f"p.{topic}"), records_of(deliveries, f"j.{topic}")

    assert as_json
    assert len(as_protobuf) == len(as_json)
    for (key, value, headers), (json_key, json_value, json_headers) in zip(as_protobuf, as_json, strict=True):
        of_key, of_value = by_version[dict(headers)["headwater.schema-version"]]
        for schema, ours, theirs in ((of_key, key, json_key), (of_value, value, json_value)):
            if theirs is None:
                assert ours is None
            else:
                assert schema is not None
                assert read_one(schema, ours) == expected(schema, json.loads(theirs))
        assert headers == json_headers


def test_statements_and_transactions_are_protobuf_too() -> None:
    """In the tenant's other topics."""
    recorded = records("v1")[-1]["value"]["payload"]
    batch = builder("v1")
    batch.add_table_change(
        ORDERS,
        schema_version=0,
        order=EventOrder(epoch=0, rank=1, tx_ordinal=1),
        committed_at_us=1,
        is_snapshot=False,
        key=b'{"databaseName":"smp"}',
        value=json.dumps(recorded).encode(),
    )
    batch.add_begin("gtid:7", 5_000)
    batch.add_end("gtid:7", 5_000, [(ORDERS, 2)])
    spec = tenant("a", format=PROTOBUF, topics=TopicSettings(transactions=True))

    deliveries = deliver(taken(batch), avro_book(spec, registry=FakeRegistry(), source="v1"))

    ((_, value, _),) = records_of(deliveries, "a.v1")
    schema = schema_change_value_schema(MYSQL_FORM)
    assert read_one(schema, value) == expected(schema, recorded)
    boundaries = records_of(deliveries, "a.v1.transaction")
    assert [read_one(TRANSACTION_VALUE, value)["event_count"] for _, value, _ in boundaries] == [None, 2]


def test_a_row_that_protobuf_cannot_hold_is_set_aside_alone() -> None:
    """Its neighbours are delivered."""
    batch = builder()
    add_run(batch, [("c", b'{"id":1}', event()), ("c", b'{"id":2}', event(after={"id": 2**31}))])

    deliveries = deliver(taken(batch), avro_book(tenant("a", format=PROTOBUF), registry=FakeRegistry()))

    (letter,) = [decode_dead_letter(value) for _, value, _ in records_of(deliveries, "a.dead-letter")]
    assert "'id' is not a 32-bit integer" in letter.reason
    ((key, value, _),) = records_of(deliveries, "a.s.shop.orders")
    assert value_schema("s", orders(1), MYSQL_FORM)["name"] == "s.shop.orders.Envelope"
    assert key == b"\0\0\0\1\0\0\x08\x01"
    assert read_one(value_schema("s", orders(1), MYSQL_FORM), value)["after"] == {"id": 1}


def test_a_refused_schema_sets_its_tenants_rows_aside() -> None:
    """And nobody else's; without a registry the letter names the remedy."""
    batch = builder()
    add_run(batch, [("c", b'{"id":1}', event())])
    tenants = tenant("a", format=PROTOBUF), tenant("b", format=PROTOBUF)

    deliveries = deliver(taken(batch), avro_book(*tenants, registry=FakeRegistry(refuses="a.")))

    (letter,) = [decode_dead_letter(value) for _, value, _ in records_of(deliveries, "a.dead-letter")]
    assert (letter.reason, letter.is_withheld) == ("subject a.s.shop.orders-key: no", True)
    assert len(records_of(deliveries, "b.s.shop.orders")) == 1
    (refused, _) = avro_book(*tenants, registry=NO_REGISTRY).routes("shop", "orders", 1).refused
    assert "format protobuf needs a schema registry" in refused.reason


# --- versions ----------------------------------------------------------------------------------------------------------


class Versions:
    """A registry's versions of one subject, as its interface serves them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.registered = 0
        self.before_next: list[str] = []
        """Of another router, which is a moment faster."""

    def register(self, text: str) -> int:
        """The id of a text: its version, here."""
        self.texts += self.before_next
        self.before_next = []
        self.registered += 1
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1

    def answer(self, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        """Status and document."""
        assert unquote(path).startswith("/subjects/t-value/versions")
        if body is not None:
            return 200, {"id": self.register(body["schema"])}
        if not self.texts:
            return 404, {"error_code": 40401, "message": "no such subject"}
        number = path.partition("?")[0].rpartition("/")[2]
        if number == "versions":
            return 200, list(range(1, len(self.texts) + 1))
        found = {"subject": "t-value", "version": int(number), "id": int(number), "schemaType": "PROTOBUF"}
        return 200, found | {"schema": self.texts[int(number) - 1]}


@contextmanager
def serving(versions: Versions) -> Iterator[str]:
    """A server with these; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def do_GET(self) -> None:
            self._answer(None)

        def _answer(self, body: dict[str, Any] | None) -> None:
            status, document = versions.answer(self.path, body)
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def wanted(*names: str) -> SchemaText:
    """A table of these columns."""
    return SchemaText(EventFormat.PROTOBUF, str(protobuf_schema(struct_of(*(plain(name, "int32") for name in names)))))


def numbers(text: str) -> dict[str, int]:
    """Of the fields."""
    return {field.name: field.number for field in read_protobuf_schema(text).message.fields}


def registry(url: str, folder: Path) -> SchemaRegistry:
    """A router's, just started if it has no notes there."""
    return SchemaRegistry(SchemaRegistrySettings(url=url), folder / "ids")


def test_numbers_come_from_all_versions_of_the_subject(tmp_path: Path) -> None:
    """For any process that asks, and in any order of the table's versions: those that are there are found."""
    held = Versions()
    with serving(held) as url:
        first = registry(url, tmp_path)
        made = [first.register("t-value", wanted(*columns)) for columns in (["a", "b"], ["a", "c"], ["b", "a", "d"])]
        again = [registry(url, tmp_path / "x").register("t-value", wanted(*each)) for each in (["c", "a"], ["b", "a"])]

    assert [numbers(each.text) for each in made] == [{"a": 1, "b": 2}, {"a": 1, "c": 3}, {"b": 2, "a": 1, "d": 4}]
    assert [each.schema_id for each in made] == [1, 2, 3]
    assert [each.schema_id for each in again] == [2, 1]
    assert numbers(again[1].text) == {"a": 1, "b": 2}
    assert held.registered == 3


def test_of_two_routers_at_once_the_later_one_numbers_anew(tmp_path: Path) -> None:
    """A number that both took for a new column is the earlier one's."""
    held = Versions()
    with serving(held) as url:
        ours = registry(url, tmp_path)
        ours.register("t-value", wanted("a"))
        held.before_next = [wanted("a", "theirs").text]
        made = ours.register("t-value", wanted("a", "ours"))
        restarted = registry(url, tmp_path / "x").register("t-value", wanted("a", "ours"))
        theirs = registry(url, tmp_path / "x").register("t-value", wanted("a", "theirs"))

    assert numbers(made.text) == {"a": 1, "ours": 3}
    assert restarted == made
    assert numbers(theirs.text) == {"a": 1, "theirs": 2}


def test_numbers_are_known_while_the_registry_is_away(tmp_path: Path) -> None:
    """Also after a restart."""
    with serving(Versions()) as url:
        for columns in (["a", "b"], ["b"]):
            registry(url, tmp_path).register("t-value", wanted(*columns))
    again = registry(url, tmp_path)

    assert numbers(again.register("t-value", wanted("b")).text) == {"b": 2}
    assert again.register("t-value", wanted("a", "b")).schema_id == 1
    with pytest.raises(ServiceUnavailable):
        again.register("t-value", wanted("c"))


@pytest.mark.parametrize(
    "text", ['{"type": "string"}', "message R { reserved 5 to max; }", "message R { int32 x = 536870911; }"]
)
def test_a_subject_that_is_not_to_go_on_from_is_refused(text: str, tmp_path: Path) -> None:
    """By name, with the possible remedy; nothing is registered over it."""
    held = Versions()
    held.texts.append(text)
    with serving(held) as url, pytest.raises(SchemaRefused, match=r"subject t-value: .*delete"):
        registry(url, tmp_path).register("t-value", wanted("a"))

    assert held.registered == 0
