"""Programs of views, one after another: drawn, carried out, made smaller."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from tests.conftest import MysqlServer
from tests.fuzz.hunt import Find
from tests.fuzz.source.campaign import kind_of
from tests.fuzz.source.program import Program, without
from tests.fuzz.source.trial import carried_out, events_of_structlog
from tests.fuzz.views.statements import program_of_seed
from tests.fuzz.views.trial import ViewCounts, ViewTrial
from tests.fuzz.views.views import View

CORPUS: Final = Path(__file__).parent / "corpus"


async def replay(server: MysqlServer, program: Program, counts: ViewCounts) -> Find | None:
    """The first difference, with the statements up to it; None: all is right. The server may refuse some statements."""
    events_of_structlog(counts)
    return await carried_out(ViewTrial(server, program, counts), program)


async def shrink(server: MysqlServer, find: Find, *, tries: int = 120) -> Find:
    """Fewer tenants, smaller views, fewer statements that still show a difference of the same kind."""
    best = find
    is_smaller = True
    while is_smaller and tries:
        is_smaller = False
        for smaller in _smaller(best.program):
            if not tries:
                break
            tries -= 1
            found = await replay(server, smaller, ViewCounts())
            if found is not None and kind_of(found.words) == kind_of(best.words):
                best, is_smaller = found, True
                break
    return best


def _smaller(program: Program) -> Iterator[Program]:
    """The largest cuts first."""
    if len(program.tenants) > 1:
        for tenant in program.tenants:
            yield replace(program, tenants=(tenant,))
    size = len(program.steps) // 2
    while size:
        for begin in range(len(program.steps) - size, -1, -size):
            yield replace(program, steps=without(program.steps, begin, begin + size))
        size //= 2
    for number, text in enumerate(program.tenants):
        for view in _smaller_views(msgspec.json.decode(text, type=View)):
            tenants = list(program.tenants)
            tenants[number] = msgspec.json.encode(view).decode()
            yield replace(program, tenants=tuple(tenants))


def _smaller_views(view: View) -> Iterator[View]:
    for name in ("masks", "exclude_columns", "rename_columns", "row_filters"):
        parts = getattr(view.selection, name)
        for number in range(len(parts)):
            selection = msgspec.structs.replace(view.selection, **{name: parts[:number] + parts[number + 1 :]})
            conditions = view.conditions
            if name == "row_filters":
                conditions = conditions[:number] + conditions[number + 1 :]
            yield msgspec.structs.replace(view, selection=selection, conditions=conditions)
    if view.has_schemas:
        yield msgspec.structs.replace(view, has_schemas=False)


class ViewCampaign:
    """The fuzzer of tenants' views (``tests.fuzz.hunt.Campaign``)."""

    def __init__(self) -> None:
        self.counts = ViewCounts()

    def corpus(self) -> list[Path]:
        return sorted(CORPUS.glob("*.sql"))

    def replayed(self, server: MysqlServer, program: Program) -> str | None:
        find = asyncio.run(replay(server, program, ViewCounts()))
        return None if find is None else find.words

    def tried(self, server: MysqlServer, seed: int) -> Find | None:
        return asyncio.run(replay(server, program_of_seed(seed), self.counts))

    def shrunk(self, server: MysqlServer, find: Find) -> Find:
        return asyncio.run(shrink(server, find))

    def progress(self, programs: int, took_s: float, finds: int) -> str:
        counts = self.counts
        taken = counts.statements - counts.refused
        return (
            f"{took_s:.0f} s: {programs} programs, {taken:,} statements ({taken / took_s:.0f}/s; {counts.refused:,} refused), "
            f"{counts.judged:,} rows judged ({counts.judged / took_s:,.0f}/s), {counts.delivered:,} events of tenants, "
            f"views refused {counts.refused_views.total()}, not judged {dict(counts.not_judged)}, finds {finds}"
        )

    def asides(self) -> Counter[str]:
        return Counter({f"refused: {reason}": n for reason, n in self.counts.refused_views.items()})
