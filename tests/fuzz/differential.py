"""The differential fuzzers: random statements on a real MySQL and through our code, compared with the server.

    python -m tests.fuzz.differential SOURCE [--hours H | --seconds S] [--seed N] [--finds N] [--replay FILE …]

| source | compares |
|---|---|
| mysql, dts, vitess | the reader with the server; see ``tests.fuzz.source.trial`` |
| views | a tenant and its view with MySQL; see ``tests.fuzz.views.trial`` |
| sinks | tenants' warehouses with MySQL; see ``tests.fuzz.sinks.trial`` |

``make fuzz-source``, ``fuzz-dts``, ``fuzz-vitess``, ``fuzz-views`` and ``fuzz-sinks`` run it. It starts servers of its own.
Exit code 1: something differed; the smallest program that shows it is printed, and kept in ``.fuzz/SOURCE``.
Exit code 3: a program did not end; the places where its threads and tasks stand are printed (``tests.fuzz.watch``).
"""

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.conftest import start_mysql_in
from tests.fuzz.hunt import Campaign, hunt, program_of
from tests.fuzz.sinks.campaign import SinkCampaign
from tests.fuzz.sinks.warehouses import Warehouses
from tests.fuzz.source.campaign import KINDS, SourceCampaign
from tests.fuzz.views.campaign import ViewCampaign
from tests.fuzz.watch import watched

_KEPT = Path(".fuzz")
_OPTIONS = ("--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0")


def campaign_of(source: str, folder: Path, servers: ExitStack) -> Campaign:
    """The fuzzer of that name; further servers that it needs lie in ``folder``."""
    if source == "sinks":
        return SinkCampaign(Warehouses(folder, servers))
    return ViewCampaign() if source == "views" else SourceCampaign(KINDS[source])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.differential", description=__doc__)
    parser.add_argument("source", choices=(*KINDS, "views", "sinks"))
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--finds", type=int, default=1, help="how many before it ends")
    parser.add_argument("--replay", type=Path, nargs="+", help="programs instead of random ones")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, ExitStack() as servers:
        campaign = campaign_of(chosen.source, Path(folder), servers)
        server = start_mysql_in(Path(folder) / "mysql", servers, extra_options=_OPTIONS)
        if chosen.replay:
            found = []
            for path in chosen.replay:
                found.append(campaign.replayed(server, program_of(path)))
                _say(f"{path}: {found[-1] or 'right'}")
            return int(any(words is not None for words in found))
        _say(f"seed {chosen.seed}, corpus of {len(campaign.corpus())}")
        finds = hunt(
            campaign,
            server,
            seed=chosen.seed,
            seconds=chosen.hours * 3600 + chosen.seconds or 60.0,
            reported=_say,
            finds_wanted=chosen.finds,
            keep=_KEPT / chosen.source,
            watch=lambda program, limit_s: watched(program, limit_s, servers.close),
        )
    for words, times in campaign.asides().most_common(40):
        _say(f"{words}, {times} times")
    return int(bool(finds))


def _say(text: str) -> None:
    sys.stdout.write(text + os.linesep)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
