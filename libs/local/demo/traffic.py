"""The demo's live traffic: several writers for some seconds, and the events that a capture must survive.

Every writer has a connection and a seeded random sequence of its own. Beside them one thread runs the set pieces at
their times: a primary-key change, a transaction of 10,000 rows, an ``ALTER TABLE … ADD COLUMN`` while the writers
go on. Orders also move from one tenant to another, so that a row filter has to let rows in and out.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pymysql

from libs.local.demo.shop import ROWS, TENANT_CODES, connected

WRITERS: Final = 3
PAUSE_S: Final = 0.01
"""Between two transactions of a writer: some 150 to 250 transactions a second in all."""
LARGE_TRANSACTION_ROWS: Final = 10_000
RETRIABLE: Final = frozenset({1205, 1213})  # lock wait timeout, deadlock: the transaction was rolled back

PRIMARY_KEY_CHANGE_AT: Final = 0.25
LARGE_TRANSACTION_AT: Final = 0.45
ADD_COLUMN_AT: Final = 0.65
"""When the set pieces are played, as parts of the traffic's duration."""

Connection = pymysql.Connection


@dataclass(slots=True)
class Traffic:
    """What was written so far; counts of rows, from every writer together."""

    rows: int = 0
    transactions: int = 0
    set_pieces: list[str] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    has_channel: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, rows: int) -> None:
        """Count one committed transaction."""
        with self.lock:
            self.rows += rows
            self.transactions += 1


def run_traffic(
    port: int,
    *,
    duration_s: float,
    seed: int,
    stop: threading.Event,
    on_progress: Callable[[float, Traffic], None] = lambda *_: None,
    at: Mapping[float, Callable[[], None]] | None = None,
    scale: float = 1.0,
) -> Traffic:
    """Write for ``duration_s``; returns when every writer has ended.

    ``at`` maps parts of the duration to what the caller wants done then (the demo's kills), in its own thread.
    ``scale`` is that of ``make_shop``.

    Raises:
        pymysql.Error: a statement failed; the first failure of any writer.
    """
    traffic = Traffic()
    ends_s = time.monotonic() + duration_s
    writers = [
        threading.Thread(
            target=_guarded, args=(traffic, _write_until, port, ends_s, seed + number, traffic, stop, scale)
        )
        for number in range(WRITERS)
    ]
    started_s = time.monotonic()
    pieces = {PRIMARY_KEY_CHANGE_AT: change_primary_keys, LARGE_TRANSACTION_AT: write_large, ADD_COLUMN_AT: add_column}
    director = threading.Thread(
        target=_guarded, args=(traffic, _play, port, started_s, duration_s, pieces, traffic, stop)
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


def _write_until(port: int, ends_s: float, seed: int, traffic: Traffic, stop: threading.Event, scale: float) -> None:
    chance = random.Random(seed)  # noqa: S311 - test data
    with connected(port) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION time_zone = '+00:00'")
        while time.monotonic() < ends_s and not stop.is_set():
            write = chance.choices(_WRITES, weights=_WEIGHTS)[0]
            rows = _in_transaction(connection, lambda c, write=write: write(c, chance, traffic, scale))  # type: ignore[misc]
            traffic.add(rows)
            stop.wait(PAUSE_S * 2 * chance.random())


def _in_transaction(connection: Connection, work: Callable[[Any], int]) -> int:
    """Run ``work`` and commit; once more when the server asks for it. Returns the rows that it changed."""
    while True:
        try:
            connection.begin()
            with connection.cursor() as cursor:
                rows = work(cursor)
            connection.commit()
        except pymysql.OperationalError as error:
            connection.rollback()
            if error.args[0] not in RETRIABLE:
                raise
        else:
            return rows


def _play(
    port: int,
    started_s: float,
    duration_s: float,
    pieces: Mapping[float, Callable[[Connection, Traffic], int]],
    traffic: Traffic,
    stop: threading.Event,
) -> None:
    with connected(port) as connection:
        for part, piece in sorted(pieces.items()):
            if stop.wait(max(0.0, started_s + part * duration_s - time.monotonic())):
                return
            rows = piece(connection, traffic)
            traffic.add(rows)
            traffic.set_pieces.append(piece.__name__)


def change_primary_keys(connection: Connection, _: Traffic) -> int:
    """Products get other SKUs: to a sink, the old row goes and a new one comes."""
    return _in_transaction(
        connection,
        lambda cursor: cursor.execute(
            "UPDATE products SET sku = CONCAT(sku, '-R'), title = CONCAT('Renamed ', title) ORDER BY sku LIMIT 5"
        ),
    )


def write_large(connection: Connection, _: Traffic) -> int:
    """One transaction of at least 10,000 rows: inserted, updated and deleted."""

    def work(cursor: Any) -> int:
        share = LARGE_TRANSACTION_ROWS // 4
        cursor.execute("SET SESSION cte_max_recursion_depth = 100000")
        rows = int(
            cursor.execute(
                "INSERT INTO orders (tenant_code, customer_id, email, status, total, tax_rate, is_gift, note, placed_at) "
                "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < %s) "
                "SELECT ELT(1 + n %% 4, 'acme', 'globex', 'initech', 'umbrella'), n, CONCAT('bulk', n, '@example.org'), "
                "'new', n / 8, 0.2, n %% 2, CONCAT('bulk 😀 ', n), UTC_TIMESTAMP(6) FROM numbers",
                (2 * share,),
            )
        )
        first = cursor.lastrowid
        rows += cursor.execute(
            "UPDATE orders SET status = 'paid', total = total * 1.1 WHERE id >= %s", (first + share,)
        )
        rows += cursor.execute("DELETE FROM orders WHERE id >= %s ORDER BY id LIMIT %s", (first, share // 5))
        rows += cursor.execute(
            "UPDATE customers SET loyalty_points = loyalty_points - 1, updated_at = UTC_TIMESTAMP(3) "
            "WHERE loyalty_points > 0 LIMIT %s",
            (max(0, LARGE_TRANSACTION_ROWS - rows),),
        )
        return int(rows)

    return _in_transaction(connection, work)


def add_column(connection: Connection, traffic: Traffic) -> int:
    """``orders`` gets a column while the other writers go on; then it is written to."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE orders ADD COLUMN channel VARCHAR(20)")
    rows = _in_transaction(
        connection,
        lambda cursor: cursor.execute("UPDATE orders SET channel = 'télé' WHERE is_gift ORDER BY id DESC LIMIT 200"),
    )
    traffic.has_channel.set()
    return rows


def _place_order(cursor: Any, chance: random.Random, traffic: Traffic, scale: float) -> int:
    columns = "tenant_code, customer_id, email, status, total, tax_rate, is_gift, note, details, due_on, placed_at"
    number = chance.randrange(1, max(2, int(ROWS["customers"] * scale)))
    values: list[Any] = [
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
    cursor.execute(f"INSERT INTO orders ({columns}{channel}) VALUES ({placeholders})", values)
    order_id = cursor.lastrowid
    items = chance.randrange(1, 4)
    cursor.executemany(
        "INSERT INTO order_items (order_id, line_no, sku, quantity, unit_price, discount, options) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s)",
        [
            (
                order_id,
                line_no,
                _sku(chance, scale),
                chance.randrange(1, 10),
                chance.randrange(10**6) / 100,
                chance.choice((None, 0.05)),
                chance.choice((None, "", "wrapped", "wrapped,express")),
            )
            for line_no in range(1, items + 1)
        ],
    )
    cursor.execute("UPDATE products SET stock = stock - 1 WHERE sku = %s", (_sku(chance, scale),))
    return items + 2


def _change_order(cursor: Any, chance: random.Random, traffic: Traffic, scale: float) -> int:
    first = chance.randrange(1, max(2, int(ROWS["orders"] * scale)))
    return int(
        cursor.execute(
            "UPDATE orders SET status = ELT(1 + FLOOR(%s), 'new', 'paid', 'sent', 'returned'), total = total + %s, "
            "changed_at = UTC_TIMESTAMP(6) WHERE id BETWEEN %s AND %s",
            (4 * chance.random(), chance.randrange(1000) / 100, first, first + chance.randrange(5)),
        )
    )


def _move_order(cursor: Any, chance: random.Random, traffic: Traffic, scale: float) -> int:
    """The order changes its owner: it leaves one tenant's filter and enters another's."""
    first = chance.randrange(1, max(2, int(ROWS["orders"] * scale)))
    return int(
        cursor.execute(
            "UPDATE orders SET tenant_code = %s, email = CONCAT('moved-', LEFT(email, 100)) WHERE id = %s",
            (chance.choice(TENANT_CODES), first),
        )
    )


def _delete_order(cursor: Any, chance: random.Random, traffic: Traffic, scale: float) -> int:
    order_id = chance.randrange(1, max(2, int(ROWS["orders"] * scale)))
    rows = cursor.execute("DELETE FROM order_items WHERE order_id = %s", (order_id,))
    return int(rows + cursor.execute("DELETE FROM orders WHERE id = %s", (order_id,)))


def _change_customer(cursor: Any, chance: random.Random, traffic: Traffic, scale: float) -> int:
    return int(
        cursor.execute(
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
                chance.randrange(1, max(2, int(ROWS["customers"] * scale))),
            ),
        )
    )


def _delete_and_return_customer(cursor: Any, chance: random.Random, traffic: Traffic, scale: float) -> int:
    """A row goes and comes back under the same key, in one transaction."""
    number = chance.randrange(1, max(2, int(ROWS["customers"] * scale)))
    rows = int(cursor.execute("DELETE FROM customers WHERE id = %s", (number,)))
    rows += int(
        cursor.execute(
            "INSERT INTO customers (id, email, full_name, loyalty_points, fingerprint, created_at) "
            "VALUES (%s, %s, 'Back Again', 18446744073709551615, '', UTC_TIMESTAMP(6))",
            (number, f"back{number}@example.org"),
        )
    )
    return rows


def _sku(chance: random.Random, scale: float) -> str:
    return f"SKU-{chance.randrange(1, max(2, int(ROWS['products'] * scale))):06d}"


_Write = Callable[[Any, random.Random, Traffic, float], int]
_WRITES: Final[Sequence[_Write]] = (
    _place_order,
    _change_order,
    _move_order,
    _delete_order,
    _change_customer,
    _delete_and_return_customer,
)
_WEIGHTS: Final = (40, 25, 5, 8, 18, 4)
