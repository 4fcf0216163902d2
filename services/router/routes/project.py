"""A tenant's view of one table version: its rows, its columns, and the values in place of masked ones.

``match`` compiles a ``Projection`` for each (table, schema version, selection); ``deliver`` asks it about every row of a
tenant that has one. An event is taken apart only as far as its images' columns, and unmasked values keep their bytes: a
float's digits and a decimal's scale stay those that the reader wrote.
"""

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from libs.errors import InvalidEvent
from libs.events.batch import (
    OP_CREATE,
    OP_DELETE,
    OP_KEY_CHANGE_CREATE,
    OP_KEY_CHANGE_DELETE,
    OP_TRUNCATE,
    OP_UPDATE,
)
from libs.tenants.filter_values import decimal_of_wire
from libs.tenants.mask_keys import KeyUnusable
from libs.tenants.masks import encryption, format_preserving, hmac_hex
from libs.tenants.row_filter import CompiledFilter, InvalidCondition, compile_filter
from libs.tenants.view import filters_of, tenant_view
from libs.types.table import Column, TableSchema
from libs.types.tenant import ColumnMask, KeyFrom, NameAdjustment, Operation, SourceSelection
from libs.types.value import UNAVAILABLE_VALUE, LogicalKind, LogicalType
from services.router.batches.row_cuts import KEPT, LEFT_OUT, MASKED

Image = dict[str, msgspec.Raw]
"""A row image: each column's value as the reader wrote it."""
Mask = Callable[[bytes], bytes]
"""Of values as JSON text."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns of an image are masked, left out or renamed. Tenants with equal choices share the cutting of a row; the
    masked values are each one's own."""

    actions: bytes
    """By the table's columns: ``row_cuts.KEPT`` and so on."""
    openings: tuple[bytes, ...]
    """The bytes in front of each one's value."""


@dataclass(frozen=True, slots=True)
class ProjectedRow:
    """A row event as the tenant sees it; ``op`` is one of ``Run.ops``."""

    op: int
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Projection:
    """A tenant's view of one table version."""

    schema: TableSchema
    """The table as the tenant receives it, its columns by the names that the tenant reads."""
    filters: tuple[CompiledFilter, ...] = ()
    """All of them must hold."""
    excluded: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()
    """Of these, columns that came later and that the tenant's document does not name."""
    masks: Mapping[str, Mask] = field(default_factory=dict)
    field_names: Mapping[str, str] = field(default_factory=dict)
    """Of columns that the tenant reads under another name than the source's: from the source's."""
    skipped_ops: bytes = b""
    """Of ``Run.ops``."""
    skips_unchanged: bool = False
    changes_key: bool = False
    """A column of the key is masked or has another name."""
    columns: tuple[bytes, ...] = ()
    """The table's, for ``RowCuts``."""
    layout: Layout | None = None
    """None: no column changes."""

    @property
    def is_transparent(self) -> bool:
        """Every event passes as it is, byte by byte."""
        return not self.looks_into_rows and not self.skipped_ops

    def lets_pass(self, ops: bytes) -> bool:
        """Events of these operations pass as they are, byte by byte."""
        skipped = self.skipped_ops
        return not self.looks_into_rows and not (skipped and any(op in skipped for op in set(ops)))

    @property
    def looks_into_rows(self) -> bool:
        """The result for an event depends on its images."""
        return bool(self.filters or self.skips_unchanged or self.changes_columns)

    @property
    def changes_columns(self) -> bool:
        """Values are masked or left out, or have other names."""
        return bool(self.excluded or self.masks or self.field_names)


_OPS_OF: Final = {
    Operation.CREATE: bytes((OP_CREATE, OP_KEY_CHANGE_CREATE)),
    Operation.UPDATE: bytes((OP_UPDATE,)),
    Operation.DELETE: bytes((OP_DELETE, OP_KEY_CHANGE_DELETE)),
    Operation.TRUNCATE: bytes((OP_TRUNCATE,)),
}


class InvalidProjection(InvalidEvent):
    """A tenant's selection cannot be applied to a table version: its events are set aside for this tenant."""


class KeysMissing(InvalidProjection):
    """By this process, which lacks keys of the selection's masks: another may have them."""


KeyOf = Callable[[KeyFrom], bytes]
"""A tenant's key. Raises KeyUnusable."""


def no_key(_key_from: KeyFrom) -> bytes:
    """For selections without keyed masks."""
    raise KeyUnusable("there are no keys here")


def compile_projection(
    table: TableSchema,
    selection: SourceSelection,
    field_names: NameAdjustment = NameAdjustment.NONE,
    key_of: KeyOf = no_key,
    compiled: dict[str, CompiledFilter] | None = None,
) -> Projection:
    """The view of ``table`` that ``selection`` describes, its columns named as ``field_names`` says. Reads the keys of masks.

    ``compiled`` has the conditions that other selections have on the same table version, and gets those of this one: equal ones
    are one object, and are asked of a row once.

    Raises:
        InvalidProjection: a filter does not fit the table, a key would be lost, or two columns would have one name.
            Every reason is in the message.
        KeysMissing: that, and a mask's key is not there.
    """
    mistakes: list[str] = []
    filters = _compile_filters(table, selection, mistakes, {} if compiled is None else compiled)
    view = tenant_view(table, selection, field_names)
    mistakes.extend(view.mistakes)
    masks: dict[str, Mask] = {}
    missing: list[str] = []
    for name, mask in view.masks.items():
        try:
            masks[name] = _compile_mask(table.column(name), mask, key_of)
        except KeyUnusable as error:
            missing.append(f"masks: {name!r}: {error}")
    if mistakes or missing:
        raise (KeysMissing if missing else InvalidProjection)("; ".join([*mistakes, *missing]))
    field_names_seen = {name: seen for name, seen in view.names.items() if seen != name}
    columns = openings_of(tuple(column.name for column in table.columns))
    return Projection(
        schema=view.schema,
        filters=filters,
        excluded=view.excluded,
        unknown=view.unknown,
        masks=masks,
        field_names=field_names_seen,
        skipped_ops=b"".join(_OPS_OF[operation] for operation in selection.skip_operations),
        skips_unchanged=selection.skip_unchanged_updates,
        changes_key=any(name in view.masks or view.names[name] != name for name in table.key),
        columns=columns,
        layout=_layout(table, columns, masks, view.excluded, field_names_seen),
    )


@functools.lru_cache(maxsize=1_000)
def openings_of(columns: tuple[str, ...]) -> tuple[bytes, ...]:
    """The bytes in front of each column's value in an image; the same object for all callers of a table."""
    return tuple(msgspec.json.encode(name) + b":" for name in columns)


def _layout(
    table: TableSchema,
    columns: tuple[bytes, ...],
    masks: Mapping[str, Mask],
    excluded: frozenset[str],
    field_names: Mapping[str, str],
) -> Layout | None:
    if not (masks or excluded or field_names):
        return None
    names = [column.name for column in table.columns]
    actions = bytes(LEFT_OUT if name in excluded else MASKED if name in masks else KEPT for name in names)
    return Layout(
        actions, openings_of(tuple(field_names.get(name, name) for name in names)) if field_names else columns
    )


def _compile_filters(
    table: TableSchema, selection: SourceSelection, mistakes: list[str], compiled: dict[str, CompiledFilter]
) -> tuple[CompiledFilter, ...]:
    filters = []
    for _, row_filter in filters_of(selection, table):
        try:
            if row_filter.where not in compiled:
                compiled[row_filter.where] = compile_filter(row_filter.where, table)
            filters.append(compiled[row_filter.where])
        except InvalidCondition as error:
            mistakes.extend(f"row filter: {mistake}" for mistake in error.mistakes)
    return tuple(filters)


# --- masks --------------------------------------------------------------------------------------------------------------

_NULL: Final = b"null"
_RAW_NULL: Final = msgspec.Raw(_NULL)


def _compile_mask(column: Column, mask: ColumnMask, key_of: KeyOf) -> Mask:
    """Raises KeyUnusable."""
    if mask.truncate_chars is not None:
        return _truncation(mask.truncate_chars)
    if mask.keep_last is not None:
        return _keeping_last(mask.keep_last)
    if mask.set_null:
        return lambda _value: _NULL
    if mask.hash is not None:
        salt, digest = mask.hash.salt.encode(), getattr(hashlib, mask.hash.algorithm)
        return _replacing(column, lambda text: digest(salt + text).hexdigest())
    if mask.hmac is not None:
        key, algorithm = key_of(mask.hmac.key_from), mask.hmac.algorithm
        return _replacing(column, lambda text: hmac_hex(key, algorithm, text))
    if mask.encrypt is not None:
        return _replacing(column, encryption(key_of(mask.encrypt.key_from)))
    if mask.format_preserving is not None:
        replace = format_preserving(key_of(mask.format_preserving.key_from), mask.format_preserving.kind)
        return _replacing(column, lambda text: replace(text.decode()))
    constant = msgspec.json.encode(mask.constant)
    return lambda _value: constant


def _replacing(column: Column, replacement: Callable[[bytes], str]) -> Mask:
    """A text in place of every value but NULL, and one that the log does not hold."""

    logical_type = column.logical_type

    def replace(value: bytes) -> bytes:
        text = mask_text(value, logical_type)
        return value if text is None else b'"%b"' % replacement(text).encode()

    return replace


def _keeping_last(chars: int) -> Mask:
    def keep_last(value: bytes) -> bytes:
        if value == _NULL:
            return value
        text = msgspec.json.decode(value, type=str)
        if text == UNAVAILABLE_VALUE:
            return value
        kept = text[-chars:] if len(text) > chars else ""
        return msgspec.json.encode("*" * (len(text) - len(kept)) + kept)

    return keep_last


def _truncation(chars: int) -> Mask:
    def truncate(value: bytes) -> bytes:
        if len(value) <= chars + 2 or value == _NULL:
            return value
        text = msgspec.json.decode(value, type=str)
        if len(text) <= chars or text == UNAVAILABLE_VALUE:
            return value
        return msgspec.json.encode(text[:chars])

    return truncate


def mask_text(value: bytes, logical_type: LogicalType) -> bytes | None:
    """The text of a JSON value that hash, HMAC and encryption are of; None for NULL and for a value that the log does not hold.

    A text is itself and a decimal has all digits of its scale (``12.50``); every other value is its JSON form without
    quotes, so an integer is its digits and a date its days since 1970.

    Raises:
        InvalidEvent: a decimal is not in its form.
    """
    if value == _NULL:
        return None
    if value[:1] != b'"':
        return value
    if logical_type.kind is not LogicalKind.DECIMAL and value.isascii() and b"\\" not in value:  # as it stands
        return None if value == _UNAVAILABLE else value[1:-1]
    text = msgspec.json.decode(value, type=str)
    if text == UNAVAILABLE_VALUE:
        return None
    if logical_type.kind is LogicalKind.DECIMAL:
        try:
            return f"{decimal_of_wire(text, logical_type.scale):f}".encode()
        except ValueError as error:
            raise InvalidEvent("a DECIMAL's value is not base64: not a reader wrote it") from error
    return text.encode()


# --- rows -----------------------------------------------------------------------------------------------------------

_UNAVAILABLE: Final = msgspec.json.encode(UNAVAILABLE_VALUE)
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_value = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_OP_TEXT: Final = {OP_CREATE: msgspec.Raw(b'"c"'), OP_DELETE: msgspec.Raw(b'"d"')}


def project_row(projection: Projection, op: int, key: bytes, value: bytes) -> ProjectedRow | None:
    """A row event through a tenant's filter and masks; None where the tenant does not see it.

    An update whose row leaves the filter is a delete to the tenant, one whose row enters it is a create.

    Raises:
        InvalidEvent: the event cannot be judged or masked; it must not be delivered as it is.
    """
    if op in projection.skipped_ops:
        return None
    if op == OP_TRUNCATE or not projection.looks_into_rows:
        return ProjectedRow(op, key, value)
    try:
        envelope = _decode_object(value)
        before, after = _image(envelope, "before"), _image(envelope, "after")
        seen_op = _seen_op(projection.filters, op, before, after) if projection.filters else op
        if seen_op is None or seen_op in projection.skipped_ops:
            return None
        if seen_op == op and not projection.changes_columns and not projection.skips_unchanged:
            return ProjectedRow(op, key, value)
        if seen_op != op:  # an update that crosses the filter's border
            envelope["op"] = _OP_TEXT[seen_op]
            before, after = (before, None) if seen_op == OP_DELETE else (None, after)
        envelope["before"] = _project_image(projection, before)
        envelope["after"] = _project_image(projection, after)
        if projection.skips_unchanged and seen_op == OP_UPDATE and _is_unchanged(envelope):
            return None
        return ProjectedRow(seen_op, project_key(projection, key), _encode(envelope))
    except msgspec.DecodeError as error:
        raise InvalidEvent("the event is not Debezium's JSON") from error
    except KeyError as error:
        raise InvalidEvent(f"the event lacks {error.args[0]!r}") from error


def project_key(projection: Projection, key: bytes) -> bytes:
    """A key payload with its masked columns masked, under the tenant's names; an empty one stays empty."""
    if not key or not projection.changes_key:
        return key
    return _encode(_project_columns(projection, _decode_object(key)))


def _image(envelope: Image, side: str) -> Image | None:
    raw = bytes(envelope[side])
    return None if raw == _NULL else _decode_object(raw)


def _project_image(projection: Projection, image: Image | None) -> msgspec.Raw:
    return _RAW_NULL if image is None else msgspec.Raw(_encode(_project_columns(projection, image)))


def _project_columns(projection: Projection, image: Image) -> Image:
    for name in projection.excluded:
        image.pop(name, None)
    for name, mask in projection.masks.items():
        if name in image:
            image[name] = msgspec.Raw(mask(bytes(image[name])))
    if not projection.field_names:
        return image
    return {projection.field_names.get(name, name): value for name, value in image.items()}


def _is_unchanged(projected: Image) -> bool:
    before, after = bytes(projected["before"]), bytes(projected["after"])
    if before == _NULL:
        raise InvalidEvent("the event has no row before it, which skip_unchanged_updates needs")
    return before == after


def _seen_op(filters: Sequence[CompiledFilter], op: int, before: Image | None, after: Image | None) -> int | None:
    """The operation as it looks through the filters; None where neither image passes."""
    match op:
        case _ if op in (OP_DELETE, OP_KEY_CHANGE_DELETE):
            return op if _passes(filters, before, "before") else None
        case _ if op == OP_UPDATE:
            passed, passes = _passes(filters, before, "before"), _passes(filters, after, "after")
            if passed and passes:
                return OP_UPDATE
            if passed or passes:
                return OP_DELETE if passed else OP_CREATE
            return None
        case _:
            return op if _passes(filters, after, "after") else None


def _passes(filters: Sequence[CompiledFilter], image: Image | None, side: str) -> bool:
    if image is None:
        raise InvalidEvent(f"the event has no {side} image, which the row filter needs")
    return all(
        row_filter.matches({name: _decode_value(image[name]) for name in row_filter.columns}) for row_filter in filters
    )
