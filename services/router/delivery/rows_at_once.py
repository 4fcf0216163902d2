"""Rows of a run that a group gets, taken together: as they lie in the batch's bytes, or by columns."""

from collections.abc import Sequence
from typing import TypeVar

from libs.errors import InvalidEvent
from libs.events.batch import OP_DELETE
from libs.tenants.row_filter import CompiledFilter
from services.router.batches.row_cuts import masked_values
from services.router.delivery.delivery import Delivery, DeliveryContext
from services.router.delivery.row_places import JudgedRows
from services.router.delivery.run_values import RunValues
from services.router.records.record_batch import NO_RECORDS, GrowingRecords, Records
from services.router.records.record_bytes import PassedRows
from services.router.routes.encode import Encoding
from services.router.routes.match import RouteGroup
from services.router.routes.project import Layout, Projection, project_key


def deliver_at_once(
    rows: RunValues, group: RouteGroup, context: DeliveryContext, asked: JudgedRows | None
) -> Delivery | None:
    """All that a group gets of a run, its rows taken together; None: they are to be looked at one by one."""
    projection, encoding = group.projection, group.encoding
    is_judged = asked is not None and asked.is_judged
    if rows.has_key_changes or projection.skips_unchanged:
        return None
    if projection.skipped_ops and any(op in projection.skipped_ops for op in set(rows.ops)):
        return None
    places = None if asked is None else asked.places
    count = len(rows.run) if places is None else len(places)
    if projection.filters and not is_judged:
        if rows.cuts is None or (places := _passing(rows, projection.filters, places)) is None:
            return None
        if not places:
            return Delivery(group.targets, NO_RECORDS, filtered=count, table=rows.copied_table)
    if projection.layout is None:
        passed = _passed_through(rows, encoding, context.max_event_bytes, places)
    else:
        passed = _changed(rows, projection, projection.layout, encoding, context.max_event_bytes, places)
    if passed is None:
        return None
    seen = len(rows.run) if places is None else len(places)
    return Delivery(group.targets, passed, rows=seen, filtered=count - seen, table=rows.copied_table)


def _passing(rows: RunValues, filters: Sequence[CompiledFilter], places: Sequence[int] | None) -> list[int] | None:
    """The rows that all filters hold of; None: one of them cannot be judged, or comes in or leaves with an update."""
    passing = []
    for place in range(len(rows.run)) if places is None else places:
        verdicts = [rows.passes(each, place) for each in filters]
        if None in verdicts:
            return None
        if all(verdicts):
            passing.append(place)
    return passing


def _changed(
    rows: RunValues,
    projection: Projection,
    layout: Layout,
    encoding: Encoding,
    max_event_bytes: int,
    places: Sequence[int] | None,
) -> Records | None:
    """Rows with their columns masked, left out and renamed; None: one of them cannot be."""
    pieces = rows.pieces(layout)
    if pieces is None:
        return None
    try:
        values = masked_values(pieces, tuple(projection.masks.values()), places)
        keys = _at(rows.keys, places)
        if projection.changes_key:
            keys = [project_key(projection, key) for key in keys]
    except Exception:  # of one value: which, and why, is found row by row
        return None
    return _encoded(rows, encoding, max_event_bytes, keys, values, places)


_T = TypeVar("_T")


def _at(column: list[_T], places: Sequence[int] | None) -> list[_T]:
    return column if places is None else [column[place] for place in places]


def _passed_through(
    rows: RunValues, encoding: Encoding, max_event_bytes: int, places: Sequence[int] | None
) -> Records | PassedRows | None:
    """The rows as they are, in the group's form, with tombstones after deletes where these are wanted; None where one of them
    cannot be written, or is too large."""
    if not encoding.is_json:
        return _encoded(rows, encoding, max_event_bytes, _at(rows.keys, places), _at(rows.values, places), places)
    if rows.run.largest_key + rows.run.largest_value + encoding.around_payloads >= max_event_bytes:
        return None
    passed = rows.passed(encoding)
    return passed if places is None else passed.at(places)


def _encoded(
    rows: RunValues,
    encoding: Encoding,
    max_event_bytes: int,
    key_payloads: Sequence[bytes],
    payloads: Sequence[bytes],
    places: Sequence[int] | None,
) -> Records | None:
    """Keys and values of the rows at ``places`` in the group's form; None as ``_passed_through``."""
    try:
        keys = [encoding.key(key) for key in key_payloads]
        values = payloads if encoding.leaves_values else [encoding.value(value) for value in payloads]
    except InvalidEvent:
        return None  # which of them, and why, is found row by row
    if max(map(len, values)) + max(map(len, filter(None, keys)), default=0) >= max_event_bytes:
        return None
    headers = _at(rows.headers(is_json=encoding.has_json_headers), places)
    if not encoding.tombstones or OP_DELETE not in rows.ops:
        return Records(keys, values, headers)
    ops = rows.ops if places is None else bytes(rows.ops[place] for place in places)
    gathered = GrowingRecords()
    for op, key, value, around in zip(ops, keys, values, headers, strict=True):
        gathered.add(key, value, around)
        if op == OP_DELETE:
            gathered.add(key, None, around)
    return gathered.records
