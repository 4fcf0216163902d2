"""A real MySQL to start servers from: the machine's own mysqld, else one in the cache. Never MariaDB.

Set-up calls ``install``; ``mysql_server`` asks ``installed_program``. Standard library only.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from libs.errors import InvalidSettings
from libs.setup.cache import staged_dir
from libs.setup.debs import unpack
from libs.setup.installation import SETUP_COMMAND
from libs.setup.step import Progress, run

OLDEST_VERSION = (8, 0)
VERSION_TIMEOUT_S = 20.0
INITIALIZE_TIMEOUT_S = 300.0
UNNEEDED = ("perl", "libperl", "libdb5", "gcc-", "libgdbm")  # for MySQL's helper scripts, not for mysqld
# Clients come over loopback; whether that is "localhost" to MySQL hangs on the machine's /etc/hosts.
TEMPLATE_STATEMENTS = (
    "CREATE USER 'root'@'127.0.0.1';",
    "GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;",
    "GRANT PROXY ON ''@'' TO 'root'@'127.0.0.1' WITH GRANT OPTION;",
)
TEMPLATE_GENERATION = 1  # raise it when the template's making changes: older ones are then made again
REMEDY = (
    f"check the network and run `{SETUP_COMMAND}` again, or install MySQL 8.0 or newer so that mysqld is on the PATH"
)


@dataclass(frozen=True, slots=True)
class MysqlProgram:
    """A mysqld and an empty data folder that it made."""

    command: tuple[str, ...]
    """Starts it, with the options that say where its own files lie."""
    template_dir: Path
    version: str


def installed_program(cache: Path) -> MysqlProgram:
    """The MySQL that set-up put in place.

    Raises:
        InvalidSettings: set-up has not run.
    """
    program = _found(cache)
    if program is None:
        raise InvalidSettings("MySQL", [f"no MySQL 8.0 or newer is set up: run `{SETUP_COMMAND}`"])
    return program


def is_installed(cache: Path) -> bool:
    """Whether ``installed_program`` would answer."""
    return _found(cache) is not None


def install(cache: Path, progress: Progress) -> None:
    """Put a MySQL with its template in place. Blocks; call it under set-up's lock.

    Raises:
        SetupFailed: it could not be downloaded or does not run.
    """
    on_path = _machine_mysqld()
    if on_path is not None:
        command, version = on_path
        with staged_dir(_template_of_machine(cache, version).parent) as staging:
            _make_template(command, staging / "template", progress)
        return
    with staged_dir(_private_dir(cache)) as staging:
        root = staging / "root"
        unpack(
            ("mysql-server-core",),
            root,
            is_wanted=lambda name: not name.startswith(UNNEEDED),
            progress=progress,
            remedy=REMEDY,
        )
        _make_template(_private_command(root), staging / "template", progress)


def user_option() -> tuple[str, ...]:
    """mysqld refuses to run as root without this option; a machine with root only has no other user."""
    return ("--user=root",) if os.geteuid() == 0 else ()


def _found(cache: Path) -> MysqlProgram | None:
    if on_path := _machine_mysqld():
        command, version = on_path
        template = _template_of_machine(cache, version)
        return MysqlProgram(command, template, version) if template.is_dir() else None
    private = _private_dir(cache)
    if not (private / "template" / "mysql.ibd").exists():
        return None
    return MysqlProgram(_private_command(private / "root"), private / "template", "debian-sid")


def _machine_mysqld() -> tuple[tuple[str, ...], str] | None:
    """The machine's own mysqld and its version, when it is a MySQL that is new enough."""
    path = shutil.which("mysqld", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/mysql/bin")
    if path is None:
        return None
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"Ver (\d+)\.(\d+)\.(\d+)", said)
    if match is None or "MariaDB" in said or (int(match[1]), int(match[2])) < OLDEST_VERSION:
        return None
    return (path, "--no-defaults"), match[0].removeprefix("Ver ")


def _template_of_machine(cache: Path, version: str) -> Path:
    return cache / "mysql" / f"machine-{version}-{TEMPLATE_GENERATION}" / "template"


def _private_dir(cache: Path) -> Path:
    return cache / "mysql" / f"debian-sid-{os.uname().machine}-{TEMPLATE_GENERATION}"


def _private_command(root: Path) -> tuple[str, ...]:
    """Through the C library's loader that was unpacked with it: the machine's may be older than mysqld needs."""
    loader = next(iter(sorted(root.glob("usr/lib/*/ld-linux-*.so.*"))), None)
    if loader is None:
        return (str(root / "usr/sbin/mysqld"), "--no-defaults")
    share = root / "usr/share/mysql"
    return (
        str(loader),
        "--library-path",
        str(loader.parent),
        str(root / "usr/sbin/mysqld"),
        "--no-defaults",
        f"--basedir={root / 'usr'}",
        f"--lc-messages-dir={share}",
        f"--character-sets-dir={share / 'charsets'}",
        f"--plugin-dir={root / 'usr/lib/mysql/plugin'}",
    )


def _make_template(command: tuple[str, ...], template: Path, progress: Progress) -> None:
    progress.now("making the template data folder", done_bytes=lambda: sum(_sizes(template)))
    statements = template.with_name("template.sql")
    statements.write_text("\n".join(TEMPLATE_STATEMENTS))
    run(
        (
            *command,
            *user_option(),
            "--initialize-insecure",  # root without password; servers listen on loopback only
            f"--datadir={template}",
            "--secure-file-priv=NULL",
            f"--init-file={statements}",
            "--disable-log-bin",  # a template without transactions of its own
            "--innodb-redo-log-capacity=32M",
        ),
        purpose="making MySQL's template data folder",
        remedy=f"free some disk space and run `{SETUP_COMMAND}` again",
        timeout_s=INITIALIZE_TIMEOUT_S,
    )
    (template / "auto.cnf").unlink(missing_ok=True)  # each copy gets a server UUID of its own


def _sizes(folder: Path) -> list[int]:
    try:
        return [path.stat().st_size for path in folder.glob("*") if path.is_file()]
    except OSError:
        return []
