"""A table version as a tenant receives it: which columns, masked or not, under which names.

The router projects rows by it and announces its schema; ``headwater schema plan`` computes a tenant's schema by it.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from libs.formats.avro_names import adjust_field_name
from libs.types.patterns import any_column, any_table, matches_column, matches_table
from libs.types.table import Column, FormerName, TableId, TableSchema
from libs.types.tenant import ColumnMask, NameAdjustment, RowFilter, SourceSelection, UnknownColumns
from libs.types.value import LogicalKind, LogicalType

_UNTOLD: Final[Mapping[str, Any]] = {"is_optional": True, "default_expression": None}
"""Of a column that is added: rows of before have nothing in it that is known."""


@dataclass(frozen=True, slots=True)
class TenantView:
    """A selection's part of a table version."""

    schema: TableSchema
    """The table as the tenant receives it, its columns by the names that the tenant reads."""
    excluded: frozenset[str]
    """By the source's names, as all that follows."""
    unknown: tuple[str, ...]
    """Of these, columns that came later and that the document does not name."""
    masks: Mapping[str, ColumnMask]
    names: Mapping[str, str]
    """Of the columns that stay: from the source's to the tenant's."""
    mistakes: tuple[str, ...]
    """Why the selection cannot be applied to this version; the rest means nothing then."""


def is_selected(selection: SourceSelection, table_id: TableId) -> bool:
    """Whether the tenant receives the table at all."""
    name = str(table_id)
    return any_table(selection.include_tables, name) and not any_table(selection.exclude_tables, name)


@dataclass(frozen=True, slots=True)
class WithheldBy:
    """The list of a selection that keeps a column back."""

    name: str
    """``exclude_columns``; ``include_columns``: none of it matches; ``unknown_columns``: a late column that nothing names."""
    index: int | None
    """Which of its patterns; None except of ``exclude_columns``."""


def withheld_by(selection: SourceSelection, table_id: TableId, column: str) -> WithheldBy | None:
    """The rule that keeps a column from the tenant; None: it is delivered. An exclusion is named before a missing inclusion."""
    qualified = f"{table_id}.{column}"
    for index, pattern in enumerate(selection.exclude_columns):
        if matches_column(pattern, qualified):
            return WithheldBy("exclude_columns", index)
    return None if any_column(selection.include_columns, qualified) else WithheldBy("include_columns", None)


def hidden_by_former_name(selection: SourceSelection, table: TableSchema) -> tuple[TableId, str] | None:
    """The former name of a table under which ``exclude_tables`` hides it, and the pattern; None: none does."""
    for former in _ids(selection, table)[1:]:
        for pattern in selection.exclude_tables:
            if matches_table(pattern, str(former)):
                return former, pattern
    return None


def filters_of(selection: SourceSelection, table: TableSchema) -> tuple[tuple[int, RowFilter], ...]:
    """The row filters of a table, with their places: those of its former names too."""
    names = [str(table_id) for table_id in _ids(selection, table)]
    return tuple(
        (index, each)
        for index, each in enumerate(selection.row_filters)
        if any(matches_table(each.tables, name) for name in names)
    )


def column_withheld_by(selection: SourceSelection, table: TableSchema, column: Column) -> WithheldBy | None:
    """As ``withheld_by``, of a column under each name that it had. ``include_columns`` goes by the name that it has: a list
    of delivered columns means the present names."""
    for number, (table_id, name) in enumerate(_names(selection, table, column)):
        by = withheld_by(selection, table_id, name)
        if by is not None and (by.name == "exclude_columns" or number == 0):
            return by
    return WithheldBy("unknown_columns", None) if _is_unknown(selection, table, column) else None


_ANY_COLUMN: Final = "headwater-any-column"
"""A pattern that is for a column of this name is for any, and names none."""


def _is_unknown(selection: SourceSelection, table: TableSchema, column: Column) -> bool:
    """Whether the column came later than its table, and the document, which refuses such columns, does not name it."""
    if selection.unknown_columns is UnknownColumns.DELIVER or not column.is_late:
        return False
    naming = (*selection.include_columns, *(each.columns for each in selection.rename_columns))
    any_name = f"{table.table_id}.{_ANY_COLUMN}"
    named = any(
        matches_column(pattern, f"{table.table_id}.{column.name}") and not matches_column(pattern, any_name)
        for pattern in naming
    )
    return not named and _mask_of(table, column, selection) is None


def _names(selection: SourceSelection, table: TableSchema, column: Column) -> tuple[tuple[TableId, str], ...]:
    """Of a column and its table, the present ones first; those it had, unless a person has said that they count no more."""
    ids = _ids(selection, table)
    if any_column(selection.show_renamed, f"{table.table_id}.{column.name}"):
        return ((table.table_id, column.name),)
    return tuple((table_id, name) for table_id in ids for name in column.all_names)


def _ids(selection: SourceSelection, table: TableSchema) -> tuple[TableId, ...]:
    if any_table(selection.show_renamed, str(table.table_id)):
        return (table.table_id,)
    return table.all_ids


def tenant_view(
    table: TableSchema, selection: SourceSelection, field_names: NameAdjustment = NameAdjustment.NONE
) -> TenantView:
    """The view of ``table`` that ``selection`` describes, its columns named as ``field_names`` says."""
    withheld = {column.name: column_withheld_by(selection, table, column) for column in table.columns}
    excluded = frozenset(name for name, by in withheld.items() if by is not None)
    unknown = tuple(name for name, by in withheld.items() if by is not None and by.name == "unknown_columns")
    masks = {
        column.name: mask
        for column in table.columns
        if column.name not in excluded and (mask := _mask_of(table, column, selection)) is not None
    }
    names = {
        column.name: adjust_field_name(_own_name(table, column.name, selection), field_names)
        for column in table.columns
        if column.name not in excluded
    }
    mistakes = (
        *_hidden_mistakes(table, selection),
        *_key_mistakes(table, withheld, masks),
        *_text_mistakes(table, masks),
        *_collisions(names),
    )
    if mistakes:
        return TenantView(table, excluded, unknown, masks, names, mistakes)
    columns = tuple(
        msgspec.structs.replace(
            masked_as(column, masks[column.name]) if column.name in masks else column,
            name=names[column.name],
            former_names=_former_names(table, column, selection, field_names),
            earlier_names=(),
            is_late=False,
            number=0,
        )
        for column in table.columns
        if column.name not in excluded
    )
    schema = msgspec.structs.replace(
        table,
        columns=columns,
        key=tuple(names[name] for name in table.key),
        ddl="" if excluded or masks or selection.rename_columns else table.ddl,
        indexes=(),
        object_ids=(),
        former_ids=(),
    )
    return TenantView(schema, excluded, unknown, masks, names, ())


def beside_hidden(table: TableSchema, view: TenantView) -> tuple[str, ...]:
    """Columns that the tenant gets as they are, of a table that has hidden ones, and that may reveal these: generated ones
    may
    be computed of them, a JSON document may hold a copy."""
    if not view.excluded and not view.masks:
        return ()
    return tuple(
        column.name
        for column in table.columns
        if (column.is_generated or column.logical_type.kind is LogicalKind.JSON) and is_plain(view, column.name)
    )


def is_plain(view: TenantView, column: str) -> bool:
    """Whether a column of the source is delivered with its values."""
    return column not in view.excluded and column not in view.masks


def _hidden_mistakes(table: TableSchema, selection: SourceSelection) -> Iterator[str]:
    if (hidden := hidden_by_former_name(selection, table)) is not None:
        yield (
            f"exclude_tables: {table.table_id} was {hidden[0]}, which {hidden[1]!r} excludes; exclude it by its name now, or "
            "have it delivered by naming it in show_renamed"
        )


def _mask_of(table: TableSchema, column: Column, selection: SourceSelection) -> ColumnMask | None:
    """The first mask that names the column, by the name that it has or else by one that it had."""
    for table_id, name in _names(selection, table, column):
        if (mask := _mask_called(table_id, name, selection)) is not None:
            return mask
    return None


def _mask_called(table_id: TableId, name: str, selection: SourceSelection) -> ColumnMask | None:
    return next((mask for mask in selection.masks if matches_column(mask.columns, f"{table_id}.{name}")), None)


def _own_name(table: TableSchema, column: str, selection: SourceSelection) -> str:
    """The tenant's name of the column: by the first rename that matches, else the source's."""
    qualified = f"{table.table_id}.{column}"
    return next((rename.to for rename in selection.rename_columns if matches_column(rename.columns, qualified)), column)


def _former_names(
    table: TableSchema, column: Column, selection: SourceSelection, field_names: NameAdjustment
) -> tuple[FormerName, ...]:
    """None where the tenant received the column in another way under one of them: its values are others then; nor where it was
    called the same all along."""
    mask = _mask_of(table, column, selection)
    for former in column.former_names:
        is_withheld = withheld_by(selection, table.table_id, former.name) is not None
        was_masked = _mask_called(table.table_id, former.name, selection)
        if is_withheld or was_masked != mask:
            return ()

    def seen(name: str) -> str:
        return adjust_field_name(_own_name(table, name, selection), field_names)

    called = [msgspec.structs.replace(former, name=seen(former.name)) for former in column.former_names]
    return () if all(former.name == seen(column.name) for former in called) else tuple(called)


def _key_mistakes(
    table: TableSchema, withheld: Mapping[str, WithheldBy | None], masks: Mapping[str, ColumnMask]
) -> Iterator[str]:
    for name in table.key:
        by = withheld[name]
        if by is not None and by.name == "include_columns":
            yield f"include_columns: {name!r} is part of the key; include it, and mask it by a hash where it must not show"
        elif by is not None and by.name == "unknown_columns":
            yield f"unknown_columns: {name!r} is part of the key, and late; name it in include_columns, or mask it by a hash"
        elif by is not None:
            yield f"exclude_columns: {name!r} is part of the key; mask it by a hash instead"
        elif name in masks and masks[name].constant is not None:
            yield f"masks: a constant in key column {name!r} would make all rows one; mask it by a hash"
        elif name in masks and masks[name].set_null:
            yield f"masks: set_null in key column {name!r} would make all rows one; mask it by a hash"
        elif name in masks and (masks[name].truncate_chars is not None or masks[name].keep_last is not None):
            yield f"masks: key column {name!r} cut short would make several rows one; mask it by a hash"


def _text_mistakes(table: TableSchema, masks: Mapping[str, ColumnMask]) -> Iterator[str]:
    for name, mask in masks.items():
        column = table.column(name)
        if column.logical_type.kind is LogicalKind.STRING:
            continue
        if mask.truncate_chars is not None or mask.keep_last is not None:
            yield f"masks: {name!r} is {column.source_type}, and only a text can be cut short"
        elif mask.format_preserving is not None:
            yield f"masks: {name!r} is {column.source_type}, and only a text has a shape to keep; take hmac"


def _collisions(names: Mapping[str, str]) -> Sequence[str]:
    """Warehouses ignore case."""
    first_of: dict[str, str] = {}
    found = []
    for name, seen in names.items():
        first = first_of.setdefault(seen.lower(), name)
        if first != name:
            found.append(
                f"columns {first!r} and {name!r} both become {seen!r}; exclude one, or rename it otherwise (rename_columns, "
                "format.field_names)"
            )
    return found


def masked_as(column: Column, mask: ColumnMask) -> Column:
    """A masked column of any type holds text: sinks make it a string. One that is nulled keeps its type, but for the
    members of an ENUM or a SET. Neither has a default or a comment, which could reveal values."""
    if mask.set_null:
        has_members = column.logical_type.kind in (LogicalKind.ENUM, LogicalKind.ENUM_SET)
        kept = msgspec.structs.replace(column, is_optional=True, default_expression=None, comment=None)
        kept = _without_members(kept) if has_members else kept
        if column.born is None:
            return kept
        shown = {"source_type": kept.source_type, "logical_type": kept.logical_type, **_UNTOLD}
        return msgspec.structs.replace(kept, born=msgspec.structs.replace(column.born, **shown))
    if mask.truncate_chars is not None:
        length = mask.truncate_chars
    elif mask.hash is not None:
        length = 2 * hashlib.new(mask.hash.algorithm).digest_size
    elif mask.hmac is not None:
        length = 2 * hashlib.new(mask.hmac.algorithm).digest_size
    else:
        length = len(mask.constant or "")
    is_any_length = mask.keep_last is not None or mask.format_preserving is not None or mask.encrypt is not None
    source_type, logical_type = (
        "longtext" if is_any_length else f"varchar({length})",
        LogicalType(kind=LogicalKind.STRING),
    )
    born = None
    if column.born is not None:
        # The masked default is not known here, except of a constant.
        given = _UNTOLD if mask.constant is None else {"default_expression": mask.constant}
        masked = msgspec.structs.replace(column.born, source_type=source_type, logical_type=logical_type)
        born = msgspec.structs.replace(masked, **given)
    return Column(
        name=column.name,
        source_type=source_type,
        logical_type=logical_type,
        is_optional=column.is_optional,
        charset="utf8mb4",
        born=born,
    )


def _without_members(column: Column) -> Column:
    text = LogicalType(kind=LogicalKind.STRING)
    return msgspec.structs.replace(column, source_type="longtext", logical_type=text)
