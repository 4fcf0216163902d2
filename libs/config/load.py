"""Settings: from a YAML file and the environment into one frozen record, every mistake reported at once.

A service calls ``load_settings`` once, in ``__main__``. The environment wins over the file:
``HEADWATER_KAFKA__BOOTSTRAP_SERVERS`` sets ``kafka.bootstrap_servers``.
"""

import difflib
import enum
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from libs.config import secret_sources
from libs.config.bounds import bound_mistakes
from libs.config.yaml_text import YamlDocument, read_yaml_file
from libs.errors import InvalidSettings

_Settings = TypeVar("_Settings", bound=msgspec.Struct)

ENVIRONMENT_PREFIX = "HEADWATER_"
KEY_VARIABLE_PREFIX = "HEADWATER_KEY__"
"""Of the variables that hold masks' keys (``mask_keys``); none of them is a setting."""
_WORDS_OF_YAML = {True: ("on", "yes", "true"), False: ("off", "no", "false")}
"""YAML 1.1 reads these words as booleans, also where a setting's choices are called so."""
_NO_TEXT = re.compile(r"Expected `str`, got `(int|float|bool)`")
"""YAML takes an unquoted -80, 1.10 or yes for no text."""
_NOT_SETTINGS = frozenset(
    {
        "HEADWATER_FAILPOINTS",
        "HEADWATER_CACHE",
        "HEADWATER_FAULTS_FILE",
        "HEADWATER_HOME",
        "HEADWATER_TERMINATION_LOG",
    }
)


class Secret(msgspec.Struct, frozen=True):
    """A value that prints as ``***``; read it with ``reveal``."""

    value: str

    def reveal(self) -> str:
        """The secret itself; pass it on, never log it."""
        return self.value

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


def load_settings(record: type[_Settings], *, path: Path | None, environ: Mapping[str, str], subject: str) -> _Settings:
    """The settings of ``record``'s shape from ``path`` (None: no file) and ``environ``.

    Raises:
        InvalidSettings: with every mistake (place, mistake, nearest right name); correct them all and start again.
    """
    mistakes: list[str] = []
    read = _read_document(path, mistakes) if path is not None else None
    if mistakes:  # the file's content is unknown: everything would look missing
        raise InvalidSettings(subject, mistakes)
    document = {} if read is None else dict(read.value)
    overlaid = _overlay_environment(document, record, environ, mistakes)
    found: list[str] = []
    settings = convert_document(record, document, place="", mistakes=found)
    if settings is not None:
        found += bound_mistakes(settings)
    for mistake in found:
        if read is None or mistake.partition(":")[0] in overlaid:
            mistakes.append(mistake)
        else:
            mistakes += read.lines.locate([mistake])
    if mistakes or settings is None:
        raise InvalidSettings(subject, mistakes)
    return settings


def convert_document(record: type[_Settings], document: Any, *, place: str, mistakes: list[str]) -> _Settings | None:
    """``document`` (parsed YAML) as ``record``; None when anything was wrong, with each mistake appended.

    Unknown names, missing names and wrong types are all collected, at every depth, before anything is refused.
    """
    before = len(mistakes)
    if not isinstance(document, dict):
        mistakes.append(f"{place or 'document'}: must be a mapping of names to values, is {_kind(document)}")
        return None
    fields, secrets_from = _fields_of(record)
    for name in document:
        if name not in fields and name not in secrets_from:
            mistakes.append(f"{_join(place, name)}: unknown name{_nearest(str(name), fields)}")
    values: dict[str, Any] = {}
    for source, name in secrets_from.items():
        if source in document:
            values[fields[name].name] = _secret_from(document, source, name, place, mistakes)
    for name, field in fields.items():
        if field.name in values:
            continue
        if name in document:
            values[field.name] = _convert_value(field.type, document[name], _join(place, name), mistakes)
        elif field.required:
            mistakes.append(f"{_join(place, name)}: is missing")
    if len(mistakes) > before:
        return None
    try:
        return record(**values)
    except InvalidSettings as error:  # of its __post_init__: contradicting settings
        mistakes.extend(_join(place, mistake) for mistake in error.mistakes)
        return None
    except ValueError as error:  # the same, of a record that msgspec converts elsewhere
        mistakes.append(f"{place or 'document'}: {error}")
        return None


@functools.cache
def _fields_of(record: type[msgspec.Struct]) -> tuple[Mapping[str, msgspec.structs.FieldInfo], Mapping[str, str]]:
    """The fields of a record by their names in documents, and those that hold secrets by the name of their other source.

    Kept, because a mesh has a thousand documents of one record, and msgspec reads its annotations at each call.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(record)}
    secrets = (name for name, field in fields.items() if _struct_of(field.type) is Secret)
    return fields, {f"{name}{secret_sources.SUFFIX}": name for name in secrets}


def _convert_value(kind: Any, value: Any, place: str, mistakes: list[str]) -> Any:
    if hasattr(kind, "__metadata__"):  # Annotated: its additions are for schemas
        kind = kind.__origin__
    inner = _struct_of(kind)
    if inner is Secret and not isinstance(value, dict):
        mistake = secret_sources.placeholder_mistake(place.rpartition(".")[2], str(value))
        mistakes += [f"{place}: {mistake}"] if mistake is not None else []
        return Secret(str(value))
    if inner is not None and isinstance(value, dict):
        return convert_document(inner, value, place=place, mistakes=mistakes)
    item = _struct_of_tuple(kind)
    if item is not None and isinstance(value, list):
        return tuple(
            convert_document(item, element, place=f"{place}[{index}]", mistakes=mistakes)
            for index, element in enumerate(value)
        )
    element = _enum_of_tuple(kind)
    if element is not None and isinstance(value, list):
        return tuple(_convert_value(element, each, f"{place}[{index}]", mistakes) for index, each in enumerate(value))
    known = _members_of(kind)
    if isinstance(value, bool):
        value = next((word for word in _WORDS_OF_YAML[value] if word in known), value)
    if known and isinstance(value, str) and value not in known:
        mistakes.append(f"{place}: unknown value {value!r}{_nearest(value, known)}")
        return None
    try:
        return msgspec.convert(value, kind, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        quotes = "; put quotes around it" if not known and _NO_TEXT.search(str(error)) else ""
        mistakes.append(f"{place}: {error}{quotes}")
        return None


def _secret_from(document: dict[str, Any], source: str, name: str, place: str, mistakes: list[str]) -> Secret | None:
    if name in document:
        mistakes.append(f"{_join(place, source)}: {name} stands there too; leave one of them out")
        return None
    try:
        return Secret(secret_sources.read_secret(document[source]))
    except ValueError as error:
        mistakes.append(f"{_join(place, source)}: {error}")
        return None


@functools.cache
def _struct_of(kind: Any) -> Any:
    candidates = [kind, *get_args(kind)] if not _struct_of_tuple(kind) else []
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, msgspec.Struct):
            return candidate
    return None


@functools.cache
def _members_of(kind: Any) -> tuple[str, ...]:
    """The values of an enumeration, or of one that may be None."""
    return tuple(
        str(member.value)
        for candidate in (kind, *get_args(kind))
        if isinstance(candidate, type) and issubclass(candidate, enum.Enum)
        for member in candidate
    )


def _struct_of_tuple(kind: Any) -> Any:
    return _element_of_tuple(kind, msgspec.Struct)


def _enum_of_tuple(kind: Any) -> Any:
    return _element_of_tuple(kind, enum.Enum)


@functools.cache
def _element_of_tuple(kind: Any, base: type) -> Any:
    arguments = get_args(kind)
    if getattr(kind, "__origin__", None) is tuple and arguments:
        element = arguments[0]
        if isinstance(element, type) and issubclass(element, base):
            return element
    return None


def _read_document(path: Path, mistakes: list[str]) -> YamlDocument | None:
    document = read_yaml_file(path, shown_as=str(path), mistakes=mistakes)
    if document is None or document.value is None:
        return None
    if not isinstance(document.value, dict):
        mistakes.append(f"{path}: must be a mapping of names to values, is {_kind(document.value)}")
        return None
    return document


def _overlay_environment(
    document: dict[str, Any], record: type[msgspec.Struct], environ: Mapping[str, str], mistakes: list[str]
) -> set[str]:
    """Put the environment's settings into ``document``; returns their places."""
    overlaid: set[str] = set()
    known = {field.encode_name for field in msgspec.structs.fields(record)}
    for variable, value in sorted(environ.items()):
        is_key = variable.startswith(KEY_VARIABLE_PREFIX)
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _NOT_SETTINGS or is_key:
            continue
        path = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
        if path[0] not in known:
            mistakes.append(f"{variable}: sets no known name{_nearest(path[0], known)}")
            continue
        target = document
        for step in path[:-1]:
            target = target.setdefault(step, {})
            if not isinstance(target, dict):
                mistakes.append(f"{variable}: {step} is no group of settings")
                break
        else:
            target[path[-1]] = value
            overlaid.add(".".join(path))
    return overlaid


def _nearest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(sorted(known))}"


def _join(place: str, name: object) -> str:
    return f"{place}.{name}" if place else str(name)


def _kind(value: object) -> str:
    return "empty" if value is None else type(value).__name__
