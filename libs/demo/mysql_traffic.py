"""Writers of the shop on MySQL servers.

In a sharded shop a write goes straight to the shards that its numbers hash to, and acts as Vitess would: a transaction
over several shards is committed on one after the other, not at once (its ``multi`` mode); a row whose number changes is deleted
on one shard and inserted on another, because Vitess refuses to update a sharding column; each shard is altered by itself.
Numbers of new rows are given here, as a Vitess sequence would.
"""

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pymysql

from libs.demo.mysql_shop import Shop, connected, make_shop
from libs.demo.shop import TENANT_CODES, OnTable, SetPiece, Write, filled_number
from libs.demo.traffic import (
    ADD_COLUMN_AT,
    LARGE_TRANSACTION_AT,
    LARGE_TRANSACTION_ROWS,
    PRIMARY_KEY_CHANGE_AT,
    RENUMBERED_CUSTOMERS,
    Traffic,
)

RETRIABLE: Final = frozenset({1205, 1213})  # lock wait timeout, deadlock: the transaction was rolled back


class Session:
    """One writer's connections to the parts of the shop, and the transaction that is open on those that it touched."""

    def __init__(self, shop: Shop, connections: Sequence["pymysql.Connection[Any]"]) -> None:
        self.shop = shop
        self._connections = connections
        self._touched: dict[int, Any] = {}

    def at(self, number: int) -> Any:
        """A cursor where the row of a number lies."""
        return self._cursor(self.shop.part_of(number))

    def everywhere(self) -> list[Any]:
        """A cursor of each part."""
        return [self._cursor(part) for part in range(len(self._connections))]

    def dealt(self, numbers: Iterable[int]) -> list[tuple[Any, list[int]]]:
        """The numbers of each part, with a cursor there."""
        by_part: dict[int, list[int]] = {}
        for number in numbers:
            by_part.setdefault(self.shop.part_of(number), []).append(number)
        return [(self._cursor(part), own) for part, own in sorted(by_part.items())]

    def commit(self) -> None:
        """On one part after the other."""
        for part in self._touched:
            self._connections[part].commit()
        self._touched.clear()

    def rollback(self) -> None:
        """Undo uncommitted changes."""
        for connection in self._connections:
            connection.rollback()
        self._touched.clear()

    def _cursor(self, part: int) -> Any:
        if part not in self._touched:
            self._connections[part].begin()
            self._touched[part] = self._connections[part].cursor()
        return self._touched[part]


@contextlib.contextmanager
def _session(shop: Shop) -> Iterator[Session]:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connected(part.port, part.database)) for part in shop.parts]
        for connection in connections:
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION time_zone = '+00:00'")
        yield Session(shop, connections)


def _in_transaction(session: Session, work: Callable[[Session], int]) -> int:
    """Run ``work`` and commit; once more when a server asks for it. Returns the rows that it changed."""
    while True:
        try:
            rows = work(session)
            session.commit()
        except pymysql.OperationalError as error:
            session.rollback()
            if error.args[0] not in RETRIABLE:
                raise
        else:
            return rows


def change_primary_keys(session: Session, traffic: Traffic) -> int:
    """Products get other SKUs, customers other numbers: to a sink, the old row goes and a new one comes."""
    first = traffic.take_numbers(RENUMBERED_CUSTOMERS)

    def work(session: Session) -> int:
        rows = 0
        for cursor in session.everywhere():
            rows += cursor.execute(
                "UPDATE products SET sku = CONCAT(sku, '-R'), title = CONCAT('Renamed ', title) ORDER BY sku LIMIT 5"
            )
        return rows + sum(_renumber_customer(session, 1 + nth, first + nth) for nth in range(RENUMBERED_CUSTOMERS))

    return _in_transaction(session, work)


def _renumber_customer(session: Session, old: int, new: int) -> int:
    if not session.shop.is_sharded:
        return int(session.at(old).execute("UPDATE customers SET id = %s WHERE id = %s", (new, old)))
    rows = int(session.at(old).execute("DELETE FROM customers WHERE id = %s", (old,)))
    return rows + _insert_customer(session, new)


def write_large(session: Session, traffic: Traffic) -> int:
    """One transaction of at least 10,000 rows: inserted, updated and deleted."""
    share = LARGE_TRANSACTION_ROWS // 4
    first = traffic.take_numbers(2 * share)

    def work(session: Session) -> int:
        rows = 0
        for cursor, numbers in session.dealt(range(first, first + 2 * share)):
            rows += cursor.executemany(
                "INSERT INTO orders (id, tenant_code, customer_id, email, status, total, tax_rate, is_gift, note, placed_at) "
                "VALUES (%s, %s, %s, %s, 'new', %s, 0.2, %s, %s, UTC_TIMESTAMP(6))",
                [_bulk_order(number, number - first) for number in numbers],
            )
        everywhere = session.everywhere()
        for cursor in everywhere:
            rows += cursor.execute(
                "UPDATE orders SET status = 'paid', total = total * 1.1 WHERE id BETWEEN %s AND %s",
                (first + share, first + 2 * share - 1),
            )
            rows += cursor.execute("DELETE FROM orders WHERE id BETWEEN %s AND %s", (first, first + share // 5 - 1))
        left = max(0, LARGE_TRANSACTION_ROWS - rows)
        for cursor in everywhere:
            rows += cursor.execute(
                "UPDATE customers SET loyalty_points = loyalty_points - 1, updated_at = UTC_TIMESTAMP(3) "
                "WHERE loyalty_points > 0 LIMIT %s",
                (-(-left // len(everywhere)),),
            )
        return rows

    return _in_transaction(session, work)


def _bulk_order(number: int, n: int) -> tuple[Any, ...]:
    tenant_code = TENANT_CODES[n % len(TENANT_CODES)]
    return number, tenant_code, n, f"bulk{n}@example.org", n / 8, n % 2, f"bulk 😀 {n}"


def add_column(session: Session, traffic: Traffic) -> int:
    """``orders`` gets a column, on one part after the other, while the writers go on; then it is written to."""
    for cursor in session.everywhere():
        cursor.execute("ALTER TABLE orders ADD COLUMN channel VARCHAR(20)")
    session.commit()
    rows = _in_transaction(
        session,
        lambda session: sum(
            cursor.execute("UPDATE orders SET channel = 'télé' WHERE is_gift ORDER BY id DESC LIMIT 200")
            for cursor in session.everywhere()
        ),
    )
    traffic.has_channel.set()
    return rows


def _place_order(session: Session, chance: random.Random, traffic: Traffic, scale: float) -> int:
    columns = "id, tenant_code, customer_id, email, status, total, tax_rate, is_gift, note, details, due_on, placed_at"
    number = filled_number(chance, "customers", scale)
    order_id = traffic.take_numbers()
    values: list[Any] = [
        order_id,
        chance.choice(TENANT_CODES),
        number,
        f"buyer{number}@example.org",
        "new",
        chance.randrange(10**8) / 10**4,
        chance.choice((None, 0.1, 0.2)),
        chance.random() < 0.1,
        chance.choice((None, "plain", 'tab\tquote" \\ ünï 😀')),
        chance.choice((None, '{"a": [1, 2.5, null, "ß"], "n": {"deep": true}}')),
        chance.choice((None, "2030-02-28")),
    ]
    channel = ", channel" if traffic.has_channel.is_set() else ""
    placeholders = ", ".join(["%s"] * len(values)) + ", UTC_TIMESTAMP(6)" + (", 'app'" if channel else "")
    cursor = session.at(order_id)
    cursor.execute(f"INSERT INTO orders ({columns}{channel}) VALUES ({placeholders})", values)
    items = chance.randrange(1, 4)
    cursor.executemany(
        "INSERT INTO order_items (order_id, line_no, sku, quantity, unit_price, discount, options) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s)",
        [
            (
                order_id,
                line_no,
                _sku(filled_number(chance, "products", scale)),
                chance.randrange(1, 10),
                chance.randrange(10**6) / 100,
                chance.choice((None, 0.05)),
                chance.choice((None, "", "wrapped", "wrapped,express")),
            )
            for line_no in range(1, items + 1)
        ],
    )
    product = filled_number(chance, "products", scale)
    session.at(product).execute("UPDATE products SET stock = stock - 1 WHERE sku = %s", (_sku(product),))
    return items + 2


def _change_order(session: Session, chance: random.Random, traffic: Traffic, scale: float) -> int:
    first = filled_number(chance, "orders", scale)
    values = (4 * chance.random(), chance.randrange(1000) / 100, first, first + chance.randrange(5))
    return sum(
        cursor.execute(
            "UPDATE orders SET status = ELT(1 + FLOOR(%s), 'new', 'paid', 'sent', 'returned'), total = total + %s, "
            "changed_at = UTC_TIMESTAMP(6) WHERE id BETWEEN %s AND %s",
            values,
        )
        for cursor in session.everywhere()
    )


def _move_order(session: Session, chance: random.Random, traffic: Traffic, scale: float) -> int:
    """The order changes its owner: it leaves one tenant's filter and enters another's."""
    first = filled_number(chance, "orders", scale)
    return int(
        session.at(first).execute(
            "UPDATE orders SET tenant_code = %s, email = CONCAT('moved-', LEFT(email, 100)) WHERE id = %s",
            (chance.choice(TENANT_CODES), first),
        )
    )


def _delete_order(session: Session, chance: random.Random, traffic: Traffic, scale: float) -> int:
    order_id = filled_number(chance, "orders", scale)
    cursor = session.at(order_id)
    rows = cursor.execute("DELETE FROM order_items WHERE order_id = %s", (order_id,))
    return int(rows + cursor.execute("DELETE FROM orders WHERE id = %s", (order_id,)))


def _change_customer(session: Session, chance: random.Random, traffic: Traffic, scale: float) -> int:
    number = filled_number(chance, "customers", scale)
    return int(
        session.at(number).execute(
            "UPDATE customers SET rating = %s, notes = %s, interests = %s, fingerprint = %s, opens_at = %s, "
            "settings = JSON_SET(COALESCE(settings, JSON_OBJECT()), '$.seen', %s), updated_at = UTC_TIMESTAMP(3) "
            "WHERE id = %s",
            (
                chance.choice((None, 0.1, 1e-7, 12345.678)),
                chance.choice((None, "", "x" * 300, "Ⅻ 李 😀")),
                chance.choice((None, "", "books,music")),
                bytes([chance.randrange(256), 0]) + bytes(chance.randrange(14)),
                chance.choice((None, "-12:34:56.789", "800:00:00")),
                chance.randrange(10**6),
                number,
            ),
        )
    )


def _delete_and_return_customer(session: Session, chance: random.Random, traffic: Traffic, scale: float) -> int:
    """A row goes and comes back under the same key, in one transaction."""
    number = filled_number(chance, "customers", scale)
    rows = int(session.at(number).execute("DELETE FROM customers WHERE id = %s", (number,)))
    return rows + _insert_customer(session, number)


def _insert_customer(session: Session, number: int) -> int:
    return int(
        session.at(number).execute(
            "INSERT INTO customers (id, email, full_name, loyalty_points, fingerprint, created_at) "
            "VALUES (%s, %s, 'Back Again', 18446744073709551615, '', UTC_TIMESTAMP(6))",
            (number, f"back{number}@example.org"),
        )
    )


def _sku(product: int) -> str:
    return f"SKU-{product:06d}"


_WRITES: Final[Sequence[tuple[Write, int]]] = (
    (_place_order, 40),
    (_change_order, 25),
    (_move_order, 5),
    (_delete_order, 8),
    (_change_customer, 18),
    (_delete_and_return_customer, 4),
)


class MysqlShop:
    """See ``libs.demo.shop.DemoShop``."""

    writes = _WRITES
    set_pieces: Mapping[float, SetPiece] = {
        PRIMARY_KEY_CHANGE_AT: change_primary_keys,
        LARGE_TRANSACTION_AT: write_large,
        ADD_COLUMN_AT: add_column,
    }

    def __init__(self, shop: Shop) -> None:
        self.shop = shop

    def answers(self) -> bool:
        """Whether every server lets its administrator in."""
        try:
            for part in self.shop.parts:
                with connected(part.port, None):
                    pass
        except pymysql.Error:
            return False
        return True

    def fill(self, *, scale: float, on_table: OnTable) -> int:
        """See ``make_shop``."""
        return make_shop(self.shop, scale=scale, on_table=on_table)

    def session(self) -> contextlib.AbstractContextManager[Session]:
        """Connections to every part."""
        return _session(self.shop)

    def in_transaction(self, session: Session, work: Callable[[Session], int]) -> int:
        """See ``DemoShop.in_transaction``. Raises pymysql.Error: a statement failed."""
        return _in_transaction(session, work)
