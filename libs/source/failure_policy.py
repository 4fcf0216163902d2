"""The setting ``failure_handling`` of a source's document; ``failure_handling`` carries it out.

Commands read documents, and load neither metrics nor a logger for it.
"""

import enum


class FailureHandling(enum.Enum):
    """Every mode counts left-out rows (``headwater_reader_set_aside_total``)."""

    FAIL = "fail"
    """Halt before the row, with an error that names transaction, file, position, table and column. Nothing is lost, and all
    tables of the source stand still for one row."""
    WARN = "warn"
    """Leave the row out and log that error."""
    SKIP = "skip"
    """Leave the row out; only the count shows it."""
    DEAD_LETTER = "dead-letter"
    """Write the row to ``headwater.dead-letter.<source>``, in the Kafka transaction of the events around it, and log the
    error."""
