"""The demo's database, whatever its kind: ``shop``, 200,000 rows in four tables.

Each kind of source has a shop of its own: ``mysql_shop`` and ``mysql_traffic``, ``oracle_shop`` and ``oracle_traffic``. The
demo fills it, writes to it, and knows nothing more of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from libs.demo.traffic import Traffic

DATABASE: Final = "shop"
READER_USER: Final = "headwater"
READER_PASSWORD: Final = "headwater-demo"  # noqa: S105 - of a server on loopback that the demo makes and stops
ROWS: Final = {"customers": 20_000, "products": 10_000, "orders": 50_000, "order_items": 120_000}
NUMBER_COLUMNS: Final = {"customers": "id", "products": "product_no", "orders": "id", "order_items": "order_id"}
"""Whose value says where a row lies: the sharding column (Vitess: primary vindex)."""
TENANT_CODES: Final = ("acme", "globex", "initech", "umbrella")

OnTable = Callable[[str, int], None]
"""Called with a table that is full, and the rows so far."""
Write = Callable[[Any, random.Random, "Traffic", float], int]
"""An ordinary transaction's statements in a session; the numbers of rows are those of ``scale``. Returns the changed rows."""
SetPiece = Callable[[Any, "Traffic"], int]
"""A transaction that a capture has to survive, begun and committed by itself. Returns the changed rows."""


def filled_number(chance: random.Random, table: str, scale: float) -> int:
    """A number of a row that was there when the shop was filled; a writer may have taken it away since."""
    return chance.randrange(1, max(2, int(ROWS[table] * scale)))


class DemoShop(Protocol):
    """The shop of one kind of source."""

    @property
    def writes(self) -> Sequence[tuple[Write, int]]:
        """Ordinary transactions, each with its weight."""
        ...

    @property
    def set_pieces(self) -> Mapping[float, SetPiece]:
        """By the part of the traffic's duration at which each is played."""
        ...

    def answers(self) -> bool:
        """Whether every server of it lets its administrator in."""
        ...

    def fill(self, *, scale: float, on_table: OnTable) -> int:
        """Make the tables and the reader's user, and fill the tables; returns how many rows they hold."""
        ...

    def session(self) -> AbstractContextManager[Any]:
        """A writer's connection."""
        ...

    def in_transaction(self, session: Any, work: Callable[[Any], int]) -> int:
        """Run ``work`` and commit; once more when a server asks for it. Returns the rows that it changed."""
        ...
