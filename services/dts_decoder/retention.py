"""How long until messages that were not read are deleted. DTS keeps them for a day, or 500 GB, whichever is less."""

from dataclasses import dataclass
from typing import Final

_LONGEST_LOOK_BACK_S: Final = 600.0
"""Rates are those of the last ten minutes."""


@dataclass(frozen=True, slots=True)
class Look:
    """The topic at one moment."""

    at_s: float
    low: int
    """First offset that is still there."""
    position: int
    """Next offset to be read."""
    oldest_unread_age_s: float
    """Age of the message that was read last while more waits; 0: everything was read."""


class Headroom:
    """Remembers looks at the topic, and says how much time is left."""

    def __init__(self, retention_s: float) -> None:
        self._retention_s = retention_s
        self._looks: list[Look] = []

    def seen(self, look: Look) -> float:
        """Seconds until the first unread message is deleted, at the present rate: never more than the retention.

        By age: the retention less the age of the messages read now. By size: the messages between the first one that is
        kept and the next one to be read, over the speed at which the deletion gains on the reader.
        """
        self._looks = [one for one in self._looks if look.at_s - one.at_s <= _LONGEST_LOOK_BACK_S]
        self._looks.append(look)
        by_age_s = self._retention_s - look.oldest_unread_age_s
        first = self._looks[0]
        gain = (look.low - first.low) - (look.position - first.position)
        elapsed_s = look.at_s - first.at_s
        if gain <= 0 or elapsed_s <= 0 or look.oldest_unread_age_s == 0:
            return max(0.0, by_age_s)
        by_size_s = (look.position - look.low) * elapsed_s / gain
        return max(0.0, min(by_age_s, by_size_s))
