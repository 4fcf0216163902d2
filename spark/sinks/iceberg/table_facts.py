"""Iceberg's facts of a table, asked for in one call (``TableFacts.java``): each call to Java costs a tenth of a millisecond,
and tables may be hundreds."""

from typing import Any, Final

import msgspec
from pyspark.sql import SparkSession

from libs.types.warehouse import BATCH_PROPERTY
from spark.jvm.java import compiled_object

_CLASS: Final = "TableFacts"


class SnapshotFacts(msgspec.Struct, frozen=True):
    """Of the snapshot that is shown."""

    id: int
    sequence_number: int
    summary: dict[str, str]
    batch: str | None = None
    """The identity of the last batch in the table, also after other commits; None: no snapshot names one."""
    batch_age: int = 0
    """How many snapshots were committed since the one that names it, and with it; 0: none does."""
    manifests: int = 0

    def total(self, name: str) -> int:
        """``data-files``, ``records`` and so on."""
        return int(self.summary.get(f"total-{name}") or 0)


class TableFacts(msgspec.Struct, frozen=True):
    """Of a table as it was loaded, or refreshed last."""

    format_version: int
    uuid: str
    """Of this table for its life; another table of its name has another."""
    schema: str
    """JSON, as Iceberg's specification has it."""
    properties: dict[str, str]
    is_partitioned: bool
    is_sorted: bool
    snapshots: int
    newest: SnapshotFacts | None = None
    """None: nothing was ever written."""


def facts_of(spark: SparkSession, iceberg_table: Any, *, counts_manifests: bool = False) -> TableFacts:
    """``counts_manifests``: a file is read for that."""
    answer = compiled_object(spark, _CLASS).tell(iceberg_table, BATCH_PROPERTY, counts_manifests)
    return msgspec.json.decode(answer, type=TableFacts)
