"""Fanout: one source's rows for 1 to 1,000 tenants, in the shapes that a mesh has.

Measured is the router's own code on one core, without Kafka: a batch's look-ups and its records for every tenant. Of a shape
with filters and databases of their own, each row is one tenant's, so a delivered row is a source row; of the others, each row
is everybody's. Beside it, by the number of tenants: the cost of one more look at a table, and of a tenant's document that
changed.
"""

import json
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.curves import curves_svg
from bench.fanout_stack import RateCost, StackCost, rate_cost, stack_cost
from bench.sink import SCHEMA, envelope, random_row
from bench.workload import DATABASE, ROWS_PER_TRANSACTION
from libs.events.batch import OP_CREATE, BatchBuilder, BatchIdentity, RowRun
from libs.types.order import EventOrder
from libs.types.table import Column, TableId, TableSchema
from libs.types.tenant import ColumnMask, HashMask, RowFilter, SourceSelection, TenantSpec
from libs.types.value import LogicalKind, LogicalType
from services.router.batches.batch_reading import Changes, read_changes
from services.router.delivery.deliver import deliver_batch
from services.router.delivery.delivery import Announced, BatchPlace
from services.router.routes.batch_targets import routes_of
from services.router.routes.batch_targets import unseen_addressees as unseen
from services.router.routes.book import RouteBook, RouteView
from services.router.routes.memory import RouteMemory
from services.router.routes.topic_claims import TopicClaims

TENANTS: Final = (1, 10, 100, 1_000)
STACK_TENANTS: Final = (1, 10, 100)
TABLES: Final = 50_000
_LOOKS: Final = 2_000
"""At tables, of so many as there are."""
_CHANGES: Final = 5
_RUNS_A_BATCH: Final = 10
_BATCHES: Final = 1
_LEAST_CPU_S: Final = 0.6
_LEAST_ROUNDS: Final = 2
_STACK_BATCHES: Final = 15
RATE_TENANTS: Final = (10, 100)
ROWS_PER_S: Final = 400
_RATE_ROWS_A_BATCH: Final = 10
_RATE_S: Final = 15
_STACK_ROWS: Final = _STACK_BATCHES * _RUNS_A_BATCH * ROWS_PER_TRANSACTION
_SOURCE: Final = "bench"
_TABLE: Final = TableId(database=DATABASE, table="events")
_MAX_EVENT_BYTES: Final = 1_000_000


class Shape(StrEnum):
    """The share of a source that tenants get."""

    FILTER = "rows of one table by a column's value"
    RANGE = "rows of one table by a range"
    DATABASE = "a database of its own"
    WHOLE = "one table, whole"
    MASK = "one table, the same mask"
    SALT = "one table, a mask with a salt of its own"


@dataclass(frozen=True, slots=True)
class RowCost:
    """CPU microseconds of the router's code."""

    source_row_us: float
    delivered_row_us: float


@dataclass(frozen=True, slots=True)
class BookCost:
    """CPU of a source's routes."""

    look_us: float
    """The first look at one of ``TABLES`` tables, each tenant seeing its part of them."""
    change_ms: float
    """A tenant's document that changed, until it is in force for a table that all tenants filter."""


@dataclass(frozen=True, slots=True)
class FanoutFigures:
    """By number of tenants."""

    rows: dict[Shape, dict[int, RowCost]]
    books: dict[int, BookCost]
    stack: dict[int, StackCost]
    rates: dict[int, RateCost]


def fanout_section(figures: FanoutFigures, picture: str) -> str:
    """For ``RESULTS.md``; ``picture``: where the curves are."""
    counts = list(figures.books)
    head = f"| | {' | '.join(f'{count:,}' for count in counts)} |\n|---|{'---|' * len(counts)}"

    def row(what: str, cells: Iterable[str]) -> str:
        return f"| {what} | {' | '.join(cells)} |"

    source_rows = [
        row(shape, (f"{own[count].source_row_us:.2f}" for count in counts)) for shape, own in figures.rows.items()
    ]
    delivered = [
        row(shape, (f"{own[count].delivered_row_us:.3f}" for count in counts)) for shape, own in figures.rows.items()
    ]
    looks, changes = (
        (f"{own.look_us:.0f}" for own in figures.books.values()),
        (f"{own.change_ms:.1f}" for own in figures.books.values()),
    )
    books = [
        row(f"the first look at one of {TABLES:,} tables, µs", looks),
        row("a document that changed, in force, ms", changes),
    ]
    stack = [
        f"| {count} | {cost.router_us:.0f} | {cost.broker_us:.0f} | {cost.rows_per_s:,.0f} |"
        for count, cost in figures.stack.items()
    ]
    rates = [
        f"| {count:,} | {cost.router_us:.0f} | {cost.broker_us:.0f} | {cost.p50_ms:.0f} | {cost.p95_ms:.0f} |"
        for count, cost in figures.rates.items()
    ]
    line = "\n"
    return f"""## Fanout: one source's rows for 1 to {counts[-1]:,} tenants

Transactions of {ROWS_PER_TRANSACTION} inserts of eleven columns in batches of {_RUNS_A_BATCH}, JSON without schemas. \
Measured is the router's own code: look-ups
and records of a batch, without Kafka, from the batch's bytes to records that are ready for their topics.

CPU µs a source row, by the number of tenants:

{head}
{line.join(source_rows)}

CPU µs a delivered row:

{head}
{line.join(delivered)}

CPU of the routes:

{head}
{line.join(books)}

![CPU a source row by the number of tenants]({picture})

A router process and its Kafka, rows of one table by a column's value, {_STACK_ROWS:,} of them that wait, the first ones aside:

| tenants | router, CPU µs a row | broker, CPU µs a row | rows/s |
|---|---|---|---|
{line.join(stack)}

The same at {ROWS_PER_S} rows a second in transactions of {_RATE_ROWS_A_BATCH} rows. Late is a row from the changes topic to its
tenant's topic. The broker's figure has the fetches of the consumer that looks at all of these topics:

| tenants | router, CPU µs a row | broker, CPU µs a row | late p50, ms | p95, ms |
|---|---|---|---|---|
{line.join(rates)}

With filters and databases of their own a row is one tenant's; of the others it is everybody's, and one batch of bytes serves
all that get the same. Each tenant's topic is a Kafka partition more in a transaction, which the last table shows. The broker's
figures are those of a JVM that has just started. Not measured here: the reader, and Debezium with one connector and filter
a tenant.
"""


def fanout_picture(figures: FanoutFigures) -> str:
    """The curves of source rows, as SVG."""
    curves = {
        str(shape): {count: cost.source_row_us for count, cost in own.items()} for shape, own in figures.rows.items()
    }
    return curves_svg("CPU µs of the router a source row", "tenants", "µs", curves)


def measure_fanout(folder: Path, tenants: Sequence[int] = TENANTS) -> FanoutFigures:
    """All shapes; two to three minutes."""
    rows = {shape: {count: row_cost(shape, count) for count in tenants} for shape in Shape}
    books = {count: book_cost(count) for count in tenants}
    stack = {}
    for count in STACK_TENANTS:
        specs = [_spec(Shape.FILTER, number) for number in range(count)]
        log = list(_batches(Shape.FILTER, count, _STACK_BATCHES + 1))
        stack[count] = stack_cost(folder / str(count), _SOURCE, specs, _schema(_TABLE, 1), log)
    rates = {count: at_rate(folder / f"{count}-rate", count) for count in RATE_TENANTS}
    return FanoutFigures(rows, books, stack, rates)


def at_rate(folder: Path, count: int) -> RateCost:
    """``ROWS_PER_S`` of one table, each another tenant's, in small transactions."""
    specs = [_spec(Shape.FILTER, number) for number in range(count)]
    first = count * 2  # twenty rows a tenant: each has its topic
    per_s = ROWS_PER_S / _RATE_ROWS_A_BATCH
    log = _batches(Shape.FILTER, count, first + round(per_s * _RATE_S), runs=1, rows=_RATE_ROWS_A_BATCH)
    schema = _schema(_TABLE, 1)
    return rate_cost(
        folder,
        _SOURCE,
        specs,
        schema,
        list(log),
        first=first,
        rows=_RATE_ROWS_A_BATCH,
        per_s=per_s,
    )


def row_cost(shape: Shape, count: int) -> RowCost:
    """The middle of several rounds over the same batches, by a book that knows their tables."""
    specs = [_spec(shape, number) for number in range(count)]
    book = RouteBook(_SOURCE, specs, _schema, TopicClaims()).view()
    batches = list(_batches(shape, count))
    announced = Announced()
    rows = _BATCHES * _RUNS_A_BATCH * ROWS_PER_TRANSACTION
    delivered = _delivered(batches, book, announced)  # compiles the routes, announces the schemas
    took_s: list[float] = []
    while sum(took_s) < _LEAST_CPU_S or len(took_s) < _LEAST_ROUNDS:
        began_s = time.process_time()
        _delivered(batches, book, announced)
        took_s.append(time.process_time() - began_s)
    middle_us = sorted(took_s)[len(took_s) // 2] * 1e6
    return RowCost(middle_us / rows, middle_us / delivered)


def _delivered(batches: Sequence[bytes], book: RouteView, announced: Announced) -> int:
    """Row events that tenants get."""
    place, delivered = BatchPlace("changes", 0, 0), 0
    for payload in batches:
        batch = read_changes(payload)
        _look_up(batch, book)
        for delivery in deliver_batch(batch, book, announced, place, max_event_bytes=_MAX_EVENT_BYTES):
            delivered += delivery.rows * len(delivery.targets)
    return delivered


def _look_up(batch: Changes, book: RouteView) -> None:
    """As a lane does before a transaction."""
    unseen(batch, book.audience)
    for _ in routes_of(batch, book):
        pass


def book_cost(count: int) -> BookCost:
    """The look is the mean of some thousand, the change the middle of several, with the memory that a lane keeps."""
    chance = random.Random(7)
    numbers = [chance.randrange(TABLES) for _ in range(_LOOKS)]
    looks = [TableId(database=f"t{number % count}", table=f"orders_{number:05d}") for number in numbers]
    book = RouteBook(_SOURCE, [_selecting(number) for number in range(count)], _schema, TopicClaims()).view()
    began_s = time.process_time()
    for table_id in looks:
        book.audience.who_sees(table_id)
    return BookCost((time.process_time() - began_s) * 1e6 / _LOOKS, _change_ms(count))


def _change_ms(count: int) -> float:
    specs = [_spec(Shape.FILTER, number) for number in range(count)]
    table, claims, memory, took_s = _schema(_TABLE, 1), TopicClaims(), RouteMemory(), []
    for number in range(_CHANGES + 1):
        began_s = time.process_time()
        book = RouteBook(_SOURCE, specs, lambda *_: table, claims, memory=memory).view()
        book.routes(_TABLE.database, _TABLE.table, 1)
        took_s.append(time.process_time() - began_s)
        specs = [*specs[1:], _spec(Shape.FILTER, count + number)]
    return sorted(took_s[1:])[_CHANGES // 2] * 1e3


def _selecting(number: int) -> TenantSpec:
    selection = SourceSelection(
        name=_SOURCE, include_tables=(rf"t{number}\..*",), exclude_tables=(rf"t{number}\.tmp_.*",)
    )
    return TenantSpec(tenant=f"t{number}", sources=(selection,), sink=None)


def _spec(shape: Shape, number: int) -> TenantSpec:
    tenant = f"t{number}"
    parts: dict[str, Any]
    match shape:
        case Shape.FILTER:
            parts = {"row_filters": (RowFilter(tables=".*", where=f"tenant_code = '{tenant}'"),)}
        case Shape.RANGE:
            where = f"customer_id >= {number * _WIDTH} AND customer_id < {(number + 1) * _WIDTH}"
            parts = {"row_filters": (RowFilter(tables=".*", where=where),)}
        case Shape.DATABASE:
            parts = {"include_tables": (rf"{tenant}\..*",)}
        case Shape.WHOLE:
            parts = {}
        case Shape.MASK | Shape.SALT:
            salt = "salt" if shape is Shape.MASK else f"salt {number}"
            parts = {"masks": (ColumnMask(columns=r".*\.status", hash=HashMask(salt=salt)),)}
    return TenantSpec(tenant=tenant, sources=(SourceSelection(name=_SOURCE, **parts),), sink=None)


_WIDTH: Final = 100


def _schema(table_id: TableId, version: int) -> TableSchema:
    code = Column(
        name="tenant_code",
        source_type="varchar(20)",
        logical_type=LogicalType(kind=LogicalKind.STRING),
        charset="utf8mb4",
    )
    return msgspec.structs.replace(SCHEMA, columns=(*SCHEMA.columns, code), table_id=table_id, version=version)


def _batches(
    shape: Shape,
    count: int,
    batches: int = _BATCHES,
    *,
    runs: int = _RUNS_A_BATCH,
    rows: int = ROWS_PER_TRANSACTION,
) -> Iterator[bytes]:
    """Transactions of inserts, each row for another tenant, or with databases of their own each transaction."""
    chance = random.Random(7)
    rank = 0
    for _ in range(batches):
        builder = BatchBuilder(
            BatchIdentity(source=_SOURCE, source_partition="0", connector="mysql", run_id="bench", fencing_token=1)
        )
        for _ in range(runs):
            rank += 1
            owner = chance.randrange(count)
            table_id = TableId(database=f"t{owner}", table="events") if shape is Shape.DATABASE else _TABLE
            run = RowRun(
                table_id=table_id,
                schema_version=1,
                transaction_id=f"gtid:{rank}",
                first_order=EventOrder(epoch=1, rank=rank, tx_ordinal=1),
                committed_at_us=1_700_000_000_000_000,
                is_snapshot=False,
            )
            for ordinal in range(rows):
                number = rank * rows + ordinal
                of_row = chance.randrange(count)
                row = random_row(number, chance)
                row["customer_id"] = of_row * _WIDTH + chance.randrange(_WIDTH)
                row["tenant_code"] = f"t{of_row}"
                value = json.dumps(envelope(table_id.table, None, row), separators=(",", ":")).encode()
                run.rows.append(OP_CREATE, b'{"id":%d}' % number, value)
            builder.open_run(run)
            builder.close_run()
        yield builder.take(2_000_000)[0]
