"""A document's changes to the mesh, in words."""

from typing import Any

from libs.mysql.logical import column
from libs.types.table import TableId, TableSchema
from services.tenant_operator.document_plan import plan_lines
from services.tenant_operator.settings import QuotaSettings
from tests.unit.tenant_operator.tenants import config_map, judged, record

PLAN = {"headwater.dev/plan": "true"}


def table(name: str) -> TableSchema:
    return TableSchema(
        table_id=TableId(database="shop", table=name),
        columns=(
            column("id", "int", is_optional=False),
            column("email", "varchar(50)"),
            column("phone", "varchar(20)"),
        ),
        key=("id",),
        version=1,
    )


TABLES = {"shop": [table("customers"), table("orders")]}


def plan(text: str, *, in_force: str | None = None, quotas: QuotaSettings | None = None, **known: Any) -> list[str]:
    records = () if in_force is None else (record("acme", text=in_force),)
    standing = judged(config_map("acme", text, annotations=PLAN), records=records, **{"tables": TABLES, **known})
    [planned] = standing.planned
    return plan_lines(planned, quotas=quotas or QuotaSettings())


def document(selection: str = "", more: str = "") -> str:
    return f"tenant: acme\nsources:\n  - name: shop\n{selection}{more}"


def test_a_new_tenant_is_told_everything_that_is_made_for_it() -> None:
    masked = "    masks: [{columns: '.*email', set_null: true}]\n    exclude_columns: ['.*phone']\n"

    lines = plan(document(masked, "sink: {}\n"), quotas=QuotaSettings(consumer_bytes_per_s=1e6))

    assert lines == [
        "Kafka user tenant.acme: READ, DESCRIBE, DESCRIBE_CONFIGS on topics, READ, DESCRIBE, DELETE on consumer groups that "
        "begin with acme.",
        "its quotas: consumer_bytes_per_s 1,000,000",
        "topics made: acme.dead-letter, acme.headwater.table-schemas, acme.shop; those of rows come with each table's first "
        "row",
        "a place in a Spark job that it shares with others until it is large, which writes its tables into iceberg",
        "source shop: further tables that match now: shop.customers, shop.orders",
        *(
            line
            for name in ("customers", "orders")
            for line in (f"shop.{name}.email: masked, null", f"shop.{name}.phone: left out")
        ),
    ]


def test_of_a_tenant_that_is_there_what_changes_is_told() -> None:
    before = document(
        "    include_tables: ['shop\\.customers']\n    masks: [{columns: '.*email', set_null: true}]\n", "sink: {}\n"
    )
    after = document(
        "    include_tables: ['shop\\.orders', 'shop\\.customers']\n    row_filters: [{tables: '.*orders', where: 'id > 5'}]\n"
        "    masks: [{columns: '.*email', keep_last: 4}]\n    skip_operations: [t]\n    rename_columns: "
        "[{columns: 'shop\\.orders\\.phone', to: tel}]\n",
        "sink: null\nformat: {tombstones: false}\ntopics: {transactions: true}\n",
    )

    assert plan(after, in_force=before) == [
        "topics made: acme.shop.transaction; those of rows come with each table's first row",
        "its place in a Spark job goes; its tables in iceberg stay as they are",
        "format.tombstones: true → false",
        "topics.transactions: false → true",
        'source shop: skip_operations: [] → ["t"]',
        "source shop: further tables that match now: shop.orders",
        "shop.customers.email: masked, its last 4 characters; now masked, null",
        "shop.orders, its rows: id > 5",
        "shop.orders.email: masked, its last 4 characters",
        "shop.orders.phone: delivered, called tel",
    ]


def test_what_goes_and_what_matches_nothing_is_told() -> None:
    gone = plan(document("    include_tables: ['shop\\.none']\n"), in_force=document())
    other = plan("tenant: acme\nsources: [{name: ledger}]\n", in_force=document())

    assert gone[-2:] == [
        "source shop: no table matches now",
        "source shop: tables that come no more: shop.customers, shop.orders",
    ]
    assert other[-2:] == ["source ledger: its tables are not known now", "source shop: nothing of it comes any more"]


def test_the_document_in_force_changes_nothing() -> None:
    assert plan(document(), in_force=document()) == []
