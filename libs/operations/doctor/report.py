"""Findings of ``headwater doctor``: one for each thing that was looked at."""

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from libs.errors import HeadwaterError, InvalidSettings


class Verdict(enum.Enum):
    """Of one thing that was looked at."""

    FAULT = "fault"
    """Something does not work, or will not start."""
    WARNING = "warning"
    """It works now, and may fail or leak later."""
    OK = "ok"


_WORST_FIRST: Final = (Verdict.FAULT, Verdict.WARNING, Verdict.OK)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    verdict: Verdict
    area: str
    """``machine``, ``set-up``, ``home``, ``documents``, ``ports``, ``stack``, ``servers``, ``mesh`` or ``warehouses``."""
    subject: str
    """The thing: ``memory``, ``source shop``."""
    said: str
    """A figure or a cause, without rows' values and secrets."""
    remedy: str = ""
    """Empty where all is well."""


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """All findings, the worst first. No secret stands in it, so it can be handed to a maintainer."""

    written_at_us: int
    place: str
    """The home, or the file for ``--mesh``."""
    versions: Mapping[str, str]
    findings: tuple[Finding, ...]

    def count(self, verdict: Verdict) -> int:
        """How many findings have it."""
        return sum(each.verdict is verdict for each in self.findings)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Faults, then warnings, then the rest; within each in the order of the look."""
    return tuple(sorted(findings, key=lambda each: _WORST_FIRST.index(each.verdict)))


def well(area: str, subject: str, said: str) -> Finding:
    """It is as it should be."""
    return Finding(verdict=Verdict.OK, area=area, subject=subject, said=said)


def warning(area: str, subject: str, said: str, remedy: str) -> Finding:
    """It works now, and may fail or leak later."""
    return Finding(verdict=Verdict.WARNING, area=area, subject=subject, said=said, remedy=remedy)


def fault(area: str, subject: str, said: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(verdict=Verdict.FAULT, area=area, subject=subject, said=said, remedy=remedy)


def answered(area: str, subject: str, look: Callable[[], str], remedy: str) -> Finding:
    """Well with the text that ``look`` returns; a fault with the error that it raises, a HeadwaterError or an OSError."""
    try:
        return well(area, subject, look())
    except InvalidSettings as error:
        return fault(area, subject, "; ".join(error.mistakes), remedy)
    except (HeadwaterError, OSError) as error:
        return fault(area, subject, str(error), remedy)
