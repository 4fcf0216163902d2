"""A doubted table of a tenant built again: ``headwater resync``.

    note where the topic ends ▶ ask the reader for a copy ▶ wait: read, routed, past the sink ▶ ask the sink ▶ its answer

The events after the noted place in the topic are the whole table: rows as the copy found them, and every change since. A log
is built from its whole topic, as far back as Kafka has it, and needs no copy.
Each step is noted in ``resyncs/<tenant>.json`` of the mesh's folder for notes when it is done, and may be done again: a command
that was killed is continued by the next one. Until the sink swaps, the table is as it was.
"""

import re
import time
import uuid
from collections.abc import Callable
from typing import Final

import msgspec

from libs.config.connections import KafkaSettings
from libs.errors import InvalidSettings
from libs.events.names import resyncs_topic
from libs.mesh.catch_up import (
    POLL_PAUSE_S,
    CopyLost,
    NotCaughtUp,
    SentSignals,
    wait_for_whole_copy,
    wait_until_delivered,
    wait_while_behind,
)
from libs.mesh.resync_notes import Resync, forget, running_resyncs, store
from libs.mesh.sink_requests import send_to_sink
from libs.mesh.sink_view import SinkView
from libs.mesh.table_names import table_named
from libs.mesh.tenant_topics import end_offsets
from libs.sink_state.progress import SinkProgress, TableProgress
from libs.sink_state.resync import ResyncAnswer, ResyncRequest, encode_resync_request
from libs.source.signal_topic import send_signal
from libs.source.signals import EXECUTE
from libs.types.tenant import Operation, SinkMode, TenantSpec

_ID_PREFIX: Final = "resync-"
OnProgress = Callable[[str], None]


def begin(sinks: SinkView, tenant: str, table: str) -> tuple[Resync, bool]:
    """The resync of a table that is under way, and True; else one that begins now. ``table``: as ``choose_table`` has it.

    Raises:
        InvalidSettings: it cannot be; every reason is listed with its remedy.
        BrokerUnavailable, ServiceUnavailable, AccessDenied: Kafka, or the keeper of the tables, does not answer or refuses.
    """
    spec = sinks.spec(tenant)
    chosen = choose_table(sinks.progress(tenant), tenant, table)
    if (running := running_resyncs(sinks.notes_dir, tenant).get(chosen.topic)) is not None:
        return running, True
    if mistakes := mistakes_of(spec, chosen, no_copy_because=sinks.no_copy_of(chosen.source)):
        raise InvalidSettings(f"resync {tenant} {table}", mistakes)
    ends = {partition: end for (_, partition), end in end_offsets(sinks.kafka, [chosen.topic]).items()}
    is_log = is_log_of(spec)
    begun = Resync(
        id=f"{_ID_PREFIX}{uuid.uuid4()}",
        topic=chosen.topic,
        source=chosen.source,
        table=chosen.table,
        begun_at_us=time.time_ns() // 1_000,
        from_offsets={} if is_log else ends,
        to_offsets=ends if is_log else None,
    )
    store(sinks.notes_dir, tenant, begun)
    return begun, False


def choose_table(progress: SinkProgress | None, tenant: str, table: str) -> TableProgress:
    """The one table of the sink's that ``table`` names: ``table``, ``database.table`` or ``source.database.table``.

    Raises:
        InvalidSettings: none or several are; the message says which there are.
    """
    tables = [] if progress is None else list(progress.tables.values())
    lack = f"the sink of tenant {tenant} has written no such table"
    return table_named(table, tables, lambda each: (each.source, each.table), tenant=tenant, lack=lack)


def mistakes_of(spec: TenantSpec, table: TableProgress, *, no_copy_because: str | None) -> list[str]:
    """Why the table cannot be built again; ``no_copy_because``: why its source cannot be asked for its rows."""
    mistakes = []
    if spec.sink is None:
        mistakes.append("the tenant has no sink, and so no tables")
    if not is_log_of(spec):  # a log's rows come from its topic: nothing is copied into it
        mistakes += _mistakes_of_copy(spec, table, no_copy_because)
    if table.parked_keys:
        mistakes.append(
            f"{table.parked_keys} key(s) are parked: take them up, or give them up, by `headwater dead-letter replay "
            f"{spec.tenant}`"
        )
    return mistakes


def is_log_of(spec: TenantSpec) -> bool:
    """Whether the tenant's tables are logs of changes."""
    return spec.sink is not None and spec.sink.mode is SinkMode.APPEND


def _mistakes_of_copy(spec: TenantSpec, table: TableProgress, no_copy_because: str | None) -> list[str]:
    """Why no copy of the source's rows would be the table."""
    mistakes = []
    selection = next((each for each in spec.sources if each.name == table.source), None)
    if selection is None:
        mistakes.append(f"source {table.source} is none of the tenant's any more: there is nothing to copy from")
    elif no_copy_because is not None:
        mistakes.append(no_copy_because)
    if selection is not None and (skipped := sorted(each.value for each in set(selection.skip_operations) - _HARMLESS)):
        mistakes.append(
            f"the tenant's skip_operations of {table.source} leaves out {', '.join(skipped)}: its table differs from the "
            "source as it should, and would not any more"
        )
    return mistakes


_HARMLESS: Final = frozenset({Operation.TRUNCATE})


def carry_out(
    sinks: SinkView, tenant: str, resync: Resync, *, timeout_s: float, on_progress: OnProgress = lambda _: None
) -> ResyncAnswer:
    """Do the rest of it; returns the result. The mesh must run.

    Raises:
        CopyLost: the copy was stopped, or cannot be read: this resync is over, and the table is as it was.
        NotCaughtUp: it is not done within ``timeout_s``; it goes on, and the next call continues it.
        ServiceUnavailable: the tenant's sink is halted; the message has the remedy.
        BrokerUnavailable: Kafka does not answer.
    """
    deadline_s = time.monotonic() + timeout_s

    def left_s() -> float:
        return max(0.0, deadline_s - time.monotonic())

    if resync.to_offsets is None:
        resync = _copied(sinks, tenant, resync, left_s, on_progress)
    ends = resync.to_offsets
    assert ends is not None
    answer = _answer(sinks, tenant, resync)
    if answer is None:
        wait_while_behind(lambda: sinks.behind(tenant, resync.topic, ends), timeout_s=left_s(), on_progress=on_progress)
        request = ResyncRequest(id=resync.id, topic=resync.topic, from_offsets=resync.from_offsets, to_offsets=ends)
        send_to_sink(sinks.kafka, resyncs_topic(tenant), {encode_resync_request(request): resync.topic})
        on_progress(resync.doing)
    while answer is None:
        if time.monotonic() > deadline_s:
            raise NotCaughtUp(
                f"{resync.table} is not built after {timeout_s:.0f} s; the sink is asked: call again to wait for it"
            )
        time.sleep(POLL_PAUSE_S)
        answer = _answer(sinks, tenant, resync)
    forget(sinks.notes_dir, tenant, resync.topic)
    return answer


def _copied(
    sinks: SinkView, tenant: str, resync: Resync, left_s: Callable[[], float], on_progress: OnProgress
) -> Resync:
    """With a copy of the source's rows in the table's topic; noted. Raises as ``carry_out``."""
    if resync.signal_offset is None:
        resync = msgspec.structs.replace(resync, signal_offset=_ask_for_copy(sinks.kafka, resync))
        store(sinks.notes_dir, tenant, resync)
    assert resync.signal_offset is not None
    signal = SentSignals((resync.id,), resync.signal_offset)
    try:
        wait_for_whole_copy(sinks, resync.source, resync.table, signal, timeout_s=left_s(), on_progress=on_progress)
    except CopyLost:
        forget(sinks.notes_dir, tenant, resync.topic)
        raise
    ends = wait_until_delivered(sinks.kafka, resync.source, resync.topic, timeout_s=left_s(), on_progress=on_progress)
    resync = msgspec.structs.replace(resync, to_offsets=ends)
    store(sinks.notes_dir, tenant, resync)
    return resync


def _ask_for_copy(kafka: KafkaSettings, resync: Resync) -> int:
    """The signal's offset. Sent twice, it is one copy, or two of which the first counts."""
    data = {"type": "INCREMENTAL", "data-collections": [re.escape(resync.table)]}
    text = msgspec.json.encode({"id": resync.id, "type": EXECUTE, "data": data}).decode()
    return send_signal(kafka, resync.source, text)


def _answer(sinks: SinkView, tenant: str, resync: Resync) -> ResyncAnswer | None:
    """The sink's, where it is its last word."""
    answer = sinks.resync_answer(tenant, resync.id)
    return answer if answer is not None and (answer.is_done or answer.refused_because) else None
