"""The tenants' Spark jobs: their tenants, and the objects that run them, as plain values.

A job is a StatefulSet of one pod, made from the chart's template, and a ConfigMap with its tenants' documents, which the pod
mounts as its tenants folder. A StatefulSet, because a job's state (Spark's checkpoints) lies on a volume of its own, which
comes
back with the pod, and since two pods of one job never run at once. Where the template is a SparkApplication, it is one, and a
claim of that volume beside it. A template without a claim is of jobs whose state is in an object store. A tenant's state lies
with its job, so that it moves to another job only by a hand-over
(``moves``): both jobs read its place, and the old one stays until it has answered.
"""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from libs.errors import InvalidSettings
from libs.types.sink_place import EXECUTOR_LABEL, PLACES_FILE, Place, Places, encode_places
from services.tenant_operator.judge import InForce, Leaving
from services.tenant_operator.moves import is_to_move, own_job, places_of
from services.tenant_operator.objects import MANAGED_BY, SINK_JOB_ANNOTATION, TenantRecord, canonical, owner_reference

JOB_LABEL: Final = SINK_JOB_ANNOTATION
"""On a job's objects: its name."""
TEMPLATE_KEYS: Final = {"StatefulSet": "statefulset.yaml", "SparkApplication": "sparkapplication.yaml"}
"""By the kind of object that runs a job."""
CLAIM: Final = "PersistentVolumeClaim"
SPARK_OPERATOR: Final = "sparkoperator.k8s.io/v1beta2"
"""Of the Spark Operator (github.com/kubeflow/spark-operator)."""
CLAIM_KEY: Final = "claim.yaml"
"""Beside a SparkApplication: the claim of its state."""
TENANTS_VOLUME: Final = "tenants"
"""The volume of the template that becomes the job's documents."""
STATE_VOLUME: Final = "state"
"""Of a SparkApplication's driver: the volume that becomes the claim."""
GOES_ANNOTATION: Final = "headwater.dev/goes-with-release"
"""``true`` on the template's claim: with the release, and with its job."""
_MADE_OF_ANNOTATION: Final = "headwater.dev/made-of"
_POLICY: Final = "podManagementPolicy"
_LARGEST_DOCUMENTS_BYTES: Final = 900_000
"""Of one job: a ConfigMap holds 1 MiB."""
_PLACE_BYTES: Final = 250
"""Of a tenant's place among them, at most."""


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """The chart's StatefulSet or SparkApplication, and the ConfigMap that it came in."""

    kind: str
    manifest: Mapping[str, Any]
    owner: Mapping[str, Any]
    """An owner reference."""
    claim: Mapping[str, Any] | None = None
    """Of a SparkApplication: the volume of a job's state; None: it has one of its own, or needs none."""

    @property
    def claim_goes(self) -> bool:
        """Whether the claim goes with its job, and with the release."""
        metadata = (self.claim or {}).get("metadata") or {}
        return bool((metadata.get("annotations") or {}).get(GOES_ANNOTATION) == "true")


@dataclass(frozen=True, slots=True)
class SinkJob:
    """A job as it should be."""

    name: str
    documents: Mapping[str, str]
    """By tenant."""
    places: Mapping[str, Place] = field(default_factory=dict)
    """Of its tenants, those among them that it is to hand over."""

    @property
    def tenants(self) -> set[str]:
        """The tenants that it concerns."""
        return {*self.documents, *self.places}


def job_template(config_map: Mapping[str, Any]) -> JobTemplate:
    """The template in a ConfigMap.

    Raises:
        InvalidSettings: it holds none, or one that has no place for the documents.
    """
    metadata, data = config_map["metadata"], config_map.get("data") or {}
    kind = next((kind for kind, key in TEMPLATE_KEYS.items() if key in data), "StatefulSet")
    place = f"ConfigMap {metadata['name']}: {TEMPLATE_KEYS[kind]}"
    text = data.get(TEMPLATE_KEYS[kind])
    if text is None:
        raise InvalidSettings("sink_jobs", [f"{place}: is missing"])
    try:
        manifest = yaml.safe_load(text)
        volumes = _pod(kind, manifest)["spec"]["volumes"]
        has_place = any(volume["name"] == TENANTS_VOLUME for volume in volumes)
        # A volume without a source is to become the claim.
        needs_claim = kind == "SparkApplication" and {"name": STATE_VOLUME} in volumes
        claim = yaml.safe_load(data[CLAIM_KEY]) if needs_claim else None
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise InvalidSettings("sink_jobs", [f"{place}: is no {kind} with volumes ({type(error).__name__})"]) from error
    if not has_place:
        raise InvalidSettings("sink_jobs", [f"{place}: has no volume {TENANTS_VOLUME!r}, which becomes the documents"])
    return JobTemplate(kind, manifest, owner_reference(config_map), claim)


def _pod(kind: str, manifest: Mapping[str, Any]) -> Any:
    """The template of a job's own pod."""
    spec = manifest["spec"]
    return spec["template"] if kind == "StatefulSet" else spec["driver"]["template"]


def assign(
    in_force: Sequence[InForce], kept: Sequence[TenantRecord] = (), *, tenants_per_packed_job: int
) -> dict[str, str]:
    """The job of each tenant that has a sink, by tenant: the one that it is in, or the one that it is to move to. Those in
    ``kept`` have their room in theirs."""
    with_sink = [each for each in in_force if each.spec.sink is not None]
    jobs = {each.tenant: each.record.sink_job for each in with_sink if each.record.sink_job and not _is_to_move(each)}
    held: dict[str, int] = {}
    held_bytes: dict[str, int] = {}
    for record in (*kept, *(each.record for each in with_sink if each.tenant in jobs)):
        _hold(held, held_bytes, record.sink_job, record)
    for each in with_sink:
        if each.tenant in jobs:
            continue
        name = own_job(each.tenant) if each.wants_own_job else ""
        number = 0
        while not name:
            candidate = f"packed-{number}"
            has_room = held.get(candidate, 0) < tenants_per_packed_job
            size = held_bytes.get(candidate, 0) + _bytes_of(each.record)
            if has_room and (size <= _LARGEST_DOCUMENTS_BYTES or candidate not in held):
                name = candidate
            number += 1
        jobs[each.tenant] = name
        _hold(held, held_bytes, name, each.record)
    return jobs


def is_measured(each: InForce) -> bool:
    """Whether the tenant is moved to a job of its own should it get too much: it shares one, and nobody said which to have."""
    is_at_rest = bool(each.record.sink_job) and not each.record.placement.came_from
    is_packed = each.record.sink_job != own_job(each.tenant)
    return is_at_rest and is_packed and each.is_free_to_promote and not each.wants_own_job


def _is_to_move(each: InForce) -> bool:
    record = each.record
    return is_to_move(each.tenant, record.sink_job, record.placement, wants_own_job=each.wants_own_job)


def _hold(held: dict[str, int], held_bytes: dict[str, int], job: str, record: TenantRecord) -> None:
    held[job] = held.get(job, 0) + 1
    held_bytes[job] = held_bytes.get(job, 0) + _bytes_of(record)


def _bytes_of(record: TenantRecord) -> int:
    return len(record.text.encode()) + _PLACE_BYTES


def jobs_of(
    in_force: Sequence[InForce], leaving: Sequence[Leaving] = (), kept: Sequence[TenantRecord] = ()
) -> list[SinkJob]:
    """The jobs that should run, by name, as the tenants' records have it."""
    documents: dict[str, dict[str, str]] = {}
    places: dict[str, dict[str, Place]] = {}

    def place(record: TenantRecord, *, text: str, drops_tables: bool) -> None:
        by_job = places_of(
            record.tenant, record.origin.uid, record.sink_job, record.placement, drops_tables=drops_tables
        )
        for job, where in by_job.items():
            places.setdefault(job, {})[record.tenant] = where
            if text:
                documents.setdefault(job, {})[record.tenant] = text

    for each in in_force:
        # A tenant that drops its sink while it moves is handed over all the same.
        if each.record.sink_job and (each.spec.sink is not None or each.record.placement.came_from):
            place(each.record, text=each.record.text, drops_tables=False)
    for record in kept:
        if record.sink_job and record.text:
            place(record, text=record.text, drops_tables=False)
    for gone in leaving:
        if gone.deletes_tables and not gone.has_let_go:
            place(gone.record, text="", drops_tables=True)
    return [SinkJob(name, documents.get(name, {}), places[name]) for name in sorted(places)]


def jobs_with(record: TenantRecord) -> set[str]:
    """The jobs that have a tenant's place."""
    return {name for name in (record.sink_job, record.placement.came_from) if name}


def folders(namespace: str) -> dict[str, str]:
    """Where the objects of jobs are, by kind."""
    return {
        "ConfigMap": f"/api/v1/namespaces/{namespace}/configmaps",
        CLAIM: f"/api/v1/namespaces/{namespace}/persistentvolumeclaims",
        "StatefulSet": f"/apis/apps/v1/namespaces/{namespace}/statefulsets",
        "SparkApplication": f"/apis/{SPARK_OPERATOR}/namespaces/{namespace}/sparkapplications",
    }


def object_name(job: str) -> str:
    """Name of the object that runs a job, and of its ConfigMap."""
    return f"headwater-sink-{job}"


def claim_name(job: str) -> str:
    """Name of a job's volume, as a StatefulSet names it: the other kind of job then finds the state too."""
    return f"state-{object_name(job)}-0"


def manifests(job: SinkJob, template: JobTemplate, namespace: str) -> tuple[dict[str, Any], ...]:
    """A job's ConfigMap, and its StatefulSet; or its claim and its SparkApplication."""
    name = object_name(job.name)
    labels = {**MANAGED_BY, "app.kubernetes.io/component": "sink", JOB_LABEL: job.name}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [dict(template.owner)]}
    documents = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {
            **{f"{tenant}.yaml": text for tenant, text in sorted(job.documents.items())},
            PLACES_FILE: encode_places(Places(job=job.name, tenants=job.places)).decode(),
        },
    }
    runs = copy.deepcopy(dict(template.manifest))
    runs["metadata"] = metadata | {"labels": {**runs.get("metadata", {}).get("labels", {}), **labels}}
    pod, volumes = _pod(template.kind, runs), {TENANTS_VOLUME: {"configMap": {"name": name}}}
    made = [documents]
    if template.claim is not None:
        made.append(_claim(job, template, namespace, labels))
        volumes[STATE_VOLUME] = {"persistentVolumeClaim": {"claimName": claim_name(job.name)}}
    if template.kind == "StatefulSet":
        runs["spec"]["selector"] = {"matchLabels": {JOB_LABEL: job.name}}
    else:
        # The Spark Operator has them bear the SparkApplication's labels too, and that one is of the job's own pod.
        executor = runs["spec"].setdefault("executor", {})
        executor["labels"] = executor.get("labels", {}) | {JOB_LABEL: "", EXECUTOR_LABEL: job.name}
    pod["metadata"] = {
        **pod.get("metadata", {}),
        "labels": {**pod.get("metadata", {}).get("labels", {}), **labels},
    }
    pod["spec"]["volumes"] = [
        {"name": volume["name"], **volumes[volume["name"]]} if volume["name"] in volumes else volume
        for volume in pod["spec"]["volumes"]
    ]
    return tuple(_noted(each) for each in (*made, runs))


def _claim(job: SinkJob, template: JobTemplate, namespace: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """The volume of a job's state. It goes with the release where the template says so."""
    metadata = {"name": claim_name(job.name), "namespace": namespace, "labels": dict(labels)}
    owned_by = {"ownerReferences": [dict(template.owner)]} if template.claim_goes else {}
    return {**copy.deepcopy(dict(template.claim or {})), "metadata": {**metadata, **owned_by}}


def as_it_was_made(wanted: Mapping[str, Any], found: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """``wanted`` as it can become of ``found``: a StatefulSet keeps the policy by which its pods are managed, because
    Kubernetes refuses another one (API reference, StatefulSetSpec)."""
    if found is None or wanted["kind"] != "StatefulSet":
        return wanted
    return {**wanted, "spec": {**wanted["spec"], _POLICY: found["spec"][_POLICY]}}


def is_as_noted(wanted: Mapping[str, Any], found: Mapping[str, Any] | None) -> bool:
    """Whether an object was made of the same as ``wanted`` is; later changes by others are not seen."""
    if found is None:
        return False
    annotations = found["metadata"].get("annotations") or {}
    return bool(annotations.get(_MADE_OF_ANNOTATION) == wanted["metadata"]["annotations"][_MADE_OF_ANNOTATION])


def _noted(manifest: dict[str, Any]) -> dict[str, Any]:
    digest = hashlib.sha256(canonical(manifest).encode()).hexdigest()[:16]
    return manifest | {"metadata": {**manifest["metadata"], "annotations": {_MADE_OF_ANNOTATION: digest}}}
