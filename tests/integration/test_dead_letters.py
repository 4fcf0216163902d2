"""Rows that a warehouse refuses: set aside as dead letters with their key parked, and taken up again, on real warehouses."""

from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from libs.events.dead_letter import SetAsideBy
from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER
from libs.mysql.logical import column
from libs.operations.dead_letters import plain_key
from libs.types.table import TableSchema
from libs.types.tenant import SinkMode
from libs.types.warehouse import WarehouseTable
from spark.batch import commit
from spark.batch.context import BatchContext
from spark.batch.table_batch import TableBatch
from spark.pending import retries, table_failures
from spark.sinks.port import BatchIdentity, TableRefused
from tests.integration.sink_tenant import ID, NOTE, StartTenant, orders, row
from tests.marks import rest
from tests.sink_topics import table_id

pytestmark = pytest.mark.usefixtures("interpreted")

BAD = "no number"


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "warehouse",
    [
        "iceberg",
        *rest("clickhouse", "delta", "postgresql", because="the gate refuses a row of PostgreSQL's by its own word"),
    ],
)
def test_a_refused_row_waits_with_what_comes_behind_it(start_tenant: StartTenant, warehouse: str) -> None:
    """Everything else goes on, also after a restart; a replay takes the key up in order, once its row is mended."""
    schema = orders()
    tenant = start_tenant(warehouse, schema)
    tenant.write(schema, row(1, "one", 1), row(2, "two", 2))
    tenant.run_until_done(2)
    tenant.write(schema, row(2, "bad", BAD), row(3, "three", 3))
    tenant.run_until_done(4)

    assert tenant.rows() == [row(1, "one", 1), row(2, "two", 2), row(3, "three", 3)]
    [progress] = tenant.progress.tables.values()
    assert (progress.parked_keys, progress.dead_letters, progress.rows, progress.parked) == (1, 1, 3, None)
    [stored] = tenant.letters
    letter = stored.letter
    assert (letter.set_aside_by, letter.table, letter.op, letter.behind_offset) == (
        SetAsideBy.SINK,
        "orders",
        "u",
        None,
    )
    assert "column n (int)" in letter.reason
    assert BAD not in letter.reason
    assert letter.event_key is not None
    assert plain_key(letter.event_key) == {"id": 2}
    assert letter.event_value is not None
    assert plain_key(letter.event_value)["after"] == row(2, "bad", BAD)
    assert [name for name, _ in stored.headers] == [ORDER_HEADER, SCHEMA_VERSION_HEADER]

    assert tenant.replay() == (1, 1)
    tenant.write(schema, row(2, "mended", 4), row(1, "uno", 5))
    tenant.run_until_done(6)
    assert tenant.rows() == [row(1, "uno", 5), row(2, "two", 2), row(3, "three", 3)]
    assert [each.letter.behind_offset for each in tenant.letters] == [None, letter.event_offset]
    assert all(each.is_waiting for each in tenant.letters)

    assert tenant.replay('{"id": 2}') == (1, 0)
    assert tenant.rows() == [row(1, "uno", 5), row(2, "mended", 4), row(3, "three", 3)]
    assert [table.parked_keys for table in tenant.progress.tables.values()] == [0]
    assert not any(each.is_waiting for each in tenant.letters)
    tenant.write(schema, row(2, "old", 0), op="d")
    tenant.run_until(lambda tenant: len(tenant.rows()) == 2)
    assert len(tenant.letters) == 2


@pytest.mark.timeout(1_800)
def test_a_log_has_every_change_but_those_that_are_given_up(start_tenant: StartTenant, warehouse: str) -> None:
    """Each once: of a log every event is needed, so that mending the source is not enough."""
    schema = orders()
    tenant = start_tenant(warehouse, schema, mode=SinkMode.APPEND)
    tenant.write(schema, row(1, "a", 1), row(1, "b", BAD), row(1, "c", 3), row(2, "d", 4))
    tenant.run_until_done(4)
    assert [found["note"] for found in tenant.rows()] == ["a", "d"]
    assert len(tenant.letters) == 2

    tenant.write(schema, row(1, "e", 5), row(2, "f", 6))
    assert tenant.replay(until_done=6) == (1, 1)
    assert sorted(found["note"] for found in tenant.rows()) == ["a", "d", "f"]
    assert tenant.replay(leave_out_refused=True) == (1, 0)

    assert sorted(found["note"] for found in tenant.rows()) == ["a", "c", "d", "e", "f"]
    assert tenant.progress.rows == 5


@pytest.mark.timeout(1_800)
def test_rows_from_before_a_truncation_do_not_come_back(start_tenant: StartTenant) -> None:
    """The truncation is carried out at once, and waits with the parked keys besides."""
    schema = orders()
    tenant = start_tenant("iceberg", schema)
    tenant.write(schema, row(1, "one", 1), row(2, "bad", BAD), row(3, "bad", BAD))
    tenant.run_until_done(3)
    tenant.write(schema, row(2, "good", 2))
    with tenant.topics.transaction() as truncating:
        truncating.change(schema, op="t")
    tenant.write(schema, row(3, "after", 3), row(4, "four", 4))
    tenant.run_until(lambda tenant: tenant.rows() == [row(4, "four", 4)])

    assert tenant.replay() == (2, 0)

    assert tenant.rows() == [row(3, "after", 3), row(4, "four", 4)]


@pytest.mark.timeout(1_800)
def test_what_postgresql_alone_refuses_is_found_by_its_own_word(start_tenant: StartTenant) -> None:
    """U+0000 and a number that somebody narrowed the column for; PostgreSQL names the column."""
    schema = TableSchema(
        table_id=table_id("orders"), columns=(ID, NOTE, column("big", "decimal(50,2)")), key=("id",), version=1
    )
    tenant = start_tenant("postgresql", schema)
    good = [{"id": key, "note": f"tab\there\n{key}", "big": "ZA=="} for key in range(500)]
    tenant.write(schema, *good, {"id": 7, "note": "a\0b", "big": None}, {"id": 501, "note": "\0", "big": None})
    tenant.run_until_done(502)

    assert {found["id"] for found in tenant.rows()} == set(range(500))
    reasons = [each.letter.reason for each in tenant.letters]
    assert len(reasons) == 2
    assert all("U+0000" in reason for reason in reasons)
    assert [plain_key(each.letter.event_key or b"") for each in tenant.letters] == [{"id": 7}, {"id": 501}]
    tenant.write(schema, {"id": 7, "note": "mended", "big": None})
    tenant.run_until_done(503)
    assert tenant.replay('{"id":7}') == (1, 0)
    assert next(found["note"] for found in tenant.rows() if found["id"] == 7) == "mended"


@pytest.mark.timeout(1_800)
def test_too_many_parked_keys_park_the_table_and_no_other(start_tenant: StartTenant) -> None:
    """Nothing is lost: with room for them the table is taken up where it was parked."""
    many, other = orders(), orders(name="other")
    tenant = start_tenant("iceberg", many, other, max_parked_keys=2)
    tenant.write(many, *(row(key, "bad", BAD) for key in range(4)), row(9, "good", 9))
    tenant.write(other, row(1, "one", 1))
    tenant.run_until(lambda tenant: len(tenant.progress.tables) == 2)

    tables = {table.table: table for table in tenant.progress.tables.values()}
    assert tables["shop.orders"].parked is not None
    assert "more than 2 keys would be parked (max_parked_keys)" in tables["shop.orders"].parked.because
    assert tenant.rows("other") == [row(1, "one", 1)]
    assert tenant.letters == []

    tenant.settings = msgspec.structs.replace(tenant.settings, max_parked_keys=4)
    tenant.write(many, row(9, "better", 10))
    # The batch before may come again first; and rows are there before the batch has ended.
    tenant.run_until(
        lambda tenant: (
            all(table.parked is None for table in tenant.progress.tables.values())
            and tenant.rows() == [row(9, "better", 10)]
        )
    )
    assert len(tenant.letters) == 4


@pytest.mark.rest(
    because="the gate has letters alone, and test_parked_tables.py a commit that came unheard before its table was parked"
)
@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.timeout(1_800)
def test_letters_of_a_commit_that_nobody_answered_for_are_taken_up_once(
    start_tenant: StartTenant, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """A batch with a replay failed so often that its table was parked. It may be in the warehouse nonetheless, which is asked
    before the next try: only if it is not do the keys stay parked, and the user had that report in either case.
    """
    monkeypatch.setattr(retries, "FIRST_WAIT_S", 0.0)
    monkeypatch.setattr(table_failures, "TRIES", 2)
    schema, other = orders(), orders(name="other")
    tenant = start_tenant("iceberg", schema, other, mode=SinkMode.APPEND)
    tenant.write(schema, row(1, "a", 1), row(2, "b", BAD), row(2, "c", 3))
    tenant.run_until_done(3)
    write_batch = commit.write_batch
    failures: list[int] = []

    def fail(context: BatchContext, table: TableBatch, *arguments: Any) -> None:
        if table.newest.table_schema != schema or table.replay is None or len(failures) == table_failures.TRIES:
            write_batch(context, table, *arguments)
            return
        if is_written and len(failures) == table_failures.TRIES - 1:
            write_batch(context, table, *arguments)  # raises for the bad row, and is called again without
        failures.append(1)
        raise PySparkException("the catalog did not answer")

    monkeypatch.setattr(commit, "write_batch", fail)
    tenant.write(schema, row(1, "d", 4))
    tenant.write(other, row(1, "one", 1))

    assert tenant.replay(leave_out_refused=True) == (1, 1)
    assert len(failures) == table_failures.TRIES
    tenant.run_until(lambda tenant: not tenant.progress.parked_topics)

    assert [key.event_key for table in tenant.parked.tables.values() for key in table.keys.values()] == (
        [] if is_written else ['{"id": 2}']
    )
    tenant.write(schema, row(2, "e", 5))
    if is_written:
        tenant.run_until(lambda tenant: len(tenant.rows()) == 4)
    else:
        tenant.run_until(lambda tenant: len(tenant.letters) == 3)
        assert tenant.replay(leave_out_refused=True) == (1, 0)
    assert sorted(found["note"] for found in tenant.rows()) == ["a", "c", "d", "e"]


@pytest.mark.timeout(1_800)
def test_letters_alone_that_were_written_unheard_are_taken_up_once(
    start_tenant: StartTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch was cut off after their commit, and when it came again the warehouse refused to be asked: the tenant waits for
    an answer, and the keys are not given back, which a second replay would have written once more.
    """
    schema = orders()
    tenant = start_tenant("iceberg", schema, mode=SinkMode.APPEND)
    tenant.write(schema, row(1, "a", 1), row(2, "b", BAD), row(2, "c", 3))
    tenant.run_until_done(3)
    write_batch, is_applied = commit.write_batch, tenant.sink.is_applied
    cut_off: list[BatchIdentity] = []
    refused: list[str] = []

    def write_and_end(context: BatchContext, table: TableBatch, *arguments: Any) -> None:
        write_batch(context, table, *arguments)  # raises for the bad row, and is called again without
        monkeypatch.setattr(commit, "write_batch", write_batch)
        cut_off.append(BatchIdentity(tenant.progress.query_id, tenant.progress.batch_id + 1))
        raise PySparkException("the executor is gone")

    def answer(spark: SparkSession, table: WarehouseTable, identity: BatchIdentity, offsets: dict[int, int]) -> bool:
        if identity in cut_off and len(refused) < 2:
            refused.append("no right to SELECT")
            raise TableRefused(refused[-1])
        return is_applied(spark, table, identity, offsets)

    monkeypatch.setattr(commit, "write_batch", write_and_end)
    monkeypatch.setattr(tenant.sink, "is_applied", answer)

    assert tenant.replay(leave_out_refused=True) == (1, 0)
    assert (len(cut_off), len(refused)) == (1, 2)
    assert not any(table.keys for table in tenant.parked.tables.values())
    tenant.write(schema, row(2, "d", 4))
    tenant.run_until(lambda tenant: len(tenant.rows()) == 3)
    assert sorted(found["note"] for found in tenant.rows()) == ["a", "c", "d"]


@pytest.mark.rest(
    because="letters are late changes to a history: unit/spark/test_history.py; the gate has a mirror and a log"
)
@pytest.mark.timeout(1_800)
def test_a_history_gets_its_versions_in_order(start_tenant: StartTenant) -> None:
    """Also those from before changes of other rows that came meanwhile."""
    schema = orders()
    tenant = start_tenant("iceberg", schema, mode=SinkMode.HISTORY)
    tenant.write(schema, row(1, "a", 1), row(2, "x", 1))
    tenant.write(schema, row(1, "b", BAD))
    tenant.write(schema, row(1, "c", 3), row(2, "y", 2))
    tenant.run_until_done(5)
    assert tenant.replay() == (1, 1)
    assert tenant.replay(leave_out_refused=True) == (1, 0)

    versions = sorted((found["id"], found["note"], found["is_current"]) for found in tenant.rows())
    assert versions == [(1, "a", False), (1, "c", True), (2, "x", False), (2, "y", True)]
