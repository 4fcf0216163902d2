"""Seeded interleavings of transactions, windows, RESETLOGS and kills. The events of each are the true history of the model.

``python -m tests.oracle.interleavings 10000`` tries as many, and prints the seed of the first that fails. A kill loses the
reader's memory and each batch since the last resume point, as an aborted transaction of Kafka does.
"""

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, cast

import structlog

from libs.config.connections import GrpcClientSettings
from libs.config.load import Secret
from libs.events.batch import BatchIdentity
from libs.oracle.log_position import COMMITS_OF_AN_SCN, LogminerPosition, commit_order
from libs.source.failure_policy import FailureHandling
from libs.source.oracle.settings import MiningSettings, OracleDatabaseSettings
from libs.source.port import ReadBatch
from libs.stand_ins.oracle.answers import OracleError, Value
from libs.stand_ins.oracle.definitions import column
from libs.stand_ins.oracle.model import Model, Transaction
from libs.stand_ins.oracle.tables import ModelTable
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch
from services.logminer_reader.gather import Gatherer
from services.logminer_reader.log_following import BesideLog, LogFollowing
from services.logminer_reader.position import decode_position
from services.logminer_reader.settings import LogminerReaderSettings
from tests.oracle.in_process import Chances, FixedSchemas, fixed_schema, in_process, position_of
from tests.oracle.log_reading import NoCopies, NoSignals

TABLES = {
    "DOCS": ("ID NUMBER(9)", "NM VARCHAR2(20)", "DOC CLOB"),
    "PLAIN": ("ID NUMBER(9)", "NM VARCHAR2(4000)"),
    "OTHER": ("ID NUMBER(9)", "NM VARCHAR2(20)"),
}
CAPTURED = ("DOCS", "PLAIN")
STEPS = (
    *(
        "begin",
        "begin",
        "insert",
        "insert",
        "insert",
        "update",
        "update",
        "update",
        "delete",
        "savepoint",
        "savepoint",
        "back",
        "regret",
    ),
    *("commit", "commit", "commit", "together", "together", "abort", "switch", "reset", "read", "kill", "kill"),
)
INLINE, LONG = "é" * 1_500, "é" * 2_500
"""LOBs within the row, and outside of it: by a locator and several writes."""
WIDE = "w" * 3_990
"""A statement with it is longer than a row of the log: CSF joins its parts."""
_SOURCE = "src"
_UNUSED = GrpcClientSettings(address="127.0.0.1:1")
_SETTINGS = LogminerReaderSettings(
    source=_SOURCE,
    database=OracleDatabaseSettings(host="", service_name="ORCL", user="U", password=Secret("")),
    mining=MiningSettings(min_pause_s=0.0, transaction_memory_mb=1),
    schema_history=_UNUSED,
    checkpoint_committer=_UNUSED,
)


class Event(NamedTuple):
    """A row event."""

    order: tuple[int, int, int]
    table: str
    before: Any
    after: Any


@dataclass
class Log:
    """Events and position that readers of one model have made durable."""

    model: Model
    schemas: FixedSchemas
    chances: Chances | None
    position: LogminerPosition
    events: list[Event] = field(default_factory=list)

    def reset(self, chance: Random) -> None:
        """OPEN RESETLOGS at an SCN that is not before the newest durable place: the reader follows."""
        first = max(
            self.position.done_scn - (not self.position.done_commits), self.model.incarnations[-1].resetlogs_scn
        )
        if first <= self.model.scn:
            self.model.reset_logs(chance.randrange(first, self.model.scn + 1))

    async def read(self, kill_after: int | None = None) -> None:
        """A reader's life: to the end of the redo, or to a number of batches."""
        if self.position.done_scn > self.model.scn:
            return
        identity = BatchIdentity(source=_SOURCE, source_partition="0", connector="oracle", run_id="r", fencing_token=1)
        gatherer = Gatherer(_SOURCE, FailureHandling.FAIL, identity)
        beside = BesideLog(cast(Any, None), cast(Any, NoCopies()), cast(Any, NoSignals()))
        following = LogFollowing(_SETTINGS, cast(Any, self.schemas), beside, gatherer)
        order = commit_order(self.position.epoch, self.position.done_scn, 0)
        batches = following.batches(self.position, order, 0)
        with in_process(self.model, self.chances):
            try:
                async with aclosing(cast(Any, batches)):
                    await self._take(batches, kill_after)
            finally:
                await following.close()

    async def _take(self, batches: AsyncIterator[ReadBatch], kill_after: int | None) -> None:
        waiting: list[Event] = []
        taken = 0
        async for batch in batches:
            if taken == kill_after:
                return
            taken += 1
            waiting += events_of(batch)
            if batch.resume is not None:
                self.events += waiting
                waiting.clear()
                self.position = decode_position(batch.resume.position)
                if self.position.done_scn > self.model.scn:
                    return


def events_of(batch: ReadBatch) -> list[Event]:
    """Of a batch."""
    found = []
    for entry in ChangeBatch.FromString(batch.payload).entries:
        run = entry.run
        for nth, text in enumerate(run.values):
            value = json.loads(text)
            order = (run.epoch, int(run.rank), run.first_tx_ordinal + nth)
            found.append(Event(order, value["source"]["table"], value["before"], value["after"]))
    return found


def image_of(row: Mapping[str, Value]) -> dict[str, Value]:
    """A row of the model, as events have it."""
    return {**row, "ID": int(str(row["ID"]))}


class Clients:
    """Applications, each with a transaction; none waits for another's locks."""

    def __init__(self, model: Model, chance: Random) -> None:
        self.images: dict[str, list[dict[str, Value]]] = {name: [] for name in TABLES}
        """By table: each row that a committed change has left."""
        self._model = model
        self._chance = chance
        self._tables = [
            model.create("SHOP", name, [column(text) for text in columns], ("ID",)) for name, columns in TABLES.items()
        ]
        self._ids = iter(range(1, 1 << 30))
        self._open: list[tuple[Transaction, list[int]]] = []

    def are_cut_off(self) -> None:
        """The database is recovered: nothing of an open transaction is left."""
        self._open.clear()

    def take(self, step: str) -> None:
        """One of them goes a step on."""
        chance, model = self._chance, self._model
        if step == "switch":
            model.switch_logs(chance.choice([None, *range(1, len(model.threads) + 1)]))
        elif step == "begin" or not self._open:
            self._open.append((model.begin(thread=chance.randrange(1, len(model.threads) + 1)), [0]))
        elif step == "together":
            several = self._open[: chance.randrange(1, len(self._open) + 1)]
            del self._open[: len(several)]
            for transaction, _ in several:
                self._note_images(transaction)
            model.commit_together([transaction for transaction, _ in several])
        else:
            self._take_in(step, *chance.choice(self._open))

    def _take_in(self, step: str, transaction: Transaction, savepoints: list[int]) -> None:
        table = self._chance.choice([self._tables[0], *self._tables])
        match step:
            case "insert":
                transaction.insert(table, self._row(table, next(self._ids)))
            case "update":
                self._update(transaction, table)
            case "delete":
                for row_id in self._free(transaction, table)[:1]:
                    transaction.delete(table, row_id)
            case "savepoint":
                savepoints.append(transaction.savepoint())
            case "back":
                transaction.roll_back_to(savepoints[-1])
            case "regret":
                savepoint = transaction.savepoint()
                for _ in range(self._chance.randrange(1, 4)):
                    self._update(transaction, table)
                transaction.roll_back_to(savepoint)
            case "commit":
                self._note_images(transaction)
                transaction.commit()
                self._open.remove((transaction, savepoints))
            case "abort":
                transaction.roll_back()
                self._open.remove((transaction, savepoints))

    def _note_images(self, transaction: Transaction) -> None:
        for change in transaction.changes:
            if change.after is not None:
                self.images[change.table.named.name].append(image_of(change.after))

    def _update(self, transaction: Transaction, table: ModelTable) -> None:
        for row_id in self._free(transaction, table)[:1]:
            before = table.row(row_id)
            after = self._row(table, int(str(before["ID"])))
            kept = self._chance.choice([name for name in after if name != "ID"])
            if self._chance.random() < 0.2:
                after["ID"] = next(self._ids)
            if (changed := after | {kept: before[kept]}) != before:
                transaction.update(table, row_id, changed)

    def _free(self, transaction: Transaction, table: ModelTable) -> list[str]:
        """Rows that it may change: half of the time those that it has changed, so that undo has several to choose from."""
        rows = transaction.changed(table)
        if not rows or self._chance.random() < 0.5:
            rows += [row_id for row_id in table.at(self._model.scn) if row_id not in table.pending]
        self._chance.shuffle(rows)
        return rows

    def _row(self, table: ModelTable, number: int) -> dict[str, Value]:
        row: dict[str, Value] = {"ID": number, "NM": f"n{self._chance.randrange(1_000)}"}
        if table.lobs:
            row["DOC"] = self._chance.choice(
                [None, "s", f"{number} it's", f"{number}{INLINE}", LONG, f"{number}{LONG}"]
            )
        elif table.named.name == "PLAIN" and self._chance.random() < 0.2:
            row["NM"] = f"{WIDE}{self._chance.randrange(1_000)}"
        return row


def interleaving(seed: int) -> None:
    """Try one.

    Raises:
        AssertionError: the events are not the model's history.
    """
    chance = Random(seed)
    model = Model(threads=chance.choice([1, 1, 2]))
    clients = Clients(model, chance)
    tables = [model.tables["SHOP", name] for name in CAPTURED]
    schemas = FixedSchemas(
        {table.object_id: fixed_schema(table.named.name, TABLES[table.named.name]) for table in tables}
    )
    begun = position_of(model)
    log = Log(model, schemas, Chances(chance), begun)
    asyncio.run(_live(log, clients, chance))
    require_history(log, tables)
    require_images(log, clients)

    again = Log(model, schemas, None, begun)
    asyncio.run(again.read())
    assert again.events == log.events, "a replay has other events, or other orders"


async def _live(log: Log, clients: Clients, chance: Random) -> None:
    for _ in range(chance.randrange(5, 70)):
        match chance.choice(STEPS):
            case "read":
                await log.read()
            case "reset":
                log.reset(chance)
                clients.are_cut_off()
            case "kill":
                await log.read(chance.randrange(1, 4))
            case step:
                try:
                    clients.take(step)
                except OracleError as error:
                    assert error.code == 1, error
    await log.read()


def require_history(log: Log, tables: list[ModelTable]) -> None:
    """Every event goes on from the rows that the one before left; after each commit the rows are the model's."""
    orders = [event.order for event in log.events]
    assert orders == sorted(set(orders)), "events come twice, or out of order"
    rows: dict[str, dict[int, Any]] = {table.named.name: {} for table in tables}
    for nth, event in enumerate(log.events):
        of_table = rows[event.table]
        if event.before is not None:
            assert of_table.pop(event.before["ID"], None) == event.before, event
        if event.after is not None:
            assert event.after["ID"] not in of_table, event
            of_table[event.after["ID"]] = event.after
        scn = event.order[1] // COMMITS_OF_AN_SCN
        if nth + 1 == len(orders) or orders[nth + 1][1] // COMMITS_OF_AN_SCN != scn:
            require_rows(rows, tables, scn)
    require_rows(rows, tables, log.model.scn)


def require_images(log: Log, clients: Clients) -> None:
    """No event has a row that never was, such as one whose LOB is still empty. Two changes may be one event, none is two."""
    for event in log.events:
        assert event.after is None or event.after in clients.images[event.table], event


def require_rows(rows: dict[str, dict[int, Any]], tables: list[ModelTable], scn: int) -> None:
    """As of an SCN."""
    for table in tables:
        expected = {image["ID"]: image for image in map(image_of, table.at(scn).values())}
        assert rows[table.named.name] == expected, f"{table.named.name} as of SCN {scn}"


def main(count: int) -> None:
    """Try so many."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    began_s = time.process_time()
    for seed in range(count):
        try:
            interleaving(seed)
        except BaseException:
            sys.stderr.write(f"seed {seed}\n")
            raise
    sys.stdout.write(f"{count} interleavings, {time.process_time() - began_s:.0f} CPU s\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
