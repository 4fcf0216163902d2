"""Headwater on a real Kubernetes node: ``python -m tests.cluster.e2e`` (`make cluster-e2e`), as root.

Builds missing programs and images, and those of an older Headwater (``older``), then runs ``test_on_a_node.py`` on a machine
of its own (``namespaces``). Arguments are pytest's. Where no such machine can be had, it says why and ends with ``SKIPPED``;
so it does where all that ran passed, without the upgrade from an older Headwater.
"""

import sys
from collections.abc import Sequence
from typing import Final

from tests.cluster import images, namespaces, older, programs

SERVICES: Final = ("schema-history", "checkpoint-committer", "binlog-reader", "router", "tenant-operator", "spark")
"""Images of the parts of a mesh of MySQL, the same in every release."""
NEEDED: Final = (*SERVICES, "vstream-reader", "dts-decoder", "cli")
"""Of the present images."""
SKIPPED: Final = 77
"""Exit code of a run that did not test everything; automake's convention."""


def main(pytest_options: Sequence[str]) -> int:
    """Build and test; the exit code."""
    reason = namespaces.why_not()
    if reason is not None:
        sys.stdout.write(f"cluster-e2e: SKIPPED, nothing was tested: {reason}\n")
        return SKIPPED
    if programs.build_node() != 0 or images.main(NEEDED) != 0:
        return 1
    why_not = older.fetch()
    if why_not is None and images.main(SERVICES, source=older.folder(), tag=older.TAG) != 0:
        why_not = "its images cannot be built: the words of the failed step stand above"
    if why_not is not None:
        sys.stdout.write(f"cluster-e2e: no upgrade from an older Headwater is tested: {why_not}\n")
    test = [sys.executable, "-m", "pytest", "-m", "node", "-p", "no:cacheprovider", "tests/cluster/test_on_a_node.py"]
    return namespaces.run_inside([*test, *pytest_options]) or (SKIPPED if why_not is not None else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
