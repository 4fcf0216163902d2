"""Which Spark job a tenant is in, when it moves to another, and the answers that a move waits for."""

import msgspec
import pytest

from libs.types.sink_place import Handover, Outcome, Place
from services.tenant_operator.judge import InForce
from services.tenant_operator.moves import (
    NEVER_MOVED,
    Placement,
    Sample,
    answered,
    as_wanted,
    awaits_drop,
    awaits_handover,
    moved,
    places_of,
    slowest_events_s,
    with_sample,
)
from services.tenant_operator.objects import record_manifest, tenant_record
from services.tenant_operator.sink_jobs import assign, is_measured, jobs_of
from tests.unit.tenant_operator.tenants import config_map, document, judged, record

MOVING = Placement(move=1, came_from="packed-0")


def tenant(asked: str | None, job: str, placement: Placement = NEVER_MOVED, more: str = "") -> InForce:
    annotations = {} if asked is None else {"headwater.dev/sink-job": asked}
    there = record("acme", sink_job=job, placement=placement)
    [found] = judged(config_map("acme", document("acme", more), annotations=annotations), records=(there,)).in_force
    return found


@pytest.mark.parametrize(
    ("asked", "job", "placement", "goes_to"),
    [
        ("own", "packed-0", NEVER_MOVED, "own-acme"),
        ("packed", "own-acme", NEVER_MOVED, "packed-0"),
        ("packed", "packed-3", NEVER_MOVED, "packed-3"),
        (None, "own-acme", NEVER_MOVED, "own-acme"),  # nobody is moved back unasked
        (None, "packed-0", Placement(promoted_because="large"), "own-acme"),
        ("packed", "packed-0", Placement(promoted_because="large"), "packed-0"),  # a person's word goes before
        ("packed", "own-acme", Placement(promoted_because="large"), "packed-0"),
        ("own", "packed-0", Placement(refused_job="own-acme", refused_because="too large"), "packed-0"),
        ("onw", "own-acme", NEVER_MOVED, "own-acme"),  # refused, and so nobody is moved by it
        ("packed", "own-acme", MOVING, "own-acme"),  # not before the job that it comes from has answered
        ("own", "packed-0", Placement(is_unreadable=True), "packed-0"),
    ],
)
def test_who_moves(asked: str | None, job: str, placement: Placement, goes_to: str) -> None:
    assert assign([tenant(asked, job, placement)], tenants_per_packed_job=20) == {"acme": goes_to}


def test_both_jobs_are_told_of_a_move_and_have_the_document_until_it_is_answered() -> None:
    where = Place(job="own-acme", tenancy="uid-acme", move=1, came_from="packed-0")

    moving = {job.name: job for job in jobs_of([tenant("own", "own-acme", MOVING)])}
    done = jobs_of([tenant("own", "own-acme", Placement(move=1))])

    assert moving.keys() == {"own-acme", "packed-0"}
    assert all(job.places == {"acme": where} and job.documents == {"acme": document("acme")} for job in moving.values())
    assert [(job.name, job.places["acme"].came_from) for job in done] == [("own-acme", "")]


def test_who_wants_no_tables_any_more_is_handed_over_all_the_same() -> None:
    told = jobs_of([tenant("own", "own-acme", MOVING, "sink: null\n")])

    assert [job.name for job in told] == ["own-acme", "packed-0"]
    assert jobs_of([tenant("own", "own-acme", Placement(move=1), "sink: null\n")]) == []


def test_a_tenant_that_goes_with_its_tables_keeps_its_job_until_they_are_gone() -> None:
    going = config_map("acme", annotations={"headwater.dev/on-delete": "delete"}, is_leaving=True)
    [leaving] = judged(going, records=(record("acme", text="", sink_job="packed-0"),)).leaving

    [job] = jobs_of([], [leaving])

    assert (job.name, job.documents) == ("packed-0", {})
    assert job.places["acme"].drops_tables
    assert not leaving.has_let_go


def answer(outcome: Outcome, *, move: int = 1, tenancy: str = "uid-acme", because: str = "") -> Handover:
    return Handover(tenant="acme", tenancy=tenancy, move=move, outcome=outcome, job="packed-0", because=because)


@pytest.mark.parametrize(
    ("told", "job", "placement"),
    [
        (None, "own-acme", MOVING),
        (answer(Outcome.HANDED_OVER, move=0), "own-acme", MOVING),  # of an earlier move
        (answer(Outcome.HANDED_OVER, tenancy="before"), "own-acme", MOVING),  # of another that had the name
        (answer(Outcome.HANDED_OVER), "own-acme", Placement(move=1)),
        (answer(Outcome.TAKEN), "own-acme", Placement(move=1)),
        (
            answer(Outcome.REFUSED, because="too large"),
            "packed-0",
            Placement(move=1, refused_job="own-acme", refused_because="too large"),
        ),
    ],
)
def test_what_the_old_job_says_ends_a_move(told: Handover | None, job: str, placement: Placement) -> None:
    assert answered("own-acme", MOVING, "uid-acme", told) == (job, placement)


def test_a_refused_move_is_tried_again_when_it_is_asked_for_anew() -> None:
    refused = Placement(move=1, refused_job="own-acme", refused_because="too large")

    assert as_wanted(refused, "packed-0", "acme", wants_own_job=True) == refused
    assert as_wanted(refused, "packed-0", "acme", wants_own_job=False) == Placement(move=1)


def test_a_move_has_a_number_that_no_move_had() -> None:
    assert moved(Placement(move=4, refused_job="own-acme"), "packed-0") == Placement(move=5, came_from="packed-0")


def test_a_person_is_told_what_is_waited_for() -> None:
    why = "it got 900 events a second"

    assert "from Spark job packed-0 to own-acme (it got 900" in awaits_handover(
        "acme", "own-acme", msgspec.structs.replace(MOVING, promoted_because=why)
    )
    assert awaits_handover("acme", "own-acme", Placement(move=1)) == ""
    assert "packed-0 tries again: no rights" in awaits_drop(
        "packed-0", answer(Outcome.NOT_DROPPED, because="no rights"), "uid-acme"
    )
    assert "packed-0 has to drop" in awaits_drop(
        "packed-0", answer(Outcome.NOT_DROPPED, tenancy="before", because="no rights"), "uid-acme"
    )


def test_a_record_keeps_the_placement_and_an_unreadable_one_stops_the_tenant_alone() -> None:
    manifest = record_manifest(record("acme", sink_job="own-acme", placement=MOVING), "headwater")
    manifest["metadata"]["resourceVersion"] = "7"

    assert tenant_record(manifest).placement == MOVING
    manifest["data"]["placement.json"] = "{"
    assert tenant_record(manifest).placement.is_unreadable
    assert "cannot be read" in awaits_handover("acme", "own-acme", tenant_record(manifest).placement)


def test_a_place_is_told_under_the_tenancy_that_it_is_of() -> None:
    assert places_of("acme", "uid-acme", "own-acme", Placement(move=3)) == {
        "own-acme": Place(job="own-acme", tenancy="uid-acme", move=3)
    }


def samples(*of: tuple[float, int], window_s: float = 60.0) -> tuple[Sample, ...]:
    found: tuple[Sample, ...] = ()
    for at_s, events in of:
        found = with_sample(found, Sample(at_s=at_s, events=events), window_s=window_s)
    return found


@pytest.mark.parametrize(
    ("measured", "slowest"),
    [
        ([(0.0, 0)], None),
        ([(0.0, 0), (30.0, 30_000)], None),  # half of the window
        ([(0.0, 0), (30.0, 30_000), (60.0, 90_000)], 1_000.0),
        ([(0.0, 0), (30.0, 30_000), (60.0, 30_000)], 0.0),  # it rested meanwhile
        ([(0.0, 0), (30.0, 0), (60.0, 60_000), (90.0, 120_000)], 2_000.0),  # samples before the window count no more
        ([(0.0, 500), (30.0, 60_000), (60.0, 10), (90.0, 60_000)], None),  # topics were made again
    ],
)
def test_a_tenant_is_large_by_the_lowest_rate_of_a_whole_window(
    measured: list[tuple[float, int]], slowest: float | None
) -> None:
    assert slowest_events_s(samples(*measured), window_s=60.0) == slowest


@pytest.mark.parametrize(
    ("asked", "job", "placement", "measured"),
    [
        (None, "packed-0", NEVER_MOVED, True),
        ("packed", "packed-0", NEVER_MOVED, False),
        (None, "own-acme", NEVER_MOVED, False),
        (None, "", NEVER_MOVED, False),
        (None, "packed-0", Placement(move=1, came_from="own-acme"), False),
    ],
)
def test_who_is_measured(asked: str | None, job: str, placement: Placement, measured: bool) -> None:
    assert is_measured(tenant(asked, job, placement)) is measured
