"""How far the Spark job got, from its files: the checkpoint and the job's own progress file.

Read by ``status``, ``check`` and the demo. Files, so that a sink that is down is covered too.
"""

import contextlib
import datetime
import os
from pathlib import Path

import msgspec

from libs.mesh.home import Home
from libs.sink_state.progress import SinkProgress, TableProgress, decode_sink_progress
from libs.sink_state.stream_offsets import StreamOffsets, load_stream_offsets


def sink_progress(home: Home, tenant: str) -> SinkProgress | None:
    """The progress file of a tenant; None where there is none yet."""
    try:
        return decode_sink_progress((home.sink_dir / "progress" / f"{tenant}.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def parked_tables(home: Home, tenant: str) -> dict[tuple[str, str], str]:
    """Why tables of a tenant wait for a human, with the remedy and since when they have nothing new, by source and
    ``database.table``."""
    progress = sink_progress(home, tenant)
    return (
        {}
        if progress is None
        else {(table.source, table.table): _parked(table) for table in progress.tables.values() if table.needs_a_human}
    )


def _parked(table: TableProgress) -> str:
    assert table.parked is not None
    if not table.written_at_us:
        return f"parked: {table.parked.because}"
    written_at = datetime.datetime.fromtimestamp(table.written_at_us / 1e6, datetime.UTC)
    return f"parked, last written at {written_at.isoformat(timespec='seconds')}: {table.parked.because}"


def committed_offsets(home: Home, tenant: str) -> StreamOffsets:
    """The offsets that the tenant's query has written to the warehouse for good; topics that it never saw are missing."""
    checkpoint = home.sink_dir / "checkpoints" / tenant
    newest = max(_batches(checkpoint / "commits") & _batches(checkpoint / "offsets"), default=None)
    if newest is None:
        return {}
    return load_stream_offsets(home.sink_dir, tenant, newest)


def _batches(folder: Path) -> set[int]:
    with contextlib.suppress(OSError):
        # Names and no paths: those of 1,000 tenants cost a fifth of a second.
        return {int(name) for name in os.listdir(folder) if name.isdigit()}  # noqa: PTH208
    return set()
