"""Workers share the work of rewriting the asserts of all tests.

pytest rewrites a module once and keeps its bytecode. Workers that go through the same files side by side find nothing kept, and
each rewrites them all: ten CPU seconds a worker, after a fresh clone. Here each begins at another file.
"""

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Before a worker collects all tests, it imports them in an order of its own."""
    worker: dict[str, object] | None = getattr(session.config, "workerinput", None)
    if worker is not None and any(Path(each).resolve() == TESTS for each in session.config.args):
        number = int(str(worker["workerid"]).removeprefix("gw"))
        for path in beginning_at(sorted(TESTS.rglob("test_*.py")), number, int(str(worker["workercount"]))):
            # One that cannot be imported is imported again, and told of, when it is collected.
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))
    return (yield)


def beginning_at(paths: Sequence[Path], number: int, workers: int) -> Sequence[Path]:
    """All of them, the worker's own part first."""
    first = len(paths) * number // workers
    return [*paths[first:], *paths[:first]]
