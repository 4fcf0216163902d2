# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Which Kafka partition a key belongs to: as Java's producers choose it, so that a key stays where it is when Headwater takes
Debezium's place.

The hash is MurmurHash2 with the seed of Kafka's ``Utils.murmur2``
(https://github.com/apache/kafka/blob/trunk/clients/src/main/java/org/apache/kafka/common/utils/Utils.java). Compiled: in Python
it took some µs a record.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    _SEED = 0x9747B28C
    _FACTOR = 0x5BD1E995
    _TO_POSITIVE = 0x7FFFFFFF


def kafka_partition_of(bytes key not None, Py_ssize_t count) -> int:
    """The number of the key's Kafka partition, of ``count``."""
    if count < 1:
        raise ValueError("a topic has a Kafka partition at least")
    return partition_of(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), count)


def murmur2(bytes key not None) -> int:
    """The hash as an unsigned number of 32 bits.

    >>> murmur2(b"foobar") - (1 << 32)  # Kafka's UtilsTest.testMurmur2
    -790332482
    """
    return hash_of(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))


cdef Py_ssize_t partition_of(const char* key, Py_ssize_t size, Py_ssize_t count) noexcept nogil:
    return <Py_ssize_t>(hash_of(key, size) & <uint32_t>_TO_POSITIVE) % count


cdef uint32_t hash_of(const char* key, Py_ssize_t size) noexcept nogil:
    cdef const uint8_t* place = <const uint8_t*>key
    cdef const uint8_t* end = place + size
    cdef uint32_t factor = <uint32_t>_FACTOR
    cdef uint32_t digest = <uint32_t>_SEED ^ <uint32_t>size
    cdef uint32_t word
    while end - place >= 4:
        word = (place[0] | <uint32_t>place[1] << 8 | <uint32_t>place[2] << 16 | <uint32_t>place[3] << 24) * factor
        word = (word ^ word >> 24) * factor
        digest = digest * factor ^ word
        place += 4
    if place < end:
        word = 0
        while place < end:
            end -= 1
            word = word << 8 | end[0]
        digest = (digest ^ word) * factor
    digest = (digest ^ digest >> 13) * factor
    return digest ^ digest >> 15
