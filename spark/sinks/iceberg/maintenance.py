"""Upkeep that keeps a table fast to read and its folder small: numbers decide, Iceberg's procedures do it.

The job that writes the table also maintains it, right after a commit of its own, so that the two never conflict. All of it
runs in sessions without a batch's identity: it changes no row.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog
from pyspark.sql import SparkSession

from libs.types.warehouse import BATCH_PROPERTY, CATALOG, WarehouseTable
from spark.sinks.iceberg.settings import Settings
from spark.sinks.iceberg.table_facts import facts_of

ORPHANS_REMOVED_AT: Final = "headwater.orphans-removed-at"
"""Property of a table: the sequence number that it had then."""
_MANY_MANIFESTS: Final = 50
"""A scan opens each; Iceberg itself joins them from 100 on."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TableState:
    """A table in numbers, after a commit."""

    data_files: int
    delete_files: int
    bytes: int
    snapshots: int
    manifests: int
    commits: int
    """From its creation on: the sequence number."""
    orphans_removed_at: int
    identity_age: int
    """How many snapshots were committed since, and with, the newest that carries a batch's identity; 0: none does."""


@dataclass(frozen=True, slots=True)
class Due:
    """The due work on a table."""

    rewrite_files: bool = False
    rewrite_manifests: bool = False
    remove_orphans: bool = False
    expire_but: int | None = None
    """Keep so many snapshots; None: all."""


def due(state: TableState, settings: Settings, *, rewritten_files: int) -> Due:
    """The due work. ``rewritten_files``: how many data files the last rewrite left.

    Expiry never takes the newest snapshot that carries an identity: a replayed batch is known by it.
    """
    if not settings.is_maintaining:
        return Due()
    is_small = state.bytes < state.data_files * settings.target_file_mb * 1_000_000 // 2
    # By a number alone a table of a thousand files would be written again for every few merges of its own.
    has_many_deletes = state.delete_files >= max(settings.rewrite_at_delete_files, state.data_files // 2)
    has_grown = state.data_files >= max(settings.rewrite_at_files, 2 * rewritten_files)
    since_orphans = state.commits - state.orphans_removed_at
    return Due(
        rewrite_files=has_many_deletes or (has_grown and is_small),
        rewrite_manifests=state.manifests >= _MANY_MANIFESTS,
        remove_orphans=0 < settings.orphans_every_commits <= since_orphans,
        expire_but=max(settings.keep_snapshots, state.identity_age)
        if state.snapshots >= 2 * settings.keep_snapshots
        else None,
    )


def state_of(spark: SparkSession, iceberg_table: Any) -> TableState | None:
    """The table in numbers; None: nothing was ever written to it."""
    facts = facts_of(spark, iceberg_table, counts_manifests=True)
    if (newest := facts.newest) is None:
        return None
    return TableState(
        data_files=newest.total("data-files"),
        delete_files=newest.total("delete-files"),
        bytes=newest.total("files-size"),
        snapshots=facts.snapshots,
        manifests=newest.manifests,
        commits=newest.sequence_number,
        orphans_removed_at=int(facts.properties.get(ORPHANS_REMOVED_AT) or 0),
        identity_age=newest.batch_age,
    )


def newest_identity(iceberg_table: Any, snapshot: Any) -> str | None:
    """The last batch in the table at ``snapshot``, also after other commits."""
    found = newest_with_identity(iceberg_table, snapshot)
    return None if found is None else str(found.summary().get(BATCH_PROPERTY))


def newest_with_identity(iceberg_table: Any, snapshot: Any) -> Any | None:
    """The snapshot that holds it."""
    while snapshot is not None and snapshot.summary().get(BATCH_PROPERTY) is None:
        parent = snapshot.parentId()
        snapshot = None if parent is None else iceberg_table.snapshot(parent)
    return snapshot


def maintain(spark: SparkSession, settings: Settings, place: WarehouseTable, iceberg_table: Any, due_now: Due) -> None:
    """Do the due work; a failed part is tried again after the next commit."""
    name, session = f"table => '{place.quoted()}'", spark.newSession()
    if due_now.rewrite_files:
        started_s = time.monotonic()
        strategy = "sort" if iceberg_table.sortOrder().isSorted() else "binpack"
        options = {
            "delete-file-threshold": "1",
            "remove-dangling-deletes": "true",
            "target-file-size-bytes": str(settings.target_file_mb * 1_000_000),
        }
        listed = ", ".join(f"'{option}', '{value}'" for option, value in options.items())
        arguments = f"{name}, strategy => '{strategy}', options => map({listed})"
        session.sql(f"CALL {CATALOG}.system.rewrite_data_files({arguments})")
        log.info("sink_table_rewritten", table=str(place), took_s=round(time.monotonic() - started_s, 2))
    if due_now.rewrite_manifests:
        session.sql(f"CALL {CATALOG}.system.rewrite_manifests({name}, use_caching => false)")
    if due_now.expire_but is not None:
        keep = f"older_than => current_timestamp(), retain_last => {due_now.expire_but}"
        session.sql(f"CALL {CATALOG}.system.expire_snapshots({name}, {keep})")
    if due_now.remove_orphans:
        # A procedure takes constants: the session's zone is UTC.
        oldest = datetime.now(UTC) - timedelta(hours=settings.orphans_older_than_hours)
        age = f"older_than => TIMESTAMP '{oldest:%Y-%m-%d %H:%M:%S}'"
        # An object store is listed by the client that writes to it; Iceberg's own way wants a file system of Hadoop's for it.
        how = f"prefix_listing => {str(not settings.is_folder).lower()}"
        removed = session.sql(f"CALL {CATALOG}.system.remove_orphan_files({name}, {age}, {how})").count()
        iceberg_table.refresh()
        sequence = iceberg_table.currentSnapshot().sequenceNumber()
        iceberg_table.updateProperties().set(ORPHANS_REMOVED_AT, str(sequence)).commit()
        log.info("sink_orphans_removed", table=str(place), files=removed)
