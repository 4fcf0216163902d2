"""Makes and renews the mesh's certificates as Secrets, then ends: ``python -m services.tenant_operator.mesh_certificates``.

The chart runs it as a Job at each change of the components, and each day. The authority's own Secret is mounted nowhere.
Kubernetes brings a renewed certificate to pods within a minute, and services take it without a restart.
"""

import asyncio
import base64
import binascii
import datetime
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog

import libs.telemetry.without_rich  # noqa: F401  # before anything loads structlog
from libs.config.connections import TelemetrySettings
from libs.rpc.authority import Certificates, KeyPair, is_whole, renewed
from libs.rpc.lifecycle import run_service
from services.tenant_operator.kubernetes_client import KubernetesClient, open_kubernetes
from services.tenant_operator.settings import KubernetesSettings

log = structlog.get_logger()

AUTHORITY: Final = "headwater-authority"
_FOLLOWING: Final = "following"
_FORMER: Final = "former.crt"
_LABELS: Final = {"app.kubernetes.io/name": "headwater", "headwater.dev/part-of": "mesh"}

Json = dict[str, Any]


class Certified(msgspec.Struct, frozen=True, kw_only=True):
    """A component that has a certificate."""

    secret: str
    """Name of the Secret that its pods mount."""
    hosts: tuple[str, ...]


class MeshCertificatesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Read once, in ``__main__``."""

    kubernetes: KubernetesSettings
    """The Secrets are in ``own_namespace`` and go with ``owner_config_map``."""
    components: tuple[Certified, ...]
    telemetry: TelemetrySettings = TelemetrySettings()


async def make_certificates(settings: MeshCertificatesSettings, stop: asyncio.Event) -> None:
    """Bring the Secrets to their state of now.

    Raises:
        Conflict: another run changed a Secret meanwhile; run it again.
        ServiceUnavailable, AccessDenied: of the API server.
    """
    del stop  # it takes seconds
    client = await open_kubernetes(settings.kubernetes)
    async with client:
        await _renew(client, settings, datetime.datetime.now(datetime.UTC))


async def _renew(client: KubernetesClient, settings: MeshCertificatesSettings, now: datetime.datetime) -> None:
    folder = f"/api/v1/namespaces/{settings.kubernetes.own_namespace}/secrets"
    there = {
        name: await client.get(f"{folder}/{name}") for name in (AUTHORITY, *(c.secret for c in settings.components))
    }
    names = {component.secret: component.hosts for component in settings.components}
    found = certificates_in(there)
    wanted = renewed(found, names, now) or found
    assert wanted is not None, "without any there is one to make"
    owner = await client.owner()
    # The authority first, then its certificates: a run that breaks off is made up for by the next one.
    for name, entries in secrets_of(wanted).items():
        before = there[name]
        if before is not None and _entries(before) == entries:
            continue
        body = _secret(name, entries, owner)
        if before is None:
            await client.create(folder, body)
        else:
            body["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
            await client.merge(f"{folder}/{name}", body)
        log.info("certificate_made", secret=name)


def certificates_in(secrets: Mapping[str, Json | None]) -> Certificates | None:
    """The certificates that Secrets hold, by their names; None: there is no authority yet. A Secret without a whole pair
    counts as missing."""
    own = _entries(secrets[AUTHORITY])
    authority = _pair(own, "tls")
    if authority is None:
        return None
    of_components = {
        name: pair
        for name, secret in secrets.items()
        if name != AUTHORITY and (pair := _pair(_entries(secret), "tls")) is not None
    }
    return Certificates(authority, _pair(own, _FOLLOWING), own.get(_FORMER, b""), of_components)


def secrets_of(certificates: Certificates) -> dict[str, dict[str, bytes]]:
    """The entries of each Secret, the authority's first."""
    following = certificates.following
    own = {"tls.crt": certificates.authority.certificate, "tls.key": certificates.authority.key}
    own |= {f"{_FOLLOWING}.crt": following.certificate if following else b""}
    own |= {f"{_FOLLOWING}.key": following.key if following else b"", _FORMER: certificates.former}
    return {AUTHORITY: own} | {
        name: {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": certificates.known}
        for name, pair in certificates.of_components.items()
    }


def _pair(entries: Mapping[str, bytes], name: str) -> KeyPair | None:
    pair = KeyPair(entries.get(f"{name}.crt", b""), entries.get(f"{name}.key", b""))
    return pair if is_whole(pair) else None


def _entries(secret: Json | None) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, text in ((secret or {}).get("data") or {}).items():
        try:
            found[name] = base64.b64decode(text, validate=True)
        except binascii.Error:
            continue
    return found


def _secret(name: str, entries: Mapping[str, bytes], owner: Mapping[str, str] | None) -> Json:
    metadata: Json = {"name": name, "labels": _LABELS}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    data = {entry: base64.b64encode(content).decode() for entry, content in entries.items()}
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata, "data": data}


if __name__ == "__main__":
    sys.exit(
        run_service("tenant_operator.mesh_certificates", MeshCertificatesSettings, make_certificates, sys.argv[1:])
    )
