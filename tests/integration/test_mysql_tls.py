"""TLS and passwords on a real MySQL: the servers that each mode accepts, and those that it refuses by name."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.check.mysql_rows import MysqlRows, consistent_snapshot
from libs.config.load import Secret
from libs.errors import AccessDenied, HeadwaterError, PipelineHalted, SourceUnavailable
from libs.servers.ports import free_ports
from libs.source.mysql.client import Connection, connect, hang_up, query, select_packets
from libs.source.mysql.settings import DatabaseSettings, TlsMode
from libs.types.table import TableId
from tests.certificates import write_certificates
from tests.conftest import MysqlServer, start_mysql_in
from tests.integration.log_reading import LogReading, ids


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An authority and a certificate of it for 127.0.0.1, which server and client share."""
    return write_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, files: dict[str, str]) -> Iterator[MysqlServer]:
    options = (f"--ssl-ca={files['ca']}", f"--ssl-cert={files['certificate']}", f"--ssl-key={files['key']}")
    with ExitStack() as servers:
        server = start_mysql_in(tmp_path_factory.mktemp("mysql-tls"), servers, extra_options=options)
        server.execute(
            "CREATE USER reader IDENTIFIED WITH caching_sha2_password BY 'secret'",
            "GRANT ALL ON *.* TO reader",
            "CREATE USER strict IDENTIFIED BY 'secret' REQUIRE X509",
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY)",
            "GRANT SELECT ON d.* TO strict",
        )
        yield server


def cipher(server: MysqlServer, **settings: Any) -> str:
    """The cipher of a connection with ``settings``; empty: none."""
    connection = connect(settings_of(server, **settings))
    try:
        return str(query(connection, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1])
    finally:
        connection.close()


def settings_of(server: MysqlServer, **settings: Any) -> DatabaseSettings:
    chosen = {"user": "reader", "password": Secret("secret"), "host": server.host, **settings}
    return DatabaseSettings(port=server.port, **chosen)


def test_each_mode_encrypts_as_it_says(server: MysqlServer, files: dict[str, str]) -> None:
    """Preferred is the default, and the name is verified once there is an authority."""
    assert cipher(server)
    assert cipher(server, tls_mode=TlsMode.DISABLED) == ""
    assert cipher(server, tls_mode=TlsMode.REQUIRED)
    assert cipher(server, tls_ca_file=files["ca"])
    assert cipher(server, tls_ca_file=files["ca"], tls_mode=TlsMode.VERIFY_CA, host="localhost")


def test_an_untrusted_certificate_is_refused_by_name(server: MysqlServer, files: dict[str, str]) -> None:
    """Of another authority, or of another host; no attempt is repeated for ever."""
    with pytest.raises(AccessDenied, match=r"not trusted.*tls_ca_file"):
        cipher(server, tls_mode=TlsMode.VERIFY_CA)  # the system's authorities
    with pytest.raises(AccessDenied, match="not trusted"):
        cipher(server, tls_ca_file=files["ca"], host="localhost")
    with pytest.raises(PipelineHalted, match=r"cannot be read.*no-such\.pem"):
        cipher(server, tls_ca_file="no-such.pem")


def test_a_client_shows_its_certificate(server: MysqlServer, files: dict[str, str]) -> None:
    """An account that requires one is denied without."""
    own = {"tls_certificate_file": files["certificate"], "tls_key_file": files["key"]}

    assert cipher(server, user="strict", **own)
    assert cipher(server, user="strict", tls_ca_file=files["ca"], **own)
    with pytest.raises(AccessDenied):
        cipher(server, user="strict")


def test_a_password_goes_through_rsa_without_tls(server: MysqlServer, tmp_path: Path) -> None:
    """In full, by the server's key or the one that is given, and then by the server's cache; a wrong one is denied."""
    [(_, key)] = server.execute("SHOW STATUS LIKE 'Caching_sha2_password_rsa_public_key'")
    key_file = tmp_path / "server.pem"
    key_file.write_text(key)
    plain = {"tls_mode": TlsMode.DISABLED}

    for known in ({}, {"server_public_key_file": str(key_file)}):
        server.execute("FLUSH PRIVILEGES")  # empties the cache
        assert cipher(server, **plain, **known) == ""
        assert cipher(server, **plain) == ""
    with pytest.raises(AccessDenied):
        cipher(server, **plain, password=Secret("wrong"))


def _read_packets(connection: Connection) -> None:
    for _ in select_packets(connection, "SELECT 1 UNION ALL SELECT SLEEP(60)", 600.0):
        pass


def _read_rows(connection: Connection) -> None:
    query(connection, "SELECT SLEEP(60)")


@pytest.mark.parametrize("mode", [TlsMode.REQUIRED, TlsMode.DISABLED])
@pytest.mark.parametrize("read", [_read_packets, _read_rows])
def test_a_reading_that_is_broken_off_takes_nothing_of_the_next_connection(
    mysql_server: MysqlServer, mode: TlsMode, read: Callable[[Connection], None]
) -> None:
    """The next one has the same descriptor, and is there before the thread has seen that its own is gone."""
    settings = DatabaseSettings(host=mysql_server.host, port=mysql_server.port, user="root", tls_mode=mode)
    errors: list[BaseException] = []

    def reads(connection: Connection, has_begun: threading.Event) -> None:
        has_begun.set()
        try:
            read(connection)
        except BaseException as error:
            errors.append(error)

    shared = 0
    for _ in range(20):
        connection, has_begun = connect(settings), threading.Event()
        descriptor = connection._sock.fileno()  # type: ignore[attr-defined]
        reading = threading.Thread(target=reads, args=(connection, has_begun))
        reading.start()
        has_begun.wait()
        hang_up(connection)
        with contextlib.closing(connect(settings)) as next_one:
            shared += next_one._sock.fileno() == descriptor  # type: ignore[attr-defined]
            assert query(next_one, "SELECT 7") == [(7,)]
            with contextlib.suppress(HeadwaterError):  # the server sees at the end of its SLEEP that nobody is there
                query(next_one, f"KILL {connection.thread_id()}")
        reading.join()

    assert [type(error) for error in errors] == [SourceUnavailable] * 20
    assert shared, "no descriptor was used again: the test shows nothing"


def test_a_server_without_tls_is_refused_where_it_is_required(mysql_without_tls: MysqlServer) -> None:
    """And accepted where it is preferred."""
    assert cipher(mysql_without_tls, user="root", password=Secret("")) == ""
    with pytest.raises(PipelineHalted, match=r"offers no TLS.*tls_mode"):
        cipher(mysql_without_tls, user="root", password=Secret(""), tls_mode=TlsMode.REQUIRED)


def test_the_comparison_reads_as_the_reader_does(server: MysqlServer, files: dict[str, str]) -> None:
    """Encrypted and verified as its settings say; from the server that stands in where the first is away."""
    (away,) = free_ports(1)
    settings = DatabaseSettings(
        host=server.host,
        port=away,
        failover_servers=(f"{server.host}:{server.port}",),
        user="strict",
        password=Secret("secret"),
        tls_ca_file=files["ca"],
        tls_certificate_file=files["certificate"],
        tls_key_file=files["key"],
    )

    with consistent_snapshot(settings) as connection:
        assert query(connection, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1]
        assert TableId(database="d", table="t") in {table.table_id for table in MysqlRows(connection).tables()}
    with (
        pytest.raises(SourceUnavailable, match=str(away)),
        consistent_snapshot(msgspec.structs.replace(settings, failover_servers=())),
    ):
        pass


@pytest.fixture(scope="module")
def mysql_without_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MysqlServer]:
    with ExitStack() as servers:
        yield start_mysql_in(tmp_path_factory.mktemp("mysql-plain"), servers, extra_options=("--tls-version=",))


@pytest.mark.parametrize("mode", [TlsMode.DISABLED, TlsMode.VERIFY_IDENTITY])
async def test_snapshot_and_log_are_read_with_and_without_tls(
    server: MysqlServer, files: dict[str, str], mode: TlsMode
) -> None:
    """Over many records of TLS, each of 16 KB, in one receive."""
    database = {
        "user": "reader", "password": Secret("secret"), "tls_mode": mode, "tls_ca_file": files["ca"],
    }  # fmt: skip
    reading = LogReading(server, settings={"include_tables": (r"d\.t",)}, database=database)
    await reading.begin()
    server.execute(
        "SET SESSION cte_max_recursion_depth = 30000",
        "INSERT INTO d.t WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 30000) SELECT i FROM n",
        "DELETE FROM d.t",
    )

    events = await reading.read(lambda events: len(events) >= 60_000)

    assert ids(events) == [*range(1, 30_001)] * 2
