"""A tenant's document, out of a file that a person hands over and out of kubectl's output."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from libs.errors import AccessDenied, ClusterUnavailable, InvalidSettings
from libs.mesh import tenant_objects
from libs.mesh.mesh_settings import KubectlSettings
from libs.mesh.tenant_objects import object_in, object_in_cluster
from libs.tenants.config_map import record_name
from libs.types.refusal import Refusal
from libs.types.table import TableId

DOCUMENT = "tenant: acme\nsources: [{name: shop}]\n"


def config_map(name: str, document: str | None, **annotations: str) -> dict[str, Any]:
    told = {f"headwater.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": "teams",
            "labels": {"headwater.dev/tenant": "true"},
            "annotations": told,
        },
        "data": {} if document is None else {"tenant.yaml": document},
    }


def listed(*items: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def test_a_document_alone_is_taken_as_it_is() -> None:
    found = object_in(DOCUMENT, "acme", "acme.yaml")

    assert (found.place, found.text, found.is_config_map) == ("acme.yaml", DOCUMENT, False)


@pytest.mark.parametrize("dumped", [yaml.safe_dump, json.dumps])
def test_a_config_map_has_the_document_and_what_became_of_it(dumped: Any) -> None:
    refused = json.dumps({"shop.orders of shop": "no such column"})
    given = config_map("a", DOCUMENT, state="degraded", message="in force", refused_tables=refused)

    found = object_in(dumped(given), "acme", "standard input")

    assert (found.place, found.text, found.state) == ("teams/a", DOCUMENT, "degraded")
    assert found.refused_tables == {"shop.orders of shop": "no such column"}


def test_a_record_has_what_routers_told() -> None:
    refusal = Refusal(
        tenant="acme",
        source="shop",
        table_id=TableId(database="shop", table="orders"),
        schema_version=1,
        reason="no such column",
        found_at_us=1,
        is_of_document=True,
    )
    given = config_map(record_name("acme"), DOCUMENT)
    given["metadata"]["labels"] = {"headwater.dev/record": "acme"}
    given["data"]["refusals.json"] = msgspec.json.encode([refusal]).decode()

    found = object_in(json.dumps(given), "acme", "standard input")

    assert (found.is_record, found.state) == (True, None)
    assert found.refused_tables == {"shop.orders of shop": "no such column"}


def test_of_two_who_claim_a_name_the_one_that_is_not_refused_has_it() -> None:
    first, second = config_map("first", DOCUMENT, state="ready"), config_map("second", DOCUMENT, state="refused")

    assert object_in(listed(first, second), "acme", "x").place == "teams/first"
    assert object_in(listed(second, first), "acme", "x").place == "teams/first"


def test_a_config_map_whose_document_has_mistakes_is_found_by_its_name() -> None:
    assert object_in(listed(config_map("acme", "tenant: [")), "acme", "x").text == "tenant: ["


def test_a_tenant_that_is_not_there_is_told_the_nearest() -> None:
    with pytest.raises(InvalidSettings, match=r"is not in list\.json; did you mean 'acme'"):
        object_in(listed(config_map("a", DOCUMENT)), "acne", "list.json")


@pytest.mark.parametrize(("text", "says"), [("", "is empty"), ("a: [", "is not YAML")])
def test_what_is_neither_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        object_in(text, "acme", "x")


def kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A kubectl that does so, and no other."""
    program = folder / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_kubectl_that_is_missing_refused_or_silent_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:
        away.setenv("PATH", str(tmp_path))
        with pytest.raises(
            AccessDenied, match="kubectl is not in the PATH: install it, or give the document: kubectl get"
        ):
            object_in_cluster(KubectlSettings(), "acme")

    kubectl(tmp_path, monkeypatch, "echo 'Error from server (Forbidden): no' >&2; exit 1")
    with pytest.raises(AccessDenied, match=r"Error from server \(Forbidden\): no; mend that, or give the document"):
        object_in_cluster(KubectlSettings(), "acme")

    monkeypatch.setattr(tenant_objects, "_TIMEOUT_S", 0.2)
    kubectl(tmp_path, monkeypatch, "exec sleep 60")
    with pytest.raises(ClusterUnavailable, match="kubectl did not end"):
        object_in_cluster(KubectlSettings(), "acme")


@pytest.mark.parametrize(
    "said",
    [
        "The connection to the server localhost:8080 was refused - did you specify the right host or port?",
        "Unable to connect to the server: dial tcp: lookup api.example: no such host",
        "Unable to connect to the server: net/http: TLS handshake timeout",
    ],
)
def test_a_cluster_that_is_not_reached_is_told_from_one_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """In kubectl's words, after the lines that its client logs."""
    kubectl(tmp_path, monkeypatch, f"echo 'E1126 memcache.go:265] failed' >&2; echo '{said}' >&2; exit 1")

    with pytest.raises(ClusterUnavailable) as raised:
        object_in_cluster(KubectlSettings(), "acme")

    assert f"kubectl reaches no API server: {said}; look whether the cluster runs" in str(raised.value)
    assert "or give the document: kubectl get configmap" in str(raised.value)


@pytest.mark.parametrize(
    "said",
    [
        'error: context "prod" does not exist',
        "Error in configuration: context was not found for specified context: prod",
    ],
)
def test_a_context_that_kubectl_does_not_know_is_a_mistake_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    kubectl(tmp_path, monkeypatch, f"echo '{said}' >&2; exit 1")

    with pytest.raises(InvalidSettings) as raised:
        object_in_cluster(KubectlSettings(context="prod"), "acme")

    assert f"kubernetes.context: kubectl: {said}; kubectl config get-contexts lists them" in str(raised.value)


def test_kubectl_is_asked_in_the_context_and_namespace_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "list.json").write_text(listed(config_map("acme", DOCUMENT)))
    kubectl(tmp_path, monkeypatch, f'echo "$@" >> {tmp_path}/asked; cat {tmp_path}/list.json')

    object_in_cluster(KubectlSettings(), "acme")
    object_in_cluster(KubectlSettings(namespace="teams", context="prod"), "acme")

    everywhere, named = (tmp_path / "asked").read_text().splitlines()
    assert everywhere == "get configmaps --selector headwater.dev/tenant=true --output=json --all-namespaces"
    assert named.endswith("--namespace teams --context prod")
