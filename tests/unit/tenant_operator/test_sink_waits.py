"""Spark jobs' reports on tenants that stand still, taken in."""

from libs.kafka.tail import LogRecord
from libs.telemetry.faults import TABLE_PARKED, fault_of
from libs.types.fault import Fault, FaultScope
from libs.types.sink_place import SinkFaults, SinkWait, encode_faults, encode_wait, faults_key, handover_key, wait_key
from services.tenant_operator.sink_waits import with_faults, with_news


def said(key: str, value: bytes | None) -> LogRecord:
    return LogRecord(kafka_partition=0, offset=0, key=key.encode(), value=value)


def test_what_was_said_last_counts_and_hand_overs_do_not() -> None:
    reasons: dict[str, str] = {}
    acme, globex = wait_key("acme", "u", "packed-0"), wait_key("globex", "u", "packed-0")
    away = encode_wait(SinkWait(because="away"))

    assert with_news(reasons, [said(acme, away), said(globex, away), said(handover_key("acme", "u"), b"a state")])
    assert reasons == {acme: "away", globex: "away"}
    assert not with_news(reasons, [said(acme, away), said(handover_key("acme", "u"), None)])
    assert with_news(reasons, [said(acme, None), said(globex, b"of another release")])
    assert reasons == {}


def test_a_job_speaks_for_the_tenant_of_its_record_alone() -> None:
    """Of its faults the last report counts; waits and hand-overs are none."""
    faults: dict[str, tuple[Fault, ...]] = {}
    acme = faults_key("acme", "u", "packed-0")
    parked, others = (
        fault_of(TABLE_PARKED, FaultScope(tenant=tenant, table="shop.orders"), happened="no", since_us=1)
        for tenant in ("acme", "globex")
    )
    both = encode_faults(SinkFaults(faults=(parked, others)))
    wait = said(wait_key("acme", "u", "packed-0"), encode_wait(SinkWait(because="away")))

    assert with_faults(faults, [said(acme, both), wait, said(handover_key("acme", "u"), b"a state")])
    assert faults == {acme: (parked,)}
    assert not with_faults(faults, [said(acme, both)])
    assert not with_news({}, [said(acme, both)])
    assert with_faults(faults, [said(acme, b"of another release")])
    assert with_faults(faults, [said(acme, both), said(acme, None)]) is False
    assert faults == {}
