"""A real PostgreSQL to start servers from: the machine's own, else Debian's, unpacked into the cache.

Set-up calls ``install``; ``postgresql_server`` asks ``installed_program``. Standard library only.

PostgreSQL refuses to run as root. Where there is no other user, the server runs as ``nobody``, which owns its data folder and
keeps one of root's rights: to pass through folders that only root may enter.
"""

import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from libs.errors import InvalidSettings
from libs.setup.cache import staged_dir
from libs.setup.debs import own_release, unpack
from libs.setup.installation import SETUP_COMMAND
from libs.setup.step import Progress

OLDEST_VERSION = 12
VERSION_TIMEOUT_S = 20.0
MACHINE_FOLDERS = "usr/lib/postgresql"
# Not: compilers for its JIT, which the servers here do without, Debian's own wrappers, and the C library that the machine has.
NEEDED = re.compile(r"postgresql-\d+|lib(?!llvm|perl|z3|c6|gcc|stdc).*")
RIGHTS = "--inh-caps=-all,+dac_override --ambient-caps=+dac_override --bounding-set=-all,+dac_override"
REMEDY = f"check the network and run `{SETUP_COMMAND}` again, or install PostgreSQL 12 or newer so that postgres is on the PATH"


@dataclass(frozen=True, slots=True)
class PostgresqlProgram:
    """A postgres and its initdb."""

    bin_dir: Path
    environ: tuple[tuple[str, str], ...] = ()

    def command(self, name: str, *, ends_with_parent: bool) -> tuple[str, ...]:
        """Starts the program ``name`` of it as a user that it accepts."""
        program = str(self.bin_dir / name)
        if os.geteuid() != 0:
            return (program,)
        user = nobody()
        # The change of user drops the signal that ``process.start`` has set; SIGINT is a fast shutdown.
        parent = ("--pdeathsig", "INT") if ends_with_parent else ()
        ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
        return ("setpriv", *ids, *RIGHTS.split(), *parent, "--", program)


def nobody() -> pwd.struct_passwd:
    """The user that stands in for root."""
    return pwd.getpwnam("nobody")


def installed_program(cache: Path) -> PostgresqlProgram:
    """The PostgreSQL that set-up put in place.

    Raises:
        InvalidSettings: set-up has not run.
    """
    program = _machine_program() or _private_program(cache)
    if program is None:
        raise InvalidSettings(
            "PostgreSQL", [f"no PostgreSQL {OLDEST_VERSION} or newer is set up: run `{SETUP_COMMAND}`"]
        )
    return program


def is_installed(cache: Path) -> bool:
    """Whether ``installed_program`` would answer."""
    return (_machine_program() or _private_program(cache)) is not None


def install(cache: Path, progress: Progress) -> None:
    """Put a PostgreSQL in place. Blocks; call it under set-up's lock.

    Raises:
        SetupFailed: it could not be downloaded.
    """
    with staged_dir(_private_dir(cache)) as staging:
        unpack(
            ("postgresql",),
            staging / "root",
            release=own_release(),  # with the machine's own C library
            is_wanted=lambda name: NEEDED.fullmatch(name) is not None,
            progress=progress,
            remedy=REMEDY,
        )


def _machine_program() -> PostgresqlProgram | None:
    """The newest of the machine's; Debian keeps each version in a folder of its own, off the PATH."""
    on_path = shutil.which("postgres")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += [path.parent for path in Path("/", MACHINE_FOLDERS).glob("*/bin/postgres")]
    versions = {folder: _version(folder) for folder in folders}
    newest = max(versions, key=lambda folder: versions[folder], default=None)
    return PostgresqlProgram(newest) if newest is not None and versions[newest] >= OLDEST_VERSION else None


def _version(bin_dir: Path) -> int:
    """0: it does not run, or has no initdb beside it."""
    if not (bin_dir / "initdb").exists():
        return 0
    try:
        said = subprocess.run(
            [bin_dir / "postgres", "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r"\(PostgreSQL\) (\d+)", said)
    return int(match[1]) if match else 0


def _private_dir(cache: Path) -> Path:
    return cache / "postgresql" / f"debian-{own_release()}-{os.uname().machine}"


def _private_program(cache: Path) -> PostgresqlProgram | None:
    root = _private_dir(cache) / "root"
    found = sorted(root.glob(f"{MACHINE_FOLDERS}/*/bin/postgres"))
    if not found:
        return None
    libraries = ":".join(str(path) for path in sorted({library.parent for library in root.glob("**/*.so.*")}))
    return PostgresqlProgram(found[-1].parent, (("LD_LIBRARY_PATH", libraries),))
