"""A PostgreSQL server: a warehouse for the embedded stack and for the tests. ``postgresql_program`` finds the program."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from libs.config.connections import PostgresqlSettings
from libs.config.load import Secret
from libs.errors import ServiceUnavailable
from libs.servers.ports import LOOPBACK
from libs.servers.process import ProcessSpec
from libs.setup.cache import cache_dir, staged_dir
from libs.setup.postgresql_program import installed_program, nobody

USER: Final = "headwater"
DATABASE: Final = "postgres"
PROBE_TIMEOUT_S: Final = 2
INITDB_TIMEOUT_S: Final = 120.0
# A quarter of the defaults' memory: a test machine has Kafka, MySQL and Spark beside it.
MEMORY_OPTIONS: Final = ("shared_buffers=32MB", "max_connections=60", "jit=off", "max_wal_size=256MB")


def prepare(
    data_dir: Path,
    *,
    port: int,
    name: str = "postgresql",
    password: str | None = None,
    extra_options: tuple[str, ...] = (),
) -> ProcessSpec:
    """Make ``data_dir`` when that is new, and say how to start the server on it. Blocks (1 s when new).

    ``password``: of the superuser, which without one is let in from loopback as MySQL's root is. ``extra_options``
    (``name=value``) come last and so win.

    Raises:
        InvalidSettings: there is no PostgreSQL; run `make setup`.
        ServiceUnavailable: the folder could not be made.
    """
    program = installed_program(cache_dir())
    data_dir = data_dir.absolute()
    if not data_dir.exists():
        with staged_dir(data_dir) as staging:
            _initialise(staging, password)
    options = (
        f"listen_addresses={LOOPBACK}",
        f"port={port}",
        "unix_socket_directories=",
        "logging_collector=off",
        *MEMORY_OPTIONS,
        *extra_options,
    )
    return ProcessSpec(
        name=name,
        command=(
            *program.command("postgres", ends_with_parent=True),
            "-D",
            str(data_dir),
            *(word for option in options for word in ("-c", option)),
        ),
        environ=dict(program.environ),
        # Not the data folder: that is another user's.
        working_dir=data_dir.parent,
        ready=lambda: _serves(connection_settings(port, password=password), data_dir),
    )


def connection_settings(port: int, *, password: str | None = None) -> PostgresqlSettings:
    """How to reach a server that ``prepare`` described."""
    return PostgresqlSettings(host=LOOPBACK, port=port, database=DATABASE, user=USER, password=Secret(password or ""))


def _initialise(folder: Path, password: str | None) -> None:
    program = installed_program(cache_dir())
    folder.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(folder, nobody().pw_uid, nobody().pw_gid)
    with tempfile.NamedTemporaryFile("w", suffix=".password") as file:
        file.write(password or "")
        file.flush()
        if os.geteuid() == 0:
            os.chown(file.name, nobody().pw_uid, nobody().pw_gid)
        access = (f"--pwfile={file.name}", "--auth=scram-sha-256") if password else ("--auth=trust",)
        done = subprocess.run(
            (
                *program.command("initdb", ends_with_parent=False),
                f"--pgdata={folder}",
                f"--username={USER}",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                *access,
            ),
            env={**os.environ, **dict(program.environ)},
            cwd=folder.parent,
            capture_output=True,
            text=True,
            timeout=INITDB_TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        raise ServiceUnavailable(f"PostgreSQL's data folder {folder} could not be made: {done.stderr.strip()[-400:]}")


def _serves(settings: PostgresqlSettings, data_dir: Path) -> bool:
    """Whether this very server answers: another one may hold the port."""
    import psycopg  # 0.15 CPU s, and most commands that plan a stack start none

    try:
        with psycopg.connect(
            host=settings.host,
            port=settings.port,
            dbname=settings.database,
            user=settings.user,
            password=settings.password.reveal() or None,
            connect_timeout=PROBE_TIMEOUT_S,
        ) as connection:
            row = connection.execute("SHOW data_directory").fetchone()
    except psycopg.Error:
        return False
    return row is not None and Path(row[0]).resolve() == data_dir.resolve()
