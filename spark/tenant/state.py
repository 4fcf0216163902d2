"""A job's files of one tenant, as they are handed to another job: enough for the query to go on where it was.

Of Spark's checkpoint that is its identity, where it began, and the last two micro-batches: the last one may be cut off, and
then comes again with its own number; Spark wants the one before it too (Structured Streaming guide, "Recovery Semantics").
"""

import shutil
from pathlib import Path
from typing import Final

from libs.durable_file import UNFINISHED, replace_durably
from libs.sink_state.cut import cut_path
from libs.sink_state.parked_keys import parked_keys_path
from libs.sink_state.read_ahead import read_ahead_path
from libs.sink_state.resync import resyncs_path
from spark.pending.progress import progress_path

_BATCHES_KEPT: Final = 2


def state_files(state_dir: Path, tenant: str) -> dict[str, str]:
    """Their texts, by path below ``state_dir``; none where no query was begun. Only while nothing of the tenant runs."""
    checkpoint = _checkpoint(state_dir, tenant)
    if not (checkpoint / "metadata").is_file():
        return {}
    files = [checkpoint / "metadata", *(each for each in checkpoint.glob("sources/*/*") if each.name.isdigit())]
    for log in ("offsets", "commits"):
        numbers = sorted(int(each.name) for each in checkpoint.glob(f"{log}/*") if each.name.isdigit())
        files += [checkpoint / log / str(number) for number in numbers[-_BATCHES_KEPT:]]
    files += [each for each in _own_files(state_dir, tenant) if each.is_file()]
    return {str(each.relative_to(state_dir)): each.read_text(encoding="utf-8") for each in files}


def remove_state(state_dir: Path, tenant: str) -> None:
    """All of it, also a killed writer's remains. Fine where there is none."""
    checkpoint = _checkpoint(state_dir, tenant)
    if checkpoint.exists():
        shutil.rmtree(checkpoint)
    for file in _own_files(state_dir, tenant):
        for each in (file, *file.parent.glob(f"{tenant}.*{UNFINISHED}")):
            each.unlink(missing_ok=True)


def replace_state(state_dir: Path, tenant: str, files: dict[str, str]) -> None:
    """Have ``files`` and nothing else of the tenant. Cut off, it is to be done again.

    Raises:
        ValueError: a path leads elsewhere; nothing was changed.
    """
    ours = [_checkpoint(state_dir, tenant).resolve(), *(each.resolve() for each in _own_files(state_dir, tenant))]
    paths = {state_dir / name: text for name, text in files.items()}
    for path in paths:
        if not any(path.resolve().is_relative_to(each) for each in ours):
            raise ValueError(f"{path} is no state of tenant {tenant}")
    remove_state(state_dir, tenant)
    for path, text in paths.items():
        replace_durably(path, text.encode())


def _checkpoint(state_dir: Path, tenant: str) -> Path:
    return state_dir / "checkpoints" / tenant


def _own_files(state_dir: Path, tenant: str) -> list[Path]:
    paths = progress_path, parked_keys_path, cut_path, read_ahead_path, resyncs_path
    return [path(state_dir, tenant) for path in paths]
