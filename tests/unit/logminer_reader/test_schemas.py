"""Definitions of a model database's tables through statements, restarts and tables that are made again."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from libs.stand_ins.oracle.answers import Column, OracleType
from libs.telemetry.faults import lasting_faults
from libs.types.table import TableId
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch
from services.logminer_reader.table_numbers import TableNumbers
from tests.oracle.reading import Reading, reading, run

ORDERS = TableId(database="SHOP", table="ORDERS")
COLUMNS = (Column("ID", OracleType.NUMBER, 22, 18, 0, is_nullable=False), Column("NOTE"))


@pytest.fixture
def read() -> Iterator[Reading]:
    with reading(include_tables=(r"SHOP\.(ORDERS|NEWER|LINES)",)) as found:
        found.model.create("SHOP", "ORDERS", COLUMNS, ("ID",))
        yield found


def through(read: Reading, *statements: str) -> None:
    async def follow() -> None:
        await read.begin()
        for statement in statements:
            await read.ddl(statement)

    asyncio.run(follow())


def columns(read: Reading, table: TableId = ORDERS) -> list[tuple[int, str, str]]:
    return [(each.number, each.name, each.source_type) for each in read.schemas.tables.schemas[table].columns]


def truncations(read: Reading) -> int:
    read.batches.append(read.gatherer.take(None))
    runs = [entry.run for batch in read.batches for entry in ChangeBatch.FromString(batch.payload).entries]
    return sum(run.ops.count(b"t") for run in runs)


def unseen() -> list[tuple[str, str]]:
    """(table, clause) of the reader's faults."""
    faults = [each for each in lasting_faults() if each.id == "rows_changed_unseen"]
    return [(each.scope.table, each.happened.partition(" at SCN")[0]) for each in faults]


def test_a_statement_makes_a_version_under_the_same_number(read: Reading) -> None:
    object_id = read.model.tables["SHOP", "ORDERS"].object_id
    through(read, "ALTER TABLE SHOP.ORDERS ADD (EXTRA NUMBER(3))", "ALTER TABLE SHOP.ORDERS RENAME COLUMN NOTE TO TEXT")
    assert columns(read) == [(1, "ID", "NUMBER(18,0)"), (2, "TEXT", "VARCHAR2(4000)"), (3, "EXTRA", "NUMBER(3,0)")]
    schema = read.schemas.schema_of(object_id, 3)
    assert schema is not None
    assert (schema.version, schema.key, schema.object_ids) == (3, ("ID",), (object_id,))
    assert read.schemas.schema_of(object_id + 1_000, 1) is None


def test_rows_of_an_older_version_keep_its_definition(read: Reading) -> None:
    object_id = read.model.tables["SHOP", "ORDERS"].object_id

    async def follow() -> None:
        await read.begin()
        before = read.schemas.schema_of(object_id, 1)
        await read.ddl("ALTER TABLE SHOP.ORDERS ADD (EXTRA NUMBER(3))")
        after = read.schemas.schema_of(object_id, 2)
        assert before is not None
        assert after is not None
        assert read.schemas.schema_of(object_id, 1) == before
        assert (before.version, after.version) == (1, 2)

    asyncio.run(follow())


def test_a_version_whose_columns_are_in_force_has_the_key_in_force() -> None:
    with reading() as read:
        read.model.create("SHOP", "ORDERS", COLUMNS, ())
        through(read)
        schema = read.schemas.tables.schemas[ORDERS]
        numbers = TableNumbers()
        assert numbers.schema(7, 1, schema) is schema
        keyed = msgspec.structs.replace(schema, key=("ID",), version=2)
        assert numbers.schema(7, 1, keyed) is keyed


def test_a_table_that_is_made_again_is_another_one(read: Reading) -> None:
    old = read.model.tables["SHOP", "ORDERS"].object_id
    through(read, "DROP TABLE SHOP.ORDERS", "CREATE TABLE SHOP.ORDERS (ID NUMBER(9) PRIMARY KEY, WHEN DATE)")
    new = read.model.tables["SHOP", "ORDERS"].object_id
    assert old != new
    assert read.schemas.schema_of(old, 1) is None
    schema = read.schemas.schema_of(new, 1)
    assert schema is not None
    assert [column.name for column in schema.columns] == ["ID", "WHEN"]
    assert truncations(read) == 1  # its rows of before went with the DROP


def test_a_truncation_is_an_event_and_no_version(read: Reading) -> None:
    object_id = read.model.tables["SHOP", "ORDERS"].object_id
    through(read, "TRUNCATE TABLE SHOP.ORDERS")
    assert truncations(read) == 1
    schema = read.schemas.schema_of(object_id, 1)
    assert schema is not None
    assert schema.version == 1


@pytest.mark.parametrize(("to", "captured"), [("NEWER", True), ("ELSEWHERE", False)])
def test_a_table_keeps_its_number_under_another_name(read: Reading, to: str, captured: bool) -> None:
    object_id = read.model.tables["SHOP", "ORDERS"].object_id
    through(read, f"ALTER TABLE SHOP.ORDERS RENAME TO {to}")
    schema = read.schemas.schema_of(object_id, 1)
    assert (schema is not None) == captured
    if schema is not None:
        assert str(schema.table_id) == f"SHOP.{to}"
    assert ORDERS not in read.schemas.tables.schemas
    assert unseen() == (
        [("SHOP.NEWER", "RENAME of SHOP.ORDERS to it, whose rows came under that name")] if captured else []
    )


def test_a_table_that_is_renamed_to_a_captured_name_is_read_at_the_server(read: Reading) -> None:
    other = read.model.create("SHOP", "ELSEWHERE", COLUMNS, ("ID",))
    through(read, "ALTER TABLE SHOP.ELSEWHERE RENAME TO NEWER")
    schema = read.schemas.schema_of(other.object_id, 1)
    assert schema is not None
    assert str(schema.table_id) == "SHOP.NEWER"
    assert unseen() == [("SHOP.NEWER", "RENAME of SHOP.ELSEWHERE, whose rows were not captured, to it")]


def test_a_statement_that_is_in_the_definition_already_is_passed_over(read: Reading) -> None:
    """It was carried out before the reader learned the tables, and the log brings it after."""

    async def follow() -> None:
        before = read.model.scn
        run(read.listener, "ALTER TABLE SHOP.ORDERS ADD (EXTRA NUMBER(3))")
        await read.begin()
        await read.apply(before)

    asyncio.run(follow())
    assert [name for _, name, _ in columns(read)] == ["ID", "NOTE", "EXTRA"]
    assert len(read.history.changes) == 1


def test_tables_made_and_dropped_before_the_log_was_read_so_far_are_reported(read: Reading) -> None:
    async def follow() -> None:
        await read.begin()
        before = read.model.scn
        run(read.listener, "CREATE TABLE SHOP.LINES (ID NUMBER(9) PRIMARY KEY)")
        middle = read.model.scn
        run(read.listener, "DROP TABLE SHOP.LINES PURGE")
        statements = [row for row in read.model.redo if row.scn > before]
        assert statements
        await read.apply(before, until_scn=middle)
        assert "dropped before the log was read so far" in read.schemas.quarantined["SHOP.LINES"]
        await read.apply(middle)
        assert not read.schemas.quarantined

    asyncio.run(follow())


def test_after_a_restart_numbers_of_dropped_tables_are_known_still(read: Reading) -> None:
    """Their rows come as ``OBJ# n``, because LogMiner's dictionary is that of now."""
    object_id = read.model.tables["SHOP", "ORDERS"].object_id

    async def killed() -> None:
        read.durable(await read.begin())

    asyncio.run(killed())
    run(read.listener, "DROP TABLE SHOP.ORDERS PURGE")
    after = read.again()

    async def resumed() -> None:
        await after.take_up()

    asyncio.run(resumed())
    schema = after.schemas.schema_of(object_id, 1)
    assert schema is not None
    assert schema.table_id == ORDERS


def test_settings_that_capture_more_have_the_tables_learned(read: Reading) -> None:
    read.model.create("SHOP", "MORE", COLUMNS, ("ID",))

    asyncio.run(_copied(read))
    after = read.again()
    wider = Reading(
        after.listener, after.database, include_tables=(".*",), history=after.history, batches=after.batches
    )

    async def resumed() -> None:
        await wider.take_up()

    asyncio.run(resumed())
    assert [str(schema.table_id) for schema in wider.schemas.captured] == ["SHOP.MORE", "SHOP.ORDERS"]


async def _copied(reader: Reading) -> None:
    reader.durable(await reader.begin())


def test_a_key_that_the_server_named_is_read_again_when_it_is_dropped(read: Reading) -> None:
    through(read, "CREATE TABLE SHOP.NEWER (ID NUMBER(9) PRIMARY KEY)", "ALTER TABLE SHOP.NEWER DROP CONSTRAINT SYS_C1")
    kinds = [ddl.split()[0] for _, table_id, _, ddl in read.history.changes if table_id.table == "NEWER"]
    assert kinds == ["CREATE", "ALTER"]
