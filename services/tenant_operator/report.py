"""What a person is told of a tenant: two annotations on its ConfigMap, and an Event when they change."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from libs.kafka.tenant_access import prefix_of, user_of
from services.tenant_operator.joining import told
from services.tenant_operator.judge import DELETE, DELETE_TOPICS, InForce, Leaving, Planned, Refused, Standing
from services.tenant_operator.moves import own_job
from services.tenant_operator.objects import (
    MESSAGE_ANNOTATION,
    ON_DELETE_ANNOTATION,
    PLAN_ANNOTATION,
    STATE_ANNOTATION,
    TenantConfigMap,
)

READY: Final = "ready"
REFUSED: Final = "refused"
WAITING: Final = "waiting"
LEAVING: Final = "leaving"
PLANNED: Final = "planned"

_EVENT_REASONS: Final = {
    READY: "TenantReady",
    REFUSED: "TenantRefused",
    WAITING: "TenantWaiting",
    LEAVING: "TenantLeaving",
    PLANNED: "TenantPlanned",
}
_LONGEST_EVENT: Final = 1_000
"""Kubernetes takes 1,024 characters."""
_LONGEST_MESSAGE: Final = 16_000
"""Annotations of an object have 256 KiB together."""


@dataclass(frozen=True, slots=True)
class Report:
    """How it stands with one ConfigMap."""

    config_map: TenantConfigMap
    state: str
    message: str

    @property
    def is_news(self) -> bool:
        """The ConfigMap says something else."""
        told = self.config_map.annotations
        return (told.get(STATE_ANNOTATION), told.get(MESSAGE_ANNOTATION)) != (self.state, self.message)


def reports(
    standing: Standing,
    failures: Mapping[str, Sequence[str]],
    jobs: Mapping[str, str],
    plans: Sequence[Sequence[str]] = (),
) -> list[Report]:
    """One for each ConfigMap that is still there. ``failures`` by tenant: what could not be done, and is tried again.
    ``plans``: of each of ``standing.planned`` what it would change."""
    found = [Report(each.config_map, REFUSED, _shortened(_refusal(each))) for each in standing.refused]
    for planned, lines in zip(standing.planned, plans, strict=True):
        found.append(Report(planned.would_be.config_map, PLANNED, _shortened(_plan(planned, lines))))
    elsewhere = {each.config_map.origin.uid for each in found}
    for each in standing.in_force:
        if each.config_map.origin.uid in elsewhere:
            continue
        if each.tenant in failures:
            found.append(Report(each.config_map, WAITING, _shortened(_waiting(failures[each.tenant]))))
            continue
        job = f", its tables by Spark job {jobs[each.tenant]}{_why_there(each)}" if each.tenant in jobs else ""
        copies = each.record.joining.asked
        rows = f"; asked for the rows of {told(copies)}" if copies else ""
        message = _shortened(
            f"in force: user {user_of(each.tenant)} reads topics {prefix_of(each.tenant)}*{job}{rows}{_end(each)}"
        )
        found.append(Report(each.config_map, READY, message))
    found += [
        Report(each.config_map, LEAVING, _farewell(each, failures.get(each.tenant, ())))
        for each in standing.leaving
        if each.config_map is not None and each.tenant in failures
    ]
    return found


def _why_there(each: InForce) -> str:
    placement = each.record.placement
    if placement.refused_job:
        return f" (it could not move to {placement.refused_job}: {placement.refused_because})"
    is_own = each.record.sink_job == own_job(each.tenant)
    return f" ({placement.promoted_because})" if is_own and placement.promoted_because else ""


def _end(each: InForce) -> str:
    """What a deletion would take: nobody is to be surprised."""
    ends = {DELETE: "; when it goes, its topics and its tables go", DELETE_TOPICS: "; when it goes, its topics go"}
    return ends.get(each.config_map.annotations.get(ON_DELETE_ANNOTATION, ""), "")


def _refusal(refused: Refused) -> str:
    mistakes = refused.mistakes
    count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    behind = "its last good version stays in force" if refused.tenant else "nothing of it is in force"
    if refused.is_kept:
        behind = (
            "its last good version is good no more by this release: what starts anew delivers nothing of it until it is "
            "mended; its topics, Kafka user and rights, and its Spark job with its state, stay as they are"
        )
    return "\n".join([f"{count}; {behind}", *(f"- {mistake}" for mistake in mistakes)])


def _plan(planned: Planned, lines: Sequence[str]) -> str:
    behind = "its last good version stays in force" if planned.in_force is not None else "nothing of it is in force"
    head = f"a plan; {behind} until the annotation {PLAN_ANNOTATION} is taken away. It would change"
    return "\n".join([head, *(f"- {line}" for line in lines)]) if lines else f"{head} nothing"


def _waiting(failures: Sequence[str]) -> str:
    return "\n".join(["in force, not all is in place yet; tried again", *(f"- {failure}" for failure in failures)])


def _farewell(each: Leaving, failures: Sequence[str]) -> str:
    topics = "with its topics" if each.deletes_topics else "its topics stay"
    topics = "with its topics and tables" if each.deletes_tables else topics
    return "\n".join([f"the tenant goes ({topics}); tried again", *(f"- {failure}" for failure in failures)])


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


def annotations(report: Report) -> dict[str, Any]:
    """The merge patch that tells it."""
    return {"metadata": {"annotations": {STATE_ANNOTATION: report.state, MESSAGE_ANNOTATION: report.message}}}


def event(report: Report, *, now: str, identity: str) -> dict[str, Any]:
    """The Event that tells it, as ``kubectl describe`` shows it. The same news has the same name: it is told once."""
    origin = report.config_map.origin
    message = report.message if len(report.message) <= _LONGEST_EVENT else f"{report.message[:_LONGEST_EVENT]}…"
    told = f"{report.config_map.resource_version} {report.state} {report.message}"
    digest = hashlib.sha256(told.encode()).hexdigest()[:12]
    return {
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
        "type": "Normal" if report.state in (READY, PLANNED) else "Warning",
        "reason": _EVENT_REASONS[report.state],
        "message": message,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "source": {"component": "headwater-tenant-operator", "host": identity},
    }
