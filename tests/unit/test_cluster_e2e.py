"""Exit codes of `make cluster-e2e`: a run that did not test everything is no success."""

from typing import Any

import pytest

from tests.cluster import e2e


@pytest.mark.parametrize(
    ("machine", "older", "older_images", "tests", "code"),
    [
        ("no root", None, 0, 0, e2e.SKIPPED),
        (None, None, 0, 0, 0),
        (None, None, 0, 1, 1),
        (None, "no network", 0, 0, e2e.SKIPPED),
        (None, None, 1, 0, e2e.SKIPPED),
        (None, None, 1, 1, 1),
    ],
)
def test_a_run_that_skips_a_part_says_so_by_its_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    machine: str | None,
    older: str | None,
    older_images: int,
    tests: int,
    code: int,
) -> None:
    """The present Headwater is tested also where the older one cannot be built."""
    ran: list[Any] = []
    monkeypatch.setattr(e2e.namespaces, "why_not", lambda: machine)
    monkeypatch.setattr(e2e.namespaces, "run_inside", lambda command: ran.append(command) or tests)
    monkeypatch.setattr(e2e.programs, "build_node", lambda: 0)
    monkeypatch.setattr(e2e.older, "fetch", lambda: older)
    monkeypatch.setattr(e2e.images, "main", lambda _, source=None, tag="": older_images if tag else 0)

    assert e2e.main([]) == code
    assert len(ran) == (machine is None)
    assert ("is tested:" in capsys.readouterr().out) is (older is not None or older_images != 0)
