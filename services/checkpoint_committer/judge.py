"""Which checkpoints count: a plain function, applied to every record of the log in order.

A reader commits a checkpoint in one Kafka transaction with the events that it covers, so a checkpoint in the log is a
fact: its events are out. That is why a checkpoint is judged against *checkpoints* and resets only, never against leases:
the previous owner may commit once more between the new owner's lease and the new owner's ``init_transactions``, and that
checkpoint counts, or its events would come twice. From ``init_transactions`` on Kafka itself refuses the previous owner.
"""

from dataclasses import dataclass
from typing import Final

from libs.types.checkpoint import Checkpoint, FencingToken

NO_TOKEN: Final = FencingToken(0)
"""Older than every token granted."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The measure of a source partition's checkpoints."""

    checkpoint: Checkpoint | None = None
    """The one in force."""
    oldest_token: FencingToken = NO_TOKEN
    """Of the newest reset: checkpoints with older tokens do not count any more."""


NOTHING_READ: Final = Standing()
"""Of a source partition that nobody has read."""


@dataclass(frozen=True, slots=True)
class Advance:
    """It counts: resume here from now on."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Stale:
    """Its owner went backwards: ignored. A reader's fault, because a reader writes in order."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Fenced:
    """Its token is older than one that counts: ignored. A reader writes that should have stopped."""

    checkpoint: Checkpoint
    newest_token: FencingToken


def judge(current: Standing, proposed: Checkpoint) -> Advance | Stale | Fenced:
    """Whether ``proposed``, the next checkpoint in the log, takes the place of the current one.

    An equal order advances: a heartbeat moves the position only, and so does the progress of a snapshot. A greater
    token advances with any order: its owner started from the checkpoint in force.
    """
    newest_token = current.oldest_token
    if current.checkpoint is not None:
        newest_token = FencingToken(max(newest_token, current.checkpoint.fencing_token))
    if proposed.fencing_token < newest_token:
        return Fenced(proposed, newest_token)
    in_force = current.checkpoint
    if in_force is not None and proposed.fencing_token == in_force.fencing_token and proposed.order < in_force.order:
        return Stale(proposed)
    return Advance(proposed)
