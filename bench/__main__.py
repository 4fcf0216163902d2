"""``python -m bench``: measure, and write the figures, with the machine they were measured on, to ``bench/RESULTS.md``.

``make bench`` runs it; under an hour. ``python -m bench catch-up`` runs that part alone and writes its section again.
Figures are CPU seconds, because machines are noisy; a run with other work beside it is worse by a half and more, which the load
average shows. Hence the peers in the same run, Debezium and a plain MERGE: the ratios to them wander least.
"""

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench import dts
from bench.calibrate import loop_cpu_ms
from bench.catch_up import CatchUp, PeerCatchUp, measure_catch_up
from bench.debezium import peer_jars
from bench.debezium_vitess import vitess_peer_jars
from bench.fairness import BOUND_RATIO as BOUND_FAIRNESS_RATIO
from bench.fairness import NOISY_LIMIT_PER_S, QUIET_TENANTS, FairnessRun, measure_fairness
from bench.fanout import TENANTS as FANOUT_TENANTS
from bench.fanout import fanout_picture, fanout_section, measure_fanout
from bench.history import TABLES, Start, measure_history
from bench.large_table import LargeTableFigures, TableRun, UpdateRun, measure_large_table
from bench.latency import LOAD_ROWS, QUIET_COMMITS_PER_S, WRITERS, LatencyRun, Spread, measure_latency
from bench.maintenance import measure_maintenance
from bench.many_tables import BATCHES, BatchCost, JobCost, measure_many_tables
from bench.many_tables import TABLES as SMALL_TABLES
from bench.packed import ROWS_PER_S_OF_EACH, PackedFigures, measure_packed
from bench.packed import TENANTS as PACKED
from bench.results import measured_now, with_sections
from bench.sink import PeerFigures, SinkFigures, SinkRun, measure_sink
from bench.snapshot import SnapshotFigures, measure_snapshot
from bench.tables import ROUNDS, ROWS, TablesFigures, measure_tables
from bench.tables import TABLES as DIFFERING_TABLES
from bench.tenants import LATE_TENANTS, TENANTS, measure_tenants
from bench.vitess import COPIED_ROWS, SHARDED_EVENTS, SHARDS, STREAMED_EVENTS, measure_vitess
from bench.workload import write_changes, write_multi_row_changes
from libs.errors import HeadwaterError
from libs.setup import jar_download
from libs.setup.cache import cache_dir
from libs.types.tenant import SinkMode

RESULTS: Final = Path(__file__).with_name("RESULTS.md")
ROW_EVENTS: Final = 500_000
LATENCY_RUN_S: Final = 60
RATIO_KEYS: Final = 2_000_000
LARGE_KEYS: Final = 20_000_000
PARTS: Final = {
    "catch-up": "MySQL's log, a statement a row, to a tenant's topic, beside Debezium",
    "multi-row": "the same with 100 rows a statement",
    "latency": "from a commit in MySQL to the tenant's topic, a few commits a second and at half the top rate",
    "snapshot": "a table of MySQL's that is there already, by one and several processes, beside Debezium",
    "history": f"a restart with {TABLES:,} tables",
    "sink": "a tenant's topic into Iceberg as mirror, log and history, beside a plain MERGE",
    "update-ratio": f"updates of 1, 10 and 50 % of {RATIO_KEYS:,} rows in a mirror and a history, beside a plain MERGE",
    "large-table": f"the copy of {LARGE_KEYS:,} rows, then updates of 1 % of them",
    "many-tables": f"a micro-batch over {SMALL_TABLES} small tables, beside one of a single table",
    "tables": f"{DIFFERING_TABLES} tables of different shapes, {ROWS} rows of each updated, in each mode",
    "packed": f"{' and '.join(map(str, PACKED))} tenants in one sink job: start, idle, and rows to all of them",
    "maintenance": "an Iceberg mirror after a day of commits, beside a fresh copy of it",
    "dts": "a Tencent DTS subscription's bytes, decoded",
    "vitess": "a recorded VStream to a tenant's topic, beside Debezium",
    "tenants": f"{TENANTS:,} tenants in Kubernetes, one more, and a restart of their operator",
    "fanout": f"one source's rows for 1 to {FANOUT_TENANTS[-1]:,} tenants, by what they get of it",
    "fairness": "what 18 tenants notice of a noisy one and a poisoned one, in twenty ways",
}
SNAPSHOT_PROCESSES: Final = (1, 2, 3)
BOUND_SNAPSHOT_ROWS: Final = 200_000
BOUND_CPU_S: Final = 12
BOUND_P50_MS: Final = 50
BOUND_P99_MS: Final = 250
BOUND_RESTART_S: Final = 30
BOUND_MIRROR_PER_S: Final = 45_000
BOUND_LARGE_PER_S: Final = 20_000
BOUND_FIRST_ROWS_S: Final = 30
BOUND_APPEND_PER_S: Final = 80_000
BOUND_HISTORY_PER_S: Final = 20_000
BOUND_MANY_TABLES_RATIO: Final = 3
BOUND_SCAN_RATIO: Final = 2
BOUND_AVERAGE_MB: Final = 64
BOUND_VITESS_RATIO: Final = 0.2
BOUND_VITESS_MEMORY: Final = 0.1
BOUND_JOIN_S: Final = 60
BOUND_OPERATOR_RESTART_S: Final = 30
BOUND_RATIO: Final = 0.22  # the bound above, on the machine where tuned Debezium takes 55 CPU s


def main() -> int:
    """Run the parts named (default: all) and write the results."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__.split("\n\n")[0],
        epilog="parts:\n" + "\n".join(f"  {name:11} {what}" for name, what in PARTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="what to measure (default: all parts)")
    parser.add_argument(
        "--row-events", type=int, default=ROW_EVENTS, help="of the catch-ups and the snapshot (default: %(default)s)"
    )
    parser.add_argument(
        "--latency-run-s",
        type=float,
        default=LATENCY_RUN_S,
        help="how long each latency run lasts (default: %(default)s)",
    )
    parser.add_argument(
        "--without-peer", action="store_true", help="leave Debezium (its jars are 45 MB) and the plain MERGE out"
    )
    parser.add_argument("--write", type=Path, default=RESULTS, help="where the figures go (default: bench/RESULTS.md)")
    arguments = parser.parse_args()
    parts = arguments.parts or list(PARTS)
    if unknown := sorted(set(parts) - set(PARTS)):
        parser.error(f"no such part: {', '.join(unknown)}")
    with_peer = not arguments.without_peer
    run: dict[str, Callable[[], str]] = {
        "catch-up": lambda: _run_catch_up(arguments.row_events, with_peer=with_peer),
        "multi-row": lambda: _run_catch_up(arguments.row_events, with_peer=with_peer, is_multi_row=True),
        "latency": lambda: _run_latency(arguments.latency_run_s),
        "snapshot": lambda: _run_snapshot(arguments.row_events, with_peer=with_peer),
        "history": _run_history,
        "sink": lambda: _run_sink(with_peer=with_peer),
        "update-ratio": lambda: _run_update_ratio(with_peer=with_peer),
        "large-table": _run_large_table,
        "many-tables": _run_many_tables,
        "tables": _run_tables,
        "packed": _run_packed,
        "maintenance": _run_maintenance,
        "dts": _run_dts,
        "vitess": lambda: _run_vitess(with_peer=with_peer),
        "tenants": _run_tenants,
        "fanout": lambda: _run_fanout(arguments.write),
        "fairness": lambda: _run_fairness(arguments.latency_run_s),
    }
    path = arguments.write
    try:
        for part in PARTS:
            if part in parts:
                load_before = os.getloadavg()[0]
                section = measured_now(run[part](), load_before=load_before)
                before = path.read_text(encoding="utf-8") if path.exists() else ""
                path.write_text(with_sections(before, {part: section}, list(PARTS)), encoding="utf-8")
                _say(f"{part}: written to {path}")
    except HeadwaterError as error:
        _say(f"bench failed: {error}")
        return 1
    return 0


def _run_catch_up(row_events: int, *, with_peer: bool, is_multi_row: bool = False) -> str:
    if with_peer:
        _say("Debezium's jars: fetched when they are not there; --without-peer does without")
        jar_download.fetched(peer_jars(), cache_dir())
    part = "multi-row" if is_multi_row else "catch-up"
    _say(f"{part}: {row_events:,} row events; writing the log takes up to two minutes")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        write = write_multi_row_changes if is_multi_row else write_changes
        catch_up = measure_catch_up(Path(folder, part), row_events, with_peer=with_peer, write=write)
    _say(f"{part}: {catch_up.cpu_s_per_million:.1f} CPU s per 1M events")
    return _catch_up_section(catch_up, MULTI_ROW_HEAD if is_multi_row else ONE_ROW_HEAD)


def _run_latency(run_s: float) -> str:
    _say(f"latency: three runs of {run_s:.0f} s")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        figures = measure_latency(Path(folder, "latency"), run_s)
    quiet, live, loaded = figures.quiet, figures.live, figures.loaded
    for run in (quiet, live, loaded):
        _say(f"latency: p50 {run.latency.p50_ms:.0f} ms, p99 {run.latency.p99_ms:.0f} ms")
    return f"""## Latency: from commit to a tenant's topic

From when COMMIT had returned to the writer until a `read_committed` consumer had the event of the transaction's last row:
first {QUIET_COMMITS_PER_S} transactions a second of one row each, then transactions of {LOAD_ROWS + 1} rows, by {WRITERS} \
connections. Writer, MySQL, Kafka and consumer share
the cores with reader and router. So there are two top rates, both measured right before: what all of them do together, as \
fast as it goes,
{figures.live_top_row_events_per_s:,.0f} row events/s; and what reader and router do of a log that is there already, \
{figures.catch_up_row_events_per_s:,.0f} row events/s, half of which may be
more than MySQL takes beside them: then all cores are busy, and it is the queue for them that is measured.

| | commits measured | row events/s | p50, ms | p99, ms | CPU seconds a second, reader and router |
|---|---|---|---|---|---|
{_latency_row(f"{QUIET_COMMITS_PER_S} commits/s", quiet)}
{_latency_row(f"half of what all do together: {_commits(live)}", live)}
{_latency_row(f"half of a catch-up: {_commits(loaded)}", loaded)}
| bound | | | {BOUND_P50_MS} | {BOUND_P99_MS} | |

Where the time goes, p50 and p99 of each part, ms:

| | until the reader decodes the row | until the router writes the event | until it can be read |
|---|---|---|---|
{_latency_parts("few commits", quiet)}
{_latency_parts("half of what all do together", live)}
{_latency_parts("half of a catch-up", loaded)}

The reader may have a row before COMMIT returns to whom wrote it.
"""


def _commits(run: LatencyRun) -> str:
    return f"{run.asked_commits_per_s:,.0f} commits/s asked for, {run.commits_per_s:,.0f} done"


def _latency_row(what: str, run: LatencyRun) -> str:
    return (
        f"| {what} | {run.commits:,} | {run.row_events_per_s:,.0f} | {run.latency.p50_ms:.0f} | {run.latency.p99_ms:.0f} "
        f"| {run.cpu:.2f} |"
    )


def _latency_parts(what: str, run: LatencyRun) -> str:
    def cell(part: Spread) -> str:
        return f"{part.p50_ms:.0f}, {part.p99_ms:.0f}"

    return f"| {what} | {cell(run.to_reader)} | {cell(run.to_router)} | {cell(run.to_tenant)} |"


def _run_snapshot(rows: int, *, with_peer: bool) -> str:
    if with_peer:
        jar_download.fetched(peer_jars(), cache_dir())
    _say(f"snapshot of {rows:,} rows: writing them takes a minute")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        figures = measure_snapshot(Path(folder, "snapshot"), rows, processes=SNAPSHOT_PROCESSES, with_peer=with_peer)
    _say(f"snapshot: {rows / figures.runs[0].cpu_s:,.0f} rows per CPU second of the reader")
    return _snapshot_section(figures)


def _run_history() -> str:
    _say(f"history: {TABLES:,} tables; writing them takes half a minute")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        figures = measure_history(Path(folder), TABLES)
    together_s = figures.from_view.wall_s + figures.reader.wall_s
    return f"""## History: a restart with {figures.tables:,} tables

Tables of 12 to 20 columns, {figures.wire_mb:.0f} MB of schema changes in Kafka. Each process was killed before; the
reader's lease had run out.

| | s by the clock | CPU s | peak RSS, MB |
|---|---|---|---|
{_start_row("schema_history, Redis empty", figures.from_kafka)}
{_start_row("schema_history, from its view in Redis", figures.from_view)}
{_start_row("the reader, until a row that waited is published", figures.reader)}

The view takes {figures.view_mb:.0f} MB in Redis. View and reader together: {together_s:.1f} s; bound: {BOUND_RESTART_S} s.
"""


def _start_row(what: str, start: Start) -> str:
    return f"| {what} | {start.wall_s:.1f} | {start.cpu_s:.1f} | {start.peak_rss_mb:.0f} |"


def _run_sink(*, with_peer: bool) -> str:
    _say("sink: filling a topic, then a mirror, a plain MERGE, a log and a history, takes ten minutes")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        sink = measure_sink(Path(folder, "sink"), with_peer=with_peer)
    _say(f"sink: {sink.mirror.sustained_per_s:,.0f} changes/s in the second half")
    return _sink_section(sink)


def _run_maintenance() -> str:
    _say("maintenance: a day of small commits into a table of two million rows takes fifteen minutes")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        figures = measure_maintenance(Path(folder))
    _say(f"maintenance: a scan takes {figures.scan_s / figures.copy_scan_s:.2f} times that of a fresh table")
    return f"""## Maintenance: an Iceberg mirror after a day of commits

{figures.keys:,} rows, then {figures.commits} commits of 5,000 changes one right after another: what a trigger of five
minutes makes in 24 hours. Default settings; the sink maintains the table between its commits.

| | | bound |
|---|---|---|
| scan of every value, s | {figures.scan_s:.2f} | |
| the same of a table written freshly from it, s | {figures.copy_scan_s:.2f} | |
| ratio | {figures.scan_s / figures.copy_scan_s:.2f} | {BOUND_SCAN_RATIO} |
| average data file after the last of {figures.rewrites} rewrites, MB | {figures.average_after_rewrite_mb:.0f} \
| {BOUND_AVERAGE_MB} |
| of the bytes at the end, in files of {BOUND_AVERAGE_MB} MB and more | {figures.share_in_large_files:.0%} | |
| data files, delete files at the end | {figures.data_files}, {figures.delete_files} | |
| snapshots, manifests | {figures.snapshots}, {figures.manifests} | |
| s a commit by the clock, maintenance counted in | {figures.s_per_commit:.2f} | |
"""


def _run_dts() -> str:
    _say(f"dts: {dts.ROWS:,} rows twice, and a message of 512 MB; making them takes two minutes")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        bulk = dts.measure_decode(Path(folder), dts.ROWS, rows_per_entry=100)
        single = dts.measure_decode(Path(folder), dts.ROWS, rows_per_entry=1)
        split = dts.measure_split(Path(folder))
    return f"""## DTS: Kafka's bytes to ChangeBatch

{bulk.rows:,} inserts of ten columns, a transaction of 100 rows a message; the decoder alone, in a process of its own. 100,000
additions in pure Python took {loop_cpu_ms():.1f} ms of CPU at the time.

| | rows a CPU second | bound | peak RSS, MB | bound |
|---|---|---|---|---|
| an entry of 100 rows | {bulk.rows_per_cpu_s:,.0f} | 120,000 | {bulk.peak_rss_mb:.0f} | 250 |
| an entry a row | {single.rows_per_cpu_s:,.0f} | 120,000 | {single.peak_rss_mb:.0f} | 250 |
| one message of 512 MB in parts, rows of 10 kB | {split.rows_per_cpu_s:,.0f} | | {split.peak_rss_mb:.0f} | 400 |
"""


def _run_vitess(*, with_peer: bool) -> str:
    if with_peer:
        jar_download.fetched(vitess_peer_jars(), cache_dir())
    _say(
        f"vitess: a copy of {COPIED_ROWS:,} rows, {STREAMED_EVENTS:,} events, and {SHARDED_EVENTS:,} of {SHARDS} shards; "
        "recording them takes two minutes"
    )
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        figures = measure_vitess(Path(folder), with_peer=with_peer)
    return f"""## Vitess: a recorded VStream to one tenant's topic

Rows of the same ten columns, in one shard, from a stand-in that sends recorded bytes; both readers are connected and idle
before. The router's part is in ours.
{_vitess_half("A copy", figures.copied)}{_vitess_half("A stream of transactions of 100 rows", figures.streamed)}\
{_vitess_half(f"The same of {SHARDS} shards in turn, each event with its own shard's place alone", figures.sharded)}\
{_vitess_half("The same, each event with the places of all shards (Debezium's default)", figures.whole_vgtid)}"""


def _run_tenants() -> str:
    _say(f"tenants: a control plane (built in four minutes when it is not there), Kafka and {TENANTS:,} tenants")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        figures = measure_tenants(Path(folder), TENANTS, say=lambda text: _say(f"tenants: {text}"))
    return f"""## Tenants: {TENANTS:,} of them in Kubernetes

A real API server, etcd and controllers without a node, and Kafka, on the same cores as the operator. From when the API server
had a tenant's ConfigMap until that said ready: document in force, topics, user, rights and quotas in Kafka.

| | p50, s | p99, s | the last one, s | bound, s |
|---|---|---|---|---|
{_joined_row(f"{TENANTS:,} applied within {figures.applying_s:.0f} s", figures.joined_s, BOUND_JOIN_S)}
{_joined_row(f"{LATE_TENANTS} more, one after another", figures.late_s, BOUND_JOIN_S)}
| one more, after a kill and a restart of the operator | | | {figures.restart_s:.1f} | {BOUND_OPERATOR_RESTART_S} |

The operator took {figures.usage.cpu_s:.0f} CPU s for all of them, and {figures.usage.peak_rss_mb:.0f} MB at its peak.
"""


def _run_fanout(written_to: Path) -> str:
    _say("fanout: three minutes")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        figures = measure_fanout(Path(folder))
    picture = written_to.with_name("fanout.svg")
    picture.write_text(fanout_picture(figures), encoding="utf-8")
    return fanout_section(figures, picture.name)


def _run_fairness(run_s: float) -> str:
    _say(f"fairness: {QUIET_TENANTS + 2} tenants, two runs of {run_s:.0f} s, and twenty kinds of poison")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        figures = measure_fairness(Path(folder, "fairness"), run_s)
    _say(f"fairness: p99 {figures.baseline.latency.p99_ms:.0f} ms, then {figures.hurt.latency.p99_ms:.0f} ms")
    standing = ", ".join(f"{tenant}: {state}" for tenant, state in sorted(figures.standing.items()))
    return f"""## Fairness: a noisy and a poisoned tenant among {QUIET_TENANTS + 2}

From a commit to the changes topic until a `read_committed` consumer has the rows, of {QUIET_TENANTS} quiet tenants. One more
may have {NOISY_LIMIT_PER_S} events/s; Kafka refuses the records of the last one in the second run. Publisher, Kafka, router and
consumer share the cores.

| | rows of the quiet ones | noisy rows/s published | p50, ms | p99, ms | router, CPU s/s |
|---|---|---|---|---|---|
{_fairness_row("all within their limits", figures.baseline)}
{_fairness_row("one noisy, one poisoned", figures.hurt)}

p99 by {figures.ratio:.2f} (bound: {BOUND_FAIRNESS_RATIO:.2f}). The noisy tenant got {figures.noisy_delivered_per_s:.0f}
events/s. At the end: {standing}.

Then {figures.poison.kinds} kinds of poison, one after another: documents, names and values of the poisoned tenant, each after a
while without. Of the quiet ones' rows:

| | p50, ms | p99, ms |
|---|---|---|
| without | {figures.poison.without.p50_ms:.0f} | {figures.poison.without.p99_ms:.0f} |
| with a poison | {figures.poison.beside.p50_ms:.0f} | {figures.poison.beside.p99_ms:.0f} |

p99 by {figures.poison.ratio:.2f} (bound: {BOUND_FAIRNESS_RATIO:.2f}). The highest p99 of a kind was
{figures.poison.worst_p99_ms:.0f} ms: {figures.poison.worst}.
"""


def _fairness_row(what: str, run: FairnessRun) -> str:
    return (
        f"| {what} | {run.rows:,} | {run.noisy_rows_per_s:,.0f} | {run.latency.p50_ms:.0f} | {run.latency.p99_ms:.0f} "
        f"| {run.router_cpu:.2f} |"
    )


def _joined_row(what: str, took_s: Sequence[float], bound_s: float) -> str:
    p99_s = took_s[math.ceil(len(took_s) * 0.99) - 1]
    return f"| {what} | {took_s[len(took_s) // 2]:.1f} | {p99_s:.1f} | {took_s[-1]:.1f} | {bound_s} |"


def _vitess_half(what: str, half: CatchUp) -> str:
    per_million = 1e6 / half.row_events
    ours = f"| {half.cpu_s_per_million:.1f} | {half.reader_peak_rss_mb:.0f} + {half.router_peak_rss_mb:.0f} "
    lines = [
        f"| Headwater (reader {half.reader_cpu_s * per_million:.1f}, router {half.router_cpu_s * per_million:.1f}) "
        f"{ours}| {half.row_events / half.wall_s:,.0f} |"
    ]
    if (peer := half.peer) is not None:
        ratio = half.cpu_s_per_million / (peer.cpu_s * per_million)
        steady = half.cpu_s_per_million / (peer.steady_cpu_s * per_million)
        memory = (half.reader_peak_rss_mb + half.router_peak_rss_mb) / peer.peak_rss_mb
        speed = peer.wall_s / half.wall_s
        lines += [
            f"| Debezium's Vitess connector 3.5.0 | {peer.cpu_s * per_million:.1f} | {peer.peak_rss_mb:.0f} "
            f"| {half.row_events / peer.wall_s:,.0f} |",
            f"| ratio (bounds: {BOUND_VITESS_RATIO} and {BOUND_VITESS_MEMORY}) | {ratio:.2f} | {memory:.2f} | {speed:.2f} |",
            f"| the same, Debezium at the price of its second half | {steady:.2f} | | |",
        ]
    table = "\n".join(lines)
    return f"""
{what}, {half.row_events:,} rows:

| | CPU s per 1M | peak RSS, MB | rows/s by the clock |
|---|---|---|---|
{table}
"""


ONE_ROW_HEAD: Final = """## Catch-up: MySQL's log to one tenant's topic

{row_events:,} row events of a table of ten columns, in transactions of 100 rows (60 inserts, 30 updates, 10
deletes, each a statement of its own), waiting in the log; JSON without schemas, six headers an event, a tombstone
after each delete.
"""
MULTI_ROW_HEAD: Final = """## Multi-row: the catch-up with 100 rows a statement

{row_events:,} row events of the same table, a transaction being one statement of 100 rows (of ten transactions six insert,
three update, one deletes), waiting in the log; all else as in the catch-up above.
"""


def _catch_up_section(catch_up: CatchUp, head: str) -> str:
    per_million = 1e6 / catch_up.row_events
    return f"""{head.format(row_events=catch_up.row_events)}
| | reader | router | together | bound |
|---|---|---|---|---|
| CPU s per 1M events | {catch_up.reader_cpu_s * per_million:.1f} | {catch_up.router_cpu_s * per_million:.1f} \
| {catch_up.cpu_s_per_million:.1f} | {BOUND_CPU_S} |
| peak RSS, MB | {catch_up.reader_peak_rss_mb:.0f} | {catch_up.router_peak_rss_mb:.0f} | | 200 each |

{catch_up.row_events / catch_up.wall_s:,.0f} events/s by the clock, with MySQL and Kafka on the same cores. \
100,000 additions in pure Python took {catch_up.loop_cpu_ms:.1f} ms of CPU at the time.
{_peer_paragraphs(catch_up, catch_up.peer) if catch_up.peer else ""}"""


def _peer_paragraphs(catch_up: CatchUp, peer: PeerCatchUp) -> str:
    per_million = 1e6 / catch_up.row_events
    peer_cpu_s, steady_cpu_s = peer.cpu_s * per_million, peer.steady_cpu_s * per_million
    return f"""
Right after it, from the same servers and the same log, Debezium 3.6.1 in Kafka Connect 4.3.1, tuned (`bench/debezium.py`
has each setting): JSON without schemas, its own four headers an event, tombstones.

| | Headwater | Debezium | ratio | bound |
|---|---|---|---|---|
| CPU s per 1M events | {catch_up.cpu_s_per_million:.1f} | {peer_cpu_s:.1f} \
| {catch_up.cpu_s_per_million / peer_cpu_s:.2f} | {BOUND_RATIO} |
| the same, Debezium at the price of its second half | {catch_up.cpu_s_per_million:.1f} | {steady_cpu_s:.1f} \
| {catch_up.cpu_s_per_million / steady_cpu_s:.2f} | |
| peak RSS, MB | {catch_up.reader_peak_rss_mb:.0f} + {catch_up.router_peak_rss_mb:.0f} | {peer.peak_rss_mb:.0f} | \
{(catch_up.reader_peak_rss_mb + catch_up.router_peak_rss_mb) / peer.peak_rss_mb:.2f} | |
| events/s by the clock | {catch_up.row_events / catch_up.wall_s:,.0f} | {catch_up.row_events / peer.wall_s:,.0f} | | |
| 100,000 additions, CPU ms | {catch_up.loop_cpu_ms:.1f} | {peer.loop_cpu_ms:.1f} | | |

The bound of {BOUND_CPU_S} CPU s was set on a machine where tuned Debezium needs 55, so that of the ratio is \
{BOUND_RATIO}. Those 55 include
its task's start and what its JVM compiles on the way, as the first row does: with fewer events than 500,000 that row
says little. The additions, in pure Python, say how fast this machine was at either time.
"""


def _snapshot_section(figures: SnapshotFigures) -> str:
    rows = figures.rows
    runs = "\n".join(
        f"| {run.processes} | {rows / run.wall_s:,.0f} | {rows / run.cpu_s:,.0f} | {rows / run.steady_cpu_s:,.0f} "
        f"| {run.peak_rss_mb:.0f} |"
        for run in figures.runs
    )
    return f"""## Snapshot: a table that is there already

{rows:,} rows of ten columns, copied into the changes topic by a reader that starts with nothing, its start counted in.

| reader processes | rows/s by the clock | rows per CPU s | the same, second half | peak RSS of the reader, MB |
|---|---|---|---|---|
{runs}

Bound: {BOUND_SNAPSHOT_ROWS:,} rows per CPU second. MySQL, Kafka and all processes share the {os.cpu_count()} cores: no more
processes than that can be faster.
{_snapshot_peer(figures)}"""


def _snapshot_peer(figures: SnapshotFigures) -> str:
    if figures.peer_wall_s is None or figures.peer_cpu_s is None or figures.peer_steady_cpu_s is None:
        return ""
    ours = figures.runs[0].cpu_s + figures.router_cpu_s
    per_million = 1e6 / figures.rows
    return f"""
The first of them with a router after it, up to one tenant's topic, and Debezium's snapshot of the same table:

| | Headwater | Debezium | ratio |
|---|---|---|---|
| CPU s per 1M rows | {ours * per_million:.1f} | {figures.peer_cpu_s * per_million:.1f} | {ours / figures.peer_cpu_s:.2f} |
| the same, Debezium at the price of its second half | {ours * per_million:.1f} \
| {figures.peer_steady_cpu_s * per_million:.1f} | {ours / figures.peer_steady_cpu_s:.2f} |
| rows/s by the clock, its start counted in | {figures.rows / figures.delivered_wall_s:,.0f} \
| {figures.rows / figures.peer_wall_s:,.0f} | |
"""


def _sink_section(sink: SinkFigures) -> str:
    return f"""## Sink: a tenant's topic into Iceberg

{sink.mirror.changes:,} changes over {sink.keys:,} keys of one table, Spark local[2], into a table of
each mode by a job of its own.

| mode | changes/s, second half | bound | changes/s, warming up included | wall s | CPU s | peak RSS, MB |
|---|---|---|---|---|---|---|
{_mode_row("mirror", sink.mirror, BOUND_MIRROR_PER_S)}
{_mode_row("append", sink.append, BOUND_APPEND_PER_S)}
{_mode_row("history", sink.history, BOUND_HISTORY_PER_S)}

The JVM compiles what it runs: that is most of the first half's time, and a job has it once.
{_peer_of_sink(sink.mirror, sink.peer) if sink.peer else ""}"""


def _mode_row(mode: str, run: SinkRun, bound_per_s: int) -> str:
    return (
        f"| {mode} | {run.sustained_per_s:,.0f} | {bound_per_s:,} | {run.changes_per_s:,.0f} | {run.wall_s:.1f} "
        f"| {run.cpu_s:.1f} | {run.peak_rss_mb:.0f} |"
    )


def _run_update_ratio(*, with_peer: bool) -> str:
    _say(f"update-ratio: {RATIO_KEYS:,} rows and their updates, in three tables, take ten minutes")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        figures = measure_large_table(Path(folder), keys=RATIO_KEYS, shares=(0.01, 0.1, 0.5), with_peer=with_peer)
    _say("update-ratio: " + ", ".join(f"{_per_s(run):,.0f}/s at {run.share:.0%}" for run in figures.ours.updates))
    return f"""## Update ratio: updates of a share of a table's rows

{figures.keys:,} rows of ten columns that a copy brought into an Iceberg table, then updates of a share of them, random ones,
each share at once; from when they can be read to the last commit. Spark local[2], a job for each table.

| | wall s | changes/s | CPU s |
|---|---|---|---|
{_table_rows("mirror", figures, figures.ours)}
{_table_rows("history", figures, figures.history) if figures.history else ""}
{_table_rows("plain MERGE", figures, figures.peer) if figures.peer else ""}

The plain MERGE is that of the sink's section; its table held the rows of the mirror. A history keeps each update as a version
beside the one before. A copy is timed from the job's start.
"""


def _run_large_table() -> str:
    _say(f"large-table: {LARGE_KEYS:,} rows and 1 % updates take half an hour, and 20 GB of disk")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        figures = measure_large_table(
            Path(folder), keys=LARGE_KEYS, shares=(0.01,), with_history=False, with_peer=False
        )
    [updates] = figures.ours.updates
    _say(f"large-table: {_per_s(updates):,.0f} changes/s")
    return f"""## Large table: a mirror of {LARGE_KEYS:,} rows

The copy of a table that is there already waits in the topic when the job starts; then 1 % of its rows are updated, random
ones, at once. An Iceberg mirror, Spark local[2].

| | | bound |
|---|---|---|
| first rows in the warehouse, s after the job's start | {figures.ours.first_rows_s:.1f} | {BOUND_FIRST_ROWS_S} |
| the copy, rows/s, the job's start counted in | {figures.keys / figures.ours.copy_s:,.0f} | |
| updates, changes/s | {_per_s(updates):,.0f} | {BOUND_LARGE_PER_S:,} |
| CPU s of the copy, of the updates | {figures.ours.copy_cpu_s:.0f}, {updates.cpu_s:.1f} | |
| peak RSS, MB | {figures.ours.peak_rss_mb:.0f} | |
"""


def _table_rows(who: str, figures: LargeTableFigures, run: TableRun) -> str:
    copy = f"| {who}, the copy | {run.copy_s:.1f} | {figures.keys / run.copy_s:,.0f} | {run.copy_cpu_s:.1f} |"
    updates = (
        f"| {who}, {each.share:.0%} updated | {each.wall_s:.1f} | {_per_s(each):,.0f} | {each.cpu_s:.1f} |"
        for each in run.updates
    )
    return "\n".join((copy, *updates))


def _per_s(run: UpdateRun) -> float:
    return run.changes / run.wall_s


def _run_many_tables() -> str:
    _say(f"many-tables: {BATCHES} batches over {SMALL_TABLES} tables, then over one, take ten minutes")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        figures = measure_many_tables(Path(folder))
    many, one = figures.many, figures.one
    ratios = JobCost(_ratio(many.third, one.third), _ratio(many.warm, one.warm))
    times = f"{ratios.third.wall_s:.1f} times the time of one table, warm {ratios.warm.wall_s:.1f} times"
    _say(f"many-tables: {times}")
    return f"""## Many tables: a micro-batch over {SMALL_TABLES} small ones

{figures.changes:,} updates of as many rows in one micro-batch, in {figures.tables} Iceberg mirrors and in a single one. Of each
job the third batch, and one of the last of {BATCHES}: the JVM compiles what it runs, and a job has that once.

| | third batch, wall s | CPU s | warm, wall s | CPU s |
|---|---|---|---|---|
{_batches_row(f"{figures.tables} tables", figures.many)}
{_batches_row("one table", figures.one)}
{_batches_row(f"ratio (bound: {BOUND_MANY_TABLES_RATIO})", ratios)}
"""


def _run_tables() -> str:
    _say(f"tables: {ROUNDS} rounds in each mode take ten minutes")
    figures = []
    for mode in SinkMode:
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
            figures.append(
                measure_tables(Path(folder), DIFFERING_TABLES, mode, say=lambda said: _say(f"tables: {said}"))
            )
    return _tables_section(figures)


def _tables_section(figures: Sequence[TablesFigures]) -> str:
    rows = "\n".join(
        f"| {each.mode.value} | {each.first_cpu_s:.1f} | {each.cpu_s:.1f} | {each.cpu_s_of_table:.2f} |"
        for each in figures
    )
    return f"""## Tables: {figures[0].tables} of different shapes, in each mode

One tenant, into Iceberg. A round updates {figures[0].rows} rows in each table, by one Kafka transaction.
CPU seconds of the job: of the round that makes the tables, of one of the last of {ROUNDS}, and of that by table.

| mode | first round | a round | a table and round |
|---|---|---|---|
{rows}
"""


def _run_packed() -> str:
    figures = []
    for tenants in PACKED:
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
            figures.append(measure_packed(Path(folder), tenants, say=lambda said: _say(f"packed: {said}")))
    return _packed_section(figures)


def _packed_section(figures: Sequence[PackedFigures]) -> str:
    rows = "\n".join(
        f"| {each.tenants} | {each.start_s:.1f} | {each.idle_cpu_s:.3f} | {each.rows / each.load_s:.0f} | {each.p50_s:.1f} "
        f"| {each.p95_s:.1f} | {each.behind_s:.1f} | {each.cpu_s:.0f} | {each.peak_rss_mb:.0f} |"
        for each in figures
    )
    return f"""## Packed: many tenants in one sink job

Each tenant has one mirror in Iceberg, and gets {ROWS_PER_S_OF_EACH:g} rows a second for {figures[0].load_s:.0f} s, \
right after the job's cold start.
A row is late from its write to Kafka until it is in its table. All tables were whole at the end.

| tenants | start, s | idle, CPU s a second | rows/s | late p50, s | p95, s | last write to last table, s | CPU s | RSS, MB |
|---|---|---|---|---|---|---|---|---|
{rows}
"""


def _ratio(many: BatchCost, one: BatchCost) -> BatchCost:
    return BatchCost(many.wall_s / one.wall_s, many.cpu_s / one.cpu_s)


def _batches_row(what: str, cost: JobCost) -> str:
    batches = (cost.third, cost.warm)
    return f"| {what} |" + "".join(f" {batch.wall_s:.1f} | {batch.cpu_s:.1f} |" for batch in batches)


def _peer_of_sink(sink: SinkRun, peer: PeerFigures) -> str:
    return f"""
Right after it, over the same topic, a plain `MERGE INTO` in foreachBatch, as the documentation of Spark and Iceberg has it,
with the same heap, collector, cores and micro-batches (`bench/plain_merge.py` has each setting). Both tables held the same
rows.

| | Headwater | plain MERGE | ratio |
|---|---|---|---|
| changes/s merged, second half | {sink.sustained_per_s:,.0f} | {peer.sustained_per_s:,.0f} \
| {sink.sustained_per_s / peer.sustained_per_s:.2f} |
| changes/s, warming up included | {sink.changes_per_s:,.0f} | {sink.changes / peer.wall_s:,.0f} \
| {sink.changes_per_s * peer.wall_s / sink.changes:.2f} |
| CPU s | {sink.cpu_s:.1f} | {peer.cpu_s:.1f} | {sink.cpu_s / peer.cpu_s:.2f} |
| peak RSS, MB | {sink.peak_rss_mb:.0f} | {peer.peak_rss_mb:.0f} | {sink.peak_rss_mb / peer.peak_rss_mb:.2f} |
"""


def _say(text: str) -> None:
    sys.stderr.write(f"[{time.strftime('%H:%M:%S')}] {text}\n")


if __name__ == "__main__":
    sys.exit(main())
