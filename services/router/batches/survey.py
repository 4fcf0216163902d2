"""Everything that a batch needs before it can be written, found by one walk over its entries."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from libs.types.table import TableId
from protos.headwater.changes.v1.change_batch_pb2 import TableChange, TransactionBoundary
from services.router.batches.changes import Run


class TableVersion(NamedTuple):
    """The version of a table that rows or a statement have."""

    database: str
    table: str
    schema_version: int
    for_tenants: tuple[str, ...] = ()
    """The tenants that the rows are addressed to; empty: all that see the table."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Of one batch; made when it is read."""

    versions: Sequence[TableVersion] = ()
    """Each once, in the order in which they come."""
    statements: Sequence[TableChange] = ()
    has_boundaries: bool = False
    """There is a BEGIN or an END of a source transaction."""

    @property
    def addressed(self) -> Iterator[tuple[str, TableId]]:
        """Tenants that rows are addressed to, with the table."""
        for version in self.versions:
            for tenant in version.for_tenants:
                yield tenant, TableId(database=version.database, table=version.table)

    @property
    def dropped_tables(self) -> Iterator[TableId]:
        """Those that no longer exist after a statement of the batch."""
        for statement in self.statements:
            if statement.table and not statement.schema_version:
                yield TableId(database=statement.database, table=statement.table)


def survey(entries: Sequence[Run | TableChange | TransactionBoundary]) -> Survey:
    """The one walk."""
    versions: dict[TableVersion, None] = {}
    statements = []
    has_boundaries = False
    for entry in entries:
        if isinstance(entry, Run):
            versions[TableVersion(entry.database, entry.table, entry.schema_version, entry.for_tenants)] = None
        elif isinstance(entry, TableChange):
            statements.append(entry)
            if entry.schema_version:
                versions[TableVersion(entry.database, entry.table, entry.schema_version)] = None
        else:
            has_boundaries = True
    return Survey(tuple(versions), statements, has_boundaries)
