"""Programs of views, one after another: drawn, carried out, made smaller."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from tests.conftest import MysqlServer
from tests.fuzz.source.campaign import Find, hunt, kind_of
from tests.fuzz.source.follower import Difference
from tests.fuzz.source.program import Program, without
from tests.fuzz.source.trial import events_of_structlog
from tests.fuzz.views.statements import program_of_seed
from tests.fuzz.views.trial import ViewCounts, ViewTrial
from tests.fuzz.views.views import View

CORPUS: Final = Path(__file__).parent / "corpus"


def corpus() -> list[Path]:
    """Past finds, by name."""
    return sorted(CORPUS.glob("*.sql"))


async def replay(server: MysqlServer, program: Program, counts: ViewCounts) -> Find | None:
    """The first difference, with the statements up to it; None: all is right. The server may refuse some statements."""
    events_of_structlog(counts)
    trial = ViewTrial(server, program, counts)
    done = 0
    try:
        trial.open()
        for step in program.steps:
            done += 1
            await trial.take(step)
    except Difference as difference:
        return Find(replace(program, steps=program.steps[:done]), str(difference))
    finally:
        await trial.close()
    return None


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


def run(
    server: MysqlServer,
    *,
    seed: int,
    seconds: float,
    reported: Callable[[str], None],
    finds_wanted: int = 1,
    programs_wanted: int = 1 << 40,
    keep: Path | None = None,
) -> tuple[ViewCounts, Sequence[Find]]:
    """As ``tests.fuzz.source.campaign.run``."""
    counts = ViewCounts()
    finds = hunt(
        lambda own_seed: asyncio.run(replay(server, program_of_seed(own_seed), counts)),
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


def progress(counts: ViewCounts, programs: int, took_s: float, finds: int) -> str:
    """One line."""
    taken = counts.statements - counts.refused
    return (
        f"{took_s:.0f} s: {programs} programs, {taken:,} statements ({taken / took_s:.0f}/s; {counts.refused:,} refused), "
        f"{counts.judged:,} rows judged ({counts.judged / took_s:,.0f}/s), {counts.delivered:,} events of tenants, "
        f"views refused {counts.refused_views.total()}, not judged {dict(counts.not_judged)}, finds {finds}"
    )
