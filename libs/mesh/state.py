"""The supervisor's state for other commands: ``run/state.json``, and the holder of the home: ``run/lock``.

The lock is an flock(2): the kernel drops it when its holder dies, however it dies, so a stale lock cannot be. The state file
is replaced as a whole at each change, so that a reader never sees half of one; after a kill -9 it is stale, which ``holder``
shows.
"""

import contextlib
import enum
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import psutil

from libs.errors import HeadwaterError
from libs.mesh.home import Home

LOCK_TRIES = 5
LOCK_PAUSE_S = 0.05


class AlreadyUp(HeadwaterError):
    """Another supervisor holds the home: stop it first, or use another home."""


class NotUp(HeadwaterError):
    """No stack runs in the home: start it."""


class ServicePhase(enum.Enum):
    """Where a process stands."""

    WAITING = "waiting"
    """Its turn in the start order is still to come."""
    STARTING = "starting"
    """It runs, and does not serve yet."""
    UP = "up"
    BACKING_OFF = "backing_off"
    """It ended, and is started again after a delay."""
    FAILED = "failed"
    """It ended, and no restart helps."""
    STOPPED = "stopped"


class StackPhase(enum.Enum):
    """Where the whole stack stands."""

    STARTING = "starting"
    UP = "up"
    """Every process was ready once, or was given up."""
    STOPPING = "stopping"
    STOPPED = "stopped"


class ServiceState(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the stack."""

    name: str
    phase: ServicePhase = ServicePhase.WAITING
    pid: int | None = None
    """Also its process group's id."""
    process_created_s: float | None = None
    """When the kernel started ``pid``, in seconds since 1970: distinguishes a reused pid from the process meant."""
    restarts: int = 0
    detail: str = ""
    """Why it is not up, in words."""
    last_end: str = ""
    """Why it ended last, in words; empty: it has not ended since the stack was started."""
    last_end_us: int = 0
    """When it did, microseconds since 1970."""
    http_port: int | None = None
    grpc_port: int | None = None


class StackState(msgspec.Struct, frozen=True, kw_only=True):
    """The stack in one home."""

    supervisor_pid: int
    phase: StackPhase
    started_at_s: float
    """Seconds since 1970."""
    services: tuple[ServiceState, ...]

    def service(self, name: str) -> ServiceState:
        """The process of that name. Raises KeyError where there is none."""
        for service in self.services:
            if service.name == name:
                return service
        raise KeyError(name)


def write_state(home: Home, state: StackState) -> None:
    """Replace the state file as a whole."""
    replace_file(home.state_file, msgspec.json.format(msgspec.json.encode(state)))


def read_state(home: Home) -> StackState | None:
    """The last supervisor's state; None where there is nothing readable. It may be stale: see ``holder``."""
    try:
        return msgspec.json.decode(home.state_file.read_bytes(), type=StackState)
    except (OSError, msgspec.DecodeError):
        return None


def running_state(home: Home) -> StackState:
    """The state of the stack that runs in ``home`` now.

    Raises:
        NotUp: none does; the message says how to start one.
    """
    state = read_state(home)
    if holder(home) is None or state is None:
        raise NotUp(f"no stack runs in {home.root}: start it with `headwater up --detach --home {home.root}`")
    return state


@contextlib.contextmanager
def hold(home: Home) -> Iterator[None]:
    """Be the one supervisor of ``home`` until the block ends or the process dies.

    Raises:
        AlreadyUp: another process is; the message names it.
    """
    home.run_dir.mkdir(parents=True, exist_ok=True)
    home.run_dir.chmod(0o700)
    with home.lock_file.open("a+") as file:
        if not _lock(file.fileno()):
            file.seek(0)
            raise AlreadyUp(
                f"a stack is already up in {home.root} (process {file.read().strip() or '?'}): "
                f"stop it with `headwater down --home {home.root}`, or choose another --home"
            )
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _lock(descriptor: int) -> bool:
    # Several tries, because ``holder`` takes the lock for a moment to look.
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_PAUSE_S)
        else:
            return True
    return False


def holder(home: Home) -> int | None:
    """Process id of the supervisor that holds ``home``; None where none does."""
    try:
        with home.lock_file.open("r") as file:
            try:
                fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read().strip()
                return int(text) if text.isdigit() else 0
    except OSError:
        return None
    return None


def leftovers(state: StackState) -> tuple[psutil.Process, ...]:
    """Processes of a dead supervisor's stack that still live, with the members of their groups.

    A pid counts only with the start time that the supervisor saw: the kernel reuses pids.
    """
    groups = {service.pid: service.process_created_s for service in state.services if service.pid is not None}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            group = os.getpgid(process.pid)
            created_s = groups.get(group)
            # A member of the group is never older than its leader.
            if created_s is not None and process.create_time() >= created_s - 0.05 and _same_leader(group, created_s):
                found.append(process)
    return tuple(found)


def _same_leader(group: int, created_s: float) -> bool:
    """Whether ``group`` is still the group that was recorded: its leader is that process, or is gone."""
    try:
        return abs(psutil.Process(group).create_time() - created_s) < 0.05
    except psutil.NoSuchProcess:
        return True  # an id stays taken while its group has members, so they are the recorded ones


def replace_file(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write ``content`` so that a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.touch(mode=mode)  # before the content: a secret is never readable by others, not even for a moment
    temporary.write_bytes(content)
    temporary.replace(path)


def read_ports(home: Home) -> Mapping[str, int]:
    """The ports that were chosen for this home; empty where none were."""
    try:
        return msgspec.json.decode(home.ports_file.read_bytes(), type=dict[str, int])
    except (OSError, msgspec.DecodeError):
        return {}
