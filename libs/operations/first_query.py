"""The first query of a person whose stack has just come up: one table of one tenant, by name where the source is known."""

import re
from dataclasses import dataclass
from typing import Final

from libs.errors import HeadwaterError
from libs.mesh.documents import Documents
from libs.mesh.home import Home
from libs.mesh.source_tables import is_captured, known_tables
from libs.tenants.view import is_selected
from libs.types.table import TableId
from libs.types.tenant import TenantSpec

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class FirstQuery:
    """Arguments of ``headwater query``."""

    tenant: str
    sql: str | None
    """None: the tables are not known; without SQL the command lists them."""


def first_query(home: Home, documents: Documents) -> FirstQuery | None:
    """A query that a person can type now; None: no tenant has tables. Asks the sources' servers. Blocks."""
    for tenant, spec in sorted(documents.tenants.items()):
        if spec.sink is not None:
            return FirstQuery(tenant, _of_first_table(_tables(home, documents, spec)))
    return None


def _tables(home: Home, documents: Documents, spec: TenantSpec) -> list[TableId]:
    found: list[TableId] = []
    for selection in spec.sources:
        document = documents.sources.get(selection.name)
        if document is None:
            continue
        try:
            tables, _ = known_tables(home, selection.name, document)
        except HeadwaterError:  # a hint is worth no failure
            continue
        found += [table for table in tables if is_captured(document, table) and is_selected(selection, table)]
    return sorted(found, key=str)


def _of_first_table(tables: list[TableId]) -> str | None:
    if not tables:
        return None
    first = tables[0]
    is_alone = sum(table.table == first.table for table in tables) == 1
    names = [first.table] if is_alone else [first.database, first.table]
    return f"SELECT * FROM {'.'.join(name if _PLAIN.fullmatch(name) else _quoted(name) for name in names)} LIMIT 5"


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
