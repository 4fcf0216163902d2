"""The window of read-only incremental snapshots, by the recorded cases of Debezium's own."""

import json
from pathlib import Path
from typing import Any

import pytest

from libs.mysql.gtid import GtidSet, parse_gtid
from libs.mysql.watermarks import Window, open_low, reached_high, see_transaction, set_high, spans_servers

SUITE = json.loads((Path(__file__).parents[2] / "golden/cases/f_incremental_snapshot.json").read_text(encoding="utf-8"))
CASES = {case["id"]: case for case in SUITE["window_cases"]}


@pytest.mark.parametrize("case", [case for case in CASES.values() if "hazard" not in case], ids=lambda case: case["id"])
def test_the_window_follows_the_recorded_steps(case: dict[str, Any]) -> None:
    assert [step(*each) for each in run(case)] == [expected(each) for each in case["steps"]]


@pytest.mark.parametrize("name", ["other-server-event", "gaps-in-executed"])
def test_a_transaction_of_neither_watermark_does_not_close_early(name: str) -> None:
    """The reference calls it a hazard: there the rows of the high watermark that follow are not taken out."""
    window = [window for _, window, _ in run(CASES[name])][-1]

    assert window is not None
    assert window.is_open
    assert not window.is_closed


def test_a_window_closes_behind_another_server_once_everything_was_seen() -> None:
    """The recorded case two-servers-in-low, with the ends of transactions, as a log has them."""
    [*_, (last, window, _)] = run(CASES["two-servers-in-low"])

    assert last["expect"]["window_closed"]
    assert window is not None
    assert window.is_closed


def test_a_chunk_during_which_two_servers_committed_is_read_again() -> None:
    a, b = "24bc7850-2c16-11e6-a073-0242ac110002", "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    low = GtidSet.parse(f"{a}:1-10,{b}:1-5")

    assert spans_servers(set_high(open_low(low), GtidSet.parse(f"{a}:1-11,{b}:1-6"), low))
    assert not spans_servers(set_high(open_low(low), GtidSet.parse(f"{a}:1-12,{b}:1-5"), low))


def test_the_log_behind_the_low_watermark_is_waited_for() -> None:
    """A reader that lags: transactions of the low watermark are in the chunk; they come first."""
    uuid = "24bc7850-2c16-11e6-a073-0242ac110002"
    low = GtidSet.parse(f"{uuid}:1-10")
    window = set_high(open_low(low), low, GtidSet.parse(f"{uuid}:1-8"))

    window = see_transaction(window, (uuid, "", 9))
    assert not window.is_open
    assert not reached_high(window, (uuid, "", 9))
    window = see_transaction(window, (uuid, "", 10))
    assert reached_high(window, (uuid, "", 10))


def run(case: dict[str, Any]) -> list[tuple[dict[str, Any], Window | None, bool | None]]:
    """(step, window after it, its answer) of each step."""
    window: Window | None = None
    steps = []
    for each in case["steps"]:
        answer: bool | None = None
        match each["do"]:
            case "low":
                window = open_low(GtidSet.parse(each["gtid"]))
            case "high":
                assert window is not None
                window = set_high(window, GtidSet.parse(each["gtid"]), window.low)
                answer = spans_servers(window)
            case "event" if window is not None:
                window = see_transaction(window, parse_gtid(each["gtid"]))
                answer = window.is_closed
            case "heartbeat_or_commit" if window is not None:
                answer = reached_high(window, parse_gtid(each["gtid"]) if each["gtid"] else None)
            case "close":
                window = None
            case _:
                answer = False
        steps.append((each, window, answer))
        if window is not None and window.is_closed:
            window = None
    return steps


def step(each: dict[str, Any], window: Window | None, answer: bool | None) -> tuple[bool | None, bool]:
    return answer, window is not None and window.is_open


def expected(each: dict[str, Any]) -> tuple[bool | None, bool]:
    names = ("server_identifier_changed", "window_closed", "reached_high_watermark", "changed")
    return next((each["expect"][name] for name in names if name in each["expect"]), None), each["expect"]["window_open"]
