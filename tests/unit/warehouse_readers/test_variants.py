"""VARIANT without Spark: its two parts made text, and Iceberg's metadata rewritten so that pyiceberg gives them."""

import json
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadataUtil

from libs.types.warehouse import WarehouseTable
from libs.warehouse_readers.iceberg_variants import VariantsUnreadable, has_variants, load_with_parts, with_parts
from libs.warehouse_readers.variants import in_mysqls_order, is_variant, text_of, with_texts

EMPTY, ONE_NAME = bytes.fromhex("010000"), bytes.fromhex("0101000161")
DOCUMENTS = {
    '{"a":9}': {"metadata": ONE_NAME, "value": bytes.fromhex("02010000020c09")},
    "[1,2.50]": {"metadata": EMPTY, "value": bytes.fromhex("03020002080c012002fa000000")},
    "null": {"metadata": EMPTY, "value": b"\x00"},
    None: None,
}
"""As Spark wrote them (Apache Parquet, "Variant Binary Encoding")."""
PLACE = WarehouseTable(namespace=("acme", "shop", "shop"), name="orders")
FIELDS = [
    {"id": number, "name": name, "type": kind, "required": False}
    for number, name, kind in ((1, "a", "int"), (2, "doc", "variant"))
]


@pytest.mark.parametrize("parts", [("metadata", "value"), ("value", "metadata")])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_documents_become_text(kind: pa.DataType, parts: tuple[str, str]) -> None:
    """From any reader, batch by batch, in their order; other columns stay, also of types that DuckDB lacks."""
    variant = pa.struct([pa.field(name, kind) for name in parts])
    schema = pa.schema([("id", pa.int32()), ("doc", variant), ("big", pa.decimal256(60, 0)), ("more", variant)])
    rows = [{"id": place, "doc": value, "more": None, "big": None} for place, value in enumerate(DOCUMENTS.values())]
    batches = [pa.RecordBatch.from_pylist(part, schema=schema) for part in (rows[:3], rows[3:], [], rows)]

    found = with_texts(pa.RecordBatchReader.from_batches(schema, batches)).read_all()

    assert found["doc"].to_pylist() == [*DOCUMENTS, *DOCUMENTS]
    assert found["id"].to_pylist() == [*range(4), *range(4)]
    assert found["more"].to_pylist() == [None] * 8
    assert found.schema.types == [text_of(each) for each in schema.types]
    assert not any(map(is_variant, found.schema.types))


def test_a_null_may_have_parts_of_nothing() -> None:
    """As delta-rs gives rows of a file without the column."""
    variant = pa.struct([pa.field(name, pa.binary_view(), nullable=False) for name in ("metadata", "value")])
    nothing = pa.nulls(2, variant)

    found = with_texts(pa.table([nothing], schema=pa.schema([("doc", variant)])).to_reader()).read_all()

    assert found["doc"].to_pylist() == [None, None]


def test_names_are_in_mysqls_order() -> None:
    """The short ones first, in objects at any depth; numbers stay as they were."""
    text = (
        '{"aa":[{"é":1,"zz":2,"":{}}],"b":[18446744073709551615,-9223372036854775808,1.50,5e-324,null,"\\u0000\\"é"]}'
    )

    ordered = in_mysqls_order(text)

    assert ordered.startswith('{"b":[18446744073709551615,-9223372036854775808,1.50,5e-324,null,')
    assert ordered.endswith('"aa":[{"":{},"zz":2,"é":1}]}')
    assert json.loads(ordered) == json.loads(text)
    assert in_mysqls_order("1" * 38) == "1" * 38


def metadata(*schemas: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "format-version": 3,
        "table-uuid": "8febb75b-827c-4e2c-b42c-ed9d29469aaf",
        "location": "file:///t",
        "last-updated-ms": 1,
        "last-column-id": 3,
        "last-sequence-number": 0,
        "next-row-id": 0,
        "schemas": [{"type": "struct", "schema-id": number, "fields": fields} for number, fields in enumerate(schemas)],
        "current-schema-id": len(schemas) - 1,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {},
    }


def test_pyiceberg_is_told_of_the_parts() -> None:
    """It refuses the type, by an error that is known by it; names from before a renaming stay known."""
    renamed = [FIELDS[0], {**FIELDS[1], "name": "doc_now"}]
    with pytest.raises(ValidationError) as refused:
        TableMetadataUtil.parse_raw(json.dumps(metadata(FIELDS, renamed)))
    with pytest.raises(ValidationError) as other:
        TableMetadataUtil.parse_raw("{}")

    read = TableMetadataUtil.parse_obj(with_parts(metadata(FIELDS, renamed), "t"))

    assert (has_variants(refused.value), has_variants(other.value)) == (True, False)
    assert is_variant(read.schema().as_arrow().field("doc_now").type)
    mapping = read.name_mapping()
    assert mapping is not None
    known = {field.field_id: (field.names, [part.names for part in field.fields]) for field in mapping.root}
    assert known[1] == (["a"], [])
    assert known[2] == (["doc", "doc_now"], [["metadata"], ["value"]])


def test_what_cannot_be_told_is_refused_by_name() -> None:
    """A REST catalog's table, which comes without a file; names of which two columns had one."""
    swapped = [{**FIELDS[0], "name": "b"}, FIELDS[1], {**FIELDS[0], "id": 3}]

    with pytest.raises(VariantsUnreadable, match=r"acme\.shop\.shop\.orders: has VARIANT columns .*; ask Spark"):
        load_with_parts(object(), PLACE)
    with pytest.raises(VariantsUnreadable, match="a was the name of two"):
        with_parts(metadata(FIELDS, swapped), "t")
