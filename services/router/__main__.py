"""``python -m services.router --settings FILE``."""

import sys

import libs.telemetry.without_rich  # noqa: F401  # before anything loads structlog
from libs.rpc.lifecycle import run_service
from services.router.service import route
from services.router.settings import RouterSettings

if __name__ == "__main__":
    sys.exit(run_service("router", RouterSettings, route, sys.argv[1:]))
