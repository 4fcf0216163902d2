"""The machine under a stack, and the parts that set-up puts in place."""

import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from libs.operations.doctor.report import Finding, answered, fault, warning, well
from libs.setup.cache import cache_dir
from libs.setup.compiled_modules import require_built
from libs.setup.installation import IMPORT_ROOT, NEWEST_PYTHON, OLDEST_PYTHON, SETUP_COMMAND, is_checkout
from libs.setup.jars import jars_dir
from libs.setup.java import find_java
from libs.setup.python_packages import are_installed

_GIB: Final = 2**30
STACK_BYTES: Final = 3 * _GIB
"""Kafka, Spark, and some 100 MB for each of five services; a source more takes another."""
_LEAST_BYTES: Final = _GIB
"""Below that the kernel ends processes of a stack that starts."""
_RUNNING_BYTES: Final = _GIB // 2
"""A running stack has its memory already."""
_LEAST_DISK_BYTES: Final = _GIB
_GOOD_DISK_BYTES: Final = 5 * _GIB
_LEAST_FREE_SHARE: Final = 0.03
_OPEN_FILES: Final = 4_096
"""Kafka has several for each partition; Java takes the hard limit by itself."""
_SETUP: Final = f"run `{SETUP_COMMAND}`"


def machine(home: Path, *, is_running: bool) -> Iterator[Finding]:
    """Processors, memory, disks, limits. ``is_running``: a stack has taken its memory already."""
    count = os.cpu_count() or 1
    if count < 2:
        yield warning("machine", "processors", "1", "give the machine two: Spark and Kafka take turns on one")
    else:
        yield well("machine", "processors", f"{count}, load {os.getloadavg()[0]:.1f}")
    found = psutil.virtual_memory()
    yield memory(found.available, found.total, is_running=is_running)
    yield from _disk("disk of the home", home)
    yield from _disk("disk of temporary files", Path(tempfile.gettempdir()))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard not in (resource.RLIM_INFINITY, -1) and hard < _OPEN_FILES:
        remedy = f"raise it to {_OPEN_FILES:,}: `ulimit -Hn`, /etc/security/limits.conf, or LimitNOFILE of a unit"
        yield warning("machine", "open files", f"at most {hard:,} in a process", remedy)
    else:
        yield well("machine", "open files", "no limit" if hard < 0 else f"at most {hard:,} in a process")


def memory(available_bytes: int, total_bytes: int, *, is_running: bool) -> Finding:
    """Whether it is enough for a stack, or for one that runs already."""
    said = f"{available_bytes / _GIB:.1f} of {total_bytes / _GIB:.1f} GiB are available"
    least, good = (_RUNNING_BYTES, 2 * _RUNNING_BYTES) if is_running else (_LEAST_BYTES, STACK_BYTES)
    remedy = "end other programs, or take a larger machine"
    if available_bytes >= good:
        return well("machine", "memory", said)
    if not is_running:
        said += f"; a stack takes about {STACK_BYTES // _GIB} GiB"
    return (fault if available_bytes < least else warning)("machine", "memory", said, remedy)


def _disk(subject: str, folder: Path) -> Iterator[Finding]:
    """Of the file system that a folder lies in, or will lie in."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        found = os.statvfs(existing)
    except OSError as error:
        yield fault("machine", subject, f"{existing}: {error.strerror}", "check the folder and its mount")
        return
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    said = f"{existing}: {free / _GIB:.1f} of {total / _GIB:.1f} GiB are free"
    remedy = "free some room, or choose another --home; a full disk stops Kafka and the sink"
    if found.f_files and not found.f_favail:
        yield fault("machine", subject, f"{existing}: no inode is free", "remove small files")
    elif free < _LEAST_DISK_BYTES:
        yield fault("machine", subject, said, remedy)
    elif free < _GOOD_DISK_BYTES or free < total * _LEAST_FREE_SHARE:
        yield warning("machine", subject, said, remedy)
    else:
        yield well("machine", subject, said)
    if not os.access(existing, os.W_OK | os.X_OK):
        yield fault(
            "machine", subject, f"{existing}: you may not write here", "change its owner, or choose another --home"
        )


def set_up() -> Iterator[Finding]:
    """Python, Java and jars are there. In a checkout, packages and compiled modules are those of its sources."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    if OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
        yield well("set-up", "Python", version)
    else:
        yield fault(
            "set-up", "Python", f"{version}; Headwater needs 3.11 to 3.14", f"install one of these and {_SETUP}"
        )
    if is_checkout():
        yield from _of_a_checkout()

    def java() -> str:
        found = find_java(cache_dir())
        return f"{found.version} at {found.home}"

    yield answered("set-up", "Java", java, _SETUP)
    yield answered("set-up", "jars of Kafka", lambda: str(jars_dir("kafka", cache_dir())), _SETUP)
    yield answered("set-up", "jars of Spark", lambda: str(jars_dir("spark", cache_dir())), _SETUP)


def _of_a_checkout() -> Iterator[Finding]:
    if are_installed(IMPORT_ROOT):
        yield well("set-up", "Python packages", "those of requirements/dev.txt")
    else:
        yield warning("set-up", "Python packages", "not those that requirements/dev.txt locks", _SETUP)

    def compiled() -> str:
        require_built(IMPORT_ROOT)
        return "newer than their sources"

    yield answered("set-up", "compiled modules", compiled, _SETUP)
