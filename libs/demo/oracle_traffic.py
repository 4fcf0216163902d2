"""Writers of the shop on Oracle: the transactions of the other kinds, with savepoints that are rolled back to."""

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from libs.demo.oracle_shop import OraclePlace, OracleSession, customer, fill, in_transaction, insert_statement, sku
from libs.demo.shop import TENANT_CODES, OnTable, SetPiece, Write, filled_number
from libs.demo.traffic import (
    ADD_COLUMN_AT,
    LARGE_TRANSACTION_AT,
    LARGE_TRANSACTION_ROWS,
    PRIMARY_KEY_CHANGE_AT,
    RENUMBERED_CUSTOMERS,
    Traffic,
)

_ORDER: Final = (
    "INSERT INTO SHOP.ORDERS (ID, TENANT_CODE, CUSTOMER_ID, EMAIL, STATUS, TOTAL, TAX_RATE, IS_GIFT, NOTE, DUE_ON, PLACED_AT) "
    "VALUES (:1, :2, :3, :4, 'new', :5, :6, :7, :8, :9, :10)"
)


def change_primary_keys(session: OracleSession, traffic: Traffic) -> int:
    """Products get other SKUs, customers other numbers: to a sink, the old row goes and a new one comes."""
    first = traffic.take_numbers(RENUMBERED_CUSTOMERS)

    def work(session: OracleSession) -> int:
        rows = session.change(
            "UPDATE SHOP.PRODUCTS SET SKU = SKU || '-R', TITLE = 'Renamed ' || TITLE WHERE PRODUCT_NO <= 5"
        )
        for nth in range(RENUMBERED_CUSTOMERS):
            rows += session.change("UPDATE SHOP.CUSTOMERS SET ID = :1 WHERE ID = :2", first + nth, 1 + nth)
        return rows

    return in_transaction(session, work)


def write_large(session: OracleSession, traffic: Traffic) -> int:
    """One transaction of at least 10,000 rows: inserted, updated and deleted."""
    share = LARGE_TRANSACTION_ROWS // 4
    first = traffic.take_numbers(2 * share)

    def work(session: OracleSession) -> int:
        now = _now()
        rows = session.change_many(_ORDER, [_bulk_order(first + n, n, now) for n in range(2 * share)])
        rows += session.change(
            "UPDATE SHOP.ORDERS SET STATUS = 'paid', TOTAL = TOTAL * 2 WHERE ID BETWEEN :1 AND :2",
            first + share,
            first + 2 * share - 1,
        )
        rows += session.change("DELETE FROM SHOP.ORDERS WHERE ID BETWEEN :1 AND :2", first, first + share // 5 - 1)
        while (left := LARGE_TRANSACTION_ROWS - rows) > 0:
            rows += session.change(
                "UPDATE SHOP.ORDERS SET TOTAL = TOTAL + 1 WHERE ID BETWEEN :1 AND :2",
                first + share,
                first + share + min(left, share) - 1,
            )
        return rows

    return in_transaction(session, work)


def _bulk_order(number: int, n: int, now: datetime) -> tuple[Any, ...]:
    tenant_code = TENANT_CODES[n % len(TENANT_CODES)]
    return number, tenant_code, n, f"bulk{n}@example.org", Decimal(n) / 8, 0.2, n % 2, f"bulk 😀 {n}", None, now


def add_column(session: OracleSession, traffic: Traffic) -> int:
    """``ORDERS`` gets a column while the writers go on; then it is written to."""
    session.change("ALTER TABLE SHOP.ORDERS ADD (CHANNEL VARCHAR2(20))")
    rows = in_transaction(
        session,
        lambda session: session.change("UPDATE SHOP.ORDERS SET CHANNEL = 'télé' WHERE IS_GIFT = 1 AND ID <= 2000"),
    )
    traffic.has_channel.set()
    return rows


def _place_order(session: OracleSession, chance: random.Random, traffic: Traffic, scale: float) -> int:
    order_id, number = traffic.take_numbers(), filled_number(chance, "customers", scale)
    session.change(
        _ORDER,
        order_id,
        chance.choice(TENANT_CODES),
        number,
        f"buyer{number}@example.org",
        Decimal(chance.randrange(10**8)) / 10**4,
        chance.choice((None, 0.1, 0.2)),
        int(chance.random() < 0.1),
        chance.choice((None, "plain", "tab\tquote\" ' \\ ünï 😀")),
        chance.choice((None, datetime(2030, 2, 28))),
        _now(),
    )
    if traffic.has_channel.is_set():
        session.change("UPDATE SHOP.ORDERS SET CHANNEL = 'app' WHERE ID = :1", order_id)
    items = chance.randrange(1, 4)
    session.change_many(
        "INSERT INTO SHOP.ORDER_ITEMS VALUES (:1, :2, :3, :4, :5, :6)",
        [
            (
                order_id,
                line_no,
                sku(filled_number(chance, "products", scale)),
                chance.randrange(1, 10),
                Decimal(chance.randrange(10**6)) / 100,
                chance.choice((None, 0.05)),
            )
            for line_no in range(1, items + 1)
        ],
    )
    if chance.random() < 0.3:
        _change_and_take_back(session, order_id)
    product = sku(filled_number(chance, "products", scale))
    return 1 + items + session.change("UPDATE SHOP.PRODUCTS SET STOCK = STOCK - 1 WHERE SKU = :1", product)


def _change_and_take_back(session: OracleSession, order_id: int) -> None:
    """Rows that the log has and that never were: they are rolled back to a savepoint."""
    session.change("SAVEPOINT BEFORE_MISTAKE")
    session.change("UPDATE SHOP.ORDERS SET STATUS = 'sent', TOTAL = 0 WHERE ID = :1", order_id)
    session.change("DELETE FROM SHOP.ORDER_ITEMS WHERE ORDER_ID = :1 AND LINE_NO = 1", order_id)
    session.change("ROLLBACK TO SAVEPOINT BEFORE_MISTAKE")


def _change_order(session: OracleSession, chance: random.Random, traffic: Traffic, scale: float) -> int:
    return session.change(
        "UPDATE SHOP.ORDERS SET STATUS = :1, TOTAL = TOTAL + :2, CHANGED_AT = :3 WHERE ID = :4",
        chance.choice(("new", "paid", "sent", "returned")),
        Decimal(chance.randrange(1_000)) / 100,
        _now(),
        filled_number(chance, "orders", scale),
    )


def _move_order(session: OracleSession, chance: random.Random, traffic: Traffic, scale: float) -> int:
    """The order changes its owner: it leaves one tenant's filter and enters another's."""
    return session.change(
        "UPDATE SHOP.ORDERS SET TENANT_CODE = :1, EMAIL = SUBSTR('moved-' || EMAIL, 1, 110) WHERE ID = :2",
        chance.choice(TENANT_CODES),
        filled_number(chance, "orders", scale),
    )


def _delete_order(session: OracleSession, chance: random.Random, traffic: Traffic, scale: float) -> int:
    order_id = filled_number(chance, "orders", scale)
    rows = sum(
        session.change("DELETE FROM SHOP.ORDER_ITEMS WHERE ORDER_ID = :1 AND LINE_NO = :2", order_id, line_no)
        for line_no in (1, 2, 3)
    )
    return rows + session.change("DELETE FROM SHOP.ORDERS WHERE ID = :1", order_id)


def _change_customer(session: OracleSession, chance: random.Random, traffic: Traffic, scale: float) -> int:
    return session.change(
        "UPDATE SHOP.CUSTOMERS SET RATING = :1, NOTES = :2, SHARE_OF = :3, FINGERPRINT = :4, UPDATED_AT = :5 WHERE ID = :6",
        chance.choice((None, 0.5, 12345.25)),
        chance.choice((None, "x" * 300, "Ⅻ 李 😀")),
        chance.choice((None, Decimal("0.1"), Decimal("1E-20"), Decimal(10) ** 30)),
        bytes([chance.randrange(256), 0]) + bytes(chance.randrange(14)),
        _now().replace(microsecond=125_000),
        filled_number(chance, "customers", scale),
    )


def _delete_and_return_customer(session: OracleSession, chance: random.Random, traffic: Traffic, scale: float) -> int:
    """A row goes and comes back under the same key, in one transaction."""
    number = filled_number(chance, "customers", scale)
    rows = session.change("DELETE FROM SHOP.CUSTOMERS WHERE ID = :1", number)
    returned = customer(number + 7, {})
    return rows + session.change(insert_statement("CUSTOMERS", len(returned)), number, *returned[1:])


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


class OracleShop:
    """See ``libs.demo.shop.DemoShop``."""

    writes: Sequence[tuple[Write, int]] = (
        (_place_order, 40),
        (_change_order, 25),
        (_move_order, 5),
        (_delete_order, 8),
        (_change_customer, 18),
        (_delete_and_return_customer, 4),
    )
    set_pieces: Mapping[float, SetPiece] = {
        PRIMARY_KEY_CHANGE_AT: change_primary_keys,
        LARGE_TRANSACTION_AT: write_large,
        ADD_COLUMN_AT: add_column,
    }

    def __init__(self, place: OraclePlace) -> None:
        self.port = place.port
        self._place = place

    def answers(self) -> bool:
        """See ``OraclePlace.answers``."""
        return self._place.answers()

    def fill(self, *, scale: float, on_table: OnTable) -> int:
        """See ``libs.demo.oracle_shop.fill``."""
        return fill(self._place, scale=scale, on_table=on_table)

    def session(self) -> contextlib.AbstractContextManager[OracleSession]:
        """See ``OraclePlace.session``."""
        return self._place.session()

    def in_transaction(self, session: OracleSession, work: Callable[[OracleSession], int]) -> int:
        """See ``libs.demo.oracle_shop.in_transaction``."""
        return in_transaction(session, work)
