"""Product functions with a line of them changed: how a bug is planted.

The text that is changed has to stand in the function as it is named here, once. Where the product's code was rewritten, the
planted bug is to be written again: it is never left out in silence.
"""

import contextlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True, slots=True)
class Edit:
    """``old`` becomes ``new`` in the function ``name`` of a class or module."""

    owner: Any
    name: str
    old: str
    new: str


@contextlib.contextmanager
def edited(*edits: Edit) -> Iterator[None]:
    """The functions are so meanwhile."""
    before: list[tuple[Any, str, Any]] = []
    try:
        for edit in edits:
            function = inspect.getattr_static(edit.owner, edit.name)
            changed = _changed(function, edit)
            for owner in (edit.owner, *_importers(edit, function)):
                before.append((owner, edit.name, function))
                setattr(owner, edit.name, changed)
        yield
    finally:
        for owner, name, function in reversed(before):
            setattr(owner, name, function)


def _importers(edit: Edit, function: Any) -> list[Any]:
    """Modules that have the function by its name."""
    if not isinstance(edit.owner, ModuleType):
        return []
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    return [each for each in modules if each is not edit.owner and each.__dict__.get(edit.name) is function]


def _changed(function: Any, edit: Edit) -> Any:
    wrapped = function.__func__ if isinstance(function, classmethod | staticmethod) else function
    source = _source_of(wrapped)
    count = source.count(edit.old)
    assert count == 1, f"{edit.name} has {count} times what a planted bug changes; write it again: {edit.old!r}"
    source = source.replace(edit.old, edit.new)
    scope: dict[str, Any] = {}
    exec(compile(source, f"<planted in {edit.name}>", "exec"), wrapped.__globals__, scope)
    changed = scope[wrapped.__name__]
    changed.__planted_source__ = source
    return type(function)(changed) if isinstance(function, classmethod | staticmethod) else changed


def _source_of(function: Any) -> str:
    """Dedented; of one that was edited already, as it is now."""
    planted: str | None = getattr(function, "__planted_source__", None)
    return planted if planted is not None else textwrap.dedent(inspect.getsource(function))
