"""The tables' columns, as they are now or as they were: what vttablet's schema engine and historian know.

Without tracking, a row of the log is described by its table's *present* columns, as Vitess does unless
--track-schema-versions is given. With it, the columns are noted after each DDL statement, by position.
"""

import threading

from libs.mysql.gtid import GtidSet
from tests.vtgate.fields import TableFields, table_fields, table_names
from tests.vtgate.topology import Shard, Tablet


class Schemas:
    """Of all tablets; asked by every stream."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tracked: dict[tuple[str, int], list[tuple[GtidSet, dict[str, TableFields]]]] = {}

    def at(self, tablet: Tablet, database: str, table: str, position: GtidSet) -> TableFields | None:
        """The table's columns for rows at ``position``; None: there is no such table (any more)."""
        with self._lock:
            versions = self._tracked.get((tablet.host, tablet.port), ())
            older = [tables for executed, tables in versions if position.is_superset(executed)]
        if older and table in older[-1]:
            return older[-1][table]
        connection = tablet.connect()
        try:
            return table_fields(connection, database, table)
        finally:
            connection.close()

    def track(self, shard: Shard) -> None:
        """Note the columns of the shard's tables as they are now: call it before and after each DDL statement."""
        tablet = shard.primary
        connection = tablet.connect()
        try:
            tables = {
                name: found
                for name in table_names(connection, tablet.database)
                if (found := table_fields(connection, tablet.database, name)) is not None
            }
        finally:
            connection.close()
        position = GtidSet.parse(tablet.position().removeprefix("MySQL56/"))
        with self._lock:
            self._tracked.setdefault((tablet.host, tablet.port), []).append((position, tables))
