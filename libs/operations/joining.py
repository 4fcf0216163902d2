"""Notices tenants that join, and tables that a tenant sees from now on, and has their rows copied to that tenant alone.

A thread of ``headwater up`` looks at the tenants' documents as the router does. Its findings about each tenant are in
``<home>/data/joining/<tenant>.json``, and stored before anything is asked for: a stack that is killed between the two asks at
its next start, and a copy that was asked for twice is one (``libs.source.joining``). The router needs no message: rows that
are addressed to a tenant have it look at the documents before they pass.
"""

import contextlib
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from libs.durable_file import replace_durably
from libs.errors import HeadwaterError, InvalidSettings
from libs.failpoints import failpoint
from libs.mesh.documents import Documents, DtsDocument, mask_keys
from libs.mesh.home import Home
from libs.mesh.mesh import stack_kafka
from libs.operations.tenant_snapshot import captured_tables, send_for_tenant
from libs.operations.tenant_versions import documents_of
from libs.source.joining import NOBODY, DueCopy, NoticedTenant, begins_with, changed_sources, notice, sent
from libs.tenants.document import TenantFolder
from libs.tenants.row_filter import condition_mistakes
from libs.types.table import TableId
from libs.types.tenant import TenantSpec

_LOOK_S: Final = 1.0
_RETRY_S: Final = 5.0
"""After Kafka or a service did not answer, as while the stack starts."""
_END_TIMEOUT_S: Final = 15.0
_SOURCES_FILE: Final = ".sources.json"
"""The sources that were planned at an earlier start; its dot keeps it apart from tenants'."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The thread's access to the world."""

    captured: Callable[[str], Iterable[TableId]]
    """The tables of a source that its reader reads; raises HeadwaterError: not now."""
    send: Callable[[str, DueCopy], None]
    """A tenant's signal, durable on return; raises HeadwaterError: not now."""
    tell: Callable[[str], None] = lambda _: None
    """Somebody may want to know."""


def joining_path(home: Home, tenant: str) -> Path:
    """The findings about a tenant."""
    return _folder(home) / f"{tenant}.json"


def note_beginnings(home: Home, documents: Documents) -> None:
    """Before readers are started: the tenants of today get a new source's rows by its first copy, not by one of their own.
    Those of a home that knows nothing of joining yet keep their rows: none of them joins."""
    try:
        planned = set(msgspec.json.decode((_folder(home) / _SOURCES_FILE).read_bytes(), type=list[str]))
    except (FileNotFoundError, msgspec.DecodeError):
        planned = set()
    new = documents.sources.keys() - planned
    if not new:
        return
    for tenant, spec in documents.tenants.items():
        _store(joining_path(home, tenant), begins_with(_load(home, tenant), spec, new))
    _store(_folder(home) / _SOURCES_FILE, sorted(planned | new))


def take_in(home: Home, spec: TenantSpec, around: Surroundings) -> None:
    """Read a tenant's present document, and request due copies. May be killed anywhere, and is called again.

    Raises:
        HeadwaterError: something did not answer; due copies stay due.
    """
    known = _load(home, spec.tenant)
    changed = changed_sources(known, spec)
    if changed:
        asks = {each.name for each in spec.sources} & set(changed) if spec.snapshot.on_joining else set()
        tables = {source: tuple(around.captured(source)) for source in sorted(asks)}
        known = notice(known, spec, tables, lambda: str(uuid.uuid4()))
        _store(joining_path(home, spec.tenant), known)
    for copy in known.due:
        failpoint("joining_after_noting_before_sending")
        around.send(spec.tenant, copy)
        failpoint("joining_after_sending_before_noting")
        known = sent(known, copy)
        _store(joining_path(home, spec.tenant), known)
        around.tell(f"tenant {spec.tenant} joins {', '.join(copy.tables)} of {copy.source}: its rows are copied to it")


def due_copies(home: Home) -> dict[str, tuple[DueCopy, ...]]:
    """By tenant, the findings that are not requested yet."""
    tenants = sorted(path.stem for path in _folder(home).glob("[!.]*.json"))
    return {tenant: due for tenant in tenants if (due := _load(home, tenant).due)}


@contextlib.contextmanager
def watched_joining(home: Home, documents: Documents, tell: Callable[[str], None]) -> Iterator[None]:
    """Notice and request in a thread, beside the block."""
    ends = threading.Event()
    thread = threading.Thread(target=_watch, args=(home, documents, tell, ends), name="joining", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join(_END_TIMEOUT_S)


def _watch(home: Home, documents: Documents, tell: Callable[[str], None], ends: threading.Event) -> None:
    def captured(source: str) -> Iterable[TableId]:
        document = documents.sources.get(source)
        # Of a source that was added since, the next start knows; of a subscription there is nothing to ask for.
        return () if document is None or isinstance(document, DtsDocument) else captured_tables(home, source, document)

    def send(tenant: str, copy: DueCopy) -> None:
        send_for_tenant(stack_kafka(home), tenant, copy.source, copy.tables, copy.signal_id)

    around = Surroundings(captured, send, tell)
    folder = TenantFolder(home.tenants_dir, check_condition=condition_mistakes, check_key=mask_keys(home).mistake)
    waiting: dict[str, TenantSpec] = {}
    reported: dict[str, str] = {}
    while not ends.is_set():
        if (found := folder.refresh()) is not None:
            waiting = {spec.tenant: spec for spec in found.tenants}
            _forget_gone(home, waiting.keys())
        for tenant, spec in list(waiting.items()):
            try:
                take_in(home, spec, around)
            except HeadwaterError as error:
                if reported.get(tenant) != str(error):
                    tell(f"tenant {tenant} joins, and its rows wait: {error}")
                reported[tenant] = str(error)
            else:
                del waiting[tenant]
                reported.pop(tenant, None)
        ends.wait(_RETRY_S if waiting else _LOOK_S)


def _forget_gone(home: Home, in_force: Iterable[str]) -> None:
    """Whose document is away joins again when it comes back; a document with mistakes is still one."""
    for path in _folder(home).glob("[!.]*.json"):
        if path.stem not in in_force and not documents_of(home, path.stem):
            path.unlink(missing_ok=True)


def _folder(home: Home) -> Path:
    return home.data_dir / "joining"


def _load(home: Home, tenant: str) -> NoticedTenant:
    try:
        return _decoder.decode(joining_path(home, tenant).read_bytes())
    except FileNotFoundError:
        return NOBODY
    except msgspec.DecodeError as error:
        path = joining_path(home, tenant)
        raise InvalidSettings(str(path), [f"cannot be read: {error}; remove it, and the tenant joins again"]) from error


def _store(path: Path, value: object) -> None:
    replace_durably(path, msgspec.json.encode(value), writer=str(os.getpid()))


_decoder = msgspec.json.Decoder(NoticedTenant)
