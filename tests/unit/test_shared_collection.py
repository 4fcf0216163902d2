"""Workers import the tests in orders of their own."""

from pathlib import Path

from tests.shared_collection import beginning_at


def test_each_worker_begins_elsewhere_and_leaves_nothing_out() -> None:
    paths = [Path(f"test_{number}.py") for number in range(7)]

    orders = [beginning_at(paths, number, 3) for number in range(3)]

    assert [order[0].name for order in orders] == ["test_0.py", "test_2.py", "test_4.py"]
    assert all(sorted(order) == paths for order in orders)
