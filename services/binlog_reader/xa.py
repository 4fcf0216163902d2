"""XA transactions: rows that stand in the log before their commit are held until then.

An XA transaction stands in the log when it is prepared, which is no commit. Its rows are held until its XA COMMIT, whose order
they get, and dropped at its XA ROLLBACK. Until then its GTID is left out of the position: the server sends it again to a
reader that starts again.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, cast

from libs.mysql import binlog_events as events
from libs.mysql.gtid import GtidSet
from libs.source.spill import out_of_room_named
from libs.types.table import TableId
from services.binlog_reader.transaction import HeldTransaction

_HELD_IN_MEMORY_BYTES: Final = 4 << 20
"""Of one prepared XA transaction; the rest goes to a file."""


class XaTransactions:
    """The one whose events are being read, and those that are prepared."""

    def __init__(self, is_captured: Callable[[TableId], bool], spill_dir: Path | None) -> None:
        self._is_captured = is_captured
        self._spill_dir = spill_dir
        self._prepared: dict[str, HeldTransaction] = {}
        """By their xid, as XA COMMIT names it."""
        self.holding: HeldTransaction | None = None
        """One whose events are being read."""

    def start(self, gtid: events.GtidEvent, file: str) -> None:
        """Hold the rows events that follow."""
        folder = str(self._spill_dir) if self._spill_dir is not None else None
        held = tempfile.SpooledTemporaryFile(max_size=_HELD_IN_MEMORY_BYTES, dir=folder)  # noqa: SIM115
        self.holding = HeldTransaction(gtid, file, cast(IO[bytes], held))

    def hold(self, held: HeldTransaction, kind: int, event: bytes) -> None:
        """One event of it, without its checksum; tables that nobody captures are left out."""
        number = event[events.HEADER_BYTES : events.HEADER_BYTES + events.TABLE_ID_BYTES]
        if kind == events.TABLE_MAP:
            mapped = events.parse_table_map(event[events.HEADER_BYTES + events.TABLE_ID_BYTES :])
            held.captured.discard(number)
            if self._is_captured(TableId(database=mapped.database, table=mapped.table)):
                held.captured.add(number)
        if number in held.captured:
            with out_of_room_named(self._spill_dir):
                held.events.write(event)

    def end(self) -> HeldTransaction | None:
        """The one that was held is complete."""
        held, self.holding = self.holding, None
        return held

    def prepare(self, xid: str, held: HeldTransaction) -> None:
        """It waits for its commit or rollback."""
        self._prepared[xid] = held

    def take(self, xid: str) -> HeldTransaction | None:
        """The prepared one, which waits no more; None: it was prepared before the log was followed."""
        return self._prepared.pop(xid, None)

    def not_done(self, executed: GtidSet) -> GtidSet:
        """``executed`` without prepared transactions."""
        held = GtidSet()
        for prepared in self._prepared.values():
            held = held.add(prepared.gtid.uuid, prepared.gtid.tag, prepared.gtid.number)
        return executed.subtract(held)

    @property
    def has_prepared(self) -> bool:
        """Some wait for their commit or rollback."""
        return bool(self._prepared)
