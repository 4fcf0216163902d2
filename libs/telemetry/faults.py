"""The faults of one process: raised where they are known, kept while they last, served at ``/faults``.

    raise_fault(SOURCE_UNREACHABLE, FaultScope(source="shop"), happened="10.0.0.7:3306: connection refused")
    …
    lift_fault(SOURCE_UNREACHABLE, FaultScope(source="shop"))

One truth for every reader of it: the log (``fault_raised``, ``fault_lifted``), the metric ``headwater_faults``, ``/readyz``
("degraded: …"), ``/faults`` (JSON), gRPC (``libs.rpc.faults``), and through these ``headwater status``, which prints the worst
first and exits with 1.
``CATALOGUE`` holds every kind; ``make docs-faults`` writes ``docs/faults.md`` from it. A process forgets its faults when it
ends: the owner of one that outlives a restart raises it again at the start, from its store, or by ``raise_again`` from the file
that the process before has left (``outliving_faults``).
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from libs.telemetry import metrics
from libs.telemetry.outliving_faults import load_faults, store_faults
from libs.types.fault import Fault, FaultScope, Severity, worst_first

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FaultKind:
    """The catalogue's entry of one kind of fault."""

    id: str
    severity: Severity
    cause: str
    remedy: str
    """For a person; a fault may name a more exact one."""
    command: str = ""
    """May name {source}, {tenant} and {table}."""
    docs: str = ""
    example: str = ""
    """What ``happened`` says, for example."""
    outlives: bool = False
    """The next process of the same supervisor has it too (``raise_again``)."""


CATALOGUE: Final[list[FaultKind]] = []
"""Every kind, in the order of this module."""


def _kind(
    id: str,
    severity: Severity,
    cause: str,
    remedy: str,
    *,
    command: str = "",
    docs: str = "",
    example: str = "",
    outlives: bool = False,
) -> FaultKind:
    kind = FaultKind(id, severity, cause, remedy, command, docs, example, outlives)
    CATALOGUE.append(kind)
    return kind


# --- readers --------------------------------------------------------------------------------------------------------

SOURCE_UNREACHABLE = _kind(
    "source_unreachable",
    Severity.HALTED,
    "A reader has no connection to its source, Kafka, or a service that it needs; it tries again by itself.",
    "Bring the server back, or correct host, port and network in the source's document; the reader goes on by itself.",
    command="headwater validate {source}",
    docs="docs/failure_modes.md",
    example="127.0.0.1:3306: connection refused; next try in 8 s",
)
READER_HALTED = _kind(
    "reader_halted",
    Severity.HALTED,
    "A reader cannot go on without a person: a password, a grant, a purged log, a schema that contradicts the log.",
    "Follow the remedy at the end of the message; the reader tries again every minute. Where it says re-snapshot: "
    "`headwater reset SOURCE`.",
    command="headwater validate {source}",
    docs="docs/failure_modes.md",
    example="AccessDenied: 1045 Access denied for user 'headwater'@'10.0.0.5': correct user and password",
)
ROWS_CHANGED_UNSEEN = _kind(
    "rows_changed_unseen",
    Severity.DIFFERS,
    "A statement changed rows of which the log holds no row event; tenants keep the rows as they were.",
    "Build each tenant's table again from the source.",
    command="headwater resync TENANT {table}",
    docs="docs/failure_modes.md",
    example="ALTER TABLE … DROP PARTITION p2025 at binlog.000042:1199",
)
CASCADES_NOT_LOGGED = _kind(
    "cascades_not_logged",
    Severity.DIFFERS,
    "A foreign key changes or deletes rows of a captured table by CASCADE or SET NULL, and the server's log has no event of "
    "it: tenants keep such rows as they were. The fault lasts as long as the foreign key.",
    "Upgrade to MySQL 9.6 or later with innodb_native_foreign_keys = OFF, or change such rows by own statements and drop the "
    "action; then build the tenants' tables again.",
    command="headwater resync TENANT {table}",
    docs="docs/failure_modes.md",
    example="shop.items: items_ibfk_1, which follows orders (ON DELETE CASCADE, ON UPDATE NO ACTION)",
)
TABLE_QUARANTINED = _kind(
    "table_quarantined",
    Severity.DIFFERS,
    "The reader passes a table's rows over, because it cannot read them rightly.",
    "Follow the message, then read the table again.",
    command="headwater signal {source} execute-snapshot {table}",
    docs="docs/failure_modes.md",
    example="shop.orders: the statement at binlog.000042:1199 could not be understood",
)
ROWS_SET_ASIDE = _kind(
    "rows_set_aside",
    Severity.DIFFERS,
    "A row could not be read and was left out, by the source's failure_handling; the others of its table go on.",
    "Follow the message about the row, then read the table again.",
    command="headwater signal {source} execute-snapshot {table}",
    docs="docs/failure_modes.md",
    example="shop.orders.note at row 0: the stored bytes are no sjis text; repair the row at the source, or exclude the table",
)
CHANGES_LOST = _kind(
    "changes_lost",
    Severity.DIFFERS,
    "Changes of a source are in no tenant's topic, and nobody knows of which tables. Its changes topic was deleted and made "
    "again before the router had read it; or the log has a change as a statement, and the reader's user may not see what it "
    "changed. It ends with `headwater reset`, or when all tables of a MySQL source were read again for all.",
    "Compare each tenant with `headwater check TENANT`, and resync tables that differ. Then read all tables again.",
    command="headwater signal {source} execute-snapshot '.*'",
    docs="docs/failure_modes.md#kafka",
    example="headwater.changes.shop was deleted and made again: its id is 7tXo…, and rows up to the checkpoint went to fG3q…",
)
COPY_REFUSED = _kind(
    "copy_refused",
    Severity.DIFFERS,
    "A copy of a table was given up, or is short of rows that the source has; its receivers lack some of them.",
    "Follow the message, then ask for the table again.",
    command="headwater signal {source} execute-snapshot {table}",
    docs="docs/snapshots.md",
    example="shop.orders: the copy is short: the source has 6001 rows, and at least 4002 of them were not read",
)
TRANSACTION_OPEN_LONG = _kind(
    "transaction_open_long",
    Severity.DEGRADED,
    "A transaction of an Oracle source has been open for over four hours. A reader that starts again mines all redo since, "
    "and halts where a log of it is gone.",
    "Find its session by V$TRANSACTION and V$SESSION, and end it; until then keep the archived logs from its SCN on.",
    docs="docs/oracle.md",
    example="0a00070084220000 of user APP, since SCN 7099120 (2026-11-28 09:14:05 UTC)",
)

# --- sinks ----------------------------------------------------------------------------------------------------------

SINK_HALTED = _kind(
    "sink_halted",
    Severity.HALTED,
    "The sink writes nothing of a tenant until a person acts; its events wait in Kafka.",
    "Follow the remedy at the end of the message.",
    docs="docs/failure_modes.md",
    example="Kafka no longer holds offset 4711 of acme.shop.orders: …",
)
BATCH_FAILS = _kind(
    "batch_fails",
    Severity.HALTED,
    "A tenant's batch fails again and again, for example because its warehouse does not answer: its tables have nothing new. "
    "The same batch is tried at least once a minute; ten failures that are no server's silence halt the tenant.",
    "Bring the warehouse, its catalog or its storage back, or mend the cause in the message; the sink goes on by itself.",
    docs="docs/failure_modes.md#the-sink",
    example="PostgreSQL pg:5432/shop: does not answer; check host and port, and that the server runs",
)
TABLE_PARKED = _kind(
    "table_parked",
    Severity.HALTED,
    "The warehouse refused a table; its events wait in Kafka, and the tenant's other tables go on.",
    "Mend the cause that the message names, then have the table tried again.",
    command="headwater retry {tenant} {table}",
    docs="docs/failure_modes.md",
    example="column total: DECIMAL(65,0) does not fit Iceberg's 38 digits: …",
)
KEYS_PARKED = _kind(
    "keys_parked",
    Severity.DIFFERS,
    "The warehouse refused rows; events of their keys are dead letters until they are replayed.",
    "List the dead letters with their reasons, mend the cause, and replay them.",
    command="headwater dead-letter list {tenant}",
    docs="docs/failure_modes.md",
    example="3 keys parked with 7 dead letters",
)

STRAY_RECORDS = _kind(
    "stray_records",
    Severity.DEGRADED,
    "Somebody but the router wrote into a tenant's row topic; the sink passes such records over. The fault outlives a "
    "restart of the job, and ends with the stack or the pod.",
    "Find out who wrote them: take away WRITE on the tenant's topics.",
    docs="docs/failure_modes.md#the-sink",
    example="acme.shop.orders/0: 1 record(s) up to offset 4711 were passed over: not the router wrote them …",
    outlives=True,
)
CODE_CACHE_FILLS = _kind(
    "code_cache_fills",
    Severity.DEGRADED,
    "The Java process of a Spark job has hardly room left for compiled code; when it is full, batches fail.",
    "Set a larger -XX:ReservedCodeCacheSize in the job's session.java_options, and restart it; or give it fewer tenants.",
    docs="docs/sinks/settings.md",
    example="CodeCache: 116 of 128 MB are used",
)
BATCH_OVERDUE = _kind(
    "batch_overdue",
    Severity.DEGRADED,
    "A tenant's batch takes long, or hangs in its warehouse. It goes on; other tenants have its turn meanwhile.",
    "See whether the warehouse answers, and whether something locks the tenant's tables. If the batch is just large, wait, "
    "or lower the tenant's sink.max_batch_rows.",
    docs="docs/failure_modes.md#the-sink",
    example="its batch in warehouse lake has run for more than 180 s",
)

# --- tenants --------------------------------------------------------------------------------------------------------

TENANT_REFUSED = _kind(
    "tenant_refused",
    Severity.HALTED,
    "A tenant's document has mistakes; the last good version of it stays in force, or nothing of it is served.",
    "Correct the document at the place that the message names.",
    command="headwater validate",
    docs="docs/tenants.md",
    example="tenants/acme.yaml: masks[0].columns: no column matches",
)

TABLE_REFUSED = _kind(
    "table_refused",
    Severity.DIFFERS,
    "A table cannot be delivered as the tenant's document says; its events become dead letters, other tables go on.",
    "Follow the message: change the document, or the table at the source.",
    command="headwater tenant explain {tenant} {table}",
    docs="docs/tenants.md",
    example="shop.hidden_archive was shop.hidden, which 'shop\\.hidden' excludes",
)
COLUMN_REFUSED = _kind(
    "column_refused",
    Severity.DIFFERS,
    "A column came to a table later than the table, and a tenant's document, with unknown_columns: refuse, does not name it.",
    "Name the column in the document: in include_columns, in masks, or in exclude_columns, which ends the fault as well.",
    command="headwater tenant explain {tenant} {table}",
    docs="docs/tenants.md",
    example="shop.people: email2 came later and is kept back",
)
EVENTS_SET_ASIDE = _kind(
    "events_set_aside",
    Severity.DIFFERS,
    "Events of a table became dead letters of one tenant; its other events go on. The fault outlives a restart of the "
    "router, and ends with a copy of the table, with the stack or with the pod.",
    "List the dead letters with their reasons. Mend the document or the row, then copy the table for the tenant again.",
    command="headwater tenant snapshot {tenant} {table}",
    docs="docs/failure_modes.md",
    example="shop.orders: 2 events are dead letters: the event is larger than 900000 bytes",
    outlives=True,
)
TOPIC_REFUSED = _kind(
    "topic_refused",
    Severity.DIFFERS,
    "A tenant's topic of schema changes or of transactions cannot be written; its events are left out, rows go on.",
    "Follow the message: in Kafka, in the schema registry, or in the document.",
    command="headwater tenant explain {tenant}",
    docs="docs/kubernetes.md",
    example="acme.transactions: Kafka refuses to make the topic (TOPIC_AUTHORIZATION_FAILED)",
)
TENANT_WAITS = _kind(
    "tenant_waits",
    Severity.HALTED,
    "Records of a tenant's topic cannot be written, so all of that source waits for this tenant; nothing is lost.",
    "Follow the message; the router tries again by itself, and all waiting rows come in order.",
    docs="docs/kubernetes.md",
    example="acme.shop.orders: Kafka refuses records (TOPIC_AUTHORIZATION_FAILED); grant WRITE to the router's user",
)
CHANGES_RECORD_SET_ASIDE = _kind(
    "changes_record_set_aside",
    Severity.DIFFERS,
    "A record of a source's changes topic is no batch of its reader, and was passed over for all tenants. The fault outlives a "
    "restart of the router, and ends with the stack or the pod.",
    "Find out who may write to the topic. Where a reader of another release wrote it, build the source's tables again.",
    docs="docs/failure_modes.md",
    example="headwater.changes.shop/0: the record at offset 4711 is no ChangeBatch (DecodeError)",
    outlives=True,
)

CHANGES_TOPIC_REPLACED = _kind(
    "changes_topic_replaced",
    Severity.HALTED,
    "A source's changes topic was deleted and made again: the router's offset is of the old one, and nothing of the source is "
    "routed. Other sources go on.",
    "Stop the routers, set the group's offset to the topic's beginning, start them, and resync the source's tables.",
    docs="docs/failure_modes.md#kafka",
    example="headwater.changes.shop was deleted and made again: its id is 7tXo…, and the offset is of fG3q…",
)

# --- documents ------------------------------------------------------------------------------------------------------

DOCUMENT_CHANGED = _kind(
    "document_changed",
    Severity.DEGRADED,
    "A document that only `up` reads was changed, added or removed after it; the stack goes on by the earlier one.",
    "Validate the document, then start the stack again: `headwater down`, `headwater up`. Or take the change back.",
    command="headwater validate {source}",
    docs="docs/cli.md",
    example="sources/shop.yaml was changed after the stack was started",
)

# --- processes ------------------------------------------------------------------------------------------------------

KAFKA_UNREACHABLE = _kind(
    "kafka_unreachable",
    Severity.HALTED,
    "Kafka does not answer: every service waits, and goes on by itself when it is back. `headwater status` finds it.",
    "Bring the broker back. Of a Kafka that kafka.yaml names, check its address and the network.",
    command="headwater doctor",
    docs="docs/failure_modes.md#kafka",
    example="Kafka at 127.0.0.1:9092 does not answer: is the stack up?",
)
PROCESS_DOWN = _kind(
    "process_down",
    Severity.HALTED,
    "A process of the stack ended, or cannot be started.",
    "Read the last words of its log; the supervisor starts it again, unless its settings are wrong.",
    docs="docs/failure_modes.md",
    example="binlog_reader-shop: halted: a human is needed (exit code 3); next start in 60 s",
)
SERVICE_DEGRADED = _kind(
    "service_degraded",
    Severity.DEGRADED,
    "A service works, but slower or with less: a dependency is away.",
    "Bring back the server that the message names.",
    docs="docs/failure_modes.md",
    example="schema_history: Redis is away; answers come from Kafka and memory",
)


_lock = threading.RLock()
"""Of all that follows, and of the file: its content is never older than what is served."""
_lasting: dict[tuple[str, FaultScope], Fault] = {}
_raised_us: dict[tuple[str, FaultScope], int] = {}
"""When each of them was raised last."""
_left: dict[tuple[str, FaultScope], Fault] | None = None
"""Those that the process before has left and that no owner has raised again; None: its file is still to be read."""


def fault_of(
    kind: FaultKind, scope: FaultScope, *, happened: str, since_us: int, remedy: str = "", command: str = ""
) -> Fault:
    """The record of a fault, with the catalogue's remedy and command where no more exact one is given."""
    return Fault(
        id=kind.id,
        severity=kind.severity,
        since_us=since_us,
        scope=scope,
        happened=happened,
        remedy=remedy or kind.remedy,
        command=command or kind.command.format(source=scope.source, tenant=scope.tenant, table=scope.table).rstrip(),
        docs=kind.docs,
    )


def raise_fault(
    kind: FaultKind,
    scope: FaultScope,
    *,
    happened: str,
    remedy: str = "",
    command: str = "",
    since_us: int | None = None,
) -> Fault:
    """Keep a fault until ``lift_fault`` of the same kind and scope. Safe from any thread.

    Raised again, it keeps its ``since_us`` and takes the newer words; the log has it once for each different cause.
    ``since_us``: when an earlier process found it; None: now.
    """
    key = (kind.id, scope)
    with _lock:
        before = _lasting.get(key)
        begun_us = since_us if since_us is not None else time.time_ns() // 1_000
        begun_us = before.since_us if before is not None else begun_us
        fault = fault_of(kind, scope, happened=happened, since_us=begun_us, remedy=remedy, command=command)
        if kind.outlives and fault != before:
            _store({**_lasting, key: fault})  # before anybody sees it: this process may be killed then
        _lasting[key] = fault
        _raised_us[key] = time.time_ns() // 1_000
        metrics.FAULTS.labels(*_labels(fault)).set(1)
    if before is None or before.happened != happened:
        log.warning(
            "fault_raised",
            fault=kind.id,
            severity=kind.severity.value,
            place=str(scope),
            reason=happened,
            mend=fault.remedy,
        )
    return fault


def lift_fault(kind: FaultKind, scope: FaultScope, *, raised_before_us: int | None = None) -> bool:
    """End a fault; whether it lasted until now. Safe from any thread.

    ``raised_before_us``: it stays if it was raised once more since then, by the clock of this process.
    """
    key = (kind.id, scope)
    with _lock:
        if raised_before_us is not None and _raised_us.get(key, 0) >= raised_before_us:
            return False
        fault = _lasting.pop(key, None)
        if fault is not None:
            del _raised_us[key]
            metrics.FAULTS.remove(*_labels(fault))
            if kind.outlives:
                _store(_lasting)
    if fault is not None:
        log.info("fault_lifted", fault=kind.id, place=str(scope))
    return fault is not None


def raise_again(kind: FaultKind, is_own: Callable[[FaultScope], bool]) -> list[Fault]:
    """Raise the faults of a kind that the process before has left, of the scopes that ``is_own`` takes.

    The owner calls it when it begins; another process may have its work by now, and then has its faults too. Returns all
    lasting ones of the kind and of these scopes. Safe from any thread.
    """
    with _lock:
        left = _faults_left()
        ours = [place for place, fault in left.items() if fault.id == kind.id and is_own(fault.scope)]
        taken = [left.pop(place) for place in ours]
    for fault in taken:
        raise_fault(
            kind,
            fault.scope,
            happened=fault.happened,
            remedy=fault.remedy,
            command=fault.command,
            since_us=fault.since_us,
        )
    return [fault for fault in lasting_faults() if fault.id == kind.id and is_own(fault.scope)]


def _faults_left() -> dict[tuple[str, FaultScope], Fault]:
    global _left
    if _left is None:
        _left = {(fault.id, fault.scope): fault for fault in load_faults()}
    return _left


def _store(lasting: Mapping[tuple[str, FaultScope], Fault]) -> None:
    """Write the file for the next process: with the faults of this one those that no owner has raised again yet."""
    outliving = {kind.id for kind in CATALOGUE if kind.outlives}
    found = {place: fault for place, fault in lasting.items() if fault.id in outliving}
    store_faults(list((_faults_left() | found).values()))


def keep_faults(found: Mapping[FaultKind, Mapping[FaultScope, str]], concerned: Callable[[FaultScope], bool]) -> None:
    """Make the lasting faults of these kinds and of the scopes that are ``concerned`` those of ``found``, and no others.

    ``found``: by scope what happened. For an owner that knows all of its faults at once, from its store.
    """
    with _lock:
        before = [(fault.id, fault.scope) for fault in _lasting.values() if concerned(fault.scope)]
    for kind, happenings in found.items():
        for id_before, scope in before:
            if id_before == kind.id and scope not in happenings:
                lift_fault(kind, scope)
        for scope, happened in happenings.items():
            raise_fault(kind, scope, happened=happened)


def lasting_faults() -> list[Fault]:
    """The faults of this process, the worst first."""
    with _lock:
        return worst_first(list(_lasting.values()))


def _labels(fault: Fault) -> tuple[str, ...]:
    return (fault.id, fault.severity.value, fault.scope.source, fault.scope.tenant, fault.scope.table)


def faults_document() -> str:
    """``docs/faults.md``: every kind of fault, with cause, remedy and an example."""
    lines = [
        "# Faults",
        "",
        "Written by `make docs-faults` from `libs/telemetry/faults.py`; change it there.",
        "`headwater status` prints every fault while it lasts, the worst first, and exits with 1.",
        "Each service serves its own at `/faults` of its telemetry port, over gRPC as `headwater.faults.v1.Faults`, and as the",
        "metric `headwater_faults`.",
        "The log has `fault_raised` when a fault begins and `fault_lifted` when it ends.",
        "",
        "| severity | meaning |",
        "|---|---|",
        "| `halted` | Work stands still until a person acts. |",
        "| `differs` | A tenant's rows differ from the source, or may; other work goes on. |",
        "| `degraded` | Work goes on by itself, later or slower. |",
    ]
    for kind in CATALOGUE:
        lines += [
            "",
            f"## {kind.id}",
            "",
            f"Severity: `{kind.severity.value}`. {kind.cause}",
            "",
            f"Remedy: {kind.remedy}",
        ]
        if kind.command:
            lines += ["", f"    {kind.command.format(source='SOURCE', tenant='TENANT', table='TABLE')}"]
        if kind.example:
            lines += ["", f"For example: `{kind.example}`"]
        if kind.docs:
            lines += ["", f"More: [{kind.docs}]({kind.docs.removeprefix('docs/')})"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(faults_document(), end="")  # noqa: T201 - `make docs-faults` writes it to a file
