"""Vitess's ``hash`` vindex: a number's keyspace id, and the range of them that a shard holds.

Vitess documentation, "Vindexes": the id is the number, as eight bytes, encrypted by DES with a key of zeros.
"""

from dataclasses import dataclass
from typing import Self

from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher, modes

_CIPHER = Cipher(TripleDES(bytes(24)), modes.ECB())  # noqa: S305  # Vitess's hash vindex is this cipher; it hides nothing


def keyspace_id(value: int) -> bytes:
    """Eight bytes; a negative number counts as its two's complement."""
    encryptor = _CIPHER.encryptor()
    return encryptor.update((value % (1 << 64)).to_bytes(8, "big")) + encryptor.finalize()


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keyspace ids from ``start`` up to and without ``end``; empty: unbounded."""

    start: bytes
    end: bytes

    @classmethod
    def parse(cls, shard: str) -> Self:
        """The range that a shard is named after: "-80", "40-80", "80-"; every other name holds everything."""
        start, hyphen, end = shard.partition("-")
        if not hyphen:
            return cls(b"", b"")
        return cls(bytes.fromhex(start), bytes.fromhex(end))

    def holds(self, identifier: bytes) -> bool:
        """The id lies within."""
        return self.start <= identifier and (not self.end or identifier < self.end)

    def overlaps(self, other: "KeyRange") -> bool:
        """Some id lies within both."""
        return (not other.end or self.start < other.end) and (not self.end or other.start < self.end)
