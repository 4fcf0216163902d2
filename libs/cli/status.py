"""``headwater status``: processes, source partitions, tenants' tables."""

import datetime
import gc
import heapq
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import sleep as pause

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from libs.cli.answer import output_options, print_document
from libs.cli.console import PlainConsole, plain_table, print_table
from libs.cli.home import home_option
from libs.cli.mesh_file import mesh_file_option
from libs.mesh.documents import read_documents
from libs.mesh.home import Home
from libs.mesh.mesh_settings import mesh_settings
from libs.mesh.state import running_state
from libs.operations.status import (
    ProcessStatus,
    RoutedTenant,
    SignalStatus,
    SourceStatus,
    Status,
    TableStatus,
    gather_mesh_status,
    gather_status,
)
from libs.sink_state.progress import TableTimings, table_phases
from libs.types.fault import Fault, FaultScope, Severity

PLAIN_WIDTH = 200
_TEXTS = (
    *("", "position", "outcome", "table", "warehouse", "signal"),
    *("process", "source partition", "shard", "incremental snapshot", "for", "top tenants", "tenant"),
    *("rows published", "rows"),
)
_NUMBERS = (
    "pid",
    "restarts",
    "memory",
    "cpu",
    "rows published",
    "rows",
    "events",
    "behind",
    "batches behind",
    "share",
    "epoch",
    "changes/s",
    "data files",
    "delete files",
    "size",
)
SHOWN_SHARDS = 10
SHOWN_TENANTS = 10
SHOWN_FAULTS = 20
SHOWN_TABLES = 30
SHOWN_SIGNALS = 5
_SEVERITY_COLOURS = {Severity.HALTED: "red", Severity.DIFFERS: "red", Severity.DEGRADED: "yellow"}
_GOING_ON = ("starting", "connecting", "snapshotting", "streaming")
_COLOURS = {
    "up": "green",
    "streaming": "green",
    "snapshotting": "cyan",
    "starting": "cyan",
    "connecting": "cyan",
    "disconnected": "red",
    "backing_off": "yellow",
    "paused": "yellow",
    "behind": "yellow",
    "stuck": "red",
    "failed": "red",
    "halted": "red",
    "unknown": "red",
}


@click.command()
@click.option("--tenant", help="Show only this tenant.")
@click.option("--source", help="Show only this source.")
@click.option("--problems", "only_problems", is_flag=True, help="Show only faults, and what stands still or lags.")
@click.option(
    "--watch",
    "watch_s",
    is_flag=False,
    flag_value=2.0,
    type=click.FloatRange(0.2),
    metavar="[SECONDS]",
    help="Show it again and again, every 2 seconds or as said, until Ctrl-C.",
)
@output_options
@home_option
@mesh_file_option
def status(
    tenant: str | None,
    source: str | None,
    only_problems: bool,
    watch_s: float | None,
    output: str,
    home: Home,
    mesh_file: Path | None,
) -> None:
    """Show faults, processes, and the progress of sources and tables.

    The first lines are the faults, the worst first, each with its cause, place and remedy. Exits with 1 while one lasts.

    For a source, the command counts transactions that are committed and not yet published. For a tenant's table, it counts
    events that are in its topic and not yet in the warehouse.

    It shows the shards of a keyspace with the greatest lag, the tenants that took most of the router's CPU, and those that
    lag most: because of their limits, or stuck. The reason of a stuck tenant stands beside the router's process.

    Of a mesh elsewhere (--mesh) the services that FILE names are asked over gRPC. Tables in warehouses are not seen there.

    \b
    Examples:
      headwater status
      headwater status --json | jq '.sources[].lag_s'
      headwater status --tenant acme
      headwater status --mesh mesh.yaml
      headwater status --problems --watch
      headwater status -o wide
    """
    while True:
        found = _gathered(home, mesh_file)
        chosen = of_interest(found, tenant, source)
        chosen = problems_of(chosen) if only_problems else chosen
        if watch_s is not None:
            click.clear()
        if not print_document(chosen, output):
            # Off a terminal rich would cut at 80 columns.
            console = PlainConsole(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
            print_status(chosen, console, is_wide=output == "wide")
        if watch_s is None:
            break
        pause(watch_s)
    if not is_well(chosen):
        raise click.exceptions.Exit(1)


def _gathered(home: Home, mesh_file: Path | None) -> Status:
    gc.disable()  # records of 50,000 tables, none of which is garbage: looking for some takes half of the time
    try:
        if mesh_file is None:
            return gather_status(home, running_state(home), read_documents(home))
        return gather_mesh_status(mesh_settings(mesh_file, os.environ), str(mesh_file))
    finally:
        gc.enable()


def problems_of(found: Status) -> Status:
    """The same without everything that is well: processes that are up, sources that go on, tables that keep up."""
    return msgspec.structs.replace(
        found,
        processes=tuple(each for each in found.processes if each.phase != "up" or each.detail),
        sources=tuple(each for each in found.sources if each.state not in _GOING_ON or each.quarantined or each.detail),
        tables=tuple(each for each in found.tables if each.detail),
        routed=tuple(each for each in found.routed if each.standing),
    )


def is_well(found: Status) -> bool:
    """Whether no fault lasts, every process is up, and every source answers."""
    return (
        not found.faults
        and all(process.phase == "up" for process in found.processes)
        and all(
            source.state not in ("halted", "unknown", "disconnected") and not source.quarantined
            for source in found.sources
        )
    )


def print_status(found: Status, console: Console, *, is_wide: bool = False) -> None:
    """For a person: the faults, the worst first; then a table each of those that have a row."""
    print_faults(found.faults, console)
    console.print(f"home {found.home}   stack {_coloured(found.phase)}", soft_wrap=True)
    shown = worst_tables(found.tables)
    tables: tuple[tuple[object, Callable[[], Table]], ...] = (
        (found.processes, lambda: _processes(found.processes)),
        (found.sources, lambda: _sources(found.sources)),
        (any(source.shards for source in found.sources), lambda: shards_table(found.sources)),
        (any(source.incremental for source in found.sources), lambda: _incremental(found.sources)),
        (any(source.signals for source in found.sources), lambda: _signals(found.sources)),
        (found.routed, lambda: routed_table(found.routed)),
        (shown, lambda: _tables(shown)),
        (any(table.warehouse is not None for table in shown), lambda: warehouse_table(shown)),
    )
    for has_rows, make in tables:
        if has_rows:
            print_table(console, make(), is_wide=is_wide)
    if len(shown) < len(found.tables):
        console.print(f"{len(found.tables) - len(shown):,} more tables in --json; --tenant and --source choose some")
    for unknown in found.unknown:
        console.print(f"[yellow]unknown[/]: {escape(unknown)}", highlight=False, soft_wrap=True)


def worst_tables(tables: Sequence[TableStatus]) -> tuple[TableStatus, ...]:
    """All, where they fit one page; else those that stand still, then those with the greatest lag."""
    if len(tables) <= SHOWN_TABLES:
        return tuple(tables)
    return tuple(heapq.nsmallest(SHOWN_TABLES, tables, key=_by_need))


def _by_need(each: TableStatus) -> tuple[object, ...]:
    place = (each.tenant, each.hop, each.source, each.table)
    return (not each.detail, -(each.lag_events or 0), -(each.lag_s or 0.0), place)


def of_interest(found: Status, tenant: str | None, source: str | None) -> Status:
    """The same of one tenant, of one source, or of both. Processes stay, and faults that are of neither stay too."""

    def concerns(each: RoutedTenant | TableStatus | FaultScope) -> bool:
        is_tenants = tenant is None or each.tenant in ("", tenant)
        return is_tenants and (source is None or getattr(each, "source", "") in ("", source))

    return msgspec.structs.replace(
        found,
        sources=tuple(each for each in found.sources if source in (None, each.source)),
        tables=tuple(filter(concerns, found.tables)),
        routed=tuple(filter(concerns, found.routed)),
        faults=tuple(each for each in found.faults if concerns(each.scope)),
    )


def print_faults(faults: Sequence[Fault], console: Console) -> None:
    """Each fault on two lines: place, time and cause; then the remedy. Faults beyond SHOWN_FAULTS are counted."""
    for fault in faults[:SHOWN_FAULTS]:
        since = f" since {_moment(fault.since_us)[:19]}" if fault.since_us else ""
        place = f"{fault.scope}: " if str(fault.scope) else ""
        colour = _SEVERITY_COLOURS[fault.severity]
        console.print(
            f"[{colour}]{fault.severity.value}[/] {escape(place)}{fault.id}{since}: {escape(_in_one_line(fault.happened))}",
            highlight=False,
            soft_wrap=True,
        )
        command = f" `{fault.command}`" if fault.command else ""
        console.print(f"  remedy: {escape(fault.remedy)}{escape(command)}", highlight=False, soft_wrap=True)
    if len(faults) > SHOWN_FAULTS:
        console.print(f"{len(faults) - SHOWN_FAULTS} more faults in --json")


def _in_one_line(text: str) -> str:
    """A list as a pre-flight makes it, after its heading: the first line of `status` has the cause.

    >>> _in_one_line("cannot be followed, 2 fault(s):\\n  - no log; mend: set log_bin\\n  - no GTIDs")
    'cannot be followed, 2 fault(s): no log; mend: set log_bin; no GTIDs'
    """
    heading, *listed = (line.strip().removeprefix("- ") for line in text.splitlines() or [""])
    return f"{heading} {'; '.join(listed)}" if listed else heading


def _processes(processes: tuple[ProcessStatus, ...]) -> Table:
    table = _table("process", "state", "pid", "up", "restarts", "memory", "cpu", "")
    for process in processes:
        table.add_row(
            process.name,
            _coloured(process.phase),
            str(process.pid or ""),
            duration(process.up_s),
            str(process.restarts),
            "" if process.rss_bytes is None else f"{process.rss_bytes / 2**20:,.0f} MB",
            "" if process.cpu_percent is None else f"{process.cpu_percent:.0f} %",
            process.detail,
        )
    return table


def _sources(sources: tuple[SourceStatus, ...]) -> Table:
    table = _table("source partition", "state", "rows published", "lag", "transactions behind", "position")
    for source in sources:
        rows = f"{source.rows_published:,}"
        if source.snapshot_rows_copied is not None:
            rows = f"{source.snapshot_rows_copied:,} of ~{source.snapshot_rows_estimated or 0:,} (snapshot"
            if source.snapshot_tables:
                rows += f", {source.snapshot_finished_tables or 0} of {source.snapshot_tables} tables"
            rows += (
                f", {duration(source.snapshot_remaining_s)} left)" if source.snapshot_remaining_s is not None else ")"
            )
        table.add_row(
            f"{source.source}/{source.source_partition}",
            _coloured(source.state),
            rows,
            duration(source.lag_s),
            "?" if source.lag_transactions is None else f"{source.lag_transactions:,}",
            _shortened(source.position),
        )
    return table


def shards_table(sources: tuple[SourceStatus, ...]) -> Table:
    """The shards of each source with the greatest lag; a keyspace may have hundreds."""
    table = _table("shard", "lag", "transactions behind", "rows", "epoch", "newest commit", "position")
    for source in sources:
        worst = sorted(source.shards, key=lambda shard: (shard.lag_transactions or 0, shard.lag_s), reverse=True)
        for shard in worst[:SHOWN_SHARDS]:
            table.add_row(
                f"{source.source}: {shard.shard}" + " (ended)" * shard.is_ended + " (copying)" * shard.is_copying,
                duration(shard.lag_s) if shard.committed_at_us else "",
                "?" if shard.lag_transactions is None else f"{shard.lag_transactions:,}",
                f"{shard.rows:,}",
                str(shard.epoch),
                _moment(shard.committed_at_us),
                _shortened(shard.position),
            )
        if len(worst) > SHOWN_SHARDS:
            table.add_row(f"{source.source}: {len(worst) - SHOWN_SHARDS} more in --json", *[""] * 6)
    return table


def _shortened(position: str) -> str:
    return position if len(position) <= 70 else f"{position[:69]}…"


def _incremental(sources: tuple[SourceStatus, ...]) -> Table:
    """Each table that an incremental snapshot has yet to read; the first of a source is being read."""
    table = _table("incremental snapshot", "state", "chunk", "rows", "remaining", "for", "signal")
    for source in sources:
        for place, copy in enumerate(source.incremental):
            is_first = place == 0
            state = "paused" if source.incremental_is_paused else "snapshotting" if is_first else "waiting"
            table.add_row(
                f"{source.source}: {copy.table}",
                _coloured(state),
                str(copy.chunks_read),
                f"{copy.rows_read:,} of ~{copy.rows_estimated:,}" if copy.rows_estimated else f"{copy.rows_read:,}",
                duration(source.incremental_remaining_s) if is_first else "",
                ", ".join(copy.for_tenants) or "all",
                copy.signal_id,
            )
    return table


def _signals(sources: tuple[SourceStatus, ...]) -> Table:
    """The newest signals of each source that failed or go on, and the newest one."""
    table = _table("signal", "of", "at", "outcome")
    for source in sources:
        open_ones = [each for each in source.signals[:-1] if each.waiting or not each.is_well]
        for each in (*open_ones, *source.signals[-1:])[-SHOWN_SIGNALS:]:
            table.add_row(escape(each.signal_id), source.source, _moment(each.at_us)[:19], escape(_outcome(each)))
    return table


def _outcome(signal: SignalStatus) -> str:
    """With the reason of each failure."""
    if signal.refused_because:
        return f"refused: {signal.refused_because}"
    parts = [
        *([f"{signal.waiting} of {signal.tables} table(s) to go"] if signal.waiting else []),
        *([f"{signal.finished} table(s) copied, {signal.rows_read:,} rows"] if signal.finished else []),
        *(f"not done: {each}" for each in signal.not_done),
        *(f"given up: {table}: {why}" for table, why in signal.given_up.items()),
    ]
    return f"{signal.kind}: {'; '.join(parts) or 'done'}"


def routed_table(tenants: tuple[RoutedTenant, ...]) -> Table:
    """The tenants that took most of the router's CPU, and those that lag most, the stuck ones first."""
    table = _table("top tenants", "router cpu", "share", "events", "size", "batches behind", "")
    total_s = sum(each.cpu_s for each in tenants) or 1.0
    lagging = [each for each in tenants[SHOWN_TENANTS:] if each.standing]
    worst = heapq.nsmallest(SHOWN_TENANTS, lagging, key=lambda each: (each.standing != "stuck", -each.lag_batches))
    shown = [*tenants[:SHOWN_TENANTS], *worst]
    for each in shown:
        table.add_row(
            each.tenant,
            duration(each.cpu_s),
            f"{100 * each.cpu_s / total_s:.0f} %",
            f"{each.events:,}",
            f"{each.bytes / 1e6:,.1f} MB",
            f"{each.lag_batches:,}",
            _coloured(each.standing) if each.standing else "",
        )
    if len(shown) < len(tenants):
        lags = f", {len(lagging) - len(worst):,} of them lag" if len(lagging) > len(worst) else ""
        table.add_row(f"{len(tenants) - len(shown):,} more in --json{lags}", *[""] * 6)
    return table


def _tables(tables: tuple[TableStatus, ...]) -> Table:
    table = _table("tenant", "hop", "table", "events", "behind", "lag", "newest commit", "position", "")
    for each in tables:
        table.add_row(
            each.tenant,
            each.hop,
            f"{each.source}: {each.table or '(all)'}",
            f"{each.events:,}",
            "" if each.lag_events is None else f"{each.lag_events:,}",
            duration(each.lag_s),
            _moment(each.committed_at_us),
            short_position(each.position),
            each.detail,
        )
    return table


def warehouse_table(tables: tuple[TableStatus, ...]) -> Table:
    """The phases of each table's newest batch, and the table's size; "?" where Spark did not report a phase."""
    phases = ("read", *table_phases(TableTimings()), "show")
    table = _table("warehouse", "changes/s", *phases, "data files", "delete files", "size", "maintained")
    for each in tables:
        if (stored := each.warehouse) is None:
            continue
        last, files = stored.last, stored.files
        took_s = stored.read_s + last.prepare_s + last.write_s + stored.show_s
        counts = (files.data_files, files.delete_files) if files is not None else (None, None)
        table.add_row(
            f"{each.tenant}: {each.table}",
            f"{last.rows / took_s:,.0f}" if took_s else "",
            *map(duration, (stored.read_s, *table_phases(last).values(), stored.show_s)),
            *("" if count is None else f"{count:,}" for count in counts),
            "?" if files is None else f"{files.bytes / 1e6:,.1f} MB",
            _moment(stored.maintained_at_us),
        )
    return table


def short_position(position: str) -> str:
    """An order's sort key without its leading zeros: ``0.4711.3``."""
    return ".".join(part.lstrip("0") or "0" for part in position.split(".")) if position else ""


def _table(*columns: str) -> Table:
    return plain_table(*columns, right=_NUMBERS, folded=_TEXTS)


def _coloured(state: str) -> str:
    colour = _COLOURS.get(state, "white")
    return f"[{colour}]{state}[/]"


def duration(seconds: float | None) -> str:
    """A span for a person: ``0.4 s``, ``3 min``, ``2.1 h``; "?" where it is unknown."""
    if seconds is None:
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _moment(committed_at_us: int) -> str:
    if not committed_at_us:
        return ""
    moment = datetime.datetime.fromtimestamp(committed_at_us / 1e6)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03d}"
