"""Settings of one VStream reader: one keyspace of a Vitess cluster, or one task's part of its shards."""

import re
import tempfile
from collections.abc import Iterator, Sequence

from libs.config.connections import (
    GrpcClientSettings,
    GrpcServerSettings,
    KafkaSettings,
    TelemetrySettings,
)
from libs.source.vitess.settings import COPIES_NOTHING, KeyspaceSettings, keyspace_mistakes
from libs.source.vitess.settings import VitessSnapshotMode as SnapshotMode
from libs.source.vitess.settings import VitessSnapshotSettings as SnapshotSettings
from libs.source.vitess.tasks import TaskSettings

__all__ = ["COPIES_NOTHING", "SnapshotMode", "SnapshotSettings", "VstreamReaderSettings", "mistakes_in"]


class VstreamReaderSettings(KeyspaceSettings, frozen=True, kw_only=True):
    """All settings of one VStream reader."""

    source: str
    """Name of the source: ``topic.prefix`` of its events. Letters, digits, ``_`` and ``-``."""
    tasks: TaskSettings | None = None
    lease_s: float = 15.0
    """How long a dead reader's partition stays reserved, in seconds; renewed three times as often."""
    spill_dir: str = tempfile.gettempdir()
    """A folder for transactions that do not fit into memory: it should hold the largest that the source ever writes."""
    kafka: KafkaSettings = KafkaSettings()
    schema_history: GrpcClientSettings
    checkpoint_committer: GrpcClientSettings
    grpc: GrpcServerSettings = GrpcServerSettings()
    telemetry: TelemetrySettings = TelemetrySettings()


def mistakes_in(settings: VstreamReaderSettings) -> list[str]:
    """Mistakes that no single field's type shows, place first; empty: all is well."""
    return [
        *keyspace_mistakes(settings),
        *([] if settings.lease_s > 0 else [f"lease_s: must be more than 0, is {settings.lease_s}"]),
        *_pattern_mistakes("include_tables", settings.include_tables),
        *_pattern_mistakes("exclude_tables", settings.exclude_tables),
        *_pattern_mistakes("snapshot.include_tables", settings.snapshot.include_tables),
        *_copy_mistakes(settings.snapshot),
        *(_task_mistakes(settings.tasks) if settings.tasks is not None else ()),
    ]


def _pattern_mistakes(place: str, patterns: Sequence[str]) -> Iterator[str]:
    for index, pattern in enumerate(patterns):
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"{place}[{index}]: is no regular expression ({error})"


def _copy_mistakes(snapshot: SnapshotSettings) -> Iterator[str]:
    if not snapshot.include_tables and snapshot.mode not in COPIES_NOTHING:
        yield "snapshot.include_tables: is empty; to copy nothing set snapshot.mode to no_data"


def _task_mistakes(tasks: TaskSettings) -> Iterator[str]:
    if tasks.of < 1 or not 0 <= tasks.number < tasks.of:
        yield f"tasks.number: must be 0 to {tasks.of - 1} (tasks.of is {tasks.of}), is {tasks.number}"
    if tasks.generation < 0:
        yield "tasks.generation: must be 0 or more; one more at each change of tasks.of"
    if tasks.previous_tasks < 1:
        yield "tasks.previous_tasks: must be how many tasks there were in the generation before, 1 or more"
