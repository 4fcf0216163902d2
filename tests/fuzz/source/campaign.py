"""Programs, one after another: drawn, replayed, made smaller."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from tests.conftest import MysqlServer
from tests.fuzz.source.follower import Difference
from tests.fuzz.source.program import BEGIN, READER, Program, Step, parse, without
from tests.fuzz.source.statements import Statements, random_modes
from tests.fuzz.source.trial import Counts, Trial, events_of_structlog

CORPUS: Final = Path(__file__).parent / "corpus"
STEPS: Final = 100


@dataclass(frozen=True, slots=True)
class Find:
    """A program whose last step shows a difference."""

    program: Program
    words: str


def corpus() -> list[Path]:
    """Past finds, by name."""
    return sorted(CORPUS.glob("*.sql"))


async def replay(server: MysqlServer, program: Program, counts: Counts, *, may_refuse: bool = False) -> str | None:
    """The first difference, or words without need; None: all is right, or reported as it is to be.

    ``may_refuse``: the server may refuse some statements.
    """
    events_of_structlog(counts)
    trial = Trial(server, program.values, counts)
    if Step(READER, BEGIN) in program.steps:
        trial.begins_later()
    try:
        trial.open()
        for step in program.steps:
            if not await trial.take(step) and not may_refuse:
                return f"the server refuses {step.text}"
    except Difference as difference:
        return str(difference)
    finally:
        await trial.close()
    if program.reported and not any(program.reported in words for words in trial.follower.reported):
        return f"nothing was reported of {program.reported}, only {trial.follower.reported}"
    return None


async def draw(server: MysqlServer, seed: int, counts: Counts, *, steps: int = STEPS) -> Find | None:
    """The program of a seed, carried out; the same server gives the same program again."""
    events_of_structlog(counts)
    values = random_modes(seed)
    trial = Trial(server, values, counts)
    trial.begins_later()
    drawn: list[Step] = []
    try:
        trial.open()
        statements = Statements(seed, lambda: trial.tables)
        for step in statements.steps(steps):
            taken = await trial.take(step)
            if taken:
                drawn.append(step)
    except Difference as difference:
        return Find(Program((*drawn, step), values), str(difference))
    finally:
        await trial.close()
    return None


async def shrink(server: MysqlServer, find: Find, *, tries: int = 150) -> Find:
    """The smallest list of its statements that still shows a difference of the same kind."""
    best, left = find, tries
    size = max(1, len(best.program.steps) // 2)
    while size and left:
        begin = len(best.program.steps) - size
        while begin >= 0 and left:
            left -= 1
            smaller = replace(best.program, steps=without(best.program.steps, begin, begin + size))
            words = await replay(server, smaller, Counts(), may_refuse=True) if smaller.steps else None
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
             "lacks", "not there",
             "has the columns", "no version")  # fmt: skip
    return next((each for each in known if each in words), words[:20])


def program_of(path: Path) -> Program:
    return parse(path.read_text())


def run(
    server: MysqlServer,
    *,
    seed: int,
    seconds: float,
    reported: Callable[[str], None],
    finds_wanted: int = 1,
    programs_wanted: int = 1 << 40,
    keep: Path | None = None,
) -> tuple[Counts, Sequence[Find]]:
    """Draw programs of ``seed``, ``seed + 1`` … for so long, or so many, or until so many differ.

    Each find is made smaller, reported and kept."""
    counts = Counts()
    finds = hunt(
        lambda own_seed: asyncio.run(draw(server, own_seed, counts)),
        lambda find: asyncio.run(shrink(server, find)),
        partial(progress, counts),
        seed=seed,
        seconds=seconds,
        reported=reported,
        finds_wanted=finds_wanted,
        programs_wanted=programs_wanted,
        keep=keep,
    )
    return counts, finds


def hunt(
    tried: Callable[[int], Find | None],
    shrunk: Callable[[Find], Find],
    progress: Callable[[int, float, int], str],
    *,
    seed: int,
    seconds: float,
    reported: Callable[[str], None],
    finds_wanted: int,
    programs_wanted: int,
    keep: Path | None,
) -> list[Find]:
    """The finds of ``seed``, ``seed + 1`` …, for so long, or so many programs, or until so many differ.

    ``tried``: carries the program of a seed out. ``progress``: one line from programs, seconds and finds; it is reported every
    ten seconds and at the end. Each find is made smaller by ``shrunk``, reported, and kept in the folder ``keep``."""
    finds = list[Find]()
    begun = reported_s = time.monotonic()
    programs = 0
    while time.monotonic() - begun < seconds and len(finds) < finds_wanted and programs < programs_wanted:
        find = tried(seed + programs)
        if find is not None:
            reported(f"seed {seed + programs}: {find.words[:1500]}")
            smaller = shrunk(find)
            finds.append(smaller)
            reported(f"{smaller.words[:3000]}\n{smaller.program.text()}")
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                text = replace(smaller.program, found=smaller.words[:200].replace("\n", " ")).text()
                (keep / f"{seed + programs}.sql").write_text(text)
        programs += 1
        if time.monotonic() - reported_s > 10:
            reported_s = time.monotonic()
            reported(progress(programs, reported_s - begun, len(finds)))
    reported(progress(programs, time.monotonic() - begun, len(finds)))
    return finds


def progress(counts: Counts, programs: int, took_s: float, finds: int) -> str:
    """One line."""
    taken = counts.statements - counts.refused
    return (
        f"{took_s:.0f} s: {programs} programs, {taken:,} statements ({taken / took_s:.0f}/s; {counts.refused:,} refused), "
        f"{counts.cells:,} cells ({counts.cells / took_s:,.0f}/s), {counts.events:,} events, reported {dict(counts.reported)}, "
        f"finds {finds}"
    )


def rotating_seed(today: int) -> int:
    """A seed of the day, far from those of other days."""
    return random.Random(today).randrange(1 << 40)
