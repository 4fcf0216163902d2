"""Kafka Connect with one connector, in one JVM: how Debezium runs beside ours, in the bench and in the differential test.

Connect runs standalone. The connector can be *stopped* through Connect's REST interface: its task ends and its offset stays,
so that resuming it reads from where it was. (Paused, it would go on reading until its queue is full.) The JVM stays up.
"""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.stack import Usage, process_usage, wait_until
from libs.errors import ServiceUnavailable
from libs.servers.kafka_broker import LOG_OPTIONS
from libs.servers.ports import LOOPBACK, free_port
from libs.servers.process import ProcessSpec, Running, is_alive, last_log_lines, start, stop, wait_ready
from libs.setup import jar_download
from libs.setup.cache import cache_dir
from libs.setup.jars import JarSet
from libs.setup.java import find_java

LOCKS_DIR: Final = Path(__file__).with_name("locks")
_READY_TIMEOUT_S: Final = 240.0  # tests start it on a machine at work
_STATE_TIMEOUT_S: Final = 60.0
_REST_TIMEOUT_S: Final = 10.0
_STATUS_PAUSE_S: Final = 5.0  # answering takes the measured JVM a millisecond or two
_STOP_TIMEOUT_S: Final = 20.0
# The heap that the tuned figures of others name; the collector is Java's choice, G1 on a machine with two cores and 2 GB.
_MEMORY_OPTIONS: Final = ("-Xms256m", "-Xmx2G")
# The end of the log is shown when Connect fails: it should be the fault, not the orderly shutdown after it.
_LOG_OPTIONS: Final = (*LOG_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector that runs, or is stopped, in a Kafka Connect of its own."""

    name: str
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
            return _rest(method, f"{self.rest_url}/connectors/{self.name}/{what}")
        except OSError as error:
            log_end = last_log_lines(self.running)
            raise ServiceUnavailable(f"Debezium's Connect did not {what}: {error}\n{log_end}") from error


@contextmanager
def kafka_connect(
    folder: Path,
    bootstrap_servers: str,
    jars: JarSet,
    connector_settings: Mapping[str, object],
    *,
    with_schemas: bool = False,
    headers_with_schemas: bool | None = None,
    further: Sequence[Mapping[str, object]] = (),
) -> Iterator[Connector]:
    """Connect with its connector, which has its task when the block begins; ended with the block.

    The jars are fetched when they are not there. ``with_schemas``: each record carries its schemas;
    ``headers_with_schemas``: each header too (None: as records). ``further``: connectors beside it, in the same JVM.

    Raises:
        SetupFailed: the jars could not be fetched.
        ServiceUnavailable: Connect did not start; the message has the end of its log.
    """
    folder.mkdir(parents=True)
    name = str(connector_settings["name"])
    rest_url = f"http://{LOOPBACK}:{free_port()}"
    worker = folder / "worker.properties"
    worker.write_text(
        _as_properties(
            _worker_settings(
                folder,
                bootstrap_servers,
                rest_url,
                with_schemas=with_schemas,
                headers_with_schemas=with_schemas if headers_with_schemas is None else headers_with_schemas,
            )
        ),
        encoding="utf-8",
    )
    connectors = [folder / f"connector-{number}.properties" for number in range(1 + len(further))]
    for path, settings in zip(connectors, (connector_settings, *further), strict=True):
        path.write_text(_as_properties(settings), encoding="utf-8")
    main_class = "org.apache.kafka.connect.cli.ConnectStandalone"
    spec = ProcessSpec(
        name="debezium",
        command=(
            str(find_java(cache_dir()).executable),
            *_MEMORY_OPTIONS,
            *_LOG_OPTIONS,
            "-cp",
            f"{jar_download.fetched(jars, cache_dir())}/*",
            main_class,
            str(worker),
            *map(str, connectors),
        ),
        environ={},
        working_dir=folder,
        ready=lambda: _has_task(rest_url, name),
    )
    running = start(spec, folder / "logs", dies_with_parent=True)
    try:
        wait_ready(running, _READY_TIMEOUT_S)
        yield Connector(name, running, rest_url)
    finally:
        stop(running, _STOP_TIMEOUT_S)


def _worker_settings(
    folder: Path, bootstrap_servers: str, rest_url: str, *, with_schemas: bool, headers_with_schemas: bool
) -> dict[str, object]:
    """Kafka 4.3 documentation, "Kafka Connect Configs"."""
    # Without schemas Connect's own choice for headers writes plain texts, as our router does.
    headers = {
        "header.converter": "org.apache.kafka.connect.json.JsonConverter",
        "header.converter.schemas.enable": "true",
    }
    return {
        **(headers if headers_with_schemas else {}),
        "bootstrap.servers": bootstrap_servers,
        "listeners": rest_url,
        "offset.storage.file.filename": folder / "offsets",
        "plugin.discovery": "service_load",  # the class path is not searched: a quicker start
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": str(with_schemas).lower(),  # with them it takes 1.2 to 1.6 times the CPU
        "value.converter.schemas.enable": str(with_schemas).lower(),
        "producer.compression.type": "lz4",  # as our router
        "producer.linger.ms": 50,  # as our router: larger batches, fewer requests
        "producer.batch.size": 524_288,  # 16 KiB by default: thirty events
        "producer.buffer.memory": 67_108_864,  # twice the default, so that large batches do not wait for room
        "consumer.isolation.level": "read_committed",  # of sinks: records of transactions that were broken off are none
    }


def _as_properties(settings: Mapping[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _has_task(rest_url: str, name: str) -> bool:
    """Connect answers, and the connector has its task, in any state."""
    try:
        return bool(_rest("GET", f"{rest_url}/connectors/{name}/status")["tasks"])
    except OSError:
        return False


def _rest(method: str, url: str) -> Any:
    """Connect's answer; None where it is empty. Raises OSError (an HTTP error is one)."""
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=_REST_TIMEOUT_S) as answer:
        text = answer.read()
    return json.loads(text) if text else None
