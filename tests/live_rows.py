"""Rows at the source for tests of whole stacks."""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.conftest import MysqlServer


def make_orders_of_most_types(server: MysqlServer, name: str) -> None:
    """A database with a table ``orders``: a row of most types, one of NULLs, and a plain one."""
    server.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.orders (code VARCHAR(10) PRIMARY KEY, note TEXT, points BIGINT UNSIGNED, big DECIMAL(65,30), "
        "rate FLOAT, doc JSON, raw VARBINARY(9), flags BIT(9), day DATE, at TIMESTAMP(6) NULL, local DATETIME(3), "
        "span TIME(6), place POINT, ok BIT(1), mood ENUM('good','bad'), y YEAR)",
        f"INSERT INTO {name}.orders VALUES ('é', 'it''s\\n\\\\N\\t', 18446744073709551615, "
        '-12345678901234567890123456789012345.000000000000000000000000000001, 0.1, \'{"b": 1.50, "a": null}\', 0x00ff5c, '
        "b'100000001', '1000-01-01', '2038-01-19 03:14:07.999999', '9999-12-31 23:59:59.999', '-838:59:58.000001', "
        "POINT(1.5, -2), b'1', 'bad', 2024), ('Z', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, "
        "NULL, NULL, NULL), ('b', 'plain', 1, 1, 1, '[]', '', b'0', NULL, NULL, NULL, '00:00:00', NULL, b'0', 'good', 1901)",
    )


def make_orders_and_notes(server: MysqlServer, name: str, *, orders: int) -> None:
    """A database with so many rows in ``orders``, numbered from one on, and a table ``notes`` beside, of one row."""
    rows = ", ".join(f"({number}, 'note {number}')" for number in range(1, orders + 1))
    server.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.orders (id INT PRIMARY KEY, note VARCHAR(40))",
        f"INSERT INTO {name}.orders VALUES {rows}",
        f"CREATE TABLE {name}.notes (id INT PRIMARY KEY)",
        f"INSERT INTO {name}.notes VALUES (1)",
    )


@contextmanager
def written_to(server: MysqlServer, database: str) -> Iterator[None]:
    """Within the block rows come, change and go all the time."""
    must_stop = threading.Event()

    def write() -> None:
        with server.connect(database) as connection, connection.cursor() as cursor:
            for number in itertools.count():
                cursor.execute("INSERT INTO orders (code, points) VALUES (%s, %s)", (f"w{number}", number))
                cursor.execute("UPDATE orders SET points = points + 1 WHERE code LIKE 'w%'")
                cursor.execute("DELETE FROM orders WHERE code = %s", (f"w{number - 5}",))
                if must_stop.wait(0.2):
                    return

    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(write)
        try:
            yield
        finally:
            must_stop.set()
        done.result()
