"""YAML text into plain values, with the line of each, and nothing that a document could do harm by.

Every document goes through here: services' settings, sources, tenants. YAML's own reader keeps the last of two equal names in
silence, follows aliases until the memory is full, and forgets where a value stood; here the first two are mistakes, and the
third is kept.

A *place* is a value's path by names, ``sources[0].masks[1].hash``, which messages of mistakes begin with.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

MAX_DOCUMENT_BYTES: Final = 256 << 10
"""A document of thousands of rules still fits; a ConfigMap could hold four times as much."""
_MAX_DEPTH: Final = 32
_MAX_VALUES: Final = 100_000
"""Counted as often as aliases repeat them."""
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE_TAG: Final = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class DocumentLines:
    """Where the values of one document stand."""

    file: str = ""
    """As mistakes name it; empty: a text without a file."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """By place, from 1."""

    def line_of(self, place: str) -> int | None:
        """Of a place, or of the nearest around it that is in the document; None: the document has no such place."""
        while place not in self.lines:
            cut = max(place.rfind("."), place.rfind("["))
            if cut <= 0:
                return None
            place = place[:cut]
        return self.lines[place]

    def at(self, line: int | None, text: str) -> str:
        """``text`` after its file and line."""
        if line is None:
            return f"{self.file}: {text}" if self.file else text
        return f"{self.file}:{line}: {text}" if self.file else f"line {line}: {text}"

    def locate(self, mistakes: Sequence[str]) -> list[str]:
        """Mistakes that begin with their place, by ``at``."""
        return [self.at(self.line_of(mistake.partition(": ")[0]), mistake) for mistake in mistakes]


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A text that is YAML."""

    value: Any
    lines: DocumentLines


def read_yaml_file(file: Path, *, shown_as: str, mistakes: list[str]) -> YamlDocument | None:
    """The document in ``file``; None where it cannot be read, or is none, with each mistake appended, file and line first."""
    text = read_text(file, shown_as=shown_as, mistakes=mistakes)
    return None if text is None else parse_yaml(text, file=shown_as, mistakes=mistakes)


def read_text(file: Path, *, shown_as: str, mistakes: list[str]) -> str | None:
    """A file's text, of which no more is read than a document may have; None with the mistake appended."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_DOCUMENT_BYTES + 1)
        if len(content) > MAX_DOCUMENT_BYTES:
            mistakes.append(f"{shown_as}: {_too_large()}")
            return None
        return content.decode()
    except OSError as error:
        mistakes.append(f"{shown_as}: cannot be read ({error.strerror})")
    except UnicodeDecodeError as error:
        mistakes.append(f"{shown_as}: is not UTF-8 (byte {error.start})")
    return None


def parse_yaml(text: str, *, file: str = "", mistakes: list[str]) -> YamlDocument | None:
    """The one document in ``text``; None where it is none, with every mistake appended, line first."""
    where = DocumentLines(file)
    if len(text) > MAX_DOCUMENT_BYTES or len(text.encode(errors="replace")) > MAX_DOCUMENT_BYTES:
        mistakes.append(where.at(None, _too_large()))
        return None
    try:
        _refuse_depth(text)
        loader = _LOADER(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return YamlDocument(None, where)
            lines, found = _walk(node)
            if found:
                mistakes.extend(where.at(line, mistake) for line, mistake in found)
                return None
            return YamlDocument(loader.construct_document(node), DocumentLines(file, lines))
        finally:
            loader.dispose()
    except _Refused as error:
        mistakes.append(where.at(error.line, str(error)))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        parts = [part for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part]
        why = ", ".join(parts) or " ".join(str(error).split())
        mistakes.append(where.at(None if mark is None else mark.line + 1, f"is not YAML ({why})"))
    except (ValueError, OverflowError) as error:  # a date such as 2024-13-45, a number of a million digits
        mistakes.append(where.at(None, f"is not YAML ({error}); put quotes around texts that are no number or date"))
    return None


class _Refused(Exception):
    """YAML that would cost too much."""

    def __init__(self, line: int, mistake: str) -> None:
        self.line = line
        super().__init__(mistake)


def _too_large() -> str:
    return f"is larger than {MAX_DOCUMENT_BYTES >> 10} KiB; regular expressions name many tables in one line"


def _refuse_depth(text: str) -> None:
    """Before anything recurses over the text."""
    depth = 0
    for event in yaml.parse(text, _LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise _Refused(_line(event), f"is nested deeper than {_MAX_DEPTH} levels; no document needs it")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _line(of: yaml.Event | yaml.Node) -> int:
    return 1 if of.start_mark is None else int(of.start_mark.line) + 1


def _walk(root: yaml.Node) -> tuple[dict[str, int], list[tuple[int, str]]]:
    """The line of every place, and the names that stand twice, with their lines.

    Aliases are followed, as a reader of the document would: one that repeats a list of lists that repeats … is refused here.
    """
    lines: dict[str, int] = {"": _line(root)}
    twice: list[tuple[int, str]] = []
    values = 0
    waiting = [("", root, 0)]
    while waiting:
        place, node, depth = waiting.pop()
        values += 1
        if values > _MAX_VALUES or depth > _MAX_DEPTH:
            raise _Refused(
                _line(node),
                f"becomes more than {_MAX_VALUES} values, or more than {_MAX_DEPTH} levels, by its aliases; write them out",
            )
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                lines.setdefault(f"{place}[{index}]", _line(item))
                waiting.append((f"{place}[{index}]", item, depth + 1))
        elif isinstance(node, yaml.MappingNode):
            twice.extend(_names_twice(place, node))
            for key, value in node.value:
                if key.tag == _MERGE_TAG:
                    merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
                    waiting.extend((place, each, depth + 1) for each in merged)
                    continue
                inner = f"{place}.{key.value}" if place else str(key.value)
                lines.setdefault(inner, _line(key))
                waiting.append((inner, value, depth + 1))
    return lines, sorted(set(twice))


def _names_twice(place: str, node: yaml.MappingNode) -> Iterator[tuple[int, str]]:
    first_lines: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE_TAG:
            line = _line(key)
            if (key.tag, key.value) in first_lines:
                name = f"{place}.{key.value}" if place else key.value
                yield (
                    line,
                    f"{name}: stands here twice, first in line {first_lines[key.tag, key.value]}; keep one of them",
                )
            first_lines.setdefault((key.tag, key.value), line)
