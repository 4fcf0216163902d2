"""A tenant's expected rows of a source's table, computed again and by other means than the router's.

This is on purpose not the router's projection: the row filter is evaluated by MySQL itself, masks by hashlib on
MySQL's own text; a mask that can be undone (encryption, values of the same shape) is undone and compared in the clear. A
fault in either implementation shows as differences in ``headwater check``.
"""

import base64
import datetime
import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from libs.check import oracle_values
from libs.check.values import SHORT_FLOAT, from_source, microseconds_of_time
from libs.formats.avro_names import adjust_field_name
from libs.tenants.mask_keys import KeyUnusable
from libs.tenants.masks import NotDecryptable, decryption, format_restoring, is_of_format
from libs.types.patterns import any_column, any_table, matches_column, matches_table
from libs.types.table import TableId
from libs.types.tenant import ColumnMask, KeyFrom, NameAdjustment, SourceSelection

HASHED_BY_SPELLING: Final = frozenset({"float", SHORT_FLOAT, "double", "json", "timestamp", "bit"})
"""Types whose text in an event is one of several right ones: digits of a float, spaces in a document."""
ANY_HASH: Final = "(a hash)"
NOT_DECRYPTABLE: Final = "(not decryptable by the tenant's key)"
_decryption: Final = lru_cache(decryption)
_restoring: Final = lru_cache(format_restoring)
KeyOf = Callable[[KeyFrom], bytes]
"""A tenant's key. Raises KeyUnusable."""


@dataclass(frozen=True, slots=True)
class ExpectedColumn:
    """One column that the tenant should have."""

    name: str
    data_type: str
    """MySQL's DATA_TYPE: ``varchar``, ``bigint``; or ``values.SHORT_FLOAT``. Of Oracle the whole type: ``NUMBER(9,2)``."""
    mask: ColumnMask | None
    seen_as: str
    """The name that it should have at the tenant."""
    is_optional: bool = True
    """May be NULL at the source."""
    key: bytes = b""
    """Of its mask, where that has one."""


@dataclass(frozen=True, slots=True)
class ExpectedTable:
    """The rows and columns of one table that the tenant should have."""

    table_id: TableId
    key: tuple[str, ...]
    columns: tuple[ExpectedColumn, ...]
    where: str | None
    """Condition for MySQL; None: every row."""
    withheld: tuple[str, ...] = ()
    """Columns of the source that must not be at the tenant."""
    source_columns: tuple[tuple[str, str], ...] = ()
    """All columns of the source, as ``SourceTable`` has them: ``where`` may name any."""

    @property
    def is_key_masked(self) -> bool:
        """Whether the tenant's key is another than the source's."""
        return any(column.mask is not None for column in self.columns if column.name in self.key)


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table as the source has it: columns as (name, type as in ``ExpectedColumn``), and its key."""

    table_id: TableId
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    required: frozenset[str] = frozenset()
    """Columns that may not be NULL."""
    collations: tuple[tuple[str, str], ...] = ()
    """Of the columns of text."""


def no_key(_key_from: KeyFrom) -> bytes:
    """For selections without keyed masks."""
    raise KeyUnusable("there are no keys here")


def expected_tables(
    selection: SourceSelection,
    tables: Sequence[SourceTable],
    field_names: NameAdjustment = NameAdjustment.NONE,
    key_of: KeyOf = no_key,
) -> tuple[ExpectedTable, ...]:
    """Those of the source's tables that ``selection`` gives to its tenant, as the tenant should see them.

    Raises:
        KeyUnusable: a mask's key is not there; without it nothing can be said of the column.
    """
    return tuple(_expected(selection, table, field_names, key_of) for table in selected_tables(selection, tables))


def as_stored(table: ExpectedTable, names: Collection[str]) -> ExpectedTable:
    """``table`` by the names that its columns have in the warehouse, of ``names``: a column whose name changed its case at the
    source keeps the one that it had, as MySQL and the sinks compare them."""
    stored = {name.lower(): name for name in names}
    columns = tuple(
        replace(column, seen_as=column.seen_as if column.seen_as in names else stored.get(lower, column.seen_as))
        for column in table.columns
        for lower in [column.seen_as.lower()]
    )
    return replace(table, columns=columns)


def selected_tables(selection: SourceSelection, tables: Sequence[SourceTable]) -> list[SourceTable]:
    """Those of ``tables`` that ``selection`` gives to its tenant."""
    return [table for table in tables if _is_selected(selection, str(table.table_id))]


def masked_value(mask: ColumnMask, data_type: str, text: str | bytes | None, key: bytes = b"") -> str | None:
    """The expected form of a value that MySQL prints as ``text`` (None: NULL), in the form of ``delivered_mask``.

    A constant stands for NULL too, nothing else does. Where the hashed text depends on how a reader spells the value
    (``HASHED_BY_SPELLING``), only ``ANY_HASH`` can be expected.
    """
    if mask.truncate_chars is not None:
        return text[: mask.truncate_chars] if isinstance(text, str) else None
    if mask.keep_last is not None:
        return _last(text, mask.keep_last) if isinstance(text, str) else None
    if mask.constant is not None or mask.set_null:
        return mask.constant
    if text is None:
        return None
    if mask.format_preserving is not None:
        readable = text if isinstance(text, str) else text.decode()
        return readable if is_of_format(mask.format_preserving.kind, readable) else ANY_HASH
    if _is_hashed_by_spelling(data_type):
        return ANY_HASH
    if mask.encrypt is not None:
        return _event_text(data_type, text).decode()
    if mask.hmac is not None:
        return hmac.new(key, _event_text(data_type, text), mask.hmac.algorithm).hexdigest()
    assert mask.hash is not None
    digest = hashlib.new(mask.hash.algorithm, mask.hash.salt.encode())
    digest.update(_event_text(data_type, text))
    return digest.hexdigest()


def canonical_column(column: ExpectedColumn, texts: Sequence[str | bytes | None]) -> Sequence[object]:
    """The expected value of a column, from MySQL's text (bytes of binary types)."""
    mask = column.mask
    if mask is not None:
        return [masked_value(mask, column.data_type, text, column.key) for text in texts]
    convert = from_source(column.data_type, is_optional=column.is_optional)
    if convert is None:
        return texts
    return [None if text is None else convert(text) for text in texts]


def delivered_mask(mask: ColumnMask, data_type: str, value: str | None, key: bytes = b"") -> str | None:
    """A masked value of the warehouse, in the form of ``masked_value``: undone where that can be."""
    if value is None:
        return None
    if mask.encrypt is not None:
        try:
            text = _decryption(key)(value).decode()
        except NotDecryptable:
            return NOT_DECRYPTABLE
        return ANY_HASH if _is_hashed_by_spelling(data_type) else text
    if mask.format_preserving is not None:
        restored = _restoring(key, mask.format_preserving.kind)(value)
        return _any_hash(value, "sha256") if restored is None else restored
    hashed = mask.hash or mask.hmac
    return value if hashed is None or not _is_hashed_by_spelling(data_type) else _any_hash(value, hashed.algorithm)


def _is_hashed_by_spelling(data_type: str) -> bool:
    if oracle_values.is_oracle_type(data_type):
        return oracle_values.is_hashed_by_spelling(data_type)
    return data_type in HASHED_BY_SPELLING


def _any_hash(value: str, algorithm: str) -> str:
    is_hash = re.fullmatch(f"[0-9a-f]{{{2 * hashlib.new(algorithm).digest_size}}}", value)
    return ANY_HASH if is_hash else value


def _last(text: str, chars: int) -> str:
    """A text that is not longer than its kept part would show whole."""
    hidden = len(text) if len(text) <= chars else len(text) - chars
    return "*" * hidden + text[hidden:]


def _event_text(data_type: str, text: str | bytes) -> bytes:
    """The text of a value in an event, as Debezium's JSON has it (debezium.io, MySQL connector, "Data type mappings")."""
    if isinstance(text, bytes):
        return base64.b64encode(text)
    if oracle_values.is_oracle_type(data_type):
        return oracle_values.event_text(data_type, text).encode()
    match data_type:
        case "bigint":
            number = int(text)
            return str(number - 2**64 if number >= 2**63 else number).encode()
        case "date":
            return str((datetime.date.fromisoformat(text) - datetime.date(1970, 1, 1)).days).encode()
        case "datetime":
            moment = datetime.datetime.fromisoformat(text) - datetime.datetime(1970, 1, 1)
            is_fine = len(text.partition(".")[2]) > 3
            unit = datetime.timedelta(microseconds=1 if is_fine else 1000)
            return str(moment // unit).encode()
        case "time":
            return str(microseconds_of_time(text)).encode()
        case _:
            return text.encode()


def _is_selected(selection: SourceSelection, name: str) -> bool:
    return any_table(selection.include_tables, name) and not any_table(selection.exclude_tables, name)


def _expected(
    selection: SourceSelection, table: SourceTable, field_names: NameAdjustment, key_of: KeyOf
) -> ExpectedTable:
    name = str(table.table_id)
    conditions = [
        f"({row_filter.where})" for row_filter in selection.row_filters if matches_table(row_filter.tables, name)
    ]
    return ExpectedTable(
        table_id=table.table_id,
        key=table.key,
        columns=tuple(
            ExpectedColumn(
                column,
                data_type,
                mask := _mask_of(selection, f"{name}.{column}"),
                adjust_field_name(_renamed(selection, f"{name}.{column}", column), field_names),
                column not in table.required,
                b"" if mask is None or mask.key_from is None else key_of(mask.key_from),
            )
            for column, data_type in table.columns
            if _is_delivered(selection, f"{name}.{column}")
        ),
        where=" AND ".join(conditions) or None,
        withheld=tuple(column for column, _ in table.columns if not _is_delivered(selection, f"{name}.{column}")),
        source_columns=table.columns,
    )


def _is_delivered(selection: SourceSelection, column: str) -> bool:
    return any_column(selection.include_columns, column) and not any_column(selection.exclude_columns, column)


def _renamed(selection: SourceSelection, column: str, name: str) -> str:
    for rename in selection.rename_columns:
        if matches_column(rename.columns, column):
            return rename.to
    return name


def _mask_of(selection: SourceSelection, column: str) -> ColumnMask | None:
    for mask in selection.masks:
        if matches_column(mask.columns, column):
            return mask
    return None
