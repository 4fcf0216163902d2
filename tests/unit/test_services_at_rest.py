"""Shared services rest while no test asks for them."""

from pathlib import Path
from typing import Any

import pytest

from tests import conftest


class Resting:
    """Services that count their rests."""

    rests = 0

    def rest(self) -> None:
        self.rests += 1


@pytest.mark.parametrize(("is_of_this_file", "rests"), [(True, 0), (False, 1)])
def test_services_rest_with_the_next_file_that_asks_them_nothing(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, is_of_this_file: bool, rests: int
) -> None:
    """This file's tests start no server. Those of the file that asked go on with the services."""
    services: Any = Resting()
    asked = [(services, request.path if is_of_this_file else Path("another.py"))]
    monkeypatch.setattr(conftest, "_asked", asked)

    for _ in range(2):
        conftest.pytest_runtest_setup(request.node)

    assert services.rests == rests
