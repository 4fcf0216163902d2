"""The changes that make a warehouse's table hold a newer version of its source's: ``libs.warehouse.schema_changes``' plan, as
the sinks carry it out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog

from libs.types.table import Column, name_at
from libs.warehouse.dialect import Dialect
from libs.warehouse.schema_changes import StoredColumn, plan_change, plan_creation, renames, stored_after
from spark.sinks.port import SinkColumn, SinkTable, TableLeftOut, TableRefused
from spark.transforms.warehouse_columns import TableColumn

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Evolution:
    """A table's missing parts."""

    renamed: Mapping[str, str]
    """From the old name in the table to the new one."""
    widened: tuple[SinkColumn, ...]
    """By their names in the table, after renaming."""
    added: tuple[SinkColumn, ...]
    """The same."""
    columns: Mapping[str, StoredColumn]
    """All of the table's, when that is done."""
    version: int | None
    """The version that the table is ready for then; None: its former one."""

    @property
    def changes_columns(self) -> bool:
        """Whether more is to be done than to note the version."""
        return bool(self.renamed or self.widened or self.added)

    def __bool__(self) -> bool:
        return self.changes_columns or self.version is not None


def evolution(columns: Mapping[str, TableColumn], version: int | None, table: SinkTable, dialect: Dialect) -> Evolution:
    """The changes to a table of ``columns`` that is ready for ``version`` (None: it did not note one); nothing is ever dropped.

    Raises:
        TableRefused: values would be lost, or a policy refuses a change.
    """
    stored = stored_columns(columns)
    is_newer = version is None or table.schema.version > version
    before = table.schema_at(version) if version is not None and is_newer else None
    plan = plan_change(stored, version, before, table.schema, dialect, table.policies)
    if plan.refused:
        raise TableRefused("; ".join(plan.refused))
    by_name = {column.name: column for column in table.columns}

    def named(name: str, column: Column) -> SinkColumn:
        given = by_name[column.name]
        return given if name == column.name else replace(given, name=name, fill=None)

    return Evolution(
        renamed=renames(stored, plan),
        widened=tuple(named(name, column) for name, column in plan.widened),
        added=tuple(named(name, column) for name, column in plan.added),
        columns=stored_after(stored, plan, dialect),
        version=table.schema.version if is_newer else None,
    )


def check_creation(table: SinkTable) -> None:
    """Raises TableRefused or TableLeftOut where a policy does not let the table be made."""
    plan = plan_creation(table.schema, table.policies)
    if plan.refused:
        raise TableRefused("; ".join(plan.refused))
    if plan.ignored:
        raise TableLeftOut("; ".join(plan.ignored))


def log_evolution(table: SinkTable, changes: Evolution) -> None:
    """Log that columns have changed."""
    if changes.changes_columns:
        log.info(
            "sink_table_evolved",
            table=str(table.name),
            renamed=dict(changes.renamed),
            added=[column.name for column in changes.added],
            widened=[column.name for column in changes.widened],
        )


def stored_columns(columns: Mapping[str, TableColumn]) -> dict[str, StoredColumn]:
    """A table's columns in the form of ``libs.warehouse.schema_changes``."""
    return {name: column.stored for name, column in columns.items() if column.stored is not None}


def stored_key(columns: Mapping[str, TableColumn], version: int | None, table: SinkTable) -> tuple[str, ...]:
    """The source's key by the names that its columns have in the table now, before anything is done."""
    at = table.schema.version if version is None else min(version, table.schema.version)
    names = {
        name_at(name, column.stored.former_names if column.stored else (), at).lower(): name
        for name, column in columns.items()
        if column.stored is None or column.stored.variant_of is None
    }
    called = {column.name: column.name_at(at) for column in table.schema.columns}
    return tuple(names.get(called.get(name, name).lower(), name) for name in table.key)
