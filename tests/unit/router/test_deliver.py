"""ChangeBatches into records: against Debezium's recordings, and the rules of our own."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from libs.events.batch import BatchBuilder, BatchIdentity, RowRun
from libs.events.dead_letter import decode_dead_letter
from libs.events.delivered_schema import decode_delivered_schema
from libs.formats.connect_schema import value_schema
from libs.types.order import EventOrder
from libs.types.table import Column, TableId, TableSchema
from libs.types.tenant import FormatSettings, HeaderForm, RowFilter, SourceSelection, TenantSpec, TopicSettings
from libs.types.value import LogicalKind, LogicalType
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch
from services.router.batches.batch_reading import Changes, form_of, read_changes
from services.router.delivery.deliver import deliver_batch
from services.router.delivery.delivery import Announced, BatchPlace, Delivery
from services.router.routes.batch_targets import targets_of, unseen_addressees
from services.router.routes.book import RouteBook, RouteView
from services.router.routes.topic_claims import TopicClaims
from tests.unit.events.golden import records, table_schemas
from tests.unit.router.batches import read_back

RUN_ID = "01a1fbb8-f77e-7130-b236-dee4c7bcc6dc"
ORDERS = TableId(database="shop", table="orders")
CUSTOMERS = TableId(database="shop", table="customers")
OURS = ("headwater.order", "headwater.schema-version")
Row = tuple[str, bytes, bytes]


def column(name: str) -> Column:
    """An integer."""
    return Column(name=name, source_type="int", logical_type=LogicalType(kind=LogicalKind.INT32))


def orders(version: int) -> TableSchema:
    """``shop.orders``, a column more with each version."""
    columns = (column("id"), *(column(f"c{number}") for number in range(2, version + 1)))
    return TableSchema(table_id=ORDERS, columns=columns, key=("id",), version=version)


def tenant(name: str = "acme", *, selection: Mapping[str, Any] | None = None, **parts: Any) -> TenantSpec:
    """A tenant of sources ``s`` and ``v1``."""
    sources = tuple(SourceSelection(name=source, **(selection or {})) for source in ("s", "v1"))
    return TenantSpec(tenant=name, sources=sources, **parts)


def builder(source: str = "s") -> BatchBuilder:
    """An empty batch."""
    return BatchBuilder(
        BatchIdentity(source=source, source_partition="0", connector="mysql", run_id=RUN_ID, fencing_token=1)
    )


def add_run(
    batch: BatchBuilder,
    rows: Sequence[Row],
    *,
    table: TableId = ORDERS,
    version: int = 1,
    rank: int = 7,
    first: int = 1,
    snapshot: bool = False,
    for_tenants: tuple[str, ...] = (),
) -> None:
    """Append a run of (op, key, value)."""
    run = RowRun(
        table_id=table,
        schema_version=version,
        transaction_id="" if snapshot else f"gtid:{rank}",
        first_order=EventOrder(epoch=1, rank=rank, tx_ordinal=0 if snapshot else first),
        committed_at_us=1_000_000,
        is_snapshot=snapshot,
        for_tenants=for_tenants,
    )
    for op, key, value in rows:
        run.rows.append(ord(op), key, value)
    batch.open_run(run)
    batch.close_run()


def taken(batch: BatchBuilder) -> Changes:
    """The batch as the router reads it."""
    return read_changes(batch.take(2_000_000)[0])


def route_book(
    *tenants: TenantSpec, source: str = "s", schemas: Mapping[tuple[str, int], TableSchema] | None = None
) -> RouteView:
    """Routes over known schemas."""

    def fetch(table_id: TableId, version: int) -> TableSchema:
        return schemas[table_id.table, version] if schemas is not None else orders(version)

    return RouteBook(source, tenants, fetch, TopicClaims()).view()


def deliver(
    batch: Changes, book: RouteView, announced: Announced | None = None, *, max_event_bytes: int = 1_000_000
) -> list[Delivery]:
    """Everything that tenants get."""
    place = BatchPlace("headwater.changes.s", 0, 42)
    return list(deliver_batch(batch, book, announced or Announced(), place, max_event_bytes=max_event_bytes))


def records_of(deliveries: Sequence[Delivery], topic: str) -> list[Any]:
    """The records of one topic, in order: key, value, headers as names and values."""
    return [
        (record.key, record.value, list(record.headers))
        for delivery in deliveries
        if topic in [target.topic.name for target in delivery.targets]
        for record in read_back(delivery.records)
    ]


# --- Debezium's recordings ----------------------------------------------------------------------------------------------


def recorded_rows(table: str) -> tuple[list[dict[str, Any]], dict[tuple[str, int], TableSchema], Changes]:
    """A recorded topic, the table's versions, and the ChangeBatch that a reader would have written for it."""
    found = records(f"v1.smp.{table.replace(' ', '_')}")
    versions = {json.dumps(value_schema("v1", schema)): schema for schema in table_schemas(table)}
    batch = builder("v1")
    for index, record in enumerate(found):
        if record["value"] is None:
            continue
        names = [name for name, _ in record["headers"]]
        op = record["value"]["payload"]["op"]
        op = {"__debezium.newkey": "D", "__debezium.oldkey": "C"}.get(names[0], op)
        key = b"" if record["key"] is None else json.dumps(record["key"]["payload"]).encode()
        row = (op, key, json.dumps(record["value"]["payload"]).encode())
        schema = versions[json.dumps(record["value"]["schema"])]
        if op == "D":
            held = row
        else:
            rows = [held, row] if op == "C" else [row]
            add_run(batch, rows, table=schema.table_id, version=schema.version, rank=index)
    return found, {(table, schema.version): schema for schema in versions.values()}, taken(batch)


@pytest.mark.parametrize("schemas", [True, False])
@pytest.mark.parametrize(
    "table", ["comp_pk", "no_pk", "uniq_only", "odd-name tbl", "defaults_t", "fresh", "fresher", "ctas"]
)
def test_records_are_the_recorded_ones(table: str, schemas: bool) -> None:
    """Keys, values, tombstones, key changes and Debezium's headers are those that Debezium wrote, record by record."""
    recorded, versions, batch = recorded_rows(table)
    headers_form = HeaderForm.JSON if schemas else HeaderForm.TEXT
    book = route_book(
        tenant(format=FormatSettings(schemas=schemas, headers=headers_form)), source="v1", schemas=versions
    )

    written = records_of(deliver(batch, book), f"acme.v1.smp.{table.replace(' ', '_')}")

    def told(document: Any) -> Any:
        return document if schemas or document is None else document["payload"]

    def parsed(text: bytes | None) -> Any:
        return None if text is None else json.loads(text)

    def header_text(name: str, value: bytes) -> Any:
        return value.decode() if not schemas and name.startswith("__debezium.context.") else json.loads(value)

    assert [(parsed(key), parsed(value)) for key, value, _ in written] == [
        (told(record["key"]), told(record["value"])) for record in recorded
    ]
    assert [
        [(name, header_text(name, value)) for name, value in headers if name not in OURS] for _, _, headers in written
    ] == [[(name, told(value)) for name, value in record["headers"]] for record in recorded]
    assert {tuple(name for name, _ in headers[-2:]) for _, _, headers in written} == {OURS}
    for name, value in (header for _, _, headers in written for header in headers[-2:]):
        assert isinstance(header_text(name, value)["payload"] if schemas else value.decode(), str)


@pytest.mark.parametrize("schemas", [True, False])
def test_headers_are_what_connects_default_converter_reads(schemas: bool) -> None:
    """SimpleHeaderConverter takes text that begins with ``{`` for a map of one type: an envelope of a schema and a payload is
    none, and a consumer fails at the first record. A changed key is the JSON that it makes of a Struct itself."""
    batch = builder()
    add_run(batch, [("D", b'{"id":3}', b'{"before":{"id":3},"after":null}'), ("C", b'{"id":4}', b"{}")])
    book = route_book(tenant(format=FormatSettings(schemas=schemas)))

    written = records_of(deliver(taken(batch), book), "acme.s.shop.orders")

    texts = {name: value.decode() for _, _, headers in written for name, value in headers}
    assert texts["__debezium.context.connectorLogicalName"] == "s"
    assert texts["__debezium.context.runId"] == RUN_ID
    assert texts["headwater.schema-version"] == "1"
    assert [name for name, text in texts.items() if text.startswith(("{", "["))] == [
        "__debezium.newkey",
        "__debezium.oldkey",
    ]
    assert (texts["__debezium.newkey"], texts["__debezium.oldkey"]) == ('{"id":4}', '{"id":3}')


def test_headers_name_the_task_that_read_the_row() -> None:
    """As of Debezium's Vitess connector with ``vitess.offset.storage.per.task``."""
    identity = BatchIdentity(
        source="s", source_partition="task1_2_0", connector="vitess", run_id=RUN_ID, fencing_token=1
    )
    batch = BatchBuilder(identity)
    add_run(batch, [("c", b'{"id":1}', b"{}")])

    ((_, _, headers),) = records_of(deliver(taken(batch), route_book(tenant())), "acme.s.shop.orders")

    assert dict(headers)["__debezium.context.taskId"] == b"task1_2_0"


@pytest.mark.parametrize("schemas", [True, False])
def test_transaction_boundaries_are_the_recorded_ones(schemas: bool) -> None:
    """BEGIN and END with their counts, as Debezium writes them, tables in the order of the log."""
    recorded = records("v1.transaction")
    batch = builder("v1")
    for record in recorded:
        payload = record["value"]["payload"]
        if payload["status"] == "BEGIN":
            batch.add_begin(payload["id"], payload["ts_ms"] * 1000 + 7)
        else:
            names = [
                (item["data_collection"].split(".", 1), item["event_count"]) for item in payload["data_collections"]
            ]
            counts = [(TableId(database=name[0], table=name[1]), count) for name, count in names]
            batch.add_end(payload["id"], payload["ts_ms"] * 1000 + 7, counts)
    spec = tenant(format=FormatSettings(schemas=schemas), topics=TopicSettings(transactions=True))

    written = records_of(deliver(taken(batch), route_book(spec, source="v1")), "acme.v1.transaction")

    def told(document: Any) -> Any:
        return document if schemas else document["payload"]

    assert [(json.loads(key), json.loads(value), headers) for key, value, headers in written] == [
        (told(record["key"]), told(record["value"]), []) for record in recorded
    ]


def test_batches_joined_into_one_record_have_the_form_of_each() -> None:
    """A reader joins small ones: the fields that each has for all its events stand in the record once for each batch."""
    identity = BatchIdentity(
        source="s", source_partition="0", connector="vitess", run_id=RUN_ID, fencing_token=1, removed_fields=("ts_us",)
    )
    batch = BatchBuilder(identity)
    add_run(batch, [("c", b'{"id":1}', b"{}")])
    part = batch.take(2_000_000)[0]

    assert form_of(ChangeBatch.FromString(part + part)) == form_of(ChangeBatch.FromString(part))
    assert len(read_changes(part + part).entries) == 2 * len(read_changes(part).entries) > 0


def test_counts_of_a_transaction_are_those_of_the_tenants_tables() -> None:
    """A tenant learns nothing of tables that it does not see."""
    batch = builder()
    batch.add_end("gtid:1", 1_000, [(ORDERS, 3), (TableId(database="hr", table="salaries"), 5)])
    spec = tenant(selection={"include_tables": (r"shop\..*",)}, topics=TopicSettings(transactions=True))

    ((_, value, _),) = records_of(deliver(taken(batch), route_book(spec)), "acme.s.transaction")

    payload = json.loads(value)
    assert payload["event_count"] == 3
    assert payload["data_collections"] == [{"data_collection": "shop.orders", "event_count": 3}]


@pytest.mark.parametrize("schemas", [True, False])
def test_schema_changes_are_the_recorded_ones(schemas: bool) -> None:
    """Debezium's event, with its schemas where these are wanted, for the tables that the tenant sees."""
    recorded = [record for record in records("v1") if record["value"]["payload"]["source"]["table"] == "comp_pk"]
    batch = builder("v1")
    for record in recorded:
        batch.add_table_change(
            TableId(database="smp", table="comp_pk"),
            schema_version=0,
            order=EventOrder(epoch=0, rank=1, tx_ordinal=1),
            committed_at_us=1,
            is_snapshot=False,
            key=json.dumps(record["key"]["payload"]).encode(),
            value=json.dumps(record["value"]["payload"]).encode(),
        )
    change = taken(batch)
    sees = tenant("sees", format=FormatSettings(schemas=schemas))
    sees_not = tenant("sees-not", selection={"exclude_tables": (r".*\.comp_pk",)})

    deliveries = deliver(change, route_book(sees, sees_not, source="v1"))

    written = records_of(deliveries, "sees.v1")
    assert [(json.loads(key), json.loads(value)) for key, value, _ in written] == [
        (record["key"], record["value"]) if schemas else (record["key"]["payload"], record["value"]["payload"])
        for record in recorded
    ]
    assert [name for name, _ in written[0][2]] == [name for name, _ in recorded[0]["headers"]]
    assert records_of(deliveries, "sees-not.v1") == []


@pytest.mark.parametrize(
    ("database", "tables", "readers"),
    [
        ("", [], ["all", "one-table", "other"]),
        ("shop", ["orders", "customers"], ["all", "one-table"]),
        ("shop", ["customers"], ["all"]),
        ("shop", [], ["all"]),
        ("hr", ["salaries"], ["other"]),
    ],
)
def test_statements_about_a_database_go_to_those_who_see_a_table_of_it(
    database: str, tables: list[str], readers: list[str]
) -> None:
    """Or would see any table that it may get; a statement about the server goes to all."""
    batch = builder()
    batch.add_table_change(
        TableId(database=database, table=""),
        schema_version=0,
        order=EventOrder(epoch=0, rank=1, tx_ordinal=0),
        committed_at_us=1,
        is_snapshot=False,
        key=b"{}",
        value=b"{}",
        database_tables=tables,
    )
    include = {"all": (r"shop\..*",), "one-table": (r"shop\.orders",), "other": (r"hr\.salaries",)}
    tenants = [tenant(name, selection={"include_tables": patterns}) for name, patterns in include.items()]

    deliveries = deliver(taken(batch), route_book(*tenants))

    assert [name for name in include if records_of(deliveries, f"{name}.s")] == readers


# --- our own rules --------------------------------------------------------------------------------------------------------


def test_headers_tell_order_and_version() -> None:
    """Each row has its own order, counted from the run's first; its tombstone shares it."""
    batch = builder()
    add_run(batch, [("c", b'{"id":1}', b"{}"), ("d", b'{"id":1}', b"{}")], version=2, rank=10**20, first=5)

    written = records_of(deliver(taken(batch), route_book(tenant())), "acme.s.shop.orders")

    orders_seen = [dict(headers)["headwater.order"].decode() for _, _, headers in written]
    assert orders_seen == [EventOrder(epoch=1, rank=10**20, tx_ordinal=n).sort_key() for n in (5, 6, 6)]
    assert {dict(headers)["headwater.schema-version"] for _, _, headers in written} == {b"2"}
    assert written[2][1] is None


def test_snapshot_rows_share_their_order() -> None:
    """All rows of a snapshot have ordinal 0: any later change wins."""
    batch = builder()
    add_run(batch, [("r", b'{"id":1}', b"{}"), ("r", b'{"id":2}', b"{}")], snapshot=True)

    written = records_of(deliver(taken(batch), route_book(tenant())), "acme.s.shop.orders")

    assert {dict(headers)["headwater.order"] for _, _, headers in written} == {
        EventOrder(epoch=1, rank=7, tx_ordinal=0).sort_key().encode()
    }


def test_tenant_without_tombstones_gets_none() -> None:
    """A delete is one record then, and a key change two."""
    batch = builder()
    rows: list[Row] = [("d", b'{"id":1}', b"1"), ("D", b'{"id":2}', b"2"), ("C", b'{"id":3}', b"3")]
    add_run(batch, rows)
    spec = tenant(format=FormatSettings(tombstones=False))

    written = records_of(deliver(taken(batch), route_book(spec)), "acme.s.shop.orders")

    assert [value for _, value, _ in written] == [b"1", b"2", b"3"]
    assert [headers[0] for _, _, headers in written[1:]] == [
        ("__debezium.newkey", b'{"id":3}'),
        ("__debezium.oldkey", b'{"id":2}'),
    ]


def test_key_change_of_which_one_half_is_seen_names_no_foreign_key() -> None:
    """The other half is not the tenant's row, so no header shows its key."""
    batch = builder()
    halves: list[Row] = [
        ("D", b'{"id":20}', b'{"before":{"id":20},"after":null,"op":"d"}'),
        ("C", b'{"id":5}', b'{"before":null,"after":{"id":5},"op":"c"}'),
    ]
    add_run(batch, halves)
    spec = tenant(selection={"row_filters": (RowFilter(tables=".*", where="id > 10"),)})

    deliveries = deliver(taken(batch), route_book(spec))

    written = records_of(deliveries, "acme.s.shop.orders")
    assert [(key, value is None) for key, value, _ in written] == [(b'{"id":20}', False), (b'{"id":20}', True)]
    assert [headers[0][0] for _, _, headers in written] == ["__debezium.context.connectorLogicalName"] * 2
    assert sum(delivery.filtered for delivery in deliveries) == 1


def test_tenants_of_one_group_share_the_records() -> None:
    """Two tenants that see the same get the very same record objects."""
    batch = builder()
    add_run(batch, [("c", b'{"id":1}', b"{}")])

    deliveries = deliver(taken(batch), route_book(tenant("a"), tenant("b")))

    rows = [delivery for delivery in deliveries if delivery.rows]
    assert [[target.tenant for target in delivery.targets] for delivery in rows] == [["a", "b"]]


def test_schema_is_announced_before_the_first_row_of_a_version_and_once() -> None:
    """Each (topic, version) is announced once, before its rows; a table change announces it without rows."""
    announced, book = Announced(), route_book(tenant())
    first, second = builder(), builder()
    add_run(first, [("c", b'{"id":1}', b"{}")])
    add_run(first, [("c", b'{"id":2}', b"{}")])
    second.add_table_change(
        ORDERS, schema_version=2, order=EventOrder(epoch=0, rank=1, tx_ordinal=1), committed_at_us=1, is_snapshot=False,
        key=b"{}", value=b"{}",
    )  # fmt: skip
    add_run(second, [("c", b'{"id":3}', b"{}")], version=2)

    topics = [
        delivery.targets[0].topic.name
        for batch in (first, second)
        for delivery in deliver(taken(batch), book, announced)
    ]

    schemas, rows, changes = "acme.headwater.table-schemas", "acme.s.shop.orders", "acme.s"
    assert topics == [schemas, rows, rows, schemas, changes, rows]


def test_changed_projection_is_announced_again() -> None:
    """A new document that hides a column announces the schema of the same version again."""
    announced = Announced()
    batch = builder()
    add_run(batch, [("c", b'{"id":1}', b'{"before":null,"after":{"id":1,"c2":3},"op":"c"}')], version=2)
    payload = taken(batch)
    deliver(payload, route_book(tenant()), announced)
    hiding = tenant(selection={"exclude_columns": (".*c2",)})

    deliveries = deliver(payload, route_book(hiding), announced)

    ((key, value, _),) = records_of(deliveries, "acme.headwater.table-schemas")
    assert key == b"acme.s.shop.orders@2"
    assert [item.name for item in decode_delivered_schema(value).table_schema.columns] == ["id"]


def test_event_that_cannot_be_projected_is_one_dead_letter() -> None:
    """The others of its run are delivered; the letter names its place and withholds values that the tenant must not see."""
    batch = builder()
    good = b'{"before":null,"after":{"id":%d},"op":"c"}'
    add_run(batch, [("c", b'{"id":1}', good % 11), ("c", b'{"id":2}', b"broken"), ("c", b'{"id":3}', good % 13)])
    spec = tenant(selection={"row_filters": (RowFilter(tables=".*", where="id > 10"),)})

    deliveries = deliver(taken(batch), route_book(spec))

    assert [key for key, _, _ in records_of(deliveries, "acme.s.shop.orders")] == [b'{"id":1}', b'{"id":3}']
    ((key, value, _),) = records_of(deliveries, "acme.dead-letter")
    letter = decode_dead_letter(value)
    assert (key, letter.is_withheld, letter.event_value) == (None, True, None)
    assert (letter.order, letter.changes_offset) == (EventOrder(epoch=1, rank=7, tx_ordinal=2), 42)
    assert "broken" not in letter.reason


def test_event_too_large_is_set_aside_also_without_a_projection() -> None:
    """The rest of the run is delivered, key changes included."""
    batch = builder()
    add_run(batch, [("c", b'{"id":1}', b"x" * 200), ("d", b'{"id":2}', b"y")])

    deliveries = deliver(taken(batch), route_book(tenant()), max_event_bytes=100)

    assert [value for _, value, _ in records_of(deliveries, "acme.s.shop.orders")] == [b"y", None]
    assert decode_dead_letter(records_of(deliveries, "acme.dead-letter")[0][1]).is_withheld


@pytest.mark.parametrize("is_filtered", [False, True])
def test_an_event_that_is_too_large_with_its_row_before_comes_without(is_filtered: bool) -> None:
    """Else a row that was too large, and is made small or deleted, would stay set aside for ever."""
    large, small = b'{"id":1,"email":"%b"}' % (b"x" * 400), b'{"id":1,"email":"y"}'
    around = b'"source":{"version":"3"}'
    batch = builder()
    add_run(
        batch,
        [
            ("c", b'{"id":1}', b'{"before":null,"after":%b,%b,"op":"c"}' % (large, around)),
            ("u", b'{"id":1}', b'{"before":%b,"after":%b,%b,"op":"u"}' % (large, small, around)),
            ("D", b'{"id":1}', b'{"before":%b,"after":null,%b,"op":"d"}' % (large, around)),
            ("C", b'{"id":2}', b'{"before":null,"after":%b,%b,"op":"c"}' % (small, around)),
            ("d", b"", b'{"before":%b,"after":null,%b,"op":"d"}' % (large, around)),
        ],
    )
    filters = (RowFilter(tables=".*", where="id > 0"),) if is_filtered else ()

    deliveries = deliver(taken(batch), route_book(tenant(selection={"row_filters": filters})), max_event_bytes=300)

    written = [msgspec.json.decode(value) for _, value, _ in records_of(deliveries, "acme.s.shop.orders") if value]
    assert [(each["op"], each["before"]) for each in written] == [("u", None), ("d", None), ("c", None)]
    assert [each["source"] for each in written] == [{"version": "3"}] * 3
    letters = [decode_dead_letter(value).op for _, value, _ in records_of(deliveries, "acme.dead-letter")]
    assert letters == ["c", "d"]  # without a key nobody would know which row was deleted
    (told,) = [delivery for delivery in deliveries if delivery.dead_letters]
    assert (told.table, told.reason) == ("shop.orders", "the event is larger than 300 bytes")


@pytest.mark.parametrize("is_filtered", [False, True])
def test_a_large_key_counts_as_its_value_does(is_filtered: bool) -> None:
    """Kafka's limit is of the record. The halves of a changed key have the other's key too, in a header."""
    keys = [b'{"id":"%b"}' % (letter * 80) for letter in (b"a", b"b", b"c")]
    batch = builder()
    event = b'{"before":null,"after":{"id":7,"v":"%b"},"op":"c"}'
    add_run(
        batch,
        [
            ("c", keys[0], event % (b"x" * 40)),
            ("c", keys[1], event % b""),
            ("D", keys[0], event % b""),
            ("C", keys[2], event % (b"x" * 20)),
        ],
    )
    filters = (RowFilter(tables=".*", where="id > 0"),) if is_filtered else ()
    book = route_book(tenant(selection={"row_filters": filters}))

    deliveries = deliver(taken(batch), book, max_event_bytes=175)

    assert [key for key, value, _ in records_of(deliveries, "acme.s.shop.orders") if value] == [keys[1]]
    letters = [decode_dead_letter(value) for _, value, _ in records_of(deliveries, "acme.dead-letter")]
    assert [(letter.op, letter.is_withheld) for letter in letters] == [("c", True), ("d", True), ("c", True)]


def test_nothing_goes_to_a_refused_topic() -> None:
    """Rows are set aside, marks and statements left out; the tenant's other topics and other tenants go on."""
    batch = builder()
    batch.add_begin("gtid:1", 1)
    add_run(batch, [("c", b'{"id":1}', b"x")])
    payload = taken(batch)
    book = route_book(tenant("a", topics=TopicSettings(transactions=True)), tenant("b"))
    assert records_of(deliver(payload, book), "a.s.shop.orders")

    for topic in ("a.s.shop.orders", "a.s.transaction"):
        book.book.refuse_topic(topic, "too few brokers")
    known = {target.topic.name for target in targets_of(payload, book)}
    deliveries = deliver(payload, book)

    assert known == {"b.s.shop.orders", "b.headwater.table-schemas"}
    assert {target.topic.name for delivery in deliveries for target in delivery.targets} == {*known, "a.dead-letter"}
    assert decode_dead_letter(records_of(deliveries, "a.dead-letter")[0][1]).reason == "too few brokers"


def test_targets_are_known_before_anything_is_written() -> None:
    """Every topic of a batch, dead letters aside, can be made before the transaction begins."""
    batch = builder()
    add_run(batch, [("c", b'{"id":1}', b"{}")])
    batch.add_begin("gtid:1", 1)
    payload = taken(batch)
    book = route_book(tenant("a", topics=TopicSettings(transactions=True)), tenant("b"))

    known = {target.topic.name for target in targets_of(payload, book)}
    written = {target.topic.name for delivery in deliver(payload, book) for target in delivery.targets}

    assert written <= known


def test_rows_for_some_tenants_reach_nobody_else() -> None:
    """Not their rows, not their topics, not the schemas; rows for all around them reach all."""
    batch = builder()
    add_run(batch, [("r", b'{"id":1}', b"old")], snapshot=True, for_tenants=("b",))
    add_run(batch, [("c", b'{"id":2}', b"new")], table=CUSTOMERS)
    payload = taken(batch)
    customers = msgspec.structs.replace(orders(1), table_id=CUSTOMERS)
    schemas = {("orders", 1): orders(1), ("customers", 1): customers}
    book = route_book(tenant("a"), tenant("b"), tenant("c"), schemas=schemas)

    deliveries = deliver(payload, book)
    known = {target.topic.name for target in targets_of(payload, book)}

    assert [value for _, value, _ in records_of(deliveries, "b.s.shop.orders")] == [b"old"]
    assert {target.topic.name for delivery in deliveries for target in delivery.targets} == known
    assert not known & {"a.s.shop.orders", "c.s.shop.orders"}
    assert known >= {f"{name}.s.shop.customers" for name in "abc"}


def test_the_same_table_for_one_and_for_all_in_one_batch() -> None:
    batch = builder()
    add_run(batch, [("r", b'{"id":1}', b"old")], snapshot=True, for_tenants=("b",))
    add_run(batch, [("u", b'{"id":1}', b"new")])
    payload = taken(batch)
    book = route_book(tenant("a"), tenant("b"))

    deliveries = deliver(payload, book)

    assert {"a.s.shop.orders", "b.s.shop.orders"} <= {target.topic.name for target in targets_of(payload, book)}
    assert [value for _, value, _ in records_of(deliveries, "a.s.shop.orders")] == [b"new"]
    assert [value for _, value, _ in records_of(deliveries, "b.s.shop.orders")] == [b"old", b"new"]


def test_a_refusal_of_rows_for_one_tenant_is_its_own() -> None:
    """Nobody else's rows are set aside because of a copy that was not for him."""
    batch = builder()
    add_run(batch, [("r", b'{"id":1}', b"old")], snapshot=True, for_tenants=("b",))
    payload = taken(batch)
    book = route_book(tenant("a"), tenant("b"))
    for name in "ab":
        book.book.refuse_topic(f"{name}.s.shop.orders", "too few brokers")

    deliveries = deliver(payload, book)

    assert {target.topic.name for delivery in deliveries for target in delivery.targets} == {"b.dead-letter"}


def test_addressees_that_do_not_see_their_table_are_known() -> None:
    batch = builder()
    add_run(batch, [("r", b'{"id":1}', b"x")], snapshot=True, for_tenants=("a", "b", "gone"))
    add_run(batch, [("c", b'{"id":2}', b"y")], table=CUSTOMERS)
    hidden = SourceSelection(name="s", exclude_tables=(r"shop\.orders",))
    book = route_book(tenant("a"), TenantSpec(tenant="b", sources=(hidden,)))

    assert unseen_addressees(taken(batch), book.audience) == {("b", ORDERS), ("gone", ORDERS)}
