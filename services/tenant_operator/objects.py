"""The operator's objects in Kubernetes: tenants' ConfigMaps and Secrets, and its own records of documents in force.

Plain functions from the API's JSON to records. Names of labels and annotations stand here, but for those that others read a
tenant by: ``libs.tenants.config_map`` has these.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from libs.config.load import Secret
from libs.tenants.config_map import DOCUMENT_KEY, RECORD_LABEL, REFUSALS_KEY, Json, record_name, record_refusals
from libs.types.refusal import Refusal
from services.tenant_operator.joining import NOTHING_NOTICED, Joining
from services.tenant_operator.moves import NEVER_MOVED, Placement

JOINING_KEY: Final = "joining.json"
PLACEMENT_KEY: Final = "placement.json"
VERSIONS_KEY: Final = "versions.json"
"""Of a record, all three."""
_VERSIONS_KEPT: Final = 10
_VERSIONS_BYTES: Final = 128 * 1024
"""Of all of them but the newest, which is always kept: a ConfigMap has 1 MiB, and the operator holds every tenant's."""
PASSWORD_KEY: Final = "password"  # noqa: S105 - the name of a key
FINALIZER: Final = "headwater.dev/tenant"

SECRET_ANNOTATION: Final = "headwater.dev/kafka-secret"  # noqa: S105 - the name of an annotation
"""On a tenant's ConfigMap: the Secret, in the same namespace, with the password of its Kafka user."""
SINK_JOB_ANNOTATION: Final = "headwater.dev/sink-job"
"""On a tenant's ConfigMap: ``packed`` or ``own``; without it the operator chooses. On a record: the job's name."""
PLAN_ANNOTATION: Final = "headwater.dev/plan"
"""On a tenant's ConfigMap, ``true``: the operator lists the document's changes, and does not put it into force."""

MANAGED_BY: Final = {"app.kubernetes.io/managed-by": "headwater-tenant-operator"}
_ORIGIN_ANNOTATIONS: Final = ("headwater.dev/origin-namespace", "headwater.dev/origin-name", "headwater.dev/origin-uid")
_PASSWORD_VERSION_ANNOTATION: Final = "headwater.dev/password-version"  # noqa: S105 - the name of an annotation


@dataclass(frozen=True, slots=True)
class Origin:
    """The ConfigMap that a document came from."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class TenantConfigMap:
    """A tenant's ConfigMap as it is now."""

    origin: Origin
    resource_version: str
    created_at: str
    """RFC 3339, UTC: text order is time order."""
    text: str | None
    """The document; None: the ConfigMap has no such key."""
    annotations: Mapping[str, str]
    finalizers: tuple[str, ...]
    is_leaving: bool
    """It was deleted, and waits for our finalizer."""

    @property
    def secret_name(self) -> str:
        """Of the Secret with its Kafka user's password."""
        return self.annotations.get(SECRET_ANNOTATION, f"{self.origin.name}-kafka")

    @property
    def is_plan(self) -> bool:
        """Its document is only planned, and does not come into force."""
        return self.annotations.get(PLAN_ANNOTATION) == "true"

    @property
    def has_finalizer(self) -> bool:
        """Whether it cannot go without us."""
        return FINALIZER in self.finalizers


@dataclass(frozen=True, slots=True)
class Credentials:
    """A password, and which version of which Secret it is of."""

    version: str
    password: Secret


class EarlierVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was in force before another."""

    number: int
    """From 1 on, as they came into force."""
    text: str


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """A tenant's document in force: the operator's own ConfigMap, which no tenant can write."""

    tenant: str
    origin: Origin
    text: str
    """The last good document."""
    earlier: tuple[EarlierVersion, ...] = ()
    """Those before it, the newest last."""
    password_version: str = ""
    """Of the password that its Kafka user has; empty: none yet."""
    sink_job: str = ""
    """Name of its Spark job; empty: it never had one."""
    placement: Placement = NEVER_MOVED
    """Its moves between jobs."""
    joining: Joining = NOTHING_NOTICED
    """Which tables it was seen to get, and the copies of their rows that are due."""
    refusals: tuple[Refusal, ...] = ()
    """Its refusals, as routers reported them; in one order."""
    resource_version: str = ""
    """Empty: not in Kubernetes yet."""

    def earlier_behind(self, text: str) -> tuple[EarlierVersion, ...]:
        """The earlier versions once ``text`` is in force."""
        if not self.text or text == self.text:
            return self.earlier
        number = self.earlier[-1].number + 1 if self.earlier else 1
        kept = [*self.earlier, EarlierVersion(number=number, text=self.text)][-_VERSIONS_KEPT:]
        while len(kept) > 1 and sum(len(each.text.encode()) for each in kept) > _VERSIONS_BYTES:
            del kept[0]
        return tuple(kept)


def owner_reference(config_map: Json) -> dict[str, str]:
    """The reference of objects that go with this ConfigMap."""
    metadata = config_map["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]}


def owners(found: Json) -> list[Json]:
    """The owners that an object has."""
    return list(found["metadata"].get("ownerReferences") or ())


def tenant_config_map(found: Json) -> TenantConfigMap:
    """A ConfigMap with the tenants' label."""
    metadata = found["metadata"]
    return TenantConfigMap(
        origin=Origin(metadata["namespace"], metadata["name"], metadata["uid"]),
        resource_version=metadata["resourceVersion"],
        created_at=metadata["creationTimestamp"],
        text=(found.get("data") or {}).get(DOCUMENT_KEY),
        annotations=metadata.get("annotations") or {},
        finalizers=tuple(metadata.get("finalizers") or ()),
        is_leaving="deletionTimestamp" in metadata,
    )


def credentials(found: Json) -> Credentials | None:
    """The password in a Secret; None: it has none that can be read."""
    encoded = (found.get("data") or {}).get(PASSWORD_KEY)
    if not encoded:
        return None
    try:
        password = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    metadata = found["metadata"]
    return Credentials(f"{metadata['uid']}/{metadata['resourceVersion']}", Secret(password)) if password else None


def tenant_record(found: Json) -> TenantRecord:
    """One of the operator's own ConfigMaps."""
    metadata = found["metadata"]
    annotations = metadata.get("annotations") or {}
    namespace, name, uid = (annotations.get(key, "") for key in _ORIGIN_ANNOTATIONS)
    return TenantRecord(
        tenant=metadata["labels"][RECORD_LABEL],
        origin=Origin(namespace, name, uid),
        text=(found.get("data") or {}).get(DOCUMENT_KEY, ""),
        earlier=_earlier((found.get("data") or {}).get(VERSIONS_KEY)),
        password_version=annotations.get(_PASSWORD_VERSION_ANNOTATION, ""),
        sink_job=annotations.get(SINK_JOB_ANNOTATION, ""),
        placement=_placement((found.get("data") or {}).get(PLACEMENT_KEY)),
        joining=_joining((found.get("data") or {}).get(JOINING_KEY)),
        refusals=record_refusals(found),
        resource_version=metadata["resourceVersion"],
    )


def _earlier(text: str | None) -> tuple[EarlierVersion, ...]:
    """Where somebody made it unreadable, they are counted again: nothing hangs on them."""
    try:
        return () if text is None else msgspec.json.decode(text, type=tuple[EarlierVersion, ...])
    except msgspec.DecodeError:
        return ()


def _joining(text: str | None) -> Joining:
    """Where somebody made it unreadable, the tenant joins again: rows that come once more harm nobody, and one record must not
    stop the others."""
    try:
        return NOTHING_NOTICED if text is None else msgspec.json.decode(text, type=Joining)
    except msgspec.DecodeError:
        return NOTHING_NOTICED


def _placement(text: str | None) -> Placement:
    """If somebody made it unreadable, the tenant waits for a person: after a guess two jobs might serve it."""
    try:
        return NEVER_MOVED if text is None else msgspec.json.decode(text, type=Placement)
    except msgspec.DecodeError:
        return Placement(is_unreadable=True)


def refusals_patch(refusals: Sequence[Refusal], resource_version: str) -> Json:
    """The merge patch of a record of that version that makes them all it has."""
    text = msgspec.json.encode(refusals).decode() if refusals else None
    return {"metadata": {"resourceVersion": resource_version}, "data": {REFUSALS_KEY: text}}


def record_manifest(record: TenantRecord, namespace: str, owned_by: Sequence[Json] = ()) -> dict[str, Any]:
    """The ConfigMap that holds a record. With its version, so that a write on top of another's is refused."""
    metadata: dict[str, Any] = {
        "name": record_name(record.tenant),
        "namespace": namespace,
        "labels": {**MANAGED_BY, RECORD_LABEL: record.tenant},
        "annotations": {
            **dict(
                zip(_ORIGIN_ANNOTATIONS, (record.origin.namespace, record.origin.name, record.origin.uid), strict=True)
            ),
            _PASSWORD_VERSION_ANNOTATION: record.password_version,
            SINK_JOB_ANNOTATION: record.sink_job,
        },
    }
    if owned_by:
        metadata["ownerReferences"] = list(owned_by)
    if record.resource_version:
        metadata["resourceVersion"] = record.resource_version
    data = {DOCUMENT_KEY: record.text}
    if record.earlier:
        data[VERSIONS_KEY] = msgspec.json.encode(record.earlier).decode()
    if record.joining != NOTHING_NOTICED:
        data[JOINING_KEY] = msgspec.json.encode(record.joining).decode()
    if record.placement != NEVER_MOVED:
        data[PLACEMENT_KEY] = msgspec.json.encode(record.placement).decode()
    if record.refusals:
        data[REFUSALS_KEY] = msgspec.json.encode(record.refusals).decode()
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


SOURCES_CONFIG_MAP: Final = "headwater-tenant-operator-sources"
"""The sources of the operator's settings at an earlier look."""
_SOURCES_KEY: Final = "sources.json"


def known_sources(found: Json | None) -> set[str]:
    """The names in it; none where it is away, or unreadable."""
    try:
        return set(msgspec.json.decode(((found or {}).get("data") or {}).get(_SOURCES_KEY, "[]"), type=list[str]))
    except msgspec.DecodeError:
        return set()


def sources_manifest(names: Iterable[str], namespace: str) -> dict[str, Any]:
    """The ConfigMap that holds them."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": SOURCES_CONFIG_MAP, "namespace": namespace, "labels": dict(MANAGED_BY)},
        "data": {_SOURCES_KEY: msgspec.json.encode(sorted(names)).decode()},
    }


def canonical(document: Json) -> str:
    """The same text for equal documents."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"))
