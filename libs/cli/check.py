"""``headwater check``: are source and tenants' tables equal, every row and column?"""

import contextlib
import datetime
import functools
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import click

from libs.check.chunks import CHUNK_ROWS, Chunk
from libs.check.cluster_mesh import compared_cluster
from libs.check.compare import MISSING, Difference
from libs.check.compared import ComparedMesh, stack_compared
from libs.check.metrics import record_tables, record_turn
from libs.check.repair import repair
from libs.check.rounds import (
    Begun,
    NotAllCompared,
    Piece,
    Turn,
    joined,
    load_turn,
    next_chunk,
    pieces,
    rest_s,
    so_far,
    still_to_do,
    store_turn,
    with_chunk,
)
from libs.check.run import DEFAULT_TIMEOUT_S, CheckReport, TableCheck, check
from libs.cli.answer import answer, json_option
from libs.cli.home import home_option
from libs.cli.mesh_file import mesh_file_option
from libs.cli.on_the_way import interruptible, shown_on_the_way
from libs.cli.terminal import echo, line_of, secho, styled
from libs.config.connections import TelemetrySettings
from libs.config.plain_text import one_line
from libs.errors import HeadwaterError, InvalidSettings, TransientError
from libs.mesh.home import Home
from libs.mesh.mesh_settings import mesh_settings
from libs.mesh.readable import shorten
from libs.mesh.recorded_checkpoints import RecordedCheckpoints
from libs.mesh.recorded_sink_reports import RecordedSinkReports
from libs.mesh.state import holder, running_state
from libs.setup.progress import BAR_WIDTH
from libs.stack.lifecycle import load_documents
from libs.telemetry.endpoint import start_endpoint
from libs.telemetry.metrics import CHECK_FAILED_TURNS
from libs.warehouse_readers.warehouse import TableStore

_METRICS_HOST: Final = "127.0.0.1"


@click.command(name="check")
@click.argument("tenants", nargs=-1, metavar="[TENANT]...")
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="PATTERN",
    help="Only tables of the source whose `database.table` this regular expression matches whole. May be repeated.",
)
@click.option(
    "--limit", type=click.IntRange(0), default=10, show_default=True, help="Differences shown for each table."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    default=DEFAULT_TIMEOUT_S,
    show_default=True,
    help="Seconds to wait until the tables have caught up with the source.",
)
@click.option(
    "--repair",
    "is_repairing",
    is_flag=True,
    help="Read rows that differ again at the source, wait for them, and compare once more.",
)
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(1),
    help="Repeat forever, with this many seconds between the end of one comparison and the next.",
)
@click.option(
    "--report",
    "report_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append a line of JSON for each table to this file.",
)
@click.option(
    "--rows",
    "reads_all",
    is_flag=True,
    help="Read every row at both ends and compare them here, without checksums. Slower, with the same result.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="With --every: serve Prometheus metrics on this port, at /metrics (0: any free port, which is printed).",
)
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True),
    help="With --every: compare table by table, large ones chunk by chunk, with rests, so that reading takes this share of "
    "the time (0.1: a tenth).",
)
@click.option(
    "--chunk-rows",
    type=click.IntRange(1),
    help=f"With --share: compare at most this many rows of a table at once.  [default: {CHUNK_ROWS}]",
)
@click.option(
    "--resume-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --share: keep the progress of a turn in this file, and continue there after a restart.",
)
@click.option("--metrics-host", help="With --metrics-port: the address to listen on.  [default: 127.0.0.1]")
@json_option
@mesh_file_option
@home_option
def check_command(
    tenants: tuple[str, ...],
    tables: tuple[str, ...],
    limit: int,
    timeout_s: float,
    is_repairing: bool,
    every_s: float | None,
    report_file: Path | None,
    reads_all: bool,
    metrics_port: int | None,
    share: float | None,
    chunk_rows: int | None,
    resume_file: Path | None,
    metrics_host: str | None,
    mesh_file: Path | None,
    home: Home,
) -> None:
    """Compare the source with the tables of each TENANT (default: all tenants), every row and column.

    The command first waits until every change committed so far has arrived. Then source and warehouse count their rows and
    compute a checksum of them, by ranges of the key. Where these differ, rows are read and compared one by one. MySQL
    evaluates row filters and the command computes masks itself, so a fault of the router shows.

    The source may change meanwhile. A row that differs is read again, until it is certain whether its change was still on
    its way. Columns of a type without checksum are named, and read in every row. Exits with 1 if any difference remains.

    \b
    Examples:
      headwater check
      headwater check globex --limit 50
      headwater check --repair
      headwater check --every 3600 --repair --report check.jsonl \\
        --metrics-port 9187
      headwater check --every 3600 --share 0.1 --resume-file check.json
      headwater check acme --table 'shop\\.orders' --mesh mesh.yaml
    """
    _require_patterns(tables)
    if metrics_port is not None and every_s is None:
        raise click.UsageError(
            "--metrics-port requires --every: a single comparison ends before anybody reads its metrics."
        )
    if metrics_host is not None and metrics_port is None:
        raise click.UsageError("--metrics-host requires --metrics-port (0 picks a free port).")
    if share is not None and every_s is None:
        raise click.UsageError("--share requires --every: a single comparison does not rest.")
    if resume_file is not None and share is None:
        raise click.UsageError("--resume-file requires --share: without it a turn does not rest.")
    if chunk_rows is not None and share is None:
        raise click.UsageError("--chunk-rows requires --share: without it tables are compared whole.")
    pace = None if share is None else _Pace(share, chunk_rows or CHUNK_ROWS, resume_file)
    mesh = _stack(home, is_repairing=is_repairing) if mesh_file is None else _elsewhere(mesh_file)
    ask = _Asked(mesh, tenants, tables, limit, timeout_s, is_repairing, reads_all, report_file)
    if every_s is None:
        started_s = time.monotonic()
        report = _compare_at_once(ask)
        _require_matches(tables, report)
        answer(report_document(report, time.monotonic() - started_s))
        if report.differences or report.not_compared:
            raise click.exceptions.Exit(1)
        return
    failure: list[str] = []
    if metrics_port is not None:
        host = metrics_host or _METRICS_HOST
        port = _serve_metrics(host, metrics_port, failure)
        echo(f"metrics: http://{host}:{port}/metrics")
    # As the first process of a container it would not be ended by it.
    signal.signal(signal.SIGTERM, lambda *_: _end(ask.ended))
    try:
        _compare_for_ever(ask, every_s, pace, failure)
    except Exception:
        if not ask.ended.is_set():
            raise
        # A client that is closed in the middle of an answer may raise.


def _end(ended: threading.Event) -> None:
    ended.set()
    sys.exit(0)


def _compare_for_ever(ask: "_Asked", every_s: float, pace: "_Pace | None", failure: list[str]) -> None:
    """Turn after turn, until it is ended; ``failure`` holds why the last one could not compare, if so."""
    has_compared = False
    while not ask.ended.is_set():
        echo(datetime.datetime.now().astimezone().isoformat(timespec="seconds"))
        started_s = time.monotonic()
        try:
            report = _compare_at_once(ask) if pace is None else _compare_slowly(ask, pace)
            answer(report_document(report, time.monotonic() - started_s), is_line=True)
            if report.not_compared:
                record_tables(report)
                raise NotAllCompared(f"{len(report.not_compared)} table(s), the first because {report.not_compared[0]}")
            record_turn(report, took_s=time.monotonic() - started_s, ended_at_s=time.time())
            has_compared = True
            failure.clear()
        except HeadwaterError as error:
            # A mistake of the command line shows in the first turn. A later failure, such as a half-edited document or a
            # changed password, may pass.
            if ask.ended.is_set() or not (has_compared or isinstance(error, TransientError)):
                raise
            CHECK_FAILED_TURNS.inc()
            failure[:] = [f"not compared: {error}"]
            secho(f"not compared: {error}", fg="yellow")
        time.sleep(every_s)


def _serve_metrics(host: str, port: int, failure: Sequence[str]) -> int:
    """The port that is bound; ``failure`` holds why the last turn could not compare, if so."""
    try:
        settings = TelemetrySettings(http_host=host, http_port=port)
        return start_endpoint(settings, degraded=lambda: next(iter(failure), None)).port
    except OSError as error:
        raise click.UsageError(f"--metrics-port {port}: {error.strerror}; name another, or 0 for any") from error


@dataclass(frozen=True, slots=True)
class _Asked:
    """The comparison that the command line asks for."""

    mesh: Callable[[Sequence[str]], ComparedMesh]
    """The mesh as it is now, because documents change; the call waits for those of its tables that match."""
    tenants: tuple[str, ...]
    tables: tuple[str, ...]
    limit: int
    timeout_s: float
    is_repairing: bool
    reads_all: bool
    report_file: Path | None
    sources: tuple[str, ...] = ()
    """Empty: all."""
    chunk: Chunk | None = None
    """Only these rows of the one table; None: whole tables."""
    whole: tuple[str, ...] = ()
    """Tenants that have no more of it to compare."""
    ended: threading.Event = field(default_factory=threading.Event)
    """By SIGTERM."""


def _require_patterns(tables: Sequence[str]) -> None:
    for pattern in tables:
        try:
            re.compile(pattern)
        except re.error as error:
            raise click.UsageError(f"--table {pattern!r}: is no regular expression: {error}") from error


def _require_matches(tables: Sequence[str], report: CheckReport) -> None:
    """Raises InvalidSettings: a pattern matches no table of these tenants, so that nothing was compared for it."""
    names = {str(each.table.table_id) for each in report.tables}
    idle = [each for each in tables if not any(re.fullmatch(each, name) for name in names)]
    if idle:
        others = f"; compared were {', '.join(sorted(names))}" if names else ""
        remedy = "it must match database.table whole: `headwater query TENANT` lists a tenant's tables"
        raise InvalidSettings("check", [f"--table {each!r}: matches no table; {remedy}{others}" for each in idle])


def _stack(home: Home, *, is_repairing: bool) -> Callable[[Sequence[str]], ComparedMesh]:
    def now(_tables: Sequence[str]) -> ComparedMesh:
        documents = load_documents(home)
        is_up = holder(home) is not None
        if is_repairing:
            running_state(home)  # the readers do it
        return stack_compared(home, documents, is_up=is_up)

    return now


def _elsewhere(file: Path) -> Callable[[Sequence[str]], ComparedMesh]:
    settings = mesh_settings(file, os.environ)
    checkpoints, sink_faults = RecordedCheckpoints(settings.kafka), RecordedSinkReports(settings.kafka)
    stores: dict[str, TableStore] = {}
    return lambda tables: compared_cluster(settings, os.environ, tables, checkpoints, stores, sink_faults)


@dataclass(frozen=True, slots=True)
class _Pace:
    """How a turn is spread over time."""

    share: float
    """Of the time that reading may take."""
    chunk_rows: int
    """So many rows of a table are compared at once, at most."""
    resume_file: Path | None


@dataclass(slots=True)
class _Place:
    """Where a turn is, in a file too, if there is one."""

    file: Path | None
    turn: Turn

    def move(self, turn: Turn) -> None:
        self.turn = turn
        store_turn(self.file, turn)


def _compare_slowly(asked: _Asked, pace: _Pace) -> CheckReport:
    """Compare table by table. A table that cannot be compared holds up no other; NotAllCompared names it at the end."""
    whole = pieces(asked.mesh(asked.tables), asked.tenants, asked.tables)
    last = load_turn(pace.resume_file)
    there = tuple(each for each in last.begun if each.piece in whole)
    place = _Place(pace.resume_file, Turn(last=last.last, begun=there))
    todo = still_to_do(whole, last.last) or whole
    reports: list[CheckReport] = []
    errors: list[HeadwaterError] = []
    lacking: list[str] = []
    with shown_on_the_way() as tell:
        for piece in todo:
            known = len(reports)
            try:
                _compare_in_chunks(asked, pace, piece, place, reports, tell)
            except HeadwaterError as error:
                if asked.ended.is_set():
                    raise
                errors.append(error)
                lacking.append(str(error))
                secho(f"{piece.source}: {piece.table} not compared: {error}", fg="yellow")
            else:
                lacking += joined(reports[known:]).not_compared[:1]
            place.move(place.turn.behind(piece))
    place.move(place.turn.behind(None))
    if errors and not reports:
        raise errors[0]
    if lacking:
        cause = errors[0] if errors else None
        raise NotAllCompared(f"{len(lacking)} of {len(todo)} tables, the first because {lacking[0]}") from cause
    return joined(reports)


def _compare_in_chunks(
    asked: _Asked,
    pace: _Pace,
    piece: Piece,
    place: _Place,
    reports: list[CheckReport],
    tell: Callable[[str], None],
) -> None:
    """Compare one table from where an earlier run left it, with a rest after each chunk; ``reports`` gets the result."""
    asked = replace(asked, sources=(piece.source,), tables=(re.escape(piece.table),))
    begun = place.turn.begun_of(piece)
    while True:
        started_s = time.monotonic()
        mesh = asked.mesh(asked.tables)
        found = next_chunk(mesh, asked.tenants, piece, begun, pace.chunk_rows)
        if found is None:  # since the turn began
            place.move(place.turn.without_begun(piece))
            return
        chunk, shape = found
        if begun is not None and begun.shape != shape:
            echo(f"{piece.source}: {piece.table} starts again: its columns, its key or a tenant's document changed")
            begun = None
        asked = replace(asked, chunk=chunk, whole=() if begun is None else begun.whole)
        worked_s = time.monotonic() - started_s
        line = progress_line(piece, begun, chunk)
        report = _compare(asked, mesh, functools.partial(_print_beside, tell, line), _shown(begun, chunk))
        begun = with_chunk(piece, begun, chunk, shape, report)
        is_over = chunk.is_last or not begun.totals
        _take_in(reports, begun, report, is_over=is_over)
        place.move(place.turn.without_begun(piece) if is_over else place.turn.with_begun(begun))
        rest = rest_s(worked_s + report.worked_s, time.monotonic() - started_s, pace.share)
        _print_beside(tell, line, f"resting for {rest:.0f} s")
        time.sleep(rest)
        if is_over:
            return


def _print_beside(tell: Callable[[str], None], line: str, text: str) -> None:
    tell(f"{line} {text}")


def _shown(begun: Begun | None, chunk: Chunk) -> Callable[[CheckReport, float], None]:
    """How a comparison is printed: all of a table of one chunk, else only differences; the whole table has a last line."""
    if begun is None and chunk.is_last:
        return print_report
    known = frozenset(fault for total in (() if begun is None else begun.totals) for fault in total.faults)

    def show(report: CheckReport, _took_s: float) -> None:
        for table in report.tables:
            is_news = table.comparison.rows_different or table.undecided or set(table.faults) - known
            if table.chunk is None or is_news:
                _print_table(table)

    return show


def _take_in(reports: list[CheckReport], begun: Begun, report: CheckReport, *, is_over: bool) -> None:
    """The results of whole tables after a chunk; Prometheus gets differences earlier."""
    whole = replace(report, tables=tuple(table for table in report.tables if table.chunk is None))
    if whole.tables:
        record_tables(whole)
        reports.append(whole)
    chunked = so_far(begun, report)
    if chunked.tables and is_over:
        print_report(chunked, chunked.worked_s)
        reports.append(chunked)
    different = tuple(table for table in chunked.tables if is_over or not table.is_equal)
    record_tables(replace(chunked, tables=different))


def _compare(
    asked: _Asked,
    mesh: ComparedMesh,
    tell: Callable[[str], None],
    show: Callable[[CheckReport, float], None],
) -> CheckReport:
    """Compare once, and again after a repair; returns the remaining differences and the working time."""

    def look() -> CheckReport:
        started_s = time.monotonic()
        report = check(
            mesh,
            asked.tenants,
            tables=asked.tables,
            sources=asked.sources,
            limit=asked.limit,
            timeout_s=asked.timeout_s,
            reads_all=asked.reads_all,
            chunk=asked.chunk,
            whole=asked.whole,
            on_progress=tell,
        )
        show(report, time.monotonic() - started_s)
        if asked.report_file is not None:
            _append(asked.report_file, report)
        return report

    report = look()
    if report.differences and asked.is_repairing and mesh.hops is not None:
        repaired = repair(mesh, mesh.hops, report, timeout_s=asked.timeout_s, on_progress=tell)
        for line in repaired.left:
            secho(f"not repaired: {line}", fg="yellow")
        if repaired.rows:
            echo(f"read again: {repaired.rows:,} row(s)")
            again = look()
            report = replace(again, worked_s=report.worked_s + again.worked_s)
    return report


def _compare_at_once(asked: _Asked) -> CheckReport:
    """All of it."""
    goes_on = "rows that were asked for come by themselves: the same command compares again"
    with interruptible(goes_on) if asked.is_repairing else contextlib.nullcontext(), shown_on_the_way() as tell:
        return _compare(asked, asked.mesh(asked.tables), tell, print_report)


def _append(file: Path, report: CheckReport) -> None:
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    with file.open("a", encoding="utf-8") as lines:
        for table in report.tables:
            lines.write(json.dumps({"at": at, **_table_document(report, table)}, ensure_ascii=False) + "\n")


def report_document(report: CheckReport, took_s: float) -> dict[str, object]:
    """All of a comparison, for programs."""
    return {
        "tables": [_table_document(report, table) for table in report.tables],
        "rows_compared": report.rows_compared,
        "cells_compared": report.cells_compared,
        "rows_read": report.rows_read,
        "differences": report.differences,
        "not_compared": report.not_compared,
        "notes": report.notes,
        "took_s": took_s,
    }


def _table_document(report: CheckReport, table: TableCheck) -> dict[str, object]:
    return {
        "tenant": table.tenant,
        "source": table.source,
        "table": str(table.table.table_id),
        "rows_compared": table.comparison.rows_compared,
        "rows_read": table.rows_read,
        "columns_read": list(table.read_columns),
        "rows_different": table.comparison.rows_different,
        "rows_undecided": table.undecided,
        "is_sure": table.is_sure or not report.source_moved,
        "faults": list(table.faults),
        "not_compared": table.not_compared or None,
        "first_differences": [difference_line(table, each) for each in table.comparison.first],
        "chunk": None if table.chunk is None else _chunk_json(table.chunk),
    }


def _chunk_json(chunk: Chunk) -> dict[str, Sequence[object] | None]:
    return {"columns": [column.name for column in chunk.columns], "after": chunk.after, "up_to": chunk.up_to}


def print_report(report: CheckReport, took_s: float) -> None:
    """Every table in one line, the differences under it, and the sum."""
    for note in report.notes:
        secho(f"note: {note}", fg="yellow")
    for table in report.tables:
        _print_table(table)
    if any(table.is_summed for table in report.tables):
        echo(f"compared by checksums; {report.rows_read:,} row(s) read one by one")
    colour = "red" if report.differences else "yellow" if report.not_compared else "green"
    left_out = f", {len(report.not_compared)} table(s) not compared" if report.not_compared else ""
    secho(
        f"{report.rows_compared:,} rows ({report.cells_compared:,} values) compared in {took_s:.1f} s: "
        f"{report.differences:,} difference(s){left_out}",
        fg=colour,
    )
    unsure = [table for table in report.tables if table.comparison.rows_different and not table.is_sure]
    if unsure and report.source_moved:
        names = ", ".join(f"{table.tenant}: {table.table.table_id}" for table in unsure)
        secho(
            f"the source changed meanwhile, and rows of {names} cannot be read again one by one: repeat this when "
            "it is quiet",
            fg="yellow",
        )


def _print_table(table: TableCheck) -> None:
    """The table's line, with its differences below."""
    echo(_table_line(table))
    if table.not_compared:
        secho(f"    {table.not_compared}", fg="yellow")
    if table.read_columns:
        echo(f"    read in every row, because their types have no checksum: {', '.join(table.read_columns)}")
    for fault in table.faults:
        secho(f"    {fault}", fg="red")
    for difference in table.comparison.first:
        secho(f"    {difference_line(table, difference)}", fg="red")
    left_out = table.comparison.rows_different - len({difference.key for difference in table.comparison.first})
    if left_out > 0 and table.chunks:
        echo(f"    {left_out:,} row(s) in total, listed with their chunks")
    elif left_out > 0:
        echo(f"    … and {left_out:,} more row(s): see --limit")
    if table.undecided:
        echo(f"    {table.undecided:,} row(s) undecided: the source changed them whenever they were looked at")


def _table_line(table: TableCheck) -> str:
    verdict = styled("equal", fg="green") if table.is_equal else styled("DIFFERENT", fg="red")
    if table.not_compared:
        verdict = styled("NOT COMPARED", fg="yellow")
    where = f" where {table.table.where}" if table.table.where else ""
    masked = [column.name for column in table.table.columns if column.mask is not None]
    masks = f", masked: {', '.join(masked)}" if masked else ""
    chunks = f", {table.chunks:,} chunks" if table.chunks else ""
    keys = "" if table.chunk is None else f", {keys_of(table.chunk)}"
    counted = f"{table.comparison.rows_compared:>10,} rows x {len(table.columns):>2} columns  "
    return line_of(
        f"{table.tenant:<12} {one_line(str(table.table.table_id)):<28} {counted}",
        verdict,
        f"{where}{masks}{keys}{chunks}",
    )


def keys_of(chunk: Chunk) -> str:
    """Which rows they are."""

    def shown(place: Sequence[int | str]) -> str:
        return ", ".join(map(str, place))

    after = "" if chunk.after is None else f" after {shown(chunk.after)}"
    up_to = "" if chunk.up_to is None else f" up to {shown(chunk.up_to)}"
    others = " or of other characters" if chunk.may_hold_placeless else ""
    return f"{', '.join(column.name for column in chunk.columns)}{after}{up_to}{others}"


def progress_line(piece: Piece, begun: Begun | None, chunk: Chunk) -> str:
    """How far a table is when ``chunk`` is done."""
    filled = "█" * int(chunk.share * BAR_WIDTH)
    rows = 0 if begun is None else max((total.rows_compared for total in begun.totals), default=0)
    compared = f", {rows:,} rows compared" if rows else ""
    return f"{piece.source}: {piece.table} {filled:░<{BAR_WIDTH}} {chunk.share:.0%}{compared}:"


def difference_line(table: TableCheck, difference: Difference) -> str:
    """One difference, with its key and both values."""
    key = ", ".join(f"{name}={shorten(value)}" for name, value in zip(table.table.key, difference.key, strict=False))
    if difference.source is MISSING:
        return f"{key or shorten(difference.warehouse)}: is in the warehouse, not in the source"
    if difference.warehouse is MISSING:
        return f"{key or shorten(difference.source)}: is in the source, not in the warehouse"
    return f"{key}: {difference.column}: source {shorten(difference.source)}, warehouse {shorten(difference.warehouse)}"
