"""Programs of sinks, one after another: drawn, carried out, made smaller."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from libs.types.value_modes import DEFAULT_MODES
from tests.conftest import MysqlServer
from tests.fuzz.hunt import Find
from tests.fuzz.sinks.statements import SINK, SinkStatements, sinks_of
from tests.fuzz.sinks.trial import SinkCounts, SinkTrial
from tests.fuzz.sinks.warehouses import KINDS, Warehouses
from tests.fuzz.source.follower import Difference
from tests.fuzz.source.program import Program, Step, without
from tests.fuzz.source.trial import carried_out, events_of_structlog

CORPUS: Final = Path(__file__).parent / "corpus"
STEPS: Final = 40
_TRIES: Final = 60


async def replay(server: MysqlServer, program: Program, counts: SinkCounts, warehouses: Warehouses) -> Find | None:
    """The first difference, with the statements up to it; None: all is right. The server may refuse some statements."""
    events_of_structlog(counts)
    return await carried_out(SinkTrial(server, program, counts, warehouses), program)


async def draw(
    server: MysqlServer,
    seed: int,
    counts: SinkCounts,
    warehouses: Warehouses,
    *,
    kinds: Sequence[str] = KINDS,
    steps: int = STEPS,
) -> Find | None:
    """The program of a seed, carried out; the same server gives the same program again."""
    events_of_structlog(counts)
    chosen = random.Random(seed)
    program = Program((), DEFAULT_MODES, tenants=sinks_of(chosen, kinds))
    trial = SinkTrial(server, program, counts, warehouses)
    drawn: list[Step] = []
    try:
        trial.open()
        for step in SinkStatements(chosen, lambda: trial.tables).steps(steps):
            if await trial.take(step):
                drawn.append(step)
    except Difference as difference:
        return Find(replace(program, steps=(*drawn, step)), str(difference))
    finally:
        await trial.close()
    return None


async def shrink(server: MysqlServer, find: Find, warehouses: Warehouses, *, tries: int = _TRIES) -> Find:
    """The one tenant, and the fewest statements, that still show a difference of the same kind."""
    best = find
    smaller = [replace(find.program, tenants=(tenant,)) for tenant in find.program.tenants]
    size = max(1, len(find.program.steps) // 2)
    for program in smaller:
        tries -= 1
        best = await _if_alike(server, best, program, warehouses)
        if len(best.program.tenants) == 1:
            break
    while size and tries > 0:
        begin = len(best.program.steps) - size
        while begin >= 0 and tries > 0:
            program = replace(best.program, steps=without(best.program.steps, begin, begin + size))
            if any(step.session == SINK for step in program.steps):
                tries -= 1
                best = await _if_alike(server, best, program, warehouses)
            begin -= size
        size //= 2
    return best


async def _if_alike(server: MysqlServer, best: Find, program: Program, warehouses: Warehouses) -> Find:
    found = await replay(server, program, SinkCounts(), warehouses)
    return found if found is not None and kind_of(found.words) == kind_of(best.words) else best


def kind_of(words: str) -> str:
    """The sort of a difference, without tables and values."""
    known = ("parked", "halted", "set aside", "log lacks", "history lacks", "history misses", "rows lack", "two rows",
             "the source has", "reported without need", "not there")  # fmt: skip
    return next((each for each in known if each in words), words[:20])


class SinkCampaign:
    """The fuzzer of sinks (``tests.fuzz.hunt.Campaign``)."""

    def __init__(self, warehouses: Warehouses, *, kinds: Sequence[str] = KINDS, steps: int = STEPS) -> None:
        self._warehouses = warehouses
        self._kinds = kinds
        self._steps = steps
        self.counts = SinkCounts()

    def corpus(self) -> list[Path]:
        return sorted(CORPUS.glob("*.sql"))

    def replayed(self, server: MysqlServer, program: Program) -> str | None:
        find = asyncio.run(replay(server, program, SinkCounts(), self._warehouses))
        return None if find is None else find.words

    def tried(self, server: MysqlServer, seed: int) -> Find | None:
        return asyncio.run(draw(server, seed, self.counts, self._warehouses, kinds=self._kinds, steps=self._steps))

    def shrunk(self, server: MysqlServer, find: Find) -> Find:
        return asyncio.run(shrink(server, find, self._warehouses))

    def progress(self, programs: int, took_s: float, finds: int) -> str:
        counts = self.counts
        taken = counts.statements - counts.refused
        return (
            f"{took_s:.0f} s: {programs} programs, {taken:,} statements ({taken / took_s:.1f}/s; {counts.refused:,} refused), "
            f"{counts.batches:,} batches, {counts.compared:,} tables of {counts.rows:,} rows compared "
            f"({counts.rows / took_s:.0f}/s), parked {dict(counts.parked)}, reported {dict(counts.reported)}, finds {finds}"
        )

    def asides(self) -> Counter[str]:
        return Counter({f"parked: {words}": n for words, n in self.counts.parked.items()})
