"""The headwater command as a user runs it, judged by its output and by the processes that it leaves.

``run_here`` runs it in the test's own process: an interpreter that loads the libraries of Iceberg takes three seconds of a
processor. ``HeadwaterCommand.start`` and ``run`` make a process of it, for commands that go on, are ended, or leave processes.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import psutil
from click.testing import CliRunner, Result

from libs.cli.main import run as run_command_line
from libs.mesh.home import Home, home_at, write_examples
from libs.mesh.state import read_ports
from libs.servers.ports import is_free
from libs.servers.process import last_lines
from tests.conftest import MysqlServer

COMMAND = Path(__file__).parents[1] / "headwater"
MARK = "MARK_OF_A_TEST"  # not HEADWATER_…: services refuse such names that they do not know
_BRIEF_JVMS = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
"""For a stack's Kafka, which compiles for a long life else: 30 CPU s in two minutes. Spark has this of its own."""
LOG_LINES = 40
END_TIMEOUT_S = 180.0


class _CommandLine(click.Command):
    """``libs.cli.main.run``, whose exit codes and error texts are those of the process."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> Any:
        """Ends by SystemExit."""
        run_command_line(args)


def run_here(*arguments: str, environ: Mapping[str, str | None] | None = None) -> Result:
    """``headwater ARGUMENTS`` in this process; ``environ`` is laid over the environment, None: without that name.

    An error that the command does not foresee is raised: it would be a traceback there.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    try:
        return CliRunner(env=environ, catch_exceptions=False).invoke(_CommandLine("headwater"), arguments)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class HeadwaterCommand:
    """``headwater … --home <home>``; every process that it starts inherits a mark, by which it is found again."""

    home: Home
    mark: str = field(default_factory=lambda: secrets.token_hex(8))

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start the command; standard error goes where standard output goes."""
        return subprocess.Popen(
            [str(COMMAND), *arguments, "--home", str(self.home.root)],
            env={**os.environ, MARK: self.mark, "PYTHONUNBUFFERED": "1", **_BRIEF_JVMS},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, timeout_s: float) -> tuple[int, str]:
        """Exit code and output. A command that takes longer is killed, and fails the test with its output so far."""
        with self.start(*arguments) as running:
            try:
                output, _ = running.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                self.kill_all()
                output, _ = running.communicate()
                raise AssertionError(f"`headwater {arguments[0]}` took over {timeout_s:.0f} s:\n{output}") from None
        return running.returncode, output

    def run_here(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output of a command that ends by itself, run in this process."""
        result = run_here(*arguments, "--home", str(self.home.root))
        return result.exit_code, result.output

    def left_over(self) -> list[str]:
        """Processes that the command started and did not end, and the ports of the stack that are still served.

        ``down`` returns when every process has ended but the supervisor itself, which gets some seconds here.
        """
        deadline_s = time.monotonic() + END_TIMEOUT_S
        while (found := self._left_now()) and time.monotonic() < deadline_s:
            time.sleep(0.2)
        return found

    def _left_now(self) -> list[str]:
        ports = [f"port {port} of {name}" for name, port in read_ports(self.home).items() if not is_free(port)]
        processes = []
        for process in self._processes():
            with contextlib.suppress(psutil.Error):  # it ended meanwhile
                processes.append(f"process {process.pid}: {' '.join(process.cmdline())[:200]}")
        return [*processes, *ports]

    def kill_all(self) -> None:
        """End everything that was started here."""
        processes = list(self._processes())
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(processes, timeout=60.0)

    def logs(self) -> str:
        """The end of each log."""
        return "\n".join(last_lines(path, LOG_LINES) for path in sorted(self.home.logs_dir.glob("*.log")))

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == self.mark:
                    yield process


@contextlib.contextmanager
def headwater_in(folder: Path) -> Iterator[HeadwaterCommand]:
    """The command with ``folder`` as its home. In the end nothing runs; pytest shows the logs of a test that failed."""
    command = HeadwaterCommand(home_at(folder))
    try:
        yield command
    finally:
        command.kill_all()
        sys.stderr.write(command.logs())


def write_shop(home: Home, server: MysqlServer, database: str, sinks: Mapping[str, str]) -> None:
    """The source ``shop`` over one database, and a tenant of all of it for each of ``sinks`` (tenant → its sink, in YAML)."""
    write_examples(home)
    tables = f"include_tables: ['{database}\\..*']"
    (home.sources_dir / "shop.yaml").write_text(
        f"database: {{host: {server.host}, port: {server.port}, user: root}}\n{tables}\n"
    )
    for tenant, sink in sinks.items():
        (home.tenants_dir / f"{tenant}.yaml").write_text(
            f"tenant: {tenant}\nsources: [{{name: shop, {tables}}}]\nsink: {sink}\n"
        )
