"""Tenants' objects as Kubernetes holds them, made up for tests."""

from typing import Any

from libs.config.load import Secret
from services.tenant_operator.judge import Standing, judge, parse_document
from services.tenant_operator.objects import (
    Credentials,
    Origin,
    TenantConfigMap,
    TenantRecord,
)


def document(tenant: str, more: str = "") -> str:
    return f"tenant: {tenant}\nsources: [{{name: shop}}]\n{more}"


def config_map(name: str, text: str | None = None, **fields: Any) -> TenantConfigMap:
    """Of tenant ``name`` in namespace ``teams``, unless ``fields`` say otherwise."""
    given: dict[str, Any] = {
        "origin": Origin("teams", name, f"uid-{name}"),
        "resource_version": "1",
        "created_at": "2026-01-01T00:00:00Z",
        "text": document(name) if text is None else text,
        "annotations": {},
        "finalizers": (),
        "is_leaving": False,
    }
    return TenantConfigMap(**(given | fields))


def record(tenant: str, **fields: Any) -> TenantRecord:
    """The record in force for ``tenant``, as its ConfigMap of the same name has it."""
    given: dict[str, Any] = {
        "tenant": tenant,
        "origin": Origin("teams", tenant, f"uid-{tenant}"),
        "text": document(tenant),
        "password_version": f"{tenant}/1",
        "resource_version": "7",
    }
    return TenantRecord(**(given | fields))


def judged(
    *config_maps: TenantConfigMap, records: tuple[TenantRecord, ...] = (), without_secret: str = "", **known: Any
) -> Standing:
    """With a Secret for each but ``without_secret``; ``known``: further arguments of ``judge``."""
    secrets = {
        (each.origin.namespace, each.secret_name): Credentials(f"{each.origin.name}/1", Secret("password"))
        for each in config_maps
        if each.origin.name != without_secret
    }
    return judge(config_maps, secrets, records, parse=parse_document, largest_document_bytes=10_000, **known)
