"""Whether routers have the keys that a tenant's masks name: by the Secrets that are mounted into their pods, plain values.

A key stays in its Secret: only its size is kept here. That a Secret of another tenant, or any other Secret, is never
named by a document is seen to by the settings: they say whose Secret is whose.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from libs.tenants.mask_keys import key_in, name_mistake, size_mistake
from libs.types.tenant import KeyFrom
from services.tenant_operator.settings import KeyVariable, MaskKeySettings

KeySizes = Mapping[str, Mapping[str, int]]
"""By Secret and entry, in bytes."""


@dataclass(frozen=True, slots=True)
class RouterKeys:
    """The keys in routers' pods."""

    namespace: str
    """Of the Secrets."""
    folders: Mapping[str, str]
    """By tenant, its Secret."""
    variables: Mapping[str, KeyVariable]
    sizes: KeySizes

    def mistake(self, tenant: str, key_from: KeyFrom) -> str | None:
        """Why routers lack a key of a tenant's; None: they have all."""
        if (mistake := name_mistake(tenant, key_from)) is not None:
            return mistake
        if key_from.file is not None:
            secret, entry = self.folders.get(tenant), key_from.file
            if secret is None:
                return (
                    f"key {entry!r} is nowhere: no Secret is named for tenant {tenant}; have one named in the chart's "
                    f"router.maskKeys.{tenant}"
                )
        else:
            variable = self.variables.get(key_from.env or "")
            if variable is None:
                return (
                    f"{key_from.env} is no variable of the routers; have it named in the chart's router.secretEnv, or take "
                    "file"
                )
            secret, entry = variable.secret, variable.key
        called = f"Secret {self.namespace}/{secret}"
        if secret not in self.sizes:
            return f"{called}: is missing; create it, with the key as its entry {entry!r}"
        if entry not in self.sizes[secret]:
            return f"{called}: has no entry {entry!r}; put the key there (`openssl rand -hex 32` makes one)"
        return size_mistake(f"entry {entry!r} of {called}", self.sizes[secret][entry])


def secret_names(settings: MaskKeySettings | None) -> list[str]:
    """The Secrets that are to be looked at."""
    if settings is None:
        return []
    return sorted({*(each.secret for each in settings.folders), *(each.secret for each in settings.variables)})


def router_keys(settings: MaskKeySettings, namespace: str, secrets: Iterable[Mapping[str, Any]]) -> RouterKeys:
    """With the Secrets as the API has them. An entry that is no Base64 has no bytes."""
    return RouterKeys(
        namespace,
        folders={each.tenant: each.secret for each in settings.folders},
        variables={each.variable: each for each in settings.variables},
        sizes={
            secret["metadata"]["name"]: {name: _size_bytes(value) for name, value in (secret.get("data") or {}).items()}
            for secret in secrets
        },
    )


def _size_bytes(encoded: str) -> int:
    try:
        return len(key_in(base64.b64decode(encoded, validate=True)))
    except binascii.Error:
        return 0
