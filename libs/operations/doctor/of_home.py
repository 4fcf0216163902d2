"""An embedded stack, before it starts and while it runs: its folder, documents, ports, processes and faults."""

import os
from collections.abc import Iterator
from typing import Final

import psutil

from libs.errors import HeadwaterError
from libs.mesh.documents import Documents
from libs.mesh.home import Home, is_initialised
from libs.mesh.mesh import stack_kafka
from libs.mesh.state import StackState, leftovers, read_ports, read_state
from libs.mesh.tenant_topics import topic_names
from libs.operations.doctor.report import Finding, answered, fault, warning, well
from libs.operations.status import gather_status
from libs.servers.ports import is_free
from libs.types.fault import Fault, Severity

_OTHERS: Final = 0o077
_NAMED: Final = 10
"""Findings of one kind; how many there are beside them is said."""


def folder(home: Home) -> Iterator[Finding]:
    """Whether it is a home, its owner, and the other users that can read it."""
    if not is_initialised(home):
        yield fault(
            "home", "folder", f"{home.root} is no Headwater home", "run `headwater init`, or name one with --home"
        )
        return
    owner = home.root.stat().st_uid
    if owner != os.getuid():
        said = f"{home.root} belongs to the user with id {owner}"
        yield fault("home", "folder", said, "run headwater as that user, or change the owner of the whole folder")
    else:
        yield well("home", "folder", str(home.root))
    for path in (home.data_dir, home.logs_dir, home.run_dir, home.warehouse_dir):
        if path.exists() and not os.access(path, os.W_OK | os.X_OK):
            yield fault("home", path.name, f"{path}: you may not write here", "change the owner of the whole folder")
    open_to_others = [
        path
        for path in (home.root, home.sources_dir, home.run_dir, home.keys_dir, *sorted(home.sources_dir.glob("*.yaml")))
        if path.exists() and path.stat().st_mode & _OTHERS
    ]
    # A file within a folder that nobody else enters is private under any mode of its own.
    if open_to_others and home.root in open_to_others:
        names = ", ".join(str(path.relative_to(home.root.parent)) for path in open_to_others[:_NAMED])
        remedy = f"run `chmod -R go= {home.root}`; `headwater up` does the same"
        yield warning("home", "permissions", f"other users of this machine can read {names}", remedy)
    else:
        yield well("home", "permissions", "nobody else can read it")


def documents_of(home: Home, documents: Documents) -> Iterator[Finding]:
    """Each mistake, and the documents in force."""
    correct = "correct the document at that place; `headwater validate` lists every mistake"
    for subject, mistakes in (
        ("sources", documents.source_mistakes),
        ("warehouses.yaml", documents.warehouse_mistakes),
        ("kafka.yaml", documents.kafka_mistakes),
        ("schema_registry.yaml", documents.schema_registry_mistakes),
        ("openlineage.yaml", documents.openlineage_mistakes),
        ("topic_quotas.yaml", documents.topic_quotas_mistakes),
        ("tenants", documents.tenant_mistakes),
    ):
        for mistake in mistakes[:_NAMED]:
            yield fault("documents", subject, mistake, correct)
        if len(mistakes) > _NAMED:
            yield fault("documents", subject, f"{len(mistakes) - _NAMED} more mistakes", correct)
    for subject, folder_, names in (
        ("sources", home.sources_dir, [f"{name} ({each.kind})" for name, each in documents.sources.items()]),
        ("tenants", home.tenants_dir, list(documents.tenants)),
    ):
        if names:
            beside = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            yield well("documents", subject, f"{', '.join(names[:_NAMED])}{beside}")
        elif not any(folder_.glob("*.yaml")):
            remedy = f"copy an example in {folder_} to a name that ends in .yaml, and edit it"
            yield warning("documents", subject, "there is none: nothing is delivered", remedy)


def ports_of(home: Home) -> Iterator[Finding]:
    """Of a stack that is down: whether its ports of last time are free."""
    taken = {name: port for name, port in read_ports(home).items() if not is_free(port)}
    for name, port in taken.items():
        remedy = (
            "end that program, or run `headwater up`: it chooses another port, which your own clients must then use"
        )
        yield warning("ports", f"port {port} of {name}", f"{_listener(port)} listens on it", remedy)
    if not taken:
        yield well("ports", "ports", f"{len(read_ports(home)) or 'none'} kept from an earlier start, none taken")


def _listener(port: int) -> str:
    """The process that listens on a port of this machine, as far as this user may know."""
    try:
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and getattr(each.laddr, "port", None) == port and each.pid:
                return f"process {each.pid} ({psutil.Process(each.pid).name()})"
    except psutil.Error:
        pass
    return "another program"


def stopped_stack(home: Home) -> Iterator[Finding]:
    """Of a stack that is down: the remains of a killed supervisor."""
    state = read_state(home)
    left = leftovers(state) if state is not None else ()
    if left:
        named = ", ".join(f"{each.pid}" for each in left[:_NAMED])
        said = f"{len(left)} process(es) of a killed stack still run: {named}"
        yield warning("stack", "processes", said, f"run `headwater up --home {home.root}`, which ends them first")
    else:
        yield well("stack", "processes", f"none runs; `headwater up --detach --home {home.root}` starts it")


def running_stack(home: Home, state: StackState, documents: Documents) -> Iterator[Finding]:
    """Its Kafka, and all that `headwater status` finds wrong."""
    yield answered(
        "servers", "Kafka", lambda: f"{len(topic_names(stack_kafka(home))):,} topics", "look at `headwater logs kafka`"
    )
    try:
        found = gather_status(home, state, documents)
    except HeadwaterError as error:
        yield fault("stack", "status", str(error), "look at `headwater logs --level warning`")
        return
    named = {each.scope.process for each in found.faults}
    yield from (of_fault("stack", each) for each in found.faults)
    for process in found.processes:
        if process.phase != "up" and process.name not in named:
            said = f"{process.phase}{': ' if process.detail else ''}{process.detail}"
            yield warning("stack", f"process {process.name}", said, f"look at `headwater logs {process.name}`")
    for unknown in found.unknown:
        yield warning("stack", "status", unknown, "look at `headwater logs --level warning`")
    up = sum(each.phase == "up" for each in found.processes)
    yield well("stack", "processes", f"{up} of {len(found.processes)} are up")


def of_fault(area: str, found: Fault) -> Finding:
    """A fault of the running mesh as a finding."""
    make = warning if found.severity is Severity.DEGRADED else fault
    command = f" `{found.command}`" if found.command else ""
    return make(area, str(found.scope) or found.id, f"{found.id}: {found.happened}", f"{found.remedy}{command}")
