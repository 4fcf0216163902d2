"""Keys go where Java's producers put them."""

import pytest
from aiokafka.partitioner import murmur2 as aiokafkas_murmur2
from hypothesis import given
from hypothesis import strategies as st

from services.router.records.partitioner import kafka_partition_of, murmur2


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hash_is_that_of_javas_own_test(key: bytes, signed: int) -> None:
    """Kafka 4.3, ``UtilsTest.testMurmur2``."""
    assert murmur2(key) == signed % (1 << 32)


@given(st.binary(max_size=64))
def test_hash_is_that_of_another_implementation(key: bytes) -> None:
    """Every length, every byte."""
    assert murmur2(key) == aiokafkas_murmur2(key)


def test_partition_ignores_the_hashs_sign() -> None:
    """``Utils.toPositive`` clears the highest bit, and does not negate."""
    assert kafka_partition_of(b"foobar", 10) == (-790332482 & 0x7FFFFFFF) % 10
