"""The jars of the Kafka broker and of Spark's connectors: which ones, where they lie, whether they are whole.

``locks/<name>-jars.lock`` lists each jar's coordinates, SHA-256 and size; ``locks/<name>-jars.pom.xml`` the
same coordinates for Maven. Set-up fills a folder of the cache from them (``jar_download``); everybody else
asks ``jars_dir``. Standard library only.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from libs.errors import InvalidSettings
from libs.setup.installation import SETUP_COMMAND

LOCKS_DIR = Path(__file__).parent / "locks"
VERIFIED_FILE = "verified.json"

JarSetName = Literal["kafka", "spark"]


@dataclass(frozen=True, slots=True)
class LockedJar:
    """One line of a lock file: ``group:artifact:version[:packaging:classifier]``, SHA-256 and size."""

    group_id: str
    artifact_id: str
    version: str
    sha256: str
    size_bytes: int
    packaging: str = "jar"
    classifier: str = ""

    @property
    def file_name(self) -> str:
        """As Maven names it."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact_id}-{self.version}{classifier}.{self.packaging}"


@dataclass(frozen=True, slots=True)
class JarSet:
    """All jars of one lock file."""

    name: str
    jars: tuple[LockedJar, ...]
    pom: Path
    lock_digest: str

    @property
    def size_bytes(self) -> int:
        """Of all jars together."""
        return sum(jar.size_bytes for jar in self.jars)


def jar_set(name: str, locks_dir: Path = LOCKS_DIR) -> JarSet:
    """Read a lock file; the product's own jars are those of ``JarSetName``."""
    lock = (locks_dir / f"{name}-jars.lock").read_bytes()
    return JarSet(
        name=name,
        jars=tuple(_parse_line(line) for line in lock.decode().splitlines() if line.strip()),
        pom=locks_dir / f"{name}-jars.pom.xml",
        lock_digest=hashlib.sha256(lock).hexdigest()[:16],
    )


def _parse_line(line: str) -> LockedJar:
    coordinates, digest, size_bytes = line.split()
    group_id, artifact_id, version, *packaging_and_classifier = coordinates.split(":")
    digest = digest.removeprefix("sha256:")
    return LockedJar(group_id, artifact_id, version, digest, int(size_bytes), *packaging_and_classifier)


def cached_dir(jars: JarSet, cache: Path) -> Path:
    """The folder that holds ``jars`` once set-up ran; named after the lock, so a new lock is a new folder."""
    return cache / "jars" / f"{jars.name}-{jars.lock_digest}"


def jars_dir(name: JarSetName, cache: Path) -> Path:
    """The folder with the jars of ``name``.

    Raises:
        InvalidSettings: they are missing, so set-up is to run.
    """
    folder = cached_dir(jar_set(name), cache)
    if not (folder / VERIFIED_FILE).exists():
        raise InvalidSettings(f"{name} jars", [f"{folder} is missing: run `{SETUP_COMMAND}`"])
    return folder


def jar_paths(name: JarSetName, cache: Path) -> tuple[Path, ...]:
    """Each jar's path, in the lock's order; raises as ``jars_dir``."""
    folder = jars_dir(name, cache)
    return tuple(folder / jar.file_name for jar in jar_set(name).jars)


def faults(jars: Sequence[LockedJar], folder: Path) -> list[str]:
    """What is wrong with the files of ``folder``, read whole: missing, extra or other bytes. Empty: nothing."""
    expected = {jar.file_name for jar in jars}
    packagings = {"jar", *(jar.packaging for jar in jars)}
    found = {path.name for packaging in packagings for path in folder.glob(f"*.{packaging}")}
    wrong = [f"{name} is missing" for name in sorted(expected - found)]
    wrong += [f"{name} is not in the lock" for name in sorted(found - expected)]
    wrong += [
        f"{jar.file_name} has another SHA-256 than the lock"
        for jar in jars
        if jar.file_name in found and _sha256(folder / jar.file_name) != jar.sha256
    ]
    return wrong


def is_verified(jars: JarSet, folder: Path) -> bool:
    """Whether the files are those that were verified last: by size and time of change, without reading them."""
    try:
        verified = json.loads((folder / VERIFIED_FILE).read_text())
        return bool(verified == _fingerprints(jars, folder))
    except (OSError, ValueError):
        return False


def mark_verified(jars: JarSet, folder: Path) -> None:
    """Remember that ``faults`` found nothing in the files as they are now."""
    staged = folder / f".{VERIFIED_FILE}.{os.getpid()}"
    staged.write_text(json.dumps(_fingerprints(jars, folder), indent=1))
    staged.rename(folder / VERIFIED_FILE)


def _fingerprints(jars: JarSet, folder: Path) -> dict[str, list[int]]:
    states = {jar.file_name: (folder / jar.file_name).stat() for jar in jars.jars}
    return {name: [state.st_size, state.st_mtime_ns] for name, state in states.items()}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
