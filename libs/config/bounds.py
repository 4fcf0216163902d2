"""The bounds of every number of a document: said once, in its type, for schema, chart and judgement alike."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec


class Bounds(NamedTuple):
    """From ``least`` to ``most``, both taken."""

    least: float
    most: float


def bounds_of(hint: Any) -> Bounds | None:
    """Those that a field's type says; None: it says none."""
    for meta in getattr(hint, "__metadata__", ()):
        schema = (meta.extra_json_schema or {}) if isinstance(meta, msgspec.Meta) else {}
        if "maximum" in schema:
            return Bounds(schema["minimum"], schema["maximum"])
    return None


@functools.cache
def _bounds_in(record: type[msgspec.Struct]) -> tuple[tuple[str, Bounds | None, Bounds | None], ...]:
    """The fields of a record, each with its bounds, and those of a list's members. Kept: type hints are read from the
    annotations' text at each call."""
    hints = get_type_hints(record, include_extras=True)
    return tuple(
        (name, bounds_of(hints[name]), bounds_of(next(iter(get_args(hints[name])), None)))
        for name in record.__struct_fields__
    )


def bound_mistakes(record: msgspec.Struct, place: str = "") -> Iterator[str]:
    """Numbers of ``record``, and of the records in it, that are out of their bounds; place first. NaN is out of all."""
    for name, found, of_members in _bounds_in(type(record)):
        value, at = getattr(record, name), f"{place}.{name}" if place else name
        if found is not None and value is not None and not found.least <= value <= found.most:
            yield f"{at}: must be from {found.least:,} to {found.most:,}"
        elif isinstance(value, msgspec.Struct):
            yield from bound_mistakes(value, at)
        elif isinstance(value, tuple):
            for index, each in enumerate(value):
                if isinstance(each, msgspec.Struct):
                    yield from bound_mistakes(each, f"{at}[{index}]")
                elif of_members is not None and not of_members.least <= each <= of_members.most:
                    yield f"{at}[{index}]: must be from {of_members.least:,} to {of_members.most:,}"
