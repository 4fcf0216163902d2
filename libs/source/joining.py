"""Which tables a tenant gets that it did not get before, and so lacks the rows they have already: plain values.

A watcher of tenants' documents keeps a ``NoticedTenant`` for each, durably, and sends its ``due`` copies as signals:

    notice ▶ store ▶ send each that is due ▶ sent ▶ store

Killed anywhere between, it sends again, and the reader acts once by the signal's id (``libs.source.incremental``).

A table joins where the tenant's *document* begins to let it through. One that is new at the source, or that the source's own
document lets through from now on, does not: its rows come to everybody alike.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from libs.tenants.view import is_selected
from libs.types.table import TableId
from libs.types.tenant import SourceSelection, TenantSpec

ID_PREFIX: Final = "joining-"


class SeenTables(msgspec.Struct, frozen=True, kw_only=True):
    """Which tables of a source a document lets through: the part of a ``SourceSelection`` that decides it."""

    include_tables: tuple[str, ...]
    exclude_tables: tuple[str, ...] = ()


class DueCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy that is to be asked for."""

    signal_id: str
    source: str
    tables: tuple[str, ...]
    """Names ``database.table``."""


class NoticedTenant(msgspec.Struct, frozen=True, kw_only=True):
    """The noticed tables of a tenant, and those not requested yet."""

    seen: Mapping[str, SeenTables] = {}
    """By source."""
    due: tuple[DueCopy, ...] = ()


NOBODY: Final = NoticedTenant()
"""A tenant of which nothing was noticed: all that it sees joins."""


def begins_with(known: NoticedTenant, spec: TenantSpec, sources: Iterable[str]) -> NoticedTenant:
    """The tenant is there before these sources are first read: their first copy includes its rows."""
    new = set(sources)
    return msgspec.structs.replace(
        known, seen={**known.seen, **{each.name: _seen(each) for each in spec.sources if each.name in new}}
    )


def changed_sources(known: NoticedTenant, spec: TenantSpec) -> list[str]:
    """The sources of which the document lets other tables through than was noticed; those that it names no more too."""
    now = {each.name: _seen(each) for each in spec.sources}
    return sorted(name for name in now.keys() | known.seen.keys() if now.get(name) != known.seen.get(name))


def notice(
    known: NoticedTenant, spec: TenantSpec, tables: Mapping[str, Iterable[TableId]], new_id: Callable[[], str]
) -> NoticedTenant:
    """The state after a look at the document in force. ``tables``: those that are captured, of each changed source.

    Copies become due where the document asks for them (``snapshot.on_joining``). A table that it does not let through any more,
    and later does again, joins again.
    """
    due = list(known.due)
    for selection in spec.sources if spec.snapshot.on_joining else ():
        before = known.seen.get(selection.name)
        joined = sorted(
            str(table_id)
            for table_id in tables.get(selection.name, ())
            if is_selected(selection, table_id) and not (before is not None and _lets_through(before, table_id))
        )
        if joined:
            due.append(DueCopy(signal_id=f"{ID_PREFIX}{new_id()}", source=selection.name, tables=tuple(joined)))
    return NoticedTenant(seen={each.name: _seen(each) for each in spec.sources}, due=tuple(due))


def sent(known: NoticedTenant, copy: DueCopy) -> NoticedTenant:
    """The signal of ``copy`` is durable in Kafka."""
    return msgspec.structs.replace(known, due=tuple(each for each in known.due if each != copy))


def _seen(selection: SourceSelection) -> SeenTables:
    return SeenTables(include_tables=selection.include_tables, exclude_tables=selection.exclude_tables)


def _lets_through(seen: SeenTables, table_id: TableId) -> bool:
    as_selection = SourceSelection(name="", include_tables=seen.include_tables, exclude_tables=seen.exclude_tables)
    return is_selected(as_selection, table_id)
