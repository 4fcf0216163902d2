"""The rights of the mesh's Kafka users, as the page lists them."""

from collections.abc import Iterable
from pathlib import Path

from libs.kafka.mesh_rights import COMPONENTS, rights_of
from libs.kafka.tenant_access import Acl

PAGE = Path(__file__).parents[3] / "docs" / "kubernetes.md"
KINDS = {"TOPIC": "topic", "GROUP": "group", "TRANSACTIONAL_ID": "transactional id", "BROKER": "the cluster"}


def test_the_page_lists_every_right() -> None:
    page = PAGE.read_text()

    for component in COMPONENTS:
        line = f"| `{component}` | {lines(rights_of(component, 'u', ['SOURCE']))} |"
        assert line in page, f"docs/kubernetes.md lacks this line:\n{line}"


def lines(acls: Iterable[Acl]) -> str:
    """The rights on each thing together: ``READ topic `a`, groups `b…` ``; denied ones last."""
    of_things: dict[tuple[bool, str, str, bool], list[str]] = {}
    for acl in sorted(acls):
        of_things.setdefault((acl.is_allow, acl.resource, acl.name, acl.is_prefix), []).append(acl.operation)
    by_operations: dict[tuple[bool, str], list[str]] = {}
    for (is_allow, resource, name, is_prefix), operations in of_things.items():
        thing = f"every {KINDS[resource]}" if name == "*" else f"{KINDS[resource]} `{name}{'…' if is_prefix else ''}`"
        thing = KINDS[resource] if resource == "BROKER" else thing
        by_operations.setdefault((is_allow, ", ".join(sorted(operations))), []).append(thing)
    allowed = [
        f"{operations}: {', '.join(things)}" for (is_allow, operations), things in by_operations.items() if is_allow
    ]
    denied = [
        f"never {operations}: {', '.join(things)}" for (ok, operations), things in by_operations.items() if not ok
    ]
    return "; ".join(sorted(allowed) + sorted(denied)).replace("SOURCE", "<source>")
