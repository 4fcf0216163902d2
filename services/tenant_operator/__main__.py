"""Starts tenant_operator: ``python -m services.tenant_operator --settings FILE``."""

import sys

import libs.telemetry.without_rich  # noqa: F401  # before anything loads structlog
from libs.rpc.lifecycle import run_service
from services.tenant_operator.operate import operate
from services.tenant_operator.settings import TenantOperatorSettings

if __name__ == "__main__":
    sys.exit(run_service("tenant_operator", TenantOperatorSettings, operate, sys.argv[1:]))
