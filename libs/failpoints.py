"""Named crash points, so that a test can kill a process in the one gap that matters.

``HEADWATER_FAILPOINTS="after_publish_before_commit=kill"`` arms them; several are separated by commas.
Actions: ``kill`` (SIGKILL to the own process, as a power cut would), ``freeze`` (SIGSTOP to it), ``raise`` (a
``TransientError``), ``sleep:SECONDS`` and ``end`` (``Ended``). ``name=kill@3`` acts on the third pass only. Unarmed, a
failpoint costs one dictionary look-up on an empty dictionary.

``end`` is a kill for a test in whose own process the code runs: see ``armed``.

After supabase/etl's ``failpoints.rs``: the names are listed here, and a name that is not listed is refused.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from libs.errors import InvalidSettings, TransientError

NAMES: Final = frozenset(
    {
        # reader
        "reader_after_produce_before_commit",  # events and checkpoint sent, transaction open
        "reader_after_commit",  # transaction committed, nobody informed yet
        "reader_between_snapshot_chunks",
        "reader_between_watermarks",  # a chunk was read, its high watermark not yet
        "reader_between_incremental_chunks",
        "reader_before_shards_taken_up",  # of several tasks: all let them go, nobody has said that he reads them
        "reader_after_schema_recorded_before_publish",
        # router
        "router_after_produce_before_offsets",
        "router_after_offsets_before_commit",
        "router_after_acknowledged_before_commit",  # Kafka has every record and the offset
        "router_after_commit",
        "router_straggler_after_produce_before_offset",
        "router_straggler_after_offset_before_commit",
        "router_straggler_after_commit",
        "router_after_leaving_before_commit",  # tenants that begin to lag or come back are sent, nothing is committed
        "router_after_leaving_committed",  # ... and all is, but nobody carries their events on yet
        # sink
        "sink_after_letters_before_parked_keys",
        "sink_after_parked_keys_before_merge",
        "sink_after_read_ahead_before_tables",
        "sink_before_state_kept",  # a batch is to begin, the object store does not know
        "sink_after_state_kept",  # ... it does, nothing of the batch is written
        "sink_before_merge",
        "sink_after_try_before_merge",  # of a parked table: the rows to write are noted, none is written
        "sink_after_rows_before_commit",  # a small table's files are written, and nobody knows of them (Iceberg)
        "sink_before_attach",  # the batch's parts are made, a log's intent is noted, the table has none of them (ClickHouse)
        "sink_before_commit",  # PostgreSQL: rows written, the batch noted, the transaction open; ClickHouse: not noted yet
        "sink_after_merge_before_next_table",
        "sink_after_swap_before_answer",
        "sink_after_cut_before_tables",
        "sink_after_listing_before_showing",  # readers of the listed snapshots have the new ones, others not yet
        "sink_between_shown_tables",
        "sink_after_showing_before_maintenance",
        "sink_after_batch_before_spark_commit",
        "sink_move_before_handover",  # the tenant is stopped, and will not be served here again; nobody knows yet
        "sink_move_after_handover",  # its state is in Kafka, and here too
        "sink_move_after_taking_files",  # the state lies here, unfinished as far as the job knows
        "sink_move_after_taking",  # ... and is taken; nobody knows yet
        "sink_drop_between_tables_and_state",
        "sink_drop_before_answer",
        # headwater erase
        "erase_after_document",
        "erase_after_kafka",
        "erase_between_catalog_and_files",  # no reader finds the tables, their files are there
        "erase_before_postgresql_commit",  # everything is dropped, the transaction open
        "erase_after_tables",
        "erase_after_state",
        "erase_before_looking_again",
        # headwater up, and tenant_operator
        "joining_after_noting_before_sending",  # that a tenant joined is on disk, nobody was asked for its rows yet
        "joining_after_sending_before_noting",
        "operator_after_recording_move",  # a tenant's record says that it moves, no job does
        # services
        "schema_history_after_kafka_before_answer",
        "checkpoint_committer_after_lease_before_answer",
    }
)
ENVIRONMENT_VARIABLE: Final = "HEADWATER_FAILPOINTS"


class Ended(Exception):
    """The code that comes here is taken for killed: a process would be gone by now."""


class Life:
    """The block of ``armed``, which takes code of its own process for a process that may be killed."""

    __slots__ = ("ended_at",)

    def __init__(self) -> None:
        self.ended_at: str | None = None
        """The failpoint whose ``end`` was reached; from then on every other one ends code that reaches it, in any thread."""


class _Armed:
    __slots__ = ("action", "on_pass", "passes")

    def __init__(self, action: str, on_pass: int | None) -> None:
        self.action = action
        self.on_pass = on_pass
        self.passes = 0


def _parse(text: str) -> dict[str, _Armed]:
    armed: dict[str, _Armed] = {}
    mistakes: list[str] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, action = item.partition("=")
        action, _, on_pass = action.partition("@")
        if name not in NAMES:
            mistakes.append(f"{name!r} is no failpoint; known: {', '.join(sorted(NAMES))}")
        elif action not in ("kill", "freeze", "raise", "end") and not action.startswith("sleep:"):
            mistakes.append(f"{name}: action {action!r} is none of kill, freeze, raise, end, sleep:SECONDS")
        else:
            armed[name] = _Armed(action, int(on_pass) if on_pass else None)
    if mistakes:
        raise InvalidSettings(ENVIRONMENT_VARIABLE, mistakes)
    return armed


_armed = _parse(os.environ.get(ENVIRONMENT_VARIABLE, ""))
_life: Life | None = None


@contextmanager
def armed(text: str) -> Iterator[Life]:
    """Arm failpoints as ``text`` has it, instead of as the environment had, for a block in one thread."""
    global _armed, _life
    before = _armed, _life
    _armed, _life = _parse(text), Life()
    try:
        yield _life
    finally:
        _armed, _life = before


def failpoint(name: str) -> None:
    """Do the action armed for ``name``; nothing otherwise."""
    if _life is not None and _life.ended_at is not None:
        raise Ended(f"failpoint {name}: this life has ended at {_life.ended_at}")
    point = _armed.get(name)
    if point is None:
        return
    point.passes += 1
    if point.on_pass is not None and point.passes != point.on_pass:
        return
    if point.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif point.action == "freeze":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif point.action == "end":
        assert _life is not None, "the action `end` is for failpoints.armed"
        _life.ended_at = name
        raise Ended(f"failpoint {name} reached")
    elif point.action == "raise":
        raise TransientError(f"failpoint {name} reached")
    else:
        time.sleep(float(point.action.partition(":")[2]))
