"""``python -m libs.cli``: the ``headwater`` command."""

import libs.telemetry.without_rich  # noqa: F401  # before anything loads structlog: 0.12 CPU s of each command
from libs.cli.main import run

if __name__ == "__main__":
    run()
