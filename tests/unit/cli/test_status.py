"""``headwater status`` of a keyspace, and of tables in warehouses."""

import io
import re

import msgspec
import pytest
from rich.console import Console

from libs.cli.console import PlainConsole
from libs.cli.status import PLAIN_WIDTH, of_interest, print_status, routed_table, shards_table, warehouse_table
from libs.operations.status import (
    IncrementalStatus,
    ProcessStatus,
    RoutedTenant,
    ShardStatus,
    SourceStatus,
    Status,
    TableInWarehouse,
    TableStatus,
    routed_tenants,
)
from libs.sink_state.progress import TableFiles, TableTimings
from libs.telemetry.faults import PROCESS_DOWN, fault_of
from libs.types.fault import Fault, FaultScope

NUMBERS = {
    "events": ("123,456,789", 123_456_789),
    "behind": ("1,234,567", 1_234_567),
    "rows published": ("1,234,567,890", 1_234_567_890),
}


@pytest.mark.parametrize("width", [80, 200])
def test_no_number_is_cut_however_narrow_the_terminal(width: int) -> None:
    """Less important columns are left out; `wide` shows all of them, on lines that the terminal breaks."""
    table = TableStatus(
        tenant="a-tenant-with-a-long-name",
        source="warehouse-production",
        table="production.customer_orders",
        hop="sink",
        events=NUMBERS["events"][1],
        position="00000000.0000004711.0000003",
        committed_at_us=1_764_300_000_000_000,
        lag_events=NUMBERS["behind"][1],
        lag_s=4_000.0,
        detail="parked: total: 65 digits do not fit",
    )
    source = SourceStatus(
        source="warehouse-production",
        source_partition="0",
        state="streaming",
        position="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77777",
        rows_published=NUMBERS["rows published"][1],
    )
    found = Status(home="/h", phase="up", processes=(), sources=(source,), tables=(table,))
    narrow, wide = io.StringIO(), io.StringIO()

    print_status(found, Console(file=narrow, width=width))
    print_status(found, Console(file=wide, width=width), is_wide=True)

    for text, _ in NUMBERS.values():
        assert text in narrow.getvalue()
        assert text in wide.getvalue()
    assert "…" not in narrow.getvalue()
    assert ("newest commit" in narrow.getvalue(), "newest commit" in wide.getvalue()) == (width == 200, True)


def shard(name: str, *, behind: int | None, lag_s: float = 0.5, **rest: bool) -> ShardStatus:
    """A shard of which little is of interest."""
    return ShardStatus(
        shard=name,
        position="MySQL56/a:1-5",
        epoch=1,
        committed_at_us=1_700_000_000_000_000,
        lag_s=lag_s,
        transactions=1,
        rows=1_234,
        rows_copied=1_000,
        lag_transactions=behind,
        **{"is_ended": False, "is_copying": False, **rest},
    )


def shown(*shards: ShardStatus) -> list[str]:
    """The table's lines below its head."""
    source = SourceStatus(source="shop", source_partition="0", state="streaming", shards=shards)
    page = io.StringIO()
    Console(file=page, width=PLAIN_WIDTH).print(shards_table((source,)))
    return page.getvalue().splitlines()[1:]


def test_the_shards_furthest_behind_are_shown_first() -> None:
    """Ten of a source; the rest is counted."""
    lines = shown(*(shard(f"s{number:02d}", behind=number) for number in range(14)))

    assert [line.split()[1] for line in lines] == [*(f"s{number:02d}" for number in range(13, 3, -1)), "4"]
    assert "4 more in --json" in lines[-1]
    assert "1,234" in lines[0]


def test_a_shard_that_waits_at_a_reshard_says_so() -> None:
    """And an unknown lag is no zero."""
    (line,) = shown(shard("-80", behind=None, is_ended=True))

    assert "-80 (ended)" in line
    assert "?" in line


def test_a_shard_whose_tables_are_copied_says_so() -> None:
    """Initially, or since a signal asked for it."""
    copying, other = shown(shard("-80", behind=1, is_copying=True), shard("80-", behind=0))

    assert "-80 (copying)" in copying
    assert "(" not in other


def test_where_a_batch_went_and_what_a_table_takes() -> None:
    """A warehouse without files of its own shows none; a hop that is no sink has no line."""

    def of(hop: str, files: TableFiles | None) -> TableStatus:
        last = TableTimings(
            rows=30_000, prepare_s=0.5, write_s=1.5, dedupe_s=0.3, merge_s=1.1, commit_s=0.1, maintain_s=2.0
        )
        stored = TableInWarehouse(
            last=last, read_s=0.9, show_s=0.1, files=files, maintained_at_us=1_700_000_000_000_000
        )
        return TableStatus(
            tenant="acme",
            source="shop",
            table="shop.orders",
            hop=hop,
            events=1,
            position="",
            committed_at_us=0,
            warehouse=stored if hop == "sink" else None,
        )

    page = io.StringIO()
    tables = (
        of("sink", TableFiles(bytes=12_345_678, data_files=1_200, delete_files=3)),
        of("sink", TableFiles(bytes=5_000)),
        of("router", None),
    )
    Console(file=page, width=PLAIN_WIDTH).print(warehouse_table(tables))

    _, iceberg, postgresql = page.getvalue().splitlines()
    phases = ["0.9", "s", "0.5", "s", "0.3", "s", "1.1", "s", "0.1", "s", "2.0", "s", "0.1", "s"]
    assert iceberg.split()[2:19] == ["10,000", *phases, "1,200", "3"]
    assert "12.3 MB" in iceberg
    assert postgresql.split()[17:19] == ["0.0", "MB"]


def test_the_tenants_that_took_most_of_the_router_are_first() -> None:
    """By its metrics, summed over source partitions; other services' tenants and other metrics do not count."""
    page = """
headwater_router_tenant_cpu_seconds_total{tenant="acme"} 1.5
headwater_router_tenant_cpu_seconds_total{tenant="globex"} 4.5
headwater_router_events_total{tenant="globex"} 2000.0
headwater_router_bytes_total{tenant="globex"} 3e+06
headwater_router_tenant_lag_batches{source="a",source_partition="0",tenant="acme"} 7.0
headwater_router_tenant_lag_batches{source="b",source_partition="0",tenant="acme"} 3.0
headwater_router_tenant_behind{source="a",source_partition="0",tenant="acme"} 2.0
headwater_router_tenant_behind{source="b",source_partition="0",tenant="acme"} 0.0
process_cpu_seconds_total 9.0
"""

    globex, acme = routed_tenants(page)

    assert globex == RoutedTenant(tenant="globex", cpu_s=4.5, events=2000, bytes=3_000_000)
    assert (acme.tenant, acme.cpu_s, acme.lag_batches, acme.standing) == ("acme", 1.5, 10, "stuck")


def test_a_tenant_that_is_behind_is_always_shown() -> None:
    """The ten that took most, and each that somebody may have to see to."""
    quiet = [RoutedTenant(tenant=f"t{number:02d}", cpu_s=99.0 - number, events=1, bytes=1) for number in range(12)]
    stuck = RoutedTenant(tenant="stuck-one", cpu_s=0.0, events=0, bytes=0, standing="stuck")
    page = io.StringIO()

    Console(file=page, width=PLAIN_WIDTH).print(routed_table((*quiet, stuck)))

    lines = page.getvalue().splitlines()[1:]
    assert [line.split()[0] for line in lines] == [*(f"t{number:02d}" for number in range(10)), "stuck-one", "2"]
    assert lines[10].rstrip().endswith("stuck")


def test_of_a_thousand_tenants_that_lag_the_worst_are_shown_and_the_others_counted() -> None:
    """The stuck one first, then by the batches that wait: one page, however many lag."""
    lagging = [
        RoutedTenant(tenant=f"t{n:04d}", cpu_s=9_999.0 - n, events=1, bytes=1, lag_batches=n, standing="behind")
        for n in range(1_000)
    ]
    stuck = RoutedTenant(tenant="stuck-one", cpu_s=0.0, events=0, bytes=0, standing="stuck")
    page = io.StringIO()

    Console(file=page, width=PLAIN_WIDTH).print(routed_table((*lagging, stuck)))

    lines = page.getvalue().splitlines()[1:]
    assert [line.split()[0] for line in lines[:10]] == [f"t{n:04d}" for n in range(10)]
    assert [line.split()[0] for line in lines[10:20]] == ["stuck-one", *(f"t{n:04d}" for n in range(999, 990, -1))]
    assert lines[20].split() == ["981", "more", "in", "--json,", "981", "of", "them", "lag"]


def table_of(number: int, *, lag_events: int = 0, detail: str = "") -> TableStatus:
    return TableStatus(
        tenant=f"t{number // 50:04d}",
        source="shop" if number % 2 else "web",
        table=f"shop.t{number % 50:02d}",
        hop="sink",
        events=1,
        position="",
        committed_at_us=1,
        lag_events=lag_events,
        detail=detail,
    )


def status_of(*tables: TableStatus, faults: tuple[Fault, ...] = ()) -> Status:
    return Status(home="/h", phase="up", processes=(), sources=(), tables=tables, faults=faults)


def printed(found: Status) -> list[str]:
    page = io.StringIO()
    print_status(found, Console(file=page, width=PLAIN_WIDTH))
    return page.getvalue().splitlines()


def test_a_thousand_tenants_of_fifty_tables_are_one_page() -> None:
    """Tables that stand still come first, then those with the greatest lag; the others are counted."""
    tables = [table_of(number) for number in range(50_000)]
    tables[40_007] = table_of(40_007, lag_events=9)
    tables[49_999] = table_of(49_999, detail="parked: full")

    lines = printed(status_of(*tables))

    rows = [line for line in lines if line.startswith("t0")]
    assert len(lines) < 60
    assert len(rows) == 30
    assert (rows[0].split()[0], rows[1].split()[0]) == ("t0999", "t0800")
    assert lines[-1] == "49,970 more tables in --json; --tenant and --source choose some"


def test_what_fits_a_page_stays_in_its_order() -> None:
    """By name, with any lag."""
    lines = printed(status_of(*(table_of(number, lag_events=number) for number in range(30))))

    assert [line.split()[3] for line in lines if line.startswith("t0")] == [
        f"shop.t{number:02d}" for number in range(30)
    ]


def test_one_tenant_and_one_source_are_chosen() -> None:
    """Faults of another tenant or source go; those of neither stay."""
    scopes = [
        FaultScope(),
        FaultScope(source="shop"),
        FaultScope(tenant="t0001"),
        FaultScope(tenant="t0002", source="web"),
    ]
    faults = tuple(fault_of(PROCESS_DOWN, scope, happened="away", since_us=0) for scope in scopes)
    found = status_of(*(table_of(number) for number in range(200)), faults=faults)

    chosen = of_interest(found, "t0001", "shop")

    assert {(each.tenant, each.source) for each in chosen.tables} == {("t0001", "shop")}
    assert [each.scope for each in chosen.faults] == scopes[:3]
    assert of_interest(found, None, None) == found


def test_status_of_large_figures_fits_80_columns_with_every_number_whole() -> None:
    """A keyspace that is copied, a table that is parked, a copy that a signal asked for, and a process that does not start."""
    number, estimate = 123_456_789, 1_223_456_789
    process = ProcessStatus(
        name="reader-shop-task1",
        phase="backing_off",
        pid=1_234_567,
        up_s=93_600.0,
        restarts=12,
        rss_bytes=1_234 << 20,
        cpu_percent=103.0,
        detail="AccessDenied: 1045 Access denied for user 'headwater'@'10.0.0.5'",
    )
    copy = IncrementalStatus(
        table="shop.order_items_archive",
        signal_id="5f3c9a1e-7f0b-4d8f-9d1a-0c2b3d4e5f6a",
        chunks_read=123_456,
        rows_read=number,
        rows_estimated=estimate,
        for_tenants=("acme", "globex"),
    )
    source = SourceStatus(
        source="shop",
        source_partition="task0_2_0",
        state="snapshotting",
        snapshot_rows_copied=number,
        snapshot_rows_estimated=estimate,
        snapshot_tables=140,
        snapshot_remaining_s=5_000.0,
        lag_transactions=number,
        lag_s=5_000.0,
        shards=(shard("-80", behind=number, is_copying=True),),
        incremental=(copy,),
    )
    table = msgspec.structs.replace(
        table_of(1, lag_events=number, detail="parked: the column total is DECIMAL(10,2) in the warehouse"),
        tenant="acme-international",
        table="shop.order_items_archive",
        events=estimate,
    )
    page = io.StringIO()
    found = msgspec.structs.replace(status_of(table), processes=(process,), sources=(source,))

    print_status(found, PlainConsole(file=page, width=80))

    text = page.getvalue()
    assert max(map(len, text.splitlines())) == 80
    assert (text.count(f"{number:,}"), text.count(f"{estimate:,}")) == (5, 3)
    assert "incremental\nsnapshot" in re.sub(r" +\n", "\n", text)
