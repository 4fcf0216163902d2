"""Properties of ClickHouse's own: rows that are attached before their batch is noted, marks of deleted rows, and refusals by
name."""

import itertools
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from libs.errors import AccessDenied, DiskFull, HeadwaterError, InvalidSettings, PipelineHalted, TransientError
from libs.mysql.logical import column
from libs.servers.ports import free_port
from libs.testing import sink_contract as contract
from libs.types.table import TableId, TableSchema
from libs.types.tenant import SinkMode
from libs.types.warehouse import WarehouseTable
from spark.sinks.clickhouse import server as clickhouse_server_module
from spark.sinks.clickhouse import sink as clickhouse_sink
from spark.sinks.clickhouse import tables as clickhouse_tables
from spark.sinks.clickhouse.client import errors_named
from spark.sinks.clickhouse.settings import Settings
from spark.sinks.clickhouse.sink import open_sink
from spark.sinks.port import TableRefused
from tests import clickhouse
from tests.clickhouse import ClickhouseServer
from tests.conftest import start_clickhouse_in
from tests.contract.sink_harness import WarehouseHarness
from tests.spark_session import shared_spark

pytestmark = pytest.mark.rest(because="the gate has ClickHouse in contract/test_sinks.py and faults/test_sink_kills.py")

ORDERS = contract.table()
_tenants = itertools.count()


def harness_on(server: ClickhouseServer, **settings: Any) -> WarehouseHarness:
    """A tenant of its own."""
    sink = open_sink(clickhouse.settings_of(server, **settings))
    tenant = f"ch{next(_tenants)}"
    return WarehouseHarness(shared_spark().session, sink, lambda table: clickhouse.rows_of(server, table), tenant)


@pytest.fixture
def harness(clickhouse_server: ClickhouseServer) -> WarehouseHarness:
    return harness_on(clickhouse_server)


def place(harness: WarehouseHarness, schema: TableSchema = ORDERS) -> str:
    return clickhouse.place_of(harness.place(schema))


def forget_batches(server: ClickhouseServer, harness: WarehouseHarness) -> None:
    """As a job leaves them that dies between a batch's rows and its note."""
    server.execute(
        "ALTER TABLE headwater.batches DELETE "
        f"WHERE startsWith(name, '{harness.place(ORDERS).namespace[0]}.') SETTINGS mutations_sync = 1"
    )


@pytest.mark.gate
def test_a_batch_that_was_not_noted_changes_nothing_when_it_comes_again(
    clickhouse_server: ClickhouseServer, harness: WarehouseHarness
) -> None:
    """A mirror's is done again; a log's is known by its rows, and its note made good from the intention that was noted."""
    visits = contract.table(name="visits")
    changes = (contract.put(1, 1, "one"), contract.put(2, 2, "two"), contract.gone(3, 3))
    harness.apply(ORDERS, *changes, batch_id=1)
    harness.apply(visits, *changes, mode=SinkMode.APPEND, batch_id=1)
    before = [sorted(harness.rows(each), key=str) for each in (ORDERS, visits)]
    reached = (
        "SELECT * EXCEPT written_at FROM headwater.batches FINAL "
        f"WHERE startsWith(name, '{harness.place(visits).namespace[0]}.') AND query_id <> '' ORDER BY name"
    )
    noted = clickhouse_server.rows(reached)
    forget_batches(clickhouse_server, harness)

    assert harness.apply(ORDERS, *changes, batch_id=1)
    assert not harness.apply(visits, *changes, mode=SinkMode.APPEND, batch_id=1)

    assert [sorted(harness.rows(each), key=str) for each in (ORDERS, visits)] == before
    assert clickhouse_server.rows(reached) == noted
    assert harness.is_applied(ORDERS, 1)
    assert harness.is_applied(visits, 1)


def test_a_log_that_is_refused_behind_a_batch_that_was_not_noted_is_known_to_have_it(
    clickhouse_server: ClickhouseServer, harness: WarehouseHarness
) -> None:
    """Asked before the table is found to be another one; else it would be parked with rows that it has."""
    one = contract.put(1, 1, "one")
    harness.apply(ORDERS, one, mode=SinkMode.APPEND, batch_id=1)
    forget_batches(clickhouse_server, harness)
    clickhouse_server.execute(f"ALTER TABLE {place(harness)} RENAME COLUMN note TO remark")

    known = harness.is_applied(ORDERS, 1)
    clickhouse_server.execute(f"ALTER TABLE {place(harness)} RENAME COLUMN remark TO note")

    assert known
    assert not harness.is_applied(ORDERS, 2)
    assert harness.apply(ORDERS, contract.put(2, 2, "two"), mode=SinkMode.APPEND, batch_id=2)
    assert sorted(row["note"] for row in contract.source_rows(harness, ORDERS)) == ["one", "two"]


def test_rows_of_a_batch_that_was_not_noted_go_when_they_come_under_another(
    clickhouse_server: ClickhouseServer, harness: WarehouseHarness
) -> None:
    """The table could not even be asked when its batch came again, and its rows come with a later one, and the rows after
    them; rows of the batches before that stay. The same batch with other events is another one, too."""
    one, two, three = contract.put(1, 1, "one"), contract.put(2, 1, "two"), contract.put(3, 1, "three")
    harness.apply(ORDERS, one, mode=SinkMode.APPEND, batch_id=1)
    harness.apply(ORDERS, two, mode=SinkMode.APPEND, batch_id=2)
    name = harness.place(ORDERS)
    clickhouse_server.execute(
        "INSERT INTO headwater.batches (name, query_id, batch_id) "
        f"SELECT name, query_id, 1 FROM headwater.batches FINAL WHERE name = '{name}'"
    )

    assert not harness.is_applied(ORDERS, 2, offsets={0: 5, 1: 6})
    assert harness.apply(ORDERS, two, three, mode=SinkMode.APPEND, batch_id=4)

    assert sorted(row["note"] for row in contract.source_rows(harness, ORDERS)) == ["one", "three", "two"]


def test_an_older_event_of_a_deleted_row_does_not_bring_it_back(harness: WarehouseHarness) -> None:
    harness.apply(ORDERS, contract.put(1, 1, "one"), contract.put(1, 2, "two"))
    harness.apply(ORDERS, contract.gone(5, 1), truncated_at=4)

    harness.apply(ORDERS, contract.put(3, 1, "late"), contract.put(3, 2, "late"))

    assert contract.source_rows(harness, ORDERS) == []


def test_marks_of_deleted_rows_hold_no_values_and_are_removed(clickhouse_server: ClickhouseServer) -> None:
    harness = harness_on(clickhouse_server, cleanup_every_commits=2, cleanup_at_share=0.4)
    harness.apply(ORDERS, *(contract.put(1, key, "secret") for key in range(4)))
    harness.apply(ORDERS, *(contract.gone(2, key) for key in range(3)))
    stored = f"SELECT count(), countIf(_headwater_gone = 1 AND note IS NOT NULL) FROM {place(harness)}"
    [(_, marks_with_values)] = clickhouse_server.rows(stored)

    harness.maintain(ORDERS)
    harness.maintain(ORDERS)

    assert marks_with_values == 0
    assert clickhouse_server.rows(stored) == [(1, 0)]
    assert contract.source_rows(harness, ORDERS) == [{"id": 3, "note": "secret"}]


def test_nothing_stays_staged(clickhouse_server: ClickhouseServer, harness: WarehouseHarness) -> None:
    """Neither of a batch nor of a table that was copied; the stages that a killed job left go with its next batch."""
    harness.apply(ORDERS, contract.put(1, 1, "one"), batch_id=1)
    wide = contract.table(column("id", "bigint", is_optional=False), contract.NOTE, version=2)
    harness.apply(wide, contract.put(2, 2**40, "two"), batch_id=2)
    staged = "SELECT name FROM system.tables WHERE database = 'headwater' AND match(name, '^(stage|copy)_')"
    prefix = clickhouse_sink.stage_prefix(f"contract-query-{harness.place(ORDERS).namespace[0]}")
    assert clickhouse_server.rows(staged) == []
    clickhouse_server.execute(f"CREATE TABLE headwater.{prefix}left (a Int8) ENGINE = MergeTree ORDER BY a")

    harness.apply(wide, batch_id=3)

    assert clickhouse_server.rows(staged) == []
    assert [row["id"] for row in contract.source_rows(harness, wide)] == [1, 2**40]


def test_how_far_a_table_got_is_a_view(clickhouse_server: ClickhouseServer, harness: WarehouseHarness) -> None:
    harness.apply(ORDERS, contract.put(1, 1, "one"), batch_id=7)

    rows = clickhouse_server.rows(
        'SELECT "table", source_partition, position, "order", offsets, batch FROM headwater._headwater_progress '
        f"WHERE tenant = '{harness.place(ORDERS).namespace[0]}'"
    )

    batch = f"contract-query-{harness.place(ORDERS).namespace[0]}:7"
    assert rows == [("shop.orders", "-80,80-", '{"vgtid":"[]"}', "0:9", '{"0":5,"1":7}', batch)]


def test_what_somebody_else_did_to_a_table_is_refused_by_name(
    clickhouse_server: ClickhouseServer, harness: WarehouseHarness
) -> None:
    harness.apply(ORDERS, contract.put(1, 1, "one"))

    def said() -> str:
        return contract.refusal(lambda: harness.apply(ORDERS, contract.put(2, 1, "two")))

    clickhouse_server.execute(f"ALTER TABLE {place(harness)} RENAME COLUMN note TO remark")
    renamed = said()
    clickhouse_server.execute(
        f"ALTER TABLE {place(harness)} RENAME COLUMN remark TO note",
        f"ALTER TABLE {place(harness)} MODIFY COLUMN note Nullable(FixedString(9))",
    )
    retyped = said()
    clickhouse_server.execute(f"ALTER TABLE {place(harness)} MODIFY COMMENT 'orders'")

    assert "renamed column note; put it back" in renamed
    assert "column note is of type Nullable(FixedString(9)); set it back to String" in retyped
    assert "is there already and is not Headwater's" in said()


def test_a_table_that_may_not_be_written_is_refused_by_itself(
    clickhouse_server: ClickhouseServer, harness: WarehouseHarness
) -> None:
    """A constraint that a row breaks, a table that is read-only; the tenant's other table is written in the same batch, and the
    one that was refused has each row once when that is mended."""
    visits = contract.table(name="visits")
    for each, mode in ((ORDERS, SinkMode.APPEND), (visits, SinkMode.MIRROR)):
        harness.apply(each, contract.put(1, 1, "one"), mode=mode, batch_id=1)

    def said(batch_id: int) -> str:
        """The refusal of the one table; the other has the batch."""
        two = contract.put(2, 1, "two")
        told = contract.refusal(lambda: harness.apply(ORDERS, two, mode=SinkMode.APPEND, batch_id=batch_id))
        assert harness.apply(visits, two, batch_id=batch_id)
        return told

    clickhouse_server.execute(f"ALTER TABLE {place(harness)} ADD CONSTRAINT first CHECK note = 'one'")
    constrained = said(2)
    clickhouse_server.execute(
        f"ALTER TABLE {place(harness)} DROP CONSTRAINT first",
        f"ALTER TABLE {place(harness)} MODIFY SETTING table_readonly = 1",
    )
    read_only = said(3)
    clickhouse_server.execute(f"ALTER TABLE {place(harness)} RESET SETTING table_readonly")

    assert "a row breaks a CONSTRAINT" in constrained
    assert "somebody made it read-only" in read_only
    assert harness.apply(ORDERS, contract.put(2, 1, "two"), mode=SinkMode.APPEND, batch_id=4)
    assert sorted(row["note"] for row in contract.source_rows(harness, ORDERS)) == ["one", "two"]
    assert contract.source_rows(harness, visits) == [{"id": 1, "note": "two"}]


def test_a_table_that_is_not_shown_keeps_its_note(harness: WarehouseHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its every right was taken away: it is in no list, is not made again, and its batch is known when it comes again; else a
    log would have that once more when the rights are back. (The engine of the tests has no users: the sink's own look at the
    lists is left out.)"""
    one = contract.put(1, 1, "one")
    harness.apply(ORDERS, one, mode=SinkMode.APPEND, batch_id=1)
    with monkeypatch.context() as hidden:
        hidden.setattr(clickhouse_tables.Tables, "load", lambda _self, _table: None)
        known = harness.is_applied(ORDERS, 1)
        refused = contract.refusal(lambda: harness.apply(ORDERS, one, mode=SinkMode.APPEND, batch_id=2))

    assert known
    assert "GRANT the rights on it again" in refused
    assert harness.is_applied(ORDERS, 1)
    assert not harness.apply(ORDERS, one, mode=SinkMode.APPEND, batch_id=1)


def test_a_batch_is_known_whatever_was_done_to_its_table_since(
    clickhouse_server: ClickhouseServer, harness: WarehouseHarness
) -> None:
    """A table that is refused is parked with the events of its batch: those that it holds would come once more with the
    next."""
    harness.apply(ORDERS, contract.put(1, 1, "one"), mode=SinkMode.APPEND, batch_id=1)
    clickhouse_server.execute(f"ALTER TABLE {place(harness)} RENAME COLUMN note TO remark")
    renamed = harness.is_applied(ORDERS, 1)
    clickhouse_server.execute(f"DROP TABLE {place(harness)} SYNC")

    assert renamed
    assert not harness.is_applied(ORDERS, 1)


@pytest.mark.gate
@pytest.mark.parametrize(
    ("code", "of_a_table", "of_all"),
    [
        (497, TableRefused, AccessDenied),
        (60, TableRefused, PipelineHalted),
        (774, TableRefused, PipelineHalted),
        (516, AccessDenied, AccessDenied),
        (243, DiskFull, DiskFull),
        (242, TransientError, TransientError),
        (49, PipelineHalted, PipelineHalted),
    ],
)
def test_errors_are_named_by_whom_they_are_about(
    code: int, of_a_table: type[HeadwaterError], of_all: type[HeadwaterError]
) -> None:
    """Rights, a table that is gone; not a refused login, the disk, errors that pass by themselves, and unknown ones."""
    subjects = {WarehouseTable(namespace=("acme", "shop", "shop"), name="orders"): of_a_table, "headwater": of_all}
    for subject, named in subjects.items():
        with pytest.raises(named) as raised, errors_named(Settings(user="sink"), subject):
            raise DatabaseError("a row's values", code=code, name="NAME")

        assert type(raised.value) is named
        assert "a row's values" not in str(raised.value)


def test_two_tables_of_one_place_are_not_mixed(clickhouse_server: ClickhouseServer) -> None:
    harness = harness_on(clickhouse_server, database="{tenant}")
    other = msgspec.structs.replace(ORDERS, table_id=TableId(database="other", table="orders"))
    harness.apply(ORDERS, contract.put(1, 1, "one"))

    said = contract.refusal(lambda: harness.apply(other, contract.put(1, 1, "other")))

    assert f"is {harness.place(ORDERS)}'s already" in said


def test_a_server_that_is_away_or_too_old_is_named(
    clickhouse_server: ClickhouseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one is tried again, the other halts the tenant."""
    away = WarehouseHarness(shared_spark().session, open_sink(Settings(port=free_port())), lambda _: [], "away")
    with pytest.raises(TransientError, match="does not answer"):
        away.apply(ORDERS)

    monkeypatch.setattr(clickhouse_server_module, "_DAYS", ("0000-00-00", "9999-12-31"))
    with pytest.raises(PipelineHalted, match=r"has no days before 1900 .* take one that has"):
        harness_on(clickhouse_server).apply(ORDERS)


def test_rows_and_batches_outlive_a_kill_of_the_server(tmp_path: Path) -> None:
    with ExitStack() as servers:
        server = start_clickhouse_in(tmp_path, servers)
        harness = harness_on(server)
        harness.apply(ORDERS, contract.put(1, 1, "one"), batch_id=1)

        server.kill()
        with pytest.raises(TransientError):
            harness.apply(ORDERS, contract.put(2, 1, "two"), batch_id=2)
        server.restart()
        harness.apply(ORDERS, contract.put(2, 1, "two"), batch_id=2)

        assert contract.source_rows(harness, ORDERS) == [{"id": 1, "note": "two"}]
        assert harness.is_applied(ORDERS, 2)


@pytest.mark.gate
def test_every_mistake_of_the_settings_is_named() -> None:
    with pytest.raises(InvalidSettings) as refused:
        Settings(database="{who}", tls_ca_file="ca.pem", stage_connections=0, cleanup_at_share=2.0)

    assert len(refused.value.mistakes) == 4
