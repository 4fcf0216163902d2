"""Fetches a locked set of jars with Maven into the cache: whole and verified, or not at all.

Standard library only; called by set-up. Maven reaches the registry as the machine's own settings say; a machine
without settings gets ours, which let Maven ask Maven Central alone (Spark's pom names a second repository that may be
absent).
"""

import shutil
from pathlib import Path

from libs.setup import maven
from libs.setup.cache import locked, staged_dir
from libs.setup.installation import SETUP_COMMAND
from libs.setup.jars import JarSet, cached_dir, faults, is_verified, mark_verified
from libs.setup.java import Java, find_java
from libs.setup.maven import Maven
from libs.setup.step import Progress, SetupFailed, folder_bytes, run

DOWNLOAD_TIMEOUT_S = 1_200.0
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
REMEDY = f"check the network (Maven's settings: ~/.m2/settings.xml) and run `{SETUP_COMMAND}` again"


def is_fetched(jars: JarSet, cache: Path) -> bool:
    """Whether the cache holds the very files that were verified; reads none of them."""
    return is_verified(jars, cached_dir(jars, cache))


def fetched(jars: JarSet, cache: Path) -> Path:
    """The folder with ``jars``, filled when it is not: for jars that set-up leaves out. Blocks, for minutes when they are new.

    Raises:
        SetupFailed: there is no Maven, or the registry was not reached or gave other bytes than the lock names.
    """
    if not is_fetched(jars, cache):
        java = find_java(cache)
        with locked(cache / "setup.lock"):
            if not maven.is_there(cache):
                maven.install(cache, Progress())
            fetch(jars, cache, maven.find_maven(cache, java), java, Progress())
    return cached_dir(jars, cache)


def fetch(jars: JarSet, cache: Path, maven: Maven, java: Java, progress: Progress) -> None:
    """Put ``jars`` into the cache, or mend them there. Blocks; call it under set-up's lock.

    Raises:
        SetupFailed: the registry was not reached, or gave other bytes than the lock names.
    """
    folder = cached_dir(jars, cache)
    progress.now("verifying")
    if folder.is_dir() and not faults(jars.jars, folder):
        mark_verified(jars, folder)  # whole, but touched: copied, or restored from a backup
        return
    with staged_dir(folder) as staging:
        _download(jars, staging, maven, java, progress)
        wrong = faults(jars.jars, staging)
        if wrong:
            raise SetupFailed(
                f"{wrong[0]} ({len(wrong)} wrong in all)",
                "the registry gives other files than the lock names: ask its operator",
            )
        mark_verified(jars, staging)


def _download(jars: JarSet, staging: Path, maven: Maven, java: Java, progress: Progress) -> None:
    # A repository for this once: the user's own may hold a damaged file, or be out of our reach.
    repository = staging / "maven"
    progress.now(
        f"{len(jars.jars)} jars",
        done_bytes=lambda: _fetched_bytes(jars, repository),
        total_bytes=jars.size_bytes,
    )
    run(
        [
            *maven.command,
            "--batch-mode",
            "--no-transfer-progress",
            *maven.settings_options,
            f"-Dmaven.repo.local={repository}",
            "--file",
            jars.pom,
            COPY_GOAL,
            f"-DoutputDirectory={staging}",
        ],
        purpose=f"fetching the jars of {jars.name}",
        remedy=REMEDY,
        timeout_s=DOWNLOAD_TIMEOUT_S,
        environ=java.environ,
        cwd=staging,
    )
    shutil.rmtree(repository)


def _fetched_bytes(jars: JarSet, repository: Path) -> int:
    """Without those of Maven's plugins; a file counts while it is still written (under a temporary name)."""
    folders = {repository.joinpath(*jar.group_id.split("."), jar.artifact_id, jar.version) for jar in jars.jars}
    return sum(folder_bytes(folder, "*.jar*") for folder in folders)
