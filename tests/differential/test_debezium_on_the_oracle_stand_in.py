"""Debezium's Oracle connector, which nobody here wrote, reads the stand-in for Oracle: its copy and its stream.

Its events are held against the model's own transactions, so that dictionary, redo and protocol of the stand-in are judged by
another reader of them than ours. The events of ours are held against Debezium's, field by field. Kafka Connect 4.3.1, the
connector 3.6.1.Final and ojdbc11 are fetched when they are not there (57 MB): ``make test-all``.
"""

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bench.debezium_oracle import debezium_oracle
from libs.config.connections import GrpcClientSettings, KafkaSettings
from libs.config.load import Secret
from libs.source.oracle.settings import MiningSettings, OracleDatabaseSettings
from libs.stand_ins.oracle.answers import Value
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.definitions import column
from libs.stand_ins.oracle.model import Model, Transaction
from libs.stand_ins.oracle.server import Listener, listening
from libs.stand_ins.oracle.tables import ModelTable
from libs.types.value_modes import BinaryMode, DecimalMode, OracleValueModes
from services.logminer_reader.settings import LogminerReaderSettings
from tests.differential.test_debezium_on_the_stand_in import Record, Topic
from tests.oracle.following import Following

pytestmark = pytest.mark.rest(
    because="unit/oracle/test_model.py and test_model_redo.py hold the model's redo to recorded forms and to its own tables"
)

COLUMNS = (
    "ID NUMBER(9) NOT NULL",
    "NM VARCHAR2(60)",
    "AMT NUMBER(12,2)",
    "N NUMBER",
    "MADE DATE",
    "SEEN TIMESTAMP(6)",
    "CODE CHAR(4)",
    "RAW_ID RAW(8)",
    "HALF BINARY_DOUBLE",
)
LAST = 999_999
PARTS = 10
"""Of the traffic: between them Debezium ends a window, also with transactions open."""
PAUSE_S = 0.3
_TICK_S = 0.1
DIFFERENCES = {
    "source.version": "each names its own release",
    "source.start_scn": "the first change that is left, where those before it were taken back; ours is the first change",
}
"""Fields of streamed events that differ from ours, each with its reason. Every other field is equal."""
NAMES: tuple[Value, ...] = (None, "it's", "a; b", "where x = 'y'", "é中", "", "NULL", "\\")
Histories = dict[int, list[tuple[str, tuple[Value, ...] | None]]]
"""Of each row its operations, each with the values it left."""


@pytest.fixture
def model() -> Model:
    return Model(clock=lambda: datetime.now(UTC).replace(tzinfo=None))


@pytest.fixture
def orders(model: Model) -> ModelTable:
    return model.create("SHOP", "ORDERS", [column(each) for each in COLUMNS], key=["ID"])


@pytest.fixture
def listener(model: Model) -> Iterator[Listener]:
    with listening(ModelDatabase(model, {"C##DBZ": "secret"})) as found:
        yield found


@contextlib.contextmanager
def ticking(model: Model) -> Iterator[None]:
    """The SCN grows by itself, as at a real server. Debezium waits for it."""
    is_over = threading.Event()

    def tick() -> None:
        while not is_over.wait(_TICK_S):
            with model.lock:
                model.scn += 1

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class _Traffic:
    """Random transactions of a few clients, and the changes that each of them committed."""

    def __init__(self, model: Model, table: ModelTable) -> None:
        self.histories: Histories = {}
        self._model = model
        self._table = table
        self._chance = random.Random(7)
        self._open: list[tuple[Transaction, list[tuple[str, int, str]], list[tuple[int, int]]]] = []
        self._ids = iter(range(1, LAST))

    def copied(self, rows: int) -> None:
        """Rows that are there before anybody reads."""
        transaction = self._model.begin()
        for _ in range(rows):
            row = self._row(next(self._ids))
            transaction.insert(self._table, row)
            self._note("r", row)
        transaction.commit()

    def step(self) -> None:
        """One more statement of one of the clients."""
        if (len(self._open) < 3 and self._chance.random() < 0.3) or not self._open:
            self._open.append((self._model.begin(), [], []))
        transaction, changes, savepoints = client = self._chance.choice(self._open)
        match self._chance.choice(
            ["insert", "update", "update", "delete", "savepoint", "back", "commit", "abort", "switch"]
        ):
            case "insert":
                row = self._row(next(self._ids))
                changes.append(("c", int(str(row["ID"])), transaction.insert(self._table, row)))
            case "update" | "delete" as what:
                self._change(what, transaction, changes)
            case "savepoint":
                savepoints.append((transaction.savepoint(), len(changes)))
            case "back" if savepoints:
                place, count = savepoints[-1]
                transaction.roll_back_to(place)
                del changes[count:]
            case "commit":
                self._end(client)
            case "abort":
                transaction.roll_back()
                self._open.remove(client)
            case "switch" if self._chance.random() < 0.2:
                self._model.switch_logs()

    def finish(self) -> None:
        """Everything is committed, then a last row."""
        for client in list(self._open):
            self._end(client)
        transaction = self._model.begin()
        row = self._row(LAST)
        transaction.insert(self._table, row)
        transaction.commit()
        self._note("c", row)

    def _change(self, what: str, transaction: Transaction, changes: list[tuple[str, int, str]]) -> None:
        free = [row_id for row_id in self._table.at(self._model.scn) if row_id not in self._table.pending]
        free += transaction.changed(self._table)
        if not free:
            return
        row_id = self._chance.choice(free)
        number = int(str(self._table.row(row_id)["ID"]))
        if what == "delete":
            transaction.delete(self._table, row_id)
            changes.append(("d", number, row_id))
            return
        row = self._row(number)
        if self._table.row(row_id) != row:
            transaction.update(self._table, row_id, row)
            changes.append(("u", number, row_id))

    def _end(self, client: tuple[Transaction, list[tuple[str, int, str]], list[tuple[int, int]]]) -> None:
        transaction, changes, _ = client
        states = {row_id: self._table.newest(row_id) for _, _, row_id in changes}
        transaction.commit()
        self._open.remove(client)
        for nth, (op, number, row_id) in enumerate(changes):
            is_last = row_id not in [each for _, _, each in changes[nth + 1 :]]
            left = states[row_id] if is_last else None
            self.histories.setdefault(number, []).append((op, _image(left) if is_last and left is not None else None))

    def _note(self, op: str, row: dict[str, Value]) -> None:
        self.histories.setdefault(int(str(row["ID"])), []).append((op, _image(row)))

    def _row(self, number: int) -> dict[str, Value]:
        choose = self._chance.choice
        name = choose(NAMES)
        return {
            "ID": number,
            "NM": name or None,
            "AMT": choose([None, Decimal("1.50"), Decimal("-0.05")]),
            "N": choose([None, Decimal("1234567890.123456789"), Decimal(100)]),
            "MADE": choose([None, datetime(2024, 2, 29, 1, 2, 3)]),
            "SEEN": choose([None, datetime(2024, 2, 29, 1, 2, 3, 4_005)]),
            "CODE": choose([None, "ab  "]),
            "RAW_ID": choose([None, b"\0\xff"]),
            "HALF": choose([None, 0.5, -1e100]),
        }


def _image(row: object) -> tuple[Value, ...]:
    assert isinstance(row, dict)
    made, seen = row["MADE"], row["SEEN"]
    return (
        row["NM"],
        None if row["AMT"] is None else f"{row['AMT']:.2f}",
        None if row["N"] is None else f"{row['N']:f}",
        None if made is None else round(made.replace(tzinfo=UTC).timestamp() * 1_000),
        None if seen is None else round(seen.replace(tzinfo=UTC).timestamp() * 1_000_000),
        row["CODE"],
        None if row["RAW_ID"] is None else row["RAW_ID"].hex(),
        row["HALF"],
    )


def _histories(values: Sequence[dict[str, Any]]) -> Histories:
    """Of the values of a table's events."""
    found: Histories = {}
    for value in values:
        after = value["after"]
        image = None if after is None else tuple(after[each.split()[0]] for each in COLUMNS[1:])
        found.setdefault(_number(value), []).append((value["op"], image))
    return found


def _number(value: dict[str, Any]) -> int:
    return int((value["after"] or value["before"])["ID"])


def _ops(histories: Histories) -> dict[int, list[str]]:
    return {number: [op for op, _ in history] for number, history in histories.items()}


def _lasts(histories: Histories) -> dict[int, tuple[Value, ...] | None]:
    return {number: history[-1][1] for number, history in histories.items()}


def _fields(value: dict[str, Any]) -> dict[str, Any]:
    """An event without the moments at which a reader handled it."""
    source = {f"source.{name}": each for name, each in value["source"].items()}
    return {name: value[name] for name in ("op", "before", "after", "transaction")} | source


def _differing(theirs: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
    """The fields that differ, each with the first pair of values, theirs and ours."""
    found: dict[str, tuple[Any, Any]] = {}
    for their, our in zip(map(_fields, theirs), map(_fields, ours), strict=True):
        for name in their.keys() | our.keys():
            if their.get(name, "no field") != our.get(name, "no field"):
                found.setdefault(name, (their.get(name, "no field"), our.get(name, "no field")))
    return found


def _our_settings(source: str, listener: Listener, bootstrap_servers: str) -> LogminerReaderSettings:
    unused = GrpcClientSettings(address="127.0.0.1:1")
    return LogminerReaderSettings(
        source=source,
        database=OracleDatabaseSettings(
            host="127.0.0.1",
            port=listener.port,
            service_name="ORCLCDB",
            user="C##DBZ",
            password=Secret("secret"),
        ),
        mining=MiningSettings(min_pause_s=0.05),
        include_tables=(r"SHOP\.ORDERS",),
        values=OracleValueModes(decimal=DecimalMode.STRING, binary=BinaryMode.HEX),
        kafka=KafkaSettings(bootstrap_servers=bootstrap_servers),
        schema_history=unused,
        checkpoint_committer=unused,
    )


def test_it_reads_the_copy_and_every_committed_change(
    model: Model,
    orders: ModelTable,
    listener: Listener,
    bootstrap_servers: str,
    unique_name,
    tmp_path: Path,
) -> None:
    """Each row's operations come once, in their order, and leave its values; rolled back changes never come. Ours reads the
    same transactions in the same order."""
    traffic = _Traffic(model, orders)
    traffic.copied(20)
    prefix = unique_name("ora")
    ours = Following(_our_settings(prefix, listener, bootstrap_servers))
    our_copy = asyncio.run(ours.copy())
    options = {
        "database.connection.adapter": "logminer",
        "table.include.list": "SHOP.ORDERS",
        "decimal.handling.mode": "string",
        "binary.handling.mode": "hex",
        "log.mining.sleep.time.default.ms": 200,
        "poll.interval.ms": 50,
    }
    with (
        ticking(model),
        debezium_oracle(
            tmp_path / "connect",
            bootstrap_servers,
            port=listener.port,
            service_name="ORCLCDB",
            user="c##dbz",
            password="secret",
            topic_prefix=prefix,
            options=options,
        ) as connector,
    ):
        topic = Topic(bootstrap_servers, f"{prefix}.SHOP.ORDERS")
        topic.until(20, connector)
        for _ in range(PARTS):
            for _ in range(40):
                traffic.step()
            time.sleep(PAUSE_S)
        traffic.finish()
        topic.until_holds(lambda found: LAST in map(_number, _values(found)), connector, what="the last row")
        theirs = _values(topic.until_end())
        topic.close()
        our_stream = asyncio.run(ours.read(lambda found: LAST in map(_number, found)))

    assert _ops(_histories(theirs)) == _ops(traffic.histories)
    # The model knows the values that a transaction left, not those between its changes of one row.
    assert _lasts(_histories(theirs)) == _lasts(traffic.histories)
    copied = {_number(value): value["after"] for value in theirs if value["op"] == "r"}
    assert copied == {_number(value): value["after"] for value in our_copy}
    their_stream = [value for value in theirs if value["op"] != "r"]
    differing = _differing(their_stream, our_stream)
    assert differing.keys() <= DIFFERENCES.keys(), differing
    require_begun_later(their_stream, our_stream)


def require_begun_later(theirs: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]]) -> None:
    """Where ``start_scn`` differs, theirs is that of the transaction's first event, and ours is before it."""
    firsts: dict[str, str] = {}
    for their, our in zip(theirs, ours, strict=True):
        first = firsts.setdefault(their["source"]["txId"], their["source"]["scn"])
        if their["source"]["start_scn"] != our["source"]["start_scn"]:
            assert their["source"]["start_scn"] == first
            assert int(our["source"]["start_scn"]) < int(first)


def _values(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Without tombstones."""
    return [record.value for record in records if record.value is not None]
