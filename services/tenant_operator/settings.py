"""Settings of tenant_operator."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from libs.config.connections import (
    GrpcClientSettings,
    GrpcServerSettings,
    KafkaSettings,
    TelemetrySettings,
    WatchedService,
)
from libs.config.patterns import pattern_mistakes
from libs.errors import InvalidSettings
from libs.tenants.topic_quotas import TopicQuotaSettings


class NamespaceSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """The Secrets with passwords of tenants' Kafka users in one namespace: no other is looked at."""

    namespace: str
    names: tuple[str, ...] = ()


class KubernetesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster, and the parts of it to use."""

    kubeconfig_file: str | None = None
    """None: the cluster that the process runs in, as its pod's service account."""
    own_namespace: str
    """Where the operator keeps its records, its lease and the tenants' Spark jobs."""
    owner_config_map: str | None = None
    """Name of a ConfigMap in ``own_namespace`` with which everything goes that the operator keeps for itself: the chart's own,
    so that an uninstalled release leaves nothing. None: somebody deletes it."""
    tenant_namespaces: tuple[str, ...] = ()
    """Where tenants' ConfigMaps and Secrets are looked for; empty: in every namespace."""
    tenant_secrets: tuple[NamespaceSecrets, ...] = ()
    """The namespaces whose Secrets are looked at by their names alone, so that the account needs no right on others."""
    request_timeout_s: float = 15.0
    """How long one request to the API server may take, in seconds."""
    watch_timeout_s: int = 240
    """How long a watch stands before it is asked for again, in seconds: below the 5 min after which proxies cut it off."""


ANY_NAMESPACE: Final = "*"
"""Among ``tenant_names``: each namespace that no other entry names."""
_OWN_NAME: Final = "{namespace}"


class TenantNames(msgspec.Struct, frozen=True, kw_only=True):
    """Which tenants' names the ConfigMaps of a namespace may claim."""

    namespace: str
    """``*``: each one that no other entry names."""
    tenants: tuple[str, ...]
    """Regular expressions, each for a whole name; ``{namespace}`` in one stands for the namespace's own name."""

    def may_claim(self, namespace: str, tenant: str) -> bool:
        """Whether ``tenant`` is one of theirs."""
        return any(re.fullmatch(pattern, tenant) for pattern in self.of(namespace))

    def of(self, namespace: str) -> tuple[str, ...]:
        """The regular expressions for one namespace."""
        return tuple(pattern.replace(_OWN_NAME, re.escape(namespace)) for pattern in self.tenants)


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which of several operators works."""

    name: str = "headwater-tenant-operator"
    identity: str | None = None
    """None: the host's name, which in Kubernetes is the pod's."""
    duration_s: int = 15
    """A leader that is silent for so long, in seconds, is succeeded; one that is asked to stop hands over at once."""
    renew_s: float = 5.0
    """How often the leader renews, in seconds: two renewals may fail."""

    def __post_init__(self) -> None:
        """Refuse settings that would let two lead. Raises InvalidSettings."""
        if self.renew_s * 2 >= self.duration_s:
            raise InvalidSettings(
                "lease", ["renew_s: must be below half of duration_s, or one slow answer loses the lease"]
            )


class QuotaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Quotas of one tenant's Kafka user at each broker (Kafka documentation, "Quotas"); None: no limit."""

    consumer_bytes_per_s: float | None = None
    producer_bytes_per_s: float | None = None
    request_percent: float | None = None
    """Of one thread's time in the broker's network and I/O threads."""

    def __post_init__(self) -> None:
        """Raises InvalidSettings: a quota of nothing would stop the tenant in silence."""
        mistakes = [
            f"{name}: must be more than 0; leave it out for no limit"
            for name, value in msgspec.structs.asdict(self).items()
            if value is not None and value <= 0
        ]
        if mistakes:
            raise InvalidSettings("quotas", mistakes)


class TenantQuotas(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's quotas, instead of those of all."""

    tenant: str
    quotas: QuotaSettings


class KeysFolder(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one tenant's masks that its document calls by file: ``key_from: {file: …}``."""

    tenant: str
    secret: str
    """In ``own_namespace``; each entry is a key."""


class KeyVariable(msgspec.Struct, frozen=True, kw_only=True):
    """A key that a document calls by a variable of the routers: ``key_from: {env: …}``."""

    variable: str
    secret: str
    """In ``own_namespace``."""
    key: str
    """The entry."""


class MaskKeySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which Secrets routers have the keys of tenants' masks from, so that a document is refused that names another key.

    The operator looks whether they are there, and large enough. They reach routers by Kubernetes alone, mounted into pods.
    """

    folders: tuple[KeysFolder, ...] = ()
    variables: tuple[KeyVariable, ...] = ()


class CapturedSource(msgspec.Struct, frozen=True, kw_only=True):
    """A source of this mesh, as in its reader's settings."""

    name: str
    kind: str
    """Of ``libs.source.kinds``: whether its reader hears signals."""
    include_tables: tuple[str, ...] = (".*",)
    exclude_tables: tuple[str, ...] = ()


class JoiningSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for copying the rows that a tenant lacks when it joins (``snapshot.on_joining`` of its document)."""

    schema_history: GrpcClientSettings
    """The service that knows the tables of each source."""
    sources: tuple[CapturedSource, ...] = ()
    mask_key_delay_s: float = 120.0
    """How long after a tenant joined its rows are asked for, in seconds, where its masks have keys.

    A router that still lacks the key would deliver none of them, and Kubernetes hands a changed Secret to pods within a minute
    or two.
    """


class SinkJobsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The tenants' Spark jobs."""

    template_config_map: str
    """Name of a ConfigMap in ``own_namespace`` whose ``statefulset.yaml``, or ``sparkapplication.yaml`` and ``claim.yaml``,
    every job is made from: image, resources, volumes, Secrets. It owns the jobs: they go when it goes."""
    warehouses: tuple[str, ...] | None = None
    """Those that the jobs write into: a document that names another is refused. None: it is not looked for."""
    tenants_per_packed_job: int = 20
    """A Spark session costs 1 to 1.6 GB even when idle; this many small tenants share one."""
    own_job_at_events_s: float | None = None
    """A tenant of a packed job whose topics get more events a second than this, all through ``own_job_window_s``, is moved to a
    job of its own. Kafka counts: records, and one for each transaction and Kafka partition. None, the default: nobody is moved,
    since each job costs a pod and a volume."""
    own_job_window_s: float = 600.0
    """In seconds: longer than the copy of a small table takes. Each look for drift (``resync_s``) is a sample; an operator that
    takes over begins again."""

    def __post_init__(self) -> None:
        """Raises InvalidSettings with every value that makes no sense."""
        mistakes = []
        if self.tenants_per_packed_job < 1:
            mistakes.append("tenants_per_packed_job: must be at least 1")
        if self.own_job_at_events_s is not None and self.own_job_at_events_s <= 0:
            mistakes.append("own_job_at_events_s: must be more than 0; leave it out to have nobody moved")
        if self.own_job_window_s <= 0:
            mistakes.append("own_job_window_s: must be more than 0")
        if mistakes:
            raise InvalidSettings("sink_jobs", mistakes)


class TenantOperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Read once, in ``__main__``."""

    kubernetes: KubernetesSettings
    kafka: KafkaSettings = KafkaSettings()
    """Its user may create and delete topics, users, ACLs and quotas."""
    grpc: GrpcServerSettings = GrpcServerSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    lease: LeaseSettings = LeaseSettings()
    quotas: QuotaSettings = QuotaSettings()
    """Of each tenant that ``tenant_quotas`` does not name. Not in the tenant's document: nobody grants himself more."""
    tenant_quotas: tuple[TenantQuotas, ...] = ()
    topic_quotas: TopicQuotaSettings = TopicQuotaSettings()
    """A document that selects more tables than a tenant may have topics is refused; routers have the same setting, for
    tables come later too."""
    mask_keys: MaskKeySettings | None = None
    """None: keys are not looked for, and routers alone refuse a document whose key they lack."""
    tenant_names: tuple[TenantNames, ...] = ()
    """Which names the ConfigMaps of which namespace may claim, and with a name all topics that begin with it. A namespace that
    is neither named nor covered by ``*`` may claim none. Empty, the default: each namespace may claim any name that is free."""
    sources: tuple[str, ...] | None = None
    """The sources that this mesh reads: a document that names another is refused. None: it is not looked for."""
    joining: JoiningSettings | None = None
    """None: a document with ``snapshot.on_joining`` is refused."""
    sink_jobs: SinkJobsSettings | None = None
    """None: no Spark job is made; topics only."""
    services: tuple[WatchedService, ...] = ()
    """Services that are asked for their faults, so that a tenant's ConfigMap has those that concern it."""
    keeps_tenants: bool = True
    """The records of tenants that were not removed, and the known sources, outlive ``kubernetes.owner_config_map``: an
    operator that is installed again goes on with it. False: it goes too."""
    largest_document_bytes: int = 262_144
    """A larger document is refused: a ConfigMap may have a megabyte, a router holds every tenant's."""
    resync_s: float = 30.0
    """How often drift is looked for, in seconds, while nothing changes in Kubernetes."""
    debounce_s: float = 0.2
    """How long changes are gathered before they are acted on, in seconds: a thousand ConfigMaps applied at once are one look at
    Kafka."""
    retry_s: float = 3.0
    """How long after a failure the next attempt begins, in seconds."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work. Raises InvalidSettings with every mistake."""
        mistakes = []
        if not 0 < self.largest_document_bytes <= 1_000_000:
            mistakes.append("largest_document_bytes: must be 1 to 1000000; a ConfigMap holds no more")
        mistakes += _mistakes_of_names(self.tenant_names)
        if mistakes:
            raise InvalidSettings("tenant_operator", mistakes)


def _mistakes_of_names(found: Sequence[TenantNames]) -> Iterator[str]:
    namespaces = [each.namespace for each in found]
    for index, each in enumerate(found):
        if namespaces.index(each.namespace) != index:
            yield f"tenant_names[{index}].namespace: {each.namespace!r} stands here twice; join the two"
        for number, pattern in enumerate(each.of("namespace")):
            yield from pattern_mistakes(f"tenant_names[{index}].tenants[{number}]", pattern)
