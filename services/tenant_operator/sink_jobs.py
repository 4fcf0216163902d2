"""The tenants' Spark jobs: who shares one, and the objects that run it, as plain values.

A job is a StatefulSet of one pod, made from the chart's template, and a ConfigMap with its tenants' documents, which the pod
mounts as its tenants folder. A StatefulSet, since a job's state (Spark's checkpoints) lies on a volume of its own, which comes
back with the pod, and since two pods of one job never run at once. A tenant stays in the job that it began in: its checkpoint
lies there.
"""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from libs.errors import InvalidSettings
from services.tenant_operator.judge import InForce
from services.tenant_operator.objects import MANAGED_BY, SINK_JOB_ANNOTATION, canonical, owner_reference

JOB_LABEL: Final = SINK_JOB_ANNOTATION
"""On a job's objects: its name."""
TEMPLATE_KEY: Final = "statefulset.yaml"
TENANTS_VOLUME: Final = "tenants"
"""The volume of the template that becomes the job's documents."""
_MADE_OF_ANNOTATION: Final = "headwater.dev/made-of"
_LARGEST_DOCUMENTS_BYTES: Final = 900_000
"""Of one job: a ConfigMap holds 1 MiB."""


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """The chart's StatefulSet, and the ConfigMap that it came in."""

    manifest: Mapping[str, Any]
    owner: Mapping[str, Any]
    """An owner reference."""


@dataclass(frozen=True, slots=True)
class SinkJob:
    """A job as it should be."""

    name: str
    documents: Mapping[str, str]
    """By tenant."""


def job_template(config_map: Mapping[str, Any]) -> JobTemplate:
    """The template in a ConfigMap.

    Raises:
        InvalidSettings: it holds none, or one that has no place for the documents.
    """
    metadata = config_map["metadata"]
    place = f"ConfigMap {metadata['name']}: {TEMPLATE_KEY}"
    text = (config_map.get("data") or {}).get(TEMPLATE_KEY)
    if text is None:
        raise InvalidSettings("sink_jobs", [f"{place}: is missing"])
    try:
        manifest = yaml.safe_load(text)
        volumes = manifest["spec"]["template"]["spec"]["volumes"]
        has_place = any(volume["name"] == TENANTS_VOLUME for volume in volumes)
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise InvalidSettings(
            "sink_jobs", [f"{place}: is no StatefulSet with volumes ({type(error).__name__})"]
        ) from error
    if not has_place:
        raise InvalidSettings("sink_jobs", [f"{place}: has no volume {TENANTS_VOLUME!r}, which becomes the documents"])
    return JobTemplate(manifest, owner_reference(config_map))


def assign(in_force: Sequence[InForce], *, tenants_per_packed_job: int) -> dict[str, str]:
    """The job of each tenant that has a sink, by tenant. Who has one keeps it."""
    with_sink = [each for each in in_force if each.spec.sink is not None]
    jobs = {each.tenant: each.record.sink_job for each in with_sink if each.record.sink_job}
    held: dict[str, int] = {}
    held_bytes: dict[str, int] = {}
    for each in with_sink:
        if each.tenant in jobs:
            _hold(held, held_bytes, jobs[each.tenant], each)
    for each in with_sink:
        if each.tenant in jobs:
            continue
        name = f"own-{each.tenant}" if each.wants_own_job else ""
        number = 0
        while not name:
            candidate = f"packed-{number}"
            has_room = held.get(candidate, 0) < tenants_per_packed_job
            size = held_bytes.get(candidate, 0) + len(each.record.text.encode())
            if has_room and (size <= _LARGEST_DOCUMENTS_BYTES or candidate not in held):
                name = candidate
            number += 1
        jobs[each.tenant] = name
        _hold(held, held_bytes, name, each)
    return jobs


def _hold(held: dict[str, int], held_bytes: dict[str, int], job: str, each: InForce) -> None:
    held[job] = held.get(job, 0) + 1
    held_bytes[job] = held_bytes.get(job, 0) + len(each.record.text.encode())


def jobs_of(in_force: Sequence[InForce], assigned: Mapping[str, str]) -> list[SinkJob]:
    """The jobs that should run, by name."""
    documents: dict[str, dict[str, str]] = {}
    for each in in_force:
        if each.tenant in assigned:
            documents.setdefault(assigned[each.tenant], {})[each.tenant] = each.record.text
    return [SinkJob(name, documents[name]) for name in sorted(documents)]


def object_name(job: str) -> str:
    """Of a job's StatefulSet and ConfigMap."""
    return f"headwater-sink-{job}"


def manifests(job: SinkJob, template: JobTemplate, namespace: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A job's ConfigMap and StatefulSet."""
    name = object_name(job.name)
    labels = {**MANAGED_BY, "app.kubernetes.io/component": "sink", JOB_LABEL: job.name}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [dict(template.owner)]}
    documents = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {f"{tenant}.yaml": text for tenant, text in sorted(job.documents.items())},
    }
    stateful_set = copy.deepcopy(dict(template.manifest))
    spec = stateful_set["spec"]
    stateful_set["metadata"] = metadata | {"labels": {**stateful_set.get("metadata", {}).get("labels", {}), **labels}}
    spec["selector"] = {"matchLabels": {JOB_LABEL: job.name}}
    pod = spec["template"]
    pod["metadata"] = {
        **pod.get("metadata", {}),
        "labels": {**pod.get("metadata", {}).get("labels", {}), **labels},
    }
    pod["spec"]["volumes"] = [
        {"name": TENANTS_VOLUME, "configMap": {"name": name}} if volume["name"] == TENANTS_VOLUME else volume
        for volume in pod["spec"]["volumes"]
    ]
    return _noted(documents), _noted(stateful_set)


def is_as_noted(wanted: Mapping[str, Any], found: Mapping[str, Any] | None) -> bool:
    """Whether an object was made of the same as ``wanted`` is; what somebody changed in it since is not seen."""
    if found is None:
        return False
    annotations = found["metadata"].get("annotations") or {}
    return bool(annotations.get(_MADE_OF_ANNOTATION) == wanted["metadata"]["annotations"][_MADE_OF_ANNOTATION])


def _noted(manifest: dict[str, Any]) -> dict[str, Any]:
    digest = hashlib.sha256(canonical(manifest).encode()).hexdigest()[:16]
    return manifest | {"metadata": {**manifest["metadata"], "annotations": {_MADE_OF_ANNOTATION: digest}}}
