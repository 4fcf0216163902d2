"""Tables that are shown together: written to a branch first, then ``main`` moves to it (write, audit, publish).

Iceberg documentation, "Branching and Tagging"; Spark writes, "Writing to branches". The session's ``spark.wap.branch`` makes
all that it reads and writes of a table be of the branch, where there is one.
"""

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from libs.types.warehouse import (
    BATCH_PROPERTY,
    CATALOG,
    REACHED_AT_PROPERTY,
    REACHED_ORDER_PROPERTY,
    SOURCE_PROPERTY,
    TABLE_PROPERTY,
    WarehouseTable,
)
from spark.transforms.local_rows import local_rows

AUDIT_BRANCH: Final = "headwater_audit"
_MAIN: Final = "main"
_WAP_BRANCH: Final = "spark.wap.branch"
_WAP_ENABLED: Final = "write.wap.enabled"
_CONSISTENT_SQL: Final = (
    "`table` string, source string, source_table string, snapshot_id bigint, `order` string, committed_at_us bigint, "
    "batch string"
)

_PROPERTIES: Final = (
    "'write.metadata.delete-after-commit.enabled' = 'true', 'write.metadata.previous-versions-max' = '20'"
)


def stage(spark: SparkSession) -> None:
    """Send the later writes of ``spark`` to the branch."""
    spark.conf.set(_WAP_BRANCH, AUDIT_BRANCH)


def is_staging(spark: SparkSession) -> bool:
    """Whether it does."""
    return spark.conf.get(_WAP_BRANCH, None) == AUDIT_BRANCH


def staged_snapshot(iceberg_table: Any) -> Any | None:
    """The branch's newest snapshot, if it goes on from the visible one; None: nothing waits, or it was overtaken."""
    staged = iceberg_table.snapshot(AUDIT_BRANCH)
    shown = iceberg_table.currentSnapshot()
    snapshot = staged
    while snapshot is not None and shown is not None and snapshot.snapshotId() != shown.snapshotId():
        parent = snapshot.parentId()
        snapshot = None if parent is None else iceberg_table.snapshot(parent)
    return staged if snapshot is not None else None


def prepare(iceberg_table: Any) -> None:
    """Let the table's rows wait on the branch; one that was overtaken (the tenant's rows were shown by other means) goes."""
    if iceberg_table.properties().get(_WAP_ENABLED) != "true":
        iceberg_table.updateProperties().set(_WAP_ENABLED, "true").commit()
    if iceberg_table.snapshot(AUDIT_BRANCH) is not None and staged_snapshot(iceberg_table) is None:
        iceberg_table.manageSnapshots().removeBranch(AUDIT_BRANCH).commit()


def show(iceberg_table: Any) -> None:
    """Move ``main`` to the waiting snapshot, in one commit; do nothing if there is none."""
    if staged_snapshot(iceberg_table) is not None:
        moved = iceberg_table.manageSnapshots().fastForwardBranch(_MAIN, AUDIT_BRANCH)
        moved.removeBranch(AUDIT_BRANCH).commit()


ConsistentRow = tuple[str, str, str, int, str, int, str]
"""As ``_CONSISTENT_SQL`` has them."""


def consistent_row(name: WarehouseTable, iceberg_table: Any, snapshot: Any, of_batch: Any) -> ConsistentRow:
    """A table's published facts: its snapshot, and those of ``of_batch``, the newest one up to it that is of a batch."""
    said, properties = of_batch.summary(), iceberg_table.properties()
    return (
        str(name),
        properties.get(SOURCE_PROPERTY),
        properties.get(TABLE_PROPERTY),
        snapshot.snapshotId(),
        said.get(REACHED_ORDER_PROPERTY),
        int(said.get(REACHED_AT_PROPERTY) or 0),
        said.get(BATCH_PROPERTY),
    )


def tell(spark: SparkSession, place: WarehouseTable, rows: Sequence[ConsistentRow]) -> None:
    """The table at ``place`` has a row for each of ``rows``' tables, and those that it had of others; one commit."""
    plain, name = spark.newSession(), place.quoted()
    levels = ".".join(f"`{level}`" for level in (CATALOG, *place.namespace))
    plain.sql(f"CREATE NAMESPACE IF NOT EXISTS {levels}")
    plain.sql(f"CREATE TABLE IF NOT EXISTS {name} ({_CONSISTENT_SQL}) USING iceberg TBLPROPERTIES ({_PROPERTIES})")
    before = {row[0]: tuple(row) for row in plain.table(name).collect()}
    after = before | {row[0]: row for row in rows}
    if after != before:
        listed = sorted(after.values())
        local_rows(plain, listed, _CONSISTENT_SQL).coalesce(1).writeTo(name).overwrite(sf.lit(True))
