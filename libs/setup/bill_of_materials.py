"""A bill of materials (CycloneDX 1.6, JSON) of all that set-up installs from locks: Python packages and jars, with hashes.

    python -m libs.setup.bill_of_materials [--output FILE]

``make sbom`` writes it to ``dist/headwater.cdx.json``. It holds the content of the locks, for every platform: a component's
property ``headwater:group`` names the groups of requirements, or the lock of jars, that it comes from. Equal locks make equal
files. Specification: CycloneDX 1.6, "JSON Reference"; package URLs: github.com/package-url/purl-spec.
"""

import argparse
import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[2]
_REQUIREMENT: Final = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_JAR: Final = re.compile(r"^([^:\s]+):([^:\s]+):(\S+)\s+sha256:([0-9a-f]{64})")
_WITHOUT: Final = frozenset({"dev"})
"""Groups of requirements that nothing shipped needs."""


@dataclass(slots=True)
class Component:
    """One package or jar."""

    name: str
    version: str
    purl: str
    hashes: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)


def python_components(folder: Path) -> list[Component]:
    """The packages of every lock in ``folder`` but those for development."""
    found: dict[str, Component] = {}
    for file in sorted(folder.glob("*.txt")):
        if file.stem in _WITHOUT:
            continue
        for name, version, hashes in _requirements(file.read_text(encoding="utf-8")):
            purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
            component = found.setdefault(purl, Component(name, version, purl))
            component.hashes |= hashes
            component.groups.add(file.stem)
    return [found[purl] for purl in sorted(found)]


def _requirements(text: str) -> Iterator[tuple[str, str, set[str]]]:
    for entry in re.split(r"\n(?=[A-Za-z0-9])", text):
        if (match := _REQUIREMENT.match(entry)) is not None:
            yield match[1], match[2], set(_HASH.findall(entry))


def jar_components(folder: Path) -> list[Component]:
    """The jars of every lock in ``folder``."""
    found: dict[str, Component] = {}
    for file in sorted(folder.glob("*.lock")):
        for line in file.read_text(encoding="utf-8").splitlines():
            if (match := _JAR.match(line)) is None:
                continue
            group, artifact, version, digest = match.groups()
            purl = f"pkg:maven/{group}/{artifact}@{version}"
            component = found.setdefault(purl, Component(f"{group}:{artifact}", version, purl))
            component.hashes.add(digest)
            component.groups.add(file.stem)
    return [found[purl] for purl in sorted(found)]


def bill(components: Sequence[Component], *, version: str) -> dict[str, Any]:
    """The document."""
    listed = [_component(each) for each in components]
    digest = hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "bom-ref": "headwater", "name": "headwater", "version": version}
        },
        "components": listed,
        "dependencies": [{"ref": "headwater", "dependsOn": [each.purl for each in components]}],
    }


def _component(each: Component) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": each.purl,
        "name": each.name,
        "version": each.version,
        "purl": each.purl,
        **(
            {"hashes": [{"alg": "SHA-256", "content": content} for content in sorted(each.hashes)]}
            if each.hashes
            else {}
        ),
        "properties": [{"name": "headwater:group", "value": group} for group in sorted(each.groups)],
    }


def headwater_bill() -> dict[str, Any]:
    """Of this checkout."""
    project = (_ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "([^"]+)"', project, re.MULTILINE)
    components = [*python_components(_ROOT / "requirements"), *jar_components(Path(__file__).parent / "locks")]
    return bill(components, version=found[1] if found is not None else "0")


def main(argv: Sequence[str]) -> int:
    """The exit code: 0."""
    parser = argparse.ArgumentParser(prog="python -m libs.setup.bill_of_materials")
    parser.add_argument("--output", type=Path, default=_ROOT / "dist" / "headwater.cdx.json")
    given = parser.parse_args(argv)
    document = headwater_bill()
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(document['components'])} components in {given.output}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
