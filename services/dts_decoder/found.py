"""The decoder's answers to its caller: a statement, a table whose schema is not known, and a transaction that never was."""

from dataclasses import dataclass

from libs.errors import TransientError
from libs.types.order import EventOrder
from libs.types.table import TableId
from services.dts_decoder.position import DtsPosition
from services.dts_decoder.values import DtsColumn


@dataclass(frozen=True, slots=True)
class DdlStatement:
    """A statement that may change schemas; everything before it has been decoded."""

    database: str
    statement: str
    order: EventOrder
    position: DtsPosition
    committed_at_us: int
    server_id: int
    gtid: str


@dataclass(frozen=True, slots=True)
class UnknownTable:
    """Rows of a captured table whose schema is not known; ``columns`` are those of the message."""

    table_id: TableId
    columns: tuple[DtsColumn, ...]
    order: EventOrder
    position: DtsPosition
    committed_at_us: int
    server_id: int
    gtid: str


class RolledBack(TransientError):
    """The source rolled a transaction back after some of its rows were read: read again from the checkpoint, without it."""

    def __init__(self, place: tuple[int, int]) -> None:
        super().__init__(
            "a transaction was rolled back after some of its rows were read; it is read again and left out"
        )
        self.place = place
