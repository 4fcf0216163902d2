"""Schema changes as the history keeps them."""

import msgspec
import pytest

from libs.errors import DefinitionTooLarge
from libs.events.schema_change import (
    LARGEST_CHANGE_BYTES,
    SchemaChange,
    SchemaChangeKind,
    fitted_to_record,
    schema_change_from_proto,
    schema_change_to_proto,
)
from libs.mysql.ddl import show_create_to_schema
from libs.types.order import EventOrder
from libs.types.position import SourcePosition
from libs.types.table import Column, TableId, TableSchema

ORDERS = TableId(database="shop", table="orders")


def change_of(columns: int, comment: str = "") -> SchemaChange:
    parts = ", ".join(f"c{nth} INT COMMENT '{comment}'" for nth in range(columns))
    statement = f"CREATE TABLE orders ({parts})"
    return SchemaChange(
        source="shop",
        table_id=ORDERS,
        kind=SchemaChangeKind.CREATE,
        order=EventOrder(epoch=0, rank=1, tx_ordinal=0),
        position=SourcePosition(source_kind="mysql", token=b"{}"),
        committed_at_us=0,
        ddl=statement,
        table_schema=show_create_to_schema(ORDERS, statement),
    )


def test_a_change_comes_back_as_it_was() -> None:
    change = change_of(2, "a comment")

    assert schema_change_from_proto(schema_change_to_proto(change)) == change


def test_a_column_takes_no_room_for_what_is_usual() -> None:
    """900 columns without more fit many times over."""
    written = schema_change_to_proto(change_of(900)).table_schema

    assert len(written) / 900 < 90
    assert b"is_optional" not in written


def test_a_record_with_every_field_written_out_is_read() -> None:
    """As earlier releases wrote it."""
    change = change_of(2, "a comment")
    message = schema_change_to_proto(change)
    assert change.table_schema is not None
    column = msgspec.structs.asdict(change.table_schema.columns[0])
    whole = msgspec.structs.asdict(change.table_schema)
    whole["columns"] = [column, msgspec.structs.asdict(change.table_schema.columns[1])]
    whole["columns"] = [
        each | {"logical_type": msgspec.structs.asdict(each["logical_type"])} for each in whole["columns"]
    ]
    message.table_schema = msgspec.json.encode(whole)

    assert b'"is_optional":true' in message.table_schema
    assert schema_change_from_proto(message) == change


def test_a_long_statement_is_cut_off_and_a_repeat_is_cut_alike() -> None:
    """Two that differ in their ends alone are still two."""
    change = change_of(600, "x" * 1_000)
    other = msgspec.structs.replace(change, ddl=change.ddl + " ")

    first, again, another = fitted_to_record(change), fitted_to_record(change), fitted_to_record(other)

    assert schema_change_to_proto(change).ByteSize() > LARGEST_CHANGE_BYTES >= first.ByteSize()
    assert first.ddl.startswith(change.ddl[:1_000])
    assert first.ddl == again.ddl != another.ddl
    assert schema_change_from_proto(first).table_schema == change.table_schema


def test_a_definition_that_no_record_holds_is_refused_by_name() -> None:
    with pytest.raises(DefinitionTooLarge, match=r"^shop\.orders: its definition takes .* exclude_tables"):
        fitted_to_record(change_of(1_000, "x" * 1_000))


def test_every_field_but_names_and_types_may_be_left_out() -> None:
    """A reader of an earlier release takes the default."""
    required = {
        field.name for kind in (Column, TableSchema) for field in msgspec.structs.fields(kind) if field.required
    }

    assert required == {"name", "source_type", "logical_type", "table_id", "columns"}
