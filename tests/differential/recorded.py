"""A recorded stream of the stand-in for Vitess, as a tenant of everything gets it, and as Debezium's connector writes it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.connect import Connector
from bench.debezium_vitess import debezium_vitess
from libs.source.vitess.settings import EventSettings, TransactionMetadata
from libs.stand_ins.vtgate.replay import ReplayServer, read_record
from libs.types.table import TableId, TableSchema
from libs.types.tenant import FormatSettings, HeaderForm, SourceSelection, SourceTypes, TenantSpec, TopicSettings
from libs.types.value_modes import ValueModes
from services.router.batches.batch_reading import read_changes
from services.router.routes.book import RouteBook
from services.router.routes.topic_claims import TopicClaims
from tests.differential.test_debezium_on_the_stand_in import Record
from tests.unit.router.test_deliver import deliver, records_of
from tests.unit.vstream_reader.stream import replay, start_of


def our_records(
    path: Path, prefix: str, keyspace: str, topics: Sequence[str], *, modes: ValueModes | None = None
) -> dict[str, list[Record]]:
    """By topic, without the tenant's and the source's names."""
    replayed = replay(
        start_of("-80", "80-", keyspace=keyspace),
        source=prefix,
        keyspace=keyspace,
        modes=modes,
        events=EventSettings(transaction_metadata=TransactionMetadata.ORDERED),
        is_copying=True,
    ).feed(*read_record(path))
    replayed.decoder.flush()
    schemas = {(schema.table_id, schema.version): schema for schema in replayed.schemas}

    def schema_of(table_id: TableId, version: int) -> TableSchema:
        return schemas[table_id, version]

    spec = TenantSpec(
        tenant="acme",
        sources=(SourceSelection(name=prefix),),
        format=FormatSettings(schemas=True, headers=HeaderForm.JSON, source_types=SourceTypes(columns=(".*",))),
        topics=TopicSettings(transactions=True),
    )
    deliveries = deliver(
        read_changes(replayed.batch.take(0)[0]), RouteBook(prefix, (spec,), schema_of, TopicClaims()).view()
    )
    return {
        name: [
            Record(key=_document(key), value=_document(value), headers={name: _text(each) for name, each in headers})
            for key, value, headers in records_of(deliveries, f"acme.{prefix}.{name}")
        ]
        for name in topics
    }


@contextmanager
def debezium_reads(
    path: Path, folder: Path, bootstrap_servers: str, *, keyspace: str, prefix: str, options: Mapping[str, object]
) -> Iterator[Connector]:
    """The connector, with schemas in its events, while it reads the record at ``path``."""
    server = ReplayServer(path).start()
    try:
        with debezium_vitess(
            folder,
            bootstrap_servers,
            vtgate_port=server.port,
            keyspace=keyspace,
            topic_prefix=prefix,
            options={"poll.interval.ms": 20, "column.propagate.source.type": ".*", **options},
            with_schemas=True,
        ) as connector:
            yield connector
    finally:
        server.stop()


def _document(data: bytes | None):
    return None if data is None else json.loads(data)


def _text(data: bytes):
    try:
        return json.loads(data)
    except ValueError:
        return data.decode()
