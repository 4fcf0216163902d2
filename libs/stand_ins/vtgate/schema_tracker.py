"""The work of vttablet's --track_schema_versions: the columns of tables are noted after each DDL statement of the log.

Vitess keeps them in ``_vt.schema_version``; here they are forgotten when the stand-in ends, so rows older than its start are
described by the present columns.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from libs.errors import HeadwaterError
from libs.mysql.gtid import GtidSet
from libs.stand_ins.vtgate.log_stream import DDL, OTHER, LogStream, TabletOptions
from libs.stand_ins.vtgate.schemas import Schemas
from libs.stand_ins.vtgate.topology import Refused, Shard, Topology
from protos.vitess.binlogdata_pb2 import Filter

RETRY_PAUSE_S: Final = 0.5


@contextlib.contextmanager
def tracked_schemas(topology: Topology, schemas: Schemas) -> Iterator[None]:
    """Follow the primary of each shard until the block ends; streams wait for the tracker where they are ahead of it."""
    stop = threading.Event()
    threads = []
    for shard in topology.shards():
        begin = GtidSet.parse(shard.primary.position().removeprefix("MySQL56/"))
        schemas.note(shard.primary, begin)
        schemas.reached(shard.primary, begin)
        threads.append(
            threading.Thread(
                target=_follow, args=(shard, begin, schemas, stop), daemon=True, name=f"schemas of {shard.name}"
            )
        )
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _follow(shard: Shard, position: GtidSet, schemas: Schemas, stop: threading.Event) -> None:
    while not stop.is_set():
        log = LogStream(
            shard,
            shard.primary,
            position,
            Filter(),  # of no table: each DDL statement comes as OTHER, and no columns are asked for
            vindex_columns={},
            with_heartbeat_table=False,
            options=TabletOptions(),
            schemas=schemas,
            stop=stop,
        )
        # A primary that is gone just now is followed from there when it is back.
        with contextlib.suppress(HeadwaterError, Refused):
            for packet in log.packets():
                position = log.position
                if any(event.type in (DDL, OTHER) for event in packet):
                    schemas.note(shard.primary, position)
                schemas.reached(shard.primary, position)
        stop.wait(RETRY_PAUSE_S)
