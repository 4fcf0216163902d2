"""The LogMiner reader as a process on a real Kafka, over the stand-in for Oracle."""

import itertools
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from libs.config.connections import KafkaSettings
from libs.source.signal_topic import send_signal
from libs.stand_ins.oracle.answers import Column, OracleType
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.model import Model, ModelTable
from libs.stand_ins.oracle.server import Listener, listening
from tests.conftest import KafkaBroker
from tests.integration.reader_pipeline import PublishedRow, ReaderPipeline, reset_source
from tests.integration.service_process import ServiceProcess, Services
from tests.oracle.harness import USERS
from tests.waiting import wait_until

COLUMNS = (Column("ID", OracleType.NUMBER, 22, 9, 0), Column("V", OracleType.NUMBER, 22, 9, 0))


@pytest.fixture
def model() -> Model:
    return Model(clock=lambda: datetime.now(UTC).replace(tzinfo=None))


@pytest.fixture
def listener(model: Model) -> Iterator[Listener]:
    with listening(ModelDatabase(model, USERS)) as found:
        yield found


@pytest.fixture
def pipeline(
    tmp_path: Path, kafka_broker: KafkaBroker, services: Services, listener: Listener, database_name: str
) -> Iterator[ReaderPipeline]:
    settings: dict[str, Any] = {
        "source": database_name,
        "database": {
            "host": "127.0.0.1",
            "port": listener.port,
            "service_name": "ORCLCDB",
            "user": "C##HEADWATER",
            "password": USERS["C##HEADWATER"],
        },
        "include_tables": [r"SHOP\.T"],
        "mining": {"min_pause_s": 0.05},
        "snapshot": {"range_mb": 1},
        "lease_s": 3,
        "kafka": {"bootstrap_servers": kafka_broker.bootstrap_servers},
        **services.addresses,
    }
    reader = ServiceProcess.of("logminer_reader", tmp_path, settings)
    found = ReaderPipeline(database_name, kafka_broker, reader, services)
    yield found
    found.stop()


@pytest.fixture
def database_name(unique_name: Any) -> str:
    return str(unique_name("oracle"))


@pytest.fixture
def table(model: Model) -> ModelTable:
    return model.create("SHOP", "T", COLUMNS, key=("ID",))


def insert(model: Model, table: ModelTable, *numbers: int) -> None:
    transaction = model.begin()
    for number in numbers:
        transaction.insert(table, {"ID": number, "V": 0})
    transaction.commit()


def source_rows(model: Model, table: ModelTable) -> dict[int, int]:
    with model.lock:
        return {int(str(row["ID"])): int(str(row["V"])) for row in table.at(model.scn).values()}


def replayed(rows: list[PublishedRow]) -> dict[int, int]:
    """The table that the rows leave, taken in the order that they carry."""
    found: dict[int, int] = {}
    for row in sorted(rows, key=lambda row: row.order):
        after = row.value["after"]
        if after is None:
            found.pop(row.value["before"]["ID"], None)
        else:
            found[after["ID"]] = after["V"]
    return found


@pytest.mark.parametrize(
    "failpoint",
    [
        "reader_after_produce_before_commit=kill@3",
        "reader_after_commit=kill@3",
        "reader_between_snapshot_chunks=kill@1",
        "reader_after_schema_recorded_before_publish=kill@1",
    ],
)
def test_kill_9_loses_nothing_and_repeats_nothing(
    pipeline: ReaderPipeline, model: Model, table: ModelTable, failpoint: str
) -> None:
    """In the copy, before a commit to Kafka and after one, with a transaction that is open all the time."""
    insert(model, table, *range(300))
    first_row = next(iter(table.at(model.scn)))
    opened = model.begin()
    opened.insert(table, {"ID": 5_000, "V": 1})
    pipeline.reader.start(failpoints=failpoint, waits=False)
    ids = itertools.count(1_000)

    def write(transactions: int) -> None:
        for _ in range(transactions):
            insert(model, table, next(ids), next(ids))
            change = model.begin()
            change.update(table, first_row, {"V": next(ids)})
            change.commit()
            undone = model.begin()
            undone.insert(table, {"ID": next(ids), "V": 7})
            undone.roll_back()
            time.sleep(0.05)

    for _ in range(60):
        write(5)
        if pipeline.reader.has_ended(within_s=0.2):
            break
    assert pipeline.reader.has_ended(within_s=1.0), pipeline.reader.log_text[-3_000:]
    model.switch_logs()
    write(10)
    opened.insert(table, {"ID": 5_001, "V": 1})
    pipeline.reader.start()
    pipeline.wait_for_log()
    write(10)
    opened.commit()
    rows = pipeline.wait_for_rows(lambda rows: replayed(rows) == source_rows(model, table))

    assert any(row.op == "u" for row in rows)
    live = [row.order for row in rows if not row.is_snapshot]
    assert live == sorted(set(live))
    copied = [row.key["ID"] for row in rows if row.is_snapshot and row.key]
    assert len(copied) == len(set(copied))
    assert {row.value["after"]["ID"] for row in rows if row.op == "c"} >= {5_000, 5_001}


def test_a_database_that_was_reset_is_copied_again_in_a_new_epoch(
    pipeline: ReaderPipeline, model: Model, table: ModelTable, tmp_path: Path
) -> None:
    """Changes since its place come to nobody; the copy wins over all before. A signal that was acted upon acts once."""
    insert(model, table, 1)
    row = next(iter(table.at(model.scn)))

    def update(value: int) -> None:
        change = model.begin()
        change.update(table, row, {"V": value})
        change.commit()

    pipeline.reader.start()
    pipeline.wait_for_log()
    signal = json.dumps({"id": "once", "type": "log", "data": {"message": "heard"}})
    send_signal(KafkaSettings(bootstrap_servers=pipeline.kafka.bootstrap_servers), pipeline.source, signal)
    wait_until(lambda: "signal_logged" in pipeline.reader.log_text, because="the signal is heard", pause_s=0.2)
    update(1)
    pipeline.wait_for_rows(lambda rows: len(rows) >= 2)
    pipeline.reader.stop()
    update(2)

    said = reset_source(pipeline.source, pipeline.kafka, pipeline.services, tmp_path / "mesh.yaml")
    pipeline.reader.start()
    pipeline.wait_for_rows(lambda rows: len(rows) >= 3)
    pipeline.wait_for_log()
    update(3)
    first, live, copied, after = pipeline.wait_for_rows(lambda rows: len(rows) >= 4)

    assert f"{pipeline.source}/0: forgets {{" in said
    assert [(each.op, each.value["after"]["V"]) for each in (first, live, copied, after)] == [
        ("r", 0),
        ("u", 1),
        ("r", 2),
        ("u", 3),
    ]
    assert copied.order[0] == first.order[0] + 1 == live.order[0] + 1 == after.order[0]
    assert pipeline.reader.log_text.count('"signal_logged"') == 1
    pipeline.reader.stop()
    pipeline.reader.start()  # what was reset was done once
    update(4)
    assert len(pipeline.wait_for_rows(lambda rows: rows[-1].value["after"]["V"] == 4)) == 5
