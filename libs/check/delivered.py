"""A table in a warehouse, as canonical values: the delivered side of the comparison."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from libs.check.compare import Row
from libs.check.projection import ExpectedColumn, ExpectedTable, delivered_mask
from libs.check.values import Convert, from_arrow
from libs.types.tenant import Deletes, Operation, SinkMode, SinkSettings
from libs.types.warehouse import (
    DELETED_COLUMN,
    IMAGE_COLUMN,
    IS_CURRENT_COLUMN,
    OP_COLUMN,
    ORDER_COLUMN,
    own_columns,
)
from libs.warehouse_readers.warehouse import KeyCondition, StoredTable


class OtherType(Exception):
    """A column of the warehouse is of a type that the source's values cannot stand in."""

    def __init__(self, column: str, reason: TypeError) -> None:
        super().__init__(f"column {column}: {reason}")
        self.column = column


def delivered_columns(stored: StoredTable | None, sink: SinkSettings) -> frozenset[str]:
    """The columns that the source's rows have in the warehouse."""
    if stored is None:
        return frozenset()
    own = own_columns(sink.mode, sink.deletes)
    return frozenset(name for name in stored.columns if name not in own)


def delivered_rows(
    stored: StoredTable | None,
    sink: SinkSettings,
    table: ExpectedTable,
    columns: Sequence[ExpectedColumn],
    temporary_dir: Path,
    *,
    among: Collection[int | str] | None = None,
    only: KeyCondition | None = None,
) -> Iterator[Row]:
    """The rows that stand for rows of the source, in key order; with ``among``, those whose first key column is one of these;
    with ``only``, those whose key meets it.

    Raises:
        OtherType: while they are read.
    """
    if stored is None:
        return iter(())  # no row was delivered yet, which is right where none is expected
    key = _key(table, columns)
    batches = stored.sorted_rows(
        tuple(column.seen_as for column in columns),
        key,
        latest_by=_latest_by(sink),
        where=_current_rows(sink),
        among=None if among is None else (key[0], among),
        only=only,
        temporary_dir=temporary_dir,
    )
    return _canonical_rows(batches, columns)


def delivered_sums(
    stored: StoredTable,
    sink: SinkSettings,
    table: ExpectedTable,
    columns: Sequence[ExpectedColumn],
    temporary_dir: Path,
    *,
    part: str,
    value: str,
    only: KeyCondition | None = None,
) -> list[tuple[object, int, int | None]]:
    """Of those rows, by ``part``: how many, and the sum of ``value``; both SQL of the warehouse over ``columns``."""
    return stored.sums(
        tuple(column.seen_as for column in columns),
        _key(table, columns),
        part=part,
        value=value,
        latest_by=_latest_by(sink),
        where=_current_rows(sink),
        only=only,
        temporary_dir=temporary_dir,
    )


def _key(table: ExpectedTable, columns: Sequence[ExpectedColumn]) -> tuple[str, ...]:
    return tuple(column.seen_as for name in table.key for column in columns if column.name == name)


def _latest_by(sink: SinkSettings) -> tuple[str, str] | None:
    return (ORDER_COLUMN, OP_COLUMN) if sink.mode is SinkMode.APPEND else None


def unlogged_columns(sink: SinkSettings, columns: Sequence[ExpectedColumn]) -> tuple[int, ...]:
    """The places of columns in which NULL in a log says nothing, because they take none at the source; see ``as_logged``."""
    if sink.mode is not SinkMode.APPEND:
        return ()
    return tuple(nth for nth, column in enumerate(columns) if not column.is_optional)


def _current_rows(sink: SinkSettings) -> str | None:
    """Which rows of the table stand for rows of the source: a condition; None: all."""
    if sink.mode is SinkMode.HISTORY:
        return f"{IS_CURRENT_COLUMN} = true"
    if sink.mode is SinkMode.APPEND:
        return f"{IMAGE_COLUMN} = 'after' OR {OP_COLUMN} = '{Operation.DELETE.value}'"
    return f"{DELETED_COLUMN} = false" if sink.deletes is Deletes.SOFT else None


def _canonical_rows(batches: Iterator[pa.RecordBatch], columns: Sequence[ExpectedColumn]) -> Iterator[Row]:
    for batch in batches:
        cells = [_canonical_column(column, batch.column(index)) for index, column in enumerate(columns)]
        yield from zip(*cells, strict=True)


def _canonical_column(column: ExpectedColumn, values: pa.Array) -> Sequence[object]:
    cells: list[object] = values.to_pylist()
    if column.mask is not None:
        mask, data_type = column.mask, column.data_type
        texts = (None if cell is None else str(cell) for cell in cells)
        return [delivered_mask(mask, data_type, text, column.key) for text in texts]
    try:
        convert: Convert | None = from_arrow(column.data_type, values.type)
    except TypeError as error:
        raise OtherType(column.seen_as, error) from error
    return cells if convert is None else [None if cell is None else convert(cell) for cell in cells]
