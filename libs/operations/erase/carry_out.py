"""Everything that a mesh holds of one tenant goes: ``headwater erase``.

    list everything ▶ take the document out ▶ wait until router and sink have let go ▶ empty every place ▶ look everywhere again

The list stands in ``erasures/<tenant>.json`` of the mesh's folder for notes before anything is changed, until nothing of it is
left. Every step may be done again, so a command that was killed is taken up by the next one from its beginning.
"""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from libs.errors import InvalidSettings
from libs.failpoints import failpoint
from libs.mesh.state import replace_file
from libs.operations.erase.held import Held
from libs.operations.erase.places import Erasure, OnProgress, Places
from libs.types.tenant import TENANT_NAME

_POLL_S: Final = 0.5
_SETTLED_S: Final = 60.0
"""How long removed things may still be listed: Kafka's metadata, and a last report of progress."""


class ErasureReport(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended."""

    tenant: str
    removed: tuple[Held, ...]
    """Looked for again, and not found."""
    left: tuple[Held, ...]
    """Found again. Empty where it was all removed."""
    stays: tuple[str, ...]
    """Things that no command of Headwater's removes, and why."""


def look(places: Places, tenant: str) -> Erasure:
    """Everything of ``tenant`` now, or when an erasure of it began. The mesh must run; nothing is changed.

    Raises:
        InvalidSettings: no tenant can be called so.
        TransientError, AccessDenied, PipelineHalted: one of the places does not answer; it says which.
    """
    _check_name(tenant)
    begun, known = unfinished(places.notes_dir, tenant), places.known(tenant)
    if begun is not None:
        known = msgspec.structs.replace(
            known,
            begun_at_us=begun.begun_at_us,
            held=begun.held,
            query_ids=_joined(begun.query_ids, known.query_ids),
            sources=_joined(begun.sources, known.sources),
            keys=_joined(begun.keys, known.keys),
            elsewhere=_joined(begun.elsewhere, known.elsewhere),
        )
    else:
        known = msgspec.structs.replace(known, begun_at_us=time.time_ns() // 1_000)
    there, before = places.held(known), {(each.kind, each.name) for each in known.held}
    return msgspec.structs.replace(
        known, held=(*known.held, *(each for each in there if (each.kind, each.name) not in before))
    )


def unfinished(notes_dir: Path, tenant: str) -> Erasure | None:
    """The erasure of ``tenant`` that has begun and is not done. ``notes_dir``: as ``Places`` has it.

    Raises:
        InvalidSettings: its file is of another release, or broken.
    """
    path = _journal(notes_dir, tenant)
    try:
        return _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise InvalidSettings(str(path), [f"cannot be read: {error}; remove it, and erase again"]) from error


def carry_out(
    places: Places, erasure: Erasure, *, timeout_s: float, on_progress: OnProgress = lambda _: None
) -> ErasureReport:
    """Remove all of it, and look again. May be killed anywhere: call it again with the result of ``look`` then.

    Raises:
        NotLetGo: router or sink still holds the tenant after ``timeout_s``.
        TransientError, AccessDenied, PipelineHalted: one of the places refused or did not answer; call it again.
    """
    tenant = erasure.tenant
    replace_file(_journal(places.notes_dir, tenant), msgspec.json.encode(erasure))
    on_progress("taking the document out")
    places.take_out(tenant)
    failpoint("erase_after_document")
    places.wait_until_let_go(tenant, timeout_s=timeout_s, on_progress=on_progress)
    places.empty(erasure, on_progress)
    failpoint("erase_before_looking_again")
    left = _left_in_the_end(places, erasure, on_progress)
    there = {(one.kind, one.name) for one in left}
    report = ErasureReport(
        tenant=tenant,
        removed=tuple(each for each in erasure.held if (each.kind, each.name) not in there),
        left=tuple(left),
        stays=tuple(places.stays(erasure)),
    )
    if not left:
        _journal(places.notes_dir, tenant).unlink(missing_ok=True)
    return report


def _left_in_the_end(places: Places, erasure: Erasure, on_progress: OnProgress) -> list[Held]:
    """Removed things that are found again after some time."""
    deadline_s = time.monotonic() + _SETTLED_S
    while True:
        left = places.held(erasure)
        if not left or time.monotonic() > deadline_s:
            return left
        on_progress(f"{len(left)} thing(s) are listed still")
        time.sleep(_POLL_S)
        if any(each.kind in ("progress", "Redis field") for each in left):
            places.forget_again(erasure.tenant)  # the router may have repeated an earlier report


def _joined(before: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({*before, *now}))


def _check_name(tenant: str) -> None:
    if not re.fullmatch(TENANT_NAME, tenant) or tenant == "headwater":
        raise InvalidSettings(f"tenant {tenant}", ["no tenant can be called so"])


def _journal(notes_dir: Path, tenant: str) -> Path:
    return notes_dir / "erasures" / f"{tenant}.json"


_decoder: Final = msgspec.json.Decoder(Erasure)
