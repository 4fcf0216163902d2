"""The tables' columns, as they are now or as they were: the knowledge of vttablet's schema engine and historian.

Without tracking, a row of the log is described by its table's *present* columns, as Vitess does unless
--track-schema-versions is given. With it, the columns are noted after each DDL statement, by position: by a test itself
(``track``), or by a thread for each shard that follows its log (``schema_tracker``).
"""

import threading
from typing import Final

from libs.mysql.gtid import GtidSet
from libs.mysql.identifiers import quote_identifier
from libs.source.mysql.client import query
from libs.stand_ins.vtgate.fields import TableFields, table_fields, table_names
from libs.stand_ins.vtgate.topology import Shard, Tablet

REACHED_TIMEOUT_S: Final = 30.0


class Schemas:
    """Of all tablets; asked by every stream."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tracked: dict[tuple[str, int], list[tuple[GtidSet, dict[str, TableFields]]]] = {}
        self._reached: dict[tuple[str, int], GtidSet] = {}
        """How far the tracking thread of each tablet has read its log."""

    def at(self, tablet: Tablet, database: str, table: str, position: GtidSet) -> TableFields | None:
        """The table's columns for rows at ``position``; None: there is no such table (any more)."""
        server = (tablet.host, tablet.port)
        with self._changed:
            if server in self._reached:
                self._changed.wait_for(lambda: self._reached[server].is_superset(position), REACHED_TIMEOUT_S)
            versions = self._tracked.get(server, ())
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
        self.note(shard.primary, GtidSet.parse(shard.primary.position().removeprefix("MySQL56/")))

    def note(self, tablet: Tablet, position: GtidSet) -> None:
        """From ``position`` on the tables have the columns that they have now."""
        tables = _tables_now(tablet)
        with self._changed:
            self._tracked.setdefault((tablet.host, tablet.port), []).append((position, tables))

    def reached(self, tablet: Tablet, position: GtidSet) -> None:
        """Every DDL statement up to ``position`` is noted."""
        with self._changed:
            self._reached[tablet.host, tablet.port] = position
            self._changed.notify_all()


def _tables_now(tablet: Tablet) -> dict[str, TableFields]:
    connection = tablet.connect()
    try:
        names = table_names(connection, tablet.database)
        for name in names:
            # The log shows a statement before its end: this waits for it.
            query(connection, f"SELECT 1 FROM {quote_identifier(name)} LIMIT 0")
        found = ((name, table_fields(connection, tablet.database, name)) for name in names)
        return {name: fields for name, fields in found if fields is not None}
    finally:
        connection.close()
