"""Types of ``row_images.pyx`` as Python sees them."""

from collections.abc import Sequence

class EventFrame:
    """What the values of a run's events have around their images."""

    total_order: int
    collection_order: int

    def __init__(
        self, source: bytes, behind_place: bytes, ends: Sequence[bytes], behind_numbers: bytes | None = None
    ) -> None: ...
