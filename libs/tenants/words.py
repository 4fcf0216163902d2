"""A tenant's document, and its changes, in words for a person."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from libs.types.tenant import ColumnMask, TenantSpec


def setting_changes(old: TenantSpec, new: TenantSpec) -> Iterator[str]:
    """Of format, topics, limits and sink, each with its place and both values; changes of sources show in the tables."""
    were, become = (dict(_leaves("", msgspec.to_builtins(spec))) for spec in (old, new))
    for place in dict.fromkeys((*were, *become)):
        if were.get(place) != become.get(place) and not place.startswith(("tenant", "sources")):
            yield f"{place}: {_value_text(were, place)} → {_value_text(become, place)}"


def _leaves(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(f"{place}.{name}" if place else str(name), inner)
    else:
        yield place, value


def _value_text(leaves: Mapping[str, Any], place: str) -> str:
    return msgspec.json.encode(leaves[place]).decode() if place in leaves else "(not there)"


def mask_text(mask: ColumnMask) -> str:
    """A mask in words, without its secret."""
    if mask.truncate_chars is not None:
        return f"its first {mask.truncate_chars} characters"
    if mask.keep_last is not None:
        return f"its last {mask.keep_last} characters"
    if mask.set_null:
        return "null"
    if mask.hash is not None:
        return f"hash {mask.hash.algorithm}"
    if mask.hmac is not None:
        return f"hmac {mask.hmac.algorithm}, {_key_text(mask)}"
    if mask.format_preserving is not None:
        return f"another {mask.format_preserving.kind.value}, {_key_text(mask)}"
    if mask.encrypt is not None:
        return f"encrypted, {_key_text(mask)}"
    return f"constant {mask.constant!r}"


def _key_text(mask: ColumnMask) -> str:
    key_from = mask.key_from
    assert key_from is not None
    return f"key {key_from.file or key_from.env}"
