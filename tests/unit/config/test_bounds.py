"""Every number of a tenant's document has bounds, which schema, chart and judgement share."""

import typing
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from libs.config.bounds import Bounds, bounds_of
from libs.tenants.document import parse_tenant
from libs.tenants.schema import tenant_schema
from libs.types.tenant import TenantSpec

ACME = "tenant: acme\nsources: [{name: s}]\n"


def numbers(record: type[msgspec.Struct]) -> Iterator[tuple[str, str, Bounds | None]]:
    """Every field of a record, and of those in it, that holds a number."""
    for name, hint in get_type_hints(record, include_extras=True).items():
        kinds = list(leaves(hint))
        if any(kind in (int, float) for kind in kinds):
            yield record.__name__, name, bounds_of(hint)
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                yield from numbers(kind)


def leaves(hint: Any) -> Iterator[Any]:
    if typing.get_origin(hint) is not None:
        for inner in get_args(hint):
            yield from leaves(inner)
    else:
        yield hint


def test_every_number_has_bounds() -> None:
    found = list(numbers(TenantSpec))

    assert len({(record, name) for record, name, _ in found}) >= 12
    assert [(record, name) for record, name, bounds in found if bounds is None] == []


def test_the_schema_says_the_same_bounds() -> None:
    definitions = tenant_schema()["$defs"]
    for record, name, bounds in numbers(TenantSpec):
        said = definitions[record]["properties"][name]
        assert bounds is not None
        assert (said["minimum"], said["maximum"]) == (bounds.least, bounds.most), (record, name)


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ("topics: {kafka_partitions: 3000000000}", "topics.kafka_partitions"),
        ("topics: {kafka_partitions: 200001}", "topics.kafka_partitions"),
        ("topics: {kafka_partitions: 9000}", "topics.kafka_partitions"),
        ("topics: {replication_factor: 40000}", "topics.replication_factor"),
        ("topics: {replication_factor: -1}", "topics.replication_factor"),
        ("sink: {trigger_s: 1.0e-7}", "sink.trigger_s"),
        ("sink: {trigger_s: .nan}", "sink.trigger_s"),
        ("sink: {trigger_max_s: .inf}", "sink.trigger_max_s"),
        ("sink: {max_batch_rows: 1}", "sink.max_batch_rows"),
        ("sink: {max_rows_per_s: 1.0e-300}", "sink.max_rows_per_s"),
        ("limits: {weight: 1.0e-308}", "limits.weight"),
        ("limits: {events_per_s: 1.0e+308}", "limits.events_per_s"),
        ("sink: {layouts: [{partition_by: ['bucket(2147483648, a)']}]}", "sink.layouts[0].partition_by[0]"),
        (f"sink: {{layouts: [{{sort_by: ['truncate({'9' * 5001}, a)']}}]}}", "sink.layouts[0].sort_by[0]"),
    ],
)
def test_a_number_beyond_its_bounds_is_a_mistake(document: str, place: str) -> None:
    mistakes: list[str] = []

    assert parse_tenant(ACME + document, mistakes=mistakes) is None
    assert any(mistake.partition(": ")[2].startswith(place) for mistake in mistakes), mistakes


def test_masks_of_later_sources_are_judged_too() -> None:
    mistakes: list[str] = []
    text = "tenant: acme\nsources: [{name: s}, {name: t, masks: [{columns: a, set_null: true}, {columns: b, keep_last: 0}]}]"

    assert parse_tenant(text, mistakes=mistakes) is None
    assert "sources[1].masks[1].keep_last: must be from 1 to 1,000,000" in mistakes[0]
