"""Every type of a keyspace's tables, with its edges: real shards, the stand-in for vtgate, the reader, Iceberg, and back.

As ``test_types`` for MySQL: each value that another engine reads from the warehouse equals the one that the shards print, be a
row copied or come in the stream.
"""

import contextlib
from contextlib import aclosing

import msgspec
import pytest

from libs.check.source import asked
from libs.events.batch import BatchIdentity
from libs.mesh.documents import VitessDocument, VtgateDocument
from libs.source.vitess.settings import VtgateSettings
from libs.stand_ins.vtgate.cluster import on_every_shard
from libs.stand_ins.vtgate.service import VtgateServer
from libs.stand_ins.vtgate.topology import database_name
from libs.types.table import TableId
from libs.types.value_modes import BinaryMode, DecimalMode, TimePrecision, UnsignedBigintMode, VitessValueModes
from libs.warehouse.types_page import loss
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch, Entry
from services.vstream_reader.settings import VstreamReaderSettings
from services.vstream_reader.source import VstreamSource
from tests.conftest import StartVtgate
from tests.contract.sink_harness import WarehouseHarness
from tests.contract.test_types import MORE_COLUMNS, by_id, found_and_printed, records_of, rows_for
from tests.integration.test_mysql_values import COLUMNS, LENIENT, insert
from tests.integration.test_vstream_reader import UNUSED, MemoryHistory
from tests.spark_session import shared_spark

pytestmark = pytest.mark.servers

# A tablet learns a table's columns by SELECT *, so that it streams none with an INVISIBLE one.
SEEN_COLUMNS = COLUMNS.replace(", hidden INT DEFAULT 5 INVISIBLE", "")
ROUNDED_IN_A_COPY = {"dm"}
"""A DOUBLE(M,D): vttablet copies it as MySQL prints it, in D digits, and logs it whole (docs/vitess.md)."""
MODES = [
    VitessValueModes(),
    VitessValueModes(
        time_precision=TimePrecision.ISO_STRING,
        decimal=DecimalMode.PRECISE,
        unsigned_bigint=UnsignedBigintMode.PRECISE,
        binary=BinaryMode.BASE64,
    ),
    VitessValueModes(time_precision=TimePrecision.CONNECT, binary=BinaryMode.HEX),
]


@pytest.mark.parametrize("modes", MODES, ids=lambda modes: modes.time_precision.value)
async def test_every_value_comes_back_as_it_was(modes: VitessValueModes, start_vtgate: StartVtgate) -> None:
    """Copied, and as a change; values that the page of types calls lost differ, and nothing else."""
    server = start_vtgate()
    keyspace = server.topology.keyspaces[0].name
    on_every_shard(
        server.topology, keyspace, [f"CREATE TABLE t ({SEEN_COLUMNS}, {MORE_COLUMNS}) CHARACTER SET utf8mb4"]
    )
    rows = [{name: text for name, text in row.items() if name != "hidden"} for row in rows_for(modes, holds_nul=True)]
    write(server, 1, rows)

    history, entries = await read(server, modes, rows)
    shared = shared_spark()
    harness = WarehouseHarness(shared.session, shared.sink, unused, f"vitess-types-{modes.time_precision.value}")
    schema = msgspec.structs.replace(
        await history.table_schema("", TableId(database=keyspace, table="t"), 1),
        table_id=TableId(database="types", table=modes.time_precision.value),
    )
    harness.append_records(schema, list(records_of(entries)))

    document = VitessDocument(vtgate=VtgateDocument(port=server.port), keyspace=keyspace, values=modes)
    with shared.loaded(harness.place(schema)) as table, asked(document) as source:
        found, printed = found_and_printed(table.scan().to_arrow(), source, keyspace)
    assert sorted(found["id"]) == sorted(printed["id"])
    assert len(found["id"]) == 4 * len(rows)
    differing = {name for name in printed if by_id(found, name) != by_id(printed, name)}
    lost = {item.name for item in schema.columns if loss(item) is not None}
    assert differing == lost | ROUNDED_IN_A_COPY


def write(server: VtgateServer, first_id: int, rows: list[dict[str, str]]) -> None:
    """The rows in every shard, by its MySQL server: with keys of its own, also where those would be of another shard."""
    keyspace = server.topology.keyspaces[0].name
    for nth, shard in enumerate(server.topology.serving(keyspace)):
        with contextlib.closing(shard.primary.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(LENIENT)
            for statement in insert(f"`{database_name(keyspace, shard.name)}`", first_id + 1_000 * nth, rows):
                cursor.execute(statement)


async def read(
    server: VtgateServer, modes: VitessValueModes, rows: list[dict[str, str]]
) -> tuple[MemoryHistory, list[Entry]]:
    """All that the reader publishes of a copy of the rows, and of as many that are written after it."""
    keyspace, history = server.topology.keyspaces[0].name, MemoryHistory()
    settings = VstreamReaderSettings(
        source="src",
        vtgate=VtgateSettings(host="127.0.0.1", port=server.port),
        keyspace=keyspace,
        values=modes,
        schema_history=UNUSED,
        checkpoint_committer=UNUSED,
    )
    source = VstreamSource(settings, history)  # type: ignore[arg-type]  # the same methods
    identity = BatchIdentity(source="src", source_partition="0", connector="vitess", run_id="r", fencing_token=1)
    entries: list[Entry] = []
    is_written = False
    async with source.open(None, identity) as change_log, aclosing(change_log.batches()) as batches:  # type: ignore[type-var]
        async for batch in batches:
            entries += [entry for entry in ChangeBatch.FromString(batch.payload).entries if entry.HasField("run")]
            count = sum(len(entry.run.values) for entry in entries)
            if count >= 4 * len(rows):
                return history, entries
            if batch.resume is not None and batch.resume.snapshot is None and not is_written:
                is_written = True
                write(server, 101, rows)
    raise AssertionError("the stream ended")


def unused(_: object) -> list[dict[str, object]]:
    raise AssertionError("read by Arrow here")
