"""The figures of the latency bench are times that were measured."""

from bench.latency import Spread, spread


def test_median_and_99th_percentile_are_of_the_nearest_rank() -> None:
    times = [float(number) for number in range(1, 201)]

    assert spread([*reversed(times)]) == Spread(p50_ms=100.0, p99_ms=198.0)
    assert spread([7.0]) == Spread(p50_ms=7.0, p99_ms=7.0)
    assert spread([1.0, 2.0, 900.0]) == Spread(p50_ms=2.0, p99_ms=900.0)
