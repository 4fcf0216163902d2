"""What Spark jobs say of tenants that stand still, taken in."""

from libs.kafka.tail import LogRecord
from libs.types.sink_place import SinkWait, encode_wait, handover_key, wait_key
from services.tenant_operator.sink_waits import with_news


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
