"""A tenant's document off a mesh elsewhere: out of a file, or out of its ConfigMap, as kubectl gives it."""

import re
import subprocess
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from libs.config.yaml_text import parse_yaml
from libs.errors import AccessDenied, ClusterUnavailable, InvalidSettings
from libs.mesh.mesh_settings import KubectlSettings
from libs.setup.step import error_line
from libs.tenants.config_map import (
    DELETE,
    ON_DELETE_ANNOTATION,
    REFUSED,
    TENANT_LABEL,
    TenantObject,
    tenant_object,
)
from libs.tenants.document import read_tenant
from libs.tenants.place import nearest

_TIMEOUT_S: Final = 60.0
_UNREACHED: Final = re.compile(
    r"^(The connection to the server .* was refused|Unable to connect to the server)", re.MULTILINE
)
"""How kubectl's message begins without an answer; a server's errors begin with "Error from server", or "error:"."""
_NO_CONTEXT: Final = re.compile(r"^(error: context \".*\" does not exist|.*context was not found)", re.MULTILINE)
BY_HAND: Final = (
    "or give the document: kubectl get configmap NAME -n NAMESPACE -o yaml | headwater tenant explain … --document -"
)

_REACH_IT: Final = (
    "look whether the cluster runs, is the one that is meant (kubectl config current-context; KUBECONFIG, or "
    "kubernetes.context in the file for --mesh), and is reached from here (VPN, proxy)"
)


def object_in(text: str, tenant: str, shown_as: str) -> TenantObject:
    """``tenant`` in a text: a document, a ConfigMap or a list of them, YAML or JSON.

    Raises:
        InvalidSettings: it is none of these, or a ConfigMap of another tenant.
    """
    mistakes: list[str] = []
    found = _parsed(text, shown_as, mistakes)
    if found is None:
        raise InvalidSettings(shown_as, mistakes or ["is empty"])
    if not isinstance(found, dict) or "kind" not in found:
        return TenantObject(shown_as, text, is_config_map=False)
    return _of_tenant(tenant, [tenant_object(each) for each in found.get("items", [found])], f"is not in {shown_as}")


def object_in_cluster(settings: KubectlSettings, tenant: str) -> TenantObject:
    """A tenant's ConfigMap, asked of kubectl as its logged-in user.

    Raises:
        InvalidSettings: no tenant is called so; the message has the nearest. Or kubectl knows no such context.
        AccessDenied: kubectl is missing, or may not list the ConfigMaps.
        ClusterUnavailable: kubectl reaches no API server.
    """
    where = "any namespace" if settings.namespace is None else f"namespace {settings.namespace}"
    fault = f"has no ConfigMap with the label {TENANT_LABEL}=true in {where}"
    return _of_tenant(tenant, objects_in_cluster(settings, BY_HAND), fault)


def objects_in_cluster(settings: KubectlSettings, otherwise: str) -> list[TenantObject]:
    """All tenants' ConfigMaps, asked of kubectl; ``otherwise``: the remedy where it cannot be asked. Raises as above."""
    scope = ["--all-namespaces"] if settings.namespace is None else ["--namespace", settings.namespace]
    context = [] if settings.context is None else ["--context", settings.context]
    arguments = ["get", "configmaps", "--selector", f"{TENANT_LABEL}=true", "--output=json", *scope, *context]
    return [tenant_object(each) for each in msgspec.json.decode(_kubectl(arguments, otherwise))["items"]]


def delete_object(settings: KubectlSettings, place: str) -> None:
    """Have a tenant's ConfigMap go, and with it topics and tables: its operator removes them, then lets it go.

    ``place``: ``namespace/name``. Returns at once. Raises AccessDenied, ClusterUnavailable, InvalidSettings as above.
    """
    namespace, _, name = place.partition("/")
    where = ["--namespace", namespace, *([] if settings.context is None else ["--context", settings.context])]
    by_hand = f"or annotate it with {ON_DELETE_ANNOTATION}={DELETE}, and delete it, as somebody who may"
    _kubectl(["annotate", "configmap", name, f"{ON_DELETE_ANNOTATION}={DELETE}", "--overwrite", *where], by_hand)
    _kubectl(["delete", "configmap", name, "--wait=false", "--ignore-not-found", *where], by_hand)


def _of_tenant(tenant: str, found: Sequence[TenantObject], fault: str) -> TenantObject:
    """Of several that claim the name, the one that is not refused."""
    by_name = {tenant_of(each): each for each in sorted(found, key=lambda each: each.state != REFUSED)}
    if tenant not in by_name:
        raise InvalidSettings(f"tenant {tenant}", [f"{fault}; {nearest(tenant, sorted(by_name))}"])
    return by_name[tenant]


def tenant_of(found: TenantObject) -> str:
    """Its name by its document; by the ConfigMap's own name where that has mistakes."""
    parsed = None if found.text is None else read_tenant(found.text, mistakes=[])
    return found.place.rpartition("/")[2] if parsed is None else parsed.spec.tenant


def _parsed(text: str, shown_as: str, mistakes: list[str]) -> Any:
    """JSON by its own reader: a list of ConfigMaps is larger than a document may be."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        read = parse_yaml(text, file=shown_as, mistakes=mistakes)
        return None if read is None else read.value


def _kubectl(arguments: Sequence[str], otherwise: str) -> str:
    try:
        done = subprocess.run(
            ["kubectl", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise AccessDenied(f"kubectl is not in the PATH: install it, {otherwise}") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterUnavailable(
            f"kubectl did not end in {_TIMEOUT_S:.0f} s, as where no API server answers: {_REACH_IT}, {otherwise}"
        ) from error
    if done.returncode != 0 and _UNREACHED.search(done.stderr):
        raise ClusterUnavailable(f"kubectl reaches no API server: {error_line(done.stderr)}; {_REACH_IT}, {otherwise}")
    if done.returncode != 0 and _NO_CONTEXT.search(done.stderr):
        said = f"kubernetes.context: kubectl: {error_line(done.stderr)}; kubectl config get-contexts lists them"
        raise InvalidSettings("the file for --mesh", [said])
    if done.returncode != 0:
        raise AccessDenied(f"kubectl {' '.join(arguments[:2])}: {error_line(done.stderr)}; mend that, {otherwise}")
    return done.stdout
