"""``python -m libs.stand_ins.oracle FILE``: the stand-in as a process, over an empty database in its memory.

FILE is YAML::

    port: 15210                    # 0 or left out: any free one
    users: {SHOP: secret}          # passwords by names in capitals; each sees everything

The first line of output is ``listening on HOST:PORT``; SIGTERM ends it, and the database with it. The next one is another
incarnation, so no reader goes on where it stood in this one.
"""

import argparse
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import yaml

from libs.servers.ports import LOOPBACK
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.server import listening

_ENDING: Final = frozenset({signal.SIGTERM, signal.SIGINT})


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    # Blocked, and taken by ``sigwait``. Threads inherit the mask, so this comes before the first.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    parser = argparse.ArgumentParser(prog="python -m libs.stand_ins.oracle")
    parser.add_argument("settings", type=Path, help="YAML: port, and users with their passwords")
    settings = yaml.safe_load(parser.parse_args().settings.read_text())
    model = Model(clock=lambda: datetime.now(UTC).replace(tzinfo=None), resetlogs_id=int(time.time()))
    with listening(ModelDatabase(model, settings["users"]), port=settings.get("port", 0)) as listener:
        print(f"listening on {LOOPBACK}:{listener.port}", flush=True)  # noqa: T201 - what the starter waits for
        signal.sigwait(_ENDING)


if __name__ == "__main__":
    main()
