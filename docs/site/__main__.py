"""``make docs``: build the pages of docs/ as a site, into dist/site. A warning or a broken link is an error.

MkDocs comes into the cache (requirements/docs.txt), beside the environment, because nothing else needs it. The pages need no
network: fonts are the reader's own, and no script comes from elsewhere; a page that asks for one is an error too.
"""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from libs.errors import HeadwaterError
from libs.setup import python_packages
from libs.setup.cache import cache_dir, locked, staged_dir
from libs.setup.progress import Display
from libs.setup.step import Progress

REPOSITORY: Final = Path(__file__).parents[2]
SITE: Final = REPOSITORY / "dist" / "site"
ELSEWHERE: Final = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^\"> ]+")


def main() -> int:
    """Exit code 0: the site is built, and whole."""
    try:
        cache = cache_dir()
        with (
            Display() as display,
            locked(cache / "docs.lock", on_wait=lambda: display.say("another build downloads: waiting")),
        ):
            packages = _mkdocs(cache, display.begin("mkdocs"))
            display.end("mkdocs", "ready")
    except HeadwaterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    # Without --quiet, which hides the warnings from --strict too.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]
    path = os.pathsep.join([str(packages), str(REPOSITORY)])
    environ = {**os.environ, "PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=REPOSITORY, env=environ, check=False)
    if built.returncode != 0:
        return built.returncode
    asking = asking_elsewhere(SITE)
    for line in asking:
        sys.stderr.write(f"{line}\n")
    if not asking:
        sys.stdout.write(f"the site is in {SITE.relative_to(REPOSITORY)}: open index.html, or serve the folder\n")
    return 1 if asking else 0


def asking_elsewhere(site: Path) -> list[str]:
    """Each place where a page would load something from another server."""
    return [
        f"{page.relative_to(site)}: {found[0]}"
        for page in sorted(site.rglob("*.html"))
        for found in ELSEWHERE.finditer(page.read_text(encoding="utf-8"))
        if "rel=canonical" not in found[0] and 'rel="canonical"' not in found[0]
    ]


def _mkdocs(cache: Path, progress: Progress) -> Path:
    """The folder of its packages, for each lock one. Raises SetupFailed: it could not be had."""
    lock = (REPOSITORY / "requirements" / "docs.txt").read_bytes()
    release = f"{sys.version_info.major}.{sys.version_info.minor}"  # some packages are compiled
    folder = cache / "docs" / f"{hashlib.sha256(lock).hexdigest()[:16]}-{release}"
    if not folder.exists():
        progress.now("downloading mkdocs")
        with staged_dir(folder) as staging:
            python_packages.install_beside(cache, REPOSITORY, "docs", staging)
    return folder


if __name__ == "__main__":
    sys.exit(main())
