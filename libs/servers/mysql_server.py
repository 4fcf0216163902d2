"""A MySQL server set up for change data capture: row-based binary log with full images and GTIDs.

Started by the demo, the bench and the test fixtures; the program itself is found by ``mysql_program``. A new
data folder is a copy of set-up's template, whose root has no password and is reachable from loopback alone.
"""

import shutil
from pathlib import Path

import pymysql

from libs.servers.ports import LOOPBACK
from libs.servers.process import ProcessSpec
from libs.setup.cache import cache_dir, staged_dir
from libs.setup.mysql_program import installed_program, user_option

PROBE_TIMEOUT_S = 2
# MySQL 9.7 reference manual 7.1.8 "Server System Variables", 7.1.6 for the needs of GTIDs and the binary log.
CHANGE_LOG_OPTIONS = (
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--gtid-mode=ON",
    "--enforce-gtid-consistency=ON",
)
# 216 MB resident instead of 500: several servers share a test machine.
MEMORY_OPTIONS = (
    "--performance-schema=OFF",
    "--innodb-buffer-pool-size=16M",
    "--innodb-redo-log-capacity=32M",
    "--innodb-log-buffer-size=4M",
    "--max-connections=60",
    "--table-open-cache=200",
)


def prepare(
    data_dir: Path,
    *,
    port: int,
    name: str = "mysql",
    socket: Path | None = None,
    server_id: int = 1,
    extra_options: tuple[str, ...] = (),
) -> ProcessSpec:
    """Copy the template to ``data_dir`` when that is new, and say how to start the server on it. Blocks (0.2 s when new).

    ``extra_options`` come last and so win ("--gtid-mode=OFF"). ``socket`` defaults to none: a Unix socket's
    path may have 107 bytes only, and loopback serves every client here.

    Raises:
        InvalidSettings: there is no MySQL; run `make setup`.
    """
    program = installed_program(cache_dir())
    data_dir = data_dir.absolute()
    if not data_dir.exists():
        with staged_dir(data_dir) as staging:
            shutil.copytree(program.template_dir, staging, dirs_exist_ok=True)
    return ProcessSpec(
        name=name,
        command=(
            *program.command,
            *user_option(),
            f"--datadir={data_dir}",
            f"--port={port}",
            f"--bind-address={LOOPBACK}",
            f"--socket={socket or ''}",
            f"--pid-file={data_dir / 'mysqld.pid'}",
            f"--server-id={server_id}",
            "--mysqlx=OFF",
            "--secure-file-priv=NULL",
            *CHANGE_LOG_OPTIONS,
            *MEMORY_OPTIONS,
            *extra_options,
        ),
        environ={},
        working_dir=data_dir,
        ready=lambda: _serves(port, data_dir),
    )


def _serves(port: int, data_dir: Path) -> bool:
    """Whether this very server answers: another one may hold the port."""
    try:
        with (
            pymysql.connect(
                host=LOOPBACK,
                port=port,
                user="root",
                ssl_disabled=True,
                connect_timeout=PROBE_TIMEOUT_S,
                read_timeout=PROBE_TIMEOUT_S,
                write_timeout=PROBE_TIMEOUT_S,
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT @@datadir")
            row = cursor.fetchone()
    except (pymysql.MySQLError, OSError):
        return False
    return row is not None and Path(row[0]).resolve() == data_dir.resolve()
