"""Rows that changed at a source without a row in its log."""

from dataclasses import dataclass

from libs.types.table import TableId


@dataclass(frozen=True, slots=True)
class UnseenRows:
    """Rows that a statement made come, go or change, of which the log has none."""

    clause: str
    """``DROP PARTITION``, for example."""
    table_ids: tuple[TableId, ...]
    """The table, and the one that a partition was exchanged with."""
