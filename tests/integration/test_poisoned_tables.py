"""Tables of any names, with rows of any values, under any document's sink part: the tenant's plain table goes on. On a real
session; ``tests.fuzz.poison`` draws them."""

import random
from collections.abc import Sequence
from typing import Final

import msgspec
import pytest
import structlog.testing

from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER, row_topic
from libs.mysql.logical import column
from libs.types.order import EventOrder
from libs.types.table import TableSchema
from libs.types.tenant import ChangePolicies
from tests.fuzz.poison import random_rows, random_table, taken_sink
from tests.integration.sink_tenant import ID, StartTenant, Tenant, orders, row
from tests.sink_topics import SOURCE, Transaction, table_id

pytestmark = pytest.mark.rest(
    because="the gate has each rule in unit/spark/test_containment.py, and parked tables on Iceberg"
)

PLAIN: Final = orders()
KELVIN: Final = TableSchema(
    table_id=table_id("kelvin"),
    columns=(ID, column("k", "varchar(9)", charset="utf8mb4"), column("\u212a", "varchar(9)", charset="utf8mb4")),
    key=("id",),
    version=1,
)
"""Two names to MySQL, and one to Spark."""
TABLES: Final = 4
LONGEST_TOPIC: Final = 249
SEEDS: Final = (1, 2, 3, 4)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", SEEDS)
def test_any_tables_beside_it_leave_a_plain_table_alone(start_tenant: StartTenant, seed: int) -> None:
    """Their rows come before the plain table's, alone and beside it. Each is written, or parked with a reason."""
    chance = random.Random(seed)
    poison = [*_tables(chance), KELVIN]
    sink = taken_sink(chance, [each.name for table in poison for each in table.columns])
    tenant = start_tenant("iceberg", PLAIN, *poison)
    # A policy may want a person to see each new table.
    sink = msgspec.structs.replace(sink, trigger_s=0.5, schema_changes=ChangePolicies())
    tenant.spec = msgspec.structs.replace(tenant.spec, sink=sink)
    with structlog.testing.capture_logs() as told:
        for number in (1, 2):
            _write(tenant, chance, poison, ())
            _write(tenant, chance, poison, (number,))
            tenant.run_until(lambda tenant, number=number: _rows_of_the_plain_table(tenant) >= number)  # type: ignore[misc]
    _write(tenant, chance, (), (3,))
    tenant.run_until(lambda tenant: _rows_of_the_plain_table(tenant) >= 3)

    assert sorted(each["id"] for each in tenant.rows()) == [1, 2, 3]
    unforeseen = [str(each) for each in told if each["event"] == "refused_unforeseen"]
    assert not unforeseen, unforeseen


def _tables(chance: random.Random) -> list[TableSchema]:
    """Of which each has a topic of its own, as the router sees to."""
    found: dict[str, TableSchema] = {"orders": PLAIN}
    while len(found) <= TABLES:
        table = random_table(chance)
        topic = row_topic("d123456", SOURCE, table.table_id)
        if len(topic) <= LONGEST_TOPIC:
            found.setdefault(topic.replace(".", "_"), table)
    return list(found.values())[1:]


def _write(tenant: Tenant, chance: random.Random, poison: Sequence[TableSchema], ids: Sequence[int]) -> None:
    """One transaction."""
    with tenant.topics.transaction() as transaction:
        for table in poison:
            for key, event in random_rows(chance, table):
                _produce(transaction, table, key, event if chance.random() < 0.5 else _with_source(event))
        for number in ids:
            transaction.change(PLAIN, op="c", after=row(number, "plain", number))


def _with_source(event: bytes) -> bytes:
    """As the readers write it; without, the sink parses the whole event."""
    source = b',"source":{"version":"3.6.1","name":"shop","ts_us":1795224576114628},"op":'
    return event.removesuffix(b',"op":"c"}') + source + b'"c","ts_ms":1}'


def _produce(transaction: Transaction, table: TableSchema, key: bytes, event: bytes) -> None:
    transaction.ordinal += 1
    order = EventOrder(epoch=0, rank=transaction.rank, tx_ordinal=transaction.ordinal).sort_key()
    topic = row_topic(transaction.tenant, SOURCE, table.table_id)
    headers = [(ORDER_HEADER, order.encode()), (SCHEMA_VERSION_HEADER, b"1")]
    transaction.producer.produce(topic, event, key, headers=headers)
    transaction.topics.add(topic)


def _rows_of_the_plain_table(tenant: Tenant) -> int:
    return sum(each.rows for each in tenant.progress.tables.values() if each.table == str(PLAIN.table_id))
