"""Logs that go while they are read, sessions that end, threads that come and go: nothing is lost, nothing comes twice."""

from collections.abc import Iterator

import pytest

from libs.errors import HeadwaterError, PipelineHalted, SourceUnavailable
from libs.source.oracle.settings import MiningSettings
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.model import Model, ModelTable
from libs.stand_ins.oracle.server import Listener, listening
from libs.types.table import TableId
from services.logminer_reader.windows import MissingRedo
from tests.oracle.traffic import COLUMNS, order
from tests.unit.logminer_reader.rig import Reader, position_at

ORDERS = TableId(database="SHOP", table="ORDERS")
CONTENTS = r"FROM V\$LOGMNR_CONTENTS"


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def orders(model: Model) -> ModelTable:
    return model.create("SHOP", "ORDERS", COLUMNS)


@pytest.fixture
def database(model: Model) -> ModelDatabase:
    return ModelDatabase(model, {"C##HEADWATER": "secret"})


@pytest.fixture
def listener(database: ModelDatabase) -> Iterator[Listener]:
    with listening(database) as found:
        yield found


def insert(model: Model, table: ModelTable, *numbers: int, thread: int = 1) -> int | None:
    transaction = model.begin(thread=thread)
    for number in numbers:
        transaction.insert(table, order(number))
    return transaction.commit()


def require_all(reader: Reader, orders: ModelTable, scn: int) -> None:
    """Each row is there, and no transaction came twice."""
    assert reader.rows[orders.object_id] == orders.at(scn)
    assert reader.places == sorted(set(reader.places))


@pytest.mark.parametrize("code", [310, 308, 1291, 1306, 1353, 600, 4036])
@pytest.mark.parametrize("after_rows", [0, 7])
def test_rows_come_once_after_an_error_between_them(
    code: int, after_rows: int, model: Model, orders: ModelTable, database: ModelDatabase, listener: Listener
) -> None:
    """Fault 15. Debezium takes ORA-00310 for the end of the rows."""
    reader = Reader(listener, [ORDERS], position_at(model.scn))
    for first in range(0, 30, 3):
        insert(model, orders, first, first + 1, first + 2)
    database.faults.fail(CONTENTS, code, after_rows=after_rows)

    reader.mine()

    assert database.faults.seen
    require_all(reader, orders, model.scn)


def test_the_connection_that_is_lost_is_an_error_of_the_world(
    model: Model, orders: ModelTable, database: ModelDatabase, listener: Listener
) -> None:
    """The reader's loop begins again from the last position."""
    reader = Reader(listener, [ORDERS], position_at(model.scn))
    for number in range(10):
        insert(model, orders, number)
    database.faults.end_connection(CONTENTS, after_rows=11)

    with pytest.raises(SourceUnavailable):
        reader.mine()
    reader.mine()

    require_all(reader, orders, model.scn)


def test_logminers_own_fault_halts_at_the_smallest_window(
    model: Model, orders: ModelTable, database: ModelDatabase, listener: Listener
) -> None:
    insert(model, orders, 1)
    reader = Reader(listener, [ORDERS], position_at(model.scn - 3), MiningSettings(min_pause_s=0, window_redo_mb=64))
    database.faults.fail(CONTENTS, 600, after_rows=0, times=9)

    with pytest.raises(PipelineHalted, match="ORA-00600"):
        reader.mine()


def test_an_error_that_nobody_foresaw_ends_the_window_by_its_name(
    model: Model, orders: ModelTable, database: ModelDatabase, listener: Listener
) -> None:
    reader = Reader(listener, [ORDERS], position_at(model.scn))
    insert(model, orders, 1)
    database.faults.fail(CONTENTS, 30_000, after_rows=0)

    with pytest.raises(HeadwaterError, match="ORA-30000"):
        reader.mine()
    assert reader.places == []


def test_a_log_that_is_not_archived_yet_is_read(model: Model, orders: ModelTable, listener: Listener) -> None:
    """Fault 13: its rows come without waiting for the archiver."""
    reader = Reader(listener, [ORDERS], position_at(model.scn))
    insert(model, orders, 1)
    model.switch_logs()
    insert(model, orders, 2)
    model.switch_logs(archives=False)
    insert(model, orders, 3)

    reader.mine()

    require_all(reader, orders, model.scn)


def test_a_member_that_is_invalid_is_left_alone(model: Model, orders: ModelTable, listener: Listener) -> None:
    """Fault 14: the other member of the group is read."""
    reader = Reader(listener, [ORDERS], position_at(model.scn))
    model.thread.members = 2
    model.thread.invalid.add(model.thread.current.path(1))
    insert(model, orders, 1)

    reader.mine()

    require_all(reader, orders, model.scn)


def test_a_log_that_is_gone_halts_with_the_command_that_brings_it_back(
    model: Model, orders: ModelTable, listener: Listener
) -> None:
    """Fault 17."""
    reader = Reader(listener, [ORDERS], position_at(model.scn))
    insert(model, orders, 1)
    gone = model.thread.current
    for _ in range(4):
        model.switch_logs()
    gone.deleted_from.add(1)

    with pytest.raises(MissingRedo, match=rf"RESTORE ARCHIVELOG SEQUENCE {gone.sequence} THREAD 1.*re-snapshot"):
        reader.mine()


def test_a_log_that_the_archiver_has_not_listed_yet_is_awaited(
    model: Model, orders: ModelTable, database: ModelDatabase, listener: Listener
) -> None:
    """Fault 16."""
    reader = Reader(listener, [ORDERS], position_at(model.scn))
    insert(model, orders, 1)
    database.faults.fail("ADD_LOGFILE", 1291, times=3)

    reader.mine()

    require_all(reader, orders, model.scn)
    assert len([pause for pause in reader.pauses if pause > 0.5]) >= 2  # it does not hammer


def test_every_thread_is_read_and_a_closed_one_holds_nothing_back(
    model: Model, orders: ModelTable, listener: Listener
) -> None:
    """Faults 1 and 19."""
    second = model.open_thread().number
    reader = Reader(listener, [ORDERS], position_at(model.scn))
    insert(model, orders, 1, thread=second)
    insert(model, orders, 2)
    together = [model.begin(thread=second), model.begin()]
    for number, transaction in enumerate(together, 10):
        transaction.insert(orders, order(number))
    scn = model.commit_together(together)
    model.close_thread(second)
    insert(model, orders, 3)

    reader.mine(until=lambda each: (scn, 0) in each.places)  # killed between two commits of one SCN
    reader.mine()

    require_all(reader, orders, model.scn)
    assert [place for place in reader.places if place[0] == scn] == [(scn, 0), (scn, 1)]
