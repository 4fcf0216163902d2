"""``headwater query``: SQL over a tenant's tables, without Spark and, where they are Iceberg's, without a running stack."""

import csv
import datetime
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

import click
import orjson
import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from libs.cli.console import PlainConsole
from libs.cli.home import home_option
from libs.cli.mesh_file import mesh_file_option
from libs.cli.mesh_view import cluster_view
from libs.cli.terminal import echo_lines, is_terminal
from libs.config.plain_text import printable
from libs.mesh.documents import read_documents
from libs.mesh.home import Home
from libs.mesh.home_view import HomeView
from libs.mesh.stored_tables import stored_tables
from libs.warehouse_readers.warehouse import rows_of, run_query

_FOLDED: Final = 12
"""The least width of a column of text."""
_BORDER: Final = 3
"""Of each column: its line, and a blank on both sides."""


@click.command()
@click.argument("tenant")
@click.argument("sql", required=False)
@click.option(
    "--format",
    "output",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="json: one object a line.",
)
@click.option("--json", "as_json", is_flag=True, help="As --format json.")
@click.option("--max-rows", type=click.IntRange(1), default=200, show_default=True, help="For --format table.")
@mesh_file_option
@home_option
def query(
    tenant: str, sql: str | None, output: str, as_json: bool, max_rows: int, mesh_file: Path | None, home: Home
) -> None:
    """Run SQL on TENANT's tables (DuckDB's dialect); without SQL, list them.

    Tables have their names at the source: `orders`, or `shop.orders`; `"source.shop".orders` if two sources have it.
    Columns that begin with `_headwater_` are the sink's own. Times with a zone are shown in UTC.

    With --mesh the warehouse is the one that FILE describes under `warehouses`. The tables are those that the tenant's document
    in force takes in now (docs/kubernetes.md).

    \b
    Examples:
      headwater query acme
      headwater query acme "SELECT status, sum(total) FROM orders GROUP BY status"
      headwater query acme "FROM customers LIMIT 3" --format json
      headwater query acme "SELECT count(*) FROM orders" --mesh mesh.yaml
    """
    output = "json" if as_json else output
    view = HomeView(home, read_documents(home)) if mesh_file is None else cluster_view(mesh_file)
    warehouse, tables = stored_tables(view, tenant)
    if sql is not None:
        _show(run_query(warehouse, tables, sql), output, max_rows)
        return
    listing: dict[str, list[Any]] = {"table": [], "source": [], "columns": [], "rows": []}
    for table in tables:
        stored = warehouse.load(table.place)
        if stored is None:
            continue
        listing["table"].append(str(table.table_id))
        listing["source"].append(table.source)
        listing["columns"].append(", ".join(stored.columns))
        listing["rows"].append(stored.count())
    _show(pa.table(listing), output, max_rows)


def _show(answer: pa.Table, output: str, max_rows: int) -> None:
    match output:
        case "csv":
            writer = csv.writer(sys.stdout, lineterminator="\n")
            shown = printable if is_terminal() else str
            writer.writerow([shown(name) for name in answer.column_names])
            for batch in answer.to_batches():
                writer.writerows([shown(_plain(value)) for value in row] for row in rows_of(batch))
        case "json":
            for batch in answer.to_batches():
                for row in rows_of(batch):
                    record = dict(zip(answer.column_names, (_json(value) for value in row), strict=True))
                    echo_lines(orjson.dumps(record, default=str, option=orjson.OPT_PASSTHROUGH_DATETIME).decode())
        case _:
            show_table(answer, max_rows, PlainConsole())


def show_table(answer: pa.Table, max_rows: int, console: Console) -> None:
    """A table; where numbers, times or texts would be broken into pieces, each row by itself with a line a column."""
    whole = [_is_number(field.type) or pa.types.is_temporal(field.type) for field in answer.schema]
    rows = [row for batch in answer.slice(0, max_rows).to_batches() for row in rows_of(batch)]
    cells = [
        [Text("NULL", style="bright_black") if each is None else Text(_plain(each)) for each in row] for row in rows
    ]
    needed = sum(
        _least([len(field.name), *(row[at].cell_len for row in cells)], is_whole=whole[at]) + _BORDER
        for at, field in enumerate(answer.schema)
    )
    if needed < console.width:
        table = Table(header_style="bold", show_lines=False)
        for field, is_whole in zip(answer.schema, whole, strict=True):
            justify: Literal["right", "left"] = "right" if _is_number(field.type) else "left"
            table.add_column(Text(field.name), justify=justify, overflow="fold", no_wrap=is_whole)
        for row in cells:
            table.add_row(*row)
        console.print(table)
    else:
        longest = max(len(name) for name in answer.column_names)
        for number, row in enumerate(cells, start=1):
            console.print(Text(f"row {number:,}", style="bold"))
            for name, cell in zip(answer.column_names, row, strict=True):
                console.print(Text(f"  {name:<{longest}}  ").append_text(cell), soft_wrap=True)
    left_out = f", the first {max_rows} shown: see --max-rows" if answer.num_rows > max_rows else ""
    console.print(f"{answer.num_rows:,} row(s){left_out}", highlight=False)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _least(widths: Sequence[int], *, is_whole: bool) -> int:
    """The least width of a column; its name's is the first."""
    return max(widths) if is_whole else min(max(widths), _FOLDED)


def _plain(value: Any) -> str:
    match value:
        case None:
            return ""
        case bytes():
            return f"0x{value.hex()}"
        case bool():
            return str(value).lower()
        case datetime.datetime():
            return value.isoformat(" ")
        case _:
            return str(value)


def _json(value: Any) -> Any:
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0 and abs(value) < 2**63:
        return int(value)  # a BIGINT UNSIGNED; JSON readers lose digits of larger numbers, so those stay text
    return _plain(value) if isinstance(value, bytes | datetime.datetime | datetime.date) else value
