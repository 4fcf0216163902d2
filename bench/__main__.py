"""``python -m bench``: measure, and write the figures with what they were measured on to ``bench/RESULTS.md``.

``make bench`` runs it; about ten minutes. Figures are CPU seconds, since machines are noisy; a run with other work beside it
is worse by a half and more, which the load average shows.
"""

import argparse
import datetime
import os
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.catch_up import CatchUp, measure_catch_up
from bench.sink import SinkFigures, measure_sink

RESULTS: Final = Path(__file__).with_name("RESULTS.md")
ROW_EVENTS: Final = 500_000


def main() -> int:
    """Run the benches named (default: all that are) and write the results."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.split("\n\n")[0])
    parser.add_argument("--row-events", type=int, default=ROW_EVENTS, help="of the catch-up (default: %(default)s)")
    parser.add_argument("--write", type=Path, default=RESULTS, help="where the figures go (default: bench/RESULTS.md)")
    arguments = parser.parse_args()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        _say(f"catch-up of {arguments.row_events:,} row events: writing the log takes a minute or two")
        catch_up = measure_catch_up(Path(folder, "catch-up"), arguments.row_events)
        _say(f"catch-up: {catch_up.cpu_s_per_million:.1f} CPU s per 1M events; now the sink")
        shutil.rmtree(Path(folder, "catch-up"), ignore_errors=True)
        sink = measure_sink(Path(folder, "sink"))
        _say(f"sink: {sink.changes_per_s:,.0f} changes/s")
    arguments.write.write_text(_document(catch_up, sink, load_before), encoding="utf-8")
    _say(f"written to {arguments.write}")
    return 0


def _document(catch_up: CatchUp, sink: SinkFigures, load_before: float) -> str:
    per_million = 1e6 / catch_up.row_events
    return f"""# Results

Written by `make bench`; do not edit. Measured on {datetime.datetime.now(datetime.UTC):%Y-%m-%d} with {os.cpu_count()} cores, \
Python {platform.python_version()}, load average {load_before:.1f} before the run.

## Catch-up: MySQL's log to one tenant's topic

{catch_up.row_events:,} row events of a table of ten columns, in transactions of 100 rows (60 inserts, 30 updates, 10
deletes, each a statement of its own), waiting in the log; JSON without schemas, six headers an event, a tombstone
behind each delete.

| | reader | router | together | bound |
|---|---|---|---|---|
| CPU s per 1M events | {catch_up.reader_cpu_s * per_million:.1f} | {catch_up.router_cpu_s * per_million:.1f} \
| {catch_up.cpu_s_per_million:.1f} | 12 |
| peak RSS, MB | {catch_up.reader_peak_rss_mb:.0f} | {catch_up.router_peak_rss_mb:.0f} | | 200 each |

{catch_up.row_events / catch_up.wall_s:,.0f} events/s by the clock, with MySQL and Kafka on the same cores.

## Sink: a tenant's topic into an Iceberg mirror

{sink.changes:,} changes over {sink.keys:,} keys of one table, Spark local[2].

| changes/s merged | bound | wall s | CPU s | peak RSS, MB | rows/s appended |
|---|---|---|---|---|---|
| {sink.changes_per_s:,.0f} | 25,000 | {sink.wall_s:.1f} | {sink.cpu_s:.1f} | {sink.peak_rss_mb:.0f} \
| {sink.append_rows_per_s:,.0f} |
"""


def _say(text: str) -> None:
    sys.stderr.write(f"[{time.strftime('%H:%M:%S')}] {text}\n")


if __name__ == "__main__":
    sys.exit(main())
