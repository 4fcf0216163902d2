"""What a reader does with a row that it cannot decode (Debezium: ``event.processing.failure.handling.mode``).

This is about definite errors, which lie in the data and come again however often it is read (``libs.errors.InvalidEvent``).
Transient ones, of the world, are tried again with growing pauses in every mode (``TransientError``); what needs a human for
the whole log, such as a purged position, always halts (``PipelineHalted``).
"""

import enum


class FailureHandling(enum.Enum):
    """Every mode counts the row (``headwater_reader_rows_set_aside_total``)."""

    FAIL = "fail"
    """Halt before the row, with an error that names transaction, file, position, table and column. Nothing is lost."""
    WARN = "warn"
    """Leave the row out and log that error."""
    SKIP = "skip"
    """Leave the row out; the count alone tells."""
    DEAD_LETTER = "dead-letter"
    """Write the row to ``headwater.dead-letter.<source>``, in the Kafka transaction of the events around it, and log the
    error."""
