"""The ends of resyncs: how a job reports them, and when."""

from collections.abc import Mapping

import pytest

from libs.durable_file import replace_durably
from libs.sink_state.resync import ResyncAnswer, TenantResyncs, encode_resyncs, resyncs_path
from libs.types.sink_place import Place, Places, resyncs_key
from spark.jobs import reported_records
from spark.jobs.reported_resyncs import ReportedResyncs, due

ACME = resyncs_key("acme", "u", "packed-0")
PLACES = Places(job="packed-0", tenants={"acme": Place(job="packed-0", tenancy="u")})
ELSEWHERE = Places(job="packed-0", tenants={"acme": Place(job="own", tenancy="u", move=1, came_from="packed-0")})


def answers(*moments_us: int, refused_because: str = "") -> TenantResyncs:
    found = {
        f"resync-{at_us}": ResyncAnswer(
            topic="acme.shop.orders", query_id="q", batch_id=1, at_us=at_us, refused_because=refused_because
        )
        for at_us in moments_us
    }
    return TenantResyncs(tenant="acme", answers=found)


@pytest.mark.parametrize(
    ("sent", "places", "known", "expected"),
    [
        ({}, PLACES, {}, {}),
        ({}, PLACES, {"acme": answers(1)}, {ACME: answers(1)}),
        ({ACME: answers(1)}, PLACES, {"acme": answers(1)}, {}),
        ({ACME: answers(1)}, PLACES, {"acme": answers(1, 2)}, {ACME: answers(1, 2)}),
        ({}, ELSEWHERE, {"acme": answers(1)}, {}),
        ({ACME: answers(1)}, ELSEWHERE, {"acme": answers(1)}, {ACME: None}),
    ],
)
def test_what_is_due(
    sent: Mapping[str, TenantResyncs | None],
    places: Places,
    known: Mapping[str, TenantResyncs],
    expected: Mapping[str, TenantResyncs | None],
) -> None:
    assert due(sent, places, known) == expected


def test_a_record_stays_below_a_brokers_limit() -> None:
    """The newest answers are sent."""
    [said] = due({}, PLACES, {"acme": answers(*range(200), refused_because="x" * 10_000)}).values()

    assert said is not None
    assert set(said.answers) == {f"resync-{at_us}" for at_us in range(180, 200)}
    assert len(encode_resyncs(said)) < 100_000


def test_the_file_of_a_tenant_is_told_once(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """Until it is replaced."""
    said: list[Mapping[str, TenantResyncs | None]] = []

    class Now:
        """A thread that has run when it is started."""

        def __init__(self, *, target, args, daemon) -> None:  # type: ignore[no-untyped-def]
            self.start = lambda: target(*args)

    monkeypatch.setattr(reported_records, "threading", type("Threads", (), {"Thread": Now}))
    sent = ReportedResyncs(said.append, tmp_path)
    for moments in ((), (1,), (1,), (1, 2)):
        if moments:
            replace_durably(resyncs_path(tmp_path, "acme"), encode_resyncs(answers(*moments)))
        sent.look(PLACES)

    assert said == [{ACME: answers(1)}, {ACME: answers(1, 2)}]
