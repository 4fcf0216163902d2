"""Executors as pods of Kubernetes: Spark's settings for them, removal of orphaned ones, and their state.

The job's pod is the driver, in client mode: Spark makes the executors' pods by the API, with the driver's pod as their owner,
and makes another for each that ends. A driver that ends in order deletes them; with its pod the cluster does, unless a Spark
Operator has made its SparkApplication own them too.
"""

from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.errors import ServiceUnavailable
from libs.types.sink_place import EXECUTOR_LABEL
from spark.jvm.java import java_array, java_class
from spark.settings import ExecutorSettings

CONTAINER: Final = "executor"
"""Of the pod template."""
_NAMESPACE: Final = "spark.kubernetes.namespace"
_LABELS: Final = "spark.kubernetes.executor.label."
_APPLICATION_LABEL: Final = "spark-app-selector"
"""Spark's own: which session made a pod."""


@dataclass(frozen=True, slots=True)
class ExecutorCounts:
    """Of the executors that are there now, together."""

    executors: int
    cores: int
    running_tasks: int
    failed_tasks: int
    storage_used_bytes: int
    storage_bytes: int
    """The part of their heaps for batches."""


def pod_config(java_options: str) -> dict[str, str]:
    """Spark's settings for executors that are pods, for any submitter of the session."""
    return {
        # Only peers with the session's own secret are talked to, and nobody else can read along.
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.executor.extraJavaOptions": java_options,
        # They log each task, unless they get the driver's settings (``open_session``).
        "spark.executor.syncLogLevel.enabled": "true",
        # Executors that are lost by and by, as nodes are drained, are no reason to end the session; many in an hour are.
        "spark.executor.failuresValidityInterval": "1h",
        # The driver would need further rights for these, and has no use of them.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    }


def executor_config(settings: ExecutorSettings) -> dict[str, str]:
    """Spark's settings by which a driver in a pod has these executors, beside those of all (its documentation, "Running Spark
    on Kubernetes")."""
    kubernetes = "spark.kubernetes"
    optional = {
        f"{kubernetes}.executor.request.cores": settings.cpu_request,
        f"{kubernetes}.executor.limit.cores": settings.cpu_limit,
    }
    return {
        "spark.app.name": settings.driver_pod,  # with a suffix for each session it begins the executors' names
        "spark.driver.host": settings.driver_address,
        "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104 - the pod's address is all there is
        "spark.driver.port": str(settings.driver_port),
        "spark.driver.blockManager.port": str(settings.block_manager_port),
        "spark.blockManager.port": str(settings.block_manager_port),
        "spark.executor.instances": str(settings.instances),
        "spark.executor.cores": str(settings.cores),
        "spark.executor.memory": settings.memory,
        "spark.executor.memoryOverhead": settings.memory_overhead,
        _NAMESPACE: settings.namespace,
        f"{kubernetes}.driver.pod.name": settings.driver_pod,
        f"{kubernetes}.executor.container.image": settings.image,
        f"{kubernetes}.container.image.pullPolicy": settings.image_pull_policy,
        f"{kubernetes}.executor.podTemplateFile": settings.pod_template_file,
        f"{kubernetes}.executor.podTemplateContainerName": CONTAINER,
        f"{_LABELS}{EXECUTOR_LABEL}": settings.job,
        **{name: value for name, value in optional.items() if value is not None},
    }


def delete_left(spark: SparkSession) -> None:
    """Delete the executors that an earlier session of this job left: its driver was killed, and their owner lives on.

    They end by themselves when they miss their driver, but their pods stay. Call it while the job is the only one that writes.
    A session that was submitted without a label for its executors' job leaves them.

    Raises:
        ServiceUnavailable: the API server does not answer, or refuses; its words say which right is missing.
    """
    conf = spark.sparkContext.getConf()
    namespace, job = conf.get(_NAMESPACE), conf.get(f"{_LABELS}{EXECUTOR_LABEL}")
    if namespace is None or job is None:
        return
    try:
        client = java_class(spark, "io.fabric8.kubernetes.client.KubernetesClientBuilder")().build()
        try:
            pods = client.pods().inNamespace(namespace).withLabel(EXECUTOR_LABEL, job)
            pods.withLabelNotIn(
                _APPLICATION_LABEL, java_array(spark, "String", [spark.sparkContext.applicationId])
            ).delete()
        finally:
            client.close()
    except Py4JError as error:
        raise ServiceUnavailable(f"executors of an earlier session cannot be deleted: {error}") from error


def executor_counts(spark: SparkSession) -> ExecutorCounts:
    """The executors' state, by their last report (every 10 s). Raises Py4JError where the JVM is gone."""
    listed = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    found = [listed.apply(number) for number in range(listed.size())]
    there = [each for each in found if each.id() != "driver"]
    return ExecutorCounts(
        executors=len(there),
        cores=sum(each.totalCores() for each in there),
        running_tasks=sum(each.activeTasks() for each in there),
        failed_tasks=sum(each.failedTasks() for each in there),
        storage_used_bytes=sum(each.memoryUsed() for each in there),
        storage_bytes=sum(each.maxMemory() for each in there),
    )
