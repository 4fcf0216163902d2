"""How wide each class is, and how long each function."""

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MEASURED = ("bench/", "docs/site/", "libs/", "services/", "spark/")
"""Tests are left out: a test is as long as its story."""

BOUNDS: Mapping[str, int] = {"methods": 20, "lines": 400, "fields": 12}
"""Of a class. The widest ones of kopf and httpx stay within the first two."""
FUNCTION_LINES = 60

_DEFINITION = re.compile(r"(?P<indent> *)(?:async )?(?:def|cp?def(?: inline)?) [^=(]*?(?P<name>\w+)\(")
_CLASS = re.compile(r"(?P<indent> *)(?:cdef )?class (?P<name>\w+)")


@dataclass(frozen=True, slots=True)
class Width:
    """One class or function: by measure (``methods``, ``lines``, ``fields``) how wide it is."""

    place: str
    """The file and the name."""
    by_measure: Mapping[str, int]
    bounds: Mapping[str, int]

    @property
    def excess(self) -> Mapping[str, int]:
        """The measures above their bound."""
        return {measure: width for measure, width in self.by_measure.items() if width > self.bounds[measure]}


def widths_of_the_code() -> list[Width]:
    """Every class and function of the files that git knows, in their order."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.pyx"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    names = [name for name in listed if name.startswith(MEASURED) and (ROOT / name).is_file()]
    return [width for name in names for width in widths_of(name, (ROOT / name).read_text(encoding="utf-8"))]


def widths_of(file: str, content: str) -> list[Width]:
    """Every class and function of a file's ``content``.

    >>> [width.by_measure for width in widths_of("a.py", "class A:\\n    x: int\\n    def f(self):\\n        self.y = 1\\n")]
    [{'methods': 1, 'lines': 4, 'fields': 2}, {'lines': 2}]
    """
    return list(_of_cython(file, content) if file.endswith(".pyx") else _of_python(file, content))


def _of_python(file: str, content: str) -> Iterator[Width]:
    return _within(ast.parse(content), f"{file} ")


def _within(outer: ast.AST, prefix: str) -> Iterator[Width]:
    """``prefix``: the file, and the names of the classes and functions around."""
    for node in ast.iter_child_nodes(outer):
        name = prefix
        match node:
            case ast.ClassDef():
                methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
                widths = {"methods": len(methods), "lines": _lines(node)}
                if not _is_format(node):
                    widths["fields"] = len(_fields(node, methods))
                yield Width(prefix + node.name, widths, BOUNDS)
                name = f"{prefix}{node.name}."
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield Width(f"{prefix}{node.name}()", {"lines": _lines(node)}, {"lines": FUNCTION_LINES})
                name = f"{prefix}{node.name}()."
        yield from _within(node, name)


def _lines(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _is_format(node: ast.ClassDef) -> bool:
    """A ``msgspec.Struct`` is the form of a document or of settings: its fields hold no state."""
    return any(ast.unparse(base).endswith("Struct") for base in node.bases)


def _fields(node: ast.ClassDef, methods: list[ast.FunctionDef | ast.AsyncFunctionDef]) -> set[str]:
    """Those that the class declares, and those that a method sets on ``self``."""
    declared = {
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        if "ClassVar" not in ast.unparse(each.annotation)
    }
    return declared | {
        each.attr
        for method in methods
        for each in ast.walk(method)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        if isinstance(each.value, ast.Name) and each.value.id == "self"
    }


def _of_cython(file: str, content: str) -> Iterator[Width]:
    """By indentation; without fields, because a ``.pxd`` may declare them."""
    lines = content.splitlines()
    for number, line in enumerate(lines):
        if found := _CLASS.match(line):
            length = _block(lines, number, len(found["indent"]))
            inner = re.compile(rf" {{{len(found['indent']) + 4}}}(?=\S)")
            methods = sum(
                1 for each in lines[number + 1 : number + length] if inner.match(each) and _DEFINITION.match(each)
            )
            yield Width(f"{file} {found['name']}", {"methods": methods, "lines": length}, BOUNDS)
        elif found := _DEFINITION.match(line):
            length = _block(lines, number, len(found["indent"]))
            yield Width(f"{file} {found['name']}()", {"lines": length}, {"lines": FUNCTION_LINES})


def _block(lines: list[str], begin: int, indent: int) -> int:
    """How many lines the block has that opens at ``begin``; a line that begins with ``)`` closes its signature."""
    last = begin
    for number in range(begin + 1, len(lines)):
        line = lines[number]
        if not line.strip():
            continue
        if len(line) - len(line.lstrip()) <= indent and not line.lstrip().startswith(")"):
            break
        last = number
    return last - begin + 1
