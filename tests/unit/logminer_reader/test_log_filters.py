"""``mining.users`` and ``mining.client_ids``: transactions that are passed over whole, through kills and restarts."""

import asyncio

import msgspec
import pytest

from libs.oracle.log_position import LogminerPosition
from libs.source.oracle.settings import MiningSettings, NameFilter
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.definitions import column
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.server import listening
from libs.types.table import TableId
from services.logminer_reader.mined_rows import CapturedTables
from services.logminer_reader.windows import Windows
from tests.oracle import interleavings
from tests.oracle.in_process import Chances, FixedSchemas, fixed_schema, position_of
from tests.oracle.interleavings import TABLES, Log
from tests.unit.logminer_reader.rig import FAST, RESETLOGS_ID, database


@pytest.mark.parametrize(
    ("given", "name", "counts"),
    [
        (NameFilter(), "", True),
        (NameFilter(include=("app",)), "APP", True),
        (NameFilter(include=("app",)), "BATCH", False),
        (NameFilter(include=("app",)), "", False),
        (NameFilter(exclude=("Batch",)), "BATCH", False),
        (NameFilter(exclude=("Batch",)), "", True),
        (NameFilter(include=("A", "B"), exclude=("b",)), "B", False),
    ],
)
def test_names_count_without_regard_to_case(given: NameFilter, name: str, counts: bool) -> None:
    assert given.has(name) is counts


def log_of(model: Model, chances: Chances | None, begun: LogminerPosition) -> Log:
    table = model.tables["SHOP", "PLAIN"]
    schemas = FixedSchemas({table.object_id: fixed_schema("PLAIN", TABLES["PLAIN"])})
    return Log(model, schemas, chances, begun)


@pytest.mark.parametrize(
    "mining",
    [
        MiningSettings(min_pause_s=0.0, users=NameFilter(exclude=("batch",))),
        MiningSettings(min_pause_s=0.0, client_ids=NameFilter(include=("shop",))),
    ],
)
def test_a_transaction_is_passed_over_whole_after_each_restart(
    mining: MiningSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is open while the reader starts again and again: its START is known each time."""
    settings = msgspec.structs.replace(interleavings._SETTINGS, mining=mining)
    monkeypatch.setattr(interleavings, "_SETTINGS", settings)
    model = Model()
    table = model.create("SHOP", "PLAIN", [column(text) for text in TABLES["PLAIN"]], ("ID",))
    log = log_of(model, None, position_of(model))
    batch, shop = model.begin("BATCH"), model.begin("APP")
    shop.client = "shop"
    for number in range(3):
        batch.insert(table, {"ID": number, "NM": "batch"})
        shop.insert(table, {"ID": 100 + number, "NM": "shop"})
        other = model.begin("APP")
        other.client = "shop"
        other.insert(table, {"ID": 200 + number, "NM": "other"})
        other.commit()
        asyncio.run(log.read())
    batch.commit()
    shop.commit()
    late = model.begin("BATCH")
    late.insert(table, {"ID": 300, "NM": "late"})
    late.commit()
    asyncio.run(log.read())

    assert [event.after["ID"] for event in log.events] == [200, 201, 202, 100, 101, 102]
    assert log.position.low_scn is None


def test_a_start_comes_with_its_client() -> None:
    model = Model()
    table = model.create("SHOP", "PLAIN", [column(text) for text in TABLES["PLAIN"]], ("ID",))
    transaction = model.begin("APP")
    transaction.client = "shop"
    transaction.insert(table, {"ID": 1, "NM": "n"})
    transaction.commit()
    captured = CapturedTables((TableId(database="SHOP", table="PLAIN"),), passes_over=True)
    with listening(ModelDatabase(model, {"C##HEADWATER": "secret"})) as listener:
        windows = Windows(database(listener), FAST, RESETLOGS_ID)
        window = windows.next(model.scn - 3)
        assert window is not None
        rows = [row for rows in windows.rows(window, captured) for row in rows]
        windows.close()
    assert [(row.operation, row.user, row.info) for row in rows] == [
        (6, "APP", "shop"),
        (1, "APP", None),
        (7, "APP", None),
    ]
