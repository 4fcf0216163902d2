"""The demo's database on Oracle: the tables, and the rows that they are filled with.

Values are computed from a row's number, so that two runs start alike. Among them are those that a change data capture gets
wrong first: NUMBERs without a scale and of 20 digits, four-byte characters, CHAR with its blanks, zeros at the end of RAW,
microseconds, moments of a zone, NULL in every nullable column.
"""

import contextlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from libs.config.load import Secret
from libs.demo.shop import ROWS, TENANT_CODES, OnTable
from libs.errors import HeadwaterError, ServiceUnavailable
from libs.servers.ports import LOOPBACK
from libs.source.oracle.client import Connection, connect, hang_up, oracle_error_code
from libs.source.oracle.settings import OracleDatabaseSettings

SCHEMA: Final = "SHOP"
SERVICE: Final = "ORCLCDB"
OWNER_PASSWORD: Final = "shop-demo"  # noqa: S105 - of a server on loopback that the demo makes and stops
_BATCH_ROWS: Final = 1_000
_DEADLOCK: Final = 60
_BEGUN: Final = datetime(2023, 1, 1)

CREATE_TABLES: Final = (
    """CREATE TABLE SHOP.CUSTOMERS (ID NUMBER(12) PRIMARY KEY, EMAIL VARCHAR2(120) NOT NULL,
    FULL_NAME VARCHAR2(100 CHAR) NOT NULL, COUNTRY CHAR(2), IS_ACTIVE NUMBER(1) NOT NULL, LOYALTY_POINTS NUMBER(20) NOT NULL,
    CREDIT_LIMIT NUMBER(12,2), SHARE_OF NUMBER, RATING BINARY_FLOAT, SCORE BINARY_DOUBLE, BIRTH_DATE DATE,
    FINGERPRINT RAW(16), NOTES VARCHAR2(1000), CREATED_AT TIMESTAMP(6) NOT NULL, UPDATED_AT TIMESTAMP(3) WITH TIME ZONE)""",
    """CREATE TABLE SHOP.PRODUCTS (SKU VARCHAR2(40) PRIMARY KEY, PRODUCT_NO NUMBER(9) NOT NULL, TITLE VARCHAR2(200) NOT NULL,
    PRICE NUMBER(10,2) NOT NULL, STOCK NUMBER(9) NOT NULL, WEIGHT_KG BINARY_DOUBLE, IMAGE RAW(64), CHANGED_AT TIMESTAMP(3))""",
    """CREATE TABLE SHOP.ORDERS (ID NUMBER(18) PRIMARY KEY, TENANT_CODE VARCHAR2(16) NOT NULL, CUSTOMER_ID NUMBER(12) NOT NULL,
    EMAIL VARCHAR2(120) NOT NULL, STATUS VARCHAR2(10) NOT NULL, TOTAL NUMBER(14,4) NOT NULL, TAX_RATE BINARY_DOUBLE,
    IS_GIFT NUMBER(1) NOT NULL, NOTE VARCHAR2(200), DUE_ON DATE, PLACED_AT TIMESTAMP(6) NOT NULL, CHANGED_AT TIMESTAMP(6))""",
    """CREATE TABLE SHOP.ORDER_ITEMS (ORDER_ID NUMBER(18), LINE_NO NUMBER(4), SKU VARCHAR2(40) NOT NULL,
    QUANTITY NUMBER(9) NOT NULL, UNIT_PRICE NUMBER(10,2) NOT NULL, DISCOUNT BINARY_DOUBLE, PRIMARY KEY (ORDER_ID, LINE_NO))""",
)
_NAMES: Final = ("Ada", "Zoë", "李雷", "Ⅻ Ω", "O'Brien \\", "😀 Smile", "Łukasz")


class OracleSession:
    """An application's connection to the shop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def change(self, statement: str, *binds: Any) -> int:
        """Carry a statement out; how many rows it changed. Raises as ``oracle_error_code`` reads it."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement, list(binds))
            return max(0, int(cursor.rowcount))

    def change_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        """The same for many rows of values."""
        with self._connection.cursor() as cursor:
            cursor.executemany(statement, [list(row) for row in rows])
            return int(cursor.rowcount)

    def commit(self) -> None:
        """End the transaction."""
        self._connection.commit()

    def rollback(self) -> None:
        """Undo uncommitted changes."""
        self._connection.rollback()


@dataclass(frozen=True, slots=True)
class OraclePlace:
    """Where the shop's database listens."""

    port: int

    @contextlib.contextmanager
    def session(self) -> Iterator[OracleSession]:
        """A writer's connection.

        Raises:
            HeadwaterError: it cannot be had.
        """
        owner = OracleDatabaseSettings(
            host=LOOPBACK, port=self.port, service_name=SERVICE, user=SCHEMA, password=Secret(OWNER_PASSWORD)
        )
        connection = connect(owner)
        try:
            yield OracleSession(connection)
        finally:
            hang_up(connection)

    def answers(self) -> bool:
        """Whether the tables' owner is let in."""
        try:
            with self.session():
                return True
        except HeadwaterError:
            return False


def in_transaction(session: OracleSession, work: Callable[[OracleSession], int]) -> int:
    """Run ``work`` and commit; once more after a deadlock. Returns the rows that it changed.

    Raises:
        ServiceUnavailable: a statement failed.
    """
    while True:
        try:
            rows = work(session)
            session.commit()
        except Exception as error:
            session.rollback()
            if oracle_error_code(error) != _DEADLOCK:
                raise ServiceUnavailable(f"the shop's database: {error}") from error
        else:
            return rows


def fill(place: OraclePlace, *, scale: float, on_table: OnTable) -> int:
    """Make the tables and fill them; returns how many rows they hold."""
    counts = {table: max(1, int(rows * scale)) for table, rows in ROWS.items()}
    total = 0
    with place.session() as session:
        for statement in CREATE_TABLES:
            session.change(statement)
        for table, count in counts.items():
            make = _MAKERS[table]
            rows = [make(number, counts) for number in range(1, count + 1)]
            statement = insert_statement(table.upper(), len(rows[0]))
            for first in range(0, count, _BATCH_ROWS):
                total += session.change_many(statement, rows[first : first + _BATCH_ROWS])
                session.commit()
            on_table(table, total)
        session.change("ALTER SYSTEM SWITCH LOGFILE")
    return total


def insert_statement(table: str, values: int) -> str:
    """Of a whole row, by bind values in the order of the columns."""
    return f"INSERT INTO SHOP.{table} VALUES ({', '.join(f':{nth}' for nth in range(1, values + 1))})"


def customer(number: int, _: Mapping[str, int]) -> tuple[Any, ...]:
    """A row of CUSTOMERS."""
    hashed = zlib.crc32(str(number).encode())
    return (
        number,
        f"customer{number}@example.org",
        f"{_NAMES[number % 7]} {number}",
        None if number % 11 == 0 else ("AT", "DE", "JP", "U")[number % 4],
        int(number % 5 != 0),
        10**20 - number if number % 100 == 0 else hashed,
        None if number % 9 == 0 else Decimal(hashed % 1_000_000) / 100 - 5_000,
        None if number % 4 == 0 else Decimal(hashed).scaleb(-(number % 12)),
        None if number % 8 == 0 else hashed % 1_000 / 8,
        None if number % 8 == 1 else hashed / 3e7,
        None if number % 13 == 0 else datetime(1930, 1, 1) + timedelta(days=number % 30_000, seconds=number % 86_400),
        None if number % 6 == 0 else hashed.to_bytes(4, "big").ljust(16, b"\0"),
        None if number % 3 == 0 else f'line one\nline "two"\t{"ß" * (number % 40)}',
        _BEGUN + timedelta(microseconds=hashed),
        None if number % 12 == 0 else _BEGUN + timedelta(seconds=number, milliseconds=250),
    )


def _product(number: int, _: Mapping[str, int]) -> tuple[Any, ...]:
    hashed = zlib.crc32(str(number).encode())
    return (
        sku(number),
        number,
        f"{_NAMES[number % 7]} item {number}",
        Decimal(hashed % 100_000) / 100,
        hashed % 5_000 - 10,
        None if number % 5 == 0 else number % 700 / 16,
        None if number % 8 == 0 else hashed.to_bytes(4, "big") * (number % 16 + 1),
        None if number % 9 == 0 else _BEGUN + timedelta(milliseconds=hashed),
    )


def _order(number: int, counts: Mapping[str, int]) -> tuple[Any, ...]:
    hashed = zlib.crc32(str(number).encode())
    return (
        number,
        TENANT_CODES[number % 4],
        1 + hashed % counts["customers"],
        f"buyer{number}@example.org",
        ("new", "paid", "sent", "returned")[number % 4],
        Decimal(hashed % 10_000_000) / 1_000,
        None if number % 10 == 0 else number % 25 / 100,
        int(number % 9 == 0),
        None if number % 4 == 0 else f"note {_NAMES[number % 7]}",
        None if number % 6 == 0 else datetime(2024, 1, 1) + timedelta(days=number % 500),
        _BEGUN + timedelta(microseconds=hashed),
        None if number % 8 == 0 else _BEGUN + timedelta(microseconds=hashed, days=1),
    )


def _order_item(number: int, counts: Mapping[str, int]) -> tuple[Any, ...]:
    hashed = zlib.crc32(str(number).encode())
    return (
        1 + (number - 1) % counts["orders"],
        1 + (number - 1) // counts["orders"],
        sku(1 + hashed % counts["products"]),
        1 + number % 9,
        Decimal(hashed % 100_000) / 100,
        None if number % 5 == 0 else number % 30 / 100,
    )


def sku(product: int) -> str:
    """The key of a product."""
    return f"SKU-{product:06d}"


_MAKERS: Final[Mapping[str, Callable[[int, Mapping[str, int]], tuple[Any, ...]]]] = {
    "customers": customer,
    "products": _product,
    "orders": _order,
    "order_items": _order_item,
}
