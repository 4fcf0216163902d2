"""Refusals: tables whose rows a tenant does not get, by what routers found when they met the tables' real schemas."""

import msgspec

from libs.types.table import TableId


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One table that a tenant selects, and whose rows are set aside for it."""

    tenant: str
    source: str
    table_id: TableId
    schema_version: int
    """The version that it was found at: rows of an earlier one do not end it."""
    reason: str
    """For a person; it names what to change."""
    found_at_us: int
    """By the router's clock, microseconds since 1970; tells one refusal of a table from the next."""
    is_of_document: bool
    """It follows from the tenant's document and the table's schema alone, so anybody can look whether it is over."""
    is_of_registry: bool = False
    """The schema registry refuses the table's schema: who asks it again knows whether it is over. Where neither is true only
    whoever routes the table's rows does: Kafka or another table stands against it, or a key is missing there."""
