"""A turn of ``check`` spread over time: one table after the other, with pauses, and taken up where it was.

Each piece is a table of a source at all of its tenants, with a wait, a read view and a second look of its own: the source keeps
old versions of rows for as long as one table takes. The pauses go by what the table took, so that a source that is slow,
since others use it, is asked less often.
"""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from libs.durable_file import replace_durably
from libs.errors import TransientError
from libs.local.check.compared import ComparedMesh, chosen_tenants
from libs.local.check.projection import selected_tables
from libs.local.check.run import CheckReport, Comparing
from libs.local.check.source import asked
from libs.local.source_tables import is_captured


class NotAllCompared(TransientError):
    """Some tables of a turn could not be compared, and others were; the message has the first reason."""


class Piece(msgspec.Struct, frozen=True, order=True):
    """What is compared at once; pieces are done in this order."""

    source: str
    table: str
    """``database.table``."""


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
    """Those behind ``last``, which was done; None: all."""
    return [piece for piece in all_of_them if last is None or piece > last]


def pause_s(worked_s: float, share: float) -> float:
    """How long to rest behind ``worked_s`` of work, so that it is ``share`` of the time.

    >>> pause_s(2.0, 0.25), pause_s(2.0, 1.0)
    (6.0, 0.0)
    """
    return worked_s * (1 / share - 1)


def load_last(file: Path | None) -> Piece | None:
    """The piece that a turn which was cut off had done last; None: none was, or the file is none of ours."""
    if file is None:
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=Piece)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def store_last(file: Path | None, piece: Piece | None) -> None:
    """``piece`` was done; None: the turn is over."""
    if file is None:
        return
    if piece is None:
        file.unlink(missing_ok=True)
    else:
        replace_durably(file, msgspec.json.encode(piece))


def joined(reports: Sequence[CheckReport]) -> CheckReport:
    """What all pieces of a turn found."""
    return CheckReport(
        tuple(table for report in reports for table in report.tables),
        any(report.source_moved for report in reports),
        tuple(dict.fromkeys(note for report in reports for note in report.notes)),
        sum(report.worked_s for report in reports),
    )
