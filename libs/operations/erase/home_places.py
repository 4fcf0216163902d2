"""The places of a home (``Places``): documents, Kafka, warehouses, files of state, reports of progress."""

import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from libs.errors import HeadwaterError
from libs.failpoints import failpoint
from libs.mesh.documents import Documents
from libs.mesh.home import Home
from libs.mesh.mesh import stack_kafka
from libs.mesh.processes import KAFKA, ROUTER, SINK
from libs.mesh.sink_state import sink_progress
from libs.mesh.state import read_ports, running_state
from libs.operations.erase.documents import held_documents, mask_key_names, remove_documents
from libs.operations.erase.held import Held
from libs.operations.erase.kafka import deleted_folders, held_in_kafka, remove_from_kafka, retention_of_changes
from libs.operations.erase.places import Erasure, NotLetGo, OnProgress
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

_POLL_S: Final = 0.5
_ANSWER_S: Final = 3.0
_SERVED: Final = {ROUTER: "headwater_router_served", SINK: "headwater_sink_served"}
"""The gauge of each process that has the tenants whose topics or tables it may write (``libs.telemetry.metrics``)."""


@dataclass(frozen=True, slots=True)
class HomePlaces:
    """See ``Places``."""

    home: Home
    documents: Documents

    @property
    def notes_dir(self) -> Path:
        return self.home.data_dir

    @property
    def tenants(self) -> Sequence[str]:
        return sorted(self.documents.tenants)

    def known(self, tenant: str) -> Erasure:
        running_state(self.home)
        progress = sink_progress(self.home, tenant)
        spec = self.documents.tenants.get(tenant)
        return Erasure(
            tenant=tenant,
            begun_at_us=0,
            held=(),
            query_ids=(progress.query_id,) if progress is not None and progress.query_id else (),
            sources=tuple(sorted({selection.name for selection in spec.sources})) if spec is not None else (),
            keys=tuple(sorted(set(mask_key_names(self.home, self.documents, tenant)))),
            elsewhere=tuple(elsewhere(self.home, tenant)),
        )

    def held(self, erasure: Erasure) -> list[Held]:
        home, documents, tenant = self.home, self.documents, erasure.tenant
        return [
            *held_documents(home, tenant),
            *held_in_kafka(stack_kafka(home), tenant, home.data_dir / KAFKA / "logs"),
            *held_in_files(home, tenant),
            *held_in_postgresql(home, documents, tenant, erasure.query_ids),
            *held_in_clickhouse(documents, tenant, erasure.query_ids),
            *held_state(home, tenant),
            *held_progress(home, tenant),
        ]

    def take_out(self, tenant: str) -> None:
        remove_documents(self.home, tenant)

    def wait_until_let_go(self, tenant: str, *, timeout_s: float, on_progress: OnProgress) -> None:
        wait_until_let_go(self.home, tenant, timeout_s=timeout_s, on_progress=on_progress)

    def empty(self, erasure: Erasure, on_progress: OnProgress) -> None:
        home, documents, tenant = self.home, self.documents, erasure.tenant
        on_progress("removing topics")
        remove_from_kafka(stack_kafka(home), tenant)
        failpoint("erase_after_kafka")
        on_progress("removing tables")
        remove_files(home, tenant)
        remove_from_postgresql(home, documents, tenant, erasure.query_ids)
        remove_from_clickhouse(documents, tenant, erasure.query_ids)
        failpoint("erase_after_tables")
        remove_state(home, tenant)
        failpoint("erase_after_state")
        forget_progress(home, tenant)

    def forget_again(self, tenant: str) -> None:
        forget_progress(self.home, tenant)

    def stays(self, erasure: Erasure) -> list[str]:
        return what_stays(self.home, erasure)


def wait_until_let_go(home: Home, tenant: str, *, timeout_s: float, on_progress: OnProgress) -> None:
    """Return when neither router nor sink writes for ``tenant`` any more, nor will, its document being away.

    First their kept copy goes, which says that they have read the folder without the document, then the tenant leaves the gauge
    of those that are served, which says that their last transaction or batch for it has ended.

    Raises:
        NotLetGo: it still holds the tenant after ``timeout_s``.
    """
    deadline_s = time.monotonic() + timeout_s
    planned = {service.name for service in running_state(home).services}
    for process in (ROUTER, SINK):
        if process not in planned:
            continue
        while (because := _still_holds(home, process, tenant)) is not None:
            if time.monotonic() > deadline_s:
                raise NotLetGo(
                    f"{process} still holds tenant {tenant} after {timeout_s:.0f} s ({because}): see `headwater status`, "
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
        "the rows at the source, in backups and snapshots of disks, in a PostgreSQL's write-ahead log, and with consumers "
        "of the topics or tables: their owners erase those",
    ]


def _retention(home: Home, source: str) -> str:
    try:
        return retention_of_changes(stack_kafka(home), source)
    except HeadwaterError:
        return "for its retention"
