"""How far the Spark job got, from what it leaves in files: Spark's checkpoint and the job's own progress file.

Read by ``status``, ``check`` and the demo. Files, so that a sink that is down tells too.
"""

import contextlib
from pathlib import Path

import msgspec

from libs.local.home import Home
from libs.types.stream_offsets import StreamOffsets, load_stream_offsets
from libs.types.warehouse import SinkProgress, decode_sink_progress


def sink_progress(home: Home, tenant: str) -> SinkProgress | None:
    """The progress file of a tenant; None where there is none yet."""
    try:
        return decode_sink_progress((home.sink_dir / "progress" / f"{tenant}.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def committed_offsets(home: Home, tenant: str) -> StreamOffsets:
    """What the tenant's query has written to the warehouse for good; topics that it never saw are missing."""
    checkpoint = home.sink_dir / "checkpoints" / tenant
    newest = max(_batches(checkpoint / "commits") & _batches(checkpoint / "offsets"), default=None)
    if newest is None:
        return {}
    return load_stream_offsets(home.sink_dir, tenant, newest)


def _batches(folder: Path) -> set[int]:
    with contextlib.suppress(OSError):
        return {int(path.name) for path in folder.iterdir() if path.name.isdigit()}
    return set()
