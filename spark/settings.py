"""Settings of the sink job, read once in ``sink_job``."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from libs.config.connections import KafkaSettings, LineageSettings, TelemetrySettings
from libs.errors import InvalidSettings

_STORE_URI: Final = re.compile(r"(s3|gs|az)://[^/?#]+(/[^?#]*)?")


class ExecutorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that the job makes (``spark.session.executors``). The job's own pod is their driver, in client mode."""

    instances: int
    """How many. One that ends is made again."""
    cores: int = 1
    """Tasks that each runs at once."""
    memory: str = "1g"
    """Heap of each one's JVM."""
    memory_overhead: str = "512m"
    """A pod's memory besides its heap: the JVM's own, and Python workers of some sinks."""
    cpu_request: str | None = None
    """As Kubernetes writes it; None: ``cores``."""
    cpu_limit: str | None = None
    """None: no limit."""
    image: str
    """The driver's own, so that code, jars and Python are the same."""
    image_pull_policy: str = "IfNotPresent"
    pod_template_file: str
    """A Pod whose container is called ``executor``: security, volumes, resources besides CPU and memory."""
    namespace: str
    job: str
    """The job's name; executors carry it as a label, and those that a killed driver left are found by it."""
    driver_pod: str
    """The job's own pod: it owns the executors, which go when it goes."""
    driver_address: str
    """Where executors reach the driver: its pod's IP address, as a name would be known some seconds later."""
    driver_port: int = 7_078
    block_manager_port: int = 7_079
    """Of the driver and of executors: where they fetch one another's data."""

    def __post_init__(self) -> None:
        """Raises InvalidSettings with every number that makes no sense."""
        numbers = {"instances": self.instances, "cores": self.cores}
        mistakes = [f"{name}: must be at least 1" for name, value in numbers.items() if value < 1]
        if mistakes:
            raise InvalidSettings("executors", mistakes)


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The Spark session that serves all tenants of the job."""

    master: str = "local[2]"
    """``local[n]``: n threads of the job's own process; ``k8s://…``: ``executors``."""
    executors: ExecutorSettings | None = None
    is_submitted: bool = False
    """`spark-submit` runs the job, as a SparkApplication has it: master, executors, memory, Java's options and jars come from
    its arguments, and stand in no setting here."""
    shared_dirs: tuple[str, ...] = ()
    """Folders that each executor has as the driver has them, on one volume. Of a warehouse in any other folder an executor
    would write files that nobody else sees."""
    driver_memory: str = "832m"
    """Heap of the JVM. 250,000 events of 1 KB a trigger fit; of larger ones part goes to disk: raise it, or lower the limit."""
    shuffle_partitions: int = 2
    """Tasks after a shuffle; as many as cores. Each writes a data file and a delete file a merge."""
    java_options: str = (
        "-XX:+UseParallelGC -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
        "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
    )
    """Options of the JVM beside its heap. On two cores the parallel collector took a fifth less CPU than Java's choice, G1.

    The second compiler begins ten times later than by default. Code that runs for each row gets there within one batch
    anyway; at
    Java's own thresholds it spent 2 CPU seconds a batch, for fifty batches and more, on Spark's planner, which runs for
    0.3 s a batch. ``-XX:TieredStopAtLevel=1`` besides leaves it out: right for a job that is started often and has little
    to do.
    """
    java_home: str | None = None
    """None: the environment's JAVA_HOME, else ``java`` on the PATH."""
    class_archive: str | None = None
    """File of ``spark.session.class_archive``, with which the JVM starts with less CPU. One that is missing, or of another
    Java or PySpark, is passed over."""
    jars_dir: str
    """Folder with the jars of Spark's connectors and of the warehouses; all of them are taken."""
    more_jars_dir: str | None = None
    """Folder with further ones, all taken too: ``iceberg-aws-bundle`` for tables in S3 or a catalogue in Glue (in other
    stores ``iceberg-gcp-bundle``, ``iceberg-azure-bundle``), a driver of another database."""
    config: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Further Spark settings; they win over ours."""

    @property
    def has_executors(self) -> bool:
        """Whether tasks run elsewhere than in the job's own process."""
        return self.is_submitted or self.executors is not None

    def __post_init__(self) -> None:
        """Raises InvalidSettings where master and executors do not go together."""
        is_cluster = self.master.startswith("k8s://")
        if is_cluster and self.executors is None:
            raise InvalidSettings(
                "session", [f"executors: is missing, and master {self.master} has no other; set them"]
            )
        if self.executors is not None and not is_cluster:
            mistake = f"executors: master {self.master} makes none; it must be k8s://https://..., or leave them out"
            raise InvalidSettings("session", [mistake])


class StateStoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """An object store with the tenants' state, so that a job needs no volume that outlives it (``spark.tenant.kept_states``).

    Its keys come by the environment, as the store's clients know them (``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, or
    the pod's role): they stand in no file.
    """

    uri: str
    """``s3://bucket/prefix``, ``gs://bucket/prefix`` or ``az://container/prefix``; a tenant's object is
    ``<uri>/<job>/<tenant>.json``. The store honours conditional writes (If-Match and If-None-Match of a PUT)."""
    job: str
    """The job's name, which no other job below ``uri`` has."""
    endpoint: str | None = None
    """``https://host:port`` of an S3 that is not Amazon's; None: Amazon's."""
    region: str | None = None
    """Of S3; None: the environment's AWS_REGION."""
    is_path_style: bool = False
    """Whether a bucket is named in the path, not in the host's name, as most of those want it that are not Amazon's."""
    takeover_wait_s: float = 30.0
    """How long a tenant waits, in seconds, whose state another process wrote last. That one, should it live, begins to write no
    further table after a third of it; the table that it is writing has to be through before the end."""

    def __post_init__(self) -> None:
        """Raises InvalidSettings with every value that makes no sense."""
        mistakes = []
        found = _STORE_URI.fullmatch(self.uri)
        if found is None:
            mistakes.append(
                f"uri: {self.uri!r} is none of s3://bucket/prefix, gs://bucket/prefix, az://container/prefix"
            )
        elif found[1] != "s3" and (self.endpoint is not None or self.region is not None or self.is_path_style):
            mistakes.append(f"endpoint, region, is_path_style: are of S3, and uri is {self.uri}; leave them out")
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            mistakes.append(f"endpoint: {self.endpoint!r} must begin with https:// or http://")
        if not self.job or "/" in self.job:
            mistakes.append(f"job: {self.job!r} must be a name without '/'")
        if self.takeover_wait_s < 0:
            mistakes.append("takeover_wait_s: must be 0 or more")
        if mistakes:
            raise InvalidSettings("state_store", mistakes)


class SinkJobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One job: a session, and a query for each of its tenants."""

    tenants_dir: str
    """Folder of the tenants' documents, followed while the job runs."""
    tenants: tuple[str, ...] = ()
    """Which tenants this job serves; empty: every one that has a sink."""
    kafka: KafkaSettings = KafkaSettings()
    warehouses: Mapping[str, Any]
    """By name (``iceberg``): settings of each warehouse that tenants' documents may name."""
    state_dir: str
    """Folder of the Spark checkpoints and progress files. One job at a time: it is locked while the session lives."""
    state_store: StateStoreSettings | None = None
    """Keep the state in an object store too: ``state_dir`` may then be empty at each start. None: ``state_dir`` outlives the
    job."""
    own_volume: str | None = None
    """Folder that no other job sees: a tenant whose warehouse lies there is not handed over to another job.
    None: other jobs see the same files."""
    session: SessionSettings
    max_offsets_per_trigger: int = 250_000
    """How many events one micro-batch of one tenant holds at most, and a quarter of that of tables that hardly lag
    (``read_ahead``): their row images lie in memory, or on disk where they do not fit. Of a backlog, fewer and larger batches
    cost less: the fixed cost of each, and rows that change several times."""
    tables_in_parallel: int = 4
    """How many tables of one micro-batch are merged at once; planning and commits of one overlap the work of another. Twice as
    many as cores: a merge of few rows waits more than it works."""
    max_parked_keys: int = 1_000
    """How many keys of one table may wait after an event that the warehouse refused; with more the table is parked."""
    accepts_losses_of: tuple[str, ...] = ()
    """Tenants whose query goes on where Kafka has lost events that it had not read. For one start: it is said of each loss, and
    without it the tenant is halted."""
    lock_timeout_s: float = 60.0
    """How long to wait for a predecessor's session to end, in seconds: a JVM outlives its killed driver by some."""
    openlineage: LineageSettings | None = None
    """Report to a data catalogue which topics go into which tables (``spark.tenant.lineage``); None: no report."""
    telemetry: TelemetrySettings = TelemetrySettings()
