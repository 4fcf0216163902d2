"""Avro events: each schema's ids, the fate of rows that the registry refuses, and that the values are the JSON's."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from libs.config.connections import SchemaRegistrySettings
from libs.errors import InvalidSettings, ServiceUnavailable
from libs.events.dead_letter import decode_dead_letter
from libs.formats.avro_schema import avro_schema_text
from libs.formats.connect_schema import (
    MYSQL_FORM,
    TRANSACTION_KEY,
    TRANSACTION_VALUE,
    ConnectSchema,
    key_schema,
    schema_change_key_schema,
    schema_change_value_schema,
    value_schema,
)
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from libs.types.tenant import EventFormat, FormatSettings, NameAdjustment, TenantSpec, TopicSettings
from services.router.routes.book import RouteBook, RouteView
from services.router.routes.encode import RegisteredSchema, SchemaIds, SchemaRefused, SchemaText
from services.router.routes.match import NO_REGISTRY
from services.router.routes.schema_registry import SchemaRegistry
from services.router.routes.topic_claims import TopicClaims
from tests.certificates import write_certificates
from tests.unit.events.golden import records
from tests.unit.formats.test_avro_writer import as_avro, read
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

AVRO = FormatSettings(kind=EventFormat.AVRO)
TEXT = SchemaText(EventFormat.AVRO, '"string"')
EVENT = {
    "before": None,
    "after": {"id": 1},
    "source": records("v1.smp.no_pk")[0]["value"]["payload"]["source"],
    "transaction": None,
    "op": "c",
    "ts_ms": 1,
    "ts_us": 1,
    "ts_ns": 1,
}


class FakeRegistry:
    """Gives ids as a registry does: the same schema has the same, under every subject."""

    def __init__(self, *, refuses: str = "") -> None:
        self.asked: list[str] = []
        self.is_away = False
        self._refuses = refuses
        self._ids: dict[str, int] = {}

    def register(self, subject: str, schema: SchemaText) -> RegisteredSchema:
        """As ``SchemaIds``."""
        if self.is_away:
            raise ServiceUnavailable("away")
        if self._refuses and subject.startswith(self._refuses):
            raise SchemaRefused(f"subject {subject}: no")
        self.asked.append(subject)
        return RegisteredSchema(self._ids.setdefault(schema.text, 256 + len(self._ids)), schema.text)


def avro_book(
    *tenants: TenantSpec,
    registry: SchemaIds,
    source: str = "s",
    schemas: dict[tuple[str, int], TableSchema] | None = None,
) -> RouteView:
    """Routes over known schemas."""

    def fetch(table_id: TableId, version: int) -> TableSchema:
        return schemas[table_id.table, version] if schemas is not None else orders(version)

    return RouteBook(source, tenants, fetch, TopicClaims(), registry=registry).view()


def event(**changed: Any) -> bytes:
    """A whole event of ``shop.orders``, version 1."""
    return json.dumps({**EVENT, **changed}).encode()


def avro_text(schema: ConnectSchema) -> SchemaText:
    """As it is registered."""
    return SchemaText(EventFormat.AVRO, avro_schema_text(schema))


def read_one(schema: ConnectSchema, written: bytes) -> Any:
    """The value after magic and id."""
    assert written[0] == 0
    return read(schema, written[5:])


@pytest.mark.parametrize("table", ["comp_pk", "no_pk", "uniq_only", "odd-name tbl", "defaults_t"])
def test_records_have_the_values_of_the_json(table: str) -> None:
    """Keys, rows, tombstones, key changes: record by record those of a tenant with JSON; headers too, whose keys stay text."""
    _, versions, batch = recorded_rows(table)
    registry = FakeRegistry()
    names = FormatSettings(field_names=NameAdjustment.AVRO)
    book = avro_book(
        tenant("a", format=AVRO), tenant("j", format=names), registry=registry, source="v1", schemas=versions
    )
    deliveries = deliver(batch, book)
    topic = f"v1.smp.{table.replace(' ', '_')}"
    by_id = {}
    for group_version in versions.values():
        view = book.routes("smp", table, group_version.version).groups[0].projection.schema
        for side, schema in (
            ("key", key_schema("v1", view, NameAdjustment.AVRO)),
            ("value", value_schema("v1", view, MYSQL_FORM, NameAdjustment.AVRO)),
        ):
            if schema is not None:
                by_id[registry.register(f"a.{topic}-{side}", avro_text(schema)).schema_id] = schema

    avro, plain = records_of(deliveries, f"a.{topic}"), records_of(deliveries, f"j.{topic}")

    assert len(avro) == len(plain) > 0
    for (key, value, headers), (json_key, json_value, json_headers) in zip(avro, plain, strict=True):
        for ours, theirs in ((key, json_key), (value, json_value)):
            if theirs is None:
                assert ours is None
                continue
            schema = by_id[int.from_bytes(ours[1:5], "big")]
            assert read_one(schema, ours) == as_avro(schema, json.loads(theirs))
        assert headers == json_headers


def test_statements_and_transactions_are_avro_too() -> None:
    """In the tenant's other topics, under subjects of these."""
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
    registry = FakeRegistry()
    spec = tenant("a", format=AVRO, topics=TopicSettings(transactions=True))

    deliveries = deliver(taken(batch), avro_book(spec, registry=registry, source="v1"))

    ((key, value, headers),) = records_of(deliveries, "a.v1")
    schema = schema_change_value_schema(MYSQL_FORM)
    assert read_one(schema_change_key_schema(MYSQL_FORM), key) == {"databaseName": "smp"}
    assert read_one(schema, value) == as_avro(schema, recorded)
    assert headers[0] == ("__debezium.context.connectorLogicalName", b"v1")
    boundaries = records_of(deliveries, "a.v1.transaction")
    assert [read_one(TRANSACTION_KEY, key) for key, _, _ in boundaries] == [{"id": "gtid:7"}] * 2
    assert [read_one(TRANSACTION_VALUE, value)["event_count"] for _, value, _ in boundaries] == [None, 2]
    assert registry.asked == ["a.v1-key", "a.v1-value", "a.v1.transaction-key", "a.v1.transaction-value"]


def test_a_statement_that_avro_cannot_hold_is_set_aside() -> None:
    """It stops nobody's lane."""
    batch = builder("v1")
    batch.add_table_change(
        ORDERS,
        schema_version=0,
        order=EventOrder(epoch=0, rank=1, tx_ordinal=1),
        committed_at_us=1,
        is_snapshot=False,
        key=b'{"databaseName":"smp"}',
        value=b'{"source":null}',
    )

    deliveries = deliver(taken(batch), avro_book(tenant("a", format=AVRO), registry=FakeRegistry(), source="v1"))

    (letter,) = [decode_dead_letter(value) for _, value, _ in records_of(deliveries, "a.dead-letter")]
    assert (letter.topic, letter.event_value) == ("a.v1", b'{"source":null}')
    assert records_of(deliveries, "a.v1") == []


def test_tenants_share_bytes_and_each_has_its_subjects() -> None:
    """Encoded once for all whose ids are the same, which a registry gives for the same schema."""
    registry = FakeRegistry()
    book = avro_book(tenant("a", format=AVRO), tenant("b", format=AVRO), tenant("c"), registry=registry)

    routes = book.routes("shop", "orders", 1)
    book.routes("shop", "orders", 1)

    assert [[target.tenant for target in group.targets] for group in routes.groups] == [["a", "b"], ["c"]]
    assert registry.asked == [f"{name}.s.shop.orders-{side}" for name in "ab" for side in ("key", "value")]


def test_a_row_that_avro_cannot_hold_is_set_aside_alone() -> None:
    """Its neighbours are delivered."""
    batch = builder()
    add_run(
        batch,
        [
            ("c", b'{"id":1}', event()),
            ("c", b'{"id":2}', event(after={"id": 2**31})),
            ("d", b'{"id":3}', event(after=None, before={"id": 3}, op="d")),
        ],
    )

    deliveries = deliver(taken(batch), avro_book(tenant("a", format=AVRO), registry=FakeRegistry()))

    (letter,) = [decode_dead_letter(value) for _, value, _ in records_of(deliveries, "a.dead-letter")]
    assert "'id' is not a 32-bit integer" in letter.reason
    schema = value_schema("s", orders(1), MYSQL_FORM)
    written = records_of(deliveries, "a.s.shop.orders")
    assert [value and read_one(schema, value)["op"] for _, value, _ in written] == ["c", "d", None]


def test_it_is_the_avro_that_must_not_be_too_large() -> None:
    """Not the JSON, which is several times as large."""
    batch = builder()
    add_run(batch, [("c", b'{"id":1}', event())])
    book = avro_book(tenant("a", format=AVRO), registry=FakeRegistry())

    fits = deliver(taken(batch), book, max_event_bytes=len(event()) // 2)

    assert len(records_of(fits, "a.s.shop.orders")) == 1
    add_run(batch, [("c", b'{"id":1}', event())])
    (letter,) = records_of(deliver(taken(batch), book, max_event_bytes=20), "a.dead-letter")
    assert "larger than 20 bytes" in decode_dead_letter(letter[1]).reason


def test_a_letter_holds_its_event_only_where_it_fits_into_a_record() -> None:
    """In base64 an event is larger by a third: Kafka would refuse the letter, and the tenant would stand still."""
    batch = builder()
    add_run(batch, [("c", b'{"id":1}', b"\xff" * size) for size in (20, 90)])
    book = avro_book(tenant("a", format=AVRO), registry=FakeRegistry())

    letters = records_of(deliver(taken(batch), book, max_event_bytes=100), "a.dead-letter")

    assert [decode_dead_letter(value).is_withheld for _, value, _ in letters] == [False, True]


def test_a_refused_schema_sets_its_tenants_rows_aside() -> None:
    """And nobody else's; the book remembers whose, to ask again."""
    batch = builder()
    add_run(batch, [("c", b'{"id":1}', event())])
    book = avro_book(tenant("a", format=AVRO), tenant("b", format=AVRO), registry=FakeRegistry(refuses="a."))

    deliveries = deliver(taken(batch), book)

    (letter,) = [decode_dead_letter(value) for _, value, _ in records_of(deliveries, "a.dead-letter")]
    assert (letter.reason, letter.is_withheld) == ("subject a.s.shop.orders-key: no", True)
    assert len(records_of(deliveries, "b.s.shop.orders")) == 1
    assert {topic: refused.tenant for topic, refused in book.book.refused_schemas.items()} == {"a.s.shop.orders": "a"}


def test_without_a_registry_the_remedy_is_told() -> None:
    """Its own rows are set aside."""
    (refused,) = avro_book(tenant("a", format=AVRO), registry=NO_REGISTRY).routes("shop", "orders", 1).refused

    assert "set schema_registry.url" in refused.reason


def test_a_registry_that_is_away_is_to_be_asked_again() -> None:
    """Nothing is remembered of the attempt."""
    registry = FakeRegistry()
    registry.is_away = True
    book = avro_book(tenant("a", format=AVRO), registry=registry)
    with pytest.raises(ServiceUnavailable):
        book.routes("shop", "orders", 1)
    registry.is_away = False

    assert len(book.routes("shop", "orders", 1).groups) == 1


# --- the client -----------------------------------------------------------------------------------------------------


@contextmanager
def answering(
    status: int, body: dict[str, object], *, tls: dict[str, str] | None = None
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A server that always answers so; its address, and the path and user of each request."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, self.headers.get("Authorization", "")))
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls["certificate"], tls["key"])
        context.load_verify_locations(tls["ca"])
        context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}/sr", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "error", "says"),
    [
        (409, SchemaRefused, "relax the subject's compatibility"),
        (422, SchemaRefused, "refuses the schema"),
        (401, ServiceUnavailable, "schema_registry.username"),
        (403, SchemaRefused, "schema_registry.username"),
        (404, ServiceUnavailable, "schema_registry.url"),
        (429, ServiceUnavailable, "answers 429"),
        (500, ServiceUnavailable, "answers 500"),
        (503, ServiceUnavailable, "answers 503"),
    ],
)
def test_what_a_registry_answers_is_one_of_our_errors(
    status: int, error: type[Exception], says: str, tmp_path: Path
) -> None:
    """By the step that is to be done next."""
    with (
        answering(status, {"error_code": status, "message": "because"}) as (url, _),
        pytest.raises(error, match=says),
    ):
        SchemaRegistry(SchemaRegistrySettings(url=url), tmp_path / "ids").register("t-value", TEXT)


def test_an_id_is_asked_for_once(tmp_path: Path) -> None:
    """With the user's name and password."""
    with answering(200, {"id": 7}) as (url, asked):
        registry = SchemaRegistry(SchemaRegistrySettings(url=url, username="ann"), tmp_path / "ids")
        ids = [registry.register("t-value", TEXT).schema_id for _ in range(3)]

    assert ids == [7, 7, 7]
    ((path, user),) = asked
    assert path.startswith("/sr/subjects/t-value/versions")
    assert user == "Basic YW5uOg=="


def test_both_sides_show_certificates(tmp_path: Path) -> None:
    """mTLS; without the authority that signed it, the registry's certificate is not believed."""
    files = write_certificates(tmp_path / "tls")
    known = {"tls_ca_file": files["ca"], "tls_certificate_file": files["certificate"], "tls_key_file": files["key"]}
    with answering(200, {"id": 7}, tls=files) as (url, _):
        ours = SchemaRegistry(SchemaRegistrySettings(url=url, **known), tmp_path / "ids")
        strangers = SchemaRegistry(SchemaRegistrySettings(url=url), tmp_path / "others")

        assert ours.register("t-value", TEXT).schema_id == 7
        with pytest.raises(ServiceUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            strangers.register("t-value", TEXT)


def test_nobody_there_is_unavailable(tmp_path: Path) -> None:
    """As a registry that is being restarted."""
    with answering(200, {}) as (url, _):
        gone = url
    with pytest.raises(ServiceUnavailable, match="does not answer"):
        SchemaRegistry(SchemaRegistrySettings(url=gone), tmp_path / "ids").register("t-value", TEXT)


def test_what_was_registered_is_known_while_the_registry_is_away(tmp_path: Path) -> None:
    """Also after a restart, and after a line that was cut off; nothing else is, and nothing of another registry."""
    with answering(200, {"id": 7}) as (url, _):
        SchemaRegistry(SchemaRegistrySettings(url=url), tmp_path / "state" / "ids").register("t-value", TEXT)
    with (tmp_path / "state" / "ids").open("a") as file:
        file.write('["http')
    again = SchemaRegistry(SchemaRegistrySettings(url=url), tmp_path / "state" / "ids")

    assert again.register("t-value", TEXT).schema_id == 7
    for subject, schema in (("t-value", '"int"'), ("u-value", '"string"')):
        with pytest.raises(ServiceUnavailable):
            again.register(subject, SchemaText(EventFormat.AVRO, schema))
    other = SchemaRegistry(SchemaRegistrySettings(url=f"{url}/other"), tmp_path / "state" / "ids")
    with pytest.raises(ServiceUnavailable):
        other.register("t-value", TEXT)


@pytest.mark.parametrize(
    ("parts", "place"),
    [
        ({"url": "registry:8081"}, "url"),
        ({"url": "http://ann:secret@registry"}, "url"),
        ({"url": "http://registry", "username": "a:b"}, "username"),
        ({"url": "https://registry", "tls_key_file": "k"}, "tls_certificate_file"),
        ({"url": "http://registry", "tls_ca_file": "ca"}, "url"),
        ({"url": "http://registry", "timeout_s": 0.0}, "timeout_s"),
    ],
)
def test_settings_that_cannot_work_are_refused(parts: dict[str, Any], place: str) -> None:
    """A password in an address would stand in logs; the rest the client would find out later."""
    with pytest.raises(InvalidSettings) as caught:
        SchemaRegistrySettings(**parts)

    assert [mistake.split(":")[0] for mistake in caught.value.mistakes] == [place]


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    """At the start, not with the first row."""
    with pytest.raises(InvalidSettings, match="schema_registry"):
        SchemaRegistry(SchemaRegistrySettings(url="https://registry", tls_ca_file="/nowhere/ca.pem"), tmp_path / "ids")
