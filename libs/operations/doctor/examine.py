"""``headwater doctor``: everything that a stack or a mesh needs, looked at without changing anything.

    examine_home    machine ▶ set-up ▶ folder ▶ documents ▶ ports or processes ▶ servers that the documents name
    examine_mesh    Kafka ▶ services and their faults ▶ servers that the file for --mesh names

Each look answers for itself: one that fails is a finding, and the others are made all the same.
"""

import time
from collections.abc import Iterable
from typing import Final

from libs.errors import InvalidSettings
from libs.mesh.documents import read_documents
from libs.mesh.home import Home, is_initialised
from libs.mesh.mesh_settings import MeshSettings, mesh_sources
from libs.mesh.state import holder, read_state
from libs.operations.doctor import machine, of_home, servers
from libs.operations.doctor.report import DoctorReport, Finding, fault, warning, well, worst_first
from libs.operations.status import gather_mesh_status
from libs.operations.versions import versions

_SERVICES: Final = "bring it back: its pod's log and `kubectl describe` have the reason"


def examine_home(home: Home) -> DoctorReport:
    """Of an embedded stack that runs or does not; a few seconds at most, but for servers that do not answer."""
    state = read_state(home) if holder(home) is not None else None
    findings = [*machine.machine(home.root, is_running=state is not None), *machine.set_up(), *of_home.folder(home)]
    if is_initialised(home):
        documents = read_documents(home)
        findings += of_home.documents_of(home, documents)
        if state is None:
            findings += [*of_home.ports_of(home), *of_home.stopped_stack(home)]
        else:
            findings += of_home.running_stack(home, state, documents)
        findings += servers.sources(documents.sources, home)
        findings += servers.warehouses(documents.servers.postgresql, documents.servers.clickhouse)
        findings += servers.schema_registry(documents.schema_registry)
    return _report(str(home.root), findings)


def examine_mesh(settings: MeshSettings, shown_as: str) -> DoctorReport:
    """Of a mesh that no home holds, as far as its file names it."""
    findings = [servers.kafka(settings.kafka)]
    try:
        documents = mesh_sources(settings) if settings.sources else {}
    except InvalidSettings as error:
        documents = {}
        findings += [fault("mesh", shown_as, each, "correct the file for --mesh") for each in error.mistakes]
    else:
        findings += _services(settings, shown_as)
    findings += servers.sources(documents, None)
    findings += servers.warehouses(settings.warehouses.postgresql, settings.warehouses.clickhouse)
    return _report(shown_as, findings)


def _services(settings: MeshSettings, shown_as: str) -> Iterable[Finding]:
    if not settings.services:
        remedy = "name each service with its gRPC address, as docs/cli.md has it for status"
        yield warning("mesh", "services", f"{shown_as} names none: their faults are not seen", remedy)
        return
    found = gather_mesh_status(settings, shown_as)
    yield from (of_home.of_fault("mesh", each) for each in found.faults)
    named = {each.scope.process for each in found.faults}
    for process in found.processes:
        if process.phase != "up" and process.name not in named:
            yield fault("mesh", f"process {process.name}", process.detail or process.phase, _SERVICES)
    yield from (warning("mesh", "status", unknown, _SERVICES) for unknown in found.unknown)
    up = sum(each.phase == "up" for each in found.processes)
    yield well("mesh", "services", f"{up} of {len(found.processes)} answer")


def _report(place: str, findings: Iterable[Finding]) -> DoctorReport:
    return DoctorReport(
        written_at_us=time.time_ns() // 1_000, place=place, versions=versions(), findings=worst_first(findings)
    )
