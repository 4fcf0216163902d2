"""The embedded stack of one home: brought up, found, brought down.

``headwater up`` calls ``run_stack``, which holds the home's lock and supervises until it is asked to stop;
``up --detach`` starts the same in a process of its own (``start_detached``); ``down`` signals it
(``stop_stack``).
"""

import asyncio
import contextlib
import datetime
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
import yaml

from libs.errors import InvalidSettings, ServiceUnavailable
from libs.mesh.documents import POSTGRESQL, Documents, read_documents
from libs.mesh.home import Home, is_initialised, keep_private
from libs.mesh.processes import KAFKA, KAFKA_CONTROLLER, PYTHON_ENVIRON, VALKEY, kafka_address
from libs.mesh.reader_tasks import planned_generations, store_generations
from libs.mesh.state import (
    AlreadyUp,
    ServicePhase,
    StackPhase,
    StackState,
    hold,
    holder,
    leftovers,
    read_ports,
    read_state,
    replace_file,
)
from libs.mesh.taken_over import note_taken_over
from libs.operations.joining import note_beginnings, watched_joining
from libs.servers import kafka_broker, ports, postgresql_server, valkey_server
from libs.servers.process import last_lines
from libs.setup.compiled_modules import require_built
from libs.setup.installation import IMPORT_ROOT, is_checkout
from libs.setup.spark_toolchain import find_toolchain
from libs.stack.certificates import forget_certificates, keep_renewed, renew_certificates
from libs.stack.own_servers import own_servers
from libs.stack.plan import (
    STAGE_SERVERS,
    certified_processes,
    choose_ports,
    plan_processes,
    port_names,
    supervised,
)
from libs.stack.restart import RestartPolicy
from libs.stack.supervisor import StackEvent, Supervised, supervise

STOP_TIMEOUT_S: Final = 120.0
"""Longest clean stop: each stage's stop timeout, one after the other, and some seconds more."""
UP_TIMEOUT_S: Final = 300.0
POLL_PAUSE_S: Final = 0.1


def load_documents(home: Home) -> Documents:
    """The home's documents, good enough to start with.

    Raises:
        InvalidSettings: not a home, or a source's document, ``warehouses.yaml``, ``kafka.yaml``, ``schema_registry.yaml``,
            ``openlineage.yaml`` or ``topic_quotas.yaml`` has mistakes (all are listed). Mistakes in tenants' documents do not
            raise: the others are served.
    """
    if not is_initialised(home):
        raise InvalidSettings(
            str(home.root), ["is no Headwater home: run `headwater init`, or name another with --home"]
        )
    documents = read_documents(home)
    if documents.source_mistakes:
        raise InvalidSettings(str(home.sources_dir), documents.source_mistakes)
    if documents.warehouse_mistakes:
        raise InvalidSettings(str(home.warehouses_file), documents.warehouse_mistakes)
    if documents.kafka_mistakes:
        raise InvalidSettings(str(home.kafka_file), documents.kafka_mistakes)
    if documents.schema_registry_mistakes:
        raise InvalidSettings(str(home.schema_registry_file), documents.schema_registry_mistakes)
    if documents.openlineage_mistakes:
        raise InvalidSettings(str(home.openlineage_file), documents.openlineage_mistakes)
    if documents.topic_quotas_mistakes:
        raise InvalidSettings(str(home.topic_quotas_file), documents.topic_quotas_mistakes)
    return documents


def run_stack(
    home: Home,
    *,
    on_event: Callable[[StackEvent], None],
    on_phase: Callable[[StackPhase], None],
    has_tls: bool = True,
) -> None:
    """Hold ``home``, start its stack and run it until SIGTERM or SIGINT; call it from the main thread.

    A second signal ends everything at once, without the clean stop. ``has_tls``: processes and commands call one another by
    mutual TLS.

    Raises:
        AlreadyUp: another supervisor holds the home.
        InvalidSettings: documents, jars, Java or compiled modules are missing or wrong.
    """
    documents = load_documents(home)
    with hold(home):
        _sweep(home, on_event)
        note_taken_over(home)
        planned = prepare(home, documents, has_tls=has_tls)
        note_beginnings(home, documents)
        with watched_joining(home, documents, lambda said: on_event(StackEvent("tenants", ServicePhase.UP, said))):
            certified = certified_processes(documents) if has_tls else ()
            asyncio.run(_supervise_until_signalled(home, planned, certified, on_event, on_phase))


def prepare(home: Home, documents: Documents, *, has_tls: bool = True) -> tuple[Supervised, ...]:
    """Choose ports, write every generated file and certificate, and return the processes to run.

    Raises:
        InvalidSettings: see ``run_stack``.
    """
    chosen = choose_ports(port_names(documents), read_ports(home), is_free=ports.is_free, free_ports=ports.free_ports)
    if is_checkout():
        require_built(IMPORT_ROOT)
    toolchain = find_toolchain()
    generations = planned_generations(home, documents)
    processes = plan_processes(home, documents, chosen, toolchain, generations, has_tls=has_tls)
    store_generations(home, generations)
    keep_private(home)
    replace_file(home.ports_file, msgspec.json.format(msgspec.json.encode(chosen)))
    for folder in (home.logs_dir, home.data_dir, home.sink_dir, home.warehouse_dir):
        folder.mkdir(parents=True, exist_ok=True)
    if has_tls:
        renew_certificates(home, certified_processes(documents), datetime.datetime.now(datetime.UTC))
    else:
        forget_certificates(home)
    for planned in processes:
        _write_settings(home.settings_file(planned.name), planned.settings)
    valkey = valkey_server.prepare(home.data_dir / VALKEY, port=chosen[VALKEY], name=VALKEY)
    return (
        *_own_kafka(home, documents, chosen),
        Supervised(spec=valkey, stage=STAGE_SERVERS),
        *_own_postgresql(home, documents, chosen),
        *own_servers(home, "" if documents.kafka is not None else kafka_address(chosen)),
        *(supervised(home, planned) for planned in processes),
    )


def _own_kafka(home: Home, documents: Documents, chosen: Mapping[str, int]) -> tuple[Supervised, ...]:
    """Raises InvalidSettings: the demo's stand-ins write into a Kafka of the stack, and kafka.yaml names another."""
    if documents.kafka is None:
        spec = kafka_broker.prepare(
            home.data_dir / KAFKA, port=chosen[KAFKA], controller_port=chosen[KAFKA_CONTROLLER], name=KAFKA
        )
        return (Supervised(spec=spec, stage=STAGE_SERVERS, stop_timeout_s=30.0),)
    if home.own_servers_file.exists():
        raise InvalidSettings(
            str(home.kafka_file), ["a demo runs on the stack's own Kafka: remove the file, or take another --home"]
        )
    return ()


def _own_postgresql(home: Home, documents: Documents, chosen: Mapping[str, int]) -> tuple[Supervised, ...]:
    if not documents.has_own_postgresql:
        return ()
    spec = postgresql_server.prepare(home.data_dir / POSTGRESQL, port=chosen[POSTGRESQL], name=POSTGRESQL)
    # SIGTERM lets it wait for its clients, and somebody may sit in psql: after the timeout it is ended, and recovers.
    return (Supervised(spec=spec, stage=STAGE_SERVERS, stop_timeout_s=10.0),)


def start_detached(home: Home, *, dies_with_parent: bool = False, has_tls: bool = True) -> int:
    """Start ``headwater up`` for ``home`` in a process of its own; returns its id at once.

    With ``dies_with_parent`` it is stopped when the calling thread ends, however it ends.

    Raises:
        AlreadyUp: a stack runs there.
        InvalidSettings: documents are missing or wrong (found here, so that the caller's terminal shows it).
    """
    running = holder(home)
    if running is not None:
        raise AlreadyUp(f"a stack is already up in {home.root} (process {running}): `headwater down` stops it")
    load_documents(home)
    home.logs_dir.mkdir(parents=True, exist_ok=True)
    with home.log_file("supervisor").open("ab") as log_file:
        command = [sys.executable, "-m", "libs.cli", "up", "--home", str(home.root)]
        command += [] if has_tls else ["--without-tls"]
        if dies_with_parent and (setpriv := shutil.which("setpriv")):
            command = [setpriv, "--pdeathsig", "TERM", "--", *command]
        child = subprocess.Popen(
            command,
            env={**os.environ, **PYTHON_ENVIRON},
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return child.pid


def wait_until_up(
    home: Home, supervisor_pid: int, *, on_state: Callable[[StackState], None], timeout_s: float = UP_TIMEOUT_S
) -> StackState:
    """Return once every process was ready or was given up. Blocks; ``on_state`` sees each look.

    Raises:
        ServiceUnavailable: the supervisor ended, or it took longer than ``timeout_s``; its log says why.
    """
    deadline_s = time.monotonic() + timeout_s
    log = home.log_file("supervisor")
    while time.monotonic() < deadline_s:
        state = read_state(home)
        if state is not None and state.supervisor_pid == supervisor_pid:
            on_state(state)
            if state.phase is StackPhase.UP:
                return state
        if not _is_alive(supervisor_pid):
            raise ServiceUnavailable(f"the supervisor ended before the stack was up\n{last_lines(log)}")
        time.sleep(POLL_PAUSE_S)
    raise ServiceUnavailable(f"the stack was not up within {timeout_s:.0f} s\n{last_lines(log)}")


def stop_stack(
    home: Home, *, on_state: Callable[[StackState], None] = lambda _: None, timeout_s: float = STOP_TIMEOUT_S
) -> bool:
    """Stop the stack of ``home`` and return when every process has ended; False where none ran.

    Raises:
        ServiceUnavailable: it still ran after ``timeout_s``; the message names the remedy.
    """
    supervisor_pid = holder(home)
    if not supervisor_pid:
        state = read_state(home)
        swept = sweep(state) if state is not None else 0
        return swept > 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(supervisor_pid, signal.SIGTERM)
    deadline_s = time.monotonic() + timeout_s
    while holder(home) is not None:
        state = read_state(home)
        if state is not None:
            on_state(state)
        if time.monotonic() > deadline_s:
            raise ServiceUnavailable(
                f"the stack of {home.root} did not stop in {timeout_s:.0f} s: `kill -9 {supervisor_pid}` ends it at "
                "once; nothing is lost"
            )
        time.sleep(POLL_PAUSE_S)
    return True


def sweep(state: StackState) -> int:
    """Kill the processes that a dead supervisor's stack left; returns their number."""
    found = leftovers(state)
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(found, timeout=10.0)
    return len(found)


async def _supervise_until_signalled(
    home: Home,
    planned: Sequence[Supervised],
    certified: Sequence[str],
    on_event: Callable[[StackEvent], None],
    on_phase: Callable[[StackPhase], None],
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def handle(number: signal.Signals) -> None:
        if stop.is_set():
            _kill_now(home)
        stop.set()
        # A terminal that went away must not end the stop half-way.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, handle, number)
    renewing = loop.create_task(keep_renewed(home, certified, on_event)) if certified else None
    try:
        await supervise(home, planned, stop=stop, policy=RestartPolicy(), on_event=on_event, on_phase=on_phase)
    finally:
        if renewing is not None:
            renewing.cancel()


def _kill_now(home: Home) -> None:
    state = read_state(home)
    for service in state.services if state is not None else ():
        if service.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(service.pid, signal.SIGKILL)


def _sweep(home: Home, on_event: Callable[[StackEvent], None]) -> None:
    state = read_state(home)
    count = sweep(state) if state is not None else 0
    if count:
        on_event(
            StackEvent("supervisor", ServicePhase.STARTING, f"{count} process(es) of a killed stack were swept away")
        )


def _write_settings(path: Path, settings: Any) -> None:
    text = "# Generated by `headwater up` at each start: edit sources/ and tenants/ instead.\n"
    text += yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    replace_file(path, text.encode(), mode=0o600)


def _is_alive(pid: int) -> bool:
    """Whether the process runs; a child of ours that has ended is reaped, and counts as gone."""
    with contextlib.suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    return psutil.pid_exists(pid)
