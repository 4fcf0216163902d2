"""How far a source's replicas are behind, and whether a snapshot may read its next chunk (``snapshot.max_replica_lag_s``).

It is asked beside the reader's other work: a replica that does not answer holds up only the snapshot.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import pymysql
import structlog
from pymysql.cursors import DictCursor

from libs.errors import SourceMisconfigured, SourceUnavailable
from libs.source.mysql.client import Connection, as_ours, connect
from libs.source.mysql.settings import DatabaseSettings, SnapshotSettings
from libs.telemetry import metrics
from libs.types.position import SourcePartition

log = structlog.get_logger()

_ASKED_EVERY_S: Final = 1.0
_WAIT_S: Final = 0.1


class ReplicaThrottle:
    """Whether replicas are near enough, by an answer that is two seconds old at most."""

    def __init__(self, source: DatabaseSettings, snapshot: SnapshotSettings, partition: SourcePartition) -> None:
        self._source = source
        self._replicas = snapshot.lag_replicas
        self._max_lag_s = snapshot.max_replica_lag_s
        self._lag = metrics.SNAPSHOT_REPLICA_LAG.labels(partition.source, partition.name)
        self._asking: asyncio.Task[float] | None = None
        self._answered_s = float("-inf")
        self._is_near = False

    async def wait(self) -> None:
        """Until they are. Raises as ``lets_read``."""
        while not self.lets_read():  # noqa: ASYNC110 - the awaited event happens at other servers
            await asyncio.sleep(_WAIT_S)

    def lets_read(self) -> bool:
        """Whether a chunk may be read now; asks them where that is due, without waiting for the answer.

        Raises AccessDenied (REPLICATION CLIENT is needed); SourceMisconfigured: one of ``lag_replicas`` is no replica.
        """
        if self._max_lag_s is None:
            return True
        if self._asking is not None and self._asking.done():
            lag_s = self._asking.result()
            self._asking, self._answered_s, self._is_near = None, time.monotonic(), lag_s <= self._max_lag_s
            self._lag.set(lag_s)
            if not self._is_near:
                log.info("snapshot_waits_for_replicas", lag_s=lag_s, max_replica_lag_s=self._max_lag_s)
        age_s = time.monotonic() - self._answered_s
        if self._asking is None and age_s >= _ASKED_EVERY_S:
            self._asking = asyncio.create_task(self._ask())
        return self._is_near and age_s < 2 * _ASKED_EVERY_S

    async def _ask(self) -> float:
        try:
            return await asyncio.to_thread(replica_lag_s, self._source, self._replicas)
        except SourceUnavailable as error:
            log.warning("replica_lag_unknown", reason=str(error))
            return float("inf")


def replica_lag_s(source: DatabaseSettings, replicas: Sequence[DatabaseSettings]) -> float:
    """Seconds that the source, where it is a replica itself, or the slowest of ``replicas`` is behind; one that does not
    replicate counts as infinitely far. Blocks.

    Raises SourceUnavailable, AccessDenied (REPLICATION CLIENT is needed).
    """
    lags = [0.0]
    for settings in (source, *replicas):
        connection = connect(settings)
        try:
            behind = _seconds_behind(connection)
        except pymysql.Error as error:
            raise as_ours(error, settings) from error
        finally:
            connection.close()
        if not behind and settings is not source:
            raise SourceMisconfigured(f"snapshot.lag_replicas: {settings.host}:{settings.port} is no replica")
        lags += [float("inf") if lag is None else float(lag) for lag in behind]
    return max(lags)


def _seconds_behind(connection: Connection) -> list[int | None]:
    """Of each channel; None: it stands still. MySQL 8.0.22 renamed the statement."""
    with connection.cursor(DictCursor) as cursor:
        try:
            cursor.execute("SHOW REPLICA STATUS")
        except pymysql.ProgrammingError:
            cursor.execute("SHOW SLAVE STATUS")
        return [row.get("Seconds_Behind_Source", row.get("Seconds_Behind_Master")) for row in cursor.fetchall()]
