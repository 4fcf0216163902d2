"""The model's redo: recorded sequences of LOBs, sessions that cut them, threads, incarnations and lost logs."""

import itertools
import json
import random
from pathlib import Path

import pytest

from libs.oracle.large_values import assembled, read_lob_locator, read_lob_write
from libs.oracle.log_rows import NO_ROW_ID, LogRow, Operation
from libs.oracle.redo_values import Expression
from libs.oracle.undo import changes_left
from libs.stand_ins.oracle.answers import Column, OracleError, OracleType
from libs.stand_ins.oracle.logminer import OPTIONS, LogMiner
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.redo import PLACED
from libs.stand_ins.oracle.tables import ModelTable

SEQUENCES = json.loads((Path(__file__).parents[2] / "golden/oracle/lob_sequences.json").read_text())["sequences"]
LETTERS = {
    Operation.INSERT: "I",
    Operation.UPDATE: "U",
    Operation.DELETE: "D",
    Operation.LOB_LOCATOR: "S",
    Operation.LOB_WRITE: "L",
    PLACED: "N",
}
SMALL, LARGE = "before", "l" * 3_000
FILES = (
    Column("ID", OracleType.NUMBER, 22, 9, 0),
    Column("NM"),
    Column("LOB0", OracleType.CLOB),
    Column("LOB1", OracleType.BLOB),
)


@pytest.fixture
def model() -> Model:
    return Model(threads=2)


@pytest.fixture
def files(model: Model) -> ModelTable:
    return model.create("SHOP", "FILES", FILES, key=["ID"])


def mine(model: Model, start: int, end: int, options: int = 0) -> list[dict[str, object]]:
    """Every row of all logs."""
    miner = LogMiner(model)
    for thread in model.threads:
        for log in thread.logs:
            if log.incarnation is model.incarnations[-1]:
                path = log.archived_path() if log.is_overwritten else log.path()
                miner.call("ADD_LOGFILE", {"LOGFILENAME": path})
    miner.call("START_LOGMNR", {"STARTSCN": start, "ENDSCN": end, "OPTIONS": options})
    table = miner.contents()
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


def sequence(rows: list[dict[str, object]]) -> str:
    """In the words of the recordings, with each place where the content of a LOB goes on left out."""
    words: list[str] = []
    for row in rows:
        operation = Operation(row["OPERATION_CODE"])
        if operation in LETTERS:
            place = "-" if row["ROW_ID"] == NO_ROW_ID else "B"
            column = f"({read_lob_locator(str(row['SQL_REDO'])).column})" if operation is Operation.LOB_LOCATOR else ""
            words.append(f"{'!' * int(str(row['ROLLBACK']))}{LETTERS[operation]}{column}:{place}")
    return " ".join(word for word, _ in itertools.groupby(words))


@pytest.mark.parametrize("number", ["1", "2", "3", "6", "7", "8", "19"])
def test_lobs_have_the_sequences_that_were_recorded(number: str, model: Model, files: ModelTable) -> None:
    transaction = model.begin()

    def insert(clob: str | None) -> str:
        return transaction.insert(files, {"ID": 1, "LOB0": clob})

    match number:
        case "1" | "2" | "3":
            savepoint = transaction.savepoint()
            insert({"1": None, "2": "", "3": "undone"}[number])
        case "6":
            row_id = insert(None)
            savepoint = transaction.savepoint()
            transaction.update(files, row_id, {"NM": "undone"})
        case _:
            row_id = insert(SMALL)
            savepoint = transaction.savepoint()
            transaction.update(files, row_id, {"LOB0": {"7": "", "8": "undone", "19": LARGE}[number]})
    transaction.roll_back_to(savepoint)
    transaction.commit()
    assert sequence(mine(model, 1, model.scn)) == SEQUENCES[number].replace("/ ", "")


@pytest.mark.parametrize("value", [SMALL, LARGE, "😀" * 2_500, b"\1" * 10_000, "", b"", None, "é'"])
def test_the_rows_of_a_lob_make_its_value(value: str | bytes | None, model: Model, files: ModelTable) -> None:
    name = "LOB1" if isinstance(value, bytes) else "LOB0"
    transaction = model.begin()
    row_id = transaction.insert(files, {"ID": 1, name: value})
    transaction.update(files, row_id, {"LOB1": b"other", "LOB0": "other"})
    transaction.update(files, row_id, {"NM": "x", name: value})
    transaction.commit()
    rows = [row for row in mine(model, 1, model.scn) if row["OPERATION_CODE"] not in (6, 7)]
    groups = changes_left(log_row(row) for row in rows)
    assert [(group.operation, group.row_id) for group in groups] == [
        (Operation.INSERT, row_id),
        (Operation.UPDATE, row_id),
        (Operation.UPDATE, row_id),
    ]
    writes = [rows[nth] for nth in groups[-1].nths if rows[nth]["OPERATION_CODE"] == Operation.LOB_WRITE]
    if writes:
        empty = Expression("EMPTY_BLOB()" if isinstance(value, bytes) else "EMPTY_CLOB()")
        assert assembled(empty, [read_lob_write(str(row["SQL_REDO"])) for row in writes]) == value


def log_row(row: dict[str, object]) -> LogRow:
    operation = Operation(row["OPERATION_CODE"])
    return LogRow(
        operation,
        int(str(row["DATA_OBJ#"])),
        None if row["ROW_ID"] == NO_ROW_ID else str(row["ROW_ID"]),
        bool(row["ROLLBACK"]),
        int(str(row["SEQUENCE#"])),
        str(row["RS_ID"]),
        read_lob_locator(str(row["SQL_REDO"])).column if operation is Operation.LOB_LOCATOR else "",
    )


def test_random_changes_of_lobs_and_savepoints_leave_the_committed_groups(model: Model, files: ModelTable) -> None:
    """Undo takes whole groups, with any LOBs in them."""
    chance = random.Random(1)
    values = {"LOB0": [None, "", SMALL, LARGE], "LOB1": [None, b"", b"\1", b"\2" * 5_000], "NM": [None, "a", "b"]}
    for number in range(60):
        transaction = model.begin(thread=1 + number % 2)
        savepoints, kept = [(0, 0)], 0
        expected: list[tuple[Operation, str]] = []
        begin = model.scn
        for _ in range(chance.randrange(1, 12)):
            given = {name: chance.choice(each) for name, each in values.items()}
            here = list(transaction.seen(files))
            match chance.choice(["insert", "update", "update", "delete", "savepoint", "back"]):
                case "insert":
                    kept += 1
                    row_id = transaction.insert(files, {"ID": number * 100 + kept, **given})
                    expected.append((Operation.INSERT, row_id))
                case "update" if here:
                    row_id = chance.choice(here)
                    before = files.row(row_id)
                    if any(before[name] != value for name, value in given.items()):
                        transaction.update(files, row_id, given)
                        expected.append((Operation.UPDATE, row_id))
                case "delete" if here:
                    row_id = chance.choice(here)
                    transaction.delete(files, row_id)
                    expected.append((Operation.DELETE, row_id))
                case "savepoint":
                    savepoints.append((transaction.savepoint(), len(expected)))
                case "back":
                    place, count = savepoints[-1]
                    transaction.roll_back_to(place)
                    del expected[count:]
        if transaction.commit() is None:
            continue
        rows = [log_row(row) for row in mine(model, begin + 1, model.scn) if row["OPERATION_CODE"] not in (6, 7)]
        assert [(group.operation, group.row_id) for group in changes_left(rows)] == expected


def test_a_session_that_cuts_a_lob_statement_loses_its_rows(model: Model, files: ModelTable) -> None:
    """The one that ends inside has none of them; the one that begins inside has neither locators nor writes."""
    begin = model.scn
    transaction = model.begin()
    transaction.insert(files, {"ID": 1, "LOB0": LARGE, "LOB1": b"\1"})
    transaction.commit()
    assert sequence(mine(model, begin + 1, model.scn)) == "I:- S(LOB0):- L:- U:B"
    for cut in range(begin + 1, model.scn - 1):
        assert sequence(mine(model, begin + 1, cut)) == ""
        assert sequence(mine(model, cut + 1, model.scn)) in (("I:- S(LOB0):- L:- U:B", "U:B")[cut > begin + 1],)


def test_commits_of_two_threads_share_an_scn(model: Model, files: ModelTable) -> None:
    transactions = [model.begin(thread=thread) for thread in (1, 2)]
    for number, transaction in enumerate(transactions):
        transaction.insert(files, {"ID": number})
    scn = model.commit_together(transactions)
    commits = [row for row in mine(model, 1, model.scn) if row["OPERATION_CODE"] == Operation.COMMIT]
    assert [(row["SCN"], row["THREAD#"]) for row in commits] == [(scn, 1), (scn, 2)]
    assert len(files.at(scn)) == 2
    assert not files.at(scn - 1)


def test_committed_data_only_gives_whole_transactions_by_their_commits(model: Model, files: ModelTable) -> None:
    first, second, third = model.begin(), model.begin(), model.begin()
    first.insert(files, {"ID": 1})
    second.insert(files, {"ID": 2})
    third.insert(files, {"ID": 3})
    second_scn, first_scn = second.commit(), first.commit()
    third.roll_back()
    rows = mine(model, 1, model.scn, OPTIONS["COMMITTED_DATA_ONLY"])
    assert [(row["COMMIT_SCN"], row["OPERATION"]) for row in rows] == [
        (scn, operation) for scn in (second_scn, first_scn) for operation in ("START", "INSERT", "COMMIT")
    ]


def test_committed_data_only_has_no_change_that_was_rolled_back_to_a_savepoint(model: Model, files: ModelTable) -> None:
    transaction = model.begin()
    transaction.insert(files, {"ID": 1})
    savepoint = transaction.savepoint()
    row_id = transaction.insert(files, {"ID": 2, "LOB0": LARGE, "LOB1": b"\1"})
    transaction.update(files, row_id, {"ID": 3})
    transaction.roll_back_to(savepoint)
    transaction.insert(files, {"ID": 4})
    transaction.commit()
    undone = model.begin()
    undone.insert(files, {"ID": 5})
    undone.roll_back_to(0)
    undone.commit()
    rows = mine(model, 1, model.scn, OPTIONS["COMMITTED_DATA_ONLY"])
    assert sum(row["ROLLBACK"] for row in mine(model, 1, model.scn)) == 3
    assert [row["OPERATION"] for row in rows] == ["START", "INSERT", "INSERT", "COMMIT", "START", "COMMIT"]
    assert [text for row in rows if (text := row["SQL_REDO"]).startswith("insert")] == [
        row["SQL_REDO"] for row in mine(model, 1, model.scn) if row["SCN"] in (rows[1]["SCN"], rows[2]["SCN"])
    ]


def test_two_pluggable_databases_may_have_one_xid_at_once() -> None:
    model = Model(pdb="SALES")
    ours = model.create("SHOP", "FILES", FILES, key=["ID"])
    theirs = ModelTable(ours.named, 90_000, data_object_id=90_000)
    transaction = model.begin()
    transaction.insert(ours, {"ID": 1})
    other = model.begin(like=transaction)
    other.insert(theirs, {"ID": 2})
    other.commit()
    transaction.insert(ours, {"ID": 3})
    transaction.commit()
    rows = mine(model, 1, model.scn)
    assert len({row["XID"] for row in rows}) == 1
    assert [row["OPERATION"] for row in rows if row["SRC_CON_NAME"] == "SALES"] == [
        "START",
        "INSERT",
        "INSERT",
        "COMMIT",
    ]
    assert [row["OPERATION"] for row in rows if row["SRC_CON_NAME"] == "OTHER"] == ["START", "INSERT", "COMMIT"]
    assert len(ours.at(model.scn)) == 2


def test_threads_open_and_close(model: Model, files: ModelTable) -> None:
    opened = model.open_thread()
    transaction = model.begin(thread=opened.number)
    transaction.insert(files, {"ID": 1})
    transaction.commit()
    model.close_thread(opened.number)
    closed = model.scn
    other = model.begin()
    other.insert(files, {"ID": 2})
    other.commit()
    assert (opened.is_open, opened.checkpoint_scn) == (False, closed)
    assert [row["THREAD#"] for row in mine(model, 1, model.scn) if row["OPERATION_CODE"] == 1] == [3, 1]


def test_reset_logs_takes_back_and_begins_with_sequence_one(model: Model, files: ModelTable) -> None:
    kept = model.begin()
    kept.insert(files, {"ID": 1})
    scn = kept.commit()
    lost = model.begin()
    lost.insert(files, {"ID": 2})
    lost.commit()
    incarnation = model.reset_logs(scn)
    after = model.begin()
    after.insert(files, {"ID": 3})
    after.commit()
    assert [row["ID"] for row in files.at(model.scn).values()] == [1, 3]
    assert {log.sequence for thread in model.threads for log in thread.logs[-1:]} == {1}
    assert [row["OPERATION"] for row in mine(model, incarnation.resetlogs_scn, model.scn)] == [
        "START",
        "INSERT",
        "COMMIT",
    ]


def test_logs_that_vanish_are_errors(model: Model, files: ModelTable) -> None:
    thread = model.thread
    thread.destinations, thread.members = 2, 2
    start = model.scn
    for number in range(4):
        transaction = model.begin()
        transaction.insert(files, {"ID": number})
        transaction.commit()
        model.switch_logs(1)
    first = thread.logs[0]
    miner = LogMiner(model)
    miner.call("ADD_LOGFILE", {"LOGFILENAME": first.archived_path(1)})
    end = first.next_scn
    assert end is not None
    miner.call("START_LOGMNR", {"STARTSCN": start, "ENDSCN": end - 1})
    first.deleted_from.add(1)
    assert miner.contents().rows  # it is in the other destination
    first.deleted_from.add(2)
    for call, code in (
        (miner.contents, 310),
        (lambda: LogMiner(model).call("ADD_LOGFILE", {"LOGFILENAME": first.archived_path(1)}), 1284),
    ):
        with pytest.raises(OracleError) as raised:
            call()
        assert raised.value.code == code
    thread.invalid.add(thread.current.path(1))
    with pytest.raises(OracleError, match="ORA-01368"):
        LogMiner(model).call("ADD_LOGFILE", {"LOGFILENAME": thread.current.path(1)})
    LogMiner(model).call("ADD_LOGFILE", {"LOGFILENAME": thread.current.path(2)})


@pytest.mark.parametrize(
    ("options", "start", "end", "code"),
    [
        (OPTIONS["CONTINUOUS_MINE"], 1, 1_000_000, 44609),
        (OPTIONS["DICT_FROM_REDO_LOGS"], 1, 1_000_000, 1371),
        (0, 1, 1_000_001, 1281),
        (0, 2, 1, 1281),
    ],
)
def test_sessions_are_refused_as_by_the_server(options: int, start: int, end: int, code: int, model: Model) -> None:
    with pytest.raises(OracleError) as raised:
        mine(model, start, end, options)
    assert raised.value.code == code
