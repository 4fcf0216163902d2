"""A turn of ``check`` spread over time: one table after the other, a large one chunk by chunk, and taken up where it was.

    the next chunk (``chunks``) ▶ compared at all of the table's tenants ▶ added to the results of those before it ▶ noted in
    a file
      ▶ a rest

Each chunk has a wait, a read view and a second look of its own: the source keeps old versions of rows for as long as one takes.
The rests follow the time it took, so that a source that is slow, because others use it, is asked less often.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from libs.check.chunks import Chunk, chunk_behind
from libs.check.compare import Comparison
from libs.check.compared import ComparedMesh, chosen_tenants
from libs.check.places import Place
from libs.check.projection import SourceTable, selected_tables
from libs.check.run import CheckReport, Comparing, TableCheck
from libs.check.source import asked
from libs.durable_file import replace_durably
from libs.errors import TransientError
from libs.mesh.source_tables import is_captured
from libs.types.tenant import TenantSpec


class NotAllCompared(TransientError):
    """Some tables of a turn could not be compared, and others were; the message has the first reason."""


class Piece(msgspec.Struct, frozen=True, order=True):
    """A table of a source, at all of its tenants; pieces are done in this order."""

    source: str
    table: str
    """``database.table``."""


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """The sum of a tenant's table over its chunks."""

    tenant: str
    rows_compared: int = 0
    rows_read: int = 0
    rows_different: int = 0
    rows_undecided: int = 0
    cells_compared: int = 0
    is_summed: bool = False
    is_sure: bool = True
    faults: tuple[str, ...] = ()
    read_columns: tuple[str, ...] = ()


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A table of which some chunks are done, and not all."""

    piece: Piece
    shape: str
    """Its columns, its key and its tenants' documents of that time (``shape_of``)."""
    up_to: Place
    """Where the last one ended."""
    chunks: int
    """How many."""
    worked_s: float = 0.0
    """How long source and warehouses were read for them, in seconds."""
    whole: tuple[str, ...] = ()
    """Tenants whose table is done."""
    totals: tuple[Total, ...] = ()
    """Of the others."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Where a turn is."""

    last: Piece | None = None
    """Done last, or given up; None: none was yet."""
    begun: tuple[Begun, ...] = ()
    """Also of turns before, in which something came between."""

    def begun_of(self, piece: Piece) -> Begun | None:
        """Where ``piece`` goes on; None: it begins."""
        return next((each for each in self.begun if each.piece == piece), None)

    def with_begun(self, begun: Begun) -> "Turn":
        """With a further chunk done."""
        others = (each for each in self.begun if each.piece != begun.piece)
        return Turn(last=self.last, begun=(*others, begun))

    def without_begun(self, piece: Piece) -> "Turn":
        """With ``piece`` to be begun again, whenever it comes."""
        return Turn(last=self.last, begun=tuple(each for each in self.begun if each.piece != piece))

    def behind(self, piece: Piece | None) -> "Turn":
        """With ``piece`` done or given up; None: all are."""
        return Turn(last=piece, begun=self.begun)


def pieces(mesh: ComparedMesh, tenants: Collection[str], tables: Sequence[str]) -> list[Piece]:
    """All of a turn. Raises as ``check``, but for NotCaughtUp."""
    chosen, compare = chosen_tenants(mesh, tenants), Comparing(0, False, tuple(tables))
    found: set[Piece] = set()
    for source in sorted({selection.name for spec in chosen for selection in spec.sources} & mesh.sources.keys()):
        document = mesh.sources[source]
        with asked(document) as answering:
            there = answering.tables()
        for selection in (each for spec in chosen for each in spec.sources if each.name == source):
            for table_id in (table.table_id for table in selected_tables(selection, there)):
                if is_captured(document, table_id) and compare.is_asked_for(table_id):
                    found.add(Piece(source, str(table_id)))
    return sorted(found)


def still_to_do(all_of_them: Iterable[Piece], last: Piece | None) -> list[Piece]:
    """Those after ``last``, which was done; None: all."""
    return [piece for piece in all_of_them if last is None or piece > last]


def next_chunk(
    mesh: ComparedMesh, tenants: Collection[str], piece: Piece, begun: Begun | None, rows: int
) -> tuple[Chunk, str] | None:
    """The next chunk of ``rows`` after ``begun``, and the table's shape; another one than before: the chunk is the first.

    None: the source has no such table any more.
    """
    with asked(mesh.sources[piece.source]) as answering:
        table = next((each for each in answering.tables() if str(each.table_id) == piece.table), None)
        if table is None:
            return None
        shape = shape_of(piece.source, table, chosen_tenants(mesh, tenants))
        after = begun.up_to if begun is not None and begun.shape == shape else None
        return chunk_behind(answering.sums, table, after, rows), shape


def shape_of(source: str, table: SourceTable, tenants: Iterable[TenantSpec]) -> str:
    """A text that is another one where columns, key or documents are: earlier and later chunks would not make one table."""
    documents = [
        (spec.tenant, selection, spec.sink, spec.format)
        for spec in tenants
        for selection in spec.sources
        if selection.name == source and selected_tables(selection, [table])
    ]
    shape = msgspec.json.encode((table.columns, table.key, sorted(table.required), table.collations, documents))
    return hashlib.sha256(shape).hexdigest()


def with_chunk(piece: Piece, begun: Begun | None, chunk: Chunk, shape: str, report: CheckReport) -> Begun:
    """The state with ``chunk`` compared, too; ``begun``: before it."""
    whole = {check.tenant for check in report.tables if check.chunk is None}
    before = {} if begun is None else {total.tenant: total for total in begun.totals}
    return Begun(
        piece=piece,
        shape=shape,
        up_to=chunk.up_to or (),
        chunks=1 if begun is None else begun.chunks + 1,
        worked_s=report.worked_s if begun is None else begun.worked_s + report.worked_s,
        whole=tuple(sorted(whole.union(() if begun is None else begun.whole))),
        totals=tuple(_added(before.get(each.tenant), each) for each in report.tables if each.chunk is not None),
    )


def _added(total: Total | None, check: TableCheck) -> Total:
    before, found = total or Total(tenant=check.tenant), check.comparison
    return Total(
        tenant=check.tenant,
        rows_compared=before.rows_compared + found.rows_compared,
        rows_read=before.rows_read + check.rows_read,
        rows_different=before.rows_different + found.rows_different,
        rows_undecided=before.rows_undecided + check.undecided,
        cells_compared=before.cells_compared + found.cells_compared,
        is_summed=before.is_summed or check.is_summed,
        is_sure=before.is_sure and (check.is_sure or not found.rows_different),
        faults=tuple(dict.fromkeys((*before.faults, *check.faults))),
        read_columns=tuple(dict.fromkeys((*before.read_columns, *check.read_columns))),
    )


def so_far(begun: Begun, report: CheckReport) -> CheckReport:
    """The findings of all chunks, for the tables of ``report``, the last one's."""
    totals = {total.tenant: total for total in begun.totals}
    tables = [
        _of_chunks(check, totals[check.tenant], begun.chunks) for check in report.tables if check.tenant in totals
    ]
    return replace(report, tables=tuple(tables), worked_s=begun.worked_s)


def _of_chunks(check: TableCheck, total: Total, chunks: int) -> TableCheck:
    comparison = Comparison(
        rows_compared=total.rows_compared,
        rows_different=total.rows_different,
        cells_compared=total.cells_compared,
    )
    return replace(
        check,
        comparison=comparison,
        faults=total.faults,
        undecided=total.rows_undecided,
        is_sure=total.is_sure,
        conditions=(),
        is_summed=total.is_summed,
        rows_read=total.rows_read,
        read_columns=total.read_columns,
        chunk=None,
        chunks=chunks,
    )


def rest_s(worked_s: float, took_s: float, share: float) -> float:
    """How long to rest after ``worked_s`` of reading in ``took_s``, so that reading is ``share`` of the time.

    >>> rest_s(2.0, 2.0, 0.25), rest_s(2.0, 5.0, 0.25), rest_s(2.0, 9.0, 0.25)
    (6.0, 3.0, 0.0)
    """
    return max(0.0, worked_s / share - took_s)


def load_turn(file: Path | None) -> Turn:
    """Where a turn was that was cut off; at its beginning where none was, or the file is none of ours."""
    if file is None:
        return Turn()
    try:
        return msgspec.json.decode(file.read_bytes(), type=Turn)
    except (FileNotFoundError, msgspec.DecodeError):
        return Turn()


def store_turn(file: Path | None, turn: Turn) -> None:
    """So that it is taken up there; one at its beginning leaves no file."""
    if file is None:
        return
    if turn == Turn():
        file.unlink(missing_ok=True)
    else:
        replace_durably(file, msgspec.json.encode(turn))


def joined(reports: Sequence[CheckReport]) -> CheckReport:
    """The findings of all pieces of a turn."""
    return CheckReport(
        tuple(table for report in reports for table in report.tables),
        any(report.source_moved for report in reports),
        tuple(dict.fromkeys(note for report in reports for note in report.notes)),
        sum(report.worked_s for report in reports),
    )
