"""The chart's own authority: from Secrets to certificates and back, and a run's requests to Kubernetes."""

import base64
import datetime
from collections.abc import Mapping
from datetime import UTC, timedelta
from typing import Any

from libs.rpc.authority import LIFE, renewed
from services.tenant_operator.mesh_certificates import (
    AUTHORITY,
    Certified,
    MeshCertificatesSettings,
    _renew,
    certificates_in,
    secrets_of,
)
from services.tenant_operator.settings import KubernetesSettings

NOW = datetime.datetime(2026, 11, 28, tzinfo=UTC)
SETTINGS = MeshCertificatesSettings(
    kubernetes=KubernetesSettings(own_namespace="mesh", owner_config_map="headwater-certificates"),
    components=(
        Certified(secret="router-tls", hosts=("headwater-router",)),
        Certified(secret="check-tls", hosts=("headwater-check",)),
    ),
)
NAMES = {each.secret: each.hosts for each in SETTINGS.components}
FOLDER = "/api/v1/namespaces/mesh/secrets"


class Kubernetes:
    """Secrets as an API server keeps them."""

    def __init__(self) -> None:
        self.secrets: dict[str, dict[str, Any]] = {}
        self.written: list[str] = []

    async def get(self, path: str) -> dict[str, Any] | None:
        return self.secrets.get(path)

    async def owner(self) -> dict[str, str]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": "headwater-certificates", "uid": "7"}

    async def create(self, path: str, body: Mapping[str, Any]) -> None:
        self._write(f"{path}/{body['metadata']['name']}", body)

    async def merge(self, path: str, body: Mapping[str, Any]) -> bool:
        assert body["metadata"]["resourceVersion"] == self.secrets[path]["metadata"]["resourceVersion"]
        self._write(path, body)
        return True

    def _write(self, path: str, body: Mapping[str, Any]) -> None:
        self.written.append(body["metadata"]["name"])
        version = str(len(self.written))
        self.secrets[path] = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}


def test_certificates_come_back_from_their_secrets() -> None:
    """Those amid a change of the authority too."""
    found = renewed(None, NAMES, NOW)
    assert found is not None
    announced = renewed(found, NAMES, NOW + timedelta(days=3000))
    assert announced is not None
    assert announced.following is not None

    for each in (found, announced):
        secrets = {
            name: {"data": {entry: base64.b64encode(content).decode() for entry, content in entries.items()}}
            for name, entries in secrets_of(each).items()
        }
        assert certificates_in(secrets) == each


def test_no_authority_is_read_from_what_holds_none() -> None:
    assert certificates_in({AUTHORITY: None}) is None
    assert certificates_in({AUTHORITY: {"data": {"tls.crt": "eA==", "tls.key": "!"}}}) is None


async def test_a_run_makes_all_the_next_nothing_and_a_later_one_what_comes_to_its_end() -> None:
    """They go with the release. The authority's key stands in no component's Secret."""
    kubernetes = Kubernetes()

    await _renew(kubernetes, SETTINGS, NOW)  # type: ignore[arg-type]
    first = list(kubernetes.written)
    await _renew(kubernetes, SETTINGS, NOW + LIFE / 2)  # type: ignore[arg-type]
    second = list(kubernetes.written)
    await _renew(kubernetes, SETTINGS, NOW + LIFE * 3 / 4)  # type: ignore[arg-type]

    assert first == second == [AUTHORITY, "router-tls", "check-tls"]
    assert kubernetes.written[3:] == ["router-tls", "check-tls"]
    for secret in kubernetes.secrets.values():
        assert secret["metadata"]["ownerReferences"][0]["uid"] == "7"
        assert secret["type"] == "kubernetes.io/tls"
    key = kubernetes.secrets[f"{FOLDER}/{AUTHORITY}"]["data"]["tls.key"]
    others = [kubernetes.secrets[f"{FOLDER}/{name}"]["data"] for name in NAMES]
    assert all(key not in data.values() and data.keys() == {"tls.crt", "tls.key", "ca.crt"} for data in others)


async def test_a_secret_that_somebody_deleted_is_made_again_alone() -> None:
    kubernetes = Kubernetes()
    await _renew(kubernetes, SETTINGS, NOW)  # type: ignore[arg-type]
    del kubernetes.secrets[f"{FOLDER}/check-tls"]

    await _renew(kubernetes, SETTINGS, NOW)  # type: ignore[arg-type]

    assert kubernetes.written[3:] == ["check-tls"]
