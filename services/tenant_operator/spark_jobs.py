"""Spark's jobs in Kubernetes: made, changed and deleted as the tenants need them."""

from collections.abc import Mapping
from typing import Any

import structlog

from libs.errors import (
    HeadwaterError,
    InvalidSettings,
)
from services.tenant_operator.failures import Failures
from services.tenant_operator.judge import Standing
from services.tenant_operator.kubernetes_client import KubernetesClient
from services.tenant_operator.settings import TenantOperatorSettings
from services.tenant_operator.sink_jobs import (
    CLAIM,
    JOB_LABEL,
    SPARK_OPERATOR,
    JobTemplate,
    SinkJob,
    as_it_was_made,
    folders,
    is_as_noted,
    job_template,
    jobs_of,
    jobs_with,
    manifests,
)

log = structlog.get_logger()


class SparkJobs:
    """The objects of the jobs, from one template."""

    def __init__(self, settings: TenantOperatorSettings, kubernetes: KubernetesClient) -> None:
        self._settings = settings
        self._kubernetes = kubernetes
        self._own = settings.kubernetes.own_namespace

    async def apply(self, standing: Standing, failures: Failures, *, with_drift: bool) -> dict[str, str]:
        """Spark's jobs as they should be; the job of each tenant."""
        if self._settings.sink_jobs is None:
            return {}
        assigned = {
            each.tenant: each.record.sink_job
            for each in standing.in_force
            if each.record.sink_job and each.spec.sink is not None
        }
        jobs = jobs_of(standing.in_force, standing.leaving, standing.kept)
        # As they are now, with tenants that this look leaves out.
        spared = {name for each in standing.left_out for name in jobs_with(each.record)}
        paths = folders(self._own)
        try:
            name = self._settings.sink_jobs.template_config_map
            template_map = await self._kubernetes.get(f"{paths['ConfigMap']}/{name}")
            if template_map is None:
                raise InvalidSettings("sink_jobs", [f"template_config_map: {self._own}/{name} does not exist"])
            template = job_template(template_map)
            found = await self._objects_of_jobs(template, paths)
        except HeadwaterError as error:
            failures.note_all(error)
            return assigned
        wanted: list[tuple[SinkJob, dict[str, Any]]] = []
        for job in jobs:
            if job.name in spared:
                continue
            try:
                wanted += [(job, manifest) for manifest in manifests(job, template, self._own)]
            except Exception as error:
                spared.add(job.name)
                for tenant in job.tenants:
                    failures.note(tenant, error)
        known = {_kind_and_name(manifest) for _, manifest in wanted}
        # First the removals: a job that is run in another way from now on must not run twice.
        for kind, name in found.keys() - known:
            is_spared = found[kind, name]["metadata"]["labels"][JOB_LABEL] in spared
            if is_spared or (kind == CLAIM and not template.claim_goes):
                continue
            try:
                await self._kubernetes.delete(f"{paths[kind]}/{name}")
                log.info("sink_job_deleted", kind=kind, name=name)
            except HeadwaterError as error:
                failures.note_all(error)
        for job, manifest in wanted:
            kind, name = _kind_and_name(manifest)
            is_there = (kind, name) in found
            if is_there and (kind == CLAIM or (is_as_noted(manifest, found[kind, name]) and not with_drift)):
                continue  # a claim is made once: the request for a volume hardly changes
            try:
                possible = as_it_was_made(manifest, found.get((kind, name)))
                await self._kubernetes.apply(f"{paths[kind]}/{name}", possible)
            except HeadwaterError as error:
                for tenant in job.tenants:
                    failures.note(tenant, error)
        return assigned

    async def _objects_of_jobs(
        self, template: JobTemplate, paths: Mapping[str, str]
    ) -> dict[tuple[str, str], dict[str, Any]]:
        """The objects of Spark jobs, by kind and name: also of another kind, by which they were run before.

        Raises:
            InvalidSettings: the template is of a kind that the cluster does not know.
        """
        found = {}
        for kind, path in paths.items():
            if kind == CLAIM and template.claim is None:
                continue  # a StatefulSet's own
            listed = await self._kubernetes.list_if_known(path, labels=JOB_LABEL)
            if listed is None and kind == template.kind:
                remedy = "install the Spark Operator with its CRDs, or set sink.kind: StatefulSet"
                raise InvalidSettings("sink_jobs", [f"the cluster knows no {kind} ({SPARK_OPERATOR}): {remedy}"])
            found.update({(kind, item["metadata"]["name"]): item for item in (listed.items if listed else ())})
        return found


def _kind_and_name(manifest: Mapping[str, Any]) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]
