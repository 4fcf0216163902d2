"""The peer of the catch-up bench: Debezium's MySQL connector in Kafka Connect, tuned, on the same servers and the same log.

Connect runs standalone, in one JVM. The connector is started before the log is written, and then *stopped* through
Connect's REST interface: its task ends and its offset stays, so that resuming it reads the log from right before the
measured events. (Paused, it would go on reading until its queue is full.) The JVM stays up, as our paused reader does.

The jars, 45 MB, are fetched when the bench first needs them, pinned as those of ``libs/local/locks`` are.
"""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.stack import Servers, Usage, process_usage, wait_until
from bench.workload import DATABASE, TABLE
from libs.errors import ServiceUnavailable
from libs.local import jar_download
from libs.local.cache import cache_dir
from libs.local.jars import JarSet, jar_set
from libs.local.java import find_java
from libs.local.kafka_broker import LOG_OPTIONS
from libs.local.ports import LOOPBACK, free_port
from libs.local.process import ProcessSpec, Running, is_alive, last_log_lines, start, stop, wait_ready

TOPIC: Final = f"debezium.{DATABASE}.{TABLE}"
_CONNECTOR: Final = "debezium"
_LOCKS_DIR: Final = Path(__file__).with_name("locks")
_READY_TIMEOUT_S: Final = 90.0
_STATE_TIMEOUT_S: Final = 60.0
_REST_TIMEOUT_S: Final = 10.0
_STATUS_PAUSE_S: Final = 5.0  # answering takes the measured JVM a millisecond or two
_STOP_TIMEOUT_S: Final = 20.0
# The heap that the tuned figures of others name; the collector is Java's choice, G1 on a machine with two cores and 2 GB.
_MEMORY_OPTIONS: Final = ("-Xms256m", "-Xmx2G")
# The end of the log is shown when Connect fails: it should be the fault, not the orderly shutdown after it.
_LOG_OPTIONS: Final = (*LOG_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


@dataclass(frozen=True, slots=True)
class Debezium:
    """A connector that runs, or is stopped, in a Kafka Connect of its own."""

    running: Running
    rest_url: str

    def usage(self) -> Usage:
        """Of Connect's JVM."""
        return process_usage(self.running)

    def suspend(self) -> None:
        """End the connector's task; its offset stays. Returns when it has ended."""
        self._call("PUT", "stop")
        self.wait_until(lambda: self._states() == ("STOPPED",), timeout_s=_STATE_TIMEOUT_S, what="its stop")

    def resume(self) -> None:
        """Start its task again, from where it was; does not wait until it reads."""
        self._call("PUT", "resume")

    def wait_until(self, is_done: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Return when ``is_done``.

        Raises:
            ServiceUnavailable: it was not in time, or JVM or connector failed; the message has the end of the log.
        """

        asked_s = time.monotonic()

        def is_done_or_failed() -> bool:
            nonlocal asked_s
            self._check_is_alive()
            if time.monotonic() - asked_s > _STATUS_PAUSE_S:
                self._states()
                asked_s = time.monotonic()
            return is_done()

        try:
            wait_until(is_done_or_failed, timeout_s=timeout_s, what=f"Debezium: {what}")
        except TimeoutError as error:
            raise ServiceUnavailable(f"{error}\n{last_log_lines(self.running)}") from error

    def _states(self) -> tuple[str, ...]:
        """Of the connector and then of its tasks, in Connect's words."""
        status = self._call("GET", "status")
        states = (status["connector"]["state"], *(task["state"] for task in status["tasks"]))
        if "FAILED" in states:
            raise ServiceUnavailable(f"Debezium's connector failed\n{last_log_lines(self.running)}")
        return states

    def _check_is_alive(self) -> None:
        if not is_alive(self.running):
            raise ServiceUnavailable(f"Debezium's Connect ended by itself\n{last_log_lines(self.running)}")

    def _call(self, method: str, what: str) -> Any:
        self._check_is_alive()
        try:
            return _rest(method, f"{self.rest_url}/connectors/{_CONNECTOR}/{what}")
        except OSError as error:
            log_end = last_log_lines(self.running)
            raise ServiceUnavailable(f"Debezium's Connect did not {what}: {error}\n{log_end}") from error


@contextmanager
def debezium(folder: Path, servers: Servers) -> Iterator[Debezium]:
    """Connect with its connector, which follows the bench's table into ``TOPIC``; ended with the block. The table exists.

    Raises:
        SetupFailed: the jars could not be fetched.
        ServiceUnavailable: Connect did not start; the message has the end of its log.
    """
    folder.mkdir(parents=True)
    rest_url = f"http://{LOOPBACK}:{free_port()}"
    worker = folder / "worker.properties"
    worker.write_text(_as_properties(_worker_settings(folder, servers, rest_url)), encoding="utf-8")
    connector = folder / "connector.properties"
    connector.write_text(_as_properties(_connector_settings(servers)), encoding="utf-8")
    main_class = "org.apache.kafka.connect.cli.ConnectStandalone"
    spec = ProcessSpec(
        name="debezium",
        command=(
            str(find_java(cache_dir()).executable),
            *_MEMORY_OPTIONS,
            *_LOG_OPTIONS,
            "-cp",
            f"{jar_download.fetched(peer_jars(), cache_dir())}/*",
            main_class,
            str(worker),
            str(connector),
        ),
        environ={},
        working_dir=folder,
        ready=lambda: _has_task(rest_url),
    )
    running = start(spec, folder / "logs", dies_with_parent=True)
    try:
        wait_ready(running, _READY_TIMEOUT_S)
        yield Debezium(running, rest_url)
    finally:
        stop(running, _STOP_TIMEOUT_S)


def peer_jars() -> JarSet:
    """Connect, the connector and what they need."""
    return jar_set("debezium", _LOCKS_DIR)


def _worker_settings(folder: Path, servers: Servers, rest_url: str) -> dict[str, object]:
    """Kafka 4.3 documentation, "Kafka Connect Configs"."""
    return {
        "bootstrap.servers": servers.bootstrap_servers,
        "listeners": rest_url,
        "offset.storage.file.filename": folder / "offsets",
        "plugin.discovery": "service_load",  # the class path is not searched: a quicker start
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",  # as our events are; with them it takes 1.2 to 1.6 times the CPU
        "value.converter.schemas.enable": "false",
        "producer.compression.type": "lz4",  # as our router
        "producer.linger.ms": 50,  # as our router: larger batches, fewer requests
        "producer.batch.size": 524_288,  # 16 KiB by default: thirty events
        "producer.buffer.memory": 67_108_864,  # twice the default, so that large batches do not wait for room
    }


def _connector_settings(servers: Servers) -> dict[str, object]:
    """Debezium 3.6 documentation, "MySQL connector properties". What is not named is as by default, headers included."""
    return {
        "name": _CONNECTOR,
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "tasks.max": 1,
        "database.hostname": LOOPBACK,
        "database.port": servers.mysql_port,
        "database.user": "root",
        "database.server.id": 6002,  # any that no other replica has
        "topic.prefix": TOPIC.split(".")[0],
        "database.include.list": DATABASE,
        "schema.history.internal.kafka.bootstrap.servers": servers.bootstrap_servers,
        "schema.history.internal.kafka.topic": "debezium-schema-history",
        "snapshot.mode": "no_data",  # only what is written to the log from now on
        "snapshot.locking.mode": "none",  # no statement changes a table meanwhile
        "tombstones.on.delete": "true",  # the default, and what ours writes
        "max.batch.size": 8_192,  # 2,048 by default: fewer, larger hand-overs to Connect
        "max.queue.size": 32_768,  # 8,192 by default: reading and sending overlap
    }


def _as_properties(settings: dict[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _has_task(rest_url: str) -> bool:
    """Connect answers, and the connector has its task, in whatever state."""
    try:
        return bool(_rest("GET", f"{rest_url}/connectors/{_CONNECTOR}/status")["tasks"])
    except OSError:
        return False


def _rest(method: str, url: str) -> Any:
    """What Connect answers; None when it has nothing to say. Raises OSError (an HTTP error is one)."""
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=_REST_TIMEOUT_S) as answer:
        text = answer.read()
    return json.loads(text) if text else None
