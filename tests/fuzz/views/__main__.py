"""Random views of tenants over random rows, compared with MySQL's own evaluation; see ``tests.fuzz.views.trial``.

    python -m tests.fuzz.views [--hours H | --seconds S] [--seed N] [--finds N] [--replay FILE …]

``make fuzz-views`` runs it. It starts a server of its own. Exit code 1: something differed; the smallest program that shows it
is printed, and kept in ``.fuzz/views``.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.conftest import start_mysql_in
from tests.fuzz.source.__main__ import OPTIONS
from tests.fuzz.source.campaign import program_of
from tests.fuzz.views.campaign import CORPUS, corpus, replay, run
from tests.fuzz.views.trial import ViewCounts

_KEPT = Path(".fuzz/views")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.views", description=__doc__)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--finds", type=int, default=1, help="how many before it ends")
    parser.add_argument("--replay", type=Path, nargs="+", help="programs instead of random ones")
    chosen = parser.parse_args()
    seconds = chosen.hours * 3600 + chosen.seconds or 60.0
    with tempfile.TemporaryDirectory(prefix="fuzz-views-") as folder, ExitStack() as servers:
        server = start_mysql_in(Path(folder), servers, extra_options=OPTIONS)
        if chosen.replay:
            differing = 0
            for path in chosen.replay:
                find = asyncio.run(replay(server, program_of(path), ViewCounts()))
                differing += find is not None
                _say(f"{path}: {'right' if find is None else find.words}")
            return min(differing, 1)
        _say(f"seed {chosen.seed}, corpus of {len(corpus())} in {CORPUS}")
        counts, finds = run(
            server, seed=chosen.seed, seconds=seconds, reported=_say, finds_wanted=chosen.finds, keep=_KEPT
        )
    for reason, times in counts.refused_views.most_common(40):
        _say(f"refused, {times} times: {reason}")
    return 1 if finds else 0


def _say(text: str) -> None:
    sys.stdout.write(text + os.linesep)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
