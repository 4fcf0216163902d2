"""Row filters against MySQL's own evaluation: many tenants on one table, each with a condition of its own."""

import base64
import json
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import msgspec

from libs.mysql.ddl import show_create_to_schema
from libs.types.table import TableId
from libs.types.tenant import RowFilter, SourceSelection, TenantSpec
from services.router.routes.book import RouteBook
from services.router.routes.topic_claims import TopicClaims
from tests.conftest import MysqlServer
from tests.unit.router.batches import read_back
from tests.unit.router.test_deliver import add_run, builder, deliver, taken

SEED: Final = 20251128
TENANTS: Final = 400
ROWS: Final = 60
CODES: Final = ("a", "b", "B", "", "é", "a ", "zz")
NUMBERS: Final = (-2, -1, 0, 1, 2, 7)
COMPARED: Final = (">=", ">", "<=", "<")
PRICES: Final = ("-1.50", "0.00", "1.00", "2.50", "7.00")


def literal_of(rng: random.Random, column: str) -> str:
    return {
        "code": lambda: "'" + rng.choice(CODES) + "'",
        "n": lambda: rng.choice((str(rng.choice(NUMBERS)), f"{rng.choice(NUMBERS)}.0", f"{rng.choice(NUMBERS)}e0")),
        "price": lambda: rng.choice(PRICES),
        "ratio": lambda: rng.choice((str(rng.choice(NUMBERS)), "0.5", "5e-1")),
    }[column]()


def condition(rng: random.Random, depth: int = 2) -> str:
    """Of comparisons, lists, NULLs, and the words that join them; a column on either side, and in another case."""
    if depth and rng.random() < 0.5:
        left, right = condition(rng, depth - 1), condition(rng, depth - 1)
        return rng.choice((f"({left}) AND ({right})", f"{left} AND {right}", f"({left}) OR ({right})", f"NOT ({left})"))
    column = rng.choice(("code", "n", "price", "ratio"))
    name, literal = rng.choice((column, column.upper(), f"`{column}`")), literal_of(rng, column)
    some = ", ".join(literal_of(rng, column) for _ in range(rng.randrange(1, 4)))
    return rng.choice(
        (
            f"{name} = {literal}",
            f"{name} = {literal}",
            f"{literal} = {name}",
            f"{name} IN ({some})",
            f"{name} IN ({some}, NULL)",
            f"{name} NOT IN ({some})",
            f"{name} <> {literal}",
            f"{name} <=> {literal}",
            f"{name} {rng.choice(COMPARED)} {literal}",
            f"{literal} {rng.choice(COMPARED)} {name}",
            f"{name} > {literal} AND {name} < {literal_of(rng, column)}",
            f"{name} = {literal} OR {literal_of(rng, column)} = {name}",
            f"{name} IS NULL",
            f"{name} BETWEEN {literal} AND {literal_of(rng, column)}",
        )
    )


def wire(row: tuple[Any, ...]) -> dict[str, Any]:
    """As the reader writes it: a DECIMAL in Connect's form, all else as JSON has it."""
    number, code, n, price, ratio = row
    unscaled = None if price is None else int(Decimal(price).scaleb(2))
    text = None
    if unscaled is not None:
        text = base64.b64encode(unscaled.to_bytes(8, "big", signed=True)).decode()
    return {"id": number, "code": code, "n": n, "price": text, "ratio": ratio}


def test_each_tenant_gets_the_rows_that_mysql_says_meet_its_condition(
    mysql_server: MysqlServer, unique_name: Callable[[str], str]
) -> None:
    """By the index of all conditions together; the server evaluates each by itself, over text compared by code points."""
    rng, database = random.Random(SEED), unique_name("filters")
    mysql_server.execute(f"CREATE DATABASE {database}")
    definition = (
        "CREATE TABLE t (id INT PRIMARY KEY, code VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin, n BIGINT, "
        "price DECIMAL(9,2), ratio DOUBLE)"
    )
    rows = [
        (
            number,
            rng.choice((None, *CODES)),
            rng.choice((None, *NUMBERS)),
            rng.choice((None, *PRICES)),
            rng.choice((None, 0.5, *map(float, NUMBERS))),
        )
        for number in range(ROWS)
    ]
    wheres = [condition(rng) for _ in range(TENANTS)]
    with mysql_server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(definition)
        cursor.executemany("INSERT INTO t VALUES (%s, %s, %s, %s, %s)", rows)
        cursor.execute("SHOW CREATE TABLE t")
        shown = cursor.fetchall()[0][1]
        wanted = []
        for where in wheres:
            cursor.execute(f"SELECT id FROM t WHERE {where} ORDER BY id")
            wanted.append([row[0] for row in cursor.fetchall()])
    table_id = TableId(database=database, table="t")
    schema = msgspec.structs.replace(show_create_to_schema(table_id, shown), version=1)
    tenants = [
        TenantSpec(
            tenant=f"t{number}",
            sources=(SourceSelection(name="s", row_filters=(RowFilter(tables=".*", where=where),)),),
            sink=None,
        )
        for number, where in enumerate(wheres)
    ]
    batch = builder()
    events = [
        ("c", b'{"id":%d}' % row[0], msgspec.json.encode({"before": None, "after": wire(row), "op": "c"}))
        for row in rows
    ]
    add_run(batch, events, table=table_id)
    book = RouteBook("s", tenants, lambda _table_id, _version: schema, TopicClaims()).view()

    got: dict[str, list[int]] = {}
    for delivery in deliver(taken(batch), book):
        for target in delivery.targets:
            assert delivery.dead_letters == 0, delivery
            if delivery.rows:
                found = [json.loads(record.key)["id"] for record in read_back(delivery.records)]
                got.setdefault(target.tenant, []).extend(found)

    assert book.routes(database, "t", 1).index is not None
    differing = {
        wheres[number]: (got.get(f"t{number}", []), ids)
        for number, ids in enumerate(wanted)
        if got.get(f"t{number}", []) != ids
    }
    assert differing == {}
    assert sum(map(bool, wanted)) > TENANTS / 3
