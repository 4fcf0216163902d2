"""Programs of one seed after another, until some differ: the loop of every differential fuzzer."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tests.conftest import MysqlServer
from tests.fuzz.source.program import Program, parse
from tests.fuzz.watch import LIMIT_S


@dataclass(frozen=True, slots=True)
class Find:
    """A program whose last step shows a difference."""

    program: Program
    words: str


def program_of(path: Path) -> Program:
    """Raises ValueError, ValidationError, OSError."""
    return parse(path.read_text())


class Campaign(Protocol):
    """One fuzzer: its programs, and what was counted so far."""

    def corpus(self) -> list[Path]:
        """Past finds, by name."""
        ...

    def replayed(self, server: MysqlServer, program: Program) -> str | None:
        """The first difference, or words without need; None: all is right, or reported as it is to be."""
        ...

    def tried(self, server: MysqlServer, seed: int) -> Find | None:
        """Carry the program of a seed out; the same server gives the same program again."""
        ...

    def shrunk(self, server: MysqlServer, find: Find) -> Find:
        """The smallest program that still shows a difference of the same kind."""
        ...

    def progress(self, programs: int, took_s: float, finds: int) -> str:
        """One line."""
        ...

    def asides(self) -> Counter[str]:
        """Things of the whole campaign that are no difference and worth a look."""
        ...


def hunt(
    campaign: Campaign,
    server: MysqlServer,
    *,
    seed: int,
    seconds: float,
    reported: Callable[[str], None],
    finds_wanted: int = 1,
    programs_wanted: int = 1 << 40,
    keep: Path | None = None,
    watch: Callable[[str, float], AbstractContextManager[None]] = lambda _program, _limit_s: nullcontext(),
) -> list[Find]:
    """The finds of ``seed``, ``seed + 1`` …, for so long, or so many programs, or until so many differ.

    ``reported`` is given the progress every ten seconds and at the end. Each find is made smaller, reported, and kept in the
    folder ``keep``. ``watch`` is around each program, with the
    longest time that it may take."""
    finds = list[Find]()
    begun = reported_s = time.monotonic()
    programs = 0
    while time.monotonic() - begun < seconds and len(finds) < finds_wanted and programs < programs_wanted:
        with watch(f"the program of seed {seed + programs}", LIMIT_S):
            find = campaign.tried(server, seed + programs)
        if find is not None:
            reported(f"seed {seed + programs}: {find.words[:1500]}")
            with watch(f"making the program of seed {seed + programs} smaller", 4 * LIMIT_S):
                smaller = campaign.shrunk(server, find)
            finds.append(smaller)
            reported(f"{smaller.words[:3000]}\n{smaller.program.text()}")
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                text = replace(smaller.program, found=smaller.words[:200].replace("\n", " ")).text()
                (keep / f"{seed + programs}.sql").write_text(text)
        programs += 1
        if time.monotonic() - reported_s > 10:
            reported_s = time.monotonic()
            reported(campaign.progress(programs, reported_s - begun, len(finds)))
    reported(campaign.progress(programs, time.monotonic() - begun, len(finds)))
    return finds
