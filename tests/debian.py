"""A chroot of a Debian release, in which an ordinary user of that machine works on a clone of this repository.

``python -m tests.debian [RELEASE] [COMMAND]`` runs ``make demo`` and ``make test-fast`` there (`make debian-13`). The clone
has committed files only. Root only, for debootstrap and chroot: the command itself runs as user ``ada``, without rights. The
chroot is kept in the cache (``debian``) with ada's home, so that a second run finds her downloads. It has processes and mounts
of its own.
"""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from libs.errors import HeadwaterError
from libs.setup import debs
from libs.setup.cache import cache_dir, locked, staged_dir
from libs.setup.progress import Display
from libs.setup.step import Progress, SetupFailed, run

REPOSITORY: Final = Path(__file__).parents[1]
PACKAGES: Final = "python3,python3-venv,git,make,ca-certificates,util-linux"
"""Packages that the README asks for, and those that each Debian has but debootstrap's minimum lacks."""
USER: Final = "ada"
USER_ID: Final = 1000
MAKE_TIMEOUT_S: Final = 1_800.0
REMEDY: Final = "see above; check the network, and run it again"
COMMAND: Final = "make demo && make test-fast"
# This machine's way to its registries.
MACHINE_FILES: Final = (
    *(Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pip.conf")),
    *(Path("/etc/resolv.conf"), Path("/etc/hosts")),
)
# Without devices a chroot has no /dev/null; without /proc no psutil. All processes inside end with the shell.
ENTER: Final = """\
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
chroot --userspec="$2" "$1" /usr/bin/env -i HOME="$3" PATH=/usr/bin:/bin LANG=C.UTF-8 sh -c "cd ~/headwater && $4"
"""


def main(release: str = "trixie", command: str = COMMAND) -> int:
    """Run ``command`` in a clone inside; returns its exit code."""
    root = cache_dir() / "debian" / release
    home = Path("home") / USER
    try:
        with locked(cache_dir() / "debian.lock"):
            with Display() as display:
                if not root.is_dir():
                    _make(root, release, display.begin(f"Debian {release}"))
                    display.end(f"Debian {release}", "done")
            _bring(root, home)
            entered = [*("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", ENTER, "sh")]
            where = [str(root), f"{USER_ID}:{USER_ID}", f"/{home}", command]
            return subprocess.run([*entered, *where], check=False).returncode
    except (HeadwaterError, OSError) as error:
        sys.stderr.write(f"no Debian {release} to run {shlex.quote(command)} in: {error}\n")
        return 1


def _make(root: Path, release: str, progress: Progress) -> None:
    mirror = debs.debian_mirror()
    if mirror is None:
        raise SetupFailed("apt on this machine uses no mirror of Debian's archive", "run it on Debian")
    progress.now("debootstrap")
    with staged_dir(root) as staging:
        run(
            ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", release, staging, mirror],
            purpose=f"making a chroot of Debian {release}",
            remedy="as root: apt-get install debootstrap; check the network, and run it again",
            timeout_s=MAKE_TIMEOUT_S,
        )
        added = ["chroot", staging, "useradd", "--create-home", "--uid", str(USER_ID), USER]
        run(added, purpose=f"adding the user {USER}", remedy=REMEDY, timeout_s=MAKE_TIMEOUT_S)


def _bring(root: Path, home: Path) -> None:
    """A fresh clone, and the machine's way to its registries."""
    for path in MACHINE_FILES:
        if path.exists():
            shutil.copyfile(path, root / path.relative_to("/"))
    clone = root / home / "headwater"
    # Files that set-up put into an earlier clone are kept: git ignores them.
    if not (clone / ".git").is_dir():
        _git("clone", "--quiet", "--no-hardlinks", str(REPOSITORY), str(clone))
    _git("-C", str(clone), "fetch", "--quiet", str(REPOSITORY), "HEAD")
    _git("-C", str(clone), "reset", "--quiet", "--hard", "FETCH_HEAD")
    _git("-C", str(clone), "clean", "--quiet", "--force", "-d")
    maven = Path.home() / ".m2" / "settings.xml"
    if maven.exists():
        (root / home / ".m2").mkdir(exist_ok=True)
        shutil.copyfile(maven, root / home / ".m2" / "settings.xml")
    owned = ["chown", "-R", f"{USER_ID}:{USER_ID}", root / home]
    run(owned, purpose=f"giving {USER} her files", remedy=REMEDY, timeout_s=MAKE_TIMEOUT_S)


def _git(*arguments: str) -> None:
    """As root in a repository of another user's, which git refuses unless it is asked to."""
    run(
        ["git", "-c", "safe.directory=*", *arguments],
        purpose="bringing a clone of the repository",
        remedy=REMEDY,
        timeout_s=MAKE_TIMEOUT_S,
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
