"""The history's plain functions against a model that is too simple to be wrong."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from libs.events.schema_change import SchemaChange, SchemaChangeKind
from libs.types.order import EventOrder
from libs.types.position import SourcePosition
from libs.types.table import TableId, TableSchema
from protos.headwater.schema_history.v1 import schema_history_pb2
from services.schema_history.history import (
    RecordedChange,
    advance,
    decode_recorded,
    find_repeat,
    head_of,
    recorded,
    schema_at,
)

ORDERS = TableId(database="shop", table="orders")


@dataclass(frozen=True)
class Statement:
    """A statement that a reader may record: few ranks and texts, so that ties and repeats are common."""

    rank: int
    text: str
    is_drop: bool


statements = st.lists(
    st.builds(Statement, rank=st.integers(1, 8), text=st.sampled_from("ab"), is_drop=st.booleans()), max_size=20
)


def order(rank: int) -> EventOrder:
    return EventOrder(epoch=0, rank=rank, tx_ordinal=0)


def change_of(statement: Statement) -> SchemaChange:
    return SchemaChange(
        source="erp",
        table_id=ORDERS,
        kind=SchemaChangeKind.DROP if statement.is_drop else SchemaChangeKind.ALTER,
        order=order(statement.rank),
        position=SourcePosition(source_kind="mysql", token=b"p"),
        committed_at_us=0,
        ddl=statement.text,
        table_schema=None if statement.is_drop else TableSchema(table_id=ORDERS, columns=()),
    )


def record_all(given_statements: list[Statement]) -> list[RecordedChange]:
    """As the service does: a repeat is not recorded, everything else gets the next version."""
    changes: list[RecordedChange] = []
    for statement in given_statements:
        change = change_of(statement)
        if find_repeat(changes, change) is None:
            head = head_of(changes)
            changes.append(recorded(change, head.last_version + 1 if head is not None else 1))
    return changes


@given(given_statements=statements, asked=st.integers(0, 9))
def test_schema_at_is_what_a_replay_of_the_statements_in_order_leaves(
    given_statements: list[Statement], asked: int
) -> None:
    """The model: forget repeats, sort by rank and then by recording, take the last one up to the asked rank."""
    first_sights = list(dict.fromkeys((statement.rank, statement.text) for statement in given_statements))
    in_force = None
    for rank, text in sorted(first_sights, key=lambda sight: sight[0]):
        if rank <= asked:
            in_force = first_sights.index((rank, text)) + 1

    found = schema_at(record_all(given_statements), order(asked))

    assert (found.version if found is not None else None) == in_force


@given(given_statements=statements)
def test_the_head_is_the_schema_at_the_end_and_the_count_of_changes(given_statements: list[Statement]) -> None:
    """So a lookup at or after the newest order needs no older version."""
    changes = record_all(given_statements)

    head = head_of(changes)

    assert (head.newest if head is not None else None) == schema_at(changes, order(99))
    assert (head.last_version if head is not None else 0) == len(changes)


@given(given_statements=statements)
def test_recording_everything_again_records_nothing(given_statements: list[Statement]) -> None:
    """A reader that rewinds meets the same statements and gets the same versions."""
    once = record_all(given_statements)

    assert record_all([*given_statements, *given_statements]) == once


@given(given_statements=statements)
def test_applying_a_record_twice_changes_nothing(given_statements: list[Statement]) -> None:
    """The log may be applied over a view that already contains its beginning."""
    changes = record_all(given_statements)
    head = head_of(changes)

    for change in changes:
        assert advance(head, change) == head


@given(given_statements=statements)
def test_a_recorded_change_survives_the_log(given_statements: list[Statement]) -> None:
    """Its index is derived from its bytes, and its schema carries the version it got."""
    for change in record_all(given_statements):
        assert decode_recorded(change.packed) == change
        stored = schema_history_pb2.SchemaChange.FromString(change.wire)
        assert change.is_drop or f'"version":{change.version}'.encode() in stored.table_schema
