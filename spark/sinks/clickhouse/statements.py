"""The statements of one batch on a table: plain functions from names to SQL text.

Nothing is changed in place. The rows that a batch makes, and the marks of those that it takes away, are put into a table of the
same columns (``into``), whose parts are then attached to the real one in one step. ``ReplacingMergeTree`` keeps the newest of
a key's rows: in a mirror by their order, in a history, where a row is a version, by how often that was written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from libs.clickhouse.names import BATCH_COLUMN, GONE_COLUMN, VERSION_COLUMN, literal, quoted
from libs.types.tenant import Deletes
from libs.types.warehouse import (
    CLOSED_BY_COLUMN,
    COMMITTED_AT_COLUMN,
    DELETED_AT_COLUMN,
    DELETED_COLUMN,
    IS_CURRENT_COLUMN,
    OP_COLUMN,
    OPENED_BY_COLUMN,
    ORDER_COLUMN,
    UNAVAILABLE_COLUMN,
    VALID_TO_COLUMN,
    own_columns,
)
from spark.sinks.port import SinkTable
from spark.transforms.cut_envelope import DELETE
from spark.transforms.versions import IS_GONE_COLUMN, STORED_COLUMN
from spark.transforms.warehouse_columns import Truncation

_ORDER: Final = quoted(ORDER_COLUMN)
_OPENED: Final = quoted(OPENED_BY_COLUMN)
_WRITTEN: Final = "_headwater_written"
"""How often a version was written, its mark too."""
SETTINGS: Final = " SETTINGS join_use_nulls = 0, transform_null_in = 1"
"""A stored row that is not there has the order '', and was written 0 times; NULL is a value of a key as any other."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table that is written."""

    place: str
    """Quoted."""
    columns: tuple[str, ...]
    """The source's, by their names there."""
    key: tuple[str, ...]


def append_statement(into: str, columns: Sequence[str], stages: Sequence[str], batch: str) -> str:
    """Every staged row, and which batch brought it."""
    names = ", ".join(map(quoted, columns))
    return (
        f"INSERT INTO {into} ({names}, {quoted(BATCH_COLUMN)}) "
        f"SELECT {names}, {literal(batch)} FROM ({_staged(stages)})"
    )


def order_ends_query(into: str) -> str:
    """Between which orders the rows of ``into`` lie."""
    return f"SELECT min({_ORDER}), max({_ORDER}) FROM {into}"


def rows_of_batch(batch: str, least_order: str, greatest_order: str) -> str:
    """A condition: a batch's rows in an append table. The table is sorted by the order, so few rows are read."""
    lies_between = f"{_ORDER} >= {literal(least_order)} AND {_ORDER} <= {literal(greatest_order)}"
    return f"{lies_between} AND {quoted(BATCH_COLUMN)} = {literal(batch)}"


def replace_entry_statements(
    into: str, target: Target, columns: Sequence[str], stages: Sequence[str], batch: str
) -> list[str]:
    """A log's rows after a resync: the staged changes, and its rows of other changes."""
    identity = ", ".join([_ORDER, *map(quoted, target.key)])
    kept = (
        f"INSERT INTO {into} SELECT * FROM {target.place} "
        f"WHERE ({identity}) NOT IN (SELECT {identity} FROM ({_staged(stages)})){SETTINGS}"
    )
    return [append_statement(into, columns, stages, batch), kept]


def merge_statements(
    into: str,
    target: Target,
    table: SinkTable,
    columns: Sequence[str],
    stages: Sequence[str],
    truncation: Truncation | None,
) -> list[str]:
    """Newer rows, marks of those that went, and of those that ``truncation`` took. ``columns``: of the stages, in a mirror."""
    statements = []
    if truncation is not None:
        statements.append(_truncate(into, target, table, stages, truncation))
    if stages:
        least = None if truncation is None or table.deletes is Deletes.SOFT else truncation.order
        statements.append(_upsert(into, target, table, columns, stages, only_newer=True, stored_since=least))
    return statements


def replace_statements(
    into: str, target: Target, table: SinkTable, columns: Sequence[str], stages: Sequence[str]
) -> list[str]:
    """A mirror's rows after a resync, without regard to its stored orders."""
    statements = []
    if stages:
        statements.append(_upsert(into, target, table, columns, stages, only_newer=False, stored_since=None))
    if table.deletes is Deletes.SOFT:
        marked = {
            DELETED_COLUMN: "true",
            DELETED_AT_COLUMN: f"if(t.{quoted(DELETED_COLUMN)}, t.{quoted(DELETED_AT_COLUMN)}, "
            f"{time_at(table.reached.committed_at_us)})",
        }
        statements.append(_stored_rows(into, target, table, stages, marked, "true"))
    return statements


def versions_since(target: Target, key_stages: Sequence[str], order: str) -> str:
    """A condition: the versions of the staged keys that a change of ``order``, or of a greater one, may touch."""
    if not key_stages:
        return "false"
    is_touched = f"{quoted(IS_CURRENT_COLUMN)} OR {quoted(CLOSED_BY_COLUMN)} >= {literal(order)}"
    return f"{_is_staged(target, key_stages)} AND ({is_touched})"


def version_statements(
    into: str,
    target: Target,
    table: SinkTable,
    columns: Sequence[str],
    stages: Sequence[str],
    truncation: Truncation | None,
) -> list[str]:
    """New and changed versions, marks of removed ones, and the versions that ``truncation`` ends.

    ``columns``: of the stages, in a history. A version's newer row wins over its older ones, its mark
    too; so a version that is cut, joined with another and written once more is as its last row.
    """
    names = [name for name in columns if name not in (STORED_COLUMN, IS_GONE_COLUMN)]
    key = ", ".join(map(quoted, target.key))
    stored, is_gone = quoted(STORED_COLUMN), quoted(IS_GONE_COLUMN)
    statements = []
    if stages:
        staged = _staged(stages)
        written = (
            f"SELECT {key}, {_OPENED}, max({quoted(VERSION_COLUMN)}) AS {_WRITTEN} FROM {target.place} "
            f"WHERE {_is_staged(target, stages)} GROUP BY {key}, {_OPENED}"
        )
        same_key = _same_key(target, table)
        statements.append(
            f"INSERT INTO {into} ({', '.join(map(quoted, names))}, {quoted(GONE_COLUMN)}, {quoted(VERSION_COLUMN)}) "
            f"SELECT {', '.join(f's.{quoted(name)}' for name in names)}, 0, p.{_WRITTEN} + 1 "
            f"FROM (SELECT * FROM ({staged}) WHERE NOT {is_gone}) AS s "
            f"LEFT JOIN ({written}) AS p ON {same_key} AND s.{_OPENED} = p.{_OPENED}{SETTINGS}"
        )
        # The version that takes its place has another row, unless both were opened by one change.
        is_left = f"{stored} IS NOT NULL AND ({is_gone} OR {stored} <> {_OPENED})"
        statements.append(
            f"INSERT INTO {into} ({key}, {_OPENED}, {quoted(GONE_COLUMN)}, {quoted(VERSION_COLUMN)}) "
            f"SELECT {', '.join(f's.{quoted(name)}' for name in target.key)}, p.{_OPENED}, 1, p.{_WRITTEN} + 1 "
            f"FROM (SELECT * FROM ({staged}) WHERE {is_left}) AS s "
            f"JOIN ({written}) AS p ON {same_key} AND s.{stored} = p.{_OPENED}{SETTINGS}"
        )
    if truncation is not None:
        statements.append(_end_versions(into, target, table, stages, truncation))
    return statements


def _end_versions(into: str, target: Target, table: SinkTable, stages: Sequence[str], truncation: Truncation) -> str:
    ended = {
        IS_CURRENT_COLUMN: "false",
        VALID_TO_COLUMN: time_at(truncation.committed_at_us),
        CLOSED_BY_COLUMN: literal(truncation.order),
    }
    names = [*target.columns, *own_columns(table.mode, table.deletes)]
    values = ", ".join(ended.get(name, f"t.{quoted(name)}") for name in names)
    is_other = ""
    if stages:
        stored, key = quoted(STORED_COLUMN), [*map(quoted, target.key)]
        replaced = f"SELECT {', '.join([*key, stored])} FROM ({_staged(stages)}) WHERE {stored} IS NOT NULL"
        is_other = f" AND ({', '.join(f't.{name}' for name in [*key, _OPENED])}) NOT IN ({replaced})"
    return (
        f"INSERT INTO {into} ({', '.join(map(quoted, names))}, {quoted(GONE_COLUMN)}, {quoted(VERSION_COLUMN)}) "
        f"SELECT {values}, 0, t.{quoted(VERSION_COLUMN)} + 1 FROM {target.place} AS t FINAL "
        f"WHERE t.{quoted(IS_CURRENT_COLUMN)} AND t.{_ORDER} < {literal(truncation.order)}{is_other}{SETTINGS}"
    )


def all_versions_statement(into: str, columns: Sequence[str], stages: Sequence[str]) -> str:
    """A history's rows after a resync: the staged versions alone, each written once."""
    names = ", ".join(map(quoted, columns))
    return (
        f"INSERT INTO {into} ({names}, {quoted(GONE_COLUMN)}, {quoted(VERSION_COLUMN)}) "
        f"SELECT {names}, 0, 1 FROM ({_staged(stages)})"
    )


def time_at(at_us: int) -> str:
    """A moment, in microseconds since 1970."""
    return f"fromUnixTimestamp64Micro(toInt64({at_us}), 'UTC')"


def _upsert(
    into: str,
    target: Target,
    table: SinkTable,
    columns: Sequence[str],
    stages: Sequence[str],
    *,
    only_newer: bool,
    stored_since: str | None,
) -> str:
    """``stored_since``: rows of a smaller order count for nothing."""
    is_soft, is_partial = table.deletes is Deletes.SOFT, UNAVAILABLE_COLUMN in columns
    own = own_columns(table.mode, table.deletes)
    kept = [name for name in columns if name not in (OP_COLUMN, UNAVAILABLE_COLUMN)]
    is_gone = f"s.{quoted(OP_COLUMN)} = {literal(DELETE)}"

    def given(name: str) -> str:
        column = quoted(name)
        if name in own or name in target.key:
            return f"s.{column}"
        value = f"s.{column}"
        if is_partial:
            value = f"if(has(s.{quoted(UNAVAILABLE_COLUMN)}, {literal(name)}), p.{column}, {value})"
        if not is_soft:
            return f"if({is_gone}, NULL, {value})"
        if not only_newer:
            return value
        # A mark leaves the row's values.
        return f"if(s.{quoted(DELETED_COLUMN)} AND p.{_ORDER} <> '', p.{column}, {value})"

    names = ", ".join(map(quoted, kept))
    values = ", ".join(map(given, kept))
    gone = "0" if is_soft else is_gone
    wanted = []
    if only_newer:
        wanted.append(f"(p.{_ORDER} = '' OR p.{_ORDER} < s.{_ORDER})")
    elif not is_soft:
        wanted.append(f"NOT ({is_gone})")
    where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
    return (
        f"INSERT INTO {into} ({names}, {quoted(GONE_COLUMN)}) SELECT {values}, {gone} FROM ({_staged(stages)}) AS s "
        f"LEFT JOIN ({_stored_of(target, stages, stored_since)}) AS p ON {_same_key(target, table)}{where}{SETTINGS}"
    )


def _stored_of(target: Target, stages: Sequence[str], since: str | None) -> str:
    """The stored rows of the staged keys."""
    least = "" if since is None else f" AND {_ORDER} >= {literal(since)}"
    return f"SELECT * FROM {target.place} FINAL WHERE {_is_staged(target, stages)}{least}"


def _truncate(into: str, target: Target, table: SinkTable, stages: Sequence[str], truncation: Truncation) -> str:
    at, order = time_at(truncation.committed_at_us), literal(truncation.order)
    is_older = f"t.{_ORDER} < {order}"
    marked = {ORDER_COLUMN: order, COMMITTED_AT_COLUMN: at}
    if table.deletes is Deletes.SOFT:
        marked |= {DELETED_COLUMN: "true", DELETED_AT_COLUMN: at}
        return _stored_rows(into, target, table, stages, marked, f"{is_older} AND NOT t.{quoted(DELETED_COLUMN)}")
    # Staged rows are newer than the truncation, so that both may be there.
    names = [*target.key, *own_columns(table.mode, table.deletes)]
    values = [marked.get(name, f"t.{quoted(name)}") for name in names]
    return (
        f"INSERT INTO {into} ({', '.join(map(quoted, names))}, {quoted(GONE_COLUMN)}) "
        f"SELECT {', '.join(values)}, 1 FROM {target.place} AS t FINAL WHERE {is_older}"
    )


def _stored_rows(
    into: str, target: Target, table: SinkTable, stages: Sequence[str], changed: Mapping[str, str], where: str
) -> str:
    """Stored rows that are not staged, with some columns changed."""
    names = [*target.columns, *own_columns(table.mode, table.deletes)]
    values = [changed.get(name, f"t.{quoted(name)}") for name in names]
    is_other = f" AND NOT ({_is_staged(target, stages, 't.')})" if stages else ""
    return (
        f"INSERT INTO {into} ({', '.join(map(quoted, names))}, {quoted(GONE_COLUMN)}) "
        f"SELECT {', '.join(values)}, 0 FROM {target.place} AS t FINAL WHERE {where}{is_other}{SETTINGS}"
    )


def _is_staged(target: Target, stages: Sequence[str], side: str = "") -> str:
    key = ", ".join(map(quoted, target.key))
    return f"({', '.join(side + quoted(name) for name in target.key)}) IN (SELECT {key} FROM ({_staged(stages)}))"


def _same_key(target: Target, table: SinkTable) -> str:
    optional = {column.name for column in table.columns if column.is_optional}
    return " AND ".join(
        f"s.{quoted(name)} {'<=>' if name in optional else '='} p.{quoted(name)}" for name in target.key
    )


def _staged(stages: Sequence[str]) -> str:
    return " UNION ALL ".join(f"SELECT * FROM {stage}" for stage in stages)
