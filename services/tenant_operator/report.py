"""The report about a tenant for a person: annotations on its ConfigMap, and Events when they change."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import structlog

from libs.errors import refusal_of
from libs.kafka.tenant_access import prefix_of, user_of
from libs.telemetry.faults import TABLE_REFUSED
from libs.tenants.config_map import (
    DEGRADED,
    DELETE,
    DELETE_TOPICS,
    FAULTS_ANNOTATION,
    LEAVING,
    MESSAGE_ANNOTATION,
    ON_DELETE_ANNOTATION,
    PLANNED,
    READY,
    REFUSED,
    REFUSED_DOCUMENT_ANNOTATION,
    REFUSED_RECORDS_ANNOTATION,
    REFUSED_TABLES_ANNOTATION,
    REFUSED_TOPICS_ANNOTATION,
    SINK_WAIT_ANNOTATION,
    STATE_ANNOTATION,
    WAITING,
    document_reason,
    reasons_by_table,
    reasons_by_topic,
    reasons_by_waiting_source,
    reported_faults,
    reported_reasons,
)
from libs.types.fault import Fault, FaultScope, Severity
from libs.types.refusal import Refusal, RefusedKind
from services.tenant_operator.joining import listed
from services.tenant_operator.judge import InForce, Leaving, Planned, Refused, Standing
from services.tenant_operator.mesh_faults import faults_of_tenant
from services.tenant_operator.moves import own_job
from services.tenant_operator.objects import PLAN_ANNOTATION, TenantConfigMap

log = structlog.get_logger()

_EVENT_REASONS: Final = {
    READY: "TenantReady",
    DEGRADED: "TenantDegraded",
    REFUSED: "TenantRefused",
    WAITING: "TenantWaiting",
    LEAVING: "TenantLeaving",
    PLANNED: "TenantPlanned",
}
_LONGEST_EVENT: Final = 1_000
"""Kubernetes takes 1,024 characters."""
_LONGEST_MESSAGE: Final = 16_000
"""Annotations of an object have 256 KiB together."""
_LONGEST_REASON: Final = 200
"""In the annotation, where a hundred tables may stand."""
_LONGEST_RECORDS_REASON: Final = 800
"""Of a source's records, with topics and the remedy."""
_LONGEST_DOCUMENT_REASON: Final = 800
"""Of a document, where an Event has it with the remedy."""
_LONGEST_SINK_REASON: Final = 800
"""Of a tenant that stands still in its Spark job, with the remedy."""
_MOST_FAULTS: Final = 20
"""Of those that concern a tenant, the worst: an object's annotations are bounded, and a person mends the first ones first."""
_LONGEST_FAULT: Final = 400
_TABLE_EVENTS_AT_ONCE: Final = 10
"""A filter of all tables may fit none of them: a person reads so many."""

_SINK_GOES_ON: Final = "it goes on by itself once that is mended"
_DOCUMENT_REMEDY: Final = (
    "a mask's key is in routers' pods within a minute of its Secret (router.maskKeys); a router of an earlier release than the "
    "operator's is to be upgraded"
)


@dataclass(frozen=True, slots=True)
class Report:
    """How it stands with one ConfigMap."""

    config_map: TenantConfigMap
    state: str
    message: str
    refusals: tuple[Refusal, ...] = ()
    """Of the document in force."""
    sink_wait: str = ""
    """Why its tables stand still in its Spark job; empty: they do not."""
    faults: tuple[Fault, ...] = ()
    """Of the mesh, that concern it; the worst first."""

    @property
    def is_news(self) -> bool:
        """The ConfigMap says something else."""
        reported = self.config_map.annotations
        wanted: Mapping[str, str | None] = annotations(self)["metadata"]["annotations"]
        return any(reported.get(name) != text for name, text in wanted.items())

    @property
    def is_news_beside_refusals(self) -> bool:
        """It differs in more than the routers' refusals and a job's wait."""
        reported = self.config_map.annotations
        return _beside_refusals(
            reported.get(STATE_ANNOTATION, ""), reported.get(MESSAGE_ANNOTATION, "")
        ) != _beside_refusals(self.state, self.message)


def reports(
    standing: Standing,
    failures: Mapping[str, Sequence[str]],
    jobs: Mapping[str, str],
    plans: Sequence[Sequence[str]] = (),
    waits: Mapping[str, str] | None = None,
    faults: Sequence[Fault] | None = None,
) -> list[Report]:
    """One for each ConfigMap that is still there. ``failures`` by tenant: actions that failed, and are tried again.
    ``plans``: the changes of each of ``standing.planned``. ``waits`` by tenant: why its tables stand still in its job;
    None: that is not known, so the last report stays. ``faults``: of the whole mesh, the worst first; None as of ``waits``."""
    of_sinks = {} if waits is None else {e.config_map.origin.uid: waits.get(e.tenant, "") for e in standing.in_force}
    refusals = {each.config_map.origin.uid: each.record.refusals for each in standing.in_force}
    concerned = {} if faults is None else {e.config_map.origin.uid: _concerns(e, faults) for e in standing.in_force}

    def words(config_map: TenantConfigMap, state: str, text: str) -> Report:
        uid, reported_wait = config_map.origin.uid, config_map.annotations.get(SINK_WAIT_ANNOTATION, "")
        sink_wait = of_sinks.get(uid, reported_wait)[:_LONGEST_SINK_REASON]
        reported_before = reported_faults(config_map.annotations.get(FAULTS_ANNOTATION)) if faults is None else ()
        lasting = concerned.get(uid, reported_before)
        return Report(config_map, state, _shortened(text), refusals.get(uid, ()), sink_wait, lasting)

    found = [words(each.config_map, REFUSED, _refusal(each)) for each in standing.refused]
    for planned, lines in zip(standing.planned, plans, strict=True):
        found.append(words(planned.would_be.config_map, PLANNED, _plan(planned, lines)))
    elsewhere = {each.config_map.origin.uid for each in found}
    for each in standing.in_force:
        if each.config_map.origin.uid in elsewhere:
            continue
        if each.tenant in failures:
            found.append(words(each.config_map, WAITING, _waiting(failures[each.tenant])))
            continue
        try:
            found.append(_of_one_in_force(each, words(each.config_map, READY, ""), jobs.get(each.tenant)))
        except Exception as error:
            log.error("refused_unforeseen", tenant_id=each.tenant, exc_info=error)
            found.append(words(each.config_map, WAITING, _waiting([refusal_of(error)])))
    found += [
        words(each.config_map, WAITING, _waiting(failures[each.tenant]))
        for each in standing.left_out
        if each.tenant in failures and each.config_map.origin.uid not in elsewhere
    ]
    found += [
        replace(words(each.config_map, LEAVING, _farewell(each, failures.get(each.tenant, ()))), refusals=())
        for each in standing.leaving
        if each.config_map is not None and each.tenant in failures
    ]
    return found


def _concerns(each: InForce, faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """The worst of those that concern a tenant, each of a bounded size."""
    return tuple(
        msgspec.structs.replace(fault, happened=fault.happened[:_LONGEST_FAULT], remedy=fault.remedy[:_LONGEST_FAULT])
        for fault in faults_of_tenant(each.spec, faults)[:_MOST_FAULTS]
    )


def _takes_away(fault: Fault) -> bool:
    return fault.severity is not Severity.DEGRADED


def _of_one_in_force(each: InForce, words: Report, sink_job: str | None) -> Report:
    job = f", its tables by Spark job {sink_job}{_why_there(each)}" if sink_job is not None else ""
    copies = each.record.joining.asked
    rows = f"; asked for the rows of {listed(copies)}" if copies else ""
    message = f"in force: user {user_of(each.tenant)} reads topics {prefix_of(each.tenant)}*{job}{rows}{_end(each)}"
    is_whole = not (words.refusals or words.sink_wait or any(map(_takes_away, words.faults)))
    more = _refused_by_routers(words.refusals) + _stands_still(words.sink_wait)
    state, text = READY if is_whole else DEGRADED, message + more + _faults_of_mesh(words.faults)
    return replace(words, state=state, message=_shortened(text))


def _why_there(each: InForce) -> str:
    placement = each.record.placement
    if placement.refused_job:
        return f" (it could not move to {placement.refused_job}: {placement.refused_because})"
    is_own = each.record.sink_job == own_job(each.tenant)
    return f" ({placement.promoted_because})" if is_own and placement.promoted_because else ""


def _end(each: InForce) -> str:
    """The effect of a deletion: nobody is to be surprised."""
    ends = {DELETE: "; when it goes, its topics and its tables go", DELETE_TOPICS: "; when it goes, its topics go"}
    return ends.get(each.config_map.annotations.get(ON_DELETE_ANNOTATION, ""), "")


def _refusal(refused: Refused) -> str:
    mistakes = refused.mistakes
    count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    rest = "its last good version stays in force" if refused.tenant else "nothing of it is in force"
    if refused.is_kept:
        rest = (
            "its last good version is no longer good by this release: a service that starts again delivers nothing of it until "
            "it is mended; its topics, Kafka user and rights, and its Spark job with its state, stay as they are"
        )
    return "\n".join([f"{count}; {rest}", *(f"- {mistake}" for mistake in mistakes)])


def _plan(planned: Planned, lines: Sequence[str]) -> str:
    rest = "its last good version stays in force" if planned.in_force is not None else "nothing of it is in force"
    head = f"a plan; {rest} until the annotation {PLAN_ANNOTATION} is taken away. It would change"
    return "\n".join([head, *(f"- {line}" for line in lines)]) if lines else f"{head} nothing"


def _waiting(failures: Sequence[str]) -> str:
    return "\n".join(["in force, not all is in place yet; tried again", *(f"- {failure}" for failure in failures)])


def _farewell(each: Leaving, failures: Sequence[str]) -> str:
    topics = "with its topics" if each.deletes_topics else "its topics stay"
    topics = "with its topics and tables" if each.deletes_tables else topics
    return "\n".join([f"the tenant goes ({topics}); tried again", *(f"- {failure}" for failure in failures)])


def _refused_by_routers(refusals: tuple[Refusal, ...]) -> str:
    lines = []
    if reason := document_reason(refusals):
        routers = len({each.router for each in refusals if each.what is RefusedKind.DOCUMENT})
        who = "1 router does" if routers == 1 else f"{routers} routers do"
        lines += [f"{who} not take the document; {_DOCUMENT_REMEDY}", f"- {reason}"]
    if tables := reasons_by_table(refusals):
        count = "1 table is" if len(tables) == 1 else f"{len(tables)} tables are"
        lines += [
            f"{count} not delivered; routers set the rows aside as dead letters",
            *(f"- {name}: {reason}" for name, reason in tables.items()),
        ]
    if topics := reasons_by_topic(refusals):
        count = "1 topic is" if len(topics) == 1 else f"{len(topics)} topics are"
        lines += [
            f"{count} not written; its records are left out",
            *(f"- {name}: {reason}" for name, reason in topics.items()),
        ]
    if records := reasons_by_waiting_source(refusals):
        count = "1 source waits" if len(records) == 1 else f"{len(records)} sources wait"
        lines += [
            f"{count} at the routers; nothing is set aside or lost, and all of it comes in order once that is mended",
            *(f"- {name}: {reason}" for name, reason in records.items()),
        ]
    return "".join(f"\n{line}" for line in lines)


def _stands_still(sink_wait: str) -> str:
    if not sink_wait:
        return ""
    return f"\nits tables stand still in its Spark job; nothing is lost, and {_SINK_GOES_ON}\n- {sink_wait}"


def _faults_of_mesh(faults: Sequence[Fault]) -> str:
    """Without the routers' refusals, which are reported already."""
    lines = [f"\n- {_fault(each)}" for each in faults if each.id != TABLE_REFUSED.id]
    if not lines:
        return ""
    count = "1 fault concerns" if len(lines) == 1 else f"{len(lines)} faults concern"
    return "".join([f"\n{count} its rows, the worst first", *lines])


def _fault(fault: Fault) -> str:
    place = f", {fault.scope}" if str(fault.scope) else ""
    return f"{fault.severity.value}{place}: {fault.id}: {fault.happened} Remedy: {fault.remedy}"


def _beside_refusals(state: str, message: str) -> tuple[str, str]:
    """The message without tables: its first line, for one in force, says all else."""
    return (READY, message.partition("\n")[0]) if state in (READY, DEGRADED) else (state, message)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


def annotations(report: Report) -> dict[str, Any]:
    """The merge patch with the report."""
    reasons = {words.annotation: words.reasons(report.refusals) for words in _REFUSAL_WORDS}
    reported = {
        STATE_ANNOTATION: report.state,
        MESSAGE_ANNOTATION: report.message,
        **{name: msgspec.json.encode(now).decode() if now else None for name, now in reasons.items()},
        REFUSED_DOCUMENT_ANNOTATION: _document(report.refusals) or None,
        SINK_WAIT_ANNOTATION: report.sink_wait or None,
        FAULTS_ANNOTATION: msgspec.json.encode(report.faults).decode() if report.faults else None,
    }
    return {"metadata": {"annotations": reported}}


def events(report: Report, *, now: str, identity: str) -> list[dict[str, Any]]:
    """The Events of the report, as ``kubectl describe`` shows them: one of the state, if that is news, and one of each
    table, topic or source that is refused from now on, or no longer, of the document, and of its tables that stand still or go
    on. The same news has the same name, so it appears once.
    """
    origin, made = report.config_map.origin, []
    news = [(_EVENT_REASONS[report.state], report.state in (READY, PLANNED), report.message)]
    reported = news if report.is_news_beside_refusals else []
    refusals = [
        *_news_of_document(report),
        *(news for words in _REFUSAL_WORDS for news in _news_of(report, words)),
        *_news_of_sink(report),
        *_news_of_faults(report),
    ]
    for reason, is_normal, text in [*reported, *refusals]:
        digest = hashlib.sha256(f"{report.config_map.resource_version} {reason} {text}".encode()).hexdigest()[:12]
        made.append(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{origin.name[:200]}.{digest}", "namespace": origin.namespace},
                "involvedObject": {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "namespace": origin.namespace,
                    "name": origin.name,
                    "uid": origin.uid,
                },
                "type": "Normal" if is_normal else "Warning",
                "reason": reason,
                "message": text if len(text) <= _LONGEST_EVENT else f"{text[:_LONGEST_EVENT]}…",
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
                "source": {"component": "headwater-tenant-operator", "host": identity},
            }
        )
    return made


def _news_of_document(report: Report) -> list[tuple[str, bool, str]]:
    """As ``_news_of``."""
    reported, now = report.config_map.annotations.get(REFUSED_DOCUMENT_ANNOTATION, ""), _document(report.refusals)
    if reported == now:
        return []
    if now:
        return [("DocumentRefused", False, f"a router does not take the document: {now}; {_DOCUMENT_REMEDY}")]
    return [("DocumentAccepted", True, "routers take the document now; rows are delivered by it as they come")]


def _news_of_sink(report: Report) -> list[tuple[str, bool, str]]:
    """As ``_news_of``. Another reason of one standing still is no news."""
    was_reported = SINK_WAIT_ANNOTATION in report.config_map.annotations
    if was_reported == bool(report.sink_wait):
        return []
    if report.sink_wait:
        text = f"its tables stand still in its Spark job: {report.sink_wait}. Nothing is lost, and {_SINK_GOES_ON}"
        return [("SinkWaits", False, text)]
    return [("SinkGoesOn", True, "its tables go on; the waiting rows are written in order")]


def _news_of_faults(report: Report) -> list[tuple[str, bool, str]]:
    """As ``_news_of``. Other words of one that lasts are no news."""
    reported = _by_place(reported_faults(report.config_map.annotations.get(FAULTS_ANNOTATION)))
    now = _by_place(report.faults)
    raised = [_fault(fault) for place, fault in now.items() if place not in reported]
    lifted = [f"{fault.id}, {fault.scope}: over" for place, fault in reported.items() if place not in now]
    return [
        *(("FaultRaised", False, text) for text in _few(raised)),
        *(("FaultLifted", True, text) for text in _few(lifted)),
    ]


def _by_place(faults: Sequence[Fault]) -> dict[tuple[str, FaultScope], Fault]:
    return {(each.id, each.scope): each for each in faults if each.id != TABLE_REFUSED.id}


def _news_of(report: Report, words: "_RefusalWords") -> list[tuple[str, bool, str]]:
    """New refusals, and lifted ones: reason, whether it is good news, and the text."""
    reported = reported_reasons(report.config_map.annotations.get(words.annotation))
    now = words.reasons(report.refusals)
    refused = [
        words.refused.format(name=name, reason=reason) for name, reason in now.items() if reported.get(name) != reason
    ]
    accepted = [words.accepted.format(name=name) for name in reported if name not in now]
    return [
        *((f"{words.kind}Refused", False, text) for text in _few(refused)),
        *((f"{words.kind}Accepted", True, text) for text in _few(accepted)),
    ]


def _few(texts: Sequence[str]) -> list[str]:
    more = len(texts) - _TABLE_EVENTS_AT_ONCE
    reported = list(texts[:_TABLE_EVENTS_AT_ONCE])
    return [*reported, f"and {more} more: see the annotation {MESSAGE_ANNOTATION}"] if more > 0 else reported


def _tables(refusals: tuple[Refusal, ...]) -> dict[str, str]:
    """Of each table why; by a name for a person."""
    return {name: reason[:_LONGEST_REASON] for name, reason in reasons_by_table(refusals).items()}


def _topics(refusals: tuple[Refusal, ...]) -> dict[str, str]:
    """Of each topic without rows why; by a name for a person."""
    return {name: reason[:_LONGEST_REASON] for name, reason in reasons_by_topic(refusals).items()}


def _records(refusals: tuple[Refusal, ...]) -> dict[str, str]:
    """Of each source that waits why."""
    return {name: reason[:_LONGEST_RECORDS_REASON] for name, reason in reasons_by_waiting_source(refusals).items()}


def _document(refusals: tuple[Refusal, ...]) -> str:
    """Why routers do not take the document; empty: all of them do."""
    return document_reason(refusals)[:_LONGEST_DOCUMENT_REASON]


@dataclass(frozen=True, slots=True)
class _RefusalWords:
    """One kind of refusal by name, and its words."""

    kind: str
    annotation: str
    reasons: Callable[[tuple[Refusal, ...]], dict[str, str]]
    refused: str
    accepted: str


_REFUSAL_WORDS: Final = (
    _RefusalWords(
        "Table",
        REFUSED_TABLES_ANNOTATION,
        _tables,
        "table {name} is not delivered: {reason}. Its rows are set aside as dead letters until that is mended",
        "table {name} is refused no more; rows are delivered as they come",
    ),
    _RefusalWords(
        "Topic",
        REFUSED_TOPICS_ANNOTATION,
        _topics,
        "the topic of {name} is not written: {reason}. Its records are left out until that is mended",
        "the topic of {name} is refused no more; it is written as they come",
    ),
    _RefusalWords(
        "Records",
        REFUSED_RECORDS_ANNOTATION,
        _records,
        "all of source {name} waits at the routers: {reason}. Nothing is lost; it is tried again until that is mended",
        "source {name} goes on; the waiting rows are delivered in order",
    ),
)
