"""A service of ours as a process, started, killed and started again by a test."""

import asyncio
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import grpc
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from libs.config.connections import GrpcClientSettings
from libs.errors import ServiceUnavailable
from libs.servers.ports import LOOPBACK, free_ports
from libs.servers.process import ProcessSpec, Running, kill, start, stop, wait_ready
from tests.service_forks import start_fork
from tests.waiting import WITHIN_S

REPOSITORY = Path(__file__).parents[2]
READY_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 120.0


@dataclass(slots=True)
class ServiceProcess:
    """``python -m services.<name>`` on ports of its own, which stay the same over restarts.

    A fork of an interpreter that has the service's modules (``tests.service_forks``), unless it ``is_alone``.
    """

    name: str
    folder: Path
    settings: Mapping[str, object]
    grpc_port: int
    http_port: int
    running: Running | None = field(default=None)
    is_alone: bool = False
    """In an interpreter of its own: its memory is its own."""

    @classmethod
    def of(cls, name: str, folder: Path, settings: Mapping[str, object]) -> "ServiceProcess":
        """Not started yet; ``settings`` without ports."""
        grpc_port, http_port = free_ports(2)
        return cls(name, folder, settings, grpc_port, http_port)

    @property
    def client_settings(self) -> GrpcClientSettings:
        return GrpcClientSettings(address=f"{LOOPBACK}:{self.grpc_port}", timeout_s=20.0)

    @property
    def log_text(self) -> str:
        """Everything it wrote, over all starts; empty before its first line."""
        assert self.running is not None
        path = self.running.log_path
        return path.read_text() if path.exists() else ""

    def start(self, *, failpoints: str = "", waits: bool = True) -> None:
        """Start it; with ``waits``, return when its health check says SERVING."""
        path = self.folder / f"{self.name}.yaml"
        self.folder.mkdir(parents=True, exist_ok=True)
        telemetry = {"halted_s": 0, **cast(Mapping[str, object], self.settings.get("telemetry", {}))}
        ports = {"grpc": {"port": self.grpc_port}, "telemetry": {**telemetry, "http_port": self.http_port}}
        path.write_text(yaml.safe_dump({**self.settings, **ports}))
        spec = ProcessSpec(
            name=self.name,
            command=(sys.executable, "-m", f"services.{self.name}", "--settings", str(path)),
            environ={"HEADWATER_FAILPOINTS": failpoints},
            working_dir=REPOSITORY,
            ready=self._serves,
        )
        logs = self.folder / "logs"
        self.running = start(spec, logs, dies_with_parent=True) if self.is_alone else start_fork(spec, logs)
        if waits:
            wait_ready(self.running, READY_TIMEOUT_S)

    def kill(self) -> None:
        """As a power cut would."""
        assert self.running is not None
        kill(self.running)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return stop(self.running, STOP_TIMEOUT_S) if self.running is not None else 0

    def wait_for_exit(self, timeout_s: float = WITHIN_S) -> int:
        """The exit code of a process that ends by itself."""
        assert self.running is not None
        return self.running.popen.wait(timeout_s)

    def has_ended(self, *, within_s: float) -> bool:
        """Whether the process has ended by itself, after waiting a little."""
        assert self.running is not None
        try:
            self.running.popen.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page of its telemetry endpoint."""
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.http_port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def _serves(self) -> bool:
        with grpc.insecure_channel(f"{LOOPBACK}:{self.grpc_port}") as channel:
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2)
            except grpc.RpcError:
                return False
            return answer.status == health_pb2.HealthCheckResponse.SERVING


@dataclass(slots=True)
class Services:
    """schema_history and checkpoint_committer: readers and routers need them beside Kafka."""

    bootstrap_servers: str
    schema_history: ServiceProcess
    checkpoint_committer: ServiceProcess

    @property
    def addresses(self) -> dict[str, object]:
        """Settings of their callers."""
        return {
            "schema_history": {"address": self.schema_history.client_settings.address},
            "checkpoint_committer": {"address": self.checkpoint_committer.client_settings.address},
        }

    def supervise(self) -> None:
        """Start each service that has ended: a service ends where Kafka does not answer it, and its supervisor starts it
        again."""
        for service in (self.schema_history, self.checkpoint_committer):
            if service.has_ended(within_s=0.0):
                start_supervised(service)

    def rest(self) -> None:
        """End both until ``supervise``: they cost 6 % of a core, most of it the broker's, though nobody asks them anything."""
        for service in (self.schema_history, self.checkpoint_committer):
            service.stop()


@contextmanager
def started_services(
    bootstrap_servers: str, redis_url: str, folder: Path, *, kafka: Mapping[str, object] | None = None
) -> Iterator[Services]:
    """Both of them, on the topics that every mesh has. A Kafka has one pair: a later one ends an earlier one's right to write.

    ``kafka``: how they reach it, where that takes more than an address.
    """
    common = {"kafka": kafka or {"bootstrap_servers": bootstrap_servers}, "redis": {"url": redis_url}}
    started = [ServiceProcess.of(name, folder / name, common) for name in ("schema_history", "checkpoint_committer")]
    for service in started:
        start_supervised(service)
    yield Services(bootstrap_servers, *started)
    for service in started:
        service.stop()


def start_supervised(service: ServiceProcess) -> None:
    """Start a service as its supervisor would: again, when it ends because Kafka was not ready for it."""
    for attempt in range(3):
        try:
            service.start()
        except ServiceUnavailable:
            if attempt == 2:
                raise
        else:
            return


async def refused_until_ended(
    service: ServiceProcess, call: Callable[[], Awaitable[object]], within_s: float = 240.0
) -> None:
    """Call until the service has ended, and see every call refused.

    Again and again: where Kafka stands still for a while, the first call's transaction fails for that, and only a later one is
    answered that another instance has taken over.
    """
    deadline_s = time.monotonic() + within_s
    while True:
        with pytest.raises(ServiceUnavailable):
            await call()
        if await asyncio.to_thread(service.has_ended, within_s=5.0):
            return
        assert time.monotonic() < deadline_s, f"the service did not end within {within_s:.0f} s:\n{service.log_text}"


async def eventually(holds: Callable[[], bool], within_s: float = 400.0) -> None:
    """Returns when ``holds``, and fails after ``within_s``: below a test's time-out, which would not name the line."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not so within {within_s:.0f} s"
        await asyncio.sleep(0.05)
