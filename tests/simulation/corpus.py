"""Seeds that once found a fault of the product's. Each is run for ever after, beside the seeds of the day."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """A seed to keep."""

    simulation: str
    seed: int
    found: str
    """What it found."""


CORPUS: Sequence[Case] = (
    Case(
        "router",
        54,
        "a transaction that took long before its first batch committed an offset above batches that it had not written",
    ),
)
