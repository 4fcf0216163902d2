"""From commit to a tenant's topic: measured on the events themselves.

The router's producer stamps each record when it writes it (CreateTime); the event says when the source committed the
change (``source.ts_us``). Snapshot rows are left out: they were committed long before.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson
from confluent_kafka import Message

from libs.sink_state.progress import LatencyHistogram


@dataclass(frozen=True, slots=True)
class Latency:
    """How long changes took, in seconds; None: there were none."""

    p50_s: float | None
    p99_s: float | None


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """The events of the tenants' topics."""

    events: int
    """Row events; tombstones are not counted."""
    latency: Latency
    calm_latency: Latency
    """Of the changes that were committed before something was killed."""


def measure(messages: Iterable[Message], *, calm_until_us: int) -> TopicFigures:
    """Figures of the live row events among ``messages``."""
    latencies_s: list[float] = []
    calm_s: list[float] = []
    events = 0
    for message in messages:
        value = message.value()
        if value is None:
            continue
        document = orjson.loads(value)
        payload = document.get("payload", document)
        events += 1
        if payload.get("op") == "r":
            continue
        written_ms = message.timestamp()[1]
        committed_us = payload["source"]["ts_us"]
        latency_s = max(0.0, written_ms / 1e3 - committed_us / 1e6)
        latencies_s.append(latency_s)
        if committed_us < calm_until_us:
            calm_s.append(latency_s)
    return TopicFigures(events, _latency(latencies_s), _latency(calm_s))


def _latency(values_s: list[float]) -> Latency:
    values_s.sort()
    return Latency(quantile(values_s, 0.5), quantile(values_s, 0.99))


def of_histograms(histograms: Iterable[LatencyHistogram]) -> Latency:
    """Joined from the sink's measurements of several tenants."""
    histogram = joined(histograms)
    return Latency(histogram.quantile_s(0.5), histogram.quantile_s(0.99))


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that is at least as large as ``share`` of all; None where there is none.

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def joined(histograms: Iterable[LatencyHistogram]) -> LatencyHistogram:
    """One histogram of all: the tenants' tables together."""
    counts: dict[int, int] = {}
    for histogram in histograms:
        for bucket, changes in histogram.counts.items():
            counts[bucket] = counts.get(bucket, 0) + changes
    return LatencyHistogram(counts=counts)
