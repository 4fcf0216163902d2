"""Headwater's own files of a tenant: the sink's checkpoint and progress, kept copies of its document."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from libs.mesh.home import Home
from libs.mesh.processes import ROUTER
from libs.operations.erase.held import Held, size_of
from libs.operations.joining import joining_path
from libs.sink_state.parked_keys import parked_keys_path
from libs.sink_state.resync import resyncs_path
from libs.tenants.document import parse_tenant

_STATE_FOLDERS = ("progress", "rebuilds")


def held_state(home: Home, tenant: str) -> list[Held]:
    """Files and folders, the sink's and the router's."""
    return [
        Held(kind="state", name=str(path.relative_to(home.root)), bytes=size_of(path)) for path in _paths(home, tenant)
    ]


def remove_state(home: Home, tenant: str) -> None:
    """Only once router and sink have let the tenant go: they would write some of it again."""
    for path in _paths(home, tenant):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def kept_copies(home: Home, process: str, tenant: str) -> list[Path]:
    """Those of the tenant's document that a process keeps, as long as it finds the document in the tenants' folder."""
    folder = (home.data_dir / ROUTER if process == ROUTER else home.sink_dir) / "tenants"
    return [file for file in sorted(folder.glob("*")) if _is_of(file, tenant)]


def _is_of(file: Path, tenant: str) -> bool:
    try:
        spec = parse_tenant(file.read_text(encoding="utf-8"), mistakes=[])
    except (OSError, UnicodeDecodeError):
        return False
    return spec is not None and spec.tenant == tenant


def _paths(home: Home, tenant: str) -> Iterator[Path]:
    files = [
        *(home.sink_dir / folder / f"{tenant}.json" for folder in _STATE_FOLDERS),
        parked_keys_path(home.sink_dir, tenant),
        resyncs_path(home.sink_dir, tenant),
        home.data_dir / "resyncs" / f"{tenant}.json",
        joining_path(home, tenant),
    ]
    for file in files:
        # Beside each, a killed writer's remains: acme.unfinished, acme.4711.unfinished.
        yield from (path for path in (file, *file.parent.glob(f"{tenant}.*unfinished")) if path.exists())
    checkpoint = home.sink_dir / "checkpoints" / tenant
    if checkpoint.exists():
        yield checkpoint
    for process in (ROUTER, "sink"):
        yield from kept_copies(home, process, tenant)
