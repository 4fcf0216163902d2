"""ROWIDs as numbers, and a segment's storage cut into ranges of them.

A ROWID is 18 digits of base 64: data object, file, block, row. File and block together are an address of 32 bits: ten of the
file and 22 of the block, or 32 of the block in a bigfile tablespace, where RELATIVE_FNO is 1024. (Oracle Database SQL
Language Reference, "ROWID Data Type"; PL/SQL Packages and Types Reference, "DBMS_ROWID".)
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

_DIGITS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BLOCK_BITS: Final = 22
_MOST_BLOCKS: Final = 1 << 32
_LAST_ROW: Final = 32_767
_BIGFILE: Final = 1_024
"""RELATIVE_FNO of the one file of a bigfile tablespace."""


class Extent(NamedTuple):
    """A row of DBA_EXTENTS: blocks that lie beside each other."""

    file: int
    """RELATIVE_FNO."""
    first_block: int
    blocks: int
    bytes: int

    @property
    def address(self) -> int:
        """Of its first block, among all of its tablespace."""
        return self.first_block if self.file == _BIGFILE else (self.file << _BLOCK_BITS) + self.first_block


@dataclass(frozen=True, slots=True)
class RowIdRange:
    """Rows from one place of a segment to another, both within."""

    first: str
    last: str


def row_id(data_object_id: int, address: int, row: int) -> str:
    """The ROWID of a row of a block.

    >>> row_id(73196, (4 << 22) + 143, 1)
    'AAAR3sAAEAAAACPAAB'
    """
    file, block = divmod(address, 1 << _BLOCK_BITS)
    return _in_64(data_object_id, 6) + _in_64(file, 3) + _in_64(block, 6) + _in_64(row, 3)


def ranges_of(data_object_id: int, extents: Iterable[Extent], range_bytes: int) -> list[RowIdRange]:
    """A segment cut where about ``range_bytes`` of extents come together.

    The ranges leave no place out: the first is open below and the last above, and each goes up to the next. So rows of
    an extent that the segment got since its extents were listed are in one of them too.
    """
    firsts = [0, *_cuts(sorted(extents, key=lambda extent: extent.address), range_bytes)]
    ends = [*firsts[1:], _MOST_BLOCKS]
    return [
        RowIdRange(row_id(data_object_id, first, 0), row_id(data_object_id, end - 1, _LAST_ROW))
        for first, end in zip(firsts, ends, strict=True)
    ]


def _cuts(extents: Sequence[Extent], range_bytes: int) -> Iterator[int]:
    """Addresses at which a new range begins."""
    gathered = 0
    for extent, following in itertools.pairwise(extents):
        gathered += extent.bytes
        if gathered >= range_bytes:
            yield following.address
            gathered = 0


def _in_64(number: int, digits: int) -> str:
    return "".join(_DIGITS[number >> 6 * place & 63] for place in reversed(range(digits)))
