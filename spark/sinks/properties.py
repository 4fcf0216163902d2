"""What a table notes about itself, for the warehouses that keep texts beside a table (Iceberg's and Delta's properties).

How a column that was added is filled: ``headwater.fill.<column>`` has the constant, and the schema version that brought the
column, for events from before it that come late; ``headwater.fill-pending.<column>`` says that the rows there are have not
got it yet, so that a fill that was cut off is begun again.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from libs.types.tenant import Deletes, SinkMode
from libs.types.warehouse import IS_CURRENT_COLUMN, own_columns
from spark.sinks.port import Fill, SinkColumn, SinkTable
from spark.sinks.settled import Settled
from spark.transforms.sql_text import quoted

_MODE: Final = "headwater.mode"
_DELETES: Final = "headwater.deletes"
_KEY: Final = "headwater.key"
_FILL: Final = "headwater.fill."
_FILL_PENDING: Final = "headwater.fill-pending."


def first_properties(table: SinkTable) -> dict[str, str]:
    """Of a table that is created now. Its first batch may begin before one of its columns was there."""
    late = [column for column in table.columns if column.fill and column.fill.since_version > table.oldest_version]
    return {
        "headwater.topic": table.topic,
        "headwater.source": table.source,
        "headwater.table": table.table,
        _MODE: table.mode.value,
        _DELETES: table.deletes.value,
        _KEY: ",".join(table.key),
        **(_fills(late) if table.mode is not SinkMode.APPEND else {}),
    }


def added_properties(table: SinkTable, added: Sequence[SinkColumn]) -> dict[str, str]:
    """Of columns that are added now: what fills them, and that it has still to be done."""
    if table.mode is SinkMode.APPEND:
        return {}
    fills = _fills(added)
    return {**fills, **{_FILL_PENDING + name.removeprefix(_FILL): "true" for name in fills}}


def comment_of(table: SinkTable) -> str:
    """What a person reads who finds the table in the warehouse."""
    return f"{table.table} of source {table.source}, {table.mode.value}, written by Headwater"


def settled_of(properties: Mapping[str, str]) -> Settled | None:
    """What was settled when the table was created; None: Headwater did not create it."""
    mode = properties.get(_MODE)
    if mode is None:
        return None
    return Settled(mode, properties.get(_DELETES) or Deletes.HARD.value, properties.get(_KEY, ""))


def own_columns_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Headwater's own columns of a table that it created."""
    return own_columns(SinkMode(properties[_MODE]), Deletes(properties.get(_DELETES) or Deletes.HARD.value))


def fill_of(properties: Mapping[str, str], column: str) -> Fill | None:
    """What fills a column."""
    text = properties.get(_FILL + column)
    if text is None:
        return None
    version, _, expression = text.partition(":")
    return Fill(int(version), expression)


def pending_of(properties: Mapping[str, str]) -> list[str]:
    """The names of the properties that say what is still to be filled."""
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


def _fills(columns: Sequence[SinkColumn]) -> dict[str, str]:
    return {
        _FILL + column.name: f"{column.fill.since_version}:{column.fill.expression}"
        for column in columns
        if column.fill is not None
    }
