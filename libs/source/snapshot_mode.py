"""A reader's first step, by its ``snapshot.mode`` and its checkpoint: a plain function, one table."""

import enum
from dataclasses import dataclass
from typing import Final


class SnapshotMode(enum.Enum):
    """A reader's first step; Debezium's ``snapshot.mode``. An interrupted copy always goes on."""

    INITIAL = "initial"
    """Without a checkpoint: copy the rows there are, then follow the log."""
    ALWAYS = "always"
    """At each start that finds no unfinished copy: copy all rows, then follow the log. With a checkpoint the log is followed up
    to the copy first."""
    INITIAL_ONLY = "initial_only"
    """Without a checkpoint: copy the rows there are. The log is not followed."""
    NO_DATA = "no_data"
    """Without a checkpoint: learn the tables' schemas, then follow the log from now."""
    SCHEMA_ONLY = "schema_only"
    """Debezium's older name of ``no_data``."""
    NEVER = "never"
    """Without a checkpoint: follow the log from its beginning, which must hold every CREATE TABLE."""
    WHEN_NEEDED = "when_needed"
    """As ``initial``; and when the source no longer holds the log to resume from, copy all rows again."""
    RECOVERY = "recovery"
    """With a checkpoint: learn the tables' schemas again, as they are now, then follow the log: for a schema history that was
    lost while no table changed. Set the mode back afterwards."""


COPIES_NOTHING: Final = frozenset({SnapshotMode.NO_DATA, SnapshotMode.SCHEMA_ONLY, SnapshotMode.NEVER})
"""The modes in which no row is copied where nothing was read before."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The step before the log is followed."""

    learns_schemas: bool = False
    """Record every captured table as it is at the source now."""
    copies: bool = False
    """Copy rows: all of them, or the rest of an interrupted copy."""
    copies_again: bool = False
    """All rows, without regard to an earlier copy."""
    starts_over: bool = False
    """Nothing of the checkpoint counts, neither its position nor a copy's progress; later events have a new epoch."""
    from_oldest_log: bool = False
    """Follow from the first transaction that the source still holds."""
    follows_log: bool = True


def beginning(
    mode: SnapshotMode, *, has_checkpoint: bool, is_copying: bool, is_purged: bool, is_process_start: bool
) -> Beginning:
    """``is_copying``: the checkpoint is of an unfinished copy. ``is_purged``: the source no longer holds the log after the
    checkpoint. ``is_process_start``: not a connection that is opened again by the same process.

    A purged position is the caller's error unless the result ``starts_over``.
    """
    follows_log = mode is not SnapshotMode.INITIAL_ONLY
    if is_purged and mode is SnapshotMode.WHEN_NEEDED:
        return Beginning(learns_schemas=True, copies=True, starts_over=True)
    if not has_checkpoint:
        if mode is SnapshotMode.NEVER:
            return Beginning(from_oldest_log=True)
        return Beginning(learns_schemas=True, copies=mode not in COPIES_NOTHING, follows_log=follows_log)
    copies_again = mode is SnapshotMode.ALWAYS and is_process_start and not is_copying
    return Beginning(
        learns_schemas=mode is SnapshotMode.RECOVERY and is_process_start,
        copies=is_copying or copies_again,
        copies_again=copies_again,
        follows_log=follows_log,
    )
