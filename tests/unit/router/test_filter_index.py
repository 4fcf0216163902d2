"""Filters as an index: each tenant gets what asking its own condition about every row would give it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.tenants.row_filter import compile_filter
from libs.types.table import Column, TableId, TableSchema
from libs.types.tenant import RowFilter, SourceSelection, TenantSpec
from libs.types.value import UNAVAILABLE_VALUE, LogicalKind, LogicalType
from services.router import match
from services.router.deliver import Announced, Changes
from services.router.filter_index import filter_index
from services.router.match import RouteBook
from services.router.topic_claims import TopicClaims
from tests.unit.router.batches import read_back
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
rows = st.lists(
    st.tuples(st.sampled_from("ccuudrt"), st.one_of(st.none(), images), st.one_of(st.none(), images), st.booleans()),
    min_size=1,
    max_size=8,
)


def changes_of(drawn: list[tuple[str, Any, Any, bool]]) -> Changes:
    """Rows; some of changed keys, some whose event lacks an image or a value."""
    events: list[tuple[str, bytes, bytes]] = []
    for number, (op, before, after, is_key_change) in enumerate(drawn):
        if is_key_change:
            for half, image in (("D", before), ("C", after)):
                sides = {"before": image, "after": None} if half == "D" else {"before": None, "after": image}
                events.append((half, b'{"id":%d}' % number, json.dumps(sides | {"op": half.lower()}).encode()))
            continue
        value = {"before": before if op in "ud" else None, "after": after if op in "cur" else None, "op": op}
        events.append((op, b'{"id":%d}' % number, json.dumps(value).encode()))
    batch = builder()
    add_run(batch, events, table=TABLE_ID)
    return taken(batch)


def delivered(wheres: list[str], changes: Changes) -> dict[str, list[Any]]:
    """By topic, all records: rows, tombstones, dead letters and schemas."""
    tenants = [
        TenantSpec(
            tenant=f"t{number}",
            sources=(SourceSelection(name="s", row_filters=(RowFilter(tables=".*", where=where),)),),
            sink=None,
        )
        for number, where in enumerate(wheres)
    ]
    book = RouteBook("s", tenants, lambda _table_id, _version: TABLE, TopicClaims())
    found: dict[str, list[Any]] = {}
    for delivery in deliver(changes, book, Announced()):
        for target in delivery.targets:
            records = [(record.key, record.value, list(record.headers)) for record in read_back(delivery.records)]
            found.setdefault(target.topic.name, []).extend(records)
    return found


@settings(max_examples=150, deadline=None)
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


def test_few_filters_are_asked_one_by_one() -> None:
    assert filter_index([]) is None
