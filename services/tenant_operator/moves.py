"""Which Spark job a tenant is in, and its moves from one to another; plain values.

A move is stored in the tenant's record before any job learns of it, under a number that only grows; jobs answer by the topic
of hand-overs (``libs.types.sink_place``). Another begins only once the old job has answered: it has handed the tenant over, or
refuses to. So through any kill, one job at most has the tenant's state.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from libs.types.sink_place import Handover, Outcome, Place

OWN_PREFIX: Final = "own-"
"""Of the name of a job that serves one tenant alone."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The moves in a tenant's record, beside the job's name."""

    move: int = 0
    """How often it was to move."""
    came_from: str = ""
    """The job that has not handed it over yet; empty: none has to."""
    refused_job: str = ""
    """Where it could not move to last; it stays until something else is asked for."""
    refused_because: str = ""
    promoted_because: str = ""
    """Why it has a job of its own though nobody asked for that; empty: it has none."""
    is_unreadable: bool = False
    """Somebody changed the record by hand: the tenant waits until its number is put back."""


NEVER_MOVED: Final = Placement()


def own_job(tenant: str) -> str:
    """The name of a job that serves ``tenant`` alone."""
    return f"{OWN_PREFIX}{tenant}"


def is_to_move(tenant: str, job: str, placement: Placement, *, wants_own_job: bool) -> bool:
    """Whether the tenant, which is in ``job``, is to go to one of the other kind now."""
    is_own = job == own_job(tenant)
    if is_own == wants_own_job or placement.came_from or placement.is_unreadable:
        return False
    # Of packed jobs one is as good as another.
    was_refused = placement.refused_job == own_job(tenant) if wants_own_job else bool(placement.refused_job)
    return not was_refused


def moved(placement: Placement, from_job: str) -> Placement:
    """It goes to another job now."""
    return msgspec.structs.replace(
        placement, move=placement.move + 1, came_from=from_job, refused_job="", refused_because=""
    )


def as_wanted(placement: Placement, job: str, tenant: str, *, wants_own_job: bool) -> Placement:
    """Without refusals whose request is withdrawn, so that it may be made again, and without measurements that a document
    overrules."""
    if not wants_own_job and placement.promoted_because:
        placement = msgspec.structs.replace(placement, promoted_because="")
    if placement.refused_job and (job == own_job(tenant)) == wants_own_job:
        return msgspec.structs.replace(placement, refused_job="", refused_because="")
    return placement


def answered(job: str, placement: Placement, tenancy: str, answer: Handover | None) -> tuple[str, Placement]:
    """Job and placement after the old job's answer to the move; unchanged without an answer."""
    if not placement.came_from or answer is None or (answer.tenancy, answer.move) != (tenancy, placement.move):
        return job, placement
    if answer.outcome is Outcome.REFUSED:
        back = msgspec.structs.replace(placement, came_from="", refused_job=job, refused_because=answer.because)
        return placement.came_from, back
    return job, msgspec.structs.replace(placement, came_from="")


def is_dropped(answer: Handover | None, tenancy: str) -> bool:
    """Whether the tenant's tables are gone."""
    return answer is not None and answer.tenancy == tenancy and answer.outcome is Outcome.DROPPED


def awaits_handover(tenant: str, job: str, placement: Placement) -> str:
    """Why the tenant's tables wait, for a person; empty: they do not."""
    if placement.is_unreadable:
        return (
            f"placement.json of ConfigMap headwater-tenant-{tenant} cannot be read, and its tables wait: write "
            '{"move": N} there, with the last number of the tenant in log lines sink_tenant_placed of its jobs'
        )
    if not placement.came_from:
        return ""
    why = f" ({placement.promoted_because})" if placement.promoted_because and job == own_job(tenant) else ""
    return (
        f"its tables move from Spark job {placement.came_from} to {job}{why}: {placement.came_from} has to stop, and to hand "
        "over where it is; see that job's log, and its metric headwater_sink_waits"
    )


def awaits_drop(job: str, answer: Handover | None, tenancy: str) -> str:
    """Why a tenant that goes with its tables waits, for a person."""
    if answer is not None and answer.tenancy == tenancy and answer.outcome is Outcome.NOT_DROPPED:
        return f"Spark job {job} tries again: {answer.because}"
    return f"Spark job {job} has to drop its tables; see that job's log, and its metric headwater_sink_waits"


def places_of(
    tenant: str, tenancy: str, job: str, placement: Placement, *, drops_tables: bool = False
) -> Mapping[str, Place]:
    """The tenant's place for its jobs, by job: the one where it belongs, and the one that has to hand it over."""
    place = Place(
        job=job,
        tenancy=tenancy,
        move=placement.move,
        came_from=placement.came_from,
        drops_tables=drops_tables,
    )
    return dict.fromkeys([job, *([placement.came_from] if placement.came_from else [])], place)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """How many events a tenant's topics had ever got."""

    at_s: float
    events: int


def with_sample(samples: Sequence[Sample], sample: Sample, *, window_s: float) -> tuple[Sample, ...]:
    """The samples that cover the last ``window_s``: those within, and one before. Topics that were made again
    begin again."""
    if samples and sample.events < samples[-1].events:
        samples = ()
    kept = [*samples, sample]
    while len(kept) > 2 and sample.at_s - kept[1].at_s >= window_s:
        kept.pop(0)
    return tuple(kept)


def slowest_events_s(samples: Sequence[Sample], *, window_s: float) -> float | None:
    """The lowest rate between two samples of the window, in events a second; None: they do not cover it."""
    if len(samples) < 2 or samples[-1].at_s - samples[0].at_s < window_s:
        return None
    return min(
        (later.events - earlier.events) / (later.at_s - earlier.at_s)
        for earlier, later in pairwise(samples)
        if later.at_s > earlier.at_s
    )
