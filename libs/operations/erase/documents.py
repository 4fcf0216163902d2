"""A tenant's document and its kept versions; the keys of its masks, which are named and stay."""

import shutil
from pathlib import Path

from libs.mesh.documents import Documents
from libs.mesh.home import Home
from libs.operations.erase.held import Held, size_of
from libs.operations.kept_versions import versions_folder
from libs.operations.tenant_versions import documents_of, locked


def held_documents(home: Home, tenant: str) -> list[Held]:
    """Every file with a present or former document of the tenant."""
    held = [Held(kind="document", name=_shown(home, file), bytes=size_of(file)) for file in documents_of(home, tenant)]
    folder = versions_folder(home, tenant)
    kept = sorted(folder.glob("*")) if folder.is_dir() else []
    return [*held, *(Held(kind="kept version", name=_shown(home, file), bytes=size_of(file)) for file in kept)]


def remove_documents(home: Home, tenant: str) -> None:
    """The document first: from then on router and sink let the tenant go."""
    with locked(home):
        for file in documents_of(home, tenant):
            file.unlink(missing_ok=True)
            if file.name == "tenant.yaml" and not any(file.parent.iterdir()):
                file.parent.rmdir()
        shutil.rmtree(versions_folder(home, tenant), ignore_errors=True)


def mask_key_names(home: Home, documents: Documents, tenant: str) -> list[str]:
    """Where the keys of the tenant's masks are: files of the home, variables of the environment. Never their content."""
    folder = home.keys_dir / tenant
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    names = [f"keys/{tenant}/{file.name}" for file in files]
    spec = documents.tenants.get(tenant)
    masks = [mask for source in spec.sources for mask in source.masks] if spec is not None else []
    variables = {mask.key_from.env for mask in masks if mask.key_from is not None and mask.key_from.env is not None}
    return [*names, *(f"environment variable {name}" for name in sorted(variables))]


def _shown(home: Home, file: Path) -> str:
    return str(file.relative_to(home.root))
