"""The rows that a tenant's tables are to hold, by the events that it was sent: plain Python, and nothing of the sinks.

A value is compared as text. A warehouse's column is found by its name, or as the column of another type that stands beside
it, as docs/sinks/schema-changes.md says.
"""

import datetime
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER
from libs.types.table import Column, TableSchema
from libs.types.tenant import Images
from libs.types.value import UNAVAILABLE_VALUE
from libs.types.warehouse import (
    CLOSED_BY_COLUMN,
    DELETED_COLUMN,
    IS_CURRENT_COLUMN,
    OP_COLUMN,
    OPENED_BY_COLUMN,
    ORDER_COLUMN,
    OWN_COLUMN_PREFIX,
    VALID_FROM_COLUMN,
    VALID_TO_COLUMN,
)
from tests.contract.recorded_values import expected
from tests.fuzz.source.follower import Difference

_OWN: Final = frozenset({VALID_FROM_COLUMN, VALID_TO_COLUMN, IS_CURRENT_COLUMN})
Key = tuple[str, ...]
Cells = dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a row, as the tenant was sent it."""

    op: str
    order: str
    key: Key
    before: Cells | None
    after: Cells | None
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class Version:
    """A row from one change to another."""

    key: Key
    opened_by: str
    cells: Cells
    closed_by: str | None = None


def event_of(record: Any, schemas: Mapping[int, TableSchema]) -> Event | None:
    """Of a Kafka record with the router's headers; None: a tombstone."""
    if record.value is None:
        return None
    headers = {name: value.decode() for name, value in record.headers}
    schema = schemas[int(headers[SCHEMA_VERSION_HEADER])]
    told = json.loads(record.value)
    before, after = (None if row is None else cells_of(row, schema) for row in (told["before"], told["after"]))
    row = after or before or {}
    key = tuple(str(row.get(name)) for name in schema.key)
    return Event(told["op"], headers[ORDER_HEADER], key, before, after, schema)


def cells_of(row: Mapping[str, Any], schema: TableSchema) -> Cells:
    """A row of an event, as texts. A value that the log does not hold is left out."""
    return {
        column.name: text_of(expected(column, row[column.name]))
        for column in schema.columns
        if row[column.name] != UNAVAILABLE_VALUE
    }


def text_of(value: Any) -> str | None:
    """The same text for the same value, whichever program read it."""
    match value:
        case None:
            return None
        case bool():
            return str(int(value))
        case float():
            return _of_number(value)
        case Decimal():
            return f"{value.normalize():f}" if value else "0"
        case datetime.datetime():
            moment = value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
            return moment.isoformat()
        case datetime.date():
            return value.isoformat()
        case datetime.timedelta():
            return str(value // datetime.timedelta(microseconds=1))
        case datetime.time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case _:
            return str(value)


def _of_number(value: float) -> str:
    return repr(value + 0.0).removesuffix(".0") if value else "0"


# --- comparing ------------------------------------------------------------------------------------------------------------


def compare_log(stored: Sequence[Mapping[str, Any]], events: Sequence[Event], images: Images) -> None:
    """Each event once, with its values wherever they are. Raises Difference."""
    wanted = Counter(_logged(events, images))
    found = Counter((row[OP_COLUMN], row[ORDER_COLUMN], _values(_plain(row).values())) for row in stored)
    if wanted != found:
        raise Difference(
            f"log lacks {sorted((wanted - found).elements())}, has besides {sorted((found - wanted).elements())}"
        )


def _logged(events: Iterable[Event], images: Images) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for event in events:
        if event.op == "u" and images is Images.BEFORE_AND_AFTER:
            yield event.op, event.order, _values((event.before or {}).values())
        row = event.before if event.op == "d" else event.after
        yield event.op, event.order, _values((row or {}).values())


def compare_history(stored: Sequence[Mapping[str, Any]], events: Sequence[Event]) -> None:
    """Each version from the change that opened it to the one that ended it. Raises Difference."""
    versions = versions_of(events)
    wanted = Counter((each.opened_by, each.closed_by, each.closed_by is None) for each in versions)
    found = Counter((row[OPENED_BY_COLUMN], row[CLOSED_BY_COLUMN], row[IS_CURRENT_COLUMN]) for row in stored)
    if wanted != found:
        raise Difference(
            f"history lacks {sorted((wanted - found).elements(), key=str)}, "
            f"has besides {sorted((found - wanted).elements(), key=str)}"
        )
    by_order = Counter(each.opened_by for each in versions)
    rows = {row[OPENED_BY_COLUMN]: row for row in stored}
    for version in versions:
        if by_order[version.opened_by] > 1:
            continue
        held = Counter(_values(_plain(rows[version.opened_by]).values()))
        if missing := Counter(_values(version.cells.values())) - held:
            raise Difference(f"history misses {sorted(missing)} in {rows[version.opened_by]}, of {version}")


def versions_of(events: Iterable[Event]) -> list[Version]:
    """Of every row that was ever there."""
    versions: list[Version] = []
    current: dict[Key, int] = {}
    for event in events:
        if event.op == "t":
            for each in current.values():
                versions[each] = replace(versions[each], closed_by=event.order)
            current.clear()
            continue
        if (place := current.pop(event.key, None)) is not None:
            versions[place] = replace(versions[place], closed_by=event.order)
        if event.after is not None:
            current[event.key] = len(versions)
            versions.append(Version(event.key, event.order, event.after))
    return versions


def compare_rows(
    stored: Sequence[Mapping[str, Any]], schema: TableSchema, rows: Mapping[Key, Cells], uncertain: set[tuple[Key, str]]
) -> None:
    """The rows of a mirror, or the current ones of a history, are the source's. Raises Difference.

    ``uncertain``: cells that a sink does not promise, by the key and the column's name in lower case.
    """
    held = {
        tuple(str(text_of(_at(row, name))) for name in schema.key): row
        for row in stored
        if row.get(IS_CURRENT_COLUMN, True) and not row.get(DELETED_COLUMN)
    }
    if len(held) != sum(row.get(IS_CURRENT_COLUMN, True) and not row.get(DELETED_COLUMN) for row in stored):
        raise Difference(f"two rows of one key in {stored}")
    if held.keys() != rows.keys():
        raise Difference(
            f"rows lack {sorted(rows.keys() - held.keys())}, are too many {sorted(held.keys() - rows.keys())}"
        )
    for key, cells in rows.items():
        for column in schema.columns:
            wanted = cells[column.name]
            if (key, column.name.lower()) in uncertain:
                continue
            found = _held(held[key], column)
            if wanted not in found:
                raise Difference(
                    f"row {key}, column {column.name} ({column.source_type}): the source has {wanted!r}, the warehouse "
                    f"{found}, in {held[key]}"
                )


def _held(row: Mapping[str, Any], column: Column) -> list[str | None]:
    """The values in the column's place, and in those of another type beside it."""
    named = re.compile(rf"{re.escape(column.name)}(__v_\w+)?", re.IGNORECASE)
    return [text_of(value) for name, value in row.items() if named.fullmatch(name)]


def _at(row: Mapping[str, Any], name: str) -> Any:
    return next((value for each, value in row.items() if each.lower() == name.lower()), None)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith(OWN_COLUMN_PREFIX) and name not in _OWN}


def _values(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(sorted(text for value in values if (text := text_of(value)) is not None))
