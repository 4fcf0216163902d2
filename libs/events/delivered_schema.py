"""The schema under which a tenant receives a table, for a sink beside the events.

The router writes one record to the tenant's ``table-schemas`` topic in the same Kafka transaction as, and before, the
first row of a new schema version, after the tenant's own projection (excluded columns are gone, masked ones are
strings). So a sink that meets an unknown version finds it there, and needs no access beyond the tenant's own topics.
"""

import msgspec

from libs.types.table import TableSchema


class DeliveredSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One record: key ``<topic>@<version>``, value this as JSON. A repeat is equal to the first."""

    topic: str
    """The table's row topic."""
    source: str
    table_schema: TableSchema
    """Its ``version`` equals the ``headwater.schema-version`` header of the rows."""


def delivered_schema_key(topic: str, version: int) -> bytes:
    """Kafka key of a DeliveredSchema record."""
    return f"{topic}@{version}".encode()


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(DeliveredSchema)


def encode_delivered_schema(schema: DeliveredSchema) -> bytes:
    """The record's value."""
    return _encoder.encode(schema)


def decode_delivered_schema(value: bytes) -> DeliveredSchema:
    """The record that ``encode_delivered_schema`` wrote. Raises msgspec.DecodeError for anything else."""
    return _decoder.decode(value)
