"""A segment's ROWIDs in ranges that leave no row out, wherever it lies."""

import string

from hypothesis import given
from hypothesis import strategies as st

from libs.oracle.row_ids import Extent, ranges_of, row_id

DIGITS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"


def place(text: str) -> tuple[int, ...]:
    """Oracle's order of ROWIDs: by their digits' numbers."""
    return tuple(map(DIGITS.index, text))


extents = st.lists(
    st.builds(
        Extent,
        file=st.sampled_from([1, 4, 1_023, 1_024]),
        first_block=st.integers(8, 1 << 21),
        blocks=st.just(8),
        bytes=st.integers(1, 100),
    ),
    max_size=30,
    unique_by=lambda extent: extent.address,
)


@given(extents, st.integers(1, 200), st.integers(0, (1 << 32) - 1), st.integers(0, 32_767))
def test_every_place_of_the_segment_is_in_one_range(
    found: list[Extent], range_bytes: int, address: int, row: int
) -> None:
    ranges = ranges_of(73_196, found, range_bytes)
    at = place(row_id(73_196, address, row))
    assert sum(place(each.first) <= at <= place(each.last) for each in ranges) == 1


@given(extents, st.integers(1, 200))
def test_ranges_hold_about_as_much_as_was_asked_for(found: list[Extent], range_bytes: int) -> None:
    ranges = ranges_of(1, found, range_bytes)
    most = max((each.bytes for each in found), default=0)
    for each in ranges:
        held = [x for x in found if place(each.first) <= place(row_id(1, x.address, 0)) <= place(each.last)]
        assert sum(x.bytes for x in held) <= range_bytes + most
    assert len(ranges) <= 1 + sum(x.bytes for x in found) // range_bytes


def test_a_bigfile_tablespace_has_one_file_of_many_blocks() -> None:
    small = Extent(file=4, first_block=143, blocks=8, bytes=1)
    big = Extent(file=1_024, first_block=(4 << 22) + 143, blocks=8, bytes=1)
    assert small.address == big.address
