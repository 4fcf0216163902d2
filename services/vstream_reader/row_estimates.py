"""How many rows a copy should have, by MySQL's statistics."""

import asyncio
from collections.abc import Iterable, Sequence

import structlog

from libs.errors import HeadwaterError
from services.vstream_reader.client import Vtgate

log = structlog.get_logger()


async def estimated_rows(vtgate: Vtgate, keyspace: str, tables: Sequence[str], shards: Iterable[str]) -> int:
    """The rows of the tables in these shards; 0 where they are unknown: a copy does without."""
    try:
        of_shards = await asyncio.gather(*(vtgate.row_estimates(keyspace, shard) for shard in sorted(shards)))
    except HeadwaterError as error:
        log.info("rows_not_estimated", reason=str(error))
        return 0
    return sum(estimates.get(table, 0) for estimates in of_shards for table in tables)
