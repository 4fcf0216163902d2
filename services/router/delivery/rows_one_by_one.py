"""Rows of a run that a group gets, each by itself: where they cannot be taken together."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from libs.errors import InvalidEvent
from libs.events.batch import OP_DELETE, OP_KEY_CHANGE_DELETE, OP_UPDATE
from libs.events.names import NEW_KEY_HEADER, OLD_KEY_HEADER
from services.router.delivery.delivery import Delivery, DeliveryContext
from services.router.delivery.row_places import KEY_CHANGE, starts_of
from services.router.delivery.run_values import RunValues
from services.router.delivery.set_aside_rows import dead_letter_of, unforeseen
from services.router.records.record_batch import GrowingRecords, Records, encode_header, lead_headers
from services.router.routes.encode import Encoding
from services.router.routes.match import RouteGroup
from services.router.routes.project import ProjectedRow, project_row


def deliver_one_by_one(
    rows: RunValues, group: RouteGroup, context: DeliveryContext, places: Sequence[int] | None
) -> Iterator[Delivery]:
    """Row by row. ``places``: of the rows that may be for it, a changed key by its first half; None: any."""
    encoding = group.encoding
    written = _Written(encoding, rows.headers(is_json=encoding.has_json_headers))
    invalid = _write_rows(rows, group, written, context.max_event_bytes, places)
    if written.rows or written.filtered:
        yield Delivery(
            group.targets, written.records, rows=written.rows, filtered=written.filtered, table=rows.copied_table
        )
    if invalid:
        withheld = not group.projection.is_transparent
        for target, dead_letters in zip(group.targets, group.dead_letters, strict=True):
            letters = GrowingRecords()
            for index, reason, is_too_large in invalid:
                is_withheld = withheld or is_too_large
                letters.add(*dead_letter_of(rows, index, target, reason, context, is_withheld=is_withheld))
            table = f"{rows.run.database}.{rows.run.table}"
            reason = invalid[-1][1]
            yield Delivery((dead_letters,), letters.records, dead_letters=len(letters), table=table, reason=reason)


class _EncodedRow(NamedTuple):
    """A row as it will be written."""

    op: int
    key: bytes | None
    value: bytes
    key_in_header: bytes
    """As another event's header names it."""

    @property
    def size_bytes(self) -> int:
        """Of key and value: Kafka's limit is of the whole record."""
        return len(self.key or b"") + len(self.value)


class _Written:
    """Records of one group, written row by row."""

    __slots__ = ("_encoding", "_gathered", "_headers", "filtered", "rows")

    def __init__(self, encoding: Encoding, headers: list[bytes]) -> None:
        self._encoding = encoding
        self._headers = headers
        self._gathered = GrowingRecords()
        self.rows = 0
        self.filtered = 0

    @property
    def records(self) -> Records:
        return self._gathered.records

    def encoded(self, row: ProjectedRow) -> _EncodedRow:
        """Raises InvalidEvent."""
        encoding = self._encoding
        return _EncodedRow(row.op, encoding.key(row.key), encoding.value(row.value), encoding.key_in_header(row.key))

    def write(self, index: int, row: _EncodedRow, *, leading: bytes = b"") -> None:
        """One event, and its tombstone; a ``leading`` header stands before the others."""
        headers = self._headers[index]
        if leading:
            headers = lead_headers(leading, headers)
        self._gathered.add(row.key, row.value, headers)
        self.rows += 1
        if row.op in (OP_DELETE, OP_KEY_CHANGE_DELETE) and self._encoding.tombstones:
            self._gathered.add(row.key, None, headers)


_Invalid = tuple[int, str, bool]
"""A row's index in its run, the reason, and whether the event is too large."""


def _write_rows(
    rows: RunValues, group: RouteGroup, written: _Written, max_event_bytes: int, places: Sequence[int] | None
) -> list[_Invalid]:
    """Write each row that the group sees; returns the rows that cannot be written."""
    invalid: list[_Invalid] = []
    starts = starts_of(rows) if places is None else ((each, rows.ops[each : each + 2] == KEY_CHANGE) for each in places)
    for index, is_pair in starts:
        halves: list[tuple[int, _EncodedRow]] = []
        other_keys = [len(key) for key in rows.keys[index : index + 2][::-1]] if is_pair else [0]  # in a header
        for place, other_key in zip((index, index + 1), other_keys, strict=False):
            try:
                seen = _seen_row(rows, place, group)
                row = None if seen is None else written.encoded(seen)
                if seen is not None and row is not None and row.size_bytes + other_key >= max_event_bytes:
                    row = written.encoded(_without_before(seen))
            except InvalidEvent as error:
                invalid.append((place, str(error), False))
                continue
            except Exception as error:  # of this value alone: the rows beside it go on
                invalid.append((place, unforeseen(error, rows.run.database, rows.run.table), False))
                continue
            if row is None:
                written.filtered += 1
            elif row.size_bytes + other_key >= max_event_bytes:
                invalid.append((place, f"the event is larger than {max_event_bytes} bytes", True))
            else:
                halves.append((place, row))
        if len(halves) == len(KEY_CHANGE):
            _write_key_change(halves, written)
        else:
            for place, row in halves:
                written.write(place, row)
    return invalid


def _without_before(row: ProjectedRow) -> ProjectedRow:
    """The event without its row before, which may be all that makes it too large: an update is whole without, and of a delete
    the record's key says which row it was. As it is, where it has no such row, or no key that would say so."""
    if row.op not in (OP_UPDATE, OP_DELETE, OP_KEY_CHANGE_DELETE) or not row.key:
        return row
    event = msgspec.json.decode(row.value, type=dict[str, msgspec.Raw])
    return ProjectedRow(row.op, row.key, msgspec.json.encode({**event, "before": None}))


def _seen_row(rows: RunValues, index: int, group: RouteGroup) -> ProjectedRow | None:
    op, key, value = rows.ops[index], rows.keys[index], rows.values[index]
    if group.projection.is_transparent:
        return ProjectedRow(op, key, value)
    return project_row(group.projection, op, key, value)


def _write_key_change(halves: Sequence[tuple[int, _EncodedRow]], written: _Written) -> None:
    """A changed primary key: delete of the old key, tombstone, create of the new one, each naming the other.

    A tenant that sees one half only, because the other is filtered out, gets a plain delete or create: the header would name
    a row that is not the tenant's.
    """
    (old_index, old), (new_index, new) = halves
    written.write(old_index, old, leading=encode_header(NEW_KEY_HEADER, new.key_in_header))
    written.write(new_index, new, leading=encode_header(OLD_KEY_HEADER, old.key_in_header))
