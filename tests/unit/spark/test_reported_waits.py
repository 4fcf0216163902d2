"""Tenants that stand still in a job: their reports, and when each is due."""

from collections.abc import Mapping

import pytest

from libs.errors import TransientError
from libs.types.sink_place import Place, Places, SinkWait, wait_key
from spark.jobs import reported_records, reported_waits
from spark.jobs.reported_waits import ReportedWaits, SentWait, due

ACME = wait_key("acme", "u", "packed-0")
PLACES = Places(job="packed-0", tenants={"acme": Place(job="packed-0", tenancy="u")})
ELSEWHERE = Places(job="packed-0", tenants={"acme": Place(job="own", tenancy="u", move=1, came_from="packed-0")})
GOES = Places(job="packed-0", tenants={"acme": Place(job="packed-0", tenancy="u", drops_tables=True)})
AWAY, DENIED = SentWait("away", 0.0), {ACME: SinkWait(because="denied")}


@pytest.mark.parametrize(
    ("sent", "places", "fault", "is_served", "now_s", "expected"),
    [
        (None, PLACES, "denied", False, 0.0, DENIED),
        (None, PLACES, "", True, 0.0, {ACME: None}),
        (None, PLACES, "", False, 0.0, {}),
        (SentWait("", 0.0), PLACES, "", True, 0.0, {}),
        (SentWait("", 0.0), PLACES, "denied", True, 0.0, DENIED),
        (AWAY, PLACES, "away", False, 9_999.0, {}),
        (AWAY, PLACES, "denied", False, 299.0, {}),
        (AWAY, PLACES, "denied", False, 300.0, DENIED),
        (AWAY, PLACES, "", False, 0.0, {}),
        (AWAY, PLACES, "", True, 0.0, {ACME: None}),
        (AWAY, ELSEWHERE, "denied", True, 9_999.0, {ACME: None}),
        (AWAY, GOES, "denied", False, 9_999.0, {ACME: None}),
        (AWAY, Places(job="packed-0"), "", False, 0.0, {ACME: None}),
        (None, ELSEWHERE, "denied", False, 0.0, {}),
    ],
)
def test_what_is_due(
    sent: SentWait | None,
    places: Places,
    fault: str,
    is_served: bool,
    now_s: float,
    expected: Mapping[str, SinkWait | None],
) -> None:
    faults, served = {"acme": fault} if fault else {}, {"acme"} if is_served else set()

    assert due({} if sent is None else {ACME: sent}, places, faults, served, now_s=now_s) == expected


def test_what_kafka_did_not_take_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Mapping[str, SinkWait | None]] = []

    def tell(waits: Mapping[str, SinkWait | None]) -> None:
        said.append(waits)
        if len(said) == 1:
            raise TransientError("Kafka is away")

    class Now:
        """A thread that has run when it is started."""

        def __init__(self, *, target, args, daemon) -> None:  # type: ignore[no-untyped-def]
            self.start = lambda: target(*args)

    now_s = [1_000.0]
    monkeypatch.setattr(reported_records, "threading", type("Threads", (), {"Thread": Now}))
    for module in (reported_records, reported_waits):
        monkeypatch.setattr(module, "time", type("Clock", (), {"monotonic": lambda: now_s[0]}))
    waits = ReportedWaits(tell)
    for _ in range(3):
        waits.look(PLACES, {"acme": "denied"}, set())
        now_s[0] += 20.0

    assert said == [DENIED, DENIED]
