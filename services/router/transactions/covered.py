"""The offset to commit: the one after the last batch that the running transaction wrote.

A lane and its stragglers say which batches they mean to have written, ``Outputs`` says which it wrote. Only where both say
the same, in log order and from the cursor on, is there an offset. Else the lane ends before its commit.
"""

from collections.abc import Sequence

from libs.errors import PipelineHalted


class OffsetNotWritten(PipelineHalted):
    """An offset would be committed above a batch that no transaction wrote, or a batch would be written twice."""


def offset_after(cursor: int, planned: Sequence[int], written: Sequence[int]) -> int:
    """The offset after ``written``, which has to be ``planned``; without any, ``cursor`` stays.

    Raises:
        OffsetNotWritten: the two differ, or do not follow ``cursor`` one after the other.

    >>> offset_after(5, (5, 7), (5, 7))
    8
    """
    if list(planned) != list(written):
        raise OffsetNotWritten(
            f"{len(planned)} batches were to be written from offset {cursor} on and {len(written)} were: "
            f"{_shown(planned)} and {_shown(written)}"
        )
    for offset in written:
        if offset < cursor:
            raise OffsetNotWritten(f"the batch at offset {offset} was written, and {cursor} was to be next")
        cursor = offset + 1
    return cursor


def _shown(offsets: Sequence[int]) -> str:
    if len(offsets) <= _SHOWN:
        return "[" + ", ".join(map(str, offsets)) + "]"
    return f"[{offsets[0]} … {offsets[-1]}]"


_SHOWN = 8
