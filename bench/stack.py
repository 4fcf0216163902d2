"""Real servers and services for a bench: started here, measured from outside, stopped at the end."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pymysql
import yaml

from libs.servers import kafka_broker, mysql_server, valkey_server
from libs.servers.ports import LOOPBACK, free_ports
from libs.servers.process import ProcessSpec, Running, is_alive, last_log_lines, start, stop, wait_ready

REPOSITORY = Path(__file__).parents[1]
_WITH_BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}  # empty is unset
_READY_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU and memory that a process has used so far, its children included."""

    cpu_s: float
    peak_rss_mb: float


@dataclass(slots=True)
class Service:
    """A running service of ours."""

    running: Running
    grpc_address: str
    http_port: int

    def usage(self) -> Usage:
        """The use of its process so far."""
        return process_usage(self.running)


@dataclass(frozen=True, slots=True)
class Servers:
    """Kafka, Valkey and MySQL, on free ports."""

    bootstrap_servers: str
    redis_url: str
    mysql_port: int

    def connect(self) -> "pymysql.Connection[Any]":
        """To MySQL as root; several statements may be sent at once."""
        flag = pymysql.constants.CLIENT.MULTI_STATEMENTS
        return pymysql.connect(
            host=LOOPBACK, port=self.mysql_port, user="root", ssl_disabled=True, client_flag=flag, autocommit=True
        )


@contextmanager
def bench_stack(folder: Path) -> Iterator[tuple[Servers, Callable[[str, Mapping[str, Any]], Service]]]:
    """The servers, and a function that starts a service of ours with settings; all stopped at the end."""
    with ExitStack() as exits:
        begin = beginning(folder, exits)
        kafka_port, controller_port, valkey_port, mysql_port = free_ports(4)
        begin(kafka_broker.prepare(folder / "kafka", port=kafka_port, controller_port=controller_port))
        begin(valkey_server.prepare(folder / "valkey", port=valkey_port))
        begin(mysql_server.prepare(folder / "mysql", port=mysql_port))
        servers = Servers(kafka_broker.bootstrap_servers(kafka_port), valkey_server.url(valkey_port), mysql_port)

        def start_service(name: str, settings: Mapping[str, Any]) -> Service:
            return start_service_in(folder, begin, name, settings)

        yield servers, start_service


def beginning(folder: Path, exits: ExitStack) -> Callable[[ProcessSpec], Running]:
    """A function that starts a process and waits for it, its log in ``folder``; ``exits`` stops that process."""

    def begin(spec: ProcessSpec) -> Running:
        running = start(spec, folder / "logs", dies_with_parent=True)
        exits.callback(stop, running, _STOP_TIMEOUT_S)
        wait_ready(running, _READY_TIMEOUT_S)
        return running

    return begin


def start_service_in(
    folder: Path, begin: Callable[[ProcessSpec], Running], name: str, settings: Mapping[str, Any]
) -> Service:
    """A service of ours with ``settings``, which lie in ``folder``, on free ports; ready."""
    grpc_port, http_port = free_ports(2)
    _byte_compile(name)
    serves_grpc = name != "router"
    document = {**settings, "telemetry": {"http_port": http_port}}
    if serves_grpc:
        document["grpc"] = {"port": grpc_port}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    spec = ProcessSpec(
        name=name,
        command=(sys.executable, "-m", f"services.{name}", "--settings", str(path)),
        environ=_WITH_BYTECODE,
        working_dir=REPOSITORY,
        ready=lambda: _is_ready(http_port),
    )
    return Service(begin(spec), f"{LOOPBACK}:{grpc_port}", http_port)


def _byte_compile(name: str) -> None:
    """Have Python keep the bytecode of the modules that the service loads: compiling it takes more CPU than all else at a
    start."""
    command = (sys.executable, "-c", f"import services.{name}.__main__")
    subprocess.run(command, cwd=REPOSITORY, env={**os.environ, **_WITH_BYTECODE}, check=True)


def _is_ready(http_port: int) -> bool:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{http_port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def process_usage(running: Running) -> Usage:
    """CPU seconds, user and system, and the largest resident size, of the process (Linux /proc).

    Raises RuntimeError, with the end of its log, when it has ended: nothing more is to be waited for.
    """
    if not is_alive(running):
        raise RuntimeError(f"{running.spec.name} ended by itself\n{last_log_lines(running)}")
    process = psutil.Process(running.pid)
    family = [process, *process.children(recursive=True)]
    cpu_s = sum(sum(member.cpu_times()[:4]) for member in family)  # with children that have ended
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    peak_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return Usage(cpu_s=cpu_s, peak_rss_mb=peak_kb / 1024)


def wait_until(is_done: Callable[[], bool], *, timeout_s: float, what: str) -> None:
    """Return when ``is_done``. Raises TimeoutError, naming the fact that was awaited."""
    deadline_s = time.monotonic() + timeout_s
    while not is_done():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what} did not come about within {timeout_s:.0f} s")
        time.sleep(0.05)
