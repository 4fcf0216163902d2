"""Filters as an index, and rows taken together: each tenant gets the rows that it would get if every row were asked alone."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.tenants.row_filter import compile_filter
from libs.types.table import Column, TableId, TableSchema
from libs.types.tenant import (
    ColumnMask,
    ColumnRename,
    FormatSettings,
    HashMask,
    Operation,
    RowFilter,
    SourceSelection,
    TenantSpec,
)
from libs.types.value import UNAVAILABLE_VALUE, LogicalKind, LogicalType
from services.router.batches.batch_reading import Changes
from services.router.batches.row_cuts import RowCuts
from services.router.delivery import deliver_rows
from services.router.delivery.delivery import Announced
from services.router.routes import match
from services.router.routes.book import RouteBook
from services.router.routes.filter_index import filter_index
from services.router.routes.project import compile_projection, openings_of
from services.router.routes.topic_claims import TopicClaims
from tests.marks import examples
from tests.unit.router.batches import read_back, run_of
from tests.unit.router.test_deliver import add_run, builder, deliver, taken

TABLE_ID = TableId(database="shop", table="orders")
KINDS = {"id": LogicalKind.INT32, "code": LogicalKind.STRING, "n": LogicalKind.INT64, "ratio": LogicalKind.FLOAT64}
TABLE = TableSchema(
    table_id=TABLE_ID,
    columns=tuple(
        Column(name=name, source_type=kind.value, logical_type=LogicalType(kind=kind)) for name, kind in KINDS.items()
    ),
    key=("id",),
    version=1,
)

codes = st.sampled_from(["a", "b", "A", "", "é"])
numbers = st.integers(-2, 2)
keys = st.one_of(
    codes.map(lambda code: f"code = '{code}'"),
    codes.map(lambda code: f"'{code}' = code"),
    st.lists(codes, min_size=1, max_size=3).map(
        lambda some: "code IN (" + ", ".join(f"'{each}'" for each in some) + ")"
    ),
    numbers.map(lambda number: f"n = {number}"),
    numbers.map(lambda number: f"n = {number}.0"),
    numbers.map(lambda number: f"n = {number}e0"),
    numbers.map(lambda number: f"ratio = {number}"),
    numbers.map(lambda number: f"n = {number} + 0"),
    st.just("n IN (1, NULL)"),
    st.just("code = NULL"),
    st.just("code <=> 'a'"),
    st.just("CODE = 'a'"),
    st.tuples(codes, codes).map(lambda two: f"(code = '{two[0]}' OR code = '{two[1]}')"),
    st.tuples(st.sampled_from(["n", "ratio", "code"]), st.sampled_from(["<", "<=", ">", ">="]), numbers).map(
        lambda three: f"{three[0]} {three[1]} {three[2]}" if three[0] != "code" else f"code {three[1]} 'a'"
    ),
    st.tuples(numbers, st.sampled_from(["<", "<=", ">", ">="])).map(lambda two: f"{two[0]} {two[1]} n"),
    st.tuples(numbers, numbers).map(lambda two: f"n BETWEEN {two[0]} AND {two[1]}"),
    st.tuples(numbers, numbers).map(lambda two: f"n >= {two[0]} AND n < {two[1]}.5"),
)
rests = st.sampled_from(["n > 0", "code <> 'b'", "ratio IS NULL", "1 = 1", "n IS NOT NULL OR code = 'a'"])
conditions = st.one_of(
    keys,
    st.tuples(keys, rests).map(lambda two: f"{two[0]} AND {two[1]}"),
    st.tuples(keys, rests).map(lambda two: f"({two[0]}) AND ({two[1]})"),
    st.tuples(rests, keys).map(lambda two: f"({two[0]}) AND ({two[1]} AND 1 = 1)"),
    st.tuples(keys, keys).map(lambda two: f"{two[0]} OR {two[1]}"),
    st.tuples(keys, keys).map(lambda two: f"{two[0]} AND {two[1]}"),
    keys.map(lambda key: f"NOT ({key})"),
    rests,
)
images = st.fixed_dictionaries(
    {
        "id": st.integers(1, 3),
        "code": st.one_of(codes, st.none()),
        "n": st.one_of(numbers, st.none()),
        "ratio": st.one_of(numbers.map(float), st.none()),
    }
)
odd_rows = st.tuples(
    st.sampled_from("ccuudrt"), st.one_of(st.none(), images), st.one_of(st.none(), images), st.booleans()
)
ordered = images.map(lambda image: {name: image[name] for name in KINDS})
usual_rows = st.tuples(st.sampled_from("cuuudr"), ordered, ordered, st.just(False))
"""As readers write them: these are cut, unless one of the others stands in their run."""
rows = st.one_of(st.lists(usual_rows, min_size=1, max_size=8), st.lists(odd_rows, min_size=1, max_size=8))


def changes_of(drawn: list[tuple[str, Any, Any, bool]]) -> Changes:
    """Rows; some of changed keys, some whose event lacks an image or a value."""
    events: list[tuple[str, bytes, bytes]] = []
    for number, (op, before, after, is_key_change) in enumerate(drawn):
        if is_key_change:
            for half, image in (("D", before), ("C", after)):
                sides = {"before": image, "after": None} if half == "D" else {"before": None, "after": image}
                events.append((half, b'{"id":%d}' % number, msgspec.json.encode(sides | {"op": half.lower()})))
            continue
        value = {"before": before if op in "ud" else None, "after": after if op in "cur" else None, "op": op}
        events.append((op, b'{"id":%d}' % number, msgspec.json.encode(value)))
    batch = builder()
    add_run(batch, events, table=TABLE_ID)
    return taken(batch)


def delivered(wheres: list[str], changes: Changes) -> dict[str, list[Any]]:
    """By topic, all records: rows, tombstones, dead letters and schemas."""
    return given_to(
        [SourceSelection(name="s", row_filters=(RowFilter(tables=".*", where=where),)) for where in wheres], changes
    )


def given_to(
    selections: Sequence[SourceSelection], changes: Changes, event_format: FormatSettings | None = None
) -> dict[str, list[Any]]:
    """By topic, all records of tenants with these selections."""
    tenants = [
        TenantSpec(tenant=f"t{number}", sources=(selection,), sink=None, format=event_format or FormatSettings())
        for number, selection in enumerate(selections)
    ]
    book = RouteBook("s", tenants, lambda _table_id, _version: TABLE, TopicClaims()).view()
    found: dict[str, list[Any]] = {}
    for delivery in deliver(changes, book, Announced()):
        for target in delivery.targets:
            records = [(record.key, record.value, list(record.headers)) for record in read_back(delivery.records)]
            if records:
                found.setdefault(target.topic.name, []).extend(records)
    return found


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(conditions, min_size=4, max_size=12), rows)
def test_an_index_gives_each_tenant_what_its_condition_does(
    wheres: list[str], drawn: list[tuple[str, Any, Any, bool]]
) -> None:
    """Also of updates that pass from one to another, changed keys, NULLs, and events without an image."""
    changes = changes_of(drawn)
    with_index = delivered(wheres, changes)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(match, "filter_index", lambda _projections: None)
        without = delivered(wheres, changes)

    assert with_index == without


masks = st.sampled_from(
    [
        ColumnMask(columns=r".*\.code", hash=HashMask(salt="a")),
        ColumnMask(columns=r".*\.code", hash=HashMask(salt="b")),
        ColumnMask(columns=r".*\.n", constant="x"),
        ColumnMask(columns=r".*\.ratio", set_null=True),
        ColumnMask(columns=r".*\.code", truncate_chars=1),
        ColumnMask(columns=r".*\.id", hash=HashMask(salt="c")),
    ]
)
selections = st.builds(
    SourceSelection,
    name=st.just("s"),
    row_filters=st.lists(conditions.map(lambda where: RowFilter(tables=".*", where=where)), max_size=2).map(tuple),
    masks=st.lists(masks, max_size=2).map(tuple),
    exclude_columns=st.sampled_from([(), (), (r".*\.ratio",), (r".*\.(ratio|n|code)",)]),
    rename_columns=st.sampled_from([(), (), (ColumnRename(columns=r".*\.code", to="c"),)]),
    skip_operations=st.sampled_from([(), (), (Operation.DELETE,), (Operation.CREATE, Operation.TRUNCATE)]),
    skip_unchanged_updates=st.sampled_from([False, False, True]),
)
formats = st.builds(FormatSettings, tombstones=st.booleans(), schemas=st.sampled_from([False, False, True]))


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(selections, min_size=1, max_size=5), rows, formats)
def test_rows_taken_together_are_what_each_is_by_itself(
    wanted: list[SourceSelection], drawn: list[tuple[str, Any, Any, bool]], event_format: FormatSettings
) -> None:
    """Filtered, masked, left out and renamed, in each form; and events that cannot be."""
    changes = changes_of(drawn)
    together = given_to(wanted, changes, event_format)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(match, "filter_index", lambda _projections: None)
        patched.setattr(deliver_rows, "deliver_at_once", lambda *_: None)
        each = given_to(wanted, changes, event_format)

    assert together == each


def test_masks_share_the_cutting_of_a_row() -> None:
    """Two tenants with salts of their own: another value in the same place, and nothing else differs."""
    salted = [
        SourceSelection(name="s", masks=(ColumnMask(columns=r".*\.code", hash=HashMask(salt=salt)),)) for salt in "ab"
    ]

    found = given_to(salted, changes_of([("c", None, {"id": 1, "code": "é", "n": 2, "ratio": None}, False)]))

    one, other = (json.loads(found[f"t{number}.s.shop.orders"][0][1]) for number in range(2))
    assert one["after"].pop("code") != other["after"].pop("code")
    assert one == other


@pytest.mark.parametrize(
    ("where", "column", "low", "high"),
    [
        ("n > 1", "n", (1, False), None),
        ("1 >= n AND 0 < n", "n", (0, False), (1, True)),
        ("n BETWEEN 1 AND 3 AND n >= 2 AND n <= 3.5", "n", (2, True), (3, True)),
        ("n > 1 AND n >= 1", "n", (1, False), None),
    ],
)
def test_an_interval_is_what_all_its_conjuncts_leave(
    where: str, column: str, low: tuple[Any, bool] | None, high: tuple[Any, bool] | None
) -> None:
    key = compile_filter(where, TABLE).key

    assert key is not None
    assert key.interval is not None
    assert (key.column, key.is_whole) == (column, True)
    assert (key.interval.low, key.interval.has_low) == (low or (None, True))
    assert (key.interval.high, key.interval.has_high) == (high or (None, True))


@pytest.mark.parametrize(
    ("where", "is_whole"),
    [("n = 1", True), ("(n = 1 OR n = 2)", True), ("n = 1 AND code = 'a'", False), ("n > 1 AND ratio > 1", False)],
)
def test_a_condition_that_says_nothing_else_is_not_asked(where: str, is_whole: bool) -> None:
    key = compile_filter(where, TABLE).key

    assert key is not None
    assert key.is_whole == is_whole


@pytest.mark.parametrize(
    ("where", "column", "values"),
    [
        ("code = 'a'", "code", {"a"}),
        ("n > 0 AND (CODE IN ('a', 'b') AND ratio = 1)", "code", {"a", "b"}),
        ("n = 1.0", "n", {1}),
        ("ratio = 1", "ratio", {1.0}),
        ("n = 1e0", None, None),
        ("n IN (1, NULL)", None, None),
        ("code = 'a' OR n = 1", None, None),
        ("code = 'a' OR 'b' = code OR code IN ('c')", "code", {"a", "b", "c"}),
        ("code = 'a' OR code > 'b'", None, None),
        ("NOT code = 'a'", None, None),
        ("code = code", None, None),
        ("n = 1 + 1", None, None),
    ],
)
def test_a_key_is_a_conjunct_that_every_row_has_to_meet(
    where: str, column: str | None, values: set[Any] | None
) -> None:
    key = compile_filter(where, TABLE).key

    assert (None if key is None else key.column) == column
    assert (None if key is None else key.values) == values


def test_a_row_without_the_value_is_asked_of_all() -> None:
    """The log does not hold it: each tenant's letter says so."""
    lost = {"id": 1, "code": UNAVAILABLE_VALUE, "n": 1, "ratio": None}
    wheres = [f"code = '{number}'" for number in range(6)]

    found = delivered(wheres, changes_of([("c", None, lost, False)]))

    assert [len(found.get(f"t{number}.dead-letter", [])) for number in range(6)] == [1] * 6


def test_a_column_may_have_any_name() -> None:
    """Also one that msgspec takes for no field's: a filter on it stops nobody."""
    name = 'a"b\\c'
    odd = Column(name=name, source_type="int", logical_type=LogicalType(kind=LogicalKind.INT32))
    table = TableSchema(table_id=TABLE_ID, columns=(odd,), key=(), version=1)
    filters = [RowFilter(tables=".*", where=f"`{name}` = {number}") for number in range(3)]
    selections = [SourceSelection(name="s", row_filters=(each,)) for each in filters]

    index = filter_index([compile_projection(table, selection) for selection in selections])

    assert index is not None
    (of_column,) = index.columns
    event = msgspec.json.encode({"before": None, "after": {name: 2}})
    assert of_column.candidates(ord("c"), event) == ((2,), False)
    assert of_column.candidates(ord("u"), event) == (of_column.numbers, True)


def test_without_filters_there_is_no_index() -> None:
    assert filter_index([]) is None


EVENT = b'{"before":null,"after":{"id":1,"code":"a","n":null,"ratio":1.5},"source":{"db":"s","x":[1,{}]},"op":"c"}'
NAMES = openings_of(tuple(KINDS))


def cuts_of(event: bytes, op: str = "c") -> RowCuts:
    """Of a run of one row."""
    return RowCuts(run_of([(ord(op), b"{}", event)]), NAMES)


def test_columns_are_cut_from_where_they_lie() -> None:
    cuts = cuts_of(EVENT)

    assert cuts.is_plain
    assert [cuts.values(place) for place in range(4)] == [
        ([None], [b"1"]),
        ([None], [b'"a"']),
        ([None], [b"null"]),
        ([None], [b"1.5"]),
    ]


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(EVENT[:-1], id="cut short"),
        pytest.param(EVENT + b"}", id="more behind it"),
        pytest.param(EVENT.replace(b'":null', b'": null', 1), id="a blank"),
        pytest.param(EVENT.replace(b'"op":"c"', b'"after":null'), id="an image twice"),
        pytest.param(EVENT.replace(b'"op":"c"', b'"op":c'), id="no value"),
        pytest.param(EVENT.replace(b'"op":"c"', b'"op":"c'), id="a text without an end"),
        pytest.param(EVENT.replace(b'{"before":null,', b"{"), id="no image before"),
        pytest.param(EVENT.replace(b"[1,{}]", b"[1,{}"), id="a bracket that stays open"),
        pytest.param(EVENT.replace(b'"after":{', b'"after":[{'), id="an image that is none"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_what_readers_do_not_write_so_is_left_to_who_reads_all_of_it(event: bytes) -> None:
    assert not cuts_of(event).is_plain


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(EVENT.replace(b'"id":1,', b'"id":1,"id":2,'), id="a column twice"),
        pytest.param(EVENT.replace(b'"id":1,"code":"a"', b'"code":"a","id":1'), id="another order"),
        pytest.param(EVENT.replace(b'"id":1,', b'"other":1,'), id="a column that the table lacks"),
        pytest.param(EVENT.replace(b'"id":1,', b""), id="a column that the image lacks"),
    ],
)
def test_an_image_with_other_columns_is_not_cut(event: bytes) -> None:
    assert cuts_of(event).values(0) is None


def test_an_operation_without_its_images_is_not_cut() -> None:
    assert [cuts_of(EVENT, op).is_plain for op in "crudtDC"] == [True, True, False, False, False, False, False]
