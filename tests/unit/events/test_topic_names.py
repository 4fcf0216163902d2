"""Topics' names by a tenant's template, and that no template leaves the tenant."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.events.names import own_topics, row_topic, tenant_row_topic
from libs.mesh.tenant_topics import parse_row_topic
from libs.tenants.document import read_tenant
from libs.types.table import TableId
from libs.types.tenant import TENANT_NAME, TenantSpec
from spark.kafka.read_topics import topic_pattern

ORDERS = TableId(database="shop", table="orders")
HOSTILE_PIECES = (
    ("{tenant}", "{source}", "{database}", "{table}", "{tenant.__class__}", "{0}", "{}", "{", "}", "{{", "%s"),
    (".", "-", "_", "headwater", "globex", "/", "..", "é", "\n", " "),
)
HOSTILE = st.lists(st.sampled_from([*HOSTILE_PIECES[0], *HOSTILE_PIECES[1]]), min_size=1, max_size=8).map("".join)
PROPER = st.lists(st.sampled_from(["{source}", "v2", "eu-1", "rows", "dead-letter"]), max_size=3, unique=True).flatmap(
    lambda more: st.permutations([*more, "{database}", "{table}"]).map(lambda parts: ".".join(["{tenant}", *parts]))
)
NAMES = st.text(min_size=1, max_size=12)


WITHOUT_SINK = {"sink": "sink: null", "tombstones": "false"}


def document(topics: str, *, sink: str = "", tombstones: str = "true", sources: str = "[{name: shop}]") -> str:
    """A tenant's document with these topics."""
    return f"tenant: acme\nsources: {sources}\nformat: {{tombstones: {tombstones}}}\ntopics: {topics}\n{sink}"


def parsed(text: str) -> TenantSpec:
    mistakes: list[str] = []
    found = read_tenant(text, mistakes=mistakes)
    assert found is not None, mistakes
    return found.spec


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        (document("{}"), "acme.shop.shop.orders"),
        (document("{name: '{tenant}.eu-1.{source}.{database}.{table}'}"), "acme.eu-1.shop.shop.orders"),
        (document("{name: '{tenant}.{table}.{database}'}", sink="sink: null"), "acme.orders.shop"),
        (document("{layout: per_tenant}", **WITHOUT_SINK), "acme.rows"),
        (document("{layout: per_tenant, name: '{tenant}.all'}", **WITHOUT_SINK), "acme.all"),
    ],
)
def test_topics_are_called_as_the_document_says(text: str, topic: str) -> None:
    """And as ever where it says nothing."""
    assert tenant_row_topic(parsed(text), "shop", ORDERS) == topic


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (document("{name: 'globex.{database}.{table}'}"), "name: must begin with '{tenant}.'"),
        (document("{name: '{tenant}-{database}.{table}.x.y'}"), "name: must begin with '{tenant}.'"),
        (
            document("{name: '{tenant}.headwater.{database}.{table}'}"),
            "name: must begin with '{tenant}.', and '{tenant}.headwater.'",
        ),
        (document("{name: '{tenant}.{table}.x.y'}"), "name: must hold {database}, or two tables share a topic"),
        (document("{name: '{tenant}.x.{database}{table}.y'}"), "name: put '.', '-' or '_' between placeholders"),
        (
            document("{name: '{tenant}.{database}.{tabel}'}"),
            "name: {tabel} is none of {tenant}, {source}, {database}, {table}",
        ),
        (
            document("{name: '{tenant.__class__}.{database}.{table}'}"),
            "name: '{tenant.__class__}.{database}.{table}' is no template",
        ),
        (document("{name: '{tenant}.{database}.{table} x'}"), "name: '{tenant}.{database}.{table} x' is no template"),
        (document("{name: '{tenant}.{database}.{table}.{table}'}"), "name: a placeholder stands here twice"),
        (document("{name: '{tenant}.{database}.{table}'}"), "name: a sink knows row topics by three dots"),
        (
            document("{name: '{tenant}.a.{database}.{table}'}", sources="[{name: a}, {name: b}]"),
            "name: must hold {source}",
        ),
        (document("{layout: per_tenant}", tombstones="false"), "layout: a sink reads a topic for each table"),
        (document("{layout: per_tenant}", sink="sink: null"), "layout: a tombstone is a key alone"),
        (document("{layout: per_tabel}"), "layout: unknown value 'per_tabel'; did you mean 'per_table'?"),
        (
            document("{layout: per_tenant, name: '{tenant}.{table}'}", **WITHOUT_SINK),
            "name: layout per_tenant has one",
        ),
        (
            document("{layout: per_tenant, name: '{tenant}.dead-letter'}", **WITHOUT_SINK),
            "name: 'acme.dead-letter' is a topic of another kind",
        ),
        (
            document("{layout: per_tenant, name: '{tenant}.shop'}", **WITHOUT_SINK),
            "name: 'acme.shop' is a topic of another kind",
        ),
    ],
)
def test_names_that_would_mix_or_hide_topics_are_refused(text: str, says: str) -> None:
    """With the line, and the text to write instead."""
    mistakes: list[str] = []

    assert read_tenant(text, mistakes=mistakes) is None
    assert mistakes[0].startswith(f"line 4: topics.{says}")


@given(HOSTILE | PROPER, NAMES, NAMES, NAMES, st.booleans())
def test_no_template_and_no_table_reaches_another_tenant(
    template: str, source: str, database: str, table: str, is_shared: bool
) -> None:
    """An accepted template gives a topic of the tenant's own, in Kafka's letters, under any names of tables;
    values are no templates."""
    layout = "per_tenant" if is_shared else "per_table"
    text = document(f"{{layout: {layout}, name: {template!r}}}", **WITHOUT_SINK)
    found = read_tenant(text, mistakes=[])
    if found is None:
        return  # which are refused, and why, the tests above say

    topic = tenant_row_topic(found.spec, source, TableId(database=database, table=table))

    assert topic.startswith("acme.")
    assert re.fullmatch(r"[A-Za-z0-9._-]+", topic)
    # Kafka takes "." and "_" for the same in names of metrics and refuses the second of two: no tenant's name has either.
    assert re.fullmatch(TENANT_NAME, topic.replace("_", ".").partition(".")[0])


def test_a_tables_name_is_no_template() -> None:
    """A table may have any name."""
    odd = TableId(database="{table}", table="{tenant}.{source}")

    assert row_topic("acme", "shop", odd) == "acme.shop._table_._tenant_._source_"


@pytest.mark.parametrize(
    "template",
    [
        "{tenant}.{source}.{database}.{table}",
        "{tenant}.v2.{source}.{database}.{table}",
        "{tenant}.{database}.{table}.cdc",
        "{tenant}.a.b_{database}.{table}",
    ],
)
def test_a_sink_reads_what_it_may_be_given(template: str) -> None:
    """Every template that is taken beside a sink is matched by the Spark job, and taken apart by ``headwater tail``."""
    spec = parsed(document(f"{{name: '{template}'}}"))
    topic = tenant_row_topic(spec, "shop", ORDERS)

    assert re.fullmatch(topic_pattern(spec), topic)
    assert not any(re.fullmatch(topic_pattern(spec), own) for own in own_topics("acme", ["shop"]))
    taken_apart = parse_row_topic(topic, template)
    assert taken_apart is not None
    assert (taken_apart.tenant, taken_apart.database, taken_apart.table) == ("acme", "shop", "orders")
