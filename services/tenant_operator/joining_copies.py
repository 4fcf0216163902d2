"""Tenants that join a source: their tables are noticed, and the copies of their rows asked for."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from libs.errors import (
    HeadwaterError,
    ServiceUnavailable,
)
from libs.failpoints import failpoint
from libs.source.signal_topic import send_signal
from libs.source.signals import snapshot_for_tenant
from libs.types.table import TableId, TableSchema
from services.tenant_operator.failures import Failures
from services.tenant_operator.joining import Joining, asked, asks_for_tables, begun, captured, must_wait, noticed
from services.tenant_operator.judge import InForce, Standing, parse_document, sources_of_new
from services.tenant_operator.kubernetes_client import Conflict, side_by_side
from services.tenant_operator.objects import (
    TenantConfigMap,
    TenantRecord,
)
from services.tenant_operator.records import Records
from services.tenant_operator.settings import CapturedSource, JoiningSettings, TenantOperatorSettings

SchemasOf = Callable[[str], Awaitable[Sequence[TableSchema]]]
"""The tables of a source that are there now; raises ServiceUnavailable."""

log = structlog.get_logger()


class JoiningCopies:
    """The tables that joining tenants see, and the signals that have them copied."""

    def __init__(
        self, settings: TenantOperatorSettings, records: Records, schemas_of: SchemasOf, now: Callable[[], datetime]
    ) -> None:
        self._settings = settings
        self._records = records
        self._schemas_of = schemas_of
        self._now = now

    async def new_sources(self) -> set[str]:
        """Sources that are new to this look: present tenants get their rows by the first copy."""
        if self._settings.joining is None:
            return set()
        return {source.name for source in self._settings.joining.sources} - await self._records.known_sources()

    async def note_sources(self) -> None:
        """After the records of all present tenants: an operator that is killed between finds the sources new once more. One
        that could not be recorded joins later, and has some rows twice; waiting for it would keep others from joining at all.
        """
        assert self._settings.joining is not None
        await self._records.note_sources({each.name for each in self._settings.joining.sources})

    async def tables_of_new_documents(
        self, config_maps: Sequence[TenantConfigMap], records: Sequence[TenantRecord]
    ) -> dict[str, Sequence[TableSchema]]:
        """Of the sources that they name, all that are known, also those that no reader reads; without sources of which nobody
        can be asked now, so that nobody waits for it."""
        if self._settings.joining is None:
            return {}
        named = sources_of_new(
            config_maps,
            records,
            parse=parse_document,
            largest_document_bytes=self._settings.largest_document_bytes,
        )
        tables: dict[str, Sequence[TableSchema]] = {}
        for source in self._settings.joining.sources:
            if source.name not in named:
                continue
            try:
                tables[source.name] = await self._schemas_of(source.name)
            except HeadwaterError as error:
                log.warning("documents_not_held_against_tables", source=source.name, reason=str(error))
        return tables

    def captured_among(self, known_tables: Mapping[str, Sequence[TableSchema]]) -> dict[str, list[TableSchema]]:
        """Of the known tables of each source those that its reader reads."""
        sources = () if self._settings.joining is None else self._settings.joining.sources
        return {each.name: _tables_read(each, known_tables[each.name]) for each in sources if each.name in known_tables}

    def joining_of(self, each: InForce, new_sources: set[str]) -> Joining:
        """A tenant's joining as far as it is known without a request."""
        known = each.record.joining
        if self._settings.joining is None:
            return known
        if new_sources:
            known = begun(known, each.spec, new_sources)
        if asks_for_tables(known, each.spec):
            return known  # once it is in force
        return noticed(known, each.spec, {}, ids=(), now_s=0)

    async def join(self, standing: Standing, failures: Failures) -> None:
        """Notice joining tenants, and have their rows copied: those whose record our own mirror shows, so routers have it."""
        settings = self._settings.joining
        if settings is None:
            return
        # Of the others the change of their record brings the next look.
        recorded = [each for each in standing.in_force if each.is_recorded]
        asking = {name for each in recorded for name in asks_for_tables(each.record.joining, each.spec)}
        tables = {name: await self._captured(name, settings) for name in sorted(asking)}

        async def join(each: InForce) -> None:
            try:
                asks = asks_for_tables(each.record.joining, each.spec)
                if asks:
                    await self._notice(each, {name: tables[name] for name in asks})
                elif each.record.joining.noticed.due:
                    await self._ask(each, settings, failures)
            except Conflict:  # the record is another already: the mirror shows it, and brings the next look
                return
            except Exception as error:
                failures.note(each.tenant, error)

        await side_by_side(join(each) for each in recorded)

    async def _captured(self, name: str, settings: JoiningSettings) -> tuple[TableId, ...] | HeadwaterError:
        """The tables of a source that its reader reads; or why they are not known now."""
        source = next((each for each in settings.sources if each.name == name), None)
        try:
            return (
                ()
                if source is None
                else tuple(table.table_id for table in _tables_read(source, await self._schemas_of(source.name)))
            )
        except HeadwaterError as error:
            return error

    async def _notice(self, each: InForce, tables: Mapping[str, tuple[TableId, ...] | HeadwaterError]) -> None:
        """Store the document's tables, and the due copies; nothing is requested before that."""
        known: dict[str, tuple[TableId, ...]] = {}
        for name, found in tables.items():
            if isinstance(found, HeadwaterError):
                raise ServiceUnavailable(f"it joins source {name}, and its rows wait: {found}") from found
            known[name] = found
        joined = noticed(
            each.record.joining,
            each.spec,
            known,
            ids=[str(uuid.uuid4()) for _ in known],
            now_s=int(self._now().timestamp()),
        )
        await self._records.store(replace(each.record, joining=joined))

    async def _ask(self, each: InForce, settings: JoiningSettings, failures: Failures) -> None:
        """Send due signals, and then note them: after a kill in between they are sent again, under the same ids."""
        known = each.record.joining
        if must_wait(known, each.spec, settings, now_s=self._now().timestamp()):
            text = f"its rows are asked for {settings.mask_key_delay_s:.0f} s after it joined: routers have its keys by then"
            failures.wait(each.tenant, text)
            return
        for copy in known.noticed.due:
            failpoint("joining_after_noting_before_sending")
            text = snapshot_for_tenant(copy.signal_id, each.tenant, copy.tables)
            await asyncio.to_thread(send_signal, self._settings.kafka, copy.source, text)
            failpoint("joining_after_sending_before_noting")
            log.info(
                "joining_copy_asked",
                tenant_id=each.tenant,
                source=copy.source,
                tables=len(copy.tables),
                signal_id=copy.signal_id,
            )
            known = asked(known, copy)
        await self._records.store(replace(each.record, joining=known))


def _tables_read(source: CapturedSource, known: Sequence[TableSchema]) -> list[TableSchema]:
    """Of the source's tables those that its reader reads: schema_history knows others beside them."""
    schemas = {schema.table_id: schema for schema in known}
    return [schemas[table_id] for table_id in captured(source, schemas)]
