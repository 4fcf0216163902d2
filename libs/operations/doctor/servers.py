"""The servers that documents name: sources, warehouses, a schema registry, the Kafka of a DTS subscription."""

import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

from libs.clickhouse.settings import ClickhouseWarehouse
from libs.config.connections import KafkaSettings, SchemaRegistrySettings
from libs.errors import HeadwaterError
from libs.mesh.documents import DtsDocument, SourceDocument
from libs.mesh.home import Home
from libs.mesh.tenant_topics import topic_names
from libs.operations.doctor.report import Finding, answered, fault, warning, well
from libs.operations.preflight import preflight, reader_has_begun, resume_position, where
from libs.postgresql.settings import PostgresqlWarehouse

_APPLICATION: Final = "headwater doctor"
_TIMEOUT_S: Final = 5.0
_AT_ONCE: Final = 16
_SECURE: Final = {"https": 443, "http": 80}


def sources(documents: Mapping[str, SourceDocument], home: Home | None) -> Iterator[Finding]:
    """The pre-flight of each, side by side. ``home``: whose checkpoints say where its reader stands."""
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        for found in pool.map(lambda name: list(_source(name, documents[name], home)), documents):
            yield from found


def _source(name: str, document: SourceDocument, home: Home | None) -> Iterator[Finding]:
    subject = f"source {name}"
    if isinstance(document, DtsDocument) and document.subscription.bootstrap_servers:
        remedy = f"correct 'subscription' in sources/{name}.yaml; the network must reach DTS's Kafka"
        yield answered("servers", f"{subject}'s subscription", _kafka(document.subscription.as_kafka()), remedy)
    try:
        resume_from = None if home is None else resume_position(home, name, document)
        has_begun = home is not None and reader_has_begun(home, name, document)
        report = preflight(document, resume_from=resume_from, has_begun=has_begun)
    except (HeadwaterError, OSError) as error:
        remedy = "correct host, port, user and password in the source's document, or bring the server back"
        yield fault("servers", subject, str(error), f"{remedy}; `headwater validate {name}` asks it again")
        return
    yield from (fault("servers", subject, f"{where(document)}: {each.what}", each.mend) for each in report.faults)
    yield from (warning("servers", subject, f"{where(document)}: {each.what}", each.mend) for each in report.warnings)
    if not report.faults:
        yield well("servers", subject, f"{where(document)} can be followed")


def kafka(settings: KafkaSettings) -> Finding:
    """Whether it answers this user."""
    return answered("servers", "Kafka", _kafka(settings), "correct `kafka` in the file for --mesh, or bring Kafka back")


def _kafka(settings: KafkaSettings) -> Callable[[], str]:
    return lambda: f"{settings.bootstrap_servers}: {len(topic_names(settings)):,} topics"


def warehouses(postgresql: PostgresqlWarehouse | None, clickhouse: ClickhouseWarehouse | None) -> Iterator[Finding]:
    """Whether each lets the sink's user in."""
    if postgresql is not None:
        from libs.postgresql.connection import connect

        remedy = "correct `postgresql` in warehouses.yaml, or bring the server back"

        def asked_postgresql() -> str:
            connect(postgresql, application=_APPLICATION).close()
            return f"{postgresql.host}:{postgresql.port}/{postgresql.database} lets user {postgresql.user} in"

        yield answered("servers", "PostgreSQL", asked_postgresql, remedy)
    if clickhouse is not None:
        from libs.clickhouse.connection import connect as connect_clickhouse

        remedy = "correct `clickhouse` in warehouses.yaml, or bring the server back"

        def asked_clickhouse() -> str:
            connect_clickhouse(clickhouse, application=_APPLICATION).close()
            return f"{clickhouse.host}:{clickhouse.port} lets user {clickhouse.user} in"

        yield answered("servers", "ClickHouse", asked_clickhouse, remedy)


def schema_registry(settings: SchemaRegistrySettings | None) -> Iterator[Finding]:
    """Whether something listens at each of its addresses."""
    for url in settings.url.split(",") if settings is not None else ():
        parts = urlsplit(url.strip())
        place = (parts.hostname or "", parts.port or _SECURE.get(parts.scheme, 80))

        def reached(place: tuple[str, int] = place) -> str:
            with socket.create_connection(place, timeout=_TIMEOUT_S):
                return f"{place[0]}:{place[1]} accepts connections"

        remedy = "correct `url` in schema_registry.yaml, or bring the registry back"
        yield answered("servers", f"schema registry {place[0]}:{place[1]}", reached, remedy)
