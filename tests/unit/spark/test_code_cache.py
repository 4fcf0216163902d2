"""How full a JVM's code cache is."""

import pytest
from prometheus_client import REGISTRY

from libs.telemetry.faults import CODE_CACHE_FILLS, lasting_faults
from spark.session import code_cache
from spark.session.code_cache import CodeCacheWatch
from tests.spark_session import SharedSpark


def test_a_cache_that_is_nearly_full_is_told_until_it_is_not(
    shared: SharedSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a real JVM, which the options of an embedded sink have started."""
    watch = CodeCacheWatch(shared.session)
    watch.look()
    assert not told()
    used = REGISTRY.get_sample_value("headwater_sink_code_cache_used_bytes")
    room = REGISTRY.get_sample_value("headwater_sink_code_cache_bytes")
    assert used is not None
    assert room == 160 << 20
    assert 0 < used < room

    monkeypatch.setattr(code_cache, "FULL_SHARE", used / room / 2)
    watch.look()
    [happened] = told()
    assert happened.startswith("CodeCache: ")
    assert happened.endswith("of 160 MB are used")
    monkeypatch.setattr(code_cache, "FULL_SHARE", 1.0)
    watch.look()
    assert not told()


def told() -> list[str]:
    return [fault.happened for fault in lasting_faults() if fault.id == CODE_CACHE_FILLS.id]
