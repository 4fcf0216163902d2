"""Two tables of accounts whose money moves from one to the other, and whoever sums both all the time."""

import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from libs.mysql.logical import column
from libs.types.table import TableSchema
from libs.types.warehouse import CONSISTENT_TABLE, WarehouseTable
from tests.sink_topics import TenantTopics, table_id

TABLES: Final = ("savings", "checking")
TOTAL: Final = 1_200
_ACCOUNTS: Final = 6
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


class Auditor:
    """Sums both tables as the snapshots that belong together have them, as often as it can."""

    def __init__(self, tenant: str, load: Callable[[WarehouseTable], AbstractContextManager[Table]]) -> None:
        self.sums: list[int] = []
        self.batches: set[str] = set()
        self._tenant, self._load = tenant, load
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
                self._audit()
                time.sleep(0.2)
        except BaseException as failure:
            self._failure = failure

    def _audit(self) -> None:
        try:
            with self._load(WarehouseTable(namespace=(self._tenant,), name=CONSISTENT_TABLE)) as listed:
                together = listed.scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return
        if together:
            self.sums.append(sum(self._sum(row["table"], row["snapshot_id"]) for row in together))
            self.batches |= {row["batch"] for row in together}

    def _sum(self, name: str, snapshot_id: int) -> int:
        *namespace, table = name.split(".")
        with self._load(WarehouseTable(namespace=tuple(namespace), name=table)) as found:
            return sum(found.scan(snapshot_id=snapshot_id, selected_fields=("n",)).to_arrow()["n"].to_pylist())
