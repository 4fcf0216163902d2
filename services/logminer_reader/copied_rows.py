"""Rows of a SELECT as ``r`` events: their images by the same writers as the log's, so that both are equal."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from libs.errors import UndecodableValue
from libs.events.batch import OP_READ, BatchBuilder, RowRun
from libs.events.dead_letter import UndecodedRow
from libs.events.envelope import BEFORE_NULL_AFTER, event_tail, json_text
from libs.oracle.log_position import snapshot_order
from libs.oracle.source_block import EventPlace
from libs.types.table import TableId, TableSchema
from services.logminer_reader.copied_cells import cell_writer
from services.logminer_reader.position import SOURCE_PARTITION


@dataclass(frozen=True, slots=True)
class CopiedAt:
    """The SCN that some rows are as of."""

    scn: int
    epoch: int
    taken_at_us: int
    """Microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class CopiedRow:
    """A row as JSON."""

    image: bytes
    key: bytes
    """Empty: the table has no key."""


@dataclass(frozen=True, slots=True)
class UnreadRow:
    """A row of a table that could not be written."""

    column: str
    reason: str


class RowWriter:
    """Writes rows of one table, in the order of its columns."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._cells = [cell_writer(column) for column in schema.columns]
        self._names = [json_text(column.name) for column in schema.columns]
        places = {column.name: place for place, column in enumerate(schema.columns)}
        self._key = [places[name] for name in schema.key]

    def write(self, row: Sequence[Any]) -> CopiedRow:
        """A row of the table's columns; what comes after them is passed over.

        Raises:
            UndecodableValue: a value does not fit its column, which the message names.
        """
        cells = []
        for place, write in enumerate(self._cells):
            try:
                cells.append(b"%b:%b" % (self._names[place], write(row[place])))
            except (ValueError, TypeError, ArithmeticError) as error:
                column = self._schema.columns[place]
                raise UndecodableValue(
                    f"{self._schema.table_id}.{column.name} ({column.source_type}) cannot be written: {error}"
                ) from error
        key = b"{%b}" % b",".join(cells[place] for place in self._key) if self._key else b""
        return CopiedRow(b"{%b}" % b",".join(cells), key)


def written(writer: RowWriter, rows: Iterable[Sequence[Any]], *, leaves_out: bool) -> Iterator[CopiedRow | UnreadRow]:
    """Rows, in their order. ``leaves_out``: one that cannot be written is reported, and the others go on.

    Raises:
        UndecodableValue: nothing is left out.
    """
    for row in rows:
        try:
            yield writer.write(row)
        except UndecodableValue as error:
            if not leaves_out:
                raise
            yield UnreadRow(str(error).split(" ", 1)[0].rpartition(".")[2], str(error))


def append_rows(
    entries: BatchBuilder,
    schema: TableSchema,
    rows: Sequence[CopiedRow],
    at: CopiedAt,
    *,
    block: Callable[[TableId, EventPlace], bytes],
    marker: Callable[[int], str],
    for_tenants: tuple[str, ...] = (),
) -> None:
    """Put rows into the batch, with the order of their SCN: any commit at it or above wins.

    Args:
        entries: the batch.
        schema: of the rows, recorded.
        rows: not empty.
        at: their SCN.
        block: the ``source`` object of an event.
        marker: ``source.snapshot`` of the row of a number.
        for_tenants: only they get the rows; empty: all that see the table.
    """
    run = entries.open_run(
        RowRun(
            table_id=schema.table_id,
            schema_version=schema.version,
            transaction_id="",
            first_order=snapshot_order(at.epoch, at.scn),
            committed_at_us=at.taken_at_us,
            is_snapshot=True,
            for_tenants=for_tenants,
        )
    )
    markers = [marker(nth) for nth in range(len(rows))]
    tails = {
        text: b',"source":%b,"transaction":null%b'
        % (block(schema.table_id, EventPlace(at.taken_at_us, at.scn, text)), event_tail("r", time.time_ns()))
        for text in set(markers)
    }
    for row, text in zip(rows, markers, strict=True):
        run.rows.append(OP_READ, row.key, b"%b%b%b" % (BEFORE_NULL_AFTER, row.image, tails[text]))
    entries.close_run()


def undecoded(source: str, schema: TableSchema, unread: UnreadRow, at: CopiedAt) -> UndecodedRow:
    """The dead letter of a row that could not be written. It holds the reason, and no value."""
    return UndecodedRow(
        source=source,
        source_partition=SOURCE_PARTITION,
        database=schema.table_id.database,
        table=schema.table_id.table,
        column=unread.column,
        schema_version=schema.version,
        reason=unread.reason,
        transaction_id="",
        order=snapshot_order(at.epoch, at.scn),
        file="",
        position=at.scn,
        row=0,
        images=b"",
        is_snapshot=True,
    )
