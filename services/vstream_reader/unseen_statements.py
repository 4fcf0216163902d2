"""Statements of a keyspace after which tenants' rows differ from the shards', and of which the stream has no row.

As with MySQL these are partitions, narrowing ALTERs, and renames to a captured name. A stream of Vitess hides more of them: a
FIELD event has neither a column's DEFAULT nor its former name, so no sink fills a new column or renames one; and a table that
is made again comes without a truncation, because every shard makes it at another moment.

Online DDL changes a shadow table, which vtgate does not stream, and swaps it in by a RENAME. What it changed is known by the
FIELD event after that.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from typing import Final

from libs.mysql.column_type import parse_column_type
from libs.mysql.ddl import TableChange, TableChangeKind, apply_ddl, cut_columns, unseen_rows
from libs.mysql.ddl_syntax import DdlNotUnderstood
from libs.mysql.identifiers import in_lower_case
from libs.source.mysql.unseen_changes import renamed_unseen
from libs.source.unseen_policy import SHADOW_TABLES
from libs.source.vitess.columns import with_key_index
from libs.types.table import Column, TableId, TableSchema
from libs.types.unseen_rows import UnseenRows
from services.vstream_reader.found import DdlStatement, NewForm

VITESS_SHADOW_TABLES: Final = (*SHADOW_TABLES, r"_vt_.+", r"_.+_vrepl")
"""Also those of Online DDL and of the lifecycle of dropped tables (Vitess, ``go/vt/schema/tablegc.go``, ``name.go``)."""
_NUMBERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year"})
_TEXTS: Final = frozenset({"char", "varchar", "set"})


class StatementWatch:
    """Judges a keyspace's statements in the order of the stream, shard by shard. One for a reader's life: a stream that is
    opened again goes on with the statements of the one before."""

    def __init__(self, keyspace: str, is_captured: Callable[[TableId], bool]) -> None:
        self._keyspace = keyspace
        self._is_captured = is_captured
        self.known_at_start: frozenset[TableId] | None = None
        """Tables with a version before this reader's life: a CREATE TABLE makes such a table again, since the DROP may have
        come to an earlier reader. None: it has not begun."""
        self._gone: set[tuple[str, TableId]] = set()
        """Tables that a shard dropped or renamed, and did not make again."""
        self._judged: set[tuple[str, TableId]] = set()
        """Tables whose last change at a shard was an ALTER of their own: their next form holds nothing new."""
        self._dropped: dict[tuple[str, TableId], set[str]] = {}
        """Names of columns that a shard's tables had, in lower case."""

    def unseen(
        self,
        found: DdlStatement,
        tables: Mapping[TableId, TableSchema],
        versions: Sequence[TableSchema],
    ) -> Iterator[UnseenRows]:
        """Of one statement. ``tables``: the shard's, as they are before it. ``versions``: every form of its tables."""
        there = {
            table_id: with_key_index(schema)
            for table_id, schema in tables.items()
            if (found.shard, table_id) not in self._gone
        }
        try:
            there, changes = self._applied(found.statement, there, versions)
            by_statement = unseen_rows(self._keyspace, found.statement, tables=there)
        except DdlNotUnderstood as error:
            yield from self._not_understood(error, found.shard, there)
            return
        if by_statement is not None:
            yield by_statement
        yield from renamed_unseen(changes, there, self._is_watched, is_strict=True, shadow_tables=VITESS_SHADOW_TABLES)
        for change in changes:
            yield from self._of_change(change, found.shard, there, versions, by_statement)

    def _applied(
        self, statement: str, there: dict[TableId, TableSchema], versions: Sequence[TableSchema]
    ) -> tuple[dict[TableId, TableSchema], tuple[TableChange, ...]]:
        """The tables before a statement, and what it changes. A shard of which no FIELD event has come may be at an earlier
        form than the newest: where the statement contradicts that, it is the next earlier one that the statement fits.

        Raises:
            DdlNotUnderstood: it fits none.
        """
        try:
            return there, apply_ddl(there, self._keyspace, statement)
        except DdlNotUnderstood as error:
            earlier = [each for each in versions if each.table_id in error.table_ids and each.table_id in there]
            for schema in sorted(earlier, key=lambda each: each.version, reverse=True):
                before = {**there, schema.table_id: with_key_index(schema)}
                with suppress(DdlNotUnderstood):
                    return before, apply_ddl(before, self._keyspace, statement)
            raise

    def unseen_form(self, found: NewForm) -> UnseenRows | None:
        """Of columns that changed without an ALTER of the table: a shadow table took its place, or the ALTER came to a reader
        of before."""
        table_id = found.after.table_id
        if (found.shard, table_id) in self._judged:
            return None
        known = {in_lower_case(column.name) for column in found.before.columns}
        added = [column.name for column in found.after.columns if in_lower_case(column.name) not in known]
        clauses = [
            *cut_columns(found.before, found.after, is_strict=True),
            *(f"a new column {name}, whose value in the rows of before vtgate does not send" for name in added),
        ]
        return UnseenRows(", ".join(clauses), (table_id,)) if clauses else None

    def _is_watched(self, table_id: TableId) -> bool:
        return self._is_captured(table_id) and not any(
            re.fullmatch(pattern, table_id.table) for pattern in VITESS_SHADOW_TABLES
        )

    def _not_understood(
        self, error: DdlNotUnderstood, shard: str, there: Mapping[TableId, TableSchema]
    ) -> Iterator[UnseenRows]:
        for table_id in error.table_ids:
            self._judged.discard((shard, table_id))
            if table_id in there:
                yield UnseenRows(f"a statement that is not understood ({error.reason})", (table_id,))

    def _of_change(
        self,
        change: TableChange,
        shard: str,
        there: Mapping[TableId, TableSchema],
        versions: Sequence[TableSchema],
        by_statement: UnseenRows | None,
    ) -> Iterator[UnseenRows]:
        place = shard, change.table_id
        match change.kind:
            case TableChangeKind.DROP:
                self._gone.add(place)
            case TableChangeKind.CREATE:
                if place in self._gone or change.table_id in (self.known_at_start or ()):
                    yield UnseenRows("CREATE TABLE of a table that was dropped or renamed", (change.table_id,))
                self._gone.discard(place)
                self._judged.add(place)
            case TableChangeKind.RENAME:
                assert change.previous_id is not None
                self._gone.add((shard, change.previous_id))
                self._gone.discard(place)
                self._judged.discard(place)
            case TableChangeKind.ALTER:
                self._judged.add(place)
                before = there.get(change.table_id)
                if before is not None and change.schema is not None:
                    dropped = self._dropped.setdefault(place, _names_before(before, versions))
                    dropped |= _names(before) - _kept_names(change.schema)
                    reported = "" if by_statement is None else by_statement.clause
                    clauses = ", ".join(_unfilled(change.schema, dropped, reported))
                    if clauses:
                        yield UnseenRows(clauses, (change.table_id,))
            case TableChangeKind.TRUNCATE:
                yield UnseenRows("TRUNCATE TABLE", (change.table_id,))


def _unfilled(after: TableSchema, dropped: Set[str], reported: str) -> Iterator[str]:
    """Columns of ``after`` in which the rows of before have other values at tenants than at the shards."""
    for column in after.columns:
        if column.former_names:
            yield f"{column.former_names[-1].name} renamed to {column.name}, whose values stay under the former name"
        elif column.born is not None and f"ADD COLUMN {column.name}," not in reported:
            if in_lower_case(column.name) in dropped:
                yield f"ADD COLUMN {column.name}, which has a dropped column's values at tenants"
            elif column.default_expression is not None and not _is_types_zero(column):
                yield f"ADD COLUMN {column.name}, whose DEFAULT vtgate does not send"


def _names(schema: TableSchema) -> set[str]:
    return {in_lower_case(column.name) for column in schema.columns}


def _names_before(schema: TableSchema, versions: Sequence[TableSchema]) -> set[str]:
    """Columns of earlier versions that ``schema`` lacks."""
    earlier = (each for each in versions if each.table_id == schema.table_id and each.version < schema.version)
    return {name for each in earlier for name in _names(each)} - _names(schema)


def _kept_names(after: TableSchema) -> set[str]:
    """The columns that are called as they were before the statement."""
    return {in_lower_case(each.name) for each in after.columns if each.born is None and not each.former_names}


def _is_types_zero(column: Column) -> bool:
    """The DEFAULT is what rows of before have in a column that is NOT NULL and has none."""
    text, mysql_type = column.default_expression or "", parse_column_type(column.source_type)
    if column.is_optional:
        return False
    if mysql_type.name in _NUMBERS:
        return re.fullmatch(r"-?0*\.?0*", text) is not None
    if mysql_type.name in _TEXTS:
        return not text
    return mysql_type.name == "enum" and text == mysql_type.members[0]
