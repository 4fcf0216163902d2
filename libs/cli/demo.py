"""``headwater demo``: the main job, shown."""

import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Final

import click
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from libs.cli.answer import answer, json_option
from libs.cli.check import print_report, report_document
from libs.cli.console import PlainConsole
from libs.cli.terminal import echo, is_json, line_of, secho, styled
from libs.demo.latency import Latency
from libs.demo.run import DemoReport, DemoSettings, Show, run_demo
from libs.demo.sources import DEMO_SOURCES, WITHOUT_MYSQL
from libs.mesh.home import DEFAULT_HOME, Home, home_at
from libs.operations.first_source import SHOWN_URL
from libs.setup.installation import command_path
from libs.setup.run import MYSQL, STACK_STEPS, require
from libs.tenants.place import nearest

_COMPARE: Final = "compare row by row, every column"
PLAIN_LINE_S = 5.0
"""Off a terminal, a phase says so often where it stands."""


def _known_source(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value not in DEMO_SOURCES:
        raise click.BadParameter(f"{value!r} is unknown; {nearest(value, tuple(DEMO_SOURCES))}")
    return value


@click.command()
@click.option(
    "--source",
    metavar=f"[{'|'.join(DEMO_SOURCES)}]",
    default="mysql",
    show_default=True,
    callback=_known_source,
    help="The source to follow.",
)
@click.option("--keep", is_flag=True, help="Leave the stack running at the end.")
@click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(DEFAULT_HOME) / "demo",
    show_default=True,
    help="Folder of the demo's stack; each run begins with an empty one.",
)
@click.option("--traffic-seconds", "traffic_s", type=click.FloatRange(10), default=30.0, show_default=True)
@click.option(
    "--scale", type=click.FloatRange(0.01, 10), default=1.0, show_default=True, help="Multiple of the 200,000 rows."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the random traffic.")
@json_option
def demo(source: str, keep: bool, home: Path, traffic_s: float, scale: float, seed: int) -> None:
    """Run the main job: a real MySQL into two tenants' Iceberg tables, with kills, then a comparison.

    The demo copies a shop of 200,000 rows for two tenants: acme gets everything, globex its own orders, with hashed e-mail
    addresses. Then it writes for 30 s: inserts, updates, deletes, primary-key changes, a transaction of 10,000 rows, an
    ALTER TABLE. Meanwhile it kills the router, the reader and Spark with -9. At the end it compares source and tables row by
    row, every column. Exits with 1 on any difference.

    \b
    Sources:
      mysql    a MySQL server and its binlog
      dts      a MySQL server, whose log a stand-in for Tencent's DTS copies
      vitess   two MySQL servers as shards, behind a stand-in for vtgate
      oracle   a stand-in for an Oracle server, with a tenth of the rows
    MySQL, Kafka, the services and Spark are real.
    DTS, Vitess and Oracle are stand-ins.

    \b
    Examples:
      headwater demo
      headwater demo --source vitess
      headwater demo --source dts --scale 0.1 --keep
    """
    where = home_at(home)
    require((*STACK_STEPS, *(() if source in WITHOUT_MYSQL else (MYSQL,))))
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    started_s = time.monotonic()
    settings = DemoSettings(home=where, source=source, keep=keep, traffic_s=traffic_s, scale=scale, seed=seed)
    if sys.stdout.isatty() and not is_json():
        with _LiveShow() as live:
            report = run_demo(settings, live)
    else:
        report = run_demo(settings, _PlainShow())
    took_s = time.monotonic() - started_s
    _print(report, where, keep, took_s)
    answer(
        {
            "home": where.root,
            "is_good": report.is_good,
            "rows_loaded": report.rows_loaded,
            "traffic_rows": report.traffic_rows,
            "traffic_transactions": report.traffic_transactions,
            "kills": report.kills,
            "live_events": report.topics.events,
            "remarks": report.remarks,
            "check": report_document(report.check, dict(report.phases_s).get(_COMPARE, 0.0)),
            "phases_s": dict(report.phases_s),
            "took_s": took_s,
        }
    )
    if not report.is_good:
        raise click.exceptions.Exit(1)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


class _PlainShow(Show):
    """Lines for a log."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._shown_s = 0.0

    def begin(self, phase: str) -> None:
        self._line(f"== {phase}")

    def tell(self, detail: str) -> None:
        if time.monotonic() - self._shown_s >= PLAIN_LINE_S:
            self._line(f"   {detail}")

    def note(self, line: str) -> None:
        self._line(f"   {line}")

    def _line(self, text: str) -> None:
        self._shown_s = time.monotonic()
        echo(f"{self._shown_s - self._started_s:6.1f} s  {text}")


class _LiveShow(Show):
    """A line for each phase on a terminal, the running one alive."""

    def __init__(self) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            TextColumn("[bright_black]{task.fields[detail]}[/]"),
            console=PlainConsole(),
        )
        self._task: TaskID | None = None

    def __enter__(self) -> "_LiveShow":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()
        self._progress.stop()

    def begin(self, phase: str) -> None:
        self._finish()
        self._task = self._progress.add_task(phase, total=1, detail="")

    def tell(self, detail: str) -> None:
        if self._task is not None:
            self._progress.update(self._task, detail=detail)

    def note(self, line: str) -> None:
        self._progress.console.print(f"    {line}", highlight=False)

    def _finish(self) -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=1, detail="")
            self._task = None


def _print(report: DemoReport, home: Home, keep: bool, took_s: float) -> None:
    echo()
    check_s = dict(report.phases_s).get(_COMPARE, 0.0)
    print_report(report.check, check_s)
    echo()
    topics = report.topics
    _row("loaded", f"{report.rows_loaded:,} rows")
    _row(
        "live traffic",
        f"{report.traffic_rows:,} rows in {report.traffic_transactions:,} transactions; "
        f"{', '.join(piece.replace('_', ' ') for piece in report.set_pieces)}",
    )
    _row("killed with -9", ", ".join(report.kills) or "nothing")
    _row(
        "events",
        f"{topics.events:,} live events in the tenants' topics, {report.warehouse_events:,} changes merged in all",
    )
    _row("commit to topic", _latencies(topics.calm_latency, topics.latency))
    _row("commit to table", _latencies(report.calm_warehouse_latency, report.warehouse_latency))
    for remark in report.remarks:
        _row("note", remark)
    _row("rows compared", f"{report.check.rows_compared:,}")
    _row("differences", f"{report.check.differences:,}")
    echo()
    for phase, seconds in report.phases_s:
        echo(f"{seconds:7.1f} s  {phase}")
    echo(f"{took_s:7.1f} s  in all")
    echo()
    _print_ways_on(home, keep)
    if not report.is_good:
        secho("the demo failed: see the differences above, and the logs in " + str(home.logs_dir), fg="red")


def _print_ways_on(home: Home, keep: bool) -> None:
    command = command_path()
    option = f" --home {home.root}"
    echo(f"the tables lie in {home.warehouse_dir} (Iceberg; catalog {home.catalog_file})")
    echo("ask them, also while nothing runs:")
    echo(f'  {command} query acme "SELECT status, count(*), sum(total) FROM orders GROUP BY status"{option}')
    echo(f'  {command} query globex "SELECT id, email, total FROM orders LIMIT 5"{option}')
    if keep:
        echo("the stack is still up:")
        echo(f"  {command} status{option}")
        echo(f"  {command} tail acme orders{option}")
        echo(f"  {command} down{option}")
    echo("follow a database of your own:")
    echo(f"  {command} init {SHOWN_URL}")


def _row(name: str, text: str) -> None:
    echo(line_of(styled(f"{name:<16}", bold=True), f" {text}"))


def _latencies(calm: Latency, all_of_it: Latency) -> str:
    def text(latency: Latency) -> str:
        return f"p50 {_seconds(latency.p50_s)}, p99 {_seconds(latency.p99_s)}"

    calm_text = "nothing had arrived" if calm.p50_s is None else text(calm)
    return f"{calm_text} before the first kill; {text(all_of_it)} with the kills and restarts"


def _seconds(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
