"""The modules that a reader and a router load at their start: memory that each of them holds for as long as it runs."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).parents[2]
NOT_LOADED: Final = {
    "rich": "structlog takes it for coloured tracebacks, where it finds it",
    "pygments": "comes with rich",
    "sqlglot": "is loaded with the first row filter",
    "confluent_kafka.schema_registry": "is loaded where a registry is set, with its HTTP client",
    "httpx2": "comes with the schema registry's client",
    "cryptography": "is loaded with the first mask that wants it",
    "redis": "is the view's of other services",
    "pymysql": "is binlog_reader's",
    "pyarrow": "is the sinks'",
    "kubernetes": "is tenant_operator's",
    "jsonschema": "is the tests'",
}
FAUST: Final = {
    "faust": "is the router's",
    "aiokafka": "is the router's",
    "aiohttp": "comes with Faust",
}


def loaded_by(service: str) -> set[str]:
    """The modules of a fresh process that has imported all that the service does at its start."""
    code = f"import sys, services.{service}.__main__\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY, capture_output=True, text=True)
    return set(loaded.stdout.split())


@pytest.mark.parametrize(("service", "not_loaded"), [("vstream_reader", NOT_LOADED | FAUST), ("router", NOT_LOADED)])
def test_a_service_does_not_load_what_it_may_never_need(service: str, not_loaded: dict[str, str]) -> None:
    loaded = loaded_by(service)

    assert f"services.{service}.settings" in loaded
    assert {module: why for module, why in not_loaded.items() if module in loaded} == {}


def test_rich_can_be_loaded_behind_a_service() -> None:
    """The headwater command's tests have both in one process."""
    code = "import services.router.__main__, rich.console, structlog.dev\nassert structlog.dev.rich is None"

    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)


def test_a_command_that_reads_documents_loads_no_clients() -> None:
    """``headwater tenant list`` in a shell's loop: each of these costs some 0.1 s of a processor."""
    code = "import sys, libs.cli.main, libs.cli.tenant_list\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY, capture_output=True, text=True)
    clients = {"confluent_kafka", "cryptography", "google.protobuf", "grpc", "prometheus_client", "psutil", "pymysql"}

    assert "libs.mesh.documents" in loaded.stdout.split()
    assert clients & set(loaded.stdout.split()) == set()


def test_status_loads_no_library_of_a_warehouse_and_no_client_of_a_source() -> None:
    """They cost two seconds of a processor, and a shell's loop runs the command. A source's client comes with a source."""
    code = "import sys, libs.cli.main, libs.cli.status, libs.operations.status\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY, capture_output=True, text=True)
    warehouses = {"pyiceberg", "pyarrow", "deltalake", "psycopg", "clickhouse_connect", "duckdb", "sqlalchemy"}
    sources = {"pymysql", "oracledb", "protos.vitess.query_pb2"}
    servers = {"grpc_reflection.v1alpha.reflection", "libs.rpc.server"}

    assert "libs.mesh.catch_up" not in loaded.stdout.split()
    assert "libs.mesh.resync_notes" in loaded.stdout.split()
    assert (warehouses | sources | servers) & set(loaded.stdout.split()) == set()
