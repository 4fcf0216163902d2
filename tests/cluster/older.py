"""An older Headwater, from which the node test upgrades: chart and images as they were at one commit.

Its files come out of this clone's history, or, where the clone is shallow, of where it was cloned from. They are kept in the
cache, and the images beside the present ones (``images``), named by the commit: a second run builds nothing.
"""

from pathlib import Path
from typing import Final

from libs.errors import HeadwaterError
from libs.setup.cache import cache_dir, locked, staged_dir
from libs.setup.step import SetupFailed, run
from tests.cluster.programs import REPOSITORY

COMMIT: Final = "b5510c6391d6db6d66ba9b86535ee47fb476f46c"
"""Of 25 November 2026. A newer one may be taken as soon as nobody runs an older one."""
TAG: Final = COMMIT[:12]
GIT_TIMEOUT_S: Final = 300.0
REMEDY: Final = "fetch that commit (`git fetch --unshallow`), and run `make cluster-e2e` again"


def folder() -> Path:
    """Where its files lie, once ``fetch`` has put them there."""
    return cache_dir() / "kubernetes" / f"headwater-{TAG}"


def chart() -> Path:
    return folder() / "charts" / "headwater"


def fetch() -> str | None:
    """Put its files into the cache. Why they cannot be had; None: they are there."""
    with locked(cache_dir() / "kubernetes.lock"):
        if folder().is_dir():
            return None
        try:
            _fetch_commit()
            with staged_dir(folder()) as staging:
                archive = staging / "files.tar"
                _git("archive", f"--output={archive}", COMMIT, purpose="reading an older Headwater out of Git")
                run(
                    ["tar", "-xf", archive, "-C", staging],
                    purpose="unpacking an older Headwater",
                    remedy=REMEDY,
                    timeout_s=GIT_TIMEOUT_S,
                )
                archive.unlink()
        except (HeadwaterError, OSError) as error:
            return str(error)
    return None


def _fetch_commit() -> None:
    """A shallow clone lacks it; a clone by a path, or of a server that allows it, can ask for the one commit."""
    try:
        _git("cat-file", "-e", f"{COMMIT}^{{commit}}", purpose="looking for an older Headwater in Git")
    except HeadwaterError:
        try:
            _git("fetch", "--quiet", "--depth=1", "origin", COMMIT, purpose="fetching an older Headwater")
        except HeadwaterError as error:
            fault = f"commit {TAG} is neither in this clone's history nor to be had of where it was cloned from"
            raise SetupFailed(fault, REMEDY) from error


def _git(*arguments: str, purpose: str) -> str:
    return run(["git", *arguments], purpose=purpose, remedy=REMEDY, timeout_s=GIT_TIMEOUT_S, cwd=REPOSITORY)
