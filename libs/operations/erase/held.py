"""A home's data of one tenant: the record of each place, and how a place is looked at and emptied.

Each place is a module beside: ``documents``, ``kafka``, ``warehouses``, ``state``, ``progress``. Each has a look, which changes
nothing, and an emptying, which may be repeated; ``carry_out`` calls them in order.
"""

from pathlib import Path

import msgspec

from libs.setup.step import folder_bytes


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is held of a tenant."""

    kind: str
    """``topic``, ``Iceberg table`` …, as shown."""
    name: str
    records: int | None = None
    """Of a topic, transaction marks counted in; None: it has none, or nobody counts them."""
    bytes: int | None = None
    """On disk; None: not known."""


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; files that vanish meanwhile count for nothing."""
    if path.is_dir():
        return folder_bytes(path)
    try:
        return path.stat().st_size
    except OSError:
        return 0
