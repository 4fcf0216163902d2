"""SQL_REDO of a ten-column table as events: the compiled decoder, the reader's way to a batch, and the plain reading.

``python -m bench.oracle`` prints the section. All are measured in turn in one run, and each figure is the best of its rounds,
because the speed of a shared machine wanders. ``libs.oracle.redo_rows.PlainRows`` is the peer that stays the same.
"""

import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from libs.events.batch import BatchIdentity
from libs.events.envelope import OracleSourceBlock, event_tail
from libs.events.run_rows import RunRows
from libs.oracle.log_rows import Operation
from libs.oracle.logical import column
from libs.oracle.redo import OracleFrame, RedoDecoder
from libs.oracle.redo_rows import PlainRows, RedoRow, redo_decoder
from libs.source.failure_policy import FailureHandling
from libs.types.table import TableId, TableSchema
from services.logminer_reader.decode import TransactionDecoder
from services.logminer_reader.gather import Gatherer
from services.logminer_reader.log_steps import Committed
from services.logminer_reader.mined_rows import MinedRow
from services.logminer_reader.transactions import OpenTransactions

ROWS: Final = 20_000
ROUNDS: Final = 15
_PLAIN_ROWS: Final = 500
_RUN_ROWS: Final = 500
_RUN_BYTES: Final = 500_000
_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)
_XID: Final = bytes.fromhex("0a00070084220000")
_OPERATIONS: Final = {"i": Operation.INSERT, "u": Operation.UPDATE, "d": Operation.DELETE}

SCHEMA: Final = TableSchema(
    table_id=TableId(database="SHOP", table="ORDERS"),
    columns=tuple(
        column(name, source_type, charset="AL32UTF8")
        for name, source_type in {
            "ID": "NUMBER(18,0)",
            "CUSTOMER": "VARCHAR2(200)",
            "STATUS": "VARCHAR2(10)",
            "AMOUNT": "NUMBER(12,2)",
            "QTY": "NUMBER(9,0)",
            "CREATED": "DATE",
            "UPDATED": "TIMESTAMP(6)",
            "NOTE": "VARCHAR2(4000)",
            "FLAG": "CHAR(1)",
            "REF": "RAW(16)",
        }.items()
    ),
    key=("ID",),
    version=1,
)


class DecoderRates(NamedTuple):
    """Rows per CPU second."""

    compiled: float
    """Statements to events in a run."""
    reader: float
    """Rows of a transaction to the batches of the reader."""
    plain: float
    """Statements to cells in plain Python."""


def redo_texts(rows: int, seed: int = 7) -> list[str]:
    """SQL_REDO with all supplemental logging: 35 of 100 INSERT, 55 UPDATE of three columns, 10 DELETE; about 457 bytes each."""
    dice = random.Random(seed)
    return [_statement(dice, nth) for nth in range(rows)]


def measure_decoder(rows: int = ROWS, rounds: int = ROUNDS) -> DecoderRates:
    """Blocks, for about 10 s at the defaults."""
    texts = redo_texts(rows)
    decoder, plain = redo_decoder(SCHEMA), PlainRows(SCHEMA, unavailable=None)
    redo_rows = [_redo_row(text, nth) for nth, text in enumerate(texts, start=1)]
    transaction = _transaction(texts)
    parts: list[tuple[int, Callable[[], None]]] = [
        (rows, lambda: _decode(decoder, redo_rows)),
        (rows, lambda: _gather(transaction)),
        (min(rows, _PLAIN_ROWS), lambda: _read(plain, redo_rows[:_PLAIN_ROWS])),
    ]
    best = [0.0] * len(parts)
    for _ in range(rounds):
        for place, (count, work) in enumerate(parts):
            best[place] = max(best[place], count / _cpu_s(work))
    transaction.transaction.close()
    return DecoderRates(*best)


def decoder_section(rates: DecoderRates) -> str:
    """The figures as Markdown."""
    lines = [
        "## Oracle: SQL_REDO as events",
        "",
        "| of a ten-column table, about 457 bytes a statement | rows per CPU s |",
        "|---|---|",
        f"| statements to events, compiled | {rates.compiled:,.0f} |",
        f"| rows of a transaction to batches, by the reader | {rates.reader:,.0f} |",
        f"| statements to cells, plain Python | {rates.plain:,.0f} |",
    ]
    return "\n".join(lines) + "\n"


def _statement(dice: random.Random, nth: int) -> str:
    row, kind = _row(dice, nth), dice.random()
    if kind < 0.35:
        names = ",".join(f'"{name}"' for name in row)
        return f'insert into "SHOP"."ORDERS"({names}) values ({",".join(row.values())});'
    where = " and ".join(f'"{name}"{_condition(value)}' for name, value in row.items())
    if kind < 0.9:
        changed = _row(dice, nth)
        assigned = ", ".join(f'"{name}" = {changed[name]}' for name in dice.sample(list(row)[1:], 3))
        return f'update "SHOP"."ORDERS" set {assigned} where {where};'
    return f'delete from "SHOP"."ORDERS" where {where};'


def _condition(value: str) -> str:
    return " IS NULL" if value == "NULL" else f" = {value}"


def _row(dice: random.Random, nth: int) -> Mapping[str, str]:
    """Values as SQL_REDO has them."""
    clock = f"{_TIME - timedelta(seconds=dice.randrange(200_000_000)):%Y-%m-%d %H:%M:%S}"
    note = f"it''s a note, (with) brackets and = signs {'x' * dice.randrange(40)}"
    return {
        "ID": f"'{nth}'",
        "CUSTOMER": f"'customer {dice.randrange(100_000)} of {nth}'",
        "STATUS": dice.choice(("'NEW'", "'PAID'", "'SENT'")),
        "AMOUNT": f"'{dice.randrange(100_000)}.{dice.randrange(100):02}'",
        "QTY": f"'{dice.randrange(1_000)}'",
        "CREATED": f"TO_DATE('{clock}', 'YYYY-MM-DD HH24:MI:SS')",
        "UPDATED": f"TO_TIMESTAMP('{clock}.{dice.randrange(1_000_000):06}')",
        "NOTE": dice.choice(("NULL", f"'{note}'", f"'plain note {'y' * dice.randrange(60)}'")),
        "FLAG": dice.choice(("'Y'", "'N'")),
        "REF": f"HEXTORAW('{dice.getrandbits(128):032x}')",
    }


def _redo_row(text: str, ordinal: int) -> RedoRow:
    time_us = int(_TIME.timestamp()) * 1_000_000
    return RedoRow(
        text.encode(), 7_102_900 + ordinal, time_us, 1, 0, b"0x0031f7.008fe16a.0188", b"AAAR3sAAEAAAACXAAA", ordinal
    )


def _decode(decoder: RedoDecoder, rows: list[RedoRow]) -> None:
    block = OracleSourceBlock("ora", "PDB", "SHOP", "ORDERS")
    ends = [event_tail(op, 1_767_225_600_000_000_000) for op in "cud"]
    nth = 0
    while nth < len(rows):
        frame = OracleFrame(block.pieces(snapshot=b'"false"'), b',"transaction":null', ends)
        nth = decoder.decode(frame, RunRows(), rows, nth, min(len(rows), nth + _RUN_ROWS), _RUN_BYTES)


def _read(plain: PlainRows, rows: list[RedoRow]) -> None:
    for row in rows:
        plain.read(row.sql)


class _OneTable:
    """Every number is the table's."""

    def schema_of(self, object_id: int, object_version: int) -> TableSchema | None:
        return SCHEMA

    def note_object(self, object_id: int, owner: str, table: str) -> bool:
        return False


def _gather(transaction: Committed) -> None:
    identity = BatchIdentity(source="ora", source_partition="0", connector="oracle", run_id="bench", fencing_token=1)
    gatherer = Gatherer("ora", FailureHandling.FAIL, identity)
    decoder = TransactionDecoder(
        "ora",
        "PDB",
        _OneTable(),
        gatherer,
        {},
        epoch=1,
        unavailable=None,
        signal_table=None,
        transaction_metadata=False,
    )
    for _ in decoder.gather(transaction):
        gatherer.take(None)
    gatherer.take(None)


def _transaction(texts: list[str]) -> Committed:
    transactions = OpenTransactions(None, memory_bytes=1 << 30)
    for row in _mined(texts):
        transactions.add(row)
    transaction = transactions.ended(_XID, 1 << 40)
    assert transaction is not None
    return Committed(transaction, 1 << 40, 0, int(_TIME.timestamp()) * 1_000_000, None)


def _mined(texts: list[str]) -> Iterator[MinedRow]:
    for nth, text in enumerate(texts):
        yield MinedRow(
            scn=7_102_900 + nth,
            xid=_XID,
            thread=1,
            rs_id=" 0x0031f7.008fe16a.0188 ",
            ssn=0,
            operation=_OPERATIONS[text[0]].value,
            is_undo=0,
            goes_on=0,
            status=0,
            object_id=7,
            object_version=1,
            row_id="AAAR3sAAEAAAACXAAA",
            timestamp=_TIME.replace(tzinfo=None),
            user="SHOP",
            sequence=1,
            owner="SHOP",
            table="ORDERS",
            info=None,
            sql=text,
        )


def _cpu_s(work: Callable[[], None]) -> float:
    gc.collect()
    gc.disable()
    try:
        begun = time.process_time()
        work()
        return time.process_time() - begun
    finally:
        gc.enable()


if __name__ == "__main__":
    print(decoder_section(measure_decoder()))
