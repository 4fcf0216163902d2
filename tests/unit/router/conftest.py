"""What the router's tests share."""

from collections.abc import Iterator

import pytest

from libs.telemetry.faults import CATALOGUE, lasting_faults, lift_fault


@pytest.fixture(autouse=True)
def no_faults_left() -> Iterator[None]:
    """A process keeps its faults: what a test raised is another's no more."""
    yield
    kinds = {kind.id: kind for kind in CATALOGUE}
    for fault in lasting_faults():
        lift_fault(kinds[fault.id], fault.scope)
