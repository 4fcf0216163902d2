"""Whether a good document fits where it is to serve: the names in it that are there, and those that are not.

The embedded stack and the tenant operator both judge by this, each in the name of its own place.
"""

import difflib
from collections.abc import Iterator, Sequence

from libs.types.tenant import TenantSpec


def nearest(name: str, known: Sequence[str]) -> str:
    """A clause for an error message: the known name that ``name`` resembles, else all of them."""
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(sorted(known))}" if known else "there is none yet"


def source_mistakes(spec: TenantSpec, known: Sequence[str], *, where: str) -> Iterator[str]:
    """Each source that is none of ``known``, place first; ``where`` says of what: ``in sources/``."""
    for index, selection in enumerate(spec.sources):
        if selection.name not in known:
            yield f"sources[{index}].name: no source {selection.name!r} {where}; {nearest(selection.name, known)}"


def warehouse_mistakes(spec: TenantSpec, known: Sequence[str], *, where: str = "") -> Iterator[str]:
    """The warehouse of its tables, where it is none of ``known``; ``where`` says of what, in front of a blank."""
    if spec.sink is not None and spec.sink.warehouse not in known:
        yield f"sink.warehouse: {spec.sink.warehouse!r} is no warehouse{where}; {nearest(spec.sink.warehouse, known)}"
