"""Workers collect with less CPU: they share the work of rewriting asserts, and look for no garbage meanwhile.

pytest rewrites a module once and keeps its bytecode. Workers that go through the same files side by side find nothing kept, and
each rewrites them all: ten CPU seconds a worker, after a fresh clone. Here each begins at another file.

What is collected stays until the end. Python's collector would go through it again and again, for a third of a
collection's CPU, and at each full run of it later.
"""

import contextlib
import gc
import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Before a worker collects all tests, it imports them in an order of its own."""
    gc.disable()
    try:
        _import_tests(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_tests(config: pytest.Config) -> None:
    worker: dict[str, object] | None = getattr(config, "workerinput", None)
    if worker is not None and any(Path(each).resolve() == TESTS for each in config.args):
        number = int(str(worker["workerid"]).removeprefix("gw"))
        for path in beginning_at(sorted(TESTS.rglob("test_*.py")), number, int(str(worker["workercount"]))):
            # One that cannot be imported is imported again, and told of, when it is collected.
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def beginning_at(paths: Sequence[Path], number: int, workers: int) -> Sequence[Path]:
    """All of them, the worker's own part first."""
    first = len(paths) * number // workers
    return [*paths[first:], *paths[:first]]
