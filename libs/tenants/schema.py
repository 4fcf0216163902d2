"""The tenant document's JSON Schema, made from the records that the document becomes.

``make tenant-schema`` writes it to ``libs/tenants/tenant.schema.json``. Editors show it while a document is written
(``# yaml-language-server: $schema=…``). The chart's values hold documents too: the definitions stand among those of its
``values.schema.json``.

A field's docstring holds its meaning, here as in the code. Rules beyond JSON Schema (a row filter's language, which
settings go together) is judged by ``libs.tenants.document`` alone, so a document that fits may still have mistakes.
"""

import ast
import enum
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from libs.types import table_layout, tenant
from libs.types.tenant import TenantSpec

SCHEMA_FILE: Final = Path(__file__).with_name("tenant.schema.json")
CHART_FILE: Final = Path(__file__).parents[2] / "charts" / "headwater" / "values.schema.json"
_MODULES: Final[tuple[ModuleType, ...]] = (tenant, table_layout)
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_ID: Final = "urn:headwater:tenant"


def tenant_schema() -> dict[str, Any]:
    """The schema of ``TenantSpec``, every field with its docstring as the description."""
    schema = msgspec.json.schema(TenantSpec)
    docs = dict(_member_docs())
    for name, definition in schema["$defs"].items():
        for field, of_field in definition.get("properties", {}).items():
            if (name, field) in docs:
                of_field["description"] = docs[name, field]
        if "description" in definition:
            # Python 3.13 takes the indentation out of a class's docstring, older ones do not.
            definition["description"] = inspect.cleandoc(definition["description"])
        if "enum" in definition:
            definition["description"] = _enum_description(name, definition.get("description", ""), docs)
    schema["$defs"]["TenantSpec"]["properties"]["sources"]["minItems"] = 1
    return {"$schema": _DIALECT, "$id": _ID, "title": "A Headwater tenant's document (tenant.yaml)", **schema}


def schema_text() -> str:
    """The committed file's content."""
    return msgspec.json.format(msgspec.json.encode(tenant_schema()), indent=2).decode() + "\n"


def chart_text(present: str) -> str:
    """The content of the chart's ``values.schema.json`` with the document's definitions, after its own definitions;
    ``present``: what it
    is now. Its own begin with small letters."""
    schema = msgspec.json.decode(present)
    own = {name: of for name, of in schema["$defs"].items() if name[0].islower()}
    schema["$defs"] = own | tenant_schema()["$defs"]
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def _enum_description(name: str, description: str, docs: Mapping[tuple[str, str], str]) -> str:
    """The enumeration's meaning, and below it each value's."""
    members = next(getattr(module, name) for module in _MODULES if hasattr(module, name))
    assert issubclass(members, enum.Enum)
    lines = [f"{member.value}: {docs[name, member.name]}" for member in members if (name, member.name) in docs]
    return "\n".join([description, *lines])


def _member_docs() -> Iterator[tuple[tuple[str, str], str]]:
    """The docstrings that stand below fields and members, by class and name. Python itself drops them."""
    for module in _MODULES:
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                for member, below in zip(node.body, node.body[1:], strict=False):
                    name = _assigned_name(member)
                    if name and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                        yield (node.name, name), inspect.cleandoc(str(below.value.value)).replace("``", "`")


def _assigned_name(node: ast.stmt) -> str | None:
    target = node.target if isinstance(node, ast.AnnAssign) else None
    if isinstance(node, ast.Assign):
        target = node.targets[0]  # type: ignore[assignment]
    return target.id if isinstance(target, ast.Name) else None


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
    CHART_FILE.write_text(chart_text(CHART_FILE.read_text(encoding="utf-8")), encoding="utf-8")
