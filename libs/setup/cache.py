"""Where set-up keeps its downloads, outside the repository and shared by all checkouts.

Standard library only: set-up imports it before any package is installed. A folder in the cache is either
whole or absent: it is filled under another name and renamed. A lock file lets one set-up at a time fill it.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from libs.errors import TransientError

LOCK_PAUSE_S = 0.2
LOCK_TIMEOUT_S = 1_800.0  # another set-up on a slow line


def cache_dir() -> Path:
    """``$HEADWATER_CACHE``, else ``$XDG_CACHE_HOME/headwater``, else ``~/.cache/headwater``; not created."""
    if chosen := os.environ.get("HEADWATER_CACHE"):
        return Path(chosen).absolute()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).absolute() / "headwater"
    return Path.home() / ".cache" / "headwater"


@contextlib.contextmanager
def locked(path: Path, *, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock file ``path``; ``on_wait`` is called once when another process holds it.

    The kernel lets go of the lock when its holder dies, however it dies.

    Raises:
        TransientError: it was not free within LOCK_TIMEOUT_S.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    with path.open("a") as file:
        waits = False
        while not _try_lock(file.fileno()):
            if not waits:
                on_wait()
                waits = True
            if time.monotonic() > deadline:
                raise TransientError(f"{path} is held by another set-up; end that one and try again")
            time.sleep(LOCK_PAUSE_S)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def staged_dir(target: Path) -> Iterator[Path]:
    """A temporary folder beside ``target`` that becomes ``target`` when the block ends well.

    The rest of an interrupted run is removed first, and an existing ``target`` at the end: call it
    under ``locked``.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for stale in target.parent.glob(f".{target.name}.*"):
        shutil.rmtree(stale, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    staging.chmod(0o755)  # mkdtemp's 0700 would shut out other users of a shared cache
    try:
        yield staging
        if target.exists():
            shutil.rmtree(target)
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
