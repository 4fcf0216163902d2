"""An Oracle database's side of the comparison: every table's rows AS OF one SCN, streamed in key order.

Whoever writes meanwhile changes nothing of that moment, as long as undo lasts. No row is locked. Rows are compared one by
one: Oracle's SQL has no text of a row that warehouses print alike.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from libs.check.compare import Row
from libs.check.oracle_conditions import NotTranslated, oracle_condition
from libs.check.oracle_values import order_expression, select_expression
from libs.check.projection import ExpectedColumn, ExpectedTable, SourceTable, canonical_column
from libs.check.source_sql import ORACLE_SQL, SourceSql
from libs.mesh.executed import CommittedScn, Executed
from libs.oracle.ddl_text import quote_identifier, quote_table
from libs.source.oracle.capture import capture_filter
from libs.source.oracle.client import Connection, connect, connect_to_tables, fetch, hang_up, query
from libs.source.oracle.definitions import read_definitions
from libs.source.oracle.settings import OracleDatabaseSettings

FETCH_ROWS: Final = 5_000
_CURRENT: Final = "SELECT CURRENT_SCN FROM V$DATABASE"


@contextlib.contextmanager
def as_of_now(database: OracleDatabaseSettings) -> Iterator["OracleRows"]:
    """The database as of the SCN of this moment.

    Raises:
        SourceUnavailable: it does not answer, or the undo of that SCN is gone: try again.
        AccessDenied: user, password or grants do not suffice.
        PipelineHalted: the driver cannot talk to this server, or a table's definition has changed since.
    """
    asking = connect(database)
    try:
        [(scn,)] = query(asking, _CURRENT)
    finally:
        hang_up(asking)
    connection = connect_to_tables(database)
    try:
        yield OracleRows(connection, int(scn))
    finally:
        hang_up(connection)


@dataclass(frozen=True, slots=True)
class OracleRows:
    """The source behind a connection (``source.AskedSource``)."""

    connection: Connection
    scn: int

    @property
    def sql(self) -> SourceSql:
        """Oracle's."""
        return ORACLE_SQL

    @property
    def sums(self) -> None:
        """It makes none."""
        return None

    def executed(self) -> Executed:
        """Every transaction committed up to the SCN."""
        return {"": CommittedScn(self.scn)}

    def tables(self) -> tuple[SourceTable, ...]:
        """Every table outside Oracle's own schemas that can be followed."""
        found = read_definitions(self.connection, capture_filter([".*"]))
        return tuple(
            SourceTable(
                each.table.table,
                tuple((column.name, str(column.type)) for column in each.table.logged),
                each.table.key,
                frozenset(column.name for column in each.table.logged if not column.is_optional),
            )
            for each in found.tables
            if not each.refusal and not each.facts.is_temporary
        )

    def refusal(self, table: ExpectedTable) -> str | None:
        """See ``source.AskedSource.refusal``."""
        try:
            self._filter(table)
        except NotTranslated as error:
            return (
                f"its row filter has {error}, which is not put to Oracle: compare columns with literals by =, <>, <, >, "
                "IN, BETWEEN, LIKE or IS NULL"
            )
        return None

    def rows(self, table: ExpectedTable, columns: Sequence[ExpectedColumn]) -> Iterator[Row]:
        """See ``source.AskedSource.rows``; streamed, never held whole."""
        order = ""
        if table.key and not table.is_key_masked:
            types = _types(table)
            names = (order_expression(types[name], quote_identifier(name)) for name in table.key)
            order = f" ORDER BY {', '.join(names)}"
        return self._rows(columns, self._select(table, columns) + order)

    def rows_of(self, table: ExpectedTable, columns: Sequence[ExpectedColumn], condition: str) -> Iterator[Row]:
        """See ``source.AskedSource.rows_of``."""
        return self._rows(columns, self._select(table, columns, condition))

    def _select(self, table: ExpectedTable, columns: Sequence[ExpectedColumn], condition: str | None = None) -> str:
        selected = ", ".join(select_expression(each.data_type, quote_identifier(each.name)) for each in columns)
        conditions = [f"({each})" for each in (self._filter(table), condition) if each is not None]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {selected} FROM {quote_table(table.table_id)} AS OF SCN {self.scn}{where}"

    def _filter(self, table: ExpectedTable) -> str | None:
        return None if table.where is None else oracle_condition(table.where, dict(table.source_columns))

    def _rows(self, columns: Sequence[ExpectedColumn], statement: str) -> Iterator[Row]:
        for rows in fetch(self.connection, statement, rows=FETCH_ROWS):
            yield from _canonical(columns, rows)


def _canonical(columns: Sequence[ExpectedColumn], rows: Sequence[tuple[Any, ...]]) -> Iterator[Row]:
    cells = [canonical_column(column, values) for column, values in zip(columns, zip(*rows, strict=True), strict=True)]
    return zip(*cells, strict=True)


def _types(table: ExpectedTable) -> Mapping[str, str]:
    return {column.name: column.data_type for column in table.columns}
