"""``headwater validate SOURCE`` of a MySQL source: all that a document names is asked for, at real servers."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from pymysql.connections import Connection

from libs.cli.main import headwater
from libs.config.load import convert_document
from libs.errors import InvalidSettings
from libs.mesh.documents import MysqlDocument
from libs.mesh.home import Home
from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.gtid import GtidSet
from libs.mysql.packets import Packets
from libs.mysql.preflight import PreflightReport
from libs.operations.preflight import preflight, resume_position
from libs.servers.ports import free_port
from libs.source.mysql.client import PacketReader, start_dump
from tests.conftest import MysqlServer, StartMysql

_COM_REGISTER_REPLICA = 0x15
_FULL_METADATA = ("--binlog-row-metadata=FULL",)


@dataclass(frozen=True)
class Shop:
    """A server with two tables and a signal table, and a document of it."""

    server: MysqlServer
    told: dict[str, Any] = field(default_factory=dict)

    def report(self, **changes: Any) -> PreflightReport:
        """Of the document with ``changes``; a group's members are laid over the group."""
        return preflight(self.document(**changes))

    def document(self, **changes: Any) -> MysqlDocument:
        """The document with ``changes``."""
        told = dict(self.told)
        for name, value in changes.items():
            told[name] = {**told.get(name, {}), **value} if isinstance(value, dict) else value
        mistakes: list[str] = []
        document = convert_document(MysqlDocument, told, place="", mistakes=mistakes)
        assert document is not None, mistakes
        return document

    def faults(self, **changes: Any) -> str:
        """The faults, and how they are mended."""
        return "\n".join(f"{fault.what}; mend: {fault.mend}" for fault in self.report(**changes).faults)

    def warnings(self, **changes: Any) -> str:
        """Settings that are allowed and may be regretted."""
        return "\n".join(f"{fault.what}; mend: {fault.mend}" for fault in self.report(**changes).warnings)


@pytest.fixture
def shop(mysql_server: MysqlServer, database: str) -> Shop:
    mysql_server.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, total INT, `in` INT INVISIBLE)",
        "CREATE TABLE customers (id INT PRIMARY KEY, email TEXT)",
        "CREATE TABLE signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL)",
        database=database,
    )
    server = {"host": mysql_server.host, "port": mysql_server.port, "user": "root"}
    return Shop(mysql_server, {"database": server, "include_tables": [rf"{database}\.(orders|customers)"]})


@pytest.fixture
def user(shop: Shop, database: str) -> Iterator[str]:
    """May follow, and read nothing."""
    name = f"v{database[-12:]}"
    shop.server.execute(
        f"CREATE USER {name}", f"GRANT REPLICATION SLAVE, REPLICATION CLIENT, FLUSH_TABLES ON *.* TO {name}"
    )
    yield name
    shop.server.execute(f"DROP USER {name}")


def test_a_document_that_names_what_is_there_has_no_fault(shop: Shop, database: str) -> None:
    """With everything that it can name."""
    document = shop.document(
        signal_table=f"{database}.signals",
        snapshot={"select_overrides": {f"{database}.orders": "total % 2 = 0", f"{database}.customers": "SELECT *, 1 FROM "
                                       f"{database}.customers"}},
    )  # fmt: skip

    assert preflight(document).faults == ()


def test_patterns_that_match_nothing_are_told(shop: Shop, database: str) -> None:
    """One of several may be for tables to come; where none matches, the reader would not start."""
    assert "include_tables matches no table" in shop.faults(include_tables=["nowhere\\..*"])
    assert "exclude_tables removes every table" in shop.faults(exclude_tables=[rf"{database}\..*"])
    both = {"include_tables": [rf"{database}\.orders", rf"{database}\.custommers"]}
    assert shop.faults(**both) == ""
    told = shop.warnings(**both)
    assert "include_tables[1]" in told
    assert f"did you mean '{database}.customers'?" in told


def test_a_table_that_may_not_be_read_whole_is_told(shop: Shop, user: str, database: str) -> None:
    """Of a column that is not granted the copy would halt; the statement that is named mends it."""
    shop.server.execute(
        f"GRANT SELECT ON {database}.customers TO {user}", f"GRANT SELECT (id) ON {database}.orders TO {user}"
    )

    poor = shop.report(database={"user": user})
    shop.server.execute(*(fault.mend for fault in poor.faults))

    assert [fault.what for fault in poor.faults] == [f"the user may not read all columns of {database}.orders"]
    assert shop.faults(database={"user": user}) == ""


@pytest.mark.parametrize(
    ("create", "changes", "told"),
    [
        ("", {"signal_table": "{database}.signal"}, "did you mean '{database}.signals'?"),
        (
            "CREATE TABLE wide (id INT PRIMARY KEY, type TEXT, data TEXT, more INT)",
            {"signal_table": "{database}.wide"},
            "has 4 columns (id, type, data, more)",
        ),
        (
            "",
            {"signal_table": "{database}.signals", "exclude_tables": ["{database}.sig.*"]},
            "so no signal is heard",
        ),
    ],
)
def test_a_signal_table_that_would_be_deaf_is_told(
    shop: Shop, database: str, create: str, changes: dict[str, Any], told: str
) -> None:
    """Missing, of another form, or left out."""
    if create:
        shop.server.execute(create, database=database)
    named = yaml.safe_load(yaml.safe_dump(changes).replace("{database}", database))

    assert told.replace("{database}", database) in shop.faults(**named)


def test_what_is_told_of_a_signal_table_makes_one(shop: Shop, database: str) -> None:
    """The statement can be run as it stands."""
    named = {"signal_table": f"{database}.debezium_signal"}
    (fault,) = shop.report(**named).faults
    shop.server.execute(fault.mend)

    assert shop.faults(**named) == ""


@pytest.mark.parametrize(
    ("table", "select", "told"),
    [
        ("orders", "total >", "MySQL refuses it: You have an error in your SQL syntax"),
        ("orders", "amount > 1", "Unknown column 'amount'"),
        ("orders", "SELECT id FROM {database}.orders", "Unknown column 'total'"),
        ("orders", "SELECT * FROM {database}.oders", "doesn't exist"),
        ("order", "id > 1", "no captured table has this name"),
        ("signals", "id > 1", "no captured table has this name"),
    ],
)
def test_an_override_that_nobody_could_run_is_told(
    shop: Shop, database: str, table: str, select: str, told: str
) -> None:
    """Before a copy of hours comes to that table."""
    overrides = {f"{database}.{table}": select.replace("{database}", database)}

    listed = shop.faults(snapshot={"select_overrides": overrides})

    assert f"snapshot.select_overrides['{database}.{table}']" in listed
    assert told in listed


def test_servers_that_cannot_take_over_are_told(shop: Shop, start_mysql: StartMysql, database: str) -> None:
    """One that is away is a warning, because the first can be followed; one that would be refused later is a fault."""
    other = start_mysql(extra_options=("--binlog-row-image=MINIMAL",))
    other.execute("CREATE DATABASE elsewhere")
    servers = [f"127.0.0.1:{free_port()}", f"127.0.0.1:{other.port}", f"127.0.0.1:{shop.server.port}"]

    report = shop.report(database={"failover_servers": servers})

    faults = "\n".join(fault.what for fault in report.faults)
    warnings = "\n".join(fault.what for fault in report.warnings)
    assert f"failover_servers[0]: MySQL at {servers[0]}: cannot take over now" in warnings
    assert f"failover_servers[1]: MySQL at {servers[1]}: binlog_row_image is MINIMAL" in faults
    assert f"failover_servers[1]: MySQL at {servers[1]}: has none of the first server's transactions" in faults
    assert "failover_servers[2]" in warnings
    assert "is the first server itself" in warnings
    assert len(report.faults) == 2


def test_replicas_that_would_hold_a_snapshot_back_for_ever_are_told(shop: Shop) -> None:
    """One that is none, and one that is away."""
    replicas = [
        {"host": shop.server.host, "port": shop.server.port, "user": "root"},
        {"host": "127.0.0.1", "port": free_port(), "user": "root"},
    ]
    snapshot = {"max_replica_lag_s": 5.0, "lag_replicas": replicas}

    assert "is no replica" in shop.faults(snapshot=snapshot)
    assert "snapshot.lag_replicas[1]" in shop.warnings(snapshot=snapshot)


def test_a_position_that_the_log_has_lost_is_told(start_mysql: StartMysql) -> None:
    """As the reader would find it; a source that copies again then is only warned."""
    server = start_mysql(extra_options=_FULL_METADATA)
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)", "FLUSH BINARY LOGS")
    ((file, *_),) = server.execute("SHOW BINARY LOG STATUS")
    server.execute(f"PURGE BINARY LOGS TO '{file}'")
    shop = Shop(server, {"database": {"host": server.host, "port": server.port, "user": "root"}})
    nowhere = BinlogPosition(gtid_set="", file="", pos=0)

    lost = preflight(shop.document(), resume_from=nowhere)
    needed = preflight(shop.document(snapshot={"mode": "when_needed"}), resume_from=nowhere)
    passed = preflight(shop.document(gtid_source_includes=["0{8}-.*"]), resume_from=nowhere)

    assert ["has purged transactions" in fault.what for fault in lost.faults] == [True]
    assert needed.faults == ()
    assert any("all rows are copied again" in fault.what for fault in needed.warnings)
    assert passed.faults == ()


# --- the reader's id -----------------------------------------------------------------------------------------------------


def _register(connection: "Connection[Any]", server_id: int) -> None:
    """As mysqlbinlog does (MySQL source documentation, COM_REGISTER_REPLICA)."""
    payload = struct.pack("<IBBBHII", server_id, 0, 0, 0, 0, 0, 0)
    connection._execute_command(_COM_REGISTER_REPLICA, payload)
    connection._read_ok_packet()


def test_an_id_that_another_replica_has_is_told(shop: Shop) -> None:
    """And of the server's own the person is warned."""
    own = int(shop.server.execute("SELECT @@GLOBAL.server_id")[0][0])
    with shop.server.connect() as connection:
        _register(connection, 77_001)
        taken, free = shop.faults(replica_server_id=77_001), shop.faults(replica_server_id=77_002)

    assert "replica_server_id 77001 is that of another replica" in taken
    assert "replica_server_id" not in free
    assert "is the server's own server_id" in shop.warnings(replica_server_id=own)


@pytest.mark.parametrize(("newer_id", "is_cut_off"), [(77_003, True), (77_004, False)])
def test_the_server_cuts_off_the_older_of_two_with_one_id(
    shop: Shop, tmp_path: Path, newer_id: int, *, is_cut_off: bool
) -> None:
    """Why such an id is a fault: the report is the server's own behaviour."""
    executed = str(shop.server.execute("SELECT @@GLOBAL.gtid_executed")[0][0])
    position = BinlogPosition(gtid_set=str(GtidSet.parse(executed)), file="", pos=4)
    with shop.server.connect() as older, shop.server.connect() as newer:
        dumps = [
            start_dump(
                connection, position, also_done=GtidSet(), replica_server_id=number, heartbeat_s=1.0, spill_dir=tmp_path
            )
            for connection, number in ((older, 77_003), (newer, newer_id))
        ]
        refusals = [_refusal_within(dump, packets=4) for dump in dumps]

    assert ("same server_uuid/server_id" in refusals[0]) is is_cut_off
    assert refusals[1] == ""


def _refusal_within(reader: PacketReader, *, packets: int) -> str:
    """MySQL's error among the next packets, of which at rest one comes each second; "": there is none."""
    for _ in range(packets):
        received, _more = reader.receive()
        assert isinstance(received, Packets)
        for place, end in (received[nth] for nth in range(len(received))):
            if received.data[place] == 0xFF:
                return received.data[place:end].decode("utf-8", "replace")
    return ""


# --- the command ---------------------------------------------------------------------------------------------------------


def _validate(home: Path, name: str) -> Result:
    return CliRunner().invoke(headwater, ["validate", name, "--home", str(home)])


def test_the_command_tells_of_all_at_once(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of the position, where the stack knows it."""
    (tmp_path / "tenants").mkdir()
    (tmp_path / "sources").mkdir()
    path = tmp_path / "sources" / "shop.yaml"
    path.write_text(yaml.safe_dump(shop.told), encoding="utf-8")
    sound = _validate(tmp_path, "shop")
    bad = {**shop.told, "signal_table": "a.b", "snapshot": {"select_overrides": {"a.c": "x"}}}
    path.write_text(yaml.safe_dump(bad), encoding="utf-8")
    unsound = _validate(tmp_path, "shop")
    unknown = "24bc7850-2c16-11e6-a073-0242ac110002:1-5"
    monkeypatch.setattr(
        "libs.cli.documents.resume_position", lambda *_: BinlogPosition(gtid_set=unknown, file="", pos=0)
    )
    moved = _validate(tmp_path, "shop")

    assert sound.exit_code == 0, sound.output
    assert isinstance(unsound.exception, InvalidSettings)
    assert len(unsound.exception.mistakes) == 2
    assert isinstance(moved.exception, InvalidSettings)
    assert any(unknown in mistake for mistake in moved.exception.mistakes)


def test_without_a_stack_no_position_is_known(shop: Shop, tmp_path: Path) -> None:
    """The documents and the server can be judged all the same."""
    assert resume_position(Home(tmp_path), "shop", shop.document()) is None


def test_the_doctor_names_the_statement_that_mends_a_server(
    shop: Shop, user: str, database: str, tmp_path: Path
) -> None:
    """It asks as `validate` does, and prints the same remedy."""
    (tmp_path / "tenants").mkdir()
    (tmp_path / "sources").mkdir()
    told = {**shop.told, "database": {**shop.told["database"], "user": user}}
    (tmp_path / "sources" / "shop.yaml").write_text(yaml.safe_dump(told), encoding="utf-8")
    place = f"MySQL at {shop.server.host}:{shop.server.port}"

    poor = CliRunner().invoke(headwater, ["doctor", "--home", str(tmp_path)]).output
    shop.server.execute(f"GRANT SELECT ON {database}.* TO {user}")
    sound = CliRunner().invoke(headwater, ["doctor", "--home", str(tmp_path)]).output

    assert f"fault   servers: source shop: {place}: the user lacks SELECT" in poor
    assert "remedy: GRANT SELECT ON " in poor
    assert f"ok      servers: source shop: {place} can be followed" in sound
