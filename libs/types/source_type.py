"""A column's type in its source's words: name, length and scale, as Debezium shows them.

They stand in schema-change events, and in the Connect schemas of tenants that ask for them (``format.source_types``:
Debezium's ``column.propagate.source.type`` and ``datatype.propagate.source.type``).
"""

from dataclasses import dataclass
from typing import Final

_PARAMETER: Final = "__debezium.source.column."


@dataclass(frozen=True, slots=True)
class SourceType:
    """A type and its sizes."""

    name: str
    """Upper case: ``INT UNSIGNED``; of Vitess ``UINT32``; of Oracle ``TIMESTAMP(6)``."""
    length: int | None = None
    scale: int | None = None

    def parameters(self, column: str) -> dict[str, str]:
        """The parameters that Debezium adds to a field's Connect schema, in its order. ``column``: the source's name."""
        sizes = {"length": self.length, "scale": self.scale}
        return {
            f"{_PARAMETER}type": self.name,
            **{f"{_PARAMETER}{name}": str(size) for name, size in sizes.items() if size is not None},
            f"{_PARAMETER}name": column,
        }
