"""A source asked directly, past everything of ours: its committed transactions, and its rows.

``check``, ``status`` and the wait before them ask here. Each kind answers in its own way: MySQL and the server of a DTS
subscription on a connection (``mysql_rows``), a keyspace through its vtgate (``vitess_rows``), an Oracle database AS OF an SCN
(``oracle_rows``).
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

from libs.check.compare import Row
from libs.check.mysql_rows import MysqlRows, consistent_snapshot
from libs.check.places import Place, PlaceColumn
from libs.check.projection import ExpectedColumn, ExpectedTable, SourceTable
from libs.check.source_sql import SourceSql
from libs.check.vitess_rows import VitessRows
from libs.mesh.documents import DtsDocument, MysqlDocument, OracleDocument, SourceDocument, VitessDocument
from libs.mesh.executed import Executed
from libs.mesh.vtgate import Vtgate
from libs.types.value_modes import TimePrecision


class AskedSource(Protocol):
    """A source that answers."""

    @property
    def sql(self) -> SourceSql:
        """The dialect of ``rows_of``'s conditions."""
        ...

    @property
    def sums(self) -> "SummingSource | None":
        """The same source, where it sums its rows as warehouses do, and cuts its tables; None: rows are compared one by one."""
        ...

    def executed(self) -> Executed:
        """Every transaction committed until now."""
        ...

    def tables(self) -> Sequence[SourceTable]:
        """Every table that a tenant might be given."""
        ...

    def rows(self, table: ExpectedTable, columns: Sequence[ExpectedColumn]) -> Iterator[Row]:
        """Canonical values of ``columns``, row by row in key order (in any, where a mask hides the key)."""
        ...

    def rows_of(self, table: ExpectedTable, columns: Sequence[ExpectedColumn], condition: str) -> Iterator[Row]:
        """Those of the rows that meet an SQL condition, in any order."""
        ...

    def refusal(self, table: ExpectedTable) -> str | None:
        """Why the table's rows cannot be asked for, and the remedy; None: they can."""
        ...


class SummingSource(Protocol):
    """A source whose SQL makes checksums, and finds places in a table's key."""

    def answers(
        self, table: ExpectedTable, selected: str, *, condition: str | None = None, group_by: str = ""
    ) -> list[tuple[str | None, ...]]:
        """The result of SQL over the rows of ``table``, as printed; of several logs the answer of each, one after the other."""
        ...

    def key_behind(
        self, table: SourceTable, columns: Sequence[PlaceColumn], after: Place | None, rows: int
    ) -> Place | None:
        """A place at most ``rows`` rows after ``after`` (None: the start), rows that have none aside; None: there are not so
        many. ``columns``: those that the key begins with."""
        ...

    def end_of_key(self, table: SourceTable, columns: Sequence[PlaceColumn], *, is_last: bool) -> Place | None:
        """The first or last row's values in ``columns``, whether or not they are a place; None: the table is empty."""
        ...


@contextlib.contextmanager
def asked(document: SourceDocument) -> Iterator[AskedSource]:
    """The source of ``document``; every read within the block sees the same moment, but for a keyspace's.

    Raises:
        SourceUnavailable: it does not answer.
        AccessDenied, SourceMisconfigured: user, password, grants or names are wrong.
    """
    match document:
        case MysqlDocument() | DtsDocument():
            with consistent_snapshot(document.database) as connection:
                yield MysqlRows(connection)
        case OracleDocument():
            # The driver is loaded where an Oracle database is asked.
            from libs.check.oracle_rows import as_of_now

            with as_of_now(document.database) as rows:
                yield rows
        case VitessDocument():
            with Vtgate(document.vtgate) as vtgate:
                has_text_moments = document.values.time_precision is TimePrecision.ISO_STRING
                yield VitessRows(vtgate, document.keyspace, document.shards, has_text_moments)
