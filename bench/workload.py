"""The work that readers are measured on: a table of ten columns, and a log of row changes to catch up with.

A transaction has 100 row events: 60 inserts, 30 updates and 10 deletes, each statement on one row as applications write them
(``write_changes``), or one statement on all of them as batch jobs do (``write_multi_row_changes``).
"""

import random
from typing import Any, Final

import pymysql

DATABASE: Final = "bench"
TABLE: Final = "events"
ROWS_PER_TRANSACTION: Final = 100
_INSERTS, _UPDATES, _DELETES = 60, 30, 10

CREATE_TABLE: Final = f"""
CREATE TABLE {TABLE} (
  id BIGINT NOT NULL PRIMARY KEY,
  customer_id INT NOT NULL,
  status VARCHAR(20) NOT NULL,
  amount DECIMAL(12,2) NOT NULL,
  quantity INT NOT NULL,
  price DOUBLE NOT NULL,
  created_at DATETIME(3) NOT NULL,
  updated_at TIMESTAMP(6) NOT NULL,
  note VARCHAR(255),
  payload VARCHAR(255) NOT NULL
)
"""


def write_changes(connection: "pymysql.Connection[Any]", row_events: int, *, seed: int = 7) -> None:
    """Make ``row_events`` row events (a multiple of 100) of the table, which exists. Blocks, for a minute or two."""
    chance = random.Random(seed)
    cursor = connection.cursor()
    cursor.execute(f"USE {DATABASE}")
    cursor.execute("SET SESSION autocommit = 0")
    next_id = 1
    alive: list[int] = []
    for _ in range(row_events // ROWS_PER_TRANSACTION):
        statements = []
        for _ in range(_INSERTS):
            statements.append(f"INSERT INTO {TABLE} VALUES {_row(next_id, chance)}")
            alive.append(next_id)
            next_id += 1
        for _ in range(_UPDATES):
            statements.append(
                f"UPDATE {TABLE} SET status='{chance.choice(_STATUSES)}', quantity=quantity+1, "
                f"updated_at=FROM_UNIXTIME({1_700_000_000 + chance.randrange(10**7)}.{chance.randrange(10**6):06d}) "
                f"WHERE id={alive[chance.randrange(len(alive))]}"
            )
        for _ in range(_DELETES):
            place = chance.randrange(len(alive))
            alive[place], alive[-1] = alive[-1], alive[place]
            statements.append(f"DELETE FROM {TABLE} WHERE id={alive.pop()}")
        cursor.execute(";".join(statements) + ";COMMIT")
        while cursor.nextset():
            pass
    cursor.execute("SET SESSION autocommit = 1")


def write_multi_row_changes(connection: "pymysql.Connection[Any]", row_events: int, *, seed: int = 7) -> None:
    """Make ``row_events`` row events (a multiple of 100) of the table, which exists, 100 by each statement. Blocks."""
    chance = random.Random(seed)
    cursor = connection.cursor()
    cursor.execute(f"USE {DATABASE}")
    alive: list[int] = []
    for transaction in range(row_events // ROWS_PER_TRANSACTION):
        first_id = 1 + transaction * ROWS_PER_TRANSACTION
        match transaction % 10:
            case 3 | 6 | 8:
                first = chance.choice(alive)
                cursor.execute(
                    f"UPDATE {TABLE} SET status='{chance.choice(_STATUSES)}', quantity=quantity+1, "
                    f"updated_at=FROM_UNIXTIME({1_700_000_000 + transaction}.{chance.randrange(10**6):06d}) "
                    f"WHERE id BETWEEN {first} AND {first + ROWS_PER_TRANSACTION - 1}"
                )
            case 9:
                first = alive.pop(chance.randrange(len(alive)))
                cursor.execute(f"DELETE FROM {TABLE} WHERE id BETWEEN {first} AND {first + ROWS_PER_TRANSACTION - 1}")
            case _:
                rows = (_row(row_id, chance) for row_id in range(first_id, first_id + ROWS_PER_TRANSACTION))
                cursor.execute(f"INSERT INTO {TABLE} VALUES {','.join(rows)}")
                alive.append(first_id)


def write_rows(connection: "pymysql.Connection[Any]", rows: int, *, first_id: int = 0, seed: int = 7) -> None:
    """Fill the table, which exists and is empty, with so many rows, their ids from ``first_id`` on. Blocks, for a minute."""
    chance = random.Random(seed)
    cursor = connection.cursor()
    end = first_id + rows
    for first in range(first_id, end, _ROWS_PER_INSERT):
        values = ",".join(_row(row_id, chance) for row_id in range(first, min(end, first + _ROWS_PER_INSERT)))
        cursor.execute(f"INSERT INTO {DATABASE}.{TABLE} VALUES {values}")
    cursor.execute(f"ANALYZE TABLE {DATABASE}.{TABLE}")


def row_text(row_id: int) -> str:
    """A row of the table as SQL, the same for the same id."""
    return _row(row_id, random.Random(row_id))


_ROWS_PER_INSERT: Final = 1_000
_STATUSES: Final = ("new", "paid", "packed", "shipped", "returned")


def _row(row_id: int, chance: random.Random) -> str:
    seconds = 1_700_000_000 + chance.randrange(10**7)
    note = "NULL" if chance.random() < 0.2 else f"'note {chance.randrange(10**9)} é 漢 {'x' * chance.randrange(40)}'"
    return (
        f"({row_id},{chance.randrange(10**6)},'{chance.choice(_STATUSES)}',{chance.randrange(10**7) / 100:.2f},"
        f"{chance.randrange(100)},{chance.random() * 1000!r},FROM_UNIXTIME({seconds}.{chance.randrange(1000):03d}),"
        f"FROM_UNIXTIME({seconds}.{chance.randrange(10**6):06d}),{note},'{chance.getrandbits(600):x}')"
    )
