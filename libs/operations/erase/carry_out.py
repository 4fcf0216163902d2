"""Everything that a home holds of one tenant goes: ``headwater erase``.

    list everything ▶ take the document out ▶ wait until router and sink have let go ▶ Kafka ▶ warehouses ▶ files of state
                       ▶ reports of progress ▶ look everywhere again

The list stands in ``<home>/data/erasures/<tenant>.json`` before anything is changed, until nothing of it is left. Every
step may be done again, so a command that was killed is taken up by the next one from its beginning.
"""

import re
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from libs.errors import HeadwaterError, InvalidSettings, TransientError
from libs.failpoints import failpoint
from libs.mesh.documents import Documents
from libs.mesh.home import Home
from libs.mesh.processes import ROUTER, SINK
from libs.mesh.sink_state import sink_progress
from libs.mesh.state import read_ports, replace_file, running_state
from libs.operations.erase.documents import held_documents, mask_key_names, remove_documents
from libs.operations.erase.held import Held
from libs.operations.erase.kafka import deleted_folders, held_in_kafka, remove_from_kafka, retention_of_changes
from libs.operations.erase.progress import forget_progress, held_progress
from libs.operations.erase.state import held_state, kept_copies, remove_state
from libs.operations.erase.warehouses import (
    elsewhere,
    held_in_clickhouse,
    held_in_files,
    held_in_postgresql,
    remove_files,
    remove_from_clickhouse,
    remove_from_postgresql,
)
from libs.servers.ports import LOOPBACK
from libs.types.tenant import TENANT_NAME

_POLL_S: Final = 0.5
_ANSWER_S: Final = 3.0
_SETTLED_S: Final = 60.0
"""How long removed things may still be listed: Kafka's metadata, and a last report of progress."""
_SERVED: Final = {ROUTER: "headwater_router_served", SINK: "headwater_sink_served"}
"""The gauge of each process that has the tenants whose topics or tables it may write (``libs.telemetry.metrics``)."""

OnProgress = Callable[[str], None]


class NotLetGo(TransientError):
    """Router or sink may still write for the tenant: nothing but its document was taken away; see `headwater status`."""


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """One that has begun: the list from its start."""

    tenant: str
    begun_at_us: int
    """Microseconds since 1970."""
    held: tuple[Held, ...]
    query_ids: tuple[str, ...] = ()
    """Of the tenant's streaming query: its stages in PostgreSQL and ClickHouse are called by it."""
    sources: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    """Where the keys of its masks are."""
    elsewhere: tuple[str, ...] = ()
    """Folders of its tables outside of the home's warehouse."""


class ErasureReport(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended."""

    tenant: str
    removed: tuple[Held, ...]
    """Looked for again, and not found."""
    left: tuple[Held, ...]
    """Found again. Empty where it was all removed."""
    stays: tuple[str, ...]
    """Things that no command of Headwater's removes, and why."""


def look(home: Home, documents: Documents, tenant: str) -> Erasure:
    """Everything of ``tenant`` now, or when an erasure of it began. The stack must be up; nothing is changed.

    Raises:
        InvalidSettings: no tenant can be called so.
        NotUp: no stack runs.
        TransientError, AccessDenied, PipelineHalted: one of the places does not answer; it says which.
    """
    _check_name(tenant)
    running_state(home)
    begun = unfinished(home, tenant)
    progress = sink_progress(home, tenant)
    query_ids = {progress.query_id} if progress is not None and progress.query_id else set()
    spec = documents.tenants.get(tenant)
    sources = {selection.name for selection in spec.sources} if spec is not None else set()
    keys, outside = set(mask_key_names(home, documents, tenant)), set(elsewhere(home, tenant))
    if begun is not None:
        query_ids, sources = query_ids | set(begun.query_ids), sources | set(begun.sources)
        keys, outside = keys | set(begun.keys), outside | set(begun.elsewhere)
    there = everything(home, documents, tenant, sorted(query_ids))
    return Erasure(
        tenant=tenant,
        begun_at_us=time.time_ns() // 1_000 if begun is None else begun.begun_at_us,
        held=tuple(there if begun is None else _joined(begun.held, there)),
        query_ids=tuple(sorted(query_ids)),
        sources=tuple(sorted(sources)),
        keys=tuple(sorted(keys)),
        elsewhere=tuple(sorted(outside)),
    )


def everything(home: Home, documents: Documents, tenant: str, query_ids: Sequence[str]) -> list[Held]:
    """Everything of ``tenant``, in every place. Raises as ``look``."""
    return [
        *held_documents(home, tenant),
        *held_in_kafka(home, tenant),
        *held_in_files(home, tenant),
        *held_in_postgresql(home, documents, tenant, query_ids),
        *held_in_clickhouse(documents, tenant, query_ids),
        *held_state(home, tenant),
        *held_progress(home, tenant),
    ]


def unfinished(home: Home, tenant: str) -> Erasure | None:
    """The erasure of ``tenant`` that has begun and is not done.

    Raises:
        InvalidSettings: its file is of another release, or broken.
    """
    path = _journal(home, tenant)
    try:
        return _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise InvalidSettings(str(path), [f"cannot be read: {error}; remove it, and erase again"]) from error


def carry_out(
    home: Home,
    documents: Documents,
    erasure: Erasure,
    *,
    timeout_s: float,
    on_progress: OnProgress = lambda _: None,
) -> ErasureReport:
    """Remove all of it, and look again. May be killed anywhere: call it again with the result of ``look`` then.

    Raises:
        NotLetGo: router or sink has not let the tenant go within ``timeout_s``.
        TransientError, AccessDenied, PipelineHalted: one of the places refused or did not answer; call it again.
    """
    tenant = erasure.tenant
    replace_file(_journal(home, tenant), msgspec.json.encode(erasure))
    on_progress("taking the document out")
    remove_documents(home, tenant)
    failpoint("erase_after_document")
    wait_until_let_go(home, tenant, timeout_s=timeout_s, on_progress=on_progress)
    on_progress("removing topics")
    remove_from_kafka(home, tenant)
    failpoint("erase_after_kafka")
    on_progress("removing tables")
    remove_files(home, tenant)
    remove_from_postgresql(home, documents, tenant, erasure.query_ids)
    remove_from_clickhouse(documents, tenant, erasure.query_ids)
    failpoint("erase_after_tables")
    remove_state(home, tenant)
    failpoint("erase_after_state")
    forget_progress(home, tenant)
    failpoint("erase_before_looking_again")
    left = _left_in_the_end(home, documents, erasure, on_progress)
    report = ErasureReport(
        tenant=tenant,
        removed=tuple(
            each for each in erasure.held if (each.kind, each.name) not in {(one.kind, one.name) for one in left}
        ),
        left=tuple(left),
        stays=tuple(what_stays(home, erasure)),
    )
    if not left:
        _journal(home, tenant).unlink(missing_ok=True)
    return report


def wait_until_let_go(home: Home, tenant: str, *, timeout_s: float, on_progress: OnProgress = lambda _: None) -> None:
    """Return when neither router nor sink writes for ``tenant`` any more, nor will, its document being away.

    First their kept copy goes, which says that they have read the folder without the document, then the tenant leaves the gauge
    of those that are served, which says that their last transaction or batch for it has ended.

    Raises:
        NotLetGo: it has not come to that within ``timeout_s``.
    """
    deadline_s = time.monotonic() + timeout_s
    planned = {service.name for service in running_state(home).services}
    for process in (ROUTER, SINK):
        if process not in planned:
            continue
        while (because := _still_holds(home, process, tenant)) is not None:
            if time.monotonic() > deadline_s:
                raise NotLetGo(
                    f"{process} has not let tenant {tenant} go within {timeout_s:.0f} s ({because}): see `headwater status`, "
                    "and its log; then erase again. The document is taken out, the rest is as it was"
                )
            on_progress(f"{process}: {because}")
            time.sleep(_POLL_S)


def _still_holds(home: Home, process: str, tenant: str) -> str | None:
    if kept_copies(home, process, tenant):
        return "has not read the tenants' folder since"
    try:
        with urllib.request.urlopen(
            f"http://{LOOPBACK}:{read_ports(home)[f'{process}-http']}/metrics", timeout=_ANSWER_S
        ) as answer:
            page = answer.read().decode()
    except OSError:
        return "does not answer"
    return "writes for it still" if f'{_SERVED[process]}{{tenant="{tenant}"}}' in page else None


def what_stays(home: Home, erasure: Erasure) -> list[str]:
    """Things that no command of Headwater's removes: whose work they are, and when they go by themselves."""
    stays = [
        f"rows of source {source}: in Kafka's topic of its changes, which all tenants share, {_retention(home, source)}"
        for source in erasure.sources
    ]
    folders = deleted_folders(home, erasure.tenant)
    if folders:
        stays.append(f"{folders} folder(s) of deleted topics: Kafka removes them within a minute")
    stays += [f"{key}: a key of the tenant's masks; its deletion is the owner's" for key in erasure.keys]
    stays += [
        f"{folder}: of a table that somebody put outside of the warehouse; remove it by hand"
        for folder in erasure.elsewhere
    ]
    return [
        *stays,
        "the tenant's name, and no rows: in logs/, and in Kafka's own metadata until it is compacted",
        "the rows at the source, in backups and snapshots of disks, in a PostgreSQL's write-ahead log, and with whoever "
        "consumed the topics or tables: theirs who keep those",
    ]


def _retention(home: Home, source: str) -> str:
    try:
        return retention_of_changes(home, source)
    except HeadwaterError:
        return "for its retention"


def _left_in_the_end(home: Home, documents: Documents, erasure: Erasure, on_progress: OnProgress) -> list[Held]:
    """Removed things that are found again after some time."""
    deadline_s = time.monotonic() + _SETTLED_S
    while True:
        left = everything(home, documents, erasure.tenant, erasure.query_ids)
        if not left or time.monotonic() > deadline_s:
            return left
        on_progress(f"{len(left)} thing(s) are listed still")
        time.sleep(_POLL_S)
        if any(each.kind in ("progress", "Redis field") for each in left):
            forget_progress(home, erasure.tenant)  # the router may have repeated an earlier report


def _joined(before: Sequence[Held], now: Sequence[Held]) -> list[Held]:
    known = {(each.kind, each.name) for each in before}
    return [*before, *(each for each in now if (each.kind, each.name) not in known)]


def _check_name(tenant: str) -> None:
    if not re.fullmatch(TENANT_NAME, tenant) or tenant == "headwater":
        raise InvalidSettings(f"tenant {tenant}", ["no tenant can be called so"])


def _journal(home: Home, tenant: str) -> Path:
    return home.data_dir / "erasures" / f"{tenant}.json"


_decoder: Final = msgspec.json.Decoder(Erasure)
