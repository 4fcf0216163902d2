"""Two tables of accounts whose money moves from one to the other, and a reader that sums both all the time."""

import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection, sql
from psycopg.errors import InvalidSchemaName, UndefinedTable
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from libs.mysql.logical import column
from libs.types.table import TableSchema
from libs.types.warehouse import CONSISTENT_TABLE, WarehouseTable, warehouse_table
from tests.sink_topics import SOURCE, TenantTopics, table_id

TABLES: Final = ("savings", "checking")
TOTAL: Final = 1_200
_ACCOUNTS: Final = 6
_PAUSE_S: Final = 1.0
_BEGIN_WITH: Final = TOTAL // _ACCOUNTS // len(TABLES)
_COLUMNS: Final = (column("id", "int", is_optional=False), column("n", "int"))


def schema(name: str) -> TableSchema:
    return TableSchema(table_id=table_id(name), columns=_COLUMNS, key=("id",), version=1)


class Bank:
    """No money is made or lost in a transaction; between its events some is on its way."""

    def __init__(self, topics: TenantTopics) -> None:
        """Both tables' topics and schemas, and a transaction that opens all accounts."""
        self._topics, self.events = topics, 0
        self._balances = {name: dict.fromkeys(range(_ACCOUNTS), _BEGIN_WITH) for name in TABLES}
        topics.create_boundaries()
        for name in TABLES:
            topics.create_table(schema(name))
        with topics.transaction() as opening:
            for name in TABLES:
                opening.schema(schema(name))
                for account in range(_ACCOUNTS):
                    opening.change(schema(name), op="c", after={"id": account, "n": _BEGIN_WITH})
        self.events += len(TABLES) * _ACCOUNTS

    def move(self, chance: random.Random, *, transactions: int) -> None:
        """Some in each; now and then one comes in several transactions of Kafka's."""
        for _ in range(transactions):
            with self._topics.transaction() as transaction:
                for _ in range(chance.randrange(1, 4)):
                    amount = chance.randrange(1, 50)
                    for name, change in chance.sample([(TABLES[0], -amount), (TABLES[1], amount)], 2):
                        account = chance.randrange(_ACCOUNTS)
                        self._balances[name][account] += change
                        row = {"id": account, "n": self._balances[name][account]}
                        transaction.change(schema(name), op="u", after=row)
                        self.events += 1
                        if chance.random() < 0.2:
                            transaction.split()

    def rows(self, name: str) -> list[dict[str, int]]:
        return [{"id": account, "n": balance} for account, balance in sorted(self._balances[name].items())]


@dataclass(frozen=True, slots=True)
class Audit:
    """One look at both tables: their sum, and the batches that they hold."""

    total: int
    batches: frozenset[str]


Load = Callable[[WarehouseTable], AbstractContextManager[Table]]


def audit_of_snapshots(tenant: str, load: Load) -> Audit | None:
    """Both tables as the snapshots that belong together have them (Iceberg); None: there are none yet."""

    def total(name: str, snapshot_id: int) -> int:
        *namespace, table = name.split(".")
        with load(WarehouseTable(namespace=tuple(namespace), name=table)) as found:
            return sum(found.scan(snapshot_id=snapshot_id, selected_fields=("n",)).to_arrow()["n"].to_pylist())

    try:
        with load(WarehouseTable(namespace=(tenant,), name=CONSISTENT_TABLE)) as listed:
            together = listed.scan().to_arrow().to_pylist()
    except NoSuchTableError:
        return None
    if not together:
        return None
    sums = [total(row["table"], row["snapshot_id"]) for row in together]
    return Audit(sum(sums), frozenset(row["batch"] for row in together))


def audit_of_query(connection: Connection[Any], tenant: str) -> Audit | None:
    """Both tables as one query finds them (PostgreSQL); None: nothing was written yet."""
    places = [warehouse_table(tenant, SOURCE, table_id(name)) for name in TABLES]
    sums = [
        sql.SQL("SELECT sum(n) AS n FROM {}").format(sql.Identifier("_".join(place.namespace), place.name))
        for place in places
    ]
    query = sql.SQL(
        "SELECT sum(n), (SELECT array_agg(batch_query || ':' || batch_id) FROM headwater.tables WHERE name = ANY (%s)) "
        "FROM ({}) t"
    ).format(sql.SQL(" UNION ALL ").join(sums))
    try:
        [(total, batches)] = connection.execute(query, ([str(place) for place in places],)).fetchall()
    except (UndefinedTable, InvalidSchemaName):
        return None
    return None if total is None else Audit(int(total), frozenset(filter(None, batches)))


class Auditor:
    """Looks at both tables as often as it can."""

    def __init__(self, audit: Callable[[], Audit | None]) -> None:
        self.sums: list[int] = []
        self.batches: set[str] = set()
        self._audit = audit
        self._failure: BaseException | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> "Auditor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        try:
            while not self._is_over.is_set():
                if (found := self._audit()) is not None:
                    self.sums.append(found.total)
                    self.batches |= found.batches
                time.sleep(_PAUSE_S)
        except BaseException as failure:
            self._failure = failure
