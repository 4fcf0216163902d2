"""Cutting a table into key ranges of about as many rows each, so that several readers can copy it side by side.

Only the server knows where its rows lie. A key that begins with integers is halved repeatedly by the rows that the optimiser
estimates from the index (EXPLAIN dives into it and reads no rows): so one id far from all others costs some halvings, and a
large tenant of a key (tenant, id) is cut within. Any other key, such as a UUID, is walked along once inside the server.
"""

import heapq
import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from libs.errors import SourceUnavailable
from libs.mysql.chunk_query import KeyPlace, last_key_statement, pack_key
from libs.mysql.column_type import parse_column_type
from libs.mysql.identifiers import quote_identifier, quote_table
from libs.mysql.row_key import row_key
from libs.mysql.text_row import row_cells
from libs.source.mysql.client import Connection, mysql_error_code, query, select_raw
from libs.source.mysql.snapshot import estimated_rows, is_chunked
from libs.source.mysql.table_copy import TableRange
from libs.types.table import TableSchema

_CHUNKS_WORTH_SPLITTING: Final = 4
_EVEN_ENOUGH: Final = 1.5
"""A range of so many times its share is not cut any more."""
_DIVES_A_RANGE: Final = 40
_WALK_S: Final = 60.0
"""Time limit for walking along one table's key; the rest is one range."""
_TIME_LIMIT: Final = 3024  # ER_QUERY_TIMEOUT
_ROWS, _FILTERED = 9, 10  # columns of EXPLAIN


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows whose first key columns have the values ``equal``, and whose next one is above ``low`` and not above ``high``."""

    equal: tuple[int, ...]
    low: int
    high: int
    rows: float

    @property
    def begin(self) -> tuple[int, ...]:
        return (*self.equal, self.low)

    @property
    def end(self) -> tuple[int, ...]:
        return (*self.equal, self.high)


def table_ranges(
    connection: Connection, schema: TableSchema, *, parts: int, chunk_rows: int, select: str = ""
) -> list[TableRange]:
    """A table as about ``parts`` ranges, in key order; as one where it is small or cannot be read along its key. Blocks.

    Raises SourceUnavailable.
    """
    whole = TableRange(schema, select=select)
    if parts < 2 or not is_chunked(schema):
        return [whole]
    rows = estimated_rows(connection, [schema.table_id])
    if rows < _CHUNKS_WORTH_SPLITTING * chunk_rows:
        return [whole]
    share = math.ceil(rows / parts)
    if _is_integer(schema, 0):
        pieces = _halved(connection, schema, parts, share)
        places = list(
            _joined((end for piece in pieces for end in _ends_of(connection, schema, piece, parts, share)), share)
        )
    else:
        places = list(_walked(connection, schema, share, most=parts - 1))
    return [TableRange(schema, behind, until, select) for behind, until in itertools.pairwise([b"", *places, b""])]


def _is_integer(schema: TableSchema, nth: int) -> bool:
    key = row_key(schema)
    return nth < len(key) and parse_column_type(schema.column(key[nth]).source_type).name.endswith("int")


# --- by estimates ----------------------------------------------------------------------------------------------------------


def _halved(connection: Connection, schema: TableSchema, parts: int, share: int) -> list[_Piece]:
    """In key order; none where the table is empty."""
    waiting = [(-piece.rows, piece.end, piece) for piece in _column_pieces(connection, schema, ())]
    done: list[_Piece] = []
    for _ in range(_DIVES_A_RANGE * parts):
        if not waiting or -waiting[0][0] <= _EVEN_ENOUGH * share:
            break
        *_, piece = heapq.heappop(waiting)
        halves = _halves(connection, schema, piece)
        if halves is None:
            done.append(piece)
            continue
        for half in halves:
            heapq.heappush(waiting, (-half.rows, half.end, half))
    return sorted([*done, *(piece for *_, piece in waiting)], key=lambda piece: (*piece.end, math.inf))


def _halves(connection: Connection, schema: TableSchema, piece: _Piece) -> list[_Piece] | None:
    """Its parts that are not empty; None: its rows share every key column that is an integer."""
    if piece.high - piece.low == 1:
        if not _is_integer(schema, len(piece.equal) + 1):
            return None
        return _column_pieces(connection, schema, piece.end) or None
    middle = (piece.low + piece.high) // 2
    halves = [_piece(connection, schema, piece.equal, *ends) for ends in ((piece.low, middle), (middle, piece.high))]
    return [half for half in halves if half.rows > 1] or None


def _column_pieces(connection: Connection, schema: TableSchema, equal: tuple[int, ...]) -> list[_Piece]:
    """All rows whose first key columns have these values, as one piece along the next column."""
    column = quote_identifier(row_key(schema)[len(equal)])
    [(first, last)] = query(
        connection,
        f"SELECT MIN({column}), MAX({column}) FROM {quote_table(schema.table_id)}{_where(_equal(schema, equal))}",
    )
    return [] if first is None else [_piece(connection, schema, equal, int(first) - 1, int(last))]


def _piece(connection: Connection, schema: TableSchema, equal: tuple[int, ...], low: int, high: int) -> _Piece:
    column = quote_identifier(row_key(schema)[len(equal)])
    where = _where([*_equal(schema, equal), f"{column} > {low}", f"{column} <= {high}"])
    [found] = query(connection, f"EXPLAIN FORMAT=TRADITIONAL SELECT 1 FROM {quote_table(schema.table_id)}{where}")
    rows = 0.0 if found[_ROWS] is None else float(found[_ROWS]) * float(found[_FILTERED]) / 100
    return _Piece(equal, low, high, rows)


def _equal(schema: TableSchema, values: Sequence[int]) -> list[str]:
    return [f"{quote_identifier(name)} = {value}" for name, value in zip(row_key(schema), values, strict=False)]


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _ends_of(
    connection: Connection, schema: TableSchema, piece: _Piece, parts: int, share: int
) -> Iterator[tuple[KeyPlace, float]]:
    """Where parts of a piece end, with their rows. A piece that estimates could not cut, and that is too large, is walked to
    its end: no estimate of MySQL's is above half the table."""
    end, rows = _place(piece.end), piece.rows
    if rows > _EVEN_ENOUGH * share and piece.high - piece.low == 1 and len(row_key(schema)) > len(piece.end):
        for place in _walked(connection, schema, share, behind=_place(piece.begin), until=end, most=parts):
            yield place, share
            rows = share
    yield end, rows


def _joined(ends: Iterable[tuple[KeyPlace, float]], share: int) -> Iterator[KeyPlace]:
    """Where ranges of about ``share`` rows end. The last has no end: rows that the estimates do not know of lie there too."""
    place, gathered = b"", 0.0
    for end, rows in ends:
        if gathered and gathered + rows > _EVEN_ENOUGH * share:
            yield place
            gathered = 0.0
        place, gathered = end, gathered + rows


def _place(values: Sequence[int]) -> KeyPlace:
    return pack_key([b"%d" % value for value in values])


# --- by walking ------------------------------------------------------------------------------------------------------------


def _walked(
    connection: Connection,
    schema: TableSchema,
    share: int,
    *,
    most: int,
    behind: KeyPlace = b"",
    until: KeyPlace = b"",
) -> Iterator[KeyPlace]:
    """The place of each ``share``-th row, ``most`` of them; fewer where it takes too long."""
    ends_s = time.monotonic() + _WALK_S
    try:
        for _ in range(most):
            left_ms = int(1_000 * (ends_s - time.monotonic()))
            if left_ms <= 0:
                return
            query(connection, f"SET SESSION max_execution_time = {left_ms}")
            statement = last_key_statement(schema, row_key(schema), behind=behind, until=until, nth=share)
            packets = list(select_raw(connection, statement, 2 * _WALK_S))
            if not packets:
                return
            behind = pack_key(row_cells(packets[0]))
            yield behind
    except SourceUnavailable as error:
        if mysql_error_code(error) != _TIME_LIMIT:
            raise
    finally:
        query(connection, "SET SESSION max_execution_time = 0")
