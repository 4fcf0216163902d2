"""The values of a run that single rows are judged and written by, each made on first use."""

import functools
from typing import Any, Final

import msgspec

from libs.errors import InvalidEvent
from libs.events.batch import OP_CREATE, OP_DELETE, OP_KEY_CHANGE_DELETE, OP_READ, OP_UPDATE
from libs.tenants.row_filter import CompiledFilter
from libs.types.order import EventOrder, sort_key_prefix
from services.router.batches.changes import Run
from services.router.batches.row_cuts import RowCuts
from services.router.delivery.delivery import DeliveryContext
from services.router.records.record_bytes import PassedRows, ordinal_headers
from services.router.routes.encode import Encoding
from services.router.routes.project import Layout, openings_of

_WITH_BEFORE: Final = frozenset((OP_UPDATE, OP_DELETE))
_WITH_AFTER: Final = frozenset((OP_CREATE, OP_READ, OP_UPDATE))
_decode_value = msgspec.json.Decoder().decode


class RunValues:
    """A run, with values that only groups of single rows need, made on first use: keys, values and headers, and
    columns. Groups that look at the same share it."""

    def __init__(self, run: Run, context: DeliveryContext, columns: tuple[bytes, ...] = ()) -> None:
        self.run = run
        self._columns = columns
        self._decoded: dict[str, tuple[list[Any], list[Any]] | None] = {}
        self._pieces: dict[Layout, list[list[bytes]] | None] = {}
        self._passed: dict[int, PassedRows] = {}
        self._verdicts: dict[int, dict[int, bool | None]] = {}
        self.ops = run.ops
        self.has_key_changes = OP_KEY_CHANGE_DELETE in self.ops
        self._context = context
        self._headers: dict[bool, list[bytes]] = {}

    @property
    def copied_table(self) -> str:
        """The table, of rows that were copied; else empty."""
        return f"{self.run.database}.{self.run.table}" if self.run.is_snapshot else ""

    @functools.cached_property
    def keys(self) -> list[bytes]:
        return self.run.keys

    @functools.cached_property
    def values(self) -> list[bytes]:
        return self.run.values

    def passed(self, encoding: Encoding) -> PassedRows:
        """All rows as they are, in a form that is JSON."""
        passed = self._passed.get(id(encoding))
        if passed is None:
            before, behind = self.around_ordinal(is_json=encoding.has_json_headers)
            passed = self._passed[id(encoding)] = PassedRows(
                self.run,
                before=before,
                behind=behind,
                tombstones=encoding.tombstones,
                key_prefix=encoding.key_prefix,
                value_prefix=encoding.value_prefix,
            )
        return passed

    @functools.cached_property
    def cuts(self) -> RowCuts | None:
        """None: columns are found by reading each event."""
        if self.has_key_changes:
            return None
        cuts = RowCuts(self.run, self._columns)
        return cuts if cuts.is_plain else None

    def pieces(self, layout: Layout) -> list[list[bytes]] | None:
        """See ``RowCuts.pieces``."""
        if layout not in self._pieces:
            cuts = self.cuts
            self._pieces[layout] = None if cuts is None else cuts.pieces(layout.actions, layout.openings)
        return self._pieces[layout]

    def passes(self, row_filter: CompiledFilter, place: int) -> bool | None:
        """Whether a condition holds of a row, before and after it alike; None: that is not so, or cannot be said."""
        verdicts = self._verdicts.setdefault(id(row_filter), {})
        if place not in verdicts:
            verdicts[place] = self._judged(row_filter, place)
        return verdicts[place]

    def _judged(self, row_filter: CompiledFilter, place: int) -> bool | None:
        has_image = (self.ops[place] in _WITH_BEFORE, self.ops[place] in _WITH_AFTER)
        try:
            columns = {name: self._column(name) for name in row_filter.columns}
            verdicts = {
                row_filter.matches({name: sides[side][place] for name, sides in columns.items()})
                for side in range(2)
                if has_image[side]
            }
        except (InvalidEvent, msgspec.DecodeError):
            return None
        return verdicts.pop() if len(verdicts) == 1 else None

    def _column(self, name: str) -> tuple[list[Any], list[Any]]:
        """A column's values, before and after. Raises InvalidEvent where they are not to be cut, DecodeError."""
        if name not in self._decoded:
            (opening,) = openings_of((name,))
            is_known = self.cuts is not None and opening in self._columns
            sides = self.cuts.values(self._columns.index(opening)) if self.cuts is not None and is_known else None
            self._decoded[name] = None
            if sides is not None:
                before, after = ([None if each is None else _decode_value(each) for each in side] for side in sides)
                self._decoded[name] = (before, after)
        sides = self._decoded[name]
        if sides is None:
            raise InvalidEvent(f"column {name!r} is not where readers write it")
        return sides

    def around_ordinal(self, *, is_json: bool) -> tuple[bytes, bytes]:
        """The header bytes before and after a row's ordinal."""
        run = self.run
        before, behind = self._context.around_order(is_json=is_json, schema_version=run.schema_version)
        return before + sort_key_prefix(run.epoch, int(run.rank)).encode(), behind

    def headers(self, *, is_json: bool) -> list[bytes]:
        """Of each row, encoded."""
        headers = self._headers.get(is_json)
        if headers is None:
            headers = self._headers[is_json] = self._build_headers(is_json=is_json)
        return headers

    def _build_headers(self, *, is_json: bool) -> list[bytes]:
        run = self.run
        before, behind = self.around_ordinal(is_json=is_json)
        first, count = run.first_tx_ordinal, len(run)
        if run.is_snapshot:
            return [before + b"%010d" % first + behind] * count
        return ordinal_headers(before, behind, first, count)

    def order(self, index: int) -> EventOrder:
        run = self.run
        ordinal = run.first_tx_ordinal + (0 if run.is_snapshot else index)
        return EventOrder(epoch=run.epoch, rank=int(run.rank), tx_ordinal=ordinal)
