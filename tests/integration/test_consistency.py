"""``sink.consistency: transaction``: nobody sees half a transaction, neither a reader of the snapshots that belong together,
nor one query."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from libs.sink_state.cut import Cut, cut_path, decode_cut
from libs.types.tenant import Consistency
from libs.types.warehouse import warehouse_table
from tests.bank import TABLES, TOTAL, Auditor, Bank, audit_of_query, audit_of_snapshots
from tests.conftest import PostgresqlServer
from tests.integration.sink_tenant import StartTenant, Tenant, start_tenants
from tests.sink_topics import SOURCE, table_id
from tests.spark_session import shared_spark


@pytest.fixture
def start(bootstrap_servers: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartTenant]:
    yield from start_tenants(bootstrap_servers, tmp_path, request)


def cut_of(tenant: Tenant) -> Cut:
    return decode_cut(cut_path(Path(tenant.settings.state_dir), tenant.spec.tenant).read_bytes())


@pytest.mark.timeout(1_800)
def test_money_that_moves_between_tables_is_always_there(start: StartTenant) -> None:
    """Batches end in the middle of transactions, which come in several of Kafka's: every sum over snapshots that belong
    together is right; in the end both tables equal a plain model, nothing waits, and no branch is left.
    """
    tenant = start("iceberg", consistency=Consistency.TRANSACTION, max_batch_rows=11)
    bank, chance = Bank(tenant.topics), random.Random(7)
    bank.move(chance, transactions=5)

    with Auditor(partial(audit_of_snapshots, tenant.spec.tenant, shared_spark().loaded)) as auditor:
        tenant.run_until_done(bank.events)
        bank.move(chance, transactions=2)
        tenant.run_until_done(bank.events)

    assert set(auditor.sums) == {TOTAL}
    assert len(auditor.batches) > 1
    for name in TABLES:
        assert tenant.rows(name) == bank.rows(name)
        with shared_spark().loaded(warehouse_table(tenant.spec.tenant, SOURCE, table_id(name))) as table:
            assert set(table.refs()) == {"main"}
    assert (cut_of(tenant).held, cut_of(tenant).publishing) == ({}, ())


@pytest.mark.rest(because="the gate shows it on Iceberg")
@pytest.mark.timeout(1_800)
def test_money_is_always_there_for_whoever_asks_postgresql(
    start: StartTenant, postgresql_server: PostgresqlServer
) -> None:
    """All tables of a batch are one transaction there, so that each query's sum is right. A table that PostgreSQL refuses is
    parked, and the other's rows stay in the transaction.
    """
    tenant = start("postgresql", consistency=Consistency.TRANSACTION, max_batch_rows=11)
    bank, chance = Bank(tenant.topics), random.Random(7)
    bank.move(chance, transactions=5)

    with (
        postgresql_server.connect() as connection,
        Auditor(partial(audit_of_query, connection, tenant.spec.tenant)) as auditor,
    ):
        tenant.run_until_done(bank.events)
        bank.move(chance, transactions=2)
        tenant.run_until_done(bank.events)

    assert set(auditor.sums) == {TOTAL}
    assert len(auditor.batches) > 1
    for name in TABLES:
        assert tenant.rows(name) == bank.rows(name)
    assert (cut_of(tenant).held, cut_of(tenant).publishing) == ({}, ())

    place = warehouse_table(tenant.spec.tenant, SOURCE, table_id("savings"))
    schema = "_".join(place.namespace)
    before = tenant.rows("savings")
    postgresql_server.execute(f"ALTER TABLE {schema}.savings ADD CHECK (n > 1000000) NOT VALID")
    bank.move(chance, transactions=2)
    tenant.run_until(lambda each: each.rows("checking") == bank.rows("checking"))

    assert "CHECK" in str([table.parked for table in tenant.progress.tables.values() if table.parked])
    assert tenant.rows("savings") == before


@pytest.mark.timeout(1_800)
def test_what_waits_is_taken_up_when_the_tenant_changes_its_mind(start: StartTenant) -> None:
    """A transaction whose END never came waits; with ``consistency: table`` the next batch writes it."""
    tenant = start("iceberg", consistency=Consistency.TRANSACTION)
    bank = Bank(tenant.topics)
    tenant.run_until_done(bank.events)
    tenant.topics.forget_boundaries()
    bank.move(random.Random(3), transactions=1)
    tenant.run_until(lambda each: bool(cut_of(each).held))
    assert tenant.progress.rows < bank.events

    sink = tenant.spec.sink
    assert sink is not None
    tenant.spec = msgspec.structs.replace(
        tenant.spec, sink=msgspec.structs.replace(sink, consistency=Consistency.TABLE)
    )
    bank.move(random.Random(4), transactions=1)
    tenant.run_until_done(bank.events)

    for name in TABLES:
        assert tenant.rows(name) == bank.rows(name)
