"""Documents that a stack reads when it starts and not again: as they were then, and which of them differ now.

Tenants' documents are none of these: the services read them while they run.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from libs.config.yaml_text import read_yaml_file
from libs.mesh.home import Home
from libs.mesh.state import replace_file


class ChangedDocument(NamedTuple):
    """One that is not as the running stack has it."""

    name: str
    """Below the home: ``sources/shop.yaml``."""
    how: str
    """``changed``, ``added`` or ``removed``."""
    since_us: int
    """When the file was written last, microseconds since 1970; 0: it is gone."""


def note_taken_over(home: Home) -> None:
    """Keep the present documents, for ``changed_since``. The stack that starts takes them over."""
    replace_file(home.taken_over_file, msgspec.json.encode(_contents(home)), mode=0o600)


def changed_since(home: Home) -> Iterator[ChangedDocument]:
    """Documents that say something else than at ``note_taken_over``, by name. Comments and order of names do not count.

    None where nothing readable was kept: a stack of an earlier release.
    """
    try:
        before = msgspec.json.decode(home.taken_over_file.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return
    now = _contents(home)
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            how = "removed" if name not in now else "added" if name not in before else "changed"
            yield ChangedDocument(name, how, _written_us(home.root / name))


def _contents(home: Home) -> Mapping[str, str]:
    files = [
        *sorted(home.sources_dir.glob("*.yaml")),
        home.warehouses_file,
        home.kafka_file,
        home.schema_registry_file,
        home.openlineage_file,
        home.topic_quotas_file,
    ]
    return {str(file.relative_to(home.root)): _digest(file) for file in files if file.is_file()}


def _digest(file: Path) -> str:
    """Of the document's values; of a file that is no YAML, of its bytes. Passwords may be among them."""
    document = read_yaml_file(file, shown_as=file.name, mistakes=[])
    content = file.read_bytes() if document is None else repr(_ordered(document.value)).encode()
    return hashlib.sha256(content).hexdigest()


def _ordered(value: object) -> object:
    if isinstance(value, dict):
        return sorted((repr(name), repr(_ordered(each))) for name, each in value.items())
    return [_ordered(each) for each in value] if isinstance(value, list) else value


def _written_us(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns // 1_000
    except OSError:
        return 0
