"""The steps of a micro-batch on a handful of rows, against plain Python."""

import base64
import datetime
import itertools
import json
import random
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from pyspark.sql import Row
from pyspark.sql import functions as sf

from libs.mysql.logical import column
from libs.types.table import Born, Column
from libs.types.tenant import SourceSelection, TenantSpec
from libs.types.value import UNAVAILABLE_VALUE
from libs.warehouse.spark_types import spark_type
from spark.jvm.errors import MALFORMED_RECORD, has_condition
from spark.kafka.read_topics import events_of, topic_pattern
from spark.transforms.conform_to import conform_to
from spark.transforms.cut_envelope import cut_envelope, cut_parts
from spark.transforms.fill import fill_expression, fill_of
from spark.transforms.latest_per_key import latest_per_key
from spark.transforms.local_rows import local_rows
from spark.transforms.parse_events import parse_events
from spark.transforms.parse_keys import key_columns, parse_keys
from spark.transforms.partial_rows import split_unavailable
from spark.transforms.warehouse_columns import Fill, TableColumn
from tests.spark_session import SharedSpark
from tests.unit.events.golden import records
from tests.unit.spark.events import COMMITTED_AT_US, RECORD_COLUMNS, Change, events, json_bytes, orders_schema

TOPIC = "acme.shop.shop.orders"


def test_the_latest_of_each_key_is_that_of_the_greatest_order(shared: SharedSpark) -> None:
    """300 changes to 20 keys, shuffled and some repeated: the last by order stays, wherever it arrived."""
    chance = random.Random(11)
    changes = [_change(rank, key=chance.randrange(20), is_delete=chance.random() < 0.2) for rank in range(1, 301)]
    arrived = changes + chance.sample(changes, 30)
    chance.shuffle(arrived)

    latest = (
        events(shared.session, TOPIC, arrived)
        .transform(parse_events(orders_schema().table_schema))
        .withColumn("the key", sf.col("row.id"))
        .transform(latest_per_key(key=["the key"], order="order"))
        .collect()
    )

    expected = {change.before["id"] if change.before else change.after["id"]: change for change in changes}  # type: ignore[index]
    assert {row["row"]["id"]: (row["op"], row["order"]) for row in latest} == {
        key: (change.op, change.order) for key, change in expected.items()
    }
    assert len(latest) == len(expected)


def test_wrapped_and_plain_events_give_the_same_rows(shared: SharedSpark) -> None:
    """A tenant may ask for Connect schemas in its topics; its tables are the same."""
    schema = orders_schema().table_schema
    changes = [_change(1, key=1), _change(2, key=1, is_delete=True)]

    plain, wrapped = (
        events(shared.session, TOPIC, changes, is_wrapped=is_wrapped)
        .transform(parse_events(schema))
        .orderBy("order")
        .collect()
        for is_wrapped in (False, True)
    )

    assert plain == wrapped
    assert [(row["op"], row["row"]["id"], row["committed_at_us"] - COMMITTED_AT_US) for row in plain] == [
        ("c", 1, 1),
        ("d", 1, 2),
    ]


def test_rows_of_an_older_version_get_what_the_source_gave_them(shared: SharedSpark) -> None:
    """A column that came later holds its fill, one that went away is NULL, a narrower number is widened."""
    old = orders_schema().table_schema
    table = {
        "id": TableColumn("bigint"),
        "size": TableColumn("string", Fill(since_version=2, expression="'M'")),
        "gone": TableColumn("string", Fill(since_version=1, expression="'x'")),
    }

    rows = (
        events(shared.session, TOPIC, [_change(1, key=7)])
        .transform(parse_events(old))
        .transform(conform_to(table, old))
    )

    assert dict(rows.dtypes)["id"] == "bigint"
    assert [(row["id"], row["size"], row["gone"]) for row in rows.collect()] == [(7, "M", None)]


def test_a_record_becomes_an_event_and_a_tombstone_none(shared: SharedSpark) -> None:
    """Headers, key and source time of a Kafka record, as Spark's Kafka reader gives it."""
    change = _change(9, key=1)
    headers = [("headwater.order", change.order.encode()), ("headwater.schema-version", b"12"), ("other", b"x")]
    records = [
        (TOPIC, 2, 5, b'{"id":1}', json_bytes(change.value()), headers),
        (TOPIC, 2, 6, b'{"id":1}', None, headers),
    ]

    found = events_of(local_rows(shared.session, records, RECORD_COLUMNS)).collect()

    assert [row.asDict() for row in found] == [
        {
            "topic": TOPIC,
            "kafka_partition": 2,
            "offset": 5,
            "key": '{"id":1}',
            "order": change.order,
            "schema_version": 12,
            "op": "c",
            "committed_at_us": COMMITTED_AT_US + 9,
            "image": '{"id":1,"note":"at 9"}',
            "is_partial": False,
        }
    ]


AWKWARD = {"id": 1, "source": 2, "before": None, "after": '},"after":{"', "note": 'é {"before":{"id":9},"source":{"'}


def test_an_image_is_cut_out_as_a_parse_would_find_it(shared: SharedSpark) -> None:
    """Of every op, plain and wrapped; also where columns and values are named as the envelope's members are, where the JSON is
    spaced, and where its members have another order."""
    texts: list[str] = []
    wanted: list[tuple[Any, ...]] = []
    for op in "curdt":
        before, after = (op in "ud" and {**AWKWARD, "id": 0}) or None, (op in "cur" and AWKWARD) or None
        value = Change(op=op, rank=1, before=before, after=after).value()
        wrapped = {"schema": {"fields": [{"field": "after"}]}, "payload": value}
        of_op = [json.dumps(each, separators=compact) for each in (value, wrapped) for compact in ((",", ":"), None)]
        of_op.append(json.dumps(dict(reversed(value.items()))))
        texts += of_op
        wanted += [(op, COMMITTED_AT_US + 1, after or before, before if op == "u" else None)] * len(of_op)
    headers = [("headwater.order", b"1"), ("headwater.schema-version", b"1")]
    records = [(TOPIC, 0, place, None, text.encode(), headers) for place, text in enumerate(texts)]

    found = events_of(local_rows(shared.session, records, RECORD_COLUMNS), with_before=True).orderBy("offset").collect()

    assert [
        (row["op"], row["committed_at_us"], json.loads(row["image"] or "null"), json.loads(row["before"] or "null"))
        for row in found
    ] == wanted


@pytest.mark.parametrize("removed", [("ts_us",), ("source.ts_us",), ("ts_us", "source.ts_us")])
def test_an_event_without_some_times_keeps_its_commit_time(shared: SharedSpark, removed: tuple[str, ...]) -> None:
    """As `events.remove_fields` leaves it; without the microseconds the milliseconds count. Compact, and spaced."""
    row = {"id": 1, "ts_us": 5, "ts_ms": 6}
    texts = []
    for op in "curdt":
        value = Change(op=op, rank=1, before=row if op in "ud" else None, after=row if op in "cur" else None).value()
        times = {"ts_ms": COMMITTED_AT_US // 1_000}
        source = {"version": "3.6.1", **times, **value["source"], "table": "orders"}
        value["source"] = {name: each for name, each in source.items() if f"source.{name}" not in removed}
        kept = {name: each for name, each in value.items() if name not in removed}
        texts += [json_bytes(kept), json.dumps(kept).encode()]
    headers = [("headwater.order", b"1"), ("headwater.schema-version", b"1")]
    records = local_rows(shared.session, [(TOPIC, 0, 0, None, text, headers) for text in texts], RECORD_COLUMNS)

    found = [each["committed_at_us"] for each in records.transform(events_of).collect()]

    wanted = times["ts_ms"] * 1_000 if "source.ts_us" in removed else COMMITTED_AT_US + 1
    assert found == [wanted] * len(texts)


POINT = {"x": 1.0, "y": 2.0, "wkb": "AQ==", "srid": None}
GEOMETRY = {"wkb": "AQ==", "srid": 4326}


def test_objects_in_a_row_do_not_mislead_the_cut(shared: SharedSpark) -> None:
    """Columns that hold geometries, named as the envelope's members are, in the first place too."""
    row = {"before": POINT, "after": GEOMETRY, "id": 1, "source": POINT, "note": None}
    first = {"after": POINT, "wkb": "x", "source": GEOMETRY}
    changes = [
        Change(op=op, rank=1, before=image if op in "ud" else None, after=image if op in "cur" else None)
        for op in "curd"
        for image in (row, first, {"wkb": "AQ=="})
    ]

    found = events(shared.session, TOPIC, changes, with_before=True).orderBy("offset").collect()

    assert [json.loads(each["image"]) for each in found] == [change.after or change.before for change in changes]
    assert [json.loads(each["before"] or "null") for each in found] == [
        change.before if change.op == "u" else None for change in changes
    ]


def test_an_image_is_cut_out_whatever_its_characters_are(shared: SharedSpark) -> None:
    """Java counts those beyond U+FFFF twice; here by as many as lie between a row and the next object of the event."""
    row: dict[str, Any] = {"id": 1, "note": "x"}
    distance = len(json.dumps(row, separators=(",", ":")) + ',"source":')
    changes = []
    for op, note in itertools.product("curd", ("\U0001f600", "é", "\u2028")):
        before, after = {"id": 1, "note": note * distance}, {"id": 2, "note": f"{note}x"}
        changes += [
            Change(op=op, rank=1, before=b if op in "ud" else None, after=a if op in "cur" else None)
            for b, a in ((before, row), (row, before), (before, after))
        ]

    found = events(shared.session, TOPIC, changes, with_before=True).orderBy("offset").collect()

    wanted = [change.after or change.before or {} for change in changes]
    assert [each["image"] for each in found] == [
        json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in wanted
    ]
    assert [json.loads(each["before"] or "null") for each in found] == [
        change.before if change.op == "u" else None for change in changes
    ]


def test_what_debezium_recorded_is_cut_without_a_parse(shared: SharedSpark) -> None:
    """Of any columns, with and without a Connect schema. A parse gives the same, and takes several times as long; rows
    that begin with an object have one."""
    values = [record["value"]["payload"] for table in ("all_types", "comp_pk", "no_pk") for record in recorded(table)]
    values = [value for value in values if value["op"] in "crud"]
    schema = {
        "type": "struct",
        "fields": [{"field": "before"}, {"field": "payload", "default": ',"payload":{"before":'}],
    }
    wrapped = [{"schema": schema, "payload": value} for value in values]
    texts = [(json_bytes(value).decode(),) for value in [*values, *wrapped]]
    compact = local_rows(shared.session, texts, "text string")
    spaced = local_rows(shared.session, [(json.dumps(value),) for value in values], "text string")

    is_cut = [row[0] for row in compact.select(cut_parts(compact, with_before=True).isNotNull()).collect()]
    parsed = [row[0] for row in spaced.select(cut_parts(spaced, with_before=True).isNotNull()).collect()]
    rows = [
        [_read(row) for row in each.transform(cut_envelope, with_before=True).collect()] for each in (compact, spaced)
    ]

    assert len(values) > 20 and all(is_cut) and not any(parsed)
    assert rows[0] == 2 * rows[1]
    assert [row["image"] for row in rows[1]] == [value["after"] or value["before"] for value in values]


def recorded(table: str) -> list[dict[str, Any]]:
    return [record for record in records(f"v1.smp.{table}") if record["value"]]


def _read(row: Row) -> dict[str, Any]:
    images = {name: row[name] and json.loads(row[name]) for name in ("image", "before")}
    return {"op": row.op, "committed_at_us": row.committed_at_us, "is_partial": row.is_partial, **images}


def test_a_placeholder_is_found_wherever_it_lies(shared: SharedSpark) -> None:
    """Texts are looked through eight bytes at a time. A row after that lacks a value has a row before that lacks it."""
    lengths = range(24)
    values = (UNAVAILABLE_VALUE, base64.b64encode(UNAVAILABLE_VALUE.encode()).decode(), UNAVAILABLE_VALUE[:-1])
    changes = [
        Change(op="u", rank=1, **{"before": {"id": 1}, "after": {"id": 1}, **dict.fromkeys(sides, row)})
        for sides in (("before", "after"), ("before",), ("after",))
        for row in ({"note": "x" * length, "doc": value} for length in lengths for value in values)
    ]

    both = events(shared.session, TOPIC, changes, with_before=True).orderBy("offset").collect()
    one = events(shared.session, TOPIC, changes).orderBy("offset").collect()

    found, passed = [True, True, False] * len(lengths), [False, False, False] * len(lengths)
    assert [row["is_partial"] for row in one] == [*found, *passed, *passed]
    assert [row["is_partial"] for row in both] == [*found, *found, *passed]
    assert [json.loads(row["image"]) for row in both] == [change.after for change in changes]
    assert [json.loads(row["before"]) for row in both] == [change.before for change in changes]


def test_a_delete_without_its_row_before_is_of_the_row_that_its_key_names(shared: SharedSpark) -> None:
    """So the router writes one that is too large with that row."""
    changes = [Change(op="d", rank=1, key={"id": 7}), Change(op="d", rank=2, before={"id": 8, "note": "b"})]

    found = events(shared.session, TOPIC, changes).transform(parse_events(orders_schema().table_schema)).collect()

    assert [(row["op"], row["row"]["id"], row["row"]["note"]) for row in found] == [("d", 7, None), ("d", 8, "b")]


@pytest.mark.parametrize("is_spaced", [False, True])
def test_a_text_like_a_placeholder_is_a_value_of_a_row_that_is_whole(shared: SharedSpark, is_spaced: bool) -> None:
    """Of an insert, of a row of a snapshot, and of an update whose row before holds another value."""
    changes = [
        Change(op="c", rank=1, after={"id": 1, "note": UNAVAILABLE_VALUE}),
        Change(op="r", rank=2, after={"id": 2, "note": UNAVAILABLE_VALUE}),
        Change(op="u", rank=3, before={"id": 3, "note": "a"}, after={"id": 3, "note": UNAVAILABLE_VALUE}),
        Change(op="u", rank=4, before={"id": 4, "note": UNAVAILABLE_VALUE}, after={"id": 4, "note": UNAVAILABLE_VALUE}),
        Change(op="u", rank=5, after={"id": 5, "note": UNAVAILABLE_VALUE}),
    ]
    texts = [(json.dumps(change.value(), separators=(", ", ": ") if is_spaced else (",", ":")),) for change in changes]

    cut = local_rows(shared.session, texts, "text string").transform(cut_envelope)
    rows = cut.transform(split_unavailable).orderBy("committed_at_us", "image").collect()

    found = {(row.op, row.is_partial, json.loads(row.image)["note"], *row.unavailable) for row in rows}
    assert found == {
        ("c", False, UNAVAILABLE_VALUE),
        ("r", False, UNAVAILABLE_VALUE),
        ("u", False, UNAVAILABLE_VALUE),
        ("u", True, None, "note"),
    }
    assert sum(row.is_partial for row in rows) == 2


TIMES: list[tuple[str, int | None]] = [
    ('"ts_us":5', 5),
    ('"ts_us":5,"ts_ns":5000', 5),
    ('"ts_us":1795753799690409', 1_795_753_799_690_409),
    ('"ts_us":null,"ts_ms":7', 7_000),
    ('"ts_us":"5"', 5),
    ('"ts_us":-5', -5),
    ('"ts_us":99999999999999999999,"ts_ms":7', 7_000),
    ('"ts_ns":5000', None),
]


def test_a_commit_time_is_that_of_the_source_whatever_it_looks_like(shared: SharedSpark) -> None:
    texts = [
        f'{{"before":null,"after":{{"id":{place}}},"source":{{"version":"3",{times}}},"op":"c","ts_ms":1,"ts_us":1}}'
        for place, (times, _) in enumerate(TIMES)
    ]

    found = local_rows(shared.session, [(text,) for text in texts], "text string").transform(cut_envelope).collect()

    assert {row.image: (row.op, row.committed_at_us) for row in found} == {
        f'{{"id":{place}}}': ("c", committed_at_us) for place, (_, committed_at_us) in enumerate(TIMES)
    }


@pytest.mark.parametrize("text", ["{", "[]", "null", "{}", '{"op":"u"}', '{"before":null,"after":null,"op":"u"}', ""])
def test_what_is_no_event_fails_the_parse(shared: SharedSpark, text: str) -> None:
    """It must neither pass as a truncation nor as a row of NULLs."""
    headers = [("headwater.order", b"1"), ("headwater.schema-version", b"1")]
    records = local_rows(shared.session, [(TOPIC, 0, 0, b"{}", text.encode(), headers)], RECORD_COLUMNS)

    with pytest.raises(Exception) as failed:
        records.transform(events_of).transform(parse_events(orders_schema().table_schema)).collect()

    assert has_condition(failed.value, MALFORMED_RECORD)


KEYS: Iterable[tuple[str, str, object]] = [
    ("int", '{"k":-7}', -7),
    ("int", '{ "k" : 7 }', 7),
    ("bigint unsigned", '{"k":-1}', 2**64 - 1),
    ("varchar(20)", '{"k":"a:}\\"7"}', 'a:}"7'),
    ("decimal(6,2)", '{"k":"AQ=="}', Decimal("0.01")),
    ("datetime(3)", '{"k":1500}', datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000)),
    ("double", '{"k":-0.0}', 0.0),
]


@pytest.mark.parametrize(("source_type", "text", "expected"), KEYS, ids=[source_type for source_type, _, _ in KEYS])
def test_a_key_is_typed_as_its_column(shared: SharedSpark, source_type: str, text: str, expected: object) -> None:
    """From the record's key alone, in any spelling."""
    item = column("k", source_type, is_optional=False, charset="utf8mb4" if source_type.startswith("varchar") else None)
    schema = orders_schema(item, key=("k",)).table_schema
    keys = local_rows(shared.session, [(text,)], "key string")

    row = keys.transform(parse_keys({"k": TableColumn(spark_type(item))}, schema)).collect()[0]

    assert row[key_columns(schema)["k"]] == expected


def test_a_key_that_does_not_fit_fails_the_parse(shared: SharedSpark) -> None:
    """A number beyond its column's type must not become NULL."""
    schema = orders_schema().table_schema
    keys = local_rows(shared.session, [('{"id":1099511627776}',)], "key string")

    with pytest.raises(Exception) as failed:
        keys.transform(parse_keys({"id": TableColumn("int")}, schema)).collect()

    assert has_condition(failed.value, MALFORMED_RECORD)


@pytest.mark.parametrize(
    ("topic", "is_row_topic"),
    [
        ("a.shop.shop.orders", True),
        ("a.shop.shop.odd_name.with.dots", True),
        ("a.shop.crm.transaction", True),
        ("a.shop", False),
        ("a.shop.transaction", False),
        ("a.dotted.name.transaction", False),
        ("a.dead-letter", False),
        ("a.headwater.table-schemas", False),
        ("a.headwater.replays", True),
        ("b.headwater.replays", False),
        ("a.headwater.resyncs", True),
        ("b.headwater.resyncs", False),
        ("a.headwater.wakes", True),
        ("b.headwater.wakes", False),
        ("a-b.shop.shop.orders", False),
        ("aa.shop.shop.orders", False),
        ("b.a.shop.orders", False),
        ("headwater.changes.a.shop", False),
    ],
)
def test_a_tenant_reads_its_row_topics_and_replays_and_no_others(topic: str, is_row_topic: bool) -> None:
    """Neither its own other topics nor a topic of a tenant whose name begins alike."""
    sources = (SourceSelection(name="shop"), SourceSelection(name="dotted.name"))
    pattern = topic_pattern(TenantSpec(tenant="a", sources=sources))

    # Python and Java read these expressions alike.
    assert bool(re.fullmatch(pattern, topic)) is is_row_topic


EPOCH = datetime.date(1970, 1, 1)
FILLS: Iterable[tuple[str, dict[str, object], object]] = [
    ("int", {"default_expression": "5"}, 5),
    ("bigint unsigned", {"default_expression": "18446744073709551615"}, 2**64 - 1),
    ("decimal(8,3)", {"default_expression": "1.200"}, 1.2),
    ("varchar(20)", {"default_expression": "it's \\ 5"}, "it's \\ 5"),
    ("enum('a','b')", {"is_optional": False}, "a"),
    ("int", {"is_optional": False}, 0),
    ("varchar(20)", {"is_optional": False}, ""),
    ("binary(3)", {"default_expression": "0x4D"}, b"M\0\0"),
    ("bit(12)", {"default_expression": "b'100000000011'"}, b"\x03\x08"),
    ("bit(1)", {"default_expression": "b'1'"}, True),
    ("time", {"default_expression": "-08:00:01"}, -28_801_000_000),
    ("int", {}, None),
    ("datetime", {"default_expression": "CURRENT_TIMESTAMP"}, None),
    ("timestamp", {"default_expression": "2020-01-01 00:00:00"}, None),
    ("int", {"is_optional": False, "is_generated": True}, None),
    ("date", {"is_optional": False, "default_expression": "0000-00-00"}, EPOCH),
    ("date", {"default_expression": "2020-00-01"}, None),
    ("date", {"default_expression": "2024-02-31"}, datetime.date(2024, 3, 2)),
    ("date", {"is_optional": False}, EPOCH),
    ("datetime", {"is_optional": False, "default_expression": "0000-00-00 00:00:00"}, datetime.datetime(1970, 1, 1)),
    ("datetime(3)", {"default_expression": "2020-01-02 03:04:05.678"}, datetime.datetime(2020, 1, 2, 3, 4, 5, 678_000)),
    ("timestamp", {"is_optional": False, "default_expression": "0000-00-00 00:00:00"}, datetime.datetime(1970, 1, 1)),
    ("timestamp", {"is_optional": False}, datetime.datetime(1970, 1, 1)),
    ("json", {"is_optional": False}, "null"),
    ("vector(3)", {"is_optional": False}, "[]"),
    ("json", {"default_expression": '{"a":"it\'s \\\\"}'}, '{"a":"it\'s \\\\"}'),
]


def test_fills_are_what_mysql_gives_existing_rows(shared: SharedSpark) -> None:
    """DEFAULT, or the type's implicit default where it is NOT NULL; none where only the source can know."""
    columns = [column("c", source_type, **options) for source_type, options, _ in FILLS]  # type: ignore[arg-type]
    expressions = [fill_expression(item) or "NULL" for item in columns]

    row = shared.session.sql(f"SELECT {', '.join(f'{text} AS c{place}' for place, text in enumerate(expressions))}")

    found = list(row.collect()[0])
    assert [float(value) if place == 2 else value for place, value in enumerate(found)] == [
        expected for _, _, expected in FILLS
    ]


CHANGED: Iterable[tuple[str, str, str, object]] = [
    # came as, with this default, is now: rows of before have
    ("int", "7", "bigint", 7),
    ("int", "7", "int unsigned", 7),
    ("int", "7", "decimal(6,2)", Decimal("7.00")),
    ("int", "7", "varchar(9)", "7"),
    ("int zerofill", "0000000007", "varchar(20)", None),
    ("decimal(5,2)", "1.50", "decimal(7,3)", Decimal("1.500")),
    ("decimal(5,2)", "1.50", "decimal(7,1)", Decimal("1.5")),
    ("decimal(5,2)", "1.55", "decimal(7,1)", None),
    ("decimal(5,2)", "1.50", "int", None),
    ("decimal(5,2)", "1.50", "varchar(9)", "1.50"),
    ("float", "0.1", "double", 0.10000000149011612),
    ("float", "0.1", "varchar(9)", None),
    ("varchar(9)", "7", "int", 7),
    ("varchar(9)", "x", "int", None),
    ("varchar(9)", "x", "enum('x','y')", "x"),
    ("enum('x','y')", "x", "int", None),
    ("int", "20200102", "date", None),
    ("int", "20200102", "datetime", None),
    ("int", "5", "year", None),
    ("year", "2020", "int", 2020),
    ("date", "2020-01-02", "datetime(3)", datetime.datetime(2020, 1, 2)),
    ("datetime", "2020-01-02 23:59:59", "date", None),
    ("datetime(3)", "2020-01-02 23:59:59.900", "datetime", None),
    ("time", "01:00:00", "bigint", None),
    ("time", "01:00:00", "varchar(20)", None),
    ("bigint", "10000", "time", None),
    ("varbinary(9)", "0x41", "blob", b"A"),
    ("varbinary(9)", "0x41", "binary(4)", None),
    ("varchar(9)", "A", "varbinary(9)", None),
    ("bit(12)", "b'1'", "bit(40)", None),
    ("bit(1)", "b'1'", "int", None),
    ("bit(1)", "b'1'", "varchar(9)", None),
]


def test_a_fill_goes_through_a_change_of_type_where_it_is_known(shared: SharedSpark) -> None:
    """By MySQL 9.7's values in such rows; NULL where Spark would make something else of the value."""
    fills = [fill_of(_changed(was, default, now), []) for was, default, now, _ in CHANGED]
    expressions = ["NULL" if fill is None else fill.expression for fill in fills]

    row = shared.session.sql(f"SELECT {', '.join(f'{text} AS c{place}' for place, text in enumerate(expressions))}")

    found = row.collect()[0]
    assert list(zip(CHANGED, found, strict=True)) == list(
        zip(CHANGED, [expected for *_, expected in CHANGED], strict=True)
    )


def test_spark_takes_a_fill_of_any_type_in_any_other(shared: SharedSpark) -> None:
    """A fill that is no expression would halt the tenant."""
    types = {
        source_type: options["default_expression"]
        for source_type, options, _ in FILLS
        if options.get("default_expression")
    }
    pairs = itertools.product(types.items(), [*types, "json", "point", "vector(3)", "blob", "double", "year"])
    fills = [fill_of(_changed(was, str(default), now), []) for (was, default), now in pairs]

    shared.session.sql(f"SELECT {', '.join(fill.expression for fill in fills if fill is not None)}").collect()


def _changed(was: str, default: str, now: str) -> Column:
    """A column that came as one type and is of another one."""
    first = column("c", was, default_expression=default)
    born = Born(
        after_version=1,
        source_type=first.source_type,
        logical_type=first.logical_type,
        default_expression=first.default_expression,
    )
    return msgspec.structs.replace(column("c", now), born=born)


def _change(rank: int, *, key: int, is_delete: bool = False, op: str = "c", version: int = 1) -> Change:
    row = {"id": key, "note": f"at {rank}"}
    if is_delete:
        return Change(op="d", rank=rank, before=row, version=version)
    return Change(op=op, rank=rank, after=row, version=version)
