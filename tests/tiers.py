"""Which tests are run when, and the needs of each.

* ``make test-fast``: tests without a server, a JVM or a kill (the mark ``fast``).
* ``make test``, the gate: each promise once. These are all tests but those with the mark ``rest``.
* ``make test-all``: every test but those that need a machine of their own (``node``).

A test that repeats the claim of a test of the gate, on another warehouse or at another point, carries
``@pytest.mark.rest(because="...")``. Where a whole file does, ``@pytest.mark.gate`` keeps one of its tests in the gate. The
other marks follow from where a test lies and from its fixtures; Spark and servers refuse to start for a test that lacks their
mark. ``docs/testing.md`` has the budgets.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.marks import running
from tests.promises import PROMISES

TESTS: Final = Path(__file__).parent
NEEDS: Final = ("servers", "spark", "kill", "cluster")
SERVER_FOLDERS: Final = ("integration", "faults", "e2e", "differential", "consumers", "cluster")
SERVER_FIXTURES: Final = frozenset(
    [
        "bootstrap_servers",
        "clickhouse_server",
        "database",
        "kafka_broker",
        "mysql_server",
        "postgresql_server",
        "schema_registry",
        "shard_servers",
        "start_kafka",
        "start_mysql",
        "start_valkey",
        "start_vtgate",
        "valkey_server",
    ]
)
SPARK_FIXTURES: Final = frozenset({"shared", "start_tenant"})
TIMEOUTS_S: Final = {
    "faults": 1_800,  # Kafka and leases miss a killed process for half a minute, on a busy machine for several
    "differential": 1_800,  # the first one fetches Debezium's jars
    "consumers": 1_800,  # the first one fetches jars and Polars
    "cluster": 1_800,  # the first one may wait for the control plane's build
}
ORDER: Final = (
    "e2e",
    "faults",
    "differential",
    "consumers",
    "integration",
    "cluster",
    "contract",
    "simulation",
    "unit",
)
"""Of one worker's tests; ``tests.scheduling`` orders the files of several."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """``tests.marks.need`` asks for the marks of the test that runs."""
    running.append(item)
    try:
        return (yield)
    finally:
        running.pop()


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""


def needs_of(item: pytest.Item, folder: str) -> set[str]:
    """The marks that follow from where a test lies, from its fixtures, and from its file's imports."""
    fixtures = set(getattr(item, "fixturenames", ()))
    needs = set()
    if folder in SERVER_FOLDERS or fixtures & SERVER_FIXTURES:
        needs.add("servers")
    if fixtures & SPARK_FIXTURES or hasattr(getattr(item, "module", None), "shared_spark"):
        needs.add("spark")
    if folder == "faults":
        needs.add("kill")
    if folder == "cluster":
        needs.add("cluster")
    return needs


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks, time limits and the order of the tests. A node's tests are run by name alone."""
    if not re.search(r"\bnode\b", config.option.markexpr):
        on_a_node = [item for item in items if item.get_closest_marker("node") is not None]
        config.hook.pytest_deselected(items=on_a_node)
        items[:] = [item for item in items if item.get_closest_marker("node") is None]
    places: dict[Path, str] = {}
    ranks: dict[int, int] = {}
    for item in items:
        folder = places.setdefault(item.path, "") or _folder(item)
        places[item.path] = folder
        for mark in needs_of(item, folder):
            item.add_marker(mark)
        has = {mark.name for mark in item.iter_markers()}
        if not all(mark.kwargs.get("because") for mark in item.iter_markers("rest")):
            raise pytest.UsageError(f'{item.nodeid}: its mark `rest` lacks because="...": where is its promise shown?')
        if not has.intersection(("rest", "gate", "node")):
            item.add_marker("gate")
            if not has.intersection(NEEDS):
                item.add_marker("fast")
        if folder in TIMEOUTS_S and "timeout" not in has:
            item.add_marker(pytest.mark.timeout(TIMEOUTS_S[folder]))
        ranks[id(item)] = -1 if "spark" in has else ORDER.index(folder) if folder in ORDER else len(ORDER)
    items.sort(key=lambda item: ranks[id(item)])
    if config.args == config.getini("testpaths"):
        shown = {
            mark.args[0] for item in items if item.get_closest_marker("gate") for mark in item.iter_markers("promise")
        }
        if shown != PROMISES.keys():
            because = f"promises and tests of the gate differ: {sorted(shown ^ PROMISES.keys())}; see tests/promises.py"
            print(f"\nERROR: {because}", file=sys.__stderr__, flush=True)
            raise pytest.UsageError(because)
