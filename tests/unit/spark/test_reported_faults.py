"""A tenant's faults in a job: their reports, and when each is due."""

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from libs.telemetry.faults import KEYS_PARKED, TABLE_PARKED, fault_of
from libs.types.fault import Fault, FaultScope
from libs.types.sink_place import Place, Places, SinkFaults, faults_key
from spark.jobs.reported_faults import LASTING_US, SentFaults, due

ACME: Final = faults_key("acme", "u", "packed-0")
PLACES: Final = Places(job="packed-0", tenants={"acme": Place(job="packed-0", tenancy="u")})
ELSEWHERE: Final = Places(job="packed-0", tenants={"acme": Place(job="own", tenancy="u", move=1, came_from="packed-0")})
ORDERS: Final = FaultScope(source="shop", tenant="acme", table="shop.orders")
PARKED: Final = fault_of(TABLE_PARKED, ORDERS, happened="65 digits do not fit", since_us=0)
OTHER_WORDS: Final = fault_of(TABLE_PARKED, ORDERS, happened="65 digits do not fit (request 7)", since_us=0)
KEYS: Final = fault_of(KEYS_PARKED, ORDERS, happened="3 key(s) parked", since_us=0)
GLOBEX: Final = fault_of(TABLE_PARKED, FaultScope(tenant="globex"), happened="no", since_us=0)
IS_PARKED: Final = {ACME: SinkFaults(faults=(PARKED,))}


@pytest.mark.parametrize(
    ("sent", "places", "faults", "now_us", "now_s", "is_settled", "expected"),
    [
        (None, PLACES, [PARKED, GLOBEX], LASTING_US, 0.0, False, IS_PARKED),
        (None, PLACES, [PARKED], LASTING_US - 1, 0.0, False, {}),
        (None, PLACES, [], 0, 0.0, False, {}),
        (None, PLACES, [], 0, 0.0, True, {ACME: None}),
        (SentFaults((), 0.0), PLACES, [], 0, 0.0, True, {}),
        (SentFaults((), 0.0), PLACES, [PARKED], LASTING_US, 0.0, True, IS_PARKED),
        (SentFaults((PARKED,), 0.0), PLACES, [PARKED], LASTING_US, 9_999.0, True, {}),
        (SentFaults((PARKED,), 0.0), PLACES, [OTHER_WORDS], LASTING_US, 299.0, True, {}),
        (
            SentFaults((PARKED,), 0.0),
            PLACES,
            [OTHER_WORDS],
            LASTING_US,
            300.0,
            True,
            {ACME: SinkFaults(faults=(OTHER_WORDS,))},
        ),
        (
            SentFaults((PARKED,), 0.0),
            PLACES,
            [PARKED, KEYS],
            LASTING_US,
            0.0,
            True,
            {ACME: SinkFaults(faults=(PARKED, KEYS))},
        ),
        (SentFaults((PARKED,), 0.0), PLACES, [], 0, 0.0, False, {ACME: None}),
        (SentFaults((PARKED,), 0.0), ELSEWHERE, [PARKED], LASTING_US, 0.0, True, {ACME: None}),
        (None, ELSEWHERE, [PARKED], LASTING_US, 0.0, True, {}),
    ],
)
def test_what_is_due(
    sent: SentFaults | None,
    places: Places,
    faults: Sequence[Fault],
    now_us: int,
    now_s: float,
    is_settled: bool,
    expected: Mapping[str, SinkFaults | None],
) -> None:
    said = {} if sent is None else {ACME: sent}

    assert due(said, places, faults, now_us=now_us, now_s=now_s, is_settled=is_settled) == expected
