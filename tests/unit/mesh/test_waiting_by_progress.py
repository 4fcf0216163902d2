"""A wait by progress ends when nothing has moved for its time, however long it takes in all."""

import itertools
from collections.abc import Iterator

import pytest

from libs.mesh import catch_up
from libs.mesh.catch_up import Behind, NotCaughtUp


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each look takes a second, and no test waits."""
    seconds = itertools.count()
    monkeypatch.setattr(catch_up.time, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(catch_up.time, "sleep", lambda _: None)
    yield


def wait(lags: Iterator[Behind | None], *, by_progress: bool) -> None:
    catch_up.wait_while_behind(lambda: next(lags), timeout_s=10.0, on_progress=lambda _: None, by_progress=by_progress)


def test_a_lag_that_shrinks_is_waited_for() -> None:
    shrinking = [Behind("the sink", f"{left} event(s)") for left in range(100, 0, -1)]

    wait(iter([*shrinking, None]), by_progress=True)
    with pytest.raises(NotCaughtUp):
        wait(iter([*shrinking, None]), by_progress=False)


def test_a_lag_that_swings_between_two_values_is_no_progress() -> None:
    swinging = itertools.cycle([Behind("the sink", "1 event(s)"), Behind("the sink", "2 event(s)")])

    with pytest.raises(NotCaughtUp, match="behind by"):
        wait(swinging, by_progress=True)
