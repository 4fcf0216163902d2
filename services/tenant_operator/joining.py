"""Tenants that join, and tables that a tenant sees from now on: the findings about each, as plain values.

It is kept in the tenant's record, so a restart and another operator go on with it. A notice is stored before anything is asked
for, and a signal is noted as sent once Kafka has it: an operator that is killed between the two sends it again under the same
id, and the reader acts once (``libs.source.joining``, which decides who joins; ADR 7).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from libs.source.joining import NOBODY, DueCopy, NoticedTenant, begins_with, changed_sources, notice, sent
from libs.source.kinds import KINDS_WITHOUT_SIGNALS
from libs.types.table import TableId
from libs.types.tenant import TenantSpec
from services.tenant_operator.settings import CapturedSource, JoiningSettings

_TABLES_TOLD: Final = 20
"""By name: a record has a megabyte at most."""


class AskedCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy that a source's reader was asked for; of many tables the first."""

    signal_id: str
    source: str
    tables: tuple[str, ...]
    tables_more: int = 0


class Joining(msgspec.Struct, frozen=True, kw_only=True):
    """The joining part of a tenant's record."""

    noticed: NoticedTenant = NOBODY
    noticed_at_s: int = 0
    """When copies became due last, in seconds since 1970."""
    asked: tuple[AskedCopy, ...] = ()
    """The copies that were asked for last."""


NOTHING_NOTICED: Final = Joining()


def joining_mistakes(
    spec: TenantSpec, settings: JoiningSettings | None, *, known: Sequence[str] | None = None
) -> list[str]:
    """Why the rows that a document asks for cannot be had. A source outside of ``known`` is reported elsewhere."""
    if not spec.snapshot.on_joining:
        return []
    if settings is None:
        return [
            "snapshot.on_joining: cannot be done, for the operator lacks the addresses of schema_history and "
            "sources (its setting `joining`); set false, and ask for the rows by a signal with data.tenants (docs/snapshots.md)"
        ]
    kinds = {source.name: source.kind for source in settings.sources}
    mistakes = []
    for index, selection in enumerate(spec.sources):
        if known is not None and selection.name not in known:
            continue
        if selection.name not in kinds:
            mistakes.append(
                f"sources[{index}].name: {selection.name!r} is no source of this mesh "
                f"({', '.join(sorted(kinds)) or 'there is none'}), so nobody can be asked for its rows; name one of these, or "
                "set snapshot.on_joining: false"
            )
        elif kinds[selection.name] in KINDS_WITHOUT_SIGNALS:
            mistakes.append(
                f"snapshot.on_joining: source {selection.name!r} is a DTS subscription, whose reader copies nothing for one "
                "tenant; take it out, or set false"
            )
    return mistakes


def begun(known: Joining, spec: TenantSpec, new_sources: Iterable[str]) -> Joining:
    """The tenant is there before these sources are first read: their first copy includes it."""
    return msgspec.structs.replace(known, noticed=begins_with(known.noticed, spec, new_sources))


def asks_for_tables(known: Joining, spec: TenantSpec) -> list[str]:
    """The sources whose tables are needed to compare the document with before."""
    changed = changed_sources(known.noticed, spec)
    return [each.name for each in spec.sources if each.name in changed] if spec.snapshot.on_joining else []


def noticed(
    known: Joining, spec: TenantSpec, tables: Mapping[str, Sequence[TableId]], *, ids: Iterable[str], now_s: int
) -> Joining:
    """With the document in force, and the copies that are due by it."""
    if not changed_sources(known.noticed, spec):
        return known
    unused = iter(ids)
    found = notice(known.noticed, spec, tables, lambda: next(unused))
    is_due = found.due != known.noticed.due
    return msgspec.structs.replace(
        known,
        noticed=found,
        noticed_at_s=now_s if is_due else known.noticed_at_s,
        asked=() if is_due else known.asked,
    )


def must_wait(known: Joining, spec: TenantSpec, settings: JoiningSettings, *, now_s: float) -> bool:
    """Whether routers may lack a key of the tenant's masks yet, and would deliver nothing of the copies that are due."""
    has_keys = any(mask.key_from is not None for source in spec.sources for mask in source.masks)
    return has_keys and now_s < known.noticed_at_s + settings.mask_key_delay_s


def asked(known: Joining, copy: DueCopy) -> Joining:
    """The signal of ``copy`` is durable in Kafka."""
    asked_now = AskedCopy(
        signal_id=copy.signal_id,
        source=copy.source,
        tables=copy.tables[:_TABLES_TOLD],
        tables_more=len(copy.tables[_TABLES_TOLD:]),
    )
    return msgspec.structs.replace(known, noticed=sent(known.noticed, copy), asked=(*known.asked, asked_now))


def captured(source: CapturedSource, tables: Iterable[TableId]) -> tuple[TableId, ...]:
    """Of the tables that are known, those that the source's reader reads."""
    return tuple(
        table_id
        for table_id in tables
        if any(re.fullmatch(pattern, str(table_id)) for pattern in source.include_tables)
        and not any(re.fullmatch(pattern, str(table_id)) for pattern in source.exclude_tables)
    )


def listed(copies: Sequence[AskedCopy]) -> str:
    """The copies, for a person."""
    return "; ".join(f"{_shown(copy)} of {copy.source} (signal {copy.signal_id})" for copy in copies)


def _shown(copy: AskedCopy) -> str:
    more = f" and {copy.tables_more} more" if copy.tables_more else ""
    return ", ".join(copy.tables) + more
