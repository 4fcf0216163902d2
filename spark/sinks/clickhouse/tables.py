"""ClickHouse's tables of tenants: found, made, and changed when their schemas change."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from pyspark.sql import Column as SparkColumn
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from libs.clickhouse.names import (
    BATCH_COLUMN,
    BATCHES,
    GONE_COLUMN,
    STATE_DATABASE,
    VERSION_COLUMN,
    copy_name,
    literal,
    quoted,
)
from libs.clickhouse.tables import Noted, decoded, encoded, stored_table
from libs.types.tenant import SinkMode
from libs.types.warehouse import (
    COMMITTED_AT_COLUMN,
    DELETED_COLUMN,
    IS_CURRENT_COLUMN,
    OP_COLUMN,
    OPENED_BY_COLUMN,
    ORDER_COLUMN,
    OWN_SQL_TYPES,
    VALID_FROM_COLUMN,
    WarehouseTable,
    own_columns,
)
from libs.warehouse.clickhouse import clickhouse_type, sql_type
from libs.warehouse.dialect import DIALECTS
from spark.sinks.clickhouse.client import errors_named
from spark.sinks.clickhouse.server import Server
from spark.sinks.clickhouse.statements import Target
from spark.sinks.evolution import Evolution, log_evolution
from spark.sinks.port import SinkColumn, SinkTable, TableRefused
from spark.sinks.properties import (
    column_of,
    comment_of,
    first_properties,
    pending_of,
    properties_after,
    properties_before,
)
from spark.transforms.warehouse_columns import TableColumn

_REQUIRED: Final = frozenset(
    {
        ORDER_COLUMN,
        COMMITTED_AT_COLUMN,
        DELETED_COLUMN,
        OP_COLUMN,
        VALID_FROM_COLUMN,
        IS_CURRENT_COLUMN,
        OPENED_BY_COLUMN,
    }
)
"""Of Headwater's own columns those without NULLs."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table as its comment and ClickHouse's catalog have it."""

    place: str
    """Quoted."""
    noted: Noted
    types: Mapping[str, str]
    """ClickHouse's, of all columns."""

    def columns(self) -> dict[str, TableColumn]:
        """The columns of the source, in order."""
        return {
            name: column_of(self.noted.properties, name, own, sql_type(own)) for name, own in self.noted.types.items()
        }

    def is_optional(self, name: str) -> bool:
        """Whether a column may be NULL."""
        return self.types[name].startswith("Nullable(")

    def target(self, table: SinkTable) -> Target:
        """The table for statements, with the key's columns as they are spelled there."""
        by_lower = {name.lower(): name for name in self.noted.types}
        key = tuple(by_lower.get(name.lower(), name) for name in table.key)
        return Target(self.place, tuple(self.noted.types), key)


class Tables:
    """The tables on one server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def load(self, table: WarehouseTable) -> StoredTable | None:
        """The table as it is now; None: there is none, or none that this user may see.

        Raises:
            TableRefused: it is somebody else's, another table's, or somebody changed it; the text has the remedy.
        """
        database, name = self._server.levels(table)
        client = self._server.client()
        with errors_named(self._server.settings, STATE_DATABASE):
            stored = stored_table(client, database, name)
        if stored is None:
            return None
        comment, types = stored
        place, noted = quoted(database, name), decoded(comment)
        if noted is None:
            raise TableRefused(
                f"{table}: a table {place} is there already and is not Headwater's, or somebody changed its comment; rename "
                "it or put the comment back, or choose another warehouses.clickhouse.database"
            )
        if noted.name != str(table):
            raise TableRefused(
                f"{table}: its place {place} is {noted.name}'s already; choose a warehouses.clickhouse.database that keeps "
                "them apart"
            )
        for column, own in noted.types.items():
            found, wanted = types.get(column), clickhouse_type(own)
            if found is None:
                raise TableRefused(
                    f"{place}: somebody dropped or renamed column {column}; put it back, or write the tenant's tables again "
                    "(docs/sinks/repair.md, 'Write tables again')"
                )
            if _plain(found) not in (_plain(wanted), _plain(f"Nullable({wanted})")):
                raise TableRefused(f"{place}: column {column} is of type {found}; set it back to {wanted}")
        return StoredTable(place, noted, types)

    def stored(self, table: WarehouseTable) -> StoredTable:
        """As ``load``; a table that went away is refused."""
        stored = self.load(table)
        if stored is None:
            raise TableRefused(f"{table}: the table went away; restart the job, which makes it again")
        return stored

    def create(self, table: SinkTable) -> None:
        """Make the table, and its database. Raises TableRefused: it is there, and this user may not see it."""
        database, name = self._server.levels(table.name)
        types = {column.name: self._own_type(column) for column in table.columns}
        noted = Noted(comment_of(table), str(table.name), table.key, types, first_properties(table))
        is_keyed = table.mode is not SinkMode.APPEND  # whose rows of truncations have no key
        required = {c.name for c in table.columns if is_keyed and c.name in table.key and not c.is_optional}
        self._server.run(table.name, f"CREATE DATABASE IF NOT EXISTS {quoted(database)}")
        if self._server.is_there(table.name):
            raise TableRefused(
                f"{table.name}: {quoted(database, name)} is there, and ClickHouse does not show it to user "
                f"{self._server.settings.user}; GRANT the rights on it again"
            )
        # Of a table that was here before, and that somebody dropped.
        self._server.run(BATCHES, f"INSERT INTO {BATCHES} (name) SELECT {literal(str(table.name))}")
        self._server.run(table.name, _definition(quoted(database, name), table, noted, required))
        log.info("sink_table_created", table=str(table.name), mode=table.mode.value, key=list(table.key))

    def evolve(self, spark: SparkSession, stored: StoredTable, table: SinkTable, changes: Evolution) -> None:
        """Change columns and comment in one statement; where ClickHouse cannot, by a copy that is exchanged for the table."""
        noted = _noted_after(stored, table, changes)
        given = {
            column.name: _given(table, f"CAST({default}, {literal(_nullable(noted.types[column.name]))})")
            for column, default in zip(changes.added, _defaults(spark, table, changes.added), strict=True)
            if default is not None
        }
        if _needs_copy(stored, table, changes):
            self._copy(stored, table, changes, noted, given)
        else:
            parts = [f"RENAME COLUMN {quoted(old)} TO {quoted(new)}" for old, new in changes.renamed.items()]
            # The rows that are there have a column's default from then on, without one being written.
            parts += [
                f"ADD COLUMN {quoted(column.name)} {_nullable(noted.types[column.name])}"
                + (f" DEFAULT {given[column.name]}" if column.name in given else "")
                for column in changes.added
            ]
            parts += [
                f"MODIFY COLUMN {quoted(column.name)} {_nullable(noted.types[column.name])}"
                for column in changes.widened
            ]
            parts.append(f"MODIFY COMMENT {literal(encoded(noted))}")
            self._server.run(table.name, f"ALTER TABLE {stored.place} {', '.join(parts)} SETTINGS mutations_sync = 1")
        log_evolution(table, changes)

    def _copy(
        self, stored: StoredTable, table: SinkTable, changes: Evolution, noted: Noted, given: Mapping[str, str]
    ) -> None:
        """All rows as they lie there, marks and old versions too. Cut off before the exchange, it is begun again."""
        before = {changes.renamed.get(name, name): name for name in stored.noted.types}
        required = {name for name, old in before.items() if not stored.is_optional(old)}
        values = {
            **{name: given.get(name, "NULL") for name in noted.types},
            **{name: quoted(old) for name, old in before.items()},
            **{name: quoted(name) for name in _own_of(table)},
        }
        copy = quoted(STATE_DATABASE, copy_name(table.name))
        self._server.run(
            table.name,
            f"DROP TABLE IF EXISTS {copy} SYNC",
            _definition(copy, table, noted, required),
            f"INSERT INTO {copy} ({', '.join(map(quoted, values))}) SELECT {', '.join(values.values())} FROM {stored.place}",
            f"EXCHANGE TABLES {stored.place} AND {copy}",
            f"DROP TABLE IF EXISTS {copy} SYNC",
        )

    def _own_type(self, column: SinkColumn) -> str:
        return DIALECTS["clickhouse"].own_type(column.sql_type, column.logical_type)


def _definition(place: str, table: SinkTable, noted: Noted, required: Collection[str]) -> str:
    columns = [
        f"{quoted(name)} {clickhouse_type(own) if name in required else _nullable(own)}"
        for name, own in noted.types.items()
    ]
    columns += [f"{quoted(name)} {kind}" for name, kind in _own_of(table).items()]
    settings = "allow_nullable_key = 1"
    order: tuple[str, ...]
    if table.mode is SinkMode.APPEND:
        engine, order = "MergeTree", (ORDER_COLUMN,)
    else:
        engine = f"ReplacingMergeTree({quoted(VERSION_COLUMN)}, {quoted(GONE_COLUMN)})"
        order = (*noted.key, OPENED_BY_COLUMN) if table.mode is SinkMode.HISTORY else noted.key
        settings += ", allow_experimental_replacing_merge_with_cleanup = 1"
    if table.mode is SinkMode.MIRROR:
        # Ten, 26 and ten digits: a number of at most 153 bits, which grows as the text does.
        number = f"toUInt256(replaceAll({quoted(ORDER_COLUMN)}, '.', ''))"
        columns.append(f"{quoted(VERSION_COLUMN)} UInt256 MATERIALIZED {number}")
    return (
        f"CREATE TABLE {place} ({', '.join(columns)}) ENGINE = {engine} ORDER BY ({', '.join(map(quoted, order))}) "
        f"SETTINGS {settings} COMMENT {literal(encoded(noted))}"
    )


def _own_of(table: SinkTable) -> dict[str, str]:
    """ClickHouse's types of Headwater's columns, but for the one that is computed."""
    types = {
        name: kind if name in _REQUIRED else f"Nullable({kind})"
        for name in own_columns(table.mode, table.deletes)
        for kind in [clickhouse_type(OWN_SQL_TYPES[name])]
    }
    match table.mode:
        case SinkMode.APPEND:
            return {**types, BATCH_COLUMN: "LowCardinality(String)"}
        case SinkMode.MIRROR:
            return {**types, GONE_COLUMN: "UInt8"}
        case SinkMode.HISTORY:
            return {**types, GONE_COLUMN: "UInt8", VERSION_COLUMN: "UInt64"}


def _needs_copy(stored: StoredTable, table: SinkTable, changes: Evolution) -> bool:
    """Whether a column of the key changes, a name goes from one column to another, or a column gets another name and type."""
    widened = {column.name for column in changes.widened}
    taken = {column.name for column in changes.added} & changes.renamed.keys()
    ordering = set() if table.mode is SinkMode.APPEND else set(stored.noted.key)
    return bool(
        taken
        or ordering & {*changes.renamed, *widened}
        or set(changes.renamed.values()) & {*stored.noted.types, *widened}
    )


def _noted_after(stored: StoredTable, table: SinkTable, changes: Evolution) -> Noted:
    noted = dict(stored.noted.properties)
    noted |= properties_before(stored.noted.properties, changes, table)
    more, gone = properties_after(stored.noted.properties, changes, table)
    noted |= more
    # A fill is done by the statement that adds the column.
    left = {*gone, *pending_of(noted)}
    noted = {name: text for name, text in noted.items() if name not in left}
    types = {name: column.type for name, column in changes.columns.items()}
    key = tuple(changes.renamed.get(name, name) for name in stored.noted.key)
    return Noted(stored.noted.comment, stored.noted.name, key, types, noted)


def _defaults(spark: SparkSession, table: SinkTable, columns: Sequence[SinkColumn]) -> list[str | None]:
    """The constants that fill columns, as ClickHouse's SQL has them."""
    if table.mode is SinkMode.APPEND or not any(column.fill for column in columns):
        return [None] * len(columns)
    constants = [
        sf.lit(None).cast("string")
        if column.fill is None
        else _as_text(sf.expr(column.fill.expression).cast(column.sql_type), column.sql_type)
        for column in columns
    ]
    [row] = spark.range(1).select(*constants).collect()
    return [
        None if text is None else f"unhex({literal(text)})" if column.sql_type == "binary" else literal(text)
        for column, text in zip(columns, row, strict=True)
    ]


def _given(table: SinkTable, constant: str) -> str:
    """The value of existing rows in an added column."""
    # A version that had ended did not have the column.
    return f"if({quoted(IS_CURRENT_COLUMN)}, {constant}, NULL)" if table.mode is SinkMode.HISTORY else constant


def _as_text(value: SparkColumn, spark_type: str) -> SparkColumn:
    return sf.hex(value) if spark_type == "binary" else value.cast("string")


def _nullable(own: str) -> str:
    return f"Nullable({clickhouse_type(own)})"


def _plain(own_type: str) -> str:
    return own_type.replace(" ", "")
