"""Tables that fail repeatedly while a tenant's others are written: their count before they are parked."""

from dataclasses import dataclass, field
from typing import Final

TRIES: Final = 3
"""How often the whole batch is tried again, for passing causes."""


@dataclass(slots=True)
class TableFailures:
    """Of one tenant's tables, by topic, over the restarts of its query. One thread at a time."""

    _in_a_row: dict[str, int] = field(default_factory=dict)

    def failed(self, topic: str) -> bool:
        """A table failed in a batch whose others were written; whether that was once too often."""
        self._in_a_row[topic] = self._in_a_row.get(topic, 0) + 1
        return self._in_a_row[topic] >= TRIES

    def ended(self, topic: str) -> None:
        """The table was written, or is parked."""
        self._in_a_row.pop(topic, None)
