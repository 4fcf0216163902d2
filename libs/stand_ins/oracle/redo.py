"""Changes as LogMiner prints them: rows of V$LOGMNR_CONTENTS, in forms that others recorded from real servers.

The texts have the forms of ``tests/golden/cases/a_oracle_logminer.json``. The undo of a change names its row by ROWID, as
oracdc's recorded transactions have it (``tests/golden/oracle``). Rows of LOBs come in the sequences of ``lob_sequences.json``
there. A change has its text twice: with the names of its columns, and with their numbers and HEXTORAW, as LogMiner prints it
where the online catalogue no longer has the table's columns of then.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from libs.oracle.log_rows import NO_ROW_ID, Operation
from libs.stand_ins.oracle import cells
from libs.stand_ins.oracle.answers import LOBS, Column, Months, OracleType, Value
from libs.stand_ins.oracle.tables import ModelTable, Row

PLACED: Final = Operation(0)
"""INTERNAL: the row that says where an open change was stored."""
TABLE: Final = "\0"
"""Stands in a text where LogMiner prints the table's name, as the catalogue has it then."""
_INLINE_BYTES: Final = 3_964
"""A LOB up to here is stored within its row (Oracle Database SecureFiles and LOBs Guide, "LOB Storage")."""
_WRITTEN_UNITS: Final = 900
"""Characters or bytes of one LOB_WRITE, whose text has at most 4,000 bytes."""
_DECLARED: Final = (
    "DECLARE \n loc_c CLOB; \n buf_c VARCHAR2(6174); \n loc_b BLOB; \n buf_b RAW(6174); \n loc_nc NCLOB; \n"
    " buf_nc NVARCHAR2(6174); \nBEGIN\n select "
)


class Piece(NamedTuple):
    """One row of a change."""

    operation: Operation
    row_id: str
    text: str | None
    raw_text: str | None
    """By numbers of columns."""
    is_undo: bool = False
    sequence: int = 1


class _Form(NamedTuple):
    """How a text names columns and prints values."""

    name: Callable[[int, Column], str]
    value: Callable[[Column, Value], str]


def pieces(table: ModelTable, row_id: str, before: Row | None, after: Row | None) -> list[Piece]:
    """The rows of a change: one; or, where LOBs have content, a group of them."""
    if before is None:
        assert after is not None
        return _insert(table, row_id, after)
    if after is None:
        return [
            _piece(table, Operation.DELETE, row_id, lambda form: f"delete from {TABLE}{_where(table, before, form)};")
        ]
    return _update(table, row_id, before, after)


def undo(table: ModelTable, row_id: str, before: Row | None, after: Row | None) -> Piece:
    """The row that takes a change back, whatever its rows were."""
    where = f" where ROWID = '{row_id}';"
    if before is None:
        piece = _piece(table, Operation.DELETE, row_id, lambda form: f"delete from {TABLE}{where}")
    elif after is None:
        piece = _piece(table, Operation.INSERT, row_id, lambda form: _inserted(table, before, form))
    else:
        piece = _piece(
            table,
            Operation.UPDATE,
            row_id,
            lambda form: f"update {TABLE} set {_undone(table, before, after, form)}{where}",
        )
    return piece._replace(is_undo=True)


def _insert(table: ModelTable, row_id: str, row: Row) -> list[Piece]:
    if all(row[column.name] is None for column in table.lobs):
        return [_piece(table, Operation.INSERT, row_id, lambda form: _inserted(table, row, form))]
    first = _piece(table, Operation.INSERT, NO_ROW_ID, lambda form: _inserted(table, row, form))
    return [first, *_contents(table, row_id, table.lobs, row)]


def _update(table: ModelTable, row_id: str, before: Row, after: Row) -> list[Piece]:
    changed = [column for column in table.lobs if before[column.name] != after[column.name]]
    filled = [column for column in changed if after[column.name] is not None]

    def updated(form: _Form) -> str:
        assigned = _assigned(table, before, after, form)
        return f"update {TABLE} set {assigned}{_where(table, before, form)};" if assigned else ""

    if not filled:
        return [_piece(table, Operation.UPDATE, row_id, updated)]
    begins = [_piece(table, Operation.UPDATE, NO_ROW_ID, updated)] if updated(_NAMED) else []
    return [*begins, *_contents(table, row_id, filled, after)]


def _contents(table: ModelTable, row_id: str, lobs: Sequence[Column], row: Row) -> list[Piece]:
    """LOBs outside of the row by locators and writes, those within it by an UPDATE that ends the group."""
    found = []
    inline = []
    for column in lobs:
        value = row[column.name]
        if value is None or not value:
            continue
        if _is_inline(value):
            inline.append(column)
            continue
        found.append(_locator(table, column, row))
        found += _writes(column, value)
    if not inline:
        return [*found, Piece(PLACED, row_id, None, None, sequence=2)]

    def updated(form: _Form) -> str:
        assigned = ", ".join(
            f"{form.name(_number(table, column), column)} = {form.value(column, row[column.name])}" for column in inline
        )
        return f"update {TABLE} set {assigned}{_where(table, row, form)};"

    return [*found, _piece(table, Operation.UPDATE, row_id, updated)]


def _locator(table: ModelTable, column: Column, row: Row) -> Piece:
    kind = "b" if column.type is OracleType.BLOB else "nc" if column.is_national else "c"

    def selected(form: _Form) -> str:
        name = form.name(_number(table, column), column)
        return f"{_DECLARED}{name} into loc_{kind} from {TABLE}{_where(table, row, form)} for update;"

    return _piece(table, Operation.LOB_LOCATOR, NO_ROW_ID, selected)


def _writes(column: Column, value: Value) -> Iterator[Piece]:
    assert isinstance(value, (str, bytes))
    kind = "b" if column.type is OracleType.BLOB else "nc" if column.is_national else "c"
    for begin in range(0, len(value), _WRITTEN_UNITS):
        part = value[begin : begin + _WRITTEN_UNITS]
        written = f"HEXTORAW('{part.hex()}')" if isinstance(part, bytes) else _quoted(part)
        offset = 1 + _units(value[:begin])
        text = f" buf_{kind} := {written}; \n  dbms_lob.write(loc_{kind}, {_units(part)}, {offset}, buf_{kind});\n"
        yield Piece(Operation.LOB_WRITE, NO_ROW_ID, text, text)


def _units(value: str | bytes) -> int:
    return len(value) if isinstance(value, bytes) else len(value.encode("utf-16-be", "surrogatepass")) // 2


def _is_inline(value: Value) -> bool:
    if value is None or not isinstance(value, (str, bytes)):
        return False
    return 0 < _units(value) * (1 if isinstance(value, bytes) else 2) <= _INLINE_BYTES


def _piece(table: ModelTable, operation: Operation, row_id: str, text: Callable[[_Form], str]) -> Piece:
    return Piece(operation, row_id, text(_NAMED), text(_NUMBERED))


def _inserted(table: ModelTable, row: Row, form: _Form) -> str:
    columns = _printed(table)
    names = ",".join(form.name(_number(table, column), column) for column in columns)
    values = ",".join(_stored(column, row[column.name], form) for column in columns)
    return f"insert into {TABLE}({names}) values ({values});"


def _assigned(table: ModelTable, before: Row, after: Row, form: _Form) -> str:
    """The changed columns. A LOB outside of its row is not among them: its locator follows."""
    return ", ".join(
        f"{form.name(_number(table, column), column)} = {_stored(column, after[column.name], form)}"
        for column in _printed(table)
        if before[column.name] != after[column.name] and not _is_apart(column, after[column.name])
    )


def _undone(table: ModelTable, before: Row, after: Row, form: _Form) -> str:
    """The changed columns with their former values."""
    return ", ".join(
        f"{form.name(_number(table, column), column)} = "
        + (_stored if _is_apart(column, before[column.name]) else _whole)(column, before[column.name], form)
        for column in _printed(table)
        if before[column.name] != after[column.name]
    )


def _whole(column: Column, value: Value, form: _Form) -> str:
    return form.value(column, value)


def _is_apart(column: Column, value: Value) -> bool:
    return column.type in LOBS and bool(value) and not _is_inline(value)


def _where(table: ModelTable, row: Row, form: _Form) -> str:
    """With supplemental logging of all columns the whole row, but for its LOBs; else its key."""
    columns = [
        column
        for column in _printed(table)
        if column.type not in LOBS and (table.logs_all_columns or column.name in table.key)
    ]
    conditions = " and ".join(
        f"{form.name(_number(table, column), column)} IS NULL"
        if row[column.name] is None
        else f"{form.name(_number(table, column), column)} = {form.value(column, row[column.name])}"
        for column in columns
    )
    return f" where {conditions}"


def _stored(column: Column, value: Value, form: _Form) -> str:
    """A LOB's content is never in the first row of its change."""
    if column.type in LOBS and value is not None:
        return "EMPTY_BLOB()" if column.type is OracleType.BLOB else "EMPTY_CLOB()"
    return form.value(column, value)


def _printed(table: ModelTable) -> list[Column]:
    """Virtual columns are in no log; unused ones in no catalogue."""
    return [column for column in table.named.columns if not column.is_virtual and not is_unused(column)]


def is_unused(column: Column) -> bool:
    """After SET UNUSED."""
    return column.is_hidden and column.name.startswith("SYS_C")


def _number(table: ModelTable, column: Column) -> int:
    """INTCOL#."""
    return 1 + [each.name for each in table.named.columns].index(column.name)


def literal(column: Column, value: Value) -> str:
    """A value as LogMiner prints it under the reader's settings of the session."""
    match value:
        case None:
            return "NULL"
        case bytes():
            return f"HEXTORAW('{value.hex()}')"
        case datetime():
            return _moment(column, value)
        case Months():
            return f"TO_YMINTERVAL('{printed_interval(value)}')"
        case timedelta():
            return f"TO_DSINTERVAL('{printed_interval(value)}')"
        case float():
            return f"'{printed_float(value, 9 if column.type is OracleType.BINARY_FLOAT else 17)}'"
        case int() | Decimal():
            return f"'{Decimal(value):f}'"
        case str():
            return _national(value) if column.is_national and not value.isascii() else _quoted(value)
    raise TypeError(f"no recorded form of {value!r}")


def _moment(column: Column, value: datetime) -> str:
    clock = f"{value.year:04}-{value:%m-%d %H:%M:%S}"
    if column.type is OracleType.DATE:
        return f"TO_DATE('{clock}', 'YYYY-MM-DD HH24:MI:SS')"
    clock = f"{clock}.{f'{value.microsecond:06}000'[: column.scale]}"
    if column.type is not OracleType.TIMESTAMP_TZ:
        return f"TO_TIMESTAMP('{clock}')"
    if isinstance(value.tzinfo, ZoneInfo):
        return f"TO_TIMESTAMP_TZ('{clock} {value.tzinfo.key}')"
    offset = value.utcoffset() or timedelta()
    hours, minutes = divmod(abs(offset) // timedelta(minutes=1), 60)
    return f"TO_TIMESTAMP_TZ('{clock} {'-' if offset < timedelta() else '+'}{hours:02}:{minutes:02}')"


def printed_interval(value: timedelta | Months) -> str:
    """``+01 02:03:04.500000`` and ``-03-06``."""
    if isinstance(value, Months):
        years, months = divmod(abs(value.months), 12)
        return f"{'-' if value.months < 0 else '+'}{years:02}-{months:02}"
    whole = abs(value)
    minutes, seconds = divmod(whole.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    sign = "-" if value < timedelta() else "+"
    return f"{sign}{whole.days:02} {hours:02}:{minutes:02}:{seconds:02}.{whole.microseconds:06}"


def printed_float(value: float, digits: int = 17) -> str:
    """``1.5E+002``."""
    if value != value:
        return "Nan"
    if value in (float("inf"), float("-inf")):
        return "Inf" if value > 0 else "-Inf"
    mantissa, exponent = f"{value:.{digits - 1}E}".split("E")
    return f"{mantissa.rstrip('0').rstrip('.')}E{exponent[0]}{int(exponent[1:]):03}"


def _national(text: str) -> str:
    data = text.encode("utf-16-be")
    units = [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
    doubled = {0x27: "''", 0x5C: "\\\\"}
    written = [doubled.get(unit) or (chr(unit) if unit < 128 else f"\\{unit:04X}") for unit in units]
    return f"UNISTR('{''.join(written)}')"


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def _internal(column: Column, value: Value) -> str:
    """A value in Oracle's storage format."""
    if value is None:
        return "NULL"
    return f"HEXTORAW('{cells.cell(column, value).hex()}')" if column.type not in LOBS else literal(column, value)


_NAMED: Final = _Form(lambda _, column: f'"{column.name}"', literal)
_NUMBERED: Final = _Form(lambda number, _: f'"COL {number}"', _internal)
