"""Refusals to a tenant, found by routers: a table that they met with its real schema, its document, or
records that cannot be written."""

from enum import Enum

import msgspec

from libs.types.table import TableId


class RefusedKind(Enum):
    """The refused thing."""

    TABLE = "table"
    """One that the tenant selects: its rows are set aside for it."""
    SCHEMA_CHANGES = "schema_changes"
    """The topic of a source's statements: they are left out."""
    TRANSACTIONS = "transactions"
    """The topic of a source's BEGIN and END: they are left out."""
    DOCUMENT = "document"
    """All of it, by one router: the tenant's former document stays in force there."""
    RECORDS = "records"
    """Those of a source, in one partition of its changes topic: Kafka takes none for a topic that is there, or the schema
    registry has not answered for a while, and all that comes after them waits. Nothing is set aside or lost."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is refused to a tenant."""

    tenant: str
    source: str
    """Empty where it is a document."""
    table_id: TableId
    """Of empty names where it is no table."""
    schema_version: int
    """The version that it was found at: rows of an earlier one do not end it."""
    reason: str
    """For a person, with the remedy."""
    found_at_us: int
    """By the router's clock, microseconds since 1970; distinguishes repeated refusals of the same thing."""
    is_of_document: bool
    """It follows from the tenant's document and the table's schema alone, so anybody can look whether it is over."""
    is_of_registry: bool = False
    """The schema registry refuses the table's schema: another request shows whether it is over."""
    is_of_topic: bool = False
    """Kafka refuses the topic: another request shows whether it is over. """
    is_of_claim: bool = False
    """Another table has its topic: the process that looks for that one knows whether it is over. Where none of the four is
    true only its finder knows: a key is missing there."""
    what: RefusedKind = RefusedKind.TABLE
    router: str = ""
    """Of a document: the router that refuses it. It repeats the report while it lasts, for one that is gone cannot report
    the end."""
    kafka_partition: int = 0
    """Of records: the partition of the changes topic. Its router tries again, and alone knows whether it is over."""
