"""Failpoints that end code of the test's own process, as a kill would end a process."""

import pytest

from libs.errors import InvalidSettings, TransientError
from libs.failpoints import Ended, armed, failpoint


def test_behind_its_end_a_life_comes_to_no_other_failpoint() -> None:
    """Nor to the same one; the next life passes them all."""
    with armed("sink_before_merge=end@2") as life:
        failpoint("sink_before_commit")
        failpoint("sink_before_merge")
        assert life.ended_at is None
        with pytest.raises(Ended):
            failpoint("sink_before_merge")
        with pytest.raises(Ended):
            failpoint("sink_before_commit")
        with pytest.raises(Ended):
            failpoint("sink_before_merge")

    assert life.ended_at == "sink_before_merge"
    failpoint("sink_before_merge")
    with armed("") as next_life:
        failpoint("sink_before_merge")
    assert next_life.ended_at is None


def test_a_failure_ends_no_life() -> None:
    with armed("sink_before_merge=raise@1,sink_before_commit=raise@1") as life:
        for name in ("sink_before_merge", "sink_before_commit"):
            with pytest.raises(TransientError, match=name):
                failpoint(name)
            failpoint(name)

    assert life.ended_at is None


def test_a_name_or_action_that_nobody_knows_is_refused() -> None:
    with (
        pytest.raises(InvalidSettings, match=r"'sink_befor_merge' is no failpoint[^'\n]*"),
        armed("sink_befor_merge=end"),
    ):
        pass
    with (
        pytest.raises(InvalidSettings, match="'die' is none of kill, freeze, raise, end, sleep:SECONDS"),
        armed("sink_before_merge=die"),
    ):
        pass
