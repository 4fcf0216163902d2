"""From a ChangeBatch to records for tenant topics: plain functions, called by a lane for each batch.

Order: a tenant's deliveries come in the order of the batch's entries, and a run's records in the order of its rows, so each
topic receives its table's events in log order. Only events that a tenant's document filters out are dropped; one that
cannot be projected for a tenant becomes a dead letter of that tenant, and everything else goes on.

A run that passes as it is stays where it lies in the ChangeBatch's bytes, until it is written into Kafka's batch; only filters,
masks and key changes look at single rows, as columns.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import structlog

from libs.errors import InvalidEvent, is_of_all, refusal_of
from libs.events.batch import (
    OP_CREATE,
    OP_DELETE,
    OP_KEY_CHANGE_CREATE,
    OP_KEY_CHANGE_DELETE,
    OP_READ,
    OP_TRUNCATE,
    OP_UPDATE,
)
from libs.events.dead_letter import DeadLetter, encode_dead_letter
from libs.events.names import (
    CONTEXT_CONNECTOR_HEADER,
    CONTEXT_LOGICAL_NAME_HEADER,
    CONTEXT_RUN_HEADER,
    CONTEXT_TASK_HEADER,
    NEW_KEY_HEADER,
    OLD_KEY_HEADER,
    ORDER_HEADER,
    SCHEMA_VERSION_HEADER,
)
from libs.formats.connect_schema import (
    HEADER_TEXT,
    EnvelopeForm,
    payload_prefix,
)
from libs.tenants.row_filter import CompiledFilter
from libs.tenants.view import hidden_by_former_name
from libs.types.order import EventOrder, sort_key_prefix
from libs.types.table import TableId, TableSchema
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch, TableChange, TransactionBoundary
from services.router.audience import Audience
from services.router.changes import Run, read_entries
from services.router.encode import Encoding
from services.router.filter_index import ColumnIndex, FilterIndex
from services.router.match import (
    Announcement,
    RefusedRoute,
    RouteGroup,
    Subscriber,
    TableRoutes,
    Target,
    dead_letter_target,
    schema_changes_target,
    transactions_target,
)
from services.router.project import Layout, ProjectedRow, Projection, openings_of, project_key, project_row
from services.router.record_batch import (
    NO_HEADERS,
    NO_RECORDS,
    GrowingRecords,
    Records,
    encode_header,
    join_headers,
    lead_headers,
)
from services.router.record_bytes import PassedRows, ordinal_headers
from services.router.route_book import RouteView
from services.router.row_cuts import RowCuts, masked_values
from services.router.statements import hides_nothing, project_statement
from services.router.survey import Survey, survey

log = structlog.get_logger()

_OPS: Final = frozenset(
    (OP_CREATE, OP_UPDATE, OP_DELETE, OP_READ, OP_TRUNCATE, OP_KEY_CHANGE_DELETE, OP_KEY_CHANGE_CREATE)
)
_WITH_BEFORE: Final = frozenset((OP_UPDATE, OP_DELETE))
_WITH_AFTER: Final = frozenset((OP_CREATE, OP_READ, OP_UPDATE))
_decode_value = msgspec.json.Decoder().decode
_KEY_CHANGE: Final = bytes((OP_KEY_CHANGE_DELETE, OP_KEY_CHANGE_CREATE))


class Delivery(NamedTuple):
    """The same records for one or several topics, in order. A tuple, because each run makes one: a fifth of a dataclass'
    cost."""

    targets: tuple[Target, ...]
    records: Records | PassedRows
    rows: int = 0
    """Row events among the records; tombstones and schemas are none."""
    filtered: int = 0
    """Row events that the tenants' filter held back."""
    dead_letters: int = 0
    """Records that are dead letters."""
    table: str = ""
    """Of dead letters and of rows that were copied: ``database.table``."""
    reason: str = ""
    """The reason of the last dead letter; empty where the whole table is refused, which a fault reports."""


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """Where a ChangeBatch lies in Kafka."""

    topic: str
    kafka_partition: int
    offset: int


class Announced:
    """The table schemas that this lane has written for tenants since it started."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], TableSchema] = {}
        self._indexes: set[FilterIndex] = set()

    def is_new(self, index: FilterIndex) -> bool:
        """Whether its groups were not asked about yet; from now on they were."""
        if index in self._indexes:
            return False
        self._indexes.add(index)
        return True

    def unannounced(self, announcements: Sequence[Announcement]) -> list[Delivery]:
        """Schemas not yet written, or changed by a tenant's new document; they count as written from now on."""
        deliveries = []
        for announcement in announcements:
            topic, schema = announcement.delivered.topic, announcement.delivered.table_schema
            told = self._told.get((topic, schema.version))
            if told is not schema:
                self._told[topic, schema.version] = schema
                if told != schema:
                    deliveries.append(
                        Delivery((announcement.target,), _single(announcement.key, announcement.value, NO_HEADERS))
                    )
        return deliveries


def _single(key: bytes | None, value: bytes | None, headers: bytes) -> Records:
    return Records((key,), (value,), (headers,))


class Changes(NamedTuple):
    """A ChangeBatch, its runs as they lie in its bytes."""

    head: ChangeBatch
    """All but the entries."""
    entries: Sequence[Run | TableChange | TransactionBoundary]
    """In log order."""
    survey: Survey = Survey()
    """Of the entries."""
    unreadable: str | None = None
    """Why the record is no ChangeBatch; it has no entries then."""


def read_changes(payload: bytes) -> Changes:
    """Raises ValueError or protobuf's DecodeError where it is no ChangeBatch."""
    head, entries = read_entries(payload)
    return Changes(ChangeBatch.FromString(head), entries, survey(entries))


def read_record(payload: bytes | None, source: str) -> Changes:
    """A record of a source's changes topic, of any bytes: an unreadable one has no entries, and the reason."""
    try:
        changes = read_changes(payload or b"")
        if changes.head.source != source:
            raise ValueError("it is no batch of this source")
        for entry in changes.entries:
            _check_place(entry)
    except Exception as error:  # of bytes that anybody may have written
        reason = str(error) if type(error) is ValueError else type(error).__name__
        return Changes(ChangeBatch(source=source), (), unreadable=reason)
    return changes


def _check_place(entry: Run | TableChange | TransactionBoundary) -> None:
    """Raises ValueError where an entry cannot be put in order, or is of no table."""
    if isinstance(entry, TransactionBoundary):
        return
    if not (entry.rank.isascii() and entry.rank.isdigit()):
        raise ValueError("an entry has no rank")
    if isinstance(entry, Run) and not (entry.schema_version and entry.table and set(entry.ops) <= _OPS):
        raise ValueError("a run has no table, no schema version, or operations that there are not")


def deliver_batch(
    batch: Changes, view: RouteView, announced: Announced, place: BatchPlace, *, max_event_bytes: int
) -> Iterator[Delivery]:
    """Everything that tenants get of a batch, in order. Looks schemas up where ``view`` does not know them yet.

    Raises:
        SchemaUnknown, ServiceUnavailable: see ``RouteView.routes``; not for tables that ``targets_of`` looked up.
    """
    context = _Context(batch.head, view, announced, place, max_event_bytes)
    for entry in batch.entries:
        match entry:
            case Run():
                yield from _deliver_run(entry, context)
            case TableChange():
                yield from _deliver_table_change(entry, context)
            case TransactionBoundary():
                yield from _deliver_boundary(entry, context)


def targets_of(batch: Changes, view: RouteView) -> Iterator[Target]:
    """Every topic that a batch's events may go to, dead letters aside; looks up and registers the schemas that it needs.

    Raises:
        SchemaUnknown, ServiceUnavailable: see ``RouteView.routes``.
    """
    for routes in routes_of(batch, view):
        yield from route_targets(routes)
    yield from targets_without_rows(batch, view)


def routes_of(batch: Changes, view: RouteView) -> Iterator[TableRoutes]:
    """Of every table version of a batch. Raises as ``targets_of``."""
    form = form_of(batch.head)
    for database, table, schema_version, for_tenants in batch.survey.versions:
        routes = view.routes(database, table, schema_version, form)
        yield routes.only(for_tenants) if for_tenants else routes


def targets_without_rows(batch: Changes, view: RouteView) -> Iterator[Target]:
    """The topics of a batch's statements and transactions. Raises as ``targets_of``."""
    form = form_of(batch.head)
    for statement in batch.survey.statements:
        yield from (target for _, target, _ in _change_readers(statement, view, form))
    if batch.survey.has_boundaries:
        yield from (target for _, target, _ in _boundary_readers(view))


def unseen_addressees(batch: Changes, audience: Audience) -> set[tuple[str, TableId]]:
    """Tenants that rows are addressed to and that do not see their table, by their documents."""
    return {
        (tenant, table_id)
        for tenant, table_id in batch.survey.addressed
        if all(subscriber.tenant != tenant for subscriber in audience.who_sees(table_id))
    }


def form_of(batch: ChangeBatch) -> EnvelopeForm:
    """The common part of the batch's events."""
    removed = tuple(dict.fromkeys(batch.removed_fields))  # joined batches name them once each
    return _form(batch.connector, removed, batch.has_ordered_transactions)


@functools.lru_cache(maxsize=64)
def _form(connector: str, removed_fields: tuple[str, ...], has_ordered_transactions: bool, /) -> EnvelopeForm:
    """The same object for all batches of a reader: routes are found by it for each run, and one object is not compared."""
    return EnvelopeForm(
        connector=connector, removed_fields=removed_fields, has_ordered_transactions=has_ordered_transactions
    )


def route_targets(routes: TableRoutes) -> Iterator[Target]:
    """The topics of a table version's rows and schemas."""
    for group in routes.groups:
        yield from group.targets
        yield from (announcement.target for announcement in group.announcements)


class _Context:
    """The common values of all entries of one batch."""

    __slots__ = ("_headers", "announced", "batch", "form", "max_event_bytes", "place", "view")

    def __init__(
        self, batch: ChangeBatch, view: RouteView, announced: Announced, place: BatchPlace, max_event_bytes: int
    ) -> None:
        self.batch = batch
        self.form = form_of(batch)
        self.view = view
        self.announced = announced
        self.place = place
        self.max_event_bytes = max_event_bytes
        self._headers: dict[tuple[bool, int], tuple[bytes, bytes]] = {}

    def headers(self, *, is_json: bool) -> tuple[bytes, ...]:
        batch = self.batch
        return _context_headers(batch.source, batch.source_partition, batch.connector, batch.run_id, is_json)

    def around_order(self, *, is_json: bool, schema_version: int) -> tuple[bytes, bytes]:
        """The header bytes before and after a row's order."""
        around = self._headers.get((is_json, schema_version))
        if around is None:
            order = encode_header(ORDER_HEADER, _header_value(_ANY_ORDER, is_json=is_json))
            version = encode_header(SCHEMA_VERSION_HEADER, _header_value(b"%d" % schema_version, is_json=is_json))
            before, behind = join_headers(*self.headers(is_json=is_json), order, version).rsplit(_ANY_ORDER, 1)
            around = self._headers[is_json, schema_version] = (before, behind)
        return around


_ANY_ORDER: Final = EventOrder(epoch=0, rank=0, tx_ordinal=0).sort_key().encode()
"""All have the same length."""


@functools.lru_cache(maxsize=64)
def _context_headers(source: str, partition: str, connector: str, run_id: str, is_json: bool) -> tuple[bytes, ...]:
    """Debezium's context headers, as SimpleHeaderConverter or as JsonConverter writes them.

    Tasks of its Vitess connector with offsets of their own are called as our source partitions are; any other is "0", as there.
    """
    texts = {
        CONTEXT_LOGICAL_NAME_HEADER: source,
        CONTEXT_TASK_HEADER: partition,
        CONTEXT_CONNECTOR_HEADER: connector,
        CONTEXT_RUN_HEADER: run_id,
    }
    return tuple(encode_header(name, _header_value(text.encode(), is_json=is_json)) for name, text in texts.items())


def _header_value(text: bytes, *, is_json: bool) -> bytes:
    """Text as it is, or as JSON with its schema."""
    return payload_prefix(HEADER_TEXT) + msgspec.json.encode(text.decode()) + b"}" if is_json else text


# --- runs -----------------------------------------------------------------------------------------------------------


def _deliver_run(run: Run, context: _Context) -> Iterator[Delivery]:
    routes = _run_routes(run, context.view, context.form)
    if not routes.groups and not routes.refused:
        return
    rows = _Rows(run, context, routes.columns)
    index = routes.index
    if index is None:
        for group in routes.groups:
            yield from context.announced.unannounced(group.announcements)
            yield from _contained(rows, group, context)
    else:
        if context.announced.is_new(index):
            for group in routes.groups:
                yield from context.announced.unannounced(group.announcements)
        for number in index.others:
            yield from _contained(rows, routes.groups[number], context)
        for column in index.columns:
            is_judged, found = _places_by_group(rows, column)
            for number, places in found.items():
                judged = is_judged and number in column.judged
                yield from _contained(rows, routes.groups[number], context, _Asked(places, judged))
    for refused in routes.refused:
        yield _all_set_aside(rows, refused, context)


class _Asked(NamedTuple):
    """The row that a group judges."""

    places: Sequence[int]
    """Of rows of the run, in order; a changed key by its first half."""
    is_judged: bool = False
    """The group's filters hold of all of them, before and after."""


def _places_by_group(rows: "_Rows", column: ColumnIndex) -> tuple[bool, dict[int, list[int]]]:
    """For each group that a row of the run may be for, the rows, in order; of a changed key both halves. And whether each row's
    value, before and after, is one that the group wants."""
    sides = None if rows.cuts is None or column.place is None else rows.cuts.values(column.place)
    if sides is not None and (wanted := _wanted(rows.ops, sides, column)) is not None:
        return wanted
    found: dict[int, list[int]] = {}
    ops, values = rows.ops, rows.values
    for place, is_pair in _starts(rows):
        numbers = column.candidates(ops[place], values[place]).numbers
        if is_pair:
            numbers = sorted({*numbers, *column.candidates(ops[place + 1], values[place + 1]).numbers})
        for number in numbers:
            found.setdefault(number, []).append(place)
    return False, found


_Side = Sequence[bytes | None]


def _wanted(ops: bytes, sides: tuple[_Side, _Side], column: ColumnIndex) -> tuple[bool, dict[int, list[int]]] | None:
    """As ``_places_by_group``, by a column's values; None: one of them cannot be judged."""
    found: dict[int, list[int]] = {}
    is_judged = True
    for place, (before, after) in enumerate(zip(*sides, strict=True)):
        value = before if after is None else after
        numbers = None if value is None else column.wanted_by(value)
        if numbers is None:
            return None
        if before is not None and before != value:
            left = column.wanted_by(before)
            if left is None:
                return None
            if left != numbers:
                is_judged = False
                numbers = tuple(sorted({*left, *numbers}))
        for number in numbers:
            if number in found:
                found[number].append(place)
            else:
                found[number] = [place]
    return is_judged, found


def _starts(rows: "_Rows") -> Iterator[tuple[int, bool]]:
    """The places of rows, and whether the two halves of a changed key begin there."""
    if not rows.has_key_changes:
        yield from ((place, False) for place in range(len(rows.run)))
        return
    place = 0
    while place < len(rows.run):
        is_pair = rows.ops[place : place + 2] == _KEY_CHANGE
        yield place, is_pair
        place += 2 if is_pair else 1


def _contained(rows: "_Rows", group: RouteGroup, context: _Context, asked: _Asked | None = None) -> Sequence[Delivery]:
    """As ``_deliver_to_group``; where that fails, the run is set aside for the group's tenants alone."""
    try:
        at_once = _deliver_at_once(rows, group, context, asked)
        if at_once is not None:
            return (at_once,)
        return list(_deliver_to_group(rows, group, context, None if asked is None else asked.places))
    except Exception as error:
        if is_of_all(error):
            raise
        reason = _unforeseen(error, rows.run.database, rows.run.table)
        return [
            _all_set_aside(rows, RefusedRoute(target, dead_letters, reason), context)
            for target, dead_letters in zip(group.targets, group.dead_letters, strict=True)
        ]


def _run_routes(run: Run, view: RouteView, form: EnvelopeForm) -> TableRoutes:
    """The tenants that get a run's rows: all that see its table, or those among them that it is addressed to."""
    routes = view.routes(run.database, run.table, run.schema_version, form)
    return routes.only(run.for_tenants) if run.for_tenants else routes


class _Rows:
    """A run, with values that only groups of single rows need, made on first use: keys, values and headers, and
    columns. Groups that look at the same share it."""

    def __init__(self, run: Run, context: _Context, columns: tuple[bytes, ...] = ()) -> None:
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


def _deliver_at_once(rows: _Rows, group: RouteGroup, context: _Context, asked: _Asked | None) -> Delivery | None:
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


def _passing(rows: _Rows, filters: Sequence[CompiledFilter], places: Sequence[int] | None) -> list[int] | None:
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
    rows: _Rows,
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


def _deliver_to_group(
    rows: _Rows, group: RouteGroup, context: _Context, places: Sequence[int] | None
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
                letters.add(*_dead_letter(rows, index, target, reason, context, is_withheld=is_withheld))
            table = f"{rows.run.database}.{rows.run.table}"
            reason = invalid[-1][1]
            yield Delivery((dead_letters,), letters.records, dead_letters=len(letters), table=table, reason=reason)


def _passed_through(
    rows: _Rows, encoding: Encoding, max_event_bytes: int, places: Sequence[int] | None
) -> Records | PassedRows | None:
    """The rows as they are, in the group's form, with tombstones behind deletes where these are wanted; None where one of them
    cannot be written, or is too large."""
    if not encoding.is_json:
        return _encoded(rows, encoding, max_event_bytes, _at(rows.keys, places), _at(rows.values, places), places)
    if rows.run.largest_value + encoding.around_value >= max_event_bytes:
        return None
    passed = rows.passed(encoding)
    return passed if places is None else passed.at(places)


def _encoded(
    rows: _Rows,
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
    if max(map(len, values)) >= max_event_bytes:
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


class _EncodedRow(NamedTuple):
    """A row as it will be written."""

    op: int
    key: bytes | None
    value: bytes
    key_in_header: bytes
    """As another event's header names it."""


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
    rows: _Rows, group: RouteGroup, written: _Written, max_event_bytes: int, places: Sequence[int] | None
) -> list[_Invalid]:
    """Write each row that the group sees; returns the rows that cannot be written."""
    invalid: list[_Invalid] = []
    starts = _starts(rows) if places is None else ((each, rows.ops[each : each + 2] == _KEY_CHANGE) for each in places)
    for index, is_pair in starts:
        halves: list[tuple[int, _EncodedRow]] = []
        for place in (index, index + 1) if is_pair else (index,):
            try:
                seen = _seen_row(rows, place, group)
                row = None if seen is None else written.encoded(seen)
                if seen is not None and row is not None and len(row.value) >= max_event_bytes:
                    row = written.encoded(_without_before(seen))
            except InvalidEvent as error:
                invalid.append((place, str(error), False))
                continue
            except Exception as error:  # of this value alone: the rows beside it go on
                invalid.append((place, _unforeseen(error, rows.run.database, rows.run.table), False))
                continue
            if row is None:
                written.filtered += 1
            elif len(row.value) >= max_event_bytes:
                invalid.append((place, f"the event is larger than {max_event_bytes} bytes", True))
            else:
                halves.append((place, row))
        if len(halves) == len(_KEY_CHANGE):
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


def _seen_row(rows: _Rows, index: int, group: RouteGroup) -> ProjectedRow | None:
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


def _unforeseen(error: Exception, database: str, table: str) -> str:
    log.error("refused_unforeseen", table=f"{database}.{table}", exc_info=error)
    return refusal_of(error)


# --- dead letters -----------------------------------------------------------------------------------------------------


def _all_set_aside(rows: _Rows, refused: RefusedRoute, context: _Context) -> Delivery:
    letters = GrowingRecords()
    for index in range(len(rows.run)):
        letters.add(*_dead_letter(rows, index, refused.target, refused.reason, context, is_withheld=True))
    return Delivery((refused.dead_letters,), letters.records, dead_letters=len(letters))


def _dead_letter(
    rows: _Rows, index: int, target: Target, reason: str, context: _Context, *, is_withheld: bool
) -> tuple[bytes | None, bytes, bytes]:
    """Key, value and headers."""
    run, place = rows.run, context.place
    key = rows.keys[index] or None
    letter = DeadLetter(
        tenant=target.tenant,
        topic=target.topic.name,
        reason=reason,
        source=context.batch.source,
        source_partition=context.batch.source_partition,
        database=run.database,
        table=run.table,
        schema_version=run.schema_version,
        op=chr(rows.ops[index]).lower(),
        order=rows.order(index),
        transaction_id=run.transaction_id,
        changes_topic=place.topic,
        changes_kafka_partition=place.kafka_partition,
        changes_offset=place.offset,
        is_withheld=is_withheld,
        event_key=None if is_withheld else key,
        event_value=None if is_withheld else rows.values[index],
    )
    headers = rows.headers(is_json=False)[index]
    return (letter.event_key, encode_dead_letter(letter), headers)


# --- schema changes and transaction boundaries -----------------------------------------------------------------------


def _deliver_table_change(change: TableChange, context: _Context) -> Iterator[Delivery]:
    """The new schema at once, so a new column is known before its rows; and Debezium's event."""
    view = context.view
    if change.schema_version:
        for group in view.routes(change.database, change.table, change.schema_version, context.form).groups:
            yield from context.announced.unannounced(group.announcements)
    for reader, target, encoding in _change_readers(change, view, context.form):
        try:
            projected = project_statement(change.value, reader.selection, *_table_of(change, view))
            key, value = encoding.key(change.key), encoding.value(projected)
        except Exception as error:
            if is_of_all(error):
                raise
            reason = (
                str(error) if isinstance(error, InvalidEvent) else _unforeseen(error, change.database, change.table)
            )
            yield _statement_set_aside(change, reader, target, reason, context)
            continue
        if len(value) >= context.max_event_bytes:
            continue  # a statement that does not fit into a record: the schema itself was written above
        yield Delivery(
            (target,), _single(key, value, join_headers(*context.headers(is_json=encoding.has_json_headers)))
        )


def _table_of(change: TableChange, view: RouteView) -> tuple[TableId | None, TableSchema | None]:
    """The one table that a statement is about, and its schema after it."""
    if not change.table:
        return None, None
    table_id = TableId(database=change.database, table=change.table)
    return table_id, view.newest_schema(table_id, change.schema_version) if change.schema_version else None


def _statement_set_aside(
    change: TableChange, reader: Subscriber, target: Target, reason: str, context: _Context
) -> Delivery:
    """A statement's event that the tenant's form cannot hold; its schema was written all the same."""
    place = context.place
    letter = DeadLetter(
        tenant=reader.tenant,
        topic=target.topic.name,
        reason=reason,
        source=context.batch.source,
        source_partition=context.batch.source_partition,
        database=change.database,
        table=change.table,
        schema_version=change.schema_version,
        op="",
        order=EventOrder(epoch=change.epoch, rank=int(change.rank), tx_ordinal=change.tx_ordinal),
        changes_topic=place.topic,
        changes_kafka_partition=place.kafka_partition,
        changes_offset=place.offset,
        is_withheld=not hides_nothing(reader.selection),
        event_key=change.key,
        event_value=change.value if hides_nothing(reader.selection) else None,
    )
    headers = join_headers(*context.headers(is_json=False))
    return Delivery(
        (dead_letter_target(reader),), _single(change.key, encode_dead_letter(letter), headers), dead_letters=1
    )


def _change_readers(
    change: TableChange, view: RouteView, form: EnvelopeForm
) -> Iterator[tuple[Subscriber, Target, Encoding]]:
    """A receiver of a statement's event, with its topic and form."""
    if not change.value:
        return
    if change.table:
        table_id = TableId(database=change.database, table=change.table)
        readers = view.audience.who_sees(table_id)
        if readers and (schema := view.newest_schema(table_id, change.schema_version)) is not None:
            readers = tuple(each for each in readers if hidden_by_former_name(each.selection, schema) is None)
    elif change.database:
        readers = view.audience.who_sees_any(change.database, change.database_tables)
    else:
        readers = view.audience.subscribers
    for subscriber in view.present(each for each in readers if each.spec.topics.schema_changes):
        encoding = view.schema_changes_encoding(subscriber, form)
        if encoding is not None:
            yield subscriber, schema_changes_target(subscriber, view.audience.source), encoding


def _deliver_boundary(boundary: TransactionBoundary, context: _Context) -> Iterator[Delivery]:
    for reader, target, encoding in _boundary_readers(context.view):
        key = encoding.key(msgspec.json.encode({"id": boundary.transaction_id}))
        value = encoding.value(msgspec.json.encode(_boundary_payload(boundary, reader)))
        yield Delivery((target,), _single(key, value, NO_HEADERS))


def _boundary_readers(view: RouteView) -> Iterator[tuple[Subscriber, Target, Encoding]]:
    for subscriber in view.present(view.audience.readers_of_transactions):
        encoding = view.transactions_encoding(subscriber)
        if encoding is not None:
            yield subscriber, transactions_target(subscriber, view.audience.source), encoding


def _boundary_payload(boundary: TransactionBoundary, reader: Subscriber) -> dict[str, object]:
    """Debezium's payload; END counts the events of the tables that the tenant sees, before its row filters."""
    is_end = boundary.status == TransactionBoundary.STATUS_END
    counts = [
        (f"{count.database}.{count.table}", count.events)
        for count in boundary.table_event_counts
        if reader.sees(TableId(database=count.database, table=count.table))
    ]
    collections = [{"data_collection": name, "event_count": events} for name, events in counts]
    return {
        "status": "END" if is_end else "BEGIN",
        "id": boundary.transaction_id,
        "event_count": sum(events for _, events in counts) if is_end else None,
        "data_collections": collections if is_end else None,
        "ts_ms": boundary.committed_at_us // 1000,
    }
