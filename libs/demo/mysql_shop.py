"""The demo's database on MySQL: every column type that is followed.

It lies on one server, or dealt to the shards of a Vitess keyspace: a customer, an order with its items, a product each by its
number. Values are computed from the number by the server itself, so that filling takes seconds and two runs start alike. Among
them are those that a change data capture gets wrong first: BIGINT UNSIGNED above 2**63, four-byte
characters, trailing zeros of BINARY, negative TIME beyond a day, microseconds, FLOAT digits, NULL in every nullable
column.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pymysql

from libs.demo.shop import READER_PASSWORD, READER_USER, ROWS, OnTable
from libs.mysql.grants import create_user, grant_statements
from libs.mysql.identifiers import quote_identifier
from libs.servers.ports import LOOPBACK

CREATE_TABLES: Final = (
    """
    CREATE TABLE customers (
      id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
      email VARCHAR(120) NOT NULL,
      full_name VARCHAR(100) NOT NULL,
      country CHAR(2),
      is_active TINYINT(1) NOT NULL DEFAULT 1,
      tier ENUM('basic', 'silver', 'gold', 'ünïque') NOT NULL DEFAULT 'basic',
      interests SET('books', 'games', 'garden', 'music'),
      loyalty_points BIGINT UNSIGNED NOT NULL,
      credit_limit DECIMAL(12,2),
      rating FLOAT,
      score DOUBLE,
      birth_date DATE,
      opens_at TIME(3),
      fingerprint BINARY(16) NOT NULL,
      avatar VARBINARY(64),
      notes TEXT,
      settings JSON,
      created_at DATETIME(6) NOT NULL,
      updated_at TIMESTAMP(3) NULL,
      PRIMARY KEY (id)
    ) CHARACTER SET utf8mb4
    """,
    """
    CREATE TABLE products (
      sku VARCHAR(40) NOT NULL,
      product_no INT UNSIGNED NOT NULL,
      title VARCHAR(200) NOT NULL,
      price DECIMAL(10,2) NOT NULL,
      weight_kg FLOAT,
      stock INT NOT NULL,
      reserved MEDIUMINT UNSIGNED NOT NULL DEFAULT 0,
      shelf SMALLINT,
      is_listed TINYINT(1) NOT NULL,
      attributes JSON,
      description MEDIUMTEXT,
      image BLOB,
      changed_at DATETIME(3),
      PRIMARY KEY (sku)
    ) CHARACTER SET utf8mb4
    """,
    """
    CREATE TABLE orders (
      id BIGINT NOT NULL AUTO_INCREMENT,
      tenant_code VARCHAR(16) NOT NULL,
      customer_id BIGINT UNSIGNED NOT NULL,
      email VARCHAR(120) NOT NULL,
      status ENUM('new', 'paid', 'sent', 'returned') NOT NULL,
      total DECIMAL(14,4) NOT NULL,
      tax_rate DOUBLE,
      is_gift TINYINT(1) NOT NULL,
      note VARCHAR(200),
      details JSON,
      due_on DATE,
      pickup_at TIME,
      placed_at DATETIME(6) NOT NULL,
      changed_at TIMESTAMP(6) NULL,
      PRIMARY KEY (id)
    ) CHARACTER SET utf8mb4
    """,
    """
    CREATE TABLE order_items (
      order_id BIGINT NOT NULL,
      line_no SMALLINT UNSIGNED NOT NULL,
      sku VARCHAR(40) NOT NULL,
      quantity INT UNSIGNED NOT NULL,
      unit_price DECIMAL(10,2) NOT NULL,
      discount DOUBLE,
      options SET('wrapped', 'insured', 'express'),
      PRIMARY KEY (order_id, line_no)
    ) CHARACTER SET utf8mb4
    """,
)

_NAMES: Final = "ELT(1 + n %% 7, 'Ada', 'Zoë', '李雷', 'Ⅻ Ω', 'O''Brien \\\\', '😀 Smile', 'Łukasz')"

# One row for each number in the temporary table ``numbers``.
FILL_TABLES: Final = {
    "customers": f"""
    INSERT INTO customers
    SELECT n, CONCAT('customer', n, '@example.org'), CONCAT({_NAMES}, ' ', n),
      IF(n %% 11 = 0, NULL, ELT(1 + n %% 4, 'AT', 'DE', 'JP', 'US')), n %% 5 <> 0, 1 + n %% 4,
      IF(n %% 6 = 0, NULL, n %% 16),
      IF(n %% 1000 = 0, 18446744073709551615 - n, CRC32(n)),
      IF(n %% 9 = 0, NULL, (CAST(CRC32(n) AS SIGNED) %% 1000000) / 100 - 5000), IF(n %% 8 = 0, NULL, (CRC32(n) %% 100000) / 7),
      IF(n %% 8 = 1, NULL, CRC32(n) / 3e7), IF(n %% 13 = 0, NULL, DATE_ADD('1930-01-01', INTERVAL n %% 30000 DAY)),
      IF(n %% 10 = 0, NULL, SEC_TO_TIME(CAST(CRC32(n) AS SIGNED) %% 1600000 - 800000 + 0.125)),
      UNHEX(RPAD(LEFT(SHA2(n, 224), 2 * (n %% 17)), 32, '0')),
      IF(n %% 4 = 0, NULL, UNHEX(LEFT(SHA2(n, 256), 2 * (n %% 33)))),
      IF(n %% 3 = 0, NULL, CONCAT('line one\\nline "two"\\t', REPEAT('ß', n %% 40))),
      IF(n %% 7 = 0, NULL, JSON_OBJECT('theme', IF(n %% 2, 'dark', 'light'), 'n', n, 'pi', 3.25,
         'tags', JSON_ARRAY('ä', n %% 10, NULL, TRUE))),
      TIMESTAMPADD(MICROSECOND, CRC32(n), '2023-01-01'),
      IF(n %% 12 = 0, NULL, TIMESTAMPADD(SECOND, n, '2024-01-01 00:00:00.250'))
    FROM numbers""",
    "products": f"""
    INSERT INTO products
    SELECT CONCAT('SKU-', LPAD(n, 6, '0'), IF(n %% 50 = 0, '-é', '')), n, CONCAT({_NAMES}, ' item ', n),
      (CRC32(n) %% 100000) / 100, IF(n %% 5 = 0, NULL, (n %% 700) / 16), CAST(CRC32(n) AS SIGNED) %% 5000 - 10, n %% 9000,
      IF(n %% 4 = 0, NULL, n %% 60000 - 30000), n %% 3 <> 0,
      IF(n %% 6 = 0, NULL, JSON_OBJECT('colour', ELT(1 + n %% 3, 'red', 'grün', '青'), 'size', n %% 40)),
      IF(n %% 3 = 0, NULL, REPEAT(CONCAT('About ', n, '. '), n %% 20)), IF(n %% 8 = 0, NULL, UNHEX(SHA2(n, 512))),
      IF(n %% 9 = 0, NULL, TIMESTAMPADD(MICROSECOND, 1000 * CRC32(n), '2022-05-05'))
    FROM numbers""",
    "orders": f"""
    INSERT INTO orders
    SELECT n, ELT(1 + n %% 4, 'acme', 'globex', 'initech', 'umbrella'), 1 + CRC32(n) %% 20000,
      CONCAT('buyer', n %% 20000, '@example.org'), 1 + n %% 4, (CRC32(n) %% 10000000) / 1000,
      IF(n %% 10 = 0, NULL, (n %% 25) / 100), n %% 9 = 0, IF(n %% 4 = 0, NULL, CONCAT('note ', {_NAMES})),
      IF(n %% 5 = 0, NULL, JSON_OBJECT('items', n %% 7, 'coupon', IF(n %% 2, NULL, 'HELLO'))),
      IF(n %% 6 = 0, NULL, DATE_ADD('2024-01-01', INTERVAL n %% 500 DAY)),
      IF(n %% 7 = 0, NULL, SEC_TO_TIME(n %% 86400)), TIMESTAMPADD(MICROSECOND, CRC32(n), '2024-02-28'),
      IF(n %% 8 = 0, NULL, TIMESTAMPADD(MICROSECOND, CRC32(n), '2024-03-01'))
    FROM numbers""",
    "order_items": """
    INSERT INTO order_items
    SELECT 1 + (n - 1) %% %(orders)s, 1 + (n - 1) DIV %(orders)s, CONCAT('SKU-', LPAD(1 + CRC32(n) %% 10000, 6, '0')),
      1 + n %% 9, (CRC32(n) %% 100000) / 100, IF(n %% 5 = 0, NULL, (n %% 30) / 100), IF(n %% 6 = 0, NULL, n %% 8)
    FROM numbers""",
}


@dataclass(frozen=True, slots=True)
class ShopPart:
    """A server, and the database there that holds the tables or a share of their rows."""

    port: int
    database: str


def _all_in_one(_: int) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Shop:
    """Where the tables lie."""

    parts: tuple[ShopPart, ...]
    part_of: Callable[[int], int] = _all_in_one
    """Which part has the customer, the order with its items, or the product of a number."""

    @property
    def is_sharded(self) -> bool:
        """Rows are dealt to several parts by their number."""
        return len(self.parts) > 1


@contextlib.contextmanager
def connected(port: int, database: str | None) -> Iterator["pymysql.Connection[pymysql.cursors.Cursor]"]:
    """A connection to one of the demo's servers as its administrator."""
    connection = pymysql.connect(
        host=LOOPBACK,
        port=port,
        user="root",
        database=database,
        charset="utf8mb4",
        ssl_disabled=True,
        connect_timeout=5,
        read_timeout=120,
    )
    try:
        yield connection
    finally:
        connection.close()


def make_shop(shop: Shop, *, scale: float = 1.0, on_table: OnTable = lambda *_: None) -> int:
    """Make the databases and the reader's user, fill the tables; returns how many rows they hold.

    ``scale`` shrinks every table, for tests.
    """
    counts = {table: max(1, int(rows * scale)) for table, rows in ROWS.items()}
    total = 0
    for nth, part in enumerate(shop.parts):
        with connected(part.port, None) as connection, connection.cursor() as cursor:
            _make_database(cursor, part.database)
            for table, rows in counts.items():
                own = [n for n in range(1, rows + 1) if shop.part_of(_number(table, n, counts["orders"])) == nth]
                _deal(cursor, own)
                total += cursor.execute(FILL_TABLES[table], {"orders": counts["orders"]})
                connection.commit()
                on_table(table, total)
    return total


def _make_database(cursor: "pymysql.cursors.Cursor", database: str) -> None:
    cursor.execute(f"CREATE DATABASE {quote_identifier(database)} CHARACTER SET utf8mb4")
    cursor.execute(f"USE {quote_identifier(database)}")
    cursor.execute("SET SESSION time_zone = '+00:00'")
    for statement in (create_user(READER_USER, READER_PASSWORD), *grant_statements(READER_USER, [database])):
        cursor.execute(statement)
    for statement in CREATE_TABLES:
        cursor.execute(statement)


def _number(table: str, n: int, orders: int) -> int:
    """The number that deals the n-th row of a table: an item's is its order's, as ``FILL_TABLES`` computes it."""
    return 1 + (n - 1) % orders if table == "order_items" else n


def _deal(cursor: "pymysql.cursors.Cursor", numbers: Iterable[int]) -> None:
    cursor.execute("DROP TEMPORARY TABLE IF EXISTS numbers")
    cursor.execute("CREATE TEMPORARY TABLE numbers (n INT PRIMARY KEY)")
    cursor.executemany("INSERT INTO numbers VALUES (%s)", [(n,) for n in numbers])
