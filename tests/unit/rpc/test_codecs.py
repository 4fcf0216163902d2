"""Records to protobuf and back: nothing is lost on the way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.events.checkpoint_codec import checkpoint_key, decode_checkpoint, encode_checkpoint
from libs.events.schema_change import SchemaChange, SchemaChangeKind, schema_change_from_proto, schema_change_to_proto
from libs.rpc.checkpoint_committer_client import progress_from_proto, progress_to_proto
from libs.rpc.tenants_client import refusal_from_proto, refusal_to_proto
from libs.types.checkpoint import (
    Checkpoint,
    FencingToken,
    FinishedCopy,
    IncrementalSnapshot,
    SnapshotProgress,
    TableCopy,
)
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from libs.types.progress import Progress
from libs.types.refusal import Refusal
from libs.types.table import Column, TableId, TableSchema
from libs.types.value import LogicalKind, LogicalType

names = st.text(min_size=1, max_size=8).filter(lambda text: "." not in text)
counts = st.integers(min_value=0, max_value=2**63 - 1)
orders = st.builds(
    EventOrder,
    epoch=st.integers(0, 2**32 - 1),
    rank=st.integers(0, 10**26),
    tx_ordinal=st.integers(0, 2**63 - 1),
)
positions = st.builds(SourcePosition, source_kind=names, token=st.binary(max_size=16))
partitions = st.builds(SourcePartition, source=names, name=names)
snapshots = st.builds(
    SnapshotProgress,
    finished_tables=st.lists(names).map(tuple),
    tables=st.integers(0, 2**32 - 1),
    current_table=names,
    last_key=st.binary(max_size=8),
    rows_copied=counts,
    rows_estimated=counts,
)
tenants = st.lists(names, max_size=2).map(tuple)
copies = st.builds(
    TableCopy,
    table=names,
    condition=names,
    signal_id=names,
    last_key=st.binary(max_size=8),
    for_tenants=tenants,
)
finished = st.builds(FinishedCopy, table=names, signal_id=names, condition=names, rows_read=counts, for_tenants=tenants)
incremental = st.builds(
    IncrementalSnapshot,
    tables=st.lists(copies).map(tuple),
    is_paused=st.booleans(),
    signals_offset=st.none() | counts,
    signals_topic_id=names,
    finished=st.lists(finished).map(tuple),
)
checkpoints = st.builds(
    Checkpoint,
    partition=partitions,
    position=positions,
    order=orders,
    fencing_token=counts.map(FencingToken),
    committed_at_us=counts,
    published_at_us=counts,
    rows_published=counts,
    snapshot=st.none() | snapshots,
    incremental=incremental,
)
table_ids = st.builds(TableId, database=names, table=names)
columns = st.builds(
    Column,
    name=names,
    source_type=names,
    logical_type=st.builds(LogicalType, kind=st.sampled_from(LogicalKind), allowed=st.lists(names).map(tuple)),
    default_expression=st.none() | st.text(max_size=5),
)


@given(checkpoint=checkpoints)
def test_a_checkpoint_survives_the_log(checkpoint: Checkpoint) -> None:
    """Ranks above 64 bits and an absent snapshot too."""
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


def test_the_key_of_a_checkpoint_is_fixed() -> None:
    """It stands in every broker's compacted log: another spelling would lose all resume points."""
    assert checkpoint_key(SourcePartition(source="erp", name="server-1")) == b"erp/server-1"


def test_yesterdays_checkpoint_loads() -> None:
    """Bytes as they were written by the first release."""
    stored = bytes.fromhex(
        "0a0365727012087365727665722d311a0c0a056d7973716c1203613a312206120439393939280230c0843d38c1843d4007"
    )

    loaded = decode_checkpoint(stored)

    assert loaded == Checkpoint(
        partition=SourcePartition(source="erp", name="server-1"),
        position=SourcePosition(source_kind="mysql", token=b"a:1"),
        order=EventOrder(epoch=0, rank=9999, tx_ordinal=0),
        fencing_token=FencingToken(2),
        committed_at_us=1_000_000,
        published_at_us=1_000_001,
        rows_published=7,
    )


@given(
    partition=partitions,
    order=orders,
    table=st.text(max_size=8),
    rows=counts,
    committed_at_us=counts,
    reported_at_us=counts,
)
def test_progress_survives_the_wire(
    partition: SourcePartition, order: EventOrder, table: str, rows: int, committed_at_us: int, reported_at_us: int
) -> None:
    """As reported, so answered."""
    report = Progress(
        tenant="acme",
        hop="sink",
        partition=partition,
        table=table,
        committed_at_us=committed_at_us,
        order=order,
        rows=rows,
        reported_at_us=reported_at_us,
    )

    assert progress_from_proto(progress_to_proto(report)) == report


@given(
    table_id=table_ids,
    order=orders,
    position=positions,
    made=st.lists(columns, max_size=3),
    version=st.integers(1, 2**32 - 1),
    renamed_from=st.none() | table_ids,
)
def test_a_schema_change_survives_the_wire(
    table_id: TableId,
    order: EventOrder,
    position: SourcePosition,
    made: list[Column],
    version: int,
    renamed_from: TableId | None,
) -> None:
    """The schema comes back with the change's version, though it was sent with another."""
    schema = TableSchema(table_id=table_id, columns=tuple(made), version=version)
    change = SchemaChange(
        source="erp",
        table_id=table_id,
        kind=SchemaChangeKind.ALTER,
        order=order,
        position=position,
        committed_at_us=1,
        ddl="ALTER TABLE t",
        table_schema=schema,
        version=version,
        renamed_from=renamed_from,
    )

    assert schema_change_from_proto(schema_change_to_proto(change)) == change


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("kind", 0, "kind must be given"),
        ("source", "", "source"),
        ("table", "", "table"),
        ("table_schema", b"", "table_schema must be given"),
        ("table_schema", b"{", "table_schema"),
        ("kind", 4, "table_schema must be given, but with DROP"),
    ],
)
def test_a_message_that_is_no_schema_change_is_refused(field: str, value: object, reason: str) -> None:
    """The reason names the part that is wrong."""
    table_id = TableId(database="shop", table="orders")
    message = schema_change_to_proto(
        SchemaChange(
            source="erp",
            table_id=table_id,
            kind=SchemaChangeKind.CREATE,
            order=EventOrder(epoch=0, rank=1, tx_ordinal=1),
            position=SourcePosition(source_kind="mysql", token=b""),
            committed_at_us=1,
            ddl="CREATE TABLE orders",
            table_schema=TableSchema(table_id=table_id, columns=()),
        )
    )
    setattr(message, field, value)

    with pytest.raises(ValueError, match=reason):
        schema_change_from_proto(message)


@given(
    st.builds(
        Refusal,
        tenant=names,
        source=names,
        table_id=st.builds(TableId, database=names, table=names),
        schema_version=st.integers(0, 2**32 - 1),
        reason=names,
        found_at_us=counts,
        is_of_document=st.booleans(),
    )
)
def test_a_refusal_survives(refusal: Refusal) -> None:
    assert refusal_from_proto(refusal_to_proto(refusal)) == refusal
