"""Bounds of a number in a document or in settings, said in its type."""

import msgspec


def bounds(least: float, most: float) -> msgspec.Meta:
    """From ``least`` to ``most``, both taken. ``libs.config.bounds`` enforces them, in words of its own; msgspec does not."""
    return msgspec.Meta(extra_json_schema={"minimum": least, "maximum": most})
