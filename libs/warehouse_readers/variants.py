"""VARIANT as readers without Spark give it, made the document's text: they know it by its two parts alone.

DuckDB puts the parts together (it shares no code with the sink); numbers keep all their digits. A VARIANT has the names
of an object in the order of their letters, MySQL prints short ones first: they are put so, or no checksum of ``headwater
check`` would be the same at both ends.
"""

import functools
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa

_PARTS: Final = ("metadata", "value")
_PLAIN: Final = pa.struct([pa.field(name, pa.binary(), nullable=False) for name in _PARTS])
_KNOWN_AS: Final = {"ARROW:extension:name": "arrow.parquet.variant", "ARROW:extension:metadata": ""}
"""Apache Arrow, "Canonical Extension Types", Parquet Variant."""
_LARGEST: Final = 2**63
"""From there on a whole number goes as a Decimal, of any size."""
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


def is_variant(arrow_type: pa.DataType) -> bool:
    """Whether it is a reader's form of VARIANT. No column of ours is a struct else."""
    return pa.types.is_struct(arrow_type) and {field.name for field in arrow_type} == set(_PARTS)


def text_of(arrow_type: pa.DataType) -> pa.DataType:
    """The type that ``with_texts`` gives a column."""
    return pa.string() if is_variant(arrow_type) else arrow_type


def with_texts(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """``rows``, in their order, with each VARIANT as its document's text; NULL stays NULL, and JSON's null is ``null``."""
    variants = [field.name for field in rows.schema if is_variant(field.type)]
    if not variants:
        return rows
    schema = pa.schema([field.with_type(text_of(field.type)) for field in rows.schema])
    return pa.RecordBatchReader.from_batches(schema, _texts(rows, variants, schema))


def _texts(rows: pa.RecordBatchReader, variants: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    # A column for itself: DuckDB has no type for some of the others.
    with duckdb.connect(":memory:") as connection:
        for batch in rows:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for name in variants:
                columns[name] = _text(connection, columns[name])
            yield pa.record_batch([columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema)


def _text(connection: duckdb.DuckDBPyConnection, values: pa.Array) -> pa.Array:
    field = pa.field("doc", _PLAIN, metadata=_KNOWN_AS)
    connection.register("variants", pa.table([_plain(values)], schema=pa.schema([field])))
    texts = connection.sql("SELECT CAST(CAST(doc AS JSON) AS VARCHAR) AS doc FROM variants").to_arrow_table()
    return pa.array([None if text is None else in_mysqls_order(text) for text in texts["doc"].to_pylist()], pa.string())


def in_mysqls_order(text: str) -> str:
    """A document with the names of each object as MySQL has them (manual, "The JSON Data Type").

    >>> in_mysqls_order('{"aa":1.50,"b":[18446744073709551615,1e300]}')
    '{"b":[18446744073709551615,1e300],"aa":1.50}'
    """
    return _encode(_loads(text)).decode()


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(sorted(members, key=lambda member: (len(name := member[0].encode()), name)))


def _whole(digits: str) -> int | Decimal:
    number = int(digits)
    return number if -_LARGEST <= number < _LARGEST else Decimal(digits)


def _fraction(digits: str) -> float | Decimal:
    return float(digits) if "e" in digits.lower() else Decimal(digits)


_loads: Final = functools.partial(json.loads, object_pairs_hook=_object, parse_int=_whole, parse_float=_fraction)


def _plain(values: pa.StructArray) -> pa.Array:
    """In the order and of the types that the extension has."""
    parts = [values.field(name).cast(pa.binary()) for name in _PARTS]
    return pa.StructArray.from_arrays(parts, fields=list(_PLAIN), mask=values.is_null())
