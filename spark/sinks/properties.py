"""A table's notes about itself, for the warehouses that keep texts beside a table (Iceberg's and Delta's properties).

How a column that was added is filled: ``headwater.fill.<column>`` has the constant, and the schema version that brought the
column, for events from before it that come late; ``headwater.fill-pending.<column>`` says that the rows there lack
it yet, so that a fill that was cut off is begun again.

The effect of the source's changes: ``headwater.schema-version`` is the version that it is ready for,
``headwater.former-names.<column>`` has the names of a column that the source renamed, for events from before that come late,
and ``headwater.variant-of.<column>`` the column that it stands beside with values of another type.
``headwater.after-version.<column>`` is the source's last version without a column that came later, and ``headwater.columns``
has the names of all, so that one which somebody renamed in the warehouse is missed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from libs.types.table import FormerName
from libs.types.tenant import Deletes, SinkMode
from libs.types.warehouse import IS_CURRENT_COLUMN, SOURCE_PROPERTY, TABLE_PROPERTY, own_columns
from libs.warehouse.schema_changes import GONE, StoredColumn
from spark.sinks.evolution import Evolution
from spark.sinks.port import SinkColumn, SinkTable, TableRefused
from spark.sinks.settled import Settled
from spark.transforms.sql_text import quoted
from spark.transforms.warehouse_columns import Fill, TableColumn

_MODE: Final = "headwater.mode"
_DELETES: Final = "headwater.deletes"
_KEY: Final = "headwater.key"
_FILL: Final = "headwater.fill."
_FILL_PENDING: Final = "headwater.fill-pending."
_VERSION: Final = "headwater.schema-version"
_FORMER_NAMES: Final = "headwater.former-names."
_VARIANT_OF: Final = "headwater.variant-of."
_AFTER: Final = "headwater.after-version."

_COLUMNS: Final = "headwater.columns"

_decode_columns = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_names = msgspec.json.Decoder(tuple[FormerName, ...]).decode


def first_properties(table: SinkTable) -> dict[str, str]:
    """Of a table that is created now. Its first batch may begin before one of its columns was there."""
    late = [column for column in table.columns if column.fill and column.fill.since_version > table.oldest_version]
    return {
        "headwater.topic": table.topic,
        SOURCE_PROPERTY: table.source,
        TABLE_PROPERTY: table.table,
        _MODE: table.mode.value,
        _DELETES: table.deletes.value,
        _KEY: ",".join(table.key),
        _VERSION: str(table.schema.version),
        _COLUMNS: _encoded_columns(column.name for column in table.columns),
        **{
            _FORMER_NAMES + column.name: _encoded_names(column.former_names)
            for column in table.schema.columns
            if column.former_names
        },
        **{
            _AFTER + column.name: str(column.born.after_version)
            for column in table.schema.columns
            if column.born is not None
        },
        **(_fills(late) if table.mode is not SinkMode.APPEND else {}),
    }


def properties_before(properties: Mapping[str, str], changes: Evolution, table: SinkTable) -> dict[str, str]:
    """The notes before columns change: their former names, the fill of added ones, and that it has
    still to be done."""
    noted = {}
    for old, new in changes.renamed.items():
        for kind in (_FILL, _FILL_PENDING):
            if kind + old in properties:
                noted[kind + new] = properties[kind + old]
    for name, column in changes.columns.items():
        facts = {
            _FORMER_NAMES + name: _encoded_names(column.former_names) if column.former_names else "",
            _VARIANT_OF + name: column.variant_of or "",
            _AFTER + name: str(column.after_version or ""),
        }
        is_renamed = name in changes.renamed.values()
        noted |= {w: text for w, text in facts.items() if text and (is_renamed or properties.get(w) != text)}
    if table.mode is SinkMode.APPEND:
        return noted
    fills = _fills(changes.added)
    return {**noted, **fills, **{_FILL_PENDING + name.removeprefix(_FILL): "true" for name in fills}}


def properties_after(
    properties: Mapping[str, str], changes: Evolution, table: SinkTable
) -> tuple[dict[str, str], list[str]]:
    """The notes after columns have changed, and the names of obsolete properties."""
    columns = {_COLUMNS: _encoded_columns(changes.columns)}
    if changes.version is None:
        return columns, []
    there = properties_before(properties, changes, table)
    gone = [
        kind + old
        for old in changes.renamed
        for kind in (_FILL, _FILL_PENDING, _FORMER_NAMES, _VARIANT_OF, _AFTER)
        if kind + old in properties and kind + old not in there
    ]
    return {**columns, _VERSION: str(changes.version), _KEY: ",".join(table.key)}, gone


def check_kept(properties: Mapping[str, str], changes: Evolution, table: SinkTable) -> None:
    """Raises TableRefused where a column is to be added that the table had: somebody dropped or renamed it in the warehouse,
    and rows of before would be NULL in the new one."""
    had = set(_decode_columns(properties.get(_COLUMNS, "[]")))
    for column in changes.added:
        is_another = column.name in changes.renamed or any(
            name.startswith(column.name + GONE) for name in changes.columns
        )
        if column.name in had and not is_another:
            raise TableRefused(
                f"{table.name}: somebody dropped or renamed column {column.name}; put it back, or write the tenant's tables "
                "again (docs/sinks/repair.md, 'Write tables again')"
            )


def version_of(properties: Mapping[str, str]) -> int | None:
    """The schema version that the table is ready for; None: not noted."""
    text = properties.get(_VERSION)
    return None if text is None else int(text)


def column_of(properties: Mapping[str, str], name: str, own_type: str, sql_type: str) -> TableColumn:
    """A column of the table, with all that is noted of it."""
    former_names = properties.get(_FORMER_NAMES + name)
    stored = StoredColumn(
        own_type,
        () if former_names is None else _decode_names(former_names),
        properties.get(_VARIANT_OF + name),
        int(properties.get(_AFTER + name) or 0),
    )
    return TableColumn(sql_type, fill_of(properties, name), stored)


def comment_of(table: SinkTable) -> str:
    """A description for a person who finds the table in the warehouse."""
    return f"{table.table} of source {table.source}, {table.mode.value}, written by Headwater"


def settled_of(properties: Mapping[str, str]) -> Settled | None:
    """The choices from the table's creation; None: Headwater did not create it."""
    mode = properties.get(_MODE)
    if mode is None:
        return None
    return Settled(mode, properties.get(_DELETES) or Deletes.HARD.value, properties.get(_KEY, ""))


def own_columns_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Headwater's own columns of a table that it created."""
    return own_columns(SinkMode(properties[_MODE]), Deletes(properties.get(_DELETES) or Deletes.HARD.value))


def fill_of(properties: Mapping[str, str], column: str) -> Fill | None:
    """A column's fill."""
    text = properties.get(_FILL + column)
    if text is None:
        return None
    version, _, expression = text.partition(":")
    return Fill(int(version), expression)


def pending_of(properties: Mapping[str, str]) -> list[str]:
    """The names of the properties of pending fills."""
    return [name for name in properties if name.startswith(_FILL_PENDING)]


def fill_statement(target: str, properties: Mapping[str, str], columns: Sequence[str]) -> str | None:
    """Give the rows from before an ADD COLUMN the value that the source gave them without an event; None: nothing to do.

    Run before any row of the new version is written, so NULL means "from before". ``columns``: those that the table has;
    ``target``: its quoted name.
    """
    fills = {
        name: fill
        for name in (pending.removeprefix(_FILL_PENDING) for pending in pending_of(properties))
        if name in columns and (fill := fill_of(properties, name)) is not None
    }
    if not fills:
        return None
    assignments = ", ".join(
        f"{quoted(name)} = coalesce({quoted(name)}, {fill.expression})" for name, fill in fills.items()
    )
    is_lacking = " OR ".join(f"{quoted(name)} IS NULL" for name in fills)
    # A version that had ended did not have the column.
    of_rows = f" AND {IS_CURRENT_COLUMN}" if properties.get(_MODE) == SinkMode.HISTORY.value else ""
    return f"UPDATE {target} SET {assignments} WHERE ({is_lacking}){of_rows}"


def _encoded_columns(names: Iterable[str]) -> str:
    return msgspec.json.encode(tuple(names)).decode()


def _encoded_names(names: Sequence[FormerName]) -> str:
    return msgspec.json.encode(names).decode()


def _fills(columns: Sequence[SinkColumn]) -> dict[str, str]:
    return {
        _FILL + column.name: f"{column.fill.since_version}:{column.fill.expression}"
        for column in columns
        if column.fill is not None
    }
