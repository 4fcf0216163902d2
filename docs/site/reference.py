"""Reference pages that the code makes: commands from click, settings from the records' JSON Schemas."""

import ast
import importlib
import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import click
import msgspec

from libs.cli.main import SUBCOMMANDS, headwater
from libs.config import connections
from libs.mesh import documents
from libs.source import failure_handling, key_columns, unseen_rows
from libs.source.dts import settings as dts_settings
from libs.source.mysql import settings as mysql_settings
from libs.source.oracle import settings as oracle_settings
from libs.source.vitess import settings as vitess_settings
from libs.tenants.schema import tenant_schema
from libs.types import value_modes

_DOCUMENTED: Final[tuple[ModuleType, ...]] = (
    documents,
    connections,
    dts_settings,
    mysql_settings,
    vitess_settings,
    oracle_settings,
    failure_handling,
    key_columns,
    unseen_rows,
    value_modes,
)
"""Modules whose records have docstrings below their fields."""
_SOURCES: Final = {
    "mysql": documents.MysqlDocument,
    "vitess": documents.VitessDocument,
    "dts": documents.DtsDocument,
    "oracle": documents.OracleDocument,
}
_SERVICES: Final = (
    "binlog_reader",
    "vstream_reader",
    "dts_decoder",
    "logminer_reader",
    "schema_history",
    "checkpoint_committer",
    "router",
    "tenant_operator",
)
_HEAD: Final = "This page is made from the code by `make docs`.\n\n"


def pages() -> dict[str, str]:
    """Each page's text, by its place in the site."""
    return {
        "reference/commands.md": _commands(),
        "reference/tenant-settings.md": _tenant(),
        "reference/source-settings.md": _sources(),
        "reference/service-settings.md": _services(),
    }


def _commands() -> str:
    lines = ["# Commands", "", _HEAD + "[CLI](../cli.md) describes them with their output.", ""]
    context = click.Context(headwater, info_name="headwater")
    for name in sorted(SUBCOMMANDS):
        command = headwater.get_command(context, name)
        assert command is not None
        lines += _command(command, f"headwater {name}", context)
    return "\n".join(lines)


def _command(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=None, max_content_width=110, terminal_width=110)
    yield from (f"## {name}", "", "```text", click.unstyle(command.get_help(context)), "```", "")
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None:
                yield from _command(found, f"{name} {each}", context)


def _tenant() -> str:
    schema = tenant_schema()
    text = "# Settings of a tenant\n\n" + _HEAD + "[Tenants](../tenants.md) explains them with examples.\n\n"
    return text + _definitions(schema["$defs"], "TenantSpec", {})


def _sources() -> str:
    text = "# Settings of a source\n\n" + _HEAD
    docs = dict(_member_docs(_DOCUMENTED))
    for kind, record in _SOURCES.items():
        schema = msgspec.json.schema(record)
        text += f"## kind: {kind}\n\n" + _definitions(
            schema["$defs"], record.__name__, docs, level=3, prefix=f"{kind}-"
        )
    return text


def _services() -> str:
    text = "# Settings of the services\n\n" + _HEAD
    text += (
        "`headwater up` and the chart write these files. A service that is started by hand takes `--settings FILE`.\n\n"
    )
    for name in _SERVICES:
        module = importlib.import_module(f"services.{name}.settings")
        record = getattr(module, f"{''.join(word.title() for word in name.split('_'))}Settings")
        docs = dict(_member_docs((*_DOCUMENTED, module)))
        schema = msgspec.json.schema(record)
        text += f"## {name}\n\n" + _definitions(schema["$defs"], record.__name__, docs, level=3, prefix=f"{name}-")
    return text


def _definitions(
    definitions: Mapping[str, Any],
    root: str,
    docs: Mapping[tuple[str, str], str],
    *,
    level: int = 2,
    prefix: str = "",
) -> str:
    """A table for each record, the document's own first."""
    names = [root, *sorted(name for name in definitions if name != root)]
    return "\n".join(_definition(name, definitions[name], docs, level, prefix) for name in names)


def _definition(name: str, of: Mapping[str, Any], docs: Mapping[tuple[str, str], str], level: int, prefix: str) -> str:
    heading = f'<a id="{prefix}{name}"></a>\n\n{"#" * level} {name}\n\n'
    description = _cell(str(of.get("description", "")))
    if "enum" in of:
        values = ", ".join(f"`{value}`" for value in of["enum"])
        return f"{heading}{description}\n\nOne of {values}.\n"
    properties = of.get("properties", {})
    if not properties:
        return f"{heading}{description}\n"
    rows = [f"{heading}{description}\n", "| setting | type | default | meaning |", "|---|---|---|---|"]
    required = set(of.get("required", ()))
    for field, schema in properties.items():
        meaning = docs.get((name, field), schema.get("description", ""))
        default = "required" if field in required else _default(schema.get("default"))
        rows.append(f"| `{field}` | {_type(schema, prefix)} | {default} | {_cell(meaning)} |")
    return "\n".join(rows) + "\n"


def _type(schema: Mapping[str, Any], prefix: str) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{prefix}{name})"
    if "anyOf" in schema:
        return " or ".join(_type(each, prefix) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items') or {}, prefix)}" if schema.get("items") else "list"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    bounds = [str(schema[key]) for key in ("minimum", "maximum") if key in schema]
    return f"{schema.get('type', 'any')}{' ' + ' to '.join(bounds) if bounds else ''}"


def _default(value: Any) -> str:
    """Of a group of settings: the defaults stand in its own table."""
    return "its own defaults" if isinstance(value, dict) and value else f"`{msgspec.json.encode(value).decode()}`"


def _cell(text: str) -> str:
    plain = " ".join(text.replace("``", "`").split())
    return plain.replace("|", "\\|").replace("<", "&lt;")


def _member_docs(modules: tuple[ModuleType, ...]) -> Iterator[tuple[tuple[str, str], str]]:
    """The docstrings below fields, by class and name; of a base class for those that inherit, too."""
    own: dict[tuple[str, str], str] = {}
    bases: dict[str, list[str]] = {}
    for module in modules:
        for node in ast.parse(inspect.getsource(module)).body:
            if not isinstance(node, ast.ClassDef):
                continue
            bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
            for member, below in zip(node.body, node.body[1:], strict=False):
                if not isinstance(member, ast.AnnAssign) or not isinstance(member.target, ast.Name):
                    continue
                if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                    own[node.name, member.target.id] = inspect.cleandoc(str(below.value.value))
    for name in bases:
        for ancestor in _ancestors(name, bases):
            yield from (((name, field), text) for (owner, field), text in own.items() if owner == ancestor)
    yield from own.items()


def _ancestors(name: str, bases: Mapping[str, list[str]]) -> Iterator[str]:
    """The furthest first, so that a nearer one's words win."""
    for parent in bases.get(name, ()):
        yield from _ancestors(parent, bases)
        yield parent
