"""The reader's log over a model database without a server: LogMiner's rows are the stand-in's own, and no SQL is carried out.

``services.logminer_reader`` runs as it is, but for the classes that talk to a database: ``in_process`` puts these in their
place. A run costs milliseconds, so thousands of interleavings can be tried.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec

from libs.errors import HeadwaterError, SourceUnavailable
from libs.events.batch import BatchBuilder
from libs.oracle.incarnations import DatabaseIncarnation, incarnation_after
from libs.oracle.log_position import LogminerPosition
from libs.oracle.log_rows import Operation
from libs.oracle.logical import column
from libs.stand_ins.oracle.logminer import COLUMNS, LogMiner
from libs.stand_ins.oracle.model import Model
from libs.types.table import TableId, TableSchema
from services.logminer_reader import log_following, mining, remining
from services.logminer_reader.copied_cells import cell_writer
from services.logminer_reader.lacking_values import SourceRows
from services.logminer_reader.mined_rows import CapturedTables, MinedRow
from services.logminer_reader.windows import Window

_PLACES = {name.name: nth for nth, name in enumerate(COLUMNS)}
_NAMES = (
    *(
        "SCN",
        "XID",
        "THREAD#",
        "RS_ID",
        "SSN",
        "OPERATION_CODE",
        "ROLLBACK",
        "CSF",
        "STATUS",
        "DATA_OBJ#",
        "DATA_OBJV#",
    ),
    *("ROW_ID", "TIMESTAMP", "USERNAME", "SEQUENCE#", "SEG_OWNER", "TABLE_NAME", "INFO", "SQL_REDO"),
)
_ENDS = frozenset({Operation.COMMIT, Operation.ROLLBACK, Operation.MISSING_SCN})
_UNNAMED = frozenset({Operation.COMMIT, Operation.ROLLBACK, Operation.START, Operation.DDL})


@dataclass
class FixedSchemas:
    """Tables whose definitions never change, by their numbers."""

    schemas: dict[int, TableSchema]
    quarantined: dict[str, str] = field(default_factory=dict)
    awaited: tuple[TableId, ...] = ()

    @property
    def captured(self) -> list[TableSchema]:
        """All."""
        return list(self.schemas.values())

    def schema_of(self, object_id: int, object_version: int) -> TableSchema | None:
        """Of any version."""
        return self.schemas.get(object_id)

    def note_object(self, object_id: int, owner: str, table: str) -> bool:
        """No table gets a partition."""
        return False


def fixed_schema(name: str, columns: Sequence[str]) -> TableSchema:
    """A table of SHOP whose key is ID; ``columns``: texts such as ``NM VARCHAR2(20)``."""
    return TableSchema(
        table_id=TableId(database="SHOP", table=name),
        columns=tuple(
            msgspec.structs.replace(column(*text.split(" ", 1), charset="AL32UTF8"), number=number)
            for number, text in enumerate(columns, start=1)
        ),
        key=("ID",),
        version=1,
    )


@dataclass
class Chances:
    """What befalls the reader."""

    chance: Random
    cuts: float = 0.5
    """How often a window ends before the redo does."""
    breaks: float = 0.2
    """How often one breaks off between its rows."""


class ModelWindows:
    """``services.logminer_reader.windows.Windows``, over the model itself."""

    awaits_log = False
    views = None

    def __init__(self, model: Model, chances: Chances | None, resetlogs_id: int) -> None:
        """``chances``: None: windows are as large as can be, and none breaks off."""
        self._model = model
        self._chances = chances
        self._resetlogs_id = resetlogs_id
        self.ends_before: int | None = None

    def next(self, start: int) -> Window | None:
        bound = self._model.scn if self.ends_before is None else self.ends_before - 1
        if bound <= start:
            return None
        chances = self._chances
        cut = chances is not None and chances.chance.random() < chances.cuts
        end = chances.chance.randrange(start + 1, bound + 1) if cut and chances is not None else bound
        return Window(start, end, (), is_all=end >= bound)

    def whole(self, start: int, end: int) -> Window:
        return Window(start, end, (), is_all=True)

    def rows(self, window: Window, captured: CapturedTables) -> Iterator[list[MinedRow]]:
        rows = list(self._mined(window, captured, None))
        chances = self._chances
        if chances is not None and chances.chance.random() < chances.breaks:
            rows = rows[: chances.chance.randrange(len(rows) + 1)]
            yield from _parts(rows, chances.chance)
            raise SourceUnavailable("a window breaks off")
        yield from [rows] if chances is None else _parts(rows, chances.chance)

    def rows_of(self, window: Window, captured: CapturedTables, xid: bytes) -> Iterator[list[MinedRow]]:
        yield list(self._mined(window, captured, xid))

    def recover(self, error: HeadwaterError) -> None:
        if not isinstance(error, SourceUnavailable):
            raise error

    def close(self) -> None:
        pass

    def interrupt(self) -> None:
        pass

    def _mined(self, window: Window, captured: CapturedTables, xid: bytes | None) -> Iterator[MinedRow]:
        """As ``window_query`` asks."""
        miner = LogMiner(self._model)
        for thread in self._model.threads:
            for log in thread.logs:
                is_within = log.first_scn <= window.end and (log.next_scn is None or log.next_scn > window.start + 1)
                if is_within and log.incarnation.resetlogs_id == self._resetlogs_id:
                    miner.call("ADD_LOGFILE", {"LOGFILENAME": log.archived_path() if log.is_archived else log.path()})
        miner.call("START_LOGMNR", {"STARTSCN": window.start + 1, "ENDSCN": window.end})
        names = {(table_id.database, table_id.table) for table_id in captured.tables}
        for cells in miner.contents().rows:
            row: Any = MinedRow._make(cells[_PLACES[name]] for name in _NAMES)
            if captured.passes_over and row.operation == Operation.START:
                row = row._replace(info=cells[_PLACES["CLIENT_ID"]])
            is_wanted = (
                row.operation in _ENDS
                or (row.operation == Operation.START and captured.with_starts)
                or (row.operation not in _UNNAMED and (row.owner, row.table) in names)
            )
            if is_wanted and window.start < row.scn <= window.end and xid in (None, row.xid):
                yield row


def _parts(rows: Sequence[MinedRow], chance: Random) -> Iterator[list[MinedRow]]:
    places = sorted({0, len(rows), *(chance.randrange(len(rows) + 1) for _ in range(2))})
    for begin, end in itertools.pairwise(places):
        yield list(rows[begin:end])


class ModelRows:
    """``services.logminer_reader.rereading.SourceReader``, over the model itself."""

    batch_rows = 3

    def __init__(self, model: Model) -> None:
        self._model = model

    def rows(self, schema: TableSchema, columns: Sequence[str], scn: int, row_ids: Sequence[str]) -> SourceRows:
        table = self._model.tables[schema.table_id.database, schema.table_id.table]
        assert scn <= self._model.scn + 1
        rows = table.at(scn)
        writers = {name: cell_writer(schema.column(name)) for name in columns}
        return SourceRows(
            {
                row_id: {name: write(rows[row_id][name]) for name, write in writers.items()}
                for row_id in row_ids
                if row_id in rows
            },
            {},
        )

    def close(self) -> None:
        pass

    def interrupt(self) -> None:
        pass


@contextlib.contextmanager
def in_process(model: Model, chances: Chances | None) -> Iterator[None]:
    """Readers of the log read this model."""

    def windows(_database: Any, _settings: Any, resetlogs_id: int) -> ModelWindows:
        return ModelWindows(model, chances, resetlogs_id)

    def undisturbed(_database: Any, _settings: Any, resetlogs_id: int) -> ModelWindows:
        return ModelWindows(model, None, resetlogs_id)

    def next_incarnation(_: Any, position: LogminerPosition) -> DatabaseIncarnation | None:
        """See ``services.logminer_reader.log_views``."""
        last = model.incarnations[-1]
        rows = [
            DatabaseIncarnation(each.number, each.number - 1, each.resetlogs_scn, each.resetlogs_id, each is last)
            for each in model.incarnations
        ]
        return incarnation_after(rows, position.resetlogs_id)

    replaced: dict[str, Callable[..., Any]] = {
        "Windows": windows,
        "SourceReader": lambda *_: ModelRows(model),
        "next_incarnation": next_incarnation,
        "server_offset": lambda _: timedelta(),
    }
    with (
        patch.multiple(log_following, _POSITION_S=0.0, **replaced),
        patch.object(mining, "_FIRST_RETRY_S", 0.0),
        patch.object(BatchBuilder, "is_full", property(lambda entries: not entries.is_empty and chances is not None)),
        patch.object(remining, "Windows", undisturbed),
    ):
        yield


def position_of(model: Model) -> LogminerPosition:
    """Everything up to now is done."""
    last = model.incarnations[-1]
    return LogminerPosition(
        dbid=1, resetlogs_change=last.resetlogs_scn, resetlogs_id=last.resetlogs_id, done_scn=model.scn + 1
    )
