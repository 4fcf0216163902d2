"""The servers of ``libs.servers``: they serve, they keep the stored values, and they stop on request."""

import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import redis
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from libs.errors import ServiceUnavailable
from libs.servers import kafka_broker as kafka
from libs.servers import mysql_server as mysql
from libs.servers import valkey_server as valkey
from libs.servers.ports import LOOPBACK, free_port, free_ports, is_free
from libs.servers.process import ProcessSpec, start, stop, wait_ready
from tests.conftest import KafkaBroker, MysqlServer, StartKafka, StartMysql, ValkeyServer, start_postgresql_in

REPOSITORY = Path(__file__).parents[2]


def test_mysql_is_set_up_for_change_data_capture(mysql_server: MysqlServer) -> None:
    """A real MySQL 8 or newer with full row images and GTIDs, and a binary log that has a position."""
    variables = "@@log_bin, @@binlog_format, @@binlog_row_image, @@gtid_mode, @@enforce_gtid_consistency"
    [(version, *rest)] = mysql_server.execute(f"SELECT @@version, {variables}")

    assert int(version.split(".")[0]) >= 8
    assert "MariaDB" not in version
    assert rest == [1, "ROW", "FULL", "ON", "ON"]


def test_mysql_template_has_no_transactions_of_its_own(start_mysql: StartMysql) -> None:
    """A new server's GTID set is empty and its UUID its own, so two servers are two sources."""
    first, second = start_mysql(), start_mysql(server_id=2)

    assert first.execute("SELECT @@gtid_executed") == (("",),)
    assert first.execute("SELECT @@server_uuid") != second.execute("SELECT @@server_uuid")


def test_mysql_extra_options_win(start_mysql: StartMysql) -> None:
    """A test can misconfigure a server, as pre-flight's tests must."""
    server = start_mysql(extra_options=("--binlog-row-image=MINIMAL",))

    assert server.execute("SELECT @@binlog_row_image") == (("MINIMAL",),)


def test_mysql_keeps_committed_rows_through_a_kill(start_mysql: StartMysql) -> None:
    """kill -9 and a restart on the same folder lose nothing that was committed."""
    server = start_mysql()
    server.execute("CREATE DATABASE kept", "CREATE TABLE kept.t (id INT PRIMARY KEY)", "INSERT INTO kept.t VALUES (7)")
    executed = server.execute("SELECT @@gtid_executed")

    server.kill()
    server.restart()

    assert server.execute("SELECT id FROM kept.t") == ((7,),)
    assert server.execute("SELECT @@gtid_executed") == executed


def test_postgresql_keeps_committed_rows_through_a_kill(tmp_path: Path) -> None:
    """Text in UTF-8, under any user of the test; kill -9 and a restart on the same folder lose nothing."""
    with ExitStack() as servers:
        server = start_postgresql_in(tmp_path / "pg", servers, password="it's")
        server.execute("CREATE TABLE kept (note text)", "INSERT INTO kept VALUES ('é')")

        server.kill()
        server.restart()

        assert server.execute("SELECT note, pg_encoding_to_char(encoding) FROM kept, pg_database LIMIT 1") == [
            ("é", "UTF8")
        ]


def test_kafka_keeps_acknowledged_records_through_a_kill(
    start_kafka: StartKafka, unique_name: Callable[[str], str]
) -> None:
    """kill -9 and a restart on the same folder: the same cluster with the same records."""
    broker = start_kafka()
    topic = unique_name("kept")
    _produce(broker, topic, b"before")
    cluster_id = _cluster_id(broker)

    broker.kill()
    broker.restart()

    assert _cluster_id(broker) == cluster_id
    assert _first_value(broker, topic) == b"before"


def test_kafka_commits_transactions(kafka_broker: KafkaBroker, unique_name: Callable[[str], str]) -> None:
    """Transactions work on one node: an aborted record is not seen by a reader of committed ones."""
    topic = unique_name("transactions")
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers, "transactional.id": topic, "acks": "all"})
    producer.init_transactions(60.0)
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    producer.abort_transaction(60.0)
    producer.begin_transaction()
    producer.produce(topic, b"committed")
    producer.commit_transaction(60.0)

    assert _first_value(kafka_broker, topic) == b"committed"


def test_kafka_prepared_twice_keeps_its_cluster(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    """Preparing an existing folder for other ports does not format it again."""
    port, controller_port = free_ports(2)
    kafka.prepare(tmp_path, port=port, controller_port=controller_port)
    first = (tmp_path / "cluster_id").read_text()

    kafka.prepare(tmp_path, port=free_port(), controller_port=controller_port)

    assert (tmp_path / "cluster_id").read_text() == first


def test_kafka_storages_of_the_template_are_of_clusters_of_their_own(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    """A copy has the template's records; its names are its own, or two brokers would pass for one."""
    port, controller_port = free_ports(2)
    for name in ("first", "second"):
        kafka.prepare(tmp_path / name, port=port, controller_port=controller_port)
    first, second = (
        {
            path.name: set(path.read_bytes().splitlines()) if path.suffix == ".properties" else path.read_bytes()
            for path in (tmp_path / name / kafka.LOGS).iterdir()
        }
        for name in ("first", "second")
    )
    names = first.pop("meta.properties"), second.pop("meta.properties")

    assert first == second
    assert first
    assert {line.split(b"=")[0] for line in names[0] - names[1]} >= {b"cluster.id", b"directory.id"}
    assert f"cluster.id={(tmp_path / 'first' / 'cluster_id').read_text()}".encode() in names[0]


def test_kafka_format_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    """A kill while the storage is formatted, or just after, leaves a folder that can be prepared."""
    port, controller_port = free_ports(2)
    kafka.prepare(tmp_path, port=port, controller_port=controller_port)
    (tmp_path / "formatted").unlink()

    spec = kafka.prepare(tmp_path, port=port, controller_port=controller_port)

    running = start(spec, tmp_path, dies_with_parent=True)
    try:
        wait_ready(running, timeout_s=90.0)
    finally:
        stop(running, timeout_s=30.0)


def test_valkey_stores_and_answers(valkey_server: ValkeyServer, unique_name: Callable[[str], str]) -> None:
    """A real server at the URL that clients are given."""
    key = unique_name("key")
    with redis.Redis.from_url(valkey_server.url) as client:
        client.set(key, b"value")

        assert client.get(key) == b"value"


def test_probe_does_not_take_another_server_for_its_own(
    kafka_broker: KafkaBroker, mysql_server: MysqlServer, valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    """A server of the same kind on the port is not ours: the probe says no."""
    specs = [
        kafka.prepare(
            tmp_path / "kafka", port=int(kafka_broker.bootstrap_servers.split(":")[1]), controller_port=free_port()
        ),
        mysql.prepare(tmp_path / "mysql", port=mysql_server.port),
        valkey.prepare(tmp_path / "valkey", port=int(valkey_server.url.split(":")[2].split("/")[0])),
    ]

    assert [spec.ready() for spec in specs if spec.ready is not None] == [False, False, False]


def test_death_of_a_server_is_told_with_its_last_words(tmp_path: Path) -> None:
    """Waiting for a server that ended raises at once, with the end of its log."""
    spec = _python("dying", "print('cannot go on'); raise SystemExit(7)", tmp_path)

    with pytest.raises(ServiceUnavailable, match=r"(?s)dying ended with 7.*cannot go on"):
        wait_ready(start(spec, tmp_path), timeout_s=60.0)


def test_missing_program_is_told_with_a_remedy(tmp_path: Path) -> None:
    """A program that set-up should have put there is missing: the message names the command to run."""
    spec = ProcessSpec("absent", (str(tmp_path / "absent"),), {}, tmp_path, None)

    with pytest.raises(ServiceUnavailable, match="make setup"):
        start(spec, tmp_path)


def test_stop_ends_children_too(tmp_path: Path) -> None:
    """A server's own children do not outlive it, even when it ignores SIGTERM."""
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('child', 'w').write(str(child.pid)); time.sleep(600)\n"
    )
    child_file = tmp_path / "child"
    running = start(_python("stubborn", code, tmp_path, ready=lambda: bool(_text(child_file))), tmp_path)
    wait_ready(running, timeout_s=60.0)
    child = int(child_file.read_text())

    exit_code = stop(running, timeout_s=0.5)

    assert exit_code == -9
    assert _ends(child)


def test_server_dies_with_its_parent(tmp_path: Path) -> None:
    """kill -9 of the process that started a server with ``dies_with_parent`` leaves nothing running."""
    server = "import time; print('up', flush=True); time.sleep(600)"
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from libs.servers.process import ProcessSpec, start, wait_ready\n"
        "is_up = lambda: 'up' in Path('orphan.log').read_text()\n"
        f"spec = ProcessSpec('orphan', (sys.executable, '-c', {server!r}), {{}}, Path('.'), is_up)\n"
        "running = start(spec, Path('.'), dies_with_parent=True)\n"
        "wait_ready(running, 60.0)\n"
        "Path('pid').write_text(str(running.pid))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = start(_python("parent", code, tmp_path, environ={"PYTHONPATH": str(REPOSITORY)}), tmp_path)
    parent.popen.wait(90.0)

    pid = int((tmp_path / "pid").read_text())

    assert _ends(pid)


def test_free_ports_are_below_the_outgoing_range() -> None:
    """A port that a killed server comes back to cannot be taken by a client's connection meanwhile."""
    ports = free_ports(20)

    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len(set(ports)) == 20
    assert max(ports) < lowest_outgoing


def test_port_that_is_listened_on_is_not_free() -> None:
    """The ports of ``free_ports`` were free: a listening port is distinguished."""
    with socket.create_server((LOOPBACK, 0)) as server:
        taken = server.getsockname()[1]

        assert not is_free(taken)


def _python(
    name: str,
    code: str,
    folder: Path,
    *,
    ready: Callable[[], bool] | None = lambda: False,
    environ: dict[str, str] | None = None,
) -> ProcessSpec:
    return ProcessSpec(name, (sys.executable, "-u", "-c", code), environ or {}, folder, ready)


def _ends(pid: int) -> bool:
    """Whether the process ends (a zombie has: nobody in a container may reap it) within half a minute."""
    for _ in range(300):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.1)
    return False


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _produce(broker: KafkaBroker, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    producer.produce(topic, value)
    assert producer.flush(60.0) == 0


def _cluster_id(broker: KafkaBroker) -> str | None:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=60.0).cluster_id


def _first_value(broker: KafkaBroker, topic: str) -> bytes | None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": f"{topic}-reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(60.0)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()
