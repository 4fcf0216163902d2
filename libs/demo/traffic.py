"""The demo's live traffic: several writers for some seconds, and the events that a capture must survive.

Every writer has connections and a seeded random sequence of its own. Beside them one thread runs the set pieces at
their times: changes of primary keys, a transaction of 10,000 rows, an ``ALTER TABLE … ADD COLUMN`` while the writers
go on. Orders also move from one tenant to another, so that a row filter has to let rows in and out.

In a sharded shop a write goes straight to the shards that its numbers hash to, and acts as Vitess would: a transaction
over several shards is committed on one after the other, not at once (its ``multi`` mode); a row whose number changes is deleted
on one shard and inserted on another, because Vitess refuses to update a sharding column; each shard is altered by itself.
Numbers of new rows are given here, as a Vitess sequence would.
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pymysql

from libs.demo.shop import ROWS, TENANT_CODES, Shop, connected

WRITERS: Final = 3
PAUSE_S: Final = 0.01
"""Between two transactions of a writer: some 150 to 250 transactions a second in all."""
LARGE_TRANSACTION_ROWS: Final = 10_000
RENUMBERED_CUSTOMERS: Final = 5
FIRST_NEW_NUMBER: Final = 1_000_001
"""Beyond all that the shop was filled with."""
RETRIABLE: Final = frozenset({1205, 1213})  # lock wait timeout, deadlock: the transaction was rolled back

PRIMARY_KEY_CHANGE_AT: Final = 0.25
LARGE_TRANSACTION_AT: Final = 0.45
ADD_COLUMN_AT: Final = 0.65
"""When the set pieces are played, as parts of the traffic's duration."""


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


@dataclass(slots=True)
class Traffic:
    """The rows written so far, by all writers together."""

    rows: int = 0
    transactions: int = 0
    set_pieces: list[str] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    has_channel: threading.Event = field(default_factory=threading.Event)
    next_number: int = FIRST_NEW_NUMBER
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take_numbers(self, count: int = 1) -> int:
        """The first of ``count`` numbers that nobody else is given."""
        with self.lock:
            first, self.next_number = self.next_number, self.next_number + count
        return first

    def add(self, rows: int) -> None:
        """Count one committed transaction."""
        with self.lock:
            self.rows += rows
            self.transactions += 1


def run_traffic(
    shop: Shop,
    *,
    duration_s: float,
    seed: int,
    stop: threading.Event,
    on_progress: Callable[[float, Traffic], None] = lambda *_: None,
    at: Mapping[float, Callable[[], None]] | None = None,
    scale: float = 1.0,
) -> Traffic:
    """Write for ``duration_s``; returns when every writer has ended.

    ``at`` maps parts of the duration to the caller's acts at that time (the demo's kills), in its own thread.
    ``scale`` is that of ``make_shop``.

    Raises:
        pymysql.Error: a statement failed; the first failure of any writer.
    """
    traffic = Traffic()
    ends_s = time.monotonic() + duration_s
    writers = [
        threading.Thread(
            target=_guarded, args=(traffic, _write_until, shop, ends_s, seed + number, traffic, stop, scale)
        )
        for number in range(WRITERS)
    ]
    started_s = time.monotonic()
    pieces = {PRIMARY_KEY_CHANGE_AT: change_primary_keys, LARGE_TRANSACTION_AT: write_large, ADD_COLUMN_AT: add_column}
    director = threading.Thread(
        target=_guarded, args=(traffic, _play, shop, started_s, duration_s, pieces, traffic, stop)
    )
    threads = [*writers, director]
    for thread in threads:
        thread.start()
    waiting = sorted((at or {}).items())
    try:
        while any(thread.is_alive() for thread in threads):
            part = (time.monotonic() - started_s) / duration_s
            if waiting and part >= waiting[0][0] and not traffic.failures:
                waiting.pop(0)[1]()
            on_progress(min(part, 1.0), traffic)
            if traffic.failures:
                stop.set()
            time.sleep(0.1)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if traffic.failures:
        raise traffic.failures[0]
    return traffic


def _guarded(traffic: Traffic, work: Callable[..., None], *arguments: Any) -> None:
    try:
        work(*arguments)
    except Exception as error:
        traffic.failures.append(error)


def _write_until(shop: Shop, ends_s: float, seed: int, traffic: Traffic, stop: threading.Event, scale: float) -> None:
    chance = random.Random(seed)  # noqa: S311 - test data
    with _session(shop) as session:
        while time.monotonic() < ends_s and not stop.is_set():
            write = chance.choices(_WRITES, weights=_WEIGHTS)[0]
            rows = _in_transaction(session, lambda s, write=write: write(s, chance, traffic, scale))  # type: ignore[misc]
            traffic.add(rows)
            stop.wait(PAUSE_S * 2 * chance.random())


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


def _play(
    shop: Shop,
    started_s: float,
    duration_s: float,
    pieces: Mapping[float, Callable[[Session, Traffic], int]],
    traffic: Traffic,
    stop: threading.Event,
) -> None:
    with _session(shop) as session:
        for part, piece in sorted(pieces.items()):
            if stop.wait(max(0.0, started_s + part * duration_s - time.monotonic())):
                return
            rows = piece(session, traffic)
            traffic.add(rows)
            traffic.set_pieces.append(piece.__name__)


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
    number = chance.randrange(1, max(2, int(ROWS["customers"] * scale)))
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
                _sku(_product(chance, scale)),
                chance.randrange(1, 10),
                chance.randrange(10**6) / 100,
                chance.choice((None, 0.05)),
                chance.choice((None, "", "wrapped", "wrapped,express")),
            )
            for line_no in range(1, items + 1)
        ],
    )
    product = _product(chance, scale)
    session.at(product).execute("UPDATE products SET stock = stock - 1 WHERE sku = %s", (_sku(product),))
    return items + 2


def _change_order(session: Session, chance: random.Random, traffic: Traffic, scale: float) -> int:
    first = chance.randrange(1, max(2, int(ROWS["orders"] * scale)))
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
    first = chance.randrange(1, max(2, int(ROWS["orders"] * scale)))
    return int(
        session.at(first).execute(
            "UPDATE orders SET tenant_code = %s, email = CONCAT('moved-', LEFT(email, 100)) WHERE id = %s",
            (chance.choice(TENANT_CODES), first),
        )
    )


def _delete_order(session: Session, chance: random.Random, traffic: Traffic, scale: float) -> int:
    order_id = chance.randrange(1, max(2, int(ROWS["orders"] * scale)))
    cursor = session.at(order_id)
    rows = cursor.execute("DELETE FROM order_items WHERE order_id = %s", (order_id,))
    return int(rows + cursor.execute("DELETE FROM orders WHERE id = %s", (order_id,)))


def _change_customer(session: Session, chance: random.Random, traffic: Traffic, scale: float) -> int:
    number = chance.randrange(1, max(2, int(ROWS["customers"] * scale)))
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
    number = chance.randrange(1, max(2, int(ROWS["customers"] * scale)))
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


def _product(chance: random.Random, scale: float) -> int:
    return chance.randrange(1, max(2, int(ROWS["products"] * scale)))


def _sku(product: int) -> str:
    return f"SKU-{product:06d}"


_Write = Callable[[Session, random.Random, Traffic, float], int]
_WRITES: Final[Sequence[_Write]] = (
    _place_order,
    _change_order,
    _move_order,
    _delete_order,
    _change_customer,
    _delete_and_return_customer,
)
_WEIGHTS: Final = (40, 25, 5, 8, 18, 4)
