"""What a tenant should have of a source's table, told once more and by other means than the router's.

This is on purpose not the router's projection: the row filter is evaluated by MySQL itself, masks by hashlib on
MySQL's own text. A fault in either implementation shows as differences in ``headwater check``.
"""

import base64
import datetime
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from libs.events.avro_names import adjust_field_name
from libs.local.check.values import SHORT_FLOAT, from_mysql_text, microseconds_of_time
from libs.types.table import TableId
from libs.types.tenant import ColumnMask, NameAdjustment, SourceSelection

HASHED_BY_SPELLING: Final = frozenset({"float", SHORT_FLOAT, "double", "json", "timestamp", "bit"})
"""Types whose text in an event is one of several right ones: digits of a float, spaces in a document."""
ANY_HASH: Final = "(a hash)"


@dataclass(frozen=True, slots=True)
class ExpectedColumn:
    """One column that the tenant should have."""

    name: str
    data_type: str
    """MySQL's DATA_TYPE: ``varchar``, ``bigint``; or ``values.SHORT_FLOAT``."""
    mask: ColumnMask | None
    seen_as: str
    """The name that it should have at the tenant."""
    is_optional: bool = True
    """May be NULL at the source."""


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


def expected_tables(
    selection: SourceSelection, tables: Sequence[SourceTable], field_names: NameAdjustment = NameAdjustment.NONE
) -> tuple[ExpectedTable, ...]:
    """Those of the source's tables that ``selection`` gives to its tenant, as the tenant should see them."""
    return tuple(
        _expected(selection, table, field_names) for table in tables if _is_selected(selection, str(table.table_id))
    )


def masked_value(mask: ColumnMask, data_type: str, text: str | bytes | None) -> str | None:
    """What should stand for a value that MySQL prints as ``text`` (None: NULL).

    A constant stands for NULL too, a hash does not. Where the hashed text depends on how a reader spells the value
    (``HASHED_BY_SPELLING``), only ``ANY_HASH`` can be expected.
    """
    if mask.truncate_chars is not None:
        return text[: mask.truncate_chars] if isinstance(text, str) else None
    if mask.hash is None:
        return mask.constant
    if text is None:
        return None
    if data_type in HASHED_BY_SPELLING:
        return ANY_HASH
    digest = hashlib.new(mask.hash.algorithm, mask.hash.salt.encode())
    digest.update(_event_text(data_type, text))
    return digest.hexdigest()


def canonical_column(column: ExpectedColumn, texts: Sequence[str | bytes | None]) -> Sequence[object]:
    """What should stand in a column, from what MySQL prints (bytes of binary types)."""
    mask = column.mask
    if mask is not None:
        return [masked_value(mask, column.data_type, text) for text in texts]
    convert = from_mysql_text(column.data_type, is_optional=column.is_optional)
    if convert is None:
        return texts
    return [None if text is None else convert(text) for text in texts]


def delivered_mask(mask: ColumnMask, data_type: str, value: str | None) -> str | None:
    """A masked value of the warehouse, in the form of ``masked_value``."""
    if mask.hash is None or value is None or data_type not in HASHED_BY_SPELLING:
        return value
    is_hash = re.fullmatch(f"[0-9a-f]{{{2 * hashlib.new(mask.hash.algorithm).digest_size}}}", value)
    return ANY_HASH if is_hash else value


def _event_text(data_type: str, text: str | bytes) -> bytes:
    """The text of a value in an event, as Debezium's JSON has it (debezium.io, MySQL connector, "Data type mappings")."""
    if isinstance(text, bytes):
        return base64.b64encode(text)
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
    return any(re.fullmatch(pattern, name) for pattern in selection.include_tables) and not any(
        re.fullmatch(pattern, name) for pattern in selection.exclude_tables
    )


def _expected(selection: SourceSelection, table: SourceTable, field_names: NameAdjustment) -> ExpectedTable:
    name = str(table.table_id)
    conditions = [
        f"({row_filter.where})" for row_filter in selection.row_filters if re.fullmatch(row_filter.tables, name)
    ]
    return ExpectedTable(
        table_id=table.table_id,
        key=table.key,
        columns=tuple(
            ExpectedColumn(
                column,
                data_type,
                _mask_of(selection, f"{name}.{column}"),
                adjust_field_name(column, field_names),
                column not in table.required,
            )
            for column, data_type in table.columns
            if not _is_excluded(selection, f"{name}.{column}")
        ),
        where=" AND ".join(conditions) or None,
        withheld=tuple(column for column, _ in table.columns if _is_excluded(selection, f"{name}.{column}")),
    )


def _is_excluded(selection: SourceSelection, column: str) -> bool:
    return any(re.fullmatch(pattern, column) for pattern in selection.exclude_columns)


def _mask_of(selection: SourceSelection, column: str) -> ColumnMask | None:
    for mask in selection.masks:
        if re.fullmatch(mask.columns, column):
            return mask
    return None
