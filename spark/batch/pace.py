"""How fast a tenant's micro-batches follow one another: the adaptive trigger, and limits of rows.

Spark starts a batch at every ``trigger_s`` for which there are events, and takes those that are there. After a batch the
tenant's query waits as long as ``next_pace`` says, and events that come meanwhile go into the next one together. A quiet
tenant does not wait: its first event is taken at the next ``trigger_s``.
"""

import math
from dataclasses import dataclass

from libs.sink_state.stream_offsets import StreamOffsets
from libs.types.tenant import SinkSettings


@dataclass(frozen=True, slots=True)
class Pace:
    """The decision after a batch."""

    interval_s: float
    """From the start of a batch to that of the next."""
    pause_s: float = 0.0
    """To wait yet."""


def first_pace(sink: SinkSettings) -> Pace:
    """Before any batch."""
    return Pace(sink.trigger_s)


def batch_limit(sink: SinkSettings, job_limit: int) -> int:
    """At most so many events in a batch: the least of all limits.

    Of a limit by the second, its share from one trigger to the next, so that a backlog comes evenly.
    """
    by_rate = math.inf if sink.max_rows_per_s is None else math.ceil(sink.max_rows_per_s * sink.trigger_s)
    return int(min(job_limit, sink.max_batch_rows or math.inf, by_rate))


def is_full_batch(ends: StreamOffsets, ends_before: StreamOffsets, limit: int) -> bool:
    """Whether a batch from ``ends_before`` to ``ends`` took all that it could: offsets, because Spark's limit counts the
    marks of transactions too, and of each Kafka partition one less than the limit, which Spark deals out in whole numbers.

    Of a query's first batch, whose start stands in no file, and of a partition that was not there, nothing is known: no.
    """
    taken = [
        end - ends_before[topic][partition]
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
        if partition in ends_before.get(topic, {})
    ]
    return sum(taken) + len(taken) >= limit and any(taken)


def next_pace(sink: SinkSettings, before: Pace, *, rows: int, took_s: float, is_full: bool) -> Pace:
    """The pace after a batch of ``rows`` events that took ``took_s``; ``is_full``: as ``is_full_batch`` has it.

    A small batch doubles the interval, up to ``trigger_max_s``; a large one halves it. A full one means a backlog:
    ``trigger_s`` at once. How long a batch takes says nothing: a slow one gathers more for the next.
    """
    longest_s = sink.trigger_max_s or sink.trigger_s
    if is_full:
        interval_s = sink.trigger_s
    elif rows >= sink.trigger_rows:
        interval_s = max(before.interval_s / 2, sink.trigger_s)
    else:
        interval_s = min(before.interval_s * 2, longest_s)
    # Within ``trigger_s`` Spark's own trigger does it.
    pause_s = interval_s - took_s if interval_s > sink.trigger_s else 0.0
    if sink.max_rows_per_s is not None:
        pause_s = max(pause_s, rows / sink.max_rows_per_s - took_s)
    return Pace(interval_s, max(pause_s, 0.0))
