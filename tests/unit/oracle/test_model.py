"""The model database: a reader makes its tables of its redo, under any transactions and windows."""

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator

import hypothesis.strategies as st
import oracledb
import pytest
from hypothesis import given, settings

from libs.oracle import redo_logs
from libs.oracle.log_rows import LogRow, Operation
from libs.oracle.undo import changes_left
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.model import Model, ModelTable
from libs.stand_ins.oracle.server import Listener, listening
from tests.oracle.traffic import COLUMNS, Rows, Traffic, apply, order

CONTENTS = (
    'SELECT SCN, XID, OPERATION_CODE, "ROLLBACK", CSF, "DATA_OBJ#", ROW_ID, RS_ID, SQL_REDO FROM V$LOGMNR_CONTENTS'
    " WHERE SCN > :1 AND SCN <= :2"
)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def orders(model: Model) -> ModelTable:
    return model.create("SHOP", "ORDERS", COLUMNS)


@pytest.fixture
def connection(model: Model) -> Iterator[oracledb.Connection]:
    with listening(ModelDatabase(model, {"C##HEADWATER": "secret"})) as listener, connect(listener) as found:
        yield found


def connect(listener: Listener) -> oracledb.Connection:
    return oracledb.connect(user="c##headwater", password="secret", dsn=listener.dsn)


def query(connection: oracledb.Connection, statement: str, *binds: object) -> list[tuple[object, ...]]:
    return list(connection.cursor().execute(statement, list(binds)))


def mine(connection: oracledb.Connection, start: int, end: int) -> list[tuple[object, ...]]:
    """One window, its logs chosen by the reader's code from the server's views."""
    threads = query(
        connection,
        'SELECT "THREAD#", LAST_REDO_CHANGE#, CHECKPOINT_CHANGE#, ENABLE_CHANGE#, DISABLE_CHANGE# FROM V$THREAD'
        " WHERE STATUS = 'OPEN' AND ENABLED <> 'DISABLED'",
    )
    online = query(
        connection, "SELECT GROUP#, THREAD#, SEQUENCE#, STATUS, FIRST_CHANGE#, NEXT_CHANGE#, BYTES FROM V$LOG"
    )
    members = query(connection, "SELECT GROUP#, MEMBER, STATUS FROM V$LOGFILE")
    archived = query(
        connection,
        "SELECT THREAD#, SEQUENCE#, RESETLOGS_ID, NAME, DEST_ID, STANDBY_DEST, STATUS, FIRST_CHANGE#, NEXT_CHANGE#,"
        " BLOCKS * BLOCK_SIZE FROM V$ARCHIVED_LOG",
    )
    views = redo_logs.LogViews(
        resetlogs_id=1_014_585_229,
        threads=[
            redo_logs.RedoThread(number, True, True, last, checkpoint, enabled, disabled)
            for number, last, checkpoint, enabled, disabled in threads
        ],
        online=[redo_logs.OnlineLog(*row) for row in online],
        members=[redo_logs.LogMember(*row) for row in members],
        archived=[
            redo_logs.ArchivedLog(thread, sequence, resetlogs, path, place, standby == "NO", status == "A", *rest)
            for thread, sequence, resetlogs, path, place, standby, status, *rest in archived
        ],
    )
    choice = redo_logs.choose_logs(views, start, end)
    assert (choice.end, choice.missing) == (end, ())
    with connection.cursor() as cursor:
        for nth, log in enumerate(choice.logs):
            options = "DBMS_LOGMNR.ADDFILE" if nth else "DBMS_LOGMNR.NEW"
            cursor.execute(f"BEGIN DBMS_LOGMNR.ADD_LOGFILE(LOGFILENAME => :1, OPTIONS => {options}); END;", [log.path])
        cursor.execute("BEGIN DBMS_LOGMNR.START_LOGMNR(STARTSCN => :1, ENDSCN => :2); END;", [start + 1, end])
    return query(connection, CONTENTS, start, end)


def tables_of(rows: list[tuple[object, ...]]) -> dict[int, Rows]:
    """The committed rows of each table, by object id and ROWID, made of mined rows in order."""
    tables: dict[int, Rows] = defaultdict(dict)
    open_rows: dict[bytes, list[tuple[LogRow, str]]] = defaultdict(list)
    text = ""
    for _, xid, code, is_undo, goes_on, object_id, row_id, rs_id, part in rows:
        text += part or ""
        if goes_on:
            continue
        row = LogRow(Operation(code), object_id, row_id, bool(is_undo), rs_id=rs_id)
        if row.operation in (Operation.COMMIT, Operation.ROLLBACK):
            committed = open_rows.pop(xid)
            if row.operation is Operation.COMMIT:
                for group in changes_left(each for each, _ in committed):
                    apply(tables[group.object_id], group.row_id, committed[group.nths[0]][1])
        else:
            open_rows[xid].append((row, text))
        text = ""
    return tables


def test_a_transaction_is_seen_from_its_commit_on(
    model: Model, orders: ModelTable, connection: oracledb.Connection
) -> None:
    transaction = model.begin()
    row_id = transaction.insert(orders, order(1))
    before = model.scn
    assert query(connection, "SELECT ID FROM SHOP.ORDERS") == []
    committed = transaction.commit()
    change = model.begin()
    change.update(orders, row_id, {"note": None})
    change.commit()

    assert query(connection, 'SELECT ID, "note", ROWID FROM SHOP.ORDERS') == [(1, None, row_id)]
    assert query(connection, 'SELECT "note" FROM SHOP.ORDERS AS OF SCN :1', committed) == [("it's",)]
    assert query(connection, "SELECT COUNT(*) FROM SHOP.ORDERS AS OF SCN :1", before) == [(0,)]


def test_rows_are_free_again_after_a_rollback_to_a_savepoint(model: Model, orders: ModelTable) -> None:
    first = model.begin()
    row_id = first.insert(orders, order(1))
    first.commit()
    undone = model.begin()
    savepoint = undone.savepoint()
    undone.update(orders, row_id, {"note": "undone"})
    undone.insert(orders, order(2))
    undone.roll_back_to(savepoint)
    assert not orders.pending

    other = model.begin()
    other.update(orders, row_id, {"note": "kept"})
    undone.commit()
    other.commit()
    assert orders.at(model.scn) == {row_id: order(1, "kept")}
    assert not orders.pending


def test_undo_that_is_gone_and_scns_of_tomorrow_are_errors(
    model: Model, orders: ModelTable, connection: oracledb.Connection
) -> None:
    model.undo_from = model.scn
    with pytest.raises(oracledb.DatabaseError, match="ORA-01555"):
        query(connection, "SELECT * FROM SHOP.ORDERS AS OF SCN :1", model.scn - 1)
    with pytest.raises(oracledb.DatabaseError, match="ORA-08181"):
        query(connection, "SELECT * FROM SHOP.ORDERS AS OF SCN :1", model.scn + 2)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("SELECT SCN FROM V$LOGMNR_CONTENTS", 1306),
        ("BEGIN DBMS_LOGMNR.END_LOGMNR; END;", 1307),
        ("BEGIN DBMS_LOGMNR.START_LOGMNR(STARTSCN => 1, ENDSCN => 2); END;", 1292),
        ("BEGIN DBMS_LOGMNR.ADD_LOGFILE(LOGFILENAME => '/none', OPTIONS => DBMS_LOGMNR.NEW); END;", 1284),
        ("SELECT * FROM SHOP.NONE", 942),
        ("SELECT NONE FROM SHOP.ORDERS", 904),
        ("SELEC", 900),
    ],
)
def test_errors_are_those_of_the_server(
    statement: str, code: int, orders: ModelTable, connection: oracledb.Connection
) -> None:
    with pytest.raises(oracledb.DatabaseError, match=f"ORA-{code:05}"):
        connection.cursor().execute(statement)


def test_a_log_is_added_once_and_none_may_lack(
    model: Model, orders: ModelTable, connection: oracledb.Connection
) -> None:
    start = model.scn
    for number in range(3):
        transaction = model.begin()
        transaction.insert(orders, order(number))
        transaction.commit()
        model.switch_logs()
    add = "BEGIN DBMS_LOGMNR.ADD_LOGFILE(LOGFILENAME => :1, OPTIONS => DBMS_LOGMNR.{}); END;"
    with connection.cursor() as cursor:
        cursor.execute(add.format("NEW"), ["/archive1/1_1_1014585229.arc"])
        with pytest.raises(oracledb.DatabaseError, match="ORA-01289"):
            cursor.execute(add.format("ADDFILE"), ["/archive1/1_1_1014585229.arc"])
        cursor.execute(add.format("ADDFILE"), ["/archive1/1_3_1014585229.arc"])
        with pytest.raises(oracledb.DatabaseError, match="ORA-01291"):
            cursor.execute("BEGIN DBMS_LOGMNR.START_LOGMNR(STARTSCN => :1, ENDSCN => :2); END;", [start, model.scn])


def test_a_text_above_four_thousand_bytes_goes_on_in_further_rows(
    model: Model, orders: ModelTable, connection: oracledb.Connection
) -> None:
    start = model.scn
    transaction = model.begin()
    row_id = transaction.insert(orders, order(1, "é" * 3_000))
    transaction.commit()
    rows = mine(connection, start, model.scn)
    assert [row[4] for row in rows] == [0, 1, 0, 0]  # CSF: the insert has two rows
    assert tables_of(rows)[orders.object_id] == {row_id: order(1, "é" * 3_000)}


STEPS = st.lists(
    st.sampled_from(
        [
            "begin",
            "insert",
            "insert",
            "update",
            "update",
            "delete",
            "savepoint",
            "back",
            "commit",
            "abort",
            "switch",
            "mine",
        ]
    ),
    max_size=60,
)


@settings(max_examples=8, deadline=None)
@given(steps=STEPS, chance=st.randoms(use_true_random=False))
def test_whatever_the_transactions_and_windows_are_the_redo_makes_the_tables(
    steps: list[str], chance: random.Random
) -> None:
    """Several open transactions, savepoints, log switches, and windows that end anywhere."""
    model = Model()
    tables = [model.create("SHOP", name, COLUMNS) for name in ("ORDERS", "Odd 'name'")]
    with listening(ModelDatabase(model, {"C##HEADWATER": "secret"})) as listener, connect(listener) as connection:
        traffic = Traffic(model, tables, chance)
        mined: list[tuple[object, ...]] = []
        done = model.scn
        for step in [*steps, "mine"]:
            if step == "mine":
                mined += mine(connection, done, model.scn) if model.scn > done else []
                done = model.scn
            else:
                traffic.take(step)
        found = tables_of(mined)
        assert {table.object_id: found.get(table.object_id, {}) for table in tables} == {
            table.object_id: table.at(done) for table in tables
        }


@pytest.mark.parametrize("seed", range(3))
def test_windows_that_follow_each_other_have_each_row_once(seed: int) -> None:
    """Sessions as Debezium begins them, at the SCN before a window's first: the rows of (start, end] of all windows are the
    rows of the log, in their order. Commits of two threads share an SCN, and logs switch within windows."""
    chance = random.Random(seed)
    model = Model(threads=2)
    table = model.create("SHOP", "ORDERS", COLUMNS)
    begun = model.scn
    traffic = Traffic(model, [table], chance)
    for _ in range(60):
        traffic.take(chance.choice(["begin", "insert", "insert", "update", "delete", "savepoint", "back", "commit"]))
        if chance.random() < 0.1:
            model.switch_logs(chance.choice([1, 2, None]))
        if chance.random() < 0.2:
            pair = [model.begin(thread=thread) for thread in (1, 2)]
            for nth, transaction in enumerate(pair):
                transaction.insert(table, order(10_000 + model.scn * 2 + nth))
            model.commit_together(pair)
    ends = sorted({model.scn, *(chance.randrange(begun + 1, model.scn) for _ in range(15))})
    with listening(ModelDatabase(model, {"C##HEADWATER": "secret"})) as listener, connect(listener) as connection:
        whole = mined(connection, model, begun, begun, model.scn)
        parts = [
            mined(connection, model, chance.randrange(begun, start + 1), start, end)
            for start, end in itertools.pairwise([begun, *ends])
        ]
    assert len(whole) == len({(row[0], row[7]) for row in whole}) == len(model.redo)
    assert [row for part in parts for row in part] == whole


def mined(connection: oracledb.Connection, model: Model, begin: int, start: int, end: int) -> list[tuple[object, ...]]:
    """The rows of (start, end] of a session that begins at an SCN before them."""
    paths = [
        log.archived_path() if log.is_archived else log.path()
        for thread in model.threads
        for log in thread.logs
        if (log.next_scn is None or log.next_scn > begin) and log.first_scn <= end
    ]
    with connection.cursor() as cursor:
        for nth, path in enumerate(paths):
            options = "DBMS_LOGMNR.ADDFILE" if nth else "DBMS_LOGMNR.NEW"
            cursor.execute(f"BEGIN DBMS_LOGMNR.ADD_LOGFILE(LOGFILENAME => :1, OPTIONS => {options}); END;", [path])
        cursor.execute("BEGIN DBMS_LOGMNR.START_LOGMNR(STARTSCN => :1, ENDSCN => :2); END;", [begin, end])
        return list(cursor.execute(CONTENTS, [start, end]))
