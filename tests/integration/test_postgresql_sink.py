"""Properties of PostgreSQL's own in its sink; the promises of every sink are in ``tests/contract/test_sinks.py``."""

import json
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from libs.config.connections import PostgresqlTls
from libs.config.load import Secret
from libs.errors import AccessDenied, DiskFull, HeadwaterError, PipelineHalted, TransientError
from libs.mysql.logical import column
from libs.postgresql.connection import connect, named_error
from libs.testing.sink_contract import ID, NOTE, RowChange, gone, put, refusal, source_rows, table
from libs.types.tenant import SinkMode
from libs.warehouse.postgresql import is_wider
from libs.warehouse_readers.postgresql import PostgresqlWarehouse
from libs.warehouse_readers.warehouse import run_query
from spark.sinks.port import Sink, TableRefused
from spark.sinks.postgresql.settings import Settings
from spark.sinks.postgresql.sink import open_sink
from spark.sinks.registry import open_sinks
from tests.certificates import write_certificates
from tests.conftest import PostgresqlServer, start_postgresql_in
from tests.contract.sink_harness import REACHED, WarehouseHarness
from tests.contract.test_sinks import postgresql_rows, postgresql_settings
from tests.spark_session import shared_spark
from tests.unit.spark.events import SOURCE

pytestmark = pytest.mark.rest(because="the gate has PostgreSQL in contract/test_sinks.py and faults/test_sink_kills.py")


def harness_of(server: PostgresqlServer, sink: Sink | None = None, tenant: str | None = None) -> WarehouseHarness:
    return WarehouseHarness(
        shared_spark().session,
        sink or open_sink(postgresql_settings(server)),
        lambda place: postgresql_rows(server, place),
        tenant or f"pg{secrets.token_hex(3)}",
    )


def place_of(harness: WarehouseHarness) -> str:
    """``orders`` of the harness's tenant, quoted."""
    return '"' + "_".join(harness.place(table()).namespace) + '".orders'


@pytest.mark.gate
def test_tables_that_move_together_are_written_whole_or_not_at_all(postgresql_server: PostgresqlServer) -> None:
    """A batch that ends before it is shown leaves no row, and no identity; it comes again."""
    harness = harness_of(postgresql_server)
    orders, visits = table(), table(name="visits")
    harness.apply_together([(orders, [put(1, 1, "a")]), (visits, [put(1, 1, "a")])], batch_id=1, shows=True)
    second = [(orders, [put(2, 1, "b")]), (visits, [put(2, 1, "b"), put(2, 2, "b")])]

    harness.apply_together(second, batch_id=2, shows=False)
    before = [source_rows(harness, each) for each in (orders, visits)], harness.is_applied(orders, 2)
    harness.apply_together(second, batch_id=2, shows=True)

    assert before == ([[{"id": 1, "note": "a"}], [{"id": 1, "note": "a"}]], False)
    assert source_rows(harness, orders) == [{"id": 1, "note": "b"}]
    assert source_rows(harness, visits) == [{"id": 1, "note": "b"}, {"id": 2, "note": "b"}]
    assert harness.is_applied(visits, 2)


def test_a_job_begins_while_the_batch_of_another_is_open(postgresql_server: PostgresqlServer) -> None:
    """A batch whose tables move together keeps its rows of the registry locked while Spark is at work; nobody waits for it."""
    harness_of(postgresql_server).apply(table(), put(1, 1, "a"))
    other = harness_of(postgresql_server, open_sink(postgresql_settings(postgresql_server, lock_timeout_s=1.0)))

    with postgresql_server.connect() as connection, connection.transaction():
        connection.execute("SELECT 1 FROM headwater.tables FOR UPDATE")
        other.apply(table(), put(1, 1, "a"))

    assert source_rows(other, table()) == [{"id": 1, "note": "a"}]


def test_columns_have_postgresqls_own_types(postgresql_server: PostgresqlServer) -> None:
    """Also those that Spark has no type for: 65 digits are a number, a document is json; comments and the key are there."""
    harness = harness_of(postgresql_server)
    long = column("long", "decimal(65,30)")
    items = (ID, long, column("doc", "json"), column("u", "bigint unsigned"), column("raw", "blob"))
    times = (column("at", "timestamp(6)"), column("local", "datetime(6)"), column("day", "date"), column("t", "time"))
    typed = table(*items, *times, column("flag", "bit(1)"), column("x" * 70, "float"))
    wire = "AQ=="
    harness.apply(typed, RowChange("c", 1, {"id": 1, "long": wire, "doc": '{"b": 1, "a": 1.0, "b": 2}'}))

    found = postgresql_server.execute(
        "SELECT attname::text, format_type(atttypid, atttypmod), col_description(attrelid, attnum) FROM pg_attribute "
        f"WHERE attrelid = '{place_of(harness)}'::regclass AND attnum > 0 ORDER BY attnum"
    )
    names = {name: kind for name, kind, _ in found}
    assert [names[item.name] for item in (*items, *times)] == [
        "integer",
        "numeric(65,30)",
        "json",
        "numeric(20,0)",
        "bytea",
        "timestamp with time zone",
        "timestamp without time zone",
        "date",
        "bigint",
    ]
    assert names["flag"] == "boolean"
    assert max(len(name) for name in names) == 63
    assert [text for name, _, text in found if len(name) == 63] == [f"{'x' * 70} at the source"]
    assert postgresql_server.execute(f"SELECT long::text, doc::text FROM {place_of(harness)}") == [
        ("0." + "0" * 29 + "1", '{"b": 1, "a": 1.0, "b": 2}')
    ]


@pytest.mark.parametrize(
    ("old", "new", "wires", "stored"),
    [
        ("int", "bigint unsigned", (7, 8), ["7", "8", "7"]),
        ("decimal(10,2)", "decimal(60,4)", ("Bw==", "CA=="), ["0.0700", "0.0008", "0.0700"]),
        ("bigint", "decimal(19,0)", (7, "CA=="), ["7", "8", "7"]),
        ("json", "longtext", ('{"a": 1.0}', "x"), ['{"a": 1.0}', "x", '{"a": 1.0}']),
    ],
)
def test_more_types_widen_in_place(
    postgresql_server: PostgresqlServer, old: str, new: str, wires: tuple[Any, Any], stored: list[str]
) -> None:
    """PostgreSQL turns each into the other with every value kept, and rows of either version go on."""
    harness = harness_of(postgresql_server)
    before, after = (table(ID, column("c", kind), version=number) for number, kind in enumerate((old, new), 1))

    harness.apply(before, RowChange("c", 1, {"id": 1, "c": wires[0]}))
    harness.apply(after, RowChange("c", 2, {"id": 2, "c": wires[1]}))
    harness.apply(before, RowChange("c", 3, {"id": 3, "c": wires[0]}))

    assert [str(row["c"]) for row in source_rows(harness, after)] == stored


@pytest.mark.gate
def test_what_is_wider_holds_every_value() -> None:
    """A type that is a digit too small is not."""
    assert is_wider("numeric(10,0)", "integer")
    assert not is_wider("numeric(9,0)", "integer")
    assert not is_wider("numeric(19,1)", "bigint")
    assert not is_wider("numeric(12,3)", "numeric(12,2)")
    assert not is_wider("numeric(12,2)", "numeric(12,2)")
    assert not is_wider("text", "integer")


def test_a_text_with_a_nul_is_refused_by_name(postgresql_server: PostgresqlServer) -> None:
    """PostgreSQL has no form for U+0000; nothing is dropped in silence, and the batch is not half there."""
    harness = harness_of(postgresql_server)
    harness.apply(table(), put(1, 1, "one"), batch_id=1)

    with pytest.raises(TableRefused, match=r"U\+0000.*exclude or mask") as refused:
        harness.apply(table(), put(2, 1, "two"), put(2, 2, "se\0cret"), batch_id=2)

    assert "cret" not in str(refused.value)
    assert source_rows(harness, table()) == [{"id": 1, "note": "one"}]
    assert not harness.is_applied(table(), 2)
    assert harness.apply(table(), put(2, 1, "two"), batch_id=2)


def test_what_stands_in_the_way_is_named(postgresql_server: PostgresqlServer) -> None:
    """A view over a column that must widen, a key too long for an index, a constraint and a column of somebody else."""
    viewed, keyed, checked, dropped = (harness_of(postgresql_server) for _ in range(4))
    number = column("n", "int")
    viewed.apply(table(ID, number), RowChange("c", 1, {"id": 1, "n": 1}))
    postgresql_server.execute(f"CREATE VIEW {place_of(viewed)[:-1]}_v AS SELECT n FROM {place_of(viewed)}")
    wider = table(ID, column("n", "bigint"), version=2)
    text_key = table(column("id", "varchar(4000)", charset="utf8mb4", is_optional=False), NOTE)
    long_key = "".join(chr(0x4E00 + (7 * place) % 20_000) for place in range(4000))
    checked.apply(table(), put(1, 1, "one"))
    postgresql_server.execute(f"ALTER TABLE {place_of(checked)} ADD CHECK (note <> 'bad')")
    dropped.apply(table(), put(1, 1, "one"))
    postgresql_server.execute(f"ALTER TABLE {place_of(dropped)} DROP COLUMN note")

    assert "a view or rule uses a column" in refusal(lambda: viewed.apply(wider))
    assert "too long for an index" in refusal(
        lambda: keyed.apply(text_key, RowChange("c", 1, {"id": long_key, "note": None}))
    )
    assert "breaks a CHECK" in refusal(lambda: checked.apply(table(), put(2, 1, "bad")))
    assert "somebody dropped or renamed column note" in refusal(lambda: dropped.apply(table(), put(2, 1, "two")))


def test_a_table_that_may_not_be_written_is_refused_by_itself(postgresql_server: PostgresqlServer) -> None:
    """Rights that somebody took away, and a trigger that raises; the tenant's other table is written in the same batch."""
    server = postgresql_server
    harness_of(server).apply(table())
    server.execute(
        "CREATE ROLE sink_of_it LOGIN",
        f"GRANT CREATE ON DATABASE {server.settings.database} TO sink_of_it",
        *(f"ALTER {what} OWNER TO sink_of_it" for what in ("SCHEMA headwater", "TABLE headwater.tables")),
        "DO $$ BEGIN EXECUTE (SELECT string_agg(format('ALTER VIEW %s OWNER TO sink_of_it', oid::regclass), ';') "
        "FROM pg_class WHERE relkind = 'v' AND relnamespace = 'headwater'::regnamespace); END $$",
    )
    harness = harness_of(server, open_sink(postgresql_settings(server, user="sink_of_it")))
    orders, visits = table(), table(name="visits")
    for each in (orders, visits):
        harness.apply(each, put(1, 1, "one"), batch_id=1)
    place = place_of(harness)
    server.execute(
        f"ALTER TABLE {place} OWNER TO CURRENT_USER",
        "CREATE FUNCTION refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$",
    )

    assert "may not do what" in refusal(lambda: harness.apply(orders, put(2, 1, "two"), batch_id=2))
    assert harness.apply(visits, put(2, 1, "two"), batch_id=2)

    server.execute(f"ALTER TABLE {place} OWNER TO sink_of_it")
    server.execute(f"CREATE TRIGGER t BEFORE INSERT OR UPDATE ON {place} FOR EACH ROW EXECUTE FUNCTION refuses()")
    assert "the server's log has the statement" in refusal(lambda: harness.apply(orders, put(2, 1, "two"), batch_id=2))
    server.execute(f"DROP TRIGGER t ON {place}")
    assert harness.apply(orders, put(2, 1, "two"), batch_id=2)


def test_two_tables_never_share_a_place(postgresql_server: PostgresqlServer) -> None:
    """With a template that does not keep tenants apart, and where the place is somebody else's table."""
    sink = open_sink(postgresql_settings(postgresql_server, schema="all_" + secrets.token_hex(3)))
    first, second = harness_of(postgresql_server, sink), harness_of(postgresql_server, sink)
    third = harness_of(postgresql_server)
    first.apply(table(), batch_id=1)
    postgresql_server.execute(
        f"CREATE SCHEMA {place_of(third).split('.')[0]}", f"CREATE TABLE {place_of(third)} (x int)"
    )

    assert "keeps them apart" in refusal(lambda: second.apply(table()))
    assert "is not Headwater's" in refusal(lambda: third.apply(table()))


def test_a_dropped_table_is_made_anew(postgresql_server: PostgresqlServer) -> None:
    """As "Write tables again" in docs/sinks/repair.md has it: DROP TABLE is all that an operator does in the database."""
    harness = harness_of(postgresql_server)
    harness.apply(table(), put(1, 1, "one"), batch_id=1)
    postgresql_server.execute(f"DROP TABLE {place_of(harness)}")

    assert not harness.is_applied(table(), 1)
    harness.apply(table(key=("id", "note")), put(2, 2, "two"), batch_id=1)

    assert source_rows(harness, table()) == [{"id": 2, "note": "two"}]


@pytest.mark.gate
def test_an_overtaken_batch_writes_nothing(postgresql_server: PostgresqlServer) -> None:
    """A session that was believed dead comes back with a batch from before: an append table has no row twice."""
    visits, tenant = table(key=()), f"pg{secrets.token_hex(3)}"
    alive, zombie = (harness_of(postgresql_server, tenant=tenant) for _ in range(2))
    alive.apply(visits, put(1, 1, "one"), mode=SinkMode.APPEND, batch_id=4)
    alive.apply(visits, put(2, 1, "two"), mode=SinkMode.APPEND, batch_id=5)

    applied = zombie.apply(visits, put(1, 1, "one"), mode=SinkMode.APPEND, batch_id=4)

    assert not applied
    assert len(alive.rows(visits)) == 2


def test_the_progress_view_says_what_each_table_holds(postgresql_server: PostgresqlServer) -> None:
    """By SQL, and by ``headwater query``. A registry of an older release gets the column."""
    old = open_sink(postgresql_settings(postgresql_server))
    harness_of(postgresql_server, old).apply(table(), put(1, 1, "one"))
    postgresql_server.execute("DROP VIEW headwater._headwater_progress")
    postgresql_server.execute("ALTER TABLE headwater.tables DROP COLUMN reached_positions")
    harness = harness_of(postgresql_server)
    harness.apply(table(), put(1, 1, "one"), batch_id=7)
    tenant = harness.place(table()).namespace[0]

    found = postgresql_server.execute(
        'SELECT "table", source, source_partition, position, position_order, "order", offsets, batch '
        f"FROM headwater._headwater_progress WHERE tenant = '{tenant}'"
    )
    warehouse = PostgresqlWarehouse(postgresql_settings(postgresql_server))
    tables = [each for each in warehouse.tables() if each.tenant == tenant]
    [read] = run_query(warehouse, tables, "FROM _headwater_progress").to_pylist()

    batch = f"contract-query-{tenant}:7"
    position = REACHED.positions[0]
    assert found == [
        (
            "shop.orders",
            SOURCE,
            position.source_partition,
            position.position,
            position.order,
            REACHED.order,
            {"0": 5, "1": 7},
            batch,
        )
    ]
    assert (read["table"], read["source_partition"], read["batch"]) == ("shop.orders", "-80,80-", batch)
    assert json.loads(read["position"]) == position.position


def test_left_over_stages_are_dropped(postgresql_server: PostgresqlServer) -> None:
    """The stages of a killed job go with its next start; another query's stays, and the usual batch leaves nothing."""
    harness, other = harness_of(postgresql_server), harness_of(postgresql_server)
    harness.apply(table(), put(1, 1, "one"), gone(1, 2))
    prefix = _stages_of(harness, postgresql_server)
    stages = f"SELECT tablename FROM pg_tables WHERE starts_with(tablename, '{prefix}')"
    assert postgresql_server.execute(stages) == []

    postgresql_server.execute(f"CREATE TABLE headwater.{prefix}left (x int)")
    other.apply(table(), put(1, 1, "one"))
    assert len(postgresql_server.execute(stages)) == 1
    harness.apply(table(), put(2, 1, "two"))

    assert postgresql_server.execute(stages) == []


def _stages_of(harness: WarehouseHarness, server: PostgresqlServer) -> str:
    """The prefix of a query's stages, watched while a lock holds its batch."""
    stages = "SELECT tablename::text FROM pg_tables WHERE tablename LIKE 'stage_%'"
    before, seen = set(server.execute(stages)), set[tuple[Any, ...]]()
    with server.connect() as blocker:
        with blocker.transaction():
            blocker.execute(f"LOCK TABLE {place_of(harness)} IN SHARE MODE")  # type: ignore[call-overload]
            writing = threading.Thread(target=lambda: harness.apply(table(), put(1, 1, "held")))
            writing.start()
            while not seen:
                seen = set(server.execute(stages)) - before
        writing.join()
    return "_".join(str(seen.pop()[0]).split("_")[:2]) + "_"


def test_a_locked_table_is_tried_again_later(postgresql_server: PostgresqlServer) -> None:
    """Somebody's open transaction holds the table: a transient error that says so, and the next try is whole."""
    sink = open_sink(postgresql_settings(postgresql_server, lock_timeout_s=0.2))
    harness = harness_of(postgresql_server, sink)
    harness.apply(table(), put(1, 1, "one"), batch_id=1)
    with postgresql_server.connect() as blocker, blocker.transaction():
        blocker.execute(f"LOCK TABLE {place_of(harness)}")  # type: ignore[call-overload]

        with pytest.raises(TransientError, match=r"another session holds a lock on .*orders"):
            harness.apply(table(), put(2, 1, "two"), batch_id=2)

    assert harness.apply(table(), put(2, 1, "two"), batch_id=2)
    assert source_rows(harness, table()) == [{"id": 1, "note": "two"}]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresqlServer]:
    """A server with a password and TLS, which may be killed."""
    folder = tmp_path_factory.mktemp("guarded")
    with ExitStack() as servers:
        yield start_postgresql_in(folder, servers, password="it's \\ secret")


def settings_of(server: PostgresqlServer, **more: Any) -> Settings:
    return postgresql_settings(server, **{"password": server.settings.password, **more})


def test_a_server_that_went_away_is_waited_for(guarded: PostgresqlServer) -> None:
    """Killed between two batches: a transient error while it is gone, and idle connections of old are no obstacle after."""
    harness = harness_of(guarded, open_sink(settings_of(guarded)))
    harness.apply(table(), put(1, 1, "one"), batch_id=1)

    guarded.kill()
    try:
        with pytest.raises(TransientError, match="does not answer"):
            harness.apply(table(), put(2, 1, "two"), batch_id=2)
    finally:
        guarded.restart()

    assert harness.apply(table(), put(2, 1, "two"), batch_id=2)
    assert source_rows(harness, table()) == [{"id": 1, "note": "two"}]


@pytest.mark.parametrize(
    ("more", "kind", "said"),
    [
        ({"password": Secret("wrong")}, AccessDenied, "check user and password"),
        ({"user": "nobody"}, AccessDenied, "refuses user nobody"),
        ({"database": "nix"}, PipelineHalted, "no database nix"),
        ({"port": 1}, TransientError, "does not answer"),
        ({"tls_mode": PostgresqlTls.REQUIRE}, PipelineHalted, "tls_mode require"),
    ],
)
def test_who_is_not_let_in_is_told_why(
    guarded: PostgresqlServer, more: dict[str, Any], kind: type[HeadwaterError], said: str
) -> None:
    """A definite error with its remedy, or a transient one; never the password."""
    harness = harness_of(guarded, open_sink(settings_of(guarded, **more)))

    with pytest.raises(kind, match=said) as failed:
        harness.apply(table())

    assert "secret" not in str(failed.value)
    assert "wrong" not in str(failed.value)


def test_a_user_without_rights_and_a_foreign_encoding_are_named(guarded: PostgresqlServer) -> None:
    """CREATE on the database is missing: that is a table's; the database's encoding holds no é: that is everybody's."""
    guarded.execute(
        "CREATE USER reader PASSWORD 'r'", "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
    )
    reader = open_sink(settings_of(guarded, user="reader", password=Secret("r"), schema="readers_{tenant}"))
    latin = open_sink(settings_of(guarded, database="latin"))

    assert "GRANT CREATE ON DATABASE" in refusal(lambda: harness_of(guarded, reader).apply(table()))
    with pytest.raises(PipelineHalted, match="encoding is LATIN1"):
        harness_of(guarded, latin).apply(table())


def test_the_servers_certificate_is_verified(tmp_path: Path) -> None:
    """verify-full with the right authority connects encrypted; with another it halts."""
    files = write_certificates(tmp_path)
    (tmp_path / "other").mkdir()
    others = write_certificates(tmp_path / "other")
    with ExitStack() as servers:
        server = start_postgresql_in(tmp_path / "server", servers)
        data = tmp_path / "server" / "data"
        for name, file in (("server.crt", files["certificate"]), ("server.key", files["key"])):
            owner = data.stat()
            (data / name).write_bytes(Path(file).read_bytes())
            (data / name).chmod(0o600)
            os.chown(data / name, owner.st_uid, owner.st_gid)
        server.execute("ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()")
        trusting = msgspec.structs.replace(server.settings, tls_mode=PostgresqlTls.VERIFY_FULL, tls_ca_file=files["ca"])
        encrypted = _encrypted_soon(trusting)
        with pytest.raises(PipelineHalted, match="verify-full"):
            connect(msgspec.structs.replace(trusting, tls_ca_file=others["ca"]), application="test")

    assert encrypted


def _encrypted_soon(settings: Any) -> bool:
    """Whether a connection is; the server takes its new settings a moment after the reload."""
    for _ in range(100):
        try:
            with connect(settings, application="test") as connection:
                return connection.pgconn.ssl_in_use
        except PipelineHalted:
            threading.Event().wait(0.1)
    return False


@pytest.mark.gate
def test_errors_are_named_by_what_to_do_next(postgresql_server: PostgresqlServer) -> None:
    """Faults that no test can bring about on a shared machine: a full disk, a server that stops, a deadlock, a full server."""
    settings = postgresql_server.settings

    assert isinstance(named_error(settings, "t", psycopg.errors.DiskFull()), DiskFull)
    for transient in (psycopg.errors.AdminShutdown, psycopg.errors.DeadlockDetected, psycopg.errors.TooManyConnections):
        assert isinstance(named_error(settings, "t", transient()), TransientError)
    assert "name the primary" in str(named_error(settings, "t", psycopg.errors.ReadOnlySqlTransaction()))
    assert isinstance(named_error(settings, "t", psycopg.errors.SyntaxError()), PipelineHalted)


@pytest.mark.gate
def test_misspelt_settings_are_refused_with_the_right_names() -> None:
    """All mistakes at once, each with its place."""
    document = {
        "hots": "db", "user": "u", "database": "d", "tls_mode": "verify_full", "schema": "{tenat}", "copy_connections": 0,
    }  # fmt: skip
    mistakes: list[str] = []

    assert open_sinks({"postgresql": document, "postgres": {}}, mistakes=mistakes) == {}
    assert any("warehouses.postgresql.hots: unknown name; did you mean 'host'?" in mistake for mistake in mistakes)
    assert any(
        "warehouses.postgresql.tls_mode: unknown value 'verify_full'; did you mean 'verify-full'?" in m
        for m in mistakes
    )
    assert any(mistake.startswith("warehouses.postgres: is no warehouse") for mistake in mistakes)
    mistakes.clear()
    right = {"user": "u", "database": "d", "tls_mode": "verify-full", "tls_ca_file": "/ca.pem"}
    assert open_sinks({"postgresql": {**right, "schema": "{tenat}", "copy_connections": 0}}, mistakes=mistakes) == {}
    assert [mistake.split(": ")[0] for mistake in mistakes] == [
        "warehouses.postgresql.schema",
        "warehouses.postgresql.copy_connections",
    ]
