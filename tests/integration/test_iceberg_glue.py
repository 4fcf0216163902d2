"""Iceberg's own GlueCatalog, with the sink's properties, asks as Glue expects. No Glue can be had: a stand-in answers."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]

from libs.config.iceberg_catalog import CatalogKind, CatalogSettings
from libs.servers.ports import LOOPBACK
from libs.setup import jar_download
from libs.setup.cache import cache_dir
from libs.setup.jars import jar_paths, jar_set
from libs.setup.java import find_java
from libs.types.warehouse import CATALOG, WarehouseTable
from spark.sinks.iceberg.catalog import catalog_config, place_in
from tests.iceberg_catalogs import LOCKS_DIR, MEMORY_OPTIONS

PREFIX = f"spark.sql.catalog.{CATALOG}."
NOT_FOUND = b'{"__type": "EntityNotFoundException", "Message": "none"}'


@dataclass(slots=True)
class Glue:
    """A stand-in that has no tables, and remembers its requests: operation, content, signer."""

    uri: str
    asked: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)


@pytest.fixture
def glue() -> Iterator[Glue]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            stand_in.asked.append((self.headers["X-Amz-Target"], request, self.headers["Authorization"]))
            self.send_response(400)
            self.send_header("x-amzn-ErrorType", "EntityNotFoundException")
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(NOT_FOUND)))
            self.end_headers()
            self.wfile.write(NOT_FOUND)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    stand_in = Glue(f"http://{LOOPBACK}:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield stand_in
    server.shutdown()
    server.server_close()


@contextlib.contextmanager
def java_with_aws() -> Iterator[Any]:
    """A JVM with Iceberg of the sink's version, and Amazon's client."""
    aws = jar_download.fetched(jar_set("iceberg-aws", LOCKS_DIR), cache_dir())
    [iceberg] = [path for path in jar_paths("spark", cache_dir()) if path.name.startswith("iceberg-spark-runtime")]
    jars = Path(pyspark.__file__).parent / "jars"
    port, token = launch_gateway(
        jarpath=str(next(jars.glob("py4j-*.jar"))),
        classpath=f"{iceberg}:{aws}/*:{jars}/*",
        javaopts=list(MEMORY_OPTIONS),
        java_path=str(find_java(cache_dir()).executable),
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()


@pytest.mark.rest(because="the gate has the REST catalog, in test_iceberg_catalogs.py")
def test_glue_is_asked_for_a_table_by_its_place_in_the_account_and_region(
    glue: Glue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which database, of which account, where: by the settings; the signer: by the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    given = {"glue.id": "123456789012", "client.region": "eu-central-1", "glue.endpoint": glue.uri}
    settings = CatalogSettings(kind=CatalogKind.GLUE, properties=given)
    config = catalog_config(settings, "s3://bucket/warehouse")
    properties = {name.removeprefix(PREFIX): value for name, value in config.items() if name.startswith(PREFIX)}
    place = place_in(settings, WarehouseTable(namespace=("acme", "shop", "shop"), name="orders"))

    with java_with_aws() as jvm:
        catalog = jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(CATALOG, properties, None)
        is_there = catalog.tableExists(jvm.org.apache.iceberg.catalog.TableIdentifier.parse(".".join(place.identifier)))
        kind = catalog.getClass().getSimpleName()

    [(operation, request, signed)] = glue.asked
    assert (kind, is_there) == ("GlueCatalog", False)
    assert operation == "AWSGlue.GetTable"
    assert request == {"CatalogId": "123456789012", "DatabaseName": "acme__shop__shop", "Name": "orders"}
    assert "Credential=key-of-the-environment/" in signed
    assert "/eu-central-1/glue/" in signed
