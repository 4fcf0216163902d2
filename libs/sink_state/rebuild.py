"""The order of ``headwater rebuild`` for the job that builds a table of a past moment, and the job's answer."""

import datetime
from collections.abc import Mapping
from typing import Any, Final

import msgspec

REBUILT_FROM_PROPERTY: Final = "headwater.rebuilt-from"
"""Of such a table: the log that it was built from."""
AS_OF_PROPERTY: Final = "headwater.as-of"
"""Of which moment."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Up to which change: by the source's clock, that included, or by an order, that included. One of the two."""

    at_us: int | None = None
    """Microseconds since 1970: all that the source had committed by then."""
    order: str | None = None
    """An ``EventOrder.sort_key``."""

    @property
    def text(self) -> str:
        """As a person reads it.

        >>> Moment(at_us=1_795_224_576_000_000).text
        '2026-11-21T01:29:36+00:00'
        """
        if self.order is not None:
            return f"order {self.order}"
        return datetime.datetime.fromtimestamp((self.at_us or 0) / 1e6, datetime.UTC).isoformat()


class RebuildSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One table to build."""

    warehouse: str
    warehouses: Mapping[str, Any]
    """As in the sink job's settings."""
    session: Mapping[str, Any]
    """As in the sink job's settings."""
    namespace: tuple[str, ...]
    """Of the log, and of the new table."""
    table: str
    into: str
    """Name of the new table; there must be none."""
    as_of: Moment
    key: tuple[str, ...] = ()
    """Empty: the source's."""
    unavailable: tuple[str, ...] = ()
    """Columns of which a NULL in an update says that the log does not hold the value."""


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """The table is there."""

    table: str
    rows: int
    changes: int
    """Of the log, up to the moment."""
    log_begins_at_us: int
    log_ends_at_us: int
    same: int
    """Rows that the log's end has as they were."""
    changed_since: int
    gone_since: int
    come_since: int
    unknown_existed: int
    """Rows that were there, with entries only later: the log began too late."""
    unknown_may_have_existed: int
    """Rows that a copy of the source brought later: nobody knows whether they were there."""
    took_s: float
