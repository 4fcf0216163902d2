"""Programs, one after another: drawn, replayed, made smaller."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from libs.types.value_modes import ValueModes
from tests.conftest import MysqlServer
from tests.fuzz.hunt import Find
from tests.fuzz.source import dts, vitess
from tests.fuzz.source.dts import DtsFollowed
from tests.fuzz.source.followed import CORPUS, BinlogFollowed, takes_all
from tests.fuzz.source.follower import Difference
from tests.fuzz.source.program import BEGIN, READER, Program, Step, without
from tests.fuzz.source.statements import Statements, random_modes
from tests.fuzz.source.trial import Counts, Trial, events_of_structlog
from tests.fuzz.source.vitess import VitessTrial

STEPS: Final = 100


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of source."""

    name: str
    trial: Callable[[MysqlServer, ValueModes, Counts], Trial]
    takes: Callable[[Step], bool] = takes_all
    """Whether it knows such steps. Others are left out, also of a program that is replayed."""

    def corpus(self) -> list[Path]:
        """Past finds, by name."""
        return sorted((CORPUS / self.name).glob("*.sql"))


MYSQL: Final = Kind("mysql", Trial)
DTS: Final = Kind("dts", partial(Trial, followed=DtsFollowed, beside=BinlogFollowed), dts.takes)
VITESS: Final = Kind("vitess", VitessTrial, vitess.takes)
KINDS: Final = {kind.name: kind for kind in (MYSQL, DTS, VITESS)}


async def replay(
    server: MysqlServer, program: Program, counts: Counts, kind: Kind = MYSQL, *, may_refuse: bool = False
) -> str | None:
    """The first difference, or words without need; None: all is right, or reported as it is to be.

    ``may_refuse``: the server may refuse some statements.
    """
    events_of_structlog(counts)
    trial = kind.trial(server, program.values, counts)
    if Step(READER, BEGIN) in program.steps:
        trial.begins_later()
    try:
        trial.open()
        for step in filter(kind.takes, program.steps):
            if not await trial.take(step) and not may_refuse:
                return f"the server refuses {step.text}"
    except Difference as difference:
        return str(difference)
    finally:
        await trial.close()
    if program.reported and not any(program.reported in words for words in trial.follower.reported):
        return f"nothing was reported of {program.reported}, only {trial.follower.reported}"
    return None


async def draw(
    server: MysqlServer, seed: int, counts: Counts, kind: Kind = MYSQL, *, steps: int = STEPS
) -> Find | None:
    """The program of a seed, carried out; the same server gives the same program again."""
    events_of_structlog(counts)
    values = random_modes(seed)
    trial = kind.trial(server, values, counts)
    trial.begins_later()
    drawn: list[Step] = []
    try:
        trial.open()
        statements = Statements(seed, lambda: trial.tables)
        for step in filter(kind.takes, statements.steps(steps)):
            taken = await trial.take(step)
            if taken:
                drawn.append(step)
    except Difference as difference:
        return Find(Program((*drawn, step), values), str(difference))
    finally:
        await trial.close()
    return None


async def shrink(server: MysqlServer, find: Find, kind: Kind = MYSQL, *, tries: int = 150) -> Find:
    """The smallest list of its statements that still shows a difference of the same kind."""
    best, left = find, tries
    size = max(1, len(best.program.steps) // 2)
    while size and left:
        begin = len(best.program.steps) - size
        while begin >= 0 and left:
            left -= 1
            smaller = replace(best.program, steps=without(best.program.steps, begin, begin + size))
            words = await replay(server, smaller, Counts(), kind, may_refuse=True) if smaller.steps else None
            if words is not None and kind_of(words) == kind_of(best.words):
                best = Find(smaller, words)
            begin -= size
        size = size // 2 if size > 1 else 0
    return best


def kind_of(words: str) -> str:
    """The sort of a difference, without tables and values."""
    known = ("reported without need", "halted", "does not come", "known tables", "columns [", "the model has", "DEFAULT",
             "key (",
             "SHOW CREATE", "a snapshot reads", "the log gave", "an ALTER changed", "a sink fills", "the key",
             "a copy lacks", "lacks", "not there",
             "has the columns", "no version")  # fmt: skip
    return next((each for each in known if each in words), words[:20])


class SourceCampaign:
    """The fuzzer of one kind of source (``tests.fuzz.hunt.Campaign``)."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.counts = Counts()

    def corpus(self) -> list[Path]:
        return self._kind.corpus()

    def replayed(self, server: MysqlServer, program: Program) -> str | None:
        return asyncio.run(replay(server, program, Counts(), self._kind))

    def tried(self, server: MysqlServer, seed: int) -> Find | None:
        return asyncio.run(draw(server, seed, self.counts, self._kind))

    def shrunk(self, server: MysqlServer, find: Find) -> Find:
        return asyncio.run(shrink(server, find, self._kind))

    def progress(self, programs: int, took_s: float, finds: int) -> str:
        counts = self.counts
        taken = counts.statements - counts.refused
        return (
            f"{took_s:.0f} s: {programs} programs, {taken:,} statements ({taken / took_s:.0f}/s; {counts.refused:,} refused), "
            f"{counts.cells:,} cells ({counts.cells / took_s:,.0f}/s), {counts.events:,} events, {counts.copies:,} copies, "
            f"reported {dict(counts.reported)}, finds {finds}"
        )

    def asides(self) -> Counter[str]:
        return Counter(
            {f"answered by the source alone: {reason}": n for reason, n in self.counts.not_understood.items()}
        )


def rotating_seed(today: int) -> int:
    """A seed of the day, far from those of other days."""
    return random.Random(today).randrange(1 << 40)
