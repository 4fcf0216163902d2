"""A statement's event as a tenant may read it: Debezium's, without any hidden name or value.

Hidden columns are left out of ``tableChanges``; of masked ones the name stays, with the type that the tenant receives. The
statement's own text goes to those alone from whom nothing is hidden that it could name.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from libs.errors import InvalidEvent
from libs.mysql.schema_change_event import column_block
from libs.oracle.schema_change_event import column_block as oracle_column_block
from libs.tenants.view import masked_as, tenant_view, withheld_by
from libs.types.patterns import matches_column
from libs.types.table import Column, TableId, TableSchema
from libs.types.tenant import ColumnMask, SourceSelection
from libs.types.value import LogicalKind, LogicalType

_OF_SEVERAL: Final = re.compile(r"\s*(drop|rename)\b", re.IGNORECASE)
"""Statements that name several tables at once."""
_ORACLE: Final = "oracle"
_LONG_TEXTS: Final = frozenset({"longtext", "text"})
"""Types of a masked column, in MySQL's words (``masked_as``)."""


def project_statement(
    value: bytes, selection: SourceSelection, table_id: TableId | None, schema: TableSchema | None
) -> bytes:
    """The event's value for a tenant. ``table_id``: of the one table that it is about. ``schema``: that table's, after the
    statement; None: it is gone, or not known.

    Raises:
        InvalidEvent: it is no event of Debezium's.
    """
    if hides_nothing(selection):
        return value
    try:
        event = msgspec.json.decode(value, type=dict[str, Any])
        may_read = table_id is not None and _may_read(event, selection, table_id)
        if event.get("ddl") is not None and not may_read:
            event["ddl"] = None
        for change in event.get("tableChanges") or ():
            if change.get("table") is not None and table_id is not None:
                columns = change["table"]["columns"]
                change["table"]["columns"] = _columns(
                    columns, selection, table_id, schema, event["source"].get("connector")
                )
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise InvalidEvent("a statement's event is not Debezium's JSON") from error
    return msgspec.json.encode(event)


def hides_nothing(selection: SourceSelection) -> bool:
    """Whether a tenant gets all tables and columns of the source, and no value is masked."""
    whole = SourceSelection(name=selection.name)
    lists = ("include_tables", "exclude_tables", "include_columns", "exclude_columns", "unknown_columns", "masks")
    return all(getattr(selection, name) == getattr(whole, name) for name in lists)


def _may_read(event: Mapping[str, Any], selection: SourceSelection, table_id: TableId) -> bool:
    """Whether the text can name nothing that is hidden: of one table, of a tenant that leaves out whole tables alone."""
    whole = SourceSelection(name=selection.name)
    lists = ("exclude_tables", "include_columns", "exclude_columns", "unknown_columns", "masks")
    if any(getattr(selection, name) != getattr(whole, name) for name in lists):
        return False
    return _OF_SEVERAL.match(event["ddl"]) is None and len(event.get("tableChanges") or ()) <= 1


def _columns(
    columns: list[dict[str, Any]],
    selection: SourceSelection,
    table_id: TableId,
    schema: TableSchema | None,
    connector: str | None,
) -> list[dict[str, Any]]:
    hidden = _hidden(columns, selection, table_id, schema)
    seen: list[dict[str, Any]] = []
    for block in columns:
        name, position = block["name"], len(seen) + 1
        if name not in hidden:
            seen.append({**block, "position": position})
        elif (mask := hidden[name]) is not None:
            masked = masked_as(_column(name, schema), mask)
            seen.append({**block, **_block(masked, position, connector), "name": name})
    return seen


def _block(masked: Column, position: int, connector: str | None) -> dict[str, Any]:
    """A masked column in its source's words."""
    if connector != _ORACLE:
        return column_block(masked, position, with_comments=False)
    is_long = masked.source_type in _LONG_TEXTS
    return oracle_column_block(msgspec.structs.replace(masked, source_type="CLOB") if is_long else masked, position)


def _hidden(
    columns: list[dict[str, Any]], selection: SourceSelection, table_id: TableId, schema: TableSchema | None
) -> dict[str, ColumnMask | None]:
    """The columns of which something is hidden; None: all. By their former names too, where the table is known."""
    hidden: dict[str, ColumnMask | None] = {}
    for block in columns:
        qualified = f"{table_id}.{block['name']}"
        for mask in reversed(selection.masks):
            if matches_column(mask.columns, qualified):
                hidden[block["name"]] = mask
        if withheld_by(selection, table_id, block["name"]) is not None:
            hidden[block["name"]] = None
    if schema is None:
        return hidden
    view = tenant_view(schema, selection)
    return hidden | dict(view.masks) | dict.fromkeys(view.excluded)


def _column(name: str, schema: TableSchema | None) -> Column:
    found = None if schema is None else next((each for each in schema.columns if each.name == name), None)
    return found or Column(name=name, source_type="text", logical_type=LogicalType(kind=LogicalKind.STRING))
