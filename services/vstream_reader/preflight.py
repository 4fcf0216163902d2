"""The pre-flight: everything that vtgate and the settings must agree on before a stream is opened."""

from collections.abc import Sequence

import structlog

from libs.errors import SourceMisconfigured
from services.vstream_reader.client import Vtgate
from services.vstream_reader.settings import VstreamReaderSettings
from services.vstream_reader.snapshot import chosen_tables
from services.vstream_reader.vgtid import overlap

log = structlog.get_logger()


async def require_sound_source(
    settings: VstreamReaderSettings, vtgate: Vtgate, *, has_begun: bool
) -> tuple[Sequence[str], Sequence[str]]:
    """The pre-flight: the shards that are read, by this task or another, and the tables captured; sorted.

    ``has_begun``: there is a checkpoint, and a shard that the settings name may have given way to others since.

    Raises:
        SourceUnavailable: no answer; try again.
        SourceMisconfigured: every fault, with its mend. AccessDenied, PipelineHalted.
    """
    keyspaces = await vtgate.keyspaces()
    if settings.keyspace not in keyspaces:
        known = ", ".join(sorted(keyspaces)) or "none"
        raise SourceMisconfigured(f"vtgate has no keyspace {settings.keyspace!r}; known: {known}; correct 'keyspace'")
    serving = await vtgate.shards(settings.keyspace)
    named = sorted(settings.shards or serving)
    unknown = [shard for shard in named if shard not in serving]
    if unknown and has_begun:
        log.info("shards_have_given_way", gone=unknown, serving=serving)
        named = [shard for shard in sorted(serving) if any(overlap(shard, each) for each in named)]
    elif unknown:
        raise SourceMisconfigured(
            f"keyspace {settings.keyspace} has no shard {', '.join(unknown)}; it has {', '.join(serving)}: correct 'shards', "
            "or leave it empty to read all of them, through reshards too"
        )
    tables = chosen_tables(settings, await vtgate.tables(settings.keyspace))
    if not tables:
        raise SourceMisconfigured(
            f"no table of keyspace {settings.keyspace} matches include_tables ({', '.join(settings.include_tables)}): "
            "correct the pattern (it must match keyspace.table)"
        )
    return named, tables
