"""Pre-flight against real servers, well and badly set up."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pymysql.connections import Connection

from libs.cli.main import headwater
from libs.errors import AccessDenied, InvalidSettings
from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.gtid import GtidSet
from libs.mysql.preflight import Fault, PreflightReport, check_source
from libs.source.mysql.settings import DatabaseSettings
from libs.source.mysql.snapshot import open_read_view
from tests.conftest import MysqlServer, StartMysql


@pytest.fixture
def connection(mysql_server: MysqlServer) -> Iterator["Connection[Any]"]:
    with mysql_server.connect() as connection:
        yield connection


def executed(connection: "Connection[Any]") -> GtidSet:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.gtid_executed")
        return GtidSet.parse(str(cursor.fetchall()[0][0]))


def at(gtids: GtidSet) -> BinlogPosition:
    return BinlogPosition(gtid_set=str(gtids), file="", pos=0)


def of(report: PreflightReport) -> str:
    return "\n".join(fault.what for fault in report.faults)


def test_a_server_that_is_set_up_well_has_no_fault(connection: "Connection[Any]") -> None:
    """Neither fresh nor resuming where the log stands."""
    assert check_source(connection).faults == ()
    assert check_source(connection, resume_from=at(executed(connection))).faults == ()


@pytest.mark.promise("pre-flight")
def test_all_faults_are_listed_at_once_and_their_mends_mend_them(start_mysql: StartMysql) -> None:
    """A person corrects the server once: running every statement of the report leaves nothing to report."""
    server = start_mysql(
        extra_options=(
            "--gtid-mode=OFF",
            "--enforce-gtid-consistency=OFF",
            "--binlog-format=STATEMENT",
            "--binlog-row-image=MINIMAL",
            "--binlog-row-value-options=PARTIAL_JSON",
            "--binlog-expire-logs-seconds=60",
        )
    )
    with server.connect() as connection:
        report = check_source(connection)
        listed = of(report)
        for fault in (*report.faults, *report.warnings):
            for statement in fault.mend.split("; "):
                server.execute(statement)
        mended = check_source(connection)

    for name in ("binlog_format", "binlog_row_image"):
        assert name in listed
    assert len(report.faults) == 2
    for warning, what in zip(report.warnings, ("binlog_row_metadata", "kept for 60 s", "gtid_mode"), strict=True):
        assert what in warning.what
    assert mended == PreflightReport(())


def test_a_server_without_a_log_is_refused(start_mysql: StartMysql) -> None:
    """Its GTIDs may be in order; there is nothing to follow."""
    with start_mysql(extra_options=("--skip-log-bin",)).connect() as connection:
        report = check_source(connection)

    assert "log_bin is OFF" in of(report)


def test_missing_grants_are_named_with_the_statement_that_gives_them(mysql_server: MysqlServer) -> None:
    """A user who may only connect lacks three; running the statements leaves none missing."""
    mysql_server.execute("DROP USER IF EXISTS 'preflight`d'@'%'", "CREATE USER 'preflight`d'@'%'")
    with mysql_server.connect(user="preflight`d") as connection:
        report = check_source(connection)
        missing = (*report.faults, *_of_the_user(report))
        mysql_server.execute(*(fault.mend for fault in missing))
    with mysql_server.connect(user="preflight`d") as connection:
        mended = check_source(connection)
    mysql_server.execute("DROP USER 'preflight`d'@'%'")

    assert [fault.what.partition(":")[0] for fault in report.faults] == [
        "the user lacks REPLICATION SLAVE",
        "the user lacks REPLICATION CLIENT",
        "the user lacks SELECT",
    ]
    assert len(_of_the_user(report)) == 1
    assert mended.faults == _of_the_user(mended) == ()


def _of_the_user(report: PreflightReport) -> tuple[Fault, ...]:
    """Warnings that a grant mends; the shared server has others, which stay."""
    return tuple(warning for warning in report.warnings if "the user" in warning.what)


def test_without_gtids_a_copy_needs_a_lock(start_mysql: StartMysql) -> None:
    """A finding that is only a warning with GTIDs keeps the snapshot from beginning; the statement that is named suffices for
    it."""
    server = start_mysql(extra_options=("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"))
    server.execute("CREATE USER poor", "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO poor")
    settings = DatabaseSettings(host=server.host, port=server.port, user="poor")

    with server.connect(user="poor") as connection:
        (warning,) = _of_the_user(check_source(connection))
    with pytest.raises(AccessDenied, match="without GTIDs needs a lock"):
        open_read_view(settings, epoch=0)
    server.execute(warning.mend)
    open_read_view(settings, epoch=0).connection.close()

    assert "cannot begin" in warning.what


def test_grants_count_through_a_role_and_for_some_tables(mysql_server: MysqlServer) -> None:
    """SELECT on what is captured suffices, wherever it comes from."""
    mysql_server.execute(
        "CREATE ROLE cdc",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT, RELOAD ON *.* TO cdc",
        "CREATE DATABASE IF NOT EXISTS some_shop",
        "CREATE TABLE IF NOT EXISTS some_shop.orders (a int, b int)",
        "GRANT SELECT (a, b), INSERT (a) ON some_shop.orders TO cdc",
        "CREATE USER by_role DEFAULT ROLE cdc",
    )
    with mysql_server.connect(user="by_role") as connection:
        report = check_source(connection)
    mysql_server.execute("DROP USER by_role", "DROP ROLE cdc", "DROP DATABASE some_shop")

    assert report.faults == _of_the_user(report) == ()


def test_a_purged_log_is_told_with_what_is_missing(start_mysql: StartMysql) -> None:
    """The server cannot send transactions that a reader has not read yet, and names them."""
    server = start_mysql()
    server.execute("CREATE DATABASE d")
    with server.connect() as connection:
        behind = executed(connection)
        server.execute("CREATE TABLE d.t (a int)", "FLUSH BINARY LOGS")
        ((file, *_),) = server.execute("SHOW BINARY LOG STATUS")
        server.execute(f"PURGE BINARY LOGS TO '{file}'")
        missing = executed(connection).subtract(behind)
        report = check_source(connection, resume_from=at(behind))
        caught_up = check_source(connection, resume_from=at(executed(connection)))

    assert missing.transaction_count() == 1
    assert [fault.is_purged for fault in report.faults] == [True]
    assert str(missing) in report.faults[0].what
    assert caught_up.faults == ()


def test_a_server_that_lost_transactions_is_told_apart(connection: "Connection[Any]") -> None:
    """A restored server, or another one: resuming there would skip transactions that it numbers again."""
    known = executed(connection)
    ahead = known.union(GtidSet.parse("24bc7850-2c16-11e6-a073-0242ac110002:1-5"))

    report = check_source(connection, resume_from=at(ahead))

    assert "24bc7850-2c16-11e6-a073-0242ac110002:1-5" in of(report)
    assert [fault.is_purged for fault in report.faults] == [True]


def test_a_filtered_log_is_warned_of(start_mysql: StartMysql) -> None:
    """binlog_ignore_db makes changes vanish without a trace, and so do foreign keys that InnoDB carries out by itself."""
    options = ("--binlog-ignore-db=secret", "--innodb-native-foreign-keys=ON")
    with start_mysql(extra_options=options).connect() as connection:
        assert not any("foreign keys" in warning.what for warning in check_source(connection).warnings)
        with connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE shop")
            cursor.execute("CREATE TABLE shop.orders (id INT PRIMARY KEY)")
            cursor.execute(
                "CREATE TABLE shop.items (id INT, FOREIGN KEY (id) REFERENCES shop.orders (id) ON DELETE SET NULL)"
            )
        report = check_source(connection)

    assert report.faults == ()
    assert any("leaves databases out" in warning.what for warning in report.warnings)
    assert any(
        "CASCADE or SET NULL: shop.items by items_ibfk_1, which follows orders" in warning.what
        for warning in report.warnings
    )


def test_a_place_that_the_log_does_not_reach_is_told(start_mysql: StartMysql) -> None:
    """Of a server without GTIDs: the file is gone, or is shorter, as after RESET BINARY LOGS AND GTIDS."""
    server = start_mysql(extra_options=("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"))
    ((file, end, *_),) = server.execute("SHOW BINARY LOG STATUS")
    with server.connect() as connection:
        reports = [
            check_source(connection, resume_from=BinlogPosition(gtid_set="", file=name, pos=pos, by_file=True))
            for name, pos in ((file, end), (file, end + 1), ("binlog.999999", 4))
        ]
        by_gtid = check_source(connection, resume_from=at(GtidSet()))

    assert [[fault.is_purged for fault in report.faults] for report in reports] == [[], [True], [True]]
    assert "binlog.999999:4" in of(reports[2])
    assert "gtid_mode is not ON" in of(by_gtid)


def test_a_person_can_run_the_pre_flight(mysql_server: MysqlServer, tmp_path: Path) -> None:
    """``headwater validate SOURCE``: a sound server passes, a user without grants gets each one that is missing by name."""
    mysql_server.execute(
        "CREATE USER IF NOT EXISTS nobody@'%'",
        "CREATE DATABASE IF NOT EXISTS some_shop",
        "CREATE TABLE IF NOT EXISTS some_shop.orders (a int)",
    )
    (tmp_path / "tenants").mkdir()
    (tmp_path / "sources").mkdir()
    for name, user in (("sound", "root"), ("poor", "nobody")):
        database = f"{{host: {mysql_server.host}, port: {mysql_server.port}, user: {user}}}"
        (tmp_path / "sources" / f"{name}.yaml").write_text(f"database: {database}\n", encoding="utf-8")

    sound, poor, missing = (
        CliRunner().invoke(headwater, ["validate", name, "--home", str(tmp_path)])
        for name in ("sound", "poor", "soudn")
    )

    mysql_server.execute("DROP DATABASE some_shop")
    assert sound.exit_code == 0
    assert "can be followed" in sound.output
    assert isinstance(poor.exception, InvalidSettings)
    assert len(poor.exception.mistakes) >= 3
    assert all("mend: " in mistake for mistake in poor.exception.mistakes)
    assert "did you mean 'sound'?" in str(missing.exception)
