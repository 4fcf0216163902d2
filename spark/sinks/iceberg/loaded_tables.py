"""Tables that a batch has loaded: it asks for each a few times in a row.

To load one is to make all that it is made of, and to read its metadata; of one that is refreshed only the catalog is asked, and
nothing is read where nothing has come.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.types.warehouse import WarehouseTable
from spark.jvm.java import activate

_MOST_TABLES: Final = 64
"""More than are written side by side; each holds the facts of its snapshots."""


class LoadedTables:
    """Of one catalog; for any thread, of which one at a time asks for a table."""

    def __init__(self, load: Callable[[SparkSession, WarehouseTable], Any | None]) -> None:
        self._load = load
        self._tables: dict[WarehouseTable, Any] = {}
        self._lock = threading.Lock()

    def table(self, spark: SparkSession, place: WarehouseTable) -> Any | None:
        """Iceberg's own table as it is now; None: there is none."""
        with self._lock:
            known = self._tables.pop(place, None)
        if known is not None:
            activate(spark)
            try:
                known.refresh()
            except Py4JJavaError:  # it is gone, or another one by that name: loading it shows which
                known = None
        found = self._load(spark, place) if known is None else known
        if found is not None:
            with self._lock:
                self._tables[place] = found
                if len(self._tables) > _MOST_TABLES:
                    del self._tables[next(iter(self._tables))]
        return found

    def last(self, spark: SparkSession, place: WarehouseTable) -> Any | None:
        """Iceberg's own table as somebody here has seen it last; loaded where nobody has."""
        with self._lock:
            known = self._tables.get(place)
        return self.table(spark, place) if known is None else known

    def forget(self) -> None:
        """State of a session, which may be another one next time."""
        with self._lock:
            self._tables.clear()
