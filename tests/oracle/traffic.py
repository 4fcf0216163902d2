"""Random transactions of a model database, and the table that their SQL_REDO makes."""

import itertools
from datetime import datetime
from decimal import Decimal
from random import Random

from libs.oracle.redo_sql import read_statement
from libs.oracle.redo_values import Expression, Quoted, RedoValue
from libs.stand_ins.oracle.answers import Column, OracleType, Value
from libs.stand_ins.oracle.model import Model, Transaction
from libs.stand_ins.oracle.tables import ModelTable

COLUMNS = (
    Column("ID", OracleType.NUMBER, 22, 18, 0),
    Column("AMOUNT", OracleType.NUMBER, 22, 12, 2),
    Column("note"),
    Column("MADE", OracleType.DATE, 7),
)
Rows = dict[str, dict[str, Value]]
"""Of one table, by ROWID."""


def order(number: int, note: str | None = "it's") -> dict[str, Value]:
    """A row of ``COLUMNS``."""
    return {"ID": number, "AMOUNT": Decimal("1.50"), "note": note, "MADE": datetime(2024, 2, 29, 1, 2, 3)}


class Traffic:
    """Clients, each with a transaction; none waits for another's locks."""

    def __init__(self, model: Model, tables: list[ModelTable], chance: Random) -> None:
        self._model = model
        self._tables = tables
        self._chance = chance
        self._numbers = itertools.count(1)
        self._open: list[tuple[Transaction, list[int]]] = []

    def take(self, step: str) -> None:
        """One client goes a step on."""
        if step == "switch":
            self._model.switch_logs(archives=True)
        elif step == "begin" or not self._open:
            self._open.append((self._model.begin(), [0]))
        else:
            self._take_in(step, *self._chance.choice(self._open))

    def _take_in(self, step: str, transaction: Transaction, savepoints: list[int]) -> None:
        table = self._chance.choice(self._tables)
        free = [row_id for row_id in table.at(self._model.scn) if row_id not in table.pending]
        free += transaction.changed(table)
        if step == "insert":
            transaction.insert(table, order(next(self._numbers), self._chance.choice([None, "it''s", "; where", "é"])))
        elif step == "update" and free:
            row_id, note = self._chance.choice(free), self._chance.choice([None, "new", "'"])
            if table.row(row_id)["note"] != note:  # no recording has an UPDATE that changes nothing
                transaction.update(table, row_id, {"note": note})
        elif step == "delete" and free:
            transaction.delete(table, self._chance.choice(free))
        elif step == "savepoint":
            savepoints.append(transaction.savepoint())
        elif step == "back":
            transaction.roll_back_to(savepoints[-1])
        elif step in ("commit", "abort"):
            transaction.commit() if step == "commit" else transaction.roll_back()
            self._open.remove((transaction, savepoints))


def apply(rows: Rows, row_id: str, text: str) -> None:
    """Carry out a row's SQL_REDO; the row before is the one that it names."""
    statement = read_statement(text)
    before = {name: value_of(name, value) for name, value in statement.before.items()}
    after = {name: value_of(name, value) for name, value in statement.after.items()}
    if before:
        assert rows.pop(row_id) == before
    else:
        assert row_id not in rows
    if after:
        rows[row_id] = before | after


def value_of(name: str, value: RedoValue) -> Value:
    """A value of ``COLUMNS``."""
    match value:
        case None:
            return None
        case Quoted(text):
            return Decimal(text) if name in ("ID", "AMOUNT") else text
        case Expression(sql):
            return datetime.strptime(sql, "TO_DATE('%Y-%m-%d %H:%M:%S', 'YYYY-MM-DD HH24:MI:SS')")
    raise AssertionError(value)
