"""Committed transactions as the runs of a batch: events, their order, rows that cannot be read, and where a batch is cut."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import pytest

from libs.errors import UndecodableValue
from libs.events.batch import (
    OP_CREATE,
    OP_DELETE,
    OP_KEY_CHANGE_CREATE,
    OP_KEY_CHANGE_DELETE,
    OP_UPDATE,
    BatchIdentity,
)
from libs.events.dead_letter import decode_undecoded_row
from libs.oracle.log_rows import NO_ROW_ID, Operation
from libs.oracle.logical import column
from libs.source.failure_policy import FailureHandling
from libs.source.port import ReadBatch
from libs.types.table import TableId, TableSchema
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch, TransactionBoundary
from services.logminer_reader.decode import TransactionDecoder
from services.logminer_reader.gather import Gatherer
from services.logminer_reader.log_steps import Committed
from services.logminer_reader.mined_rows import MinedRow
from services.logminer_reader.transactions import OpenTransactions

XID = bytes.fromhex("0a00070084220000")
ORDERS = 7
OTHERS = 8
NOT_CAPTURED = 9
INSERT, UPDATE, DELETE = Operation.INSERT, Operation.UPDATE, Operation.DELETE


def schema(name: str, version: int = 3) -> TableSchema:
    """INTCOL# 3 is of an unused column."""
    columns = ((1, "ID", "NUMBER(9,0)"), (2, "NM", "VARCHAR2(4000)"), (4, "DOC", "CLOB"))
    return TableSchema(
        table_id=TableId(database="SHOP", table=name),
        columns=tuple(
            msgspec.structs.replace(column(name, kind, charset="AL32UTF8"), number=number)
            for number, name, kind in columns
        ),
        key=("ID",),
        version=version,
    )


class Schemas:
    """The numbers ``ORDERS`` and ``OTHERS``; version 2 of ``ORDERS`` has another schema."""

    def schema_of(self, object_id: int, object_version: int) -> TableSchema | None:
        match object_id:
            case 7:
                return schema("ORDERS", object_version + 2)
            case 8:
                return schema("OTHERS")
        return None

    def note_object(self, object_id: int, owner: str, table: str) -> bool:
        return False


class Row(NamedTuple):
    """A row of the log."""

    operation: Operation
    sql: str
    object_id: int = ORDERS
    row_id: str = "AAAR3sAAEAAAACXAAA"
    object_version: int = 1
    is_undo: bool = False


def insert(number: int, name: str = "'a'", object_id: int = ORDERS) -> Row:
    """A row without a document."""
    return Row(INSERT, f"""insert into "SHOP"."ORDERS"("ID","NM","DOC") values ('{number}',{name},NULL);""", object_id)


def change(number: int, assignment: str) -> Row:
    """An UPDATE of a row named a."""
    return Row(UPDATE, f"""update "SHOP"."ORDERS" set {assignment} where "ID" = '{number}' and "NM" = 'a';""")


def delete(number: int) -> Row:
    """Of a row named a."""
    return Row(DELETE, f"""delete from "SHOP"."ORDERS" where "ID" = '{number}' and "NM" = 'a';""")


LOCATOR = (
    "DECLARE \n loc_c CLOB; \n buf_c VARCHAR2(6174); \n loc_b BLOB; \n buf_b RAW(6174); \n loc_nc NCLOB; \n"
    ' buf_nc NVARCHAR2(6174); \nBEGIN\n select "DOC" into loc_c from "SHOP"."ORDERS" where "ID" = \'1\' for update;'
)
ASSEMBLED = (
    Row(INSERT, """insert into "SHOP"."ORDERS"("ID","NM","DOC") values ('1','a',EMPTY_CLOB());""", row_id=NO_ROW_ID),
    Row(Operation.LOB_LOCATOR, LOCATOR, row_id=NO_ROW_ID),
    Row(Operation.LOB_WRITE, " buf_c := 'text'; \n  dbms_lob.write(loc_c, 4, 1, buf_c);\n", row_id=NO_ROW_ID),
    Row(UPDATE, """update "SHOP"."ORDERS" set "DOC" = EMPTY_CLOB() where "ID" = '1';"""),
)


class Event(NamedTuple):
    """An event, and its number in the transaction's order."""

    ordinal: int
    op: int
    key: Any
    value: Any


@dataclass
class Gathered:
    """The batches and signals of a transaction."""

    batches: list[ReadBatch]
    signals: list[tuple[object, ...]] = field(default_factory=list)
    counted: int = 0

    def entries(self) -> list[Any]:
        """Of all batches."""
        return [entry for batch in self.batches for entry in ChangeBatch.FromString(batch.payload).entries]

    def runs(self) -> list[list[Event]]:
        """The events of each run."""
        return [
            [
                Event(entry.run.first_tx_ordinal + nth, *event)
                for nth, event in enumerate(
                    zip(entry.run.ops, map(json.loads, entry.run.keys), map(json.loads, entry.run.values), strict=True)
                )
            ]
            for entry in self.entries()
            if entry.HasField("run")
        ]

    def events(self) -> list[Event]:
        """Of all runs."""
        return [event for run in self.runs() for event in run]


def gathered(
    *rows: Row,
    unavailable: str | None = "?",
    handling: FailureHandling = FailureHandling.DEAD_LETTER,
    signal_table: str | None = None,
    transaction_metadata: bool = False,
) -> Gathered:
    """A transaction, decoded; each row has an SCN of its own."""
    identity = BatchIdentity(source="ora", source_partition="0", connector="oracle", run_id="r", fencing_token=1)
    gatherer = Gatherer("ora", handling, identity)
    decoder = TransactionDecoder(
        "ora",
        "PDB",
        Schemas(),
        gatherer,
        {},
        epoch=1,
        unavailable=unavailable,
        signal_table=signal_table,
        transaction_metadata=transaction_metadata,
    )
    found = Gathered([gatherer.take(None) for _ in decoder.gather_or_leave_out(committed(rows))])
    found.batches.append(gatherer.take(None))
    found.signals, found.counted = decoder.taken_signals(), decoder.events
    return found


def committed(rows: Sequence[Row]) -> Committed:
    """The transaction of these rows."""
    transactions = OpenTransactions(None, memory_bytes=1 << 30)
    for nth, row in enumerate(rows):
        transactions.add(
            MinedRow(
                scn=100 + nth,
                xid=XID,
                thread=2,
                rs_id=f" 0x000001.{nth:08x}.0010 ",
                ssn=5,
                operation=row.operation.value,
                is_undo=int(row.is_undo),
                goes_on=0,
                status=0,
                object_id=row.object_id,
                object_version=row.object_version,
                row_id=row.row_id,
                timestamp=datetime(2026, 1, 1),
                user="APP",
                sequence=2,
                owner="SHOP",
                table="ORDERS",
                info=None,
                sql=row.sql,
            )
        )
    transaction = transactions.ended(XID, 1_000)
    assert transaction is not None
    return Committed(transaction, 1_000, 1, 1_800_000_000_000_000, None)


def test_changes_of_a_transaction_are_events_in_the_order_of_the_log() -> None:
    found = gathered(insert(1), insert(1, object_id=NOT_CAPTURED), change(1, "\"NM\" = 'b'"), delete(1))

    row = {"ID": 1, "NM": "a", "DOC": None}
    known = {**row, "DOC": "?"}
    assert [(event.ordinal, event.op, event.key) for event in found.events()] == [
        (1, OP_CREATE, {"ID": 1}),
        (2, OP_UPDATE, {"ID": 1}),
        (3, OP_DELETE, {"ID": 1}),
    ]
    assert [(event.value["before"], event.value["after"], event.value["op"]) for event in found.events()] == [
        (None, row, "c"),
        (known, {**known, "NM": "b"}, "u"),
        (known, None, "d"),
    ]
    assert found.counted == 3


def test_an_event_names_its_row_of_the_log_and_its_transaction() -> None:
    [_, event] = gathered(insert(1), insert(2)).events()

    source = event.value["source"]
    assert (source["db"], source["schema"], source["table"]) == ("PDB", "SHOP", "ORDERS")
    assert (source["txId"], source["start_scn"], source["scn"], source["commit_scn"]) == (
        XID.hex(),
        "100",
        "101",
        "1000",
    )
    assert (source["rs_id"], source["ssn"], source["redo_thread"]) == ("0x000001.00000001.0010", 5, 2)
    assert (source["row_id"], source["user_name"], source["txSeq"]) == ("AAAR3sAAEAAAACXAAA", "APP", 2)
    assert (source["ts_us"], source["commit_ts_ms"]) == (1_767_225_600_000_000, 1_800_000_000_000)


def test_a_new_key_is_a_delete_and_a_create() -> None:
    """Fault 33: one change of the log, and two places in the order."""
    events = gathered(change(1, "\"ID\" = '2'"), delete(2)).events()

    assert [(event.ordinal, event.op, event.key["ID"], event.value["source"]["txSeq"]) for event in events] == [
        (1, OP_KEY_CHANGE_DELETE, 1, 1),
        (2, OP_KEY_CHANGE_CREATE, 2, 1),
        (3, OP_DELETE, 2, 2),
    ]


def test_a_change_of_several_rows_stands_between_its_neighbours() -> None:
    """Its rows are put together, theirs are decoded as they stand."""
    found = gathered(insert(7), *ASSEMBLED, insert(8))

    assert [(event.ordinal, event.value["after"]) for event in found.events()] == [
        (1, {"ID": 7, "NM": "a", "DOC": None}),
        (2, {"ID": 1, "NM": "a", "DOC": "text"}),
        (3, {"ID": 8, "NM": "a", "DOC": None}),
    ]
    assert [event.value["source"]["txSeq"] for event in found.events()] == [1, 2, 3]


def test_undo_leaves_no_events() -> None:
    rows = [insert(1), insert(2), Row(DELETE, "!", is_undo=True), insert(3)]

    assert [event.key["ID"] for event in gathered(*rows).events()] == [1, 3]


def test_columns_that_the_log_numbers_have_the_names_of_their_version() -> None:
    """Faults 29 and 31: column 3 was made unused, so DOC is still the fourth."""
    values = '"COL 1" = HEXTORAW(\'c109\') and "COL 2" = HEXTORAW(\'7465737435\') and "COL 3" IS NULL'

    [event] = gathered(Row(DELETE, f'delete from "UNKNOWN"."OBJ# 7" where {values};')).events()

    assert event.value["before"] == {"ID": 8, "NM": "test5", "DOC": "?"}


def test_a_run_has_rows_of_one_version_of_one_table() -> None:
    newer = insert(4)._replace(object_version=2)

    runs = gathered(insert(1), insert(2), insert(3, object_id=OTHERS), newer).runs()

    assert [[event.key["ID"] for event in run] for run in runs] == [[1, 2], [3], [4]]
    assert [run[0].ordinal for run in runs] == [1, 3, 4]


@pytest.mark.parametrize(("rows", "text"), [(9_000, "'a'"), (1_000, f"'{'x' * 3_900}'")])
def test_a_large_transaction_is_cut_into_batches(rows: int, text: str) -> None:
    """By rows, and by bytes; each event once."""
    found = gathered(*[insert(number, text) for number in range(rows)])

    assert [(event.ordinal, event.key["ID"]) for event in found.events()] == [(nth + 1, nth) for nth in range(rows)]
    assert len(found.batches) > 1
    assert all(sum(map(len, entry.run.values)) <= 510_000 for entry in found.entries())
    assert all(batch.rows <= 4_500 and len(batch.payload) <= 3_500_000 for batch in found.batches)


@pytest.mark.parametrize(
    ("bad", "column_name"),
    [
        (insert(2, "'uncl"), ""),
        (
            insert(2)._replace(sql="""insert into "SHOP"."ORDERS"("ID","NM","DOC") values ('one','secret',NULL);"""),
            "ID",
        ),
        (insert(2)._replace(sql="""insert into "SHOP"."ORDERS"("ID","GONE") values ('1','secret');"""), "GONE"),
        (Row(DELETE, """delete from "SHOP"."ORDERS" where "NM" = 'secret';"""), "ID"),
        (Row(Operation.UNSUPPORTED, "Unsupported"), ""),
        (Row(Operation.LOB_LOCATOR, "select secret", row_id="AAAR3sAAEAAAACXAAB"), ""),
    ],
)
def test_a_row_that_cannot_be_read_keeps_its_place(bad: Row, column_name: str) -> None:
    """The others have the order that they would have with it; the letter names its place, and its reason holds no value."""
    found = gathered(insert(1), bad, insert(3))

    [letter] = [decode_undecoded_row(letter) for batch in found.batches for letter in batch.dead_letters]
    assert [(event.ordinal, event.key["ID"]) for event in found.events()] == [(1, 1), (3, 3)]
    assert (letter.order.tx_ordinal, letter.column, letter.images) == (2, column_name, bad.sql.encode())
    assert (letter.position, letter.row, letter.file) == (101, 5, "thread 2, RS_ID 0x000001.00000001.0010")
    assert "secret" not in letter.reason and "SHOP.ORDERS" in letter.reason and XID.hex() in letter.reason
    with pytest.raises(UndecodableValue, match="SCN 101"):
        gathered(insert(1), bad, insert(3), handling=FailureHandling.FAIL)


def test_a_value_that_the_log_lacks_is_never_null() -> None:
    """Fault 21: neither of an UPDATE, nor of a LOB of which the log has a piece alone."""
    piece = " buf_c := 'x'; \n  dbms_lob.write(loc_c, 1, 9, buf_c);\n"
    of_a_lob = (
        Row(Operation.LOB_LOCATOR, LOCATOR.replace("'1'", "'1' and \"NM\" = 'a'")),
        Row(Operation.LOB_WRITE, piece),
    )

    for rows in ((change(1, "\"NM\" = 'b'"),), of_a_lob):
        [event] = gathered(*rows).events()
        assert event.value["after"]["DOC"] == "?"
        with pytest.raises(UndecodableValue, match=r"values\.unavailable_placeholder"):
            gathered(*rows, unavailable=None, handling=FailureHandling.FAIL)


def test_a_transaction_that_contradicts_itself_is_left_out_row_by_row() -> None:
    found = gathered(insert(1), Row(DELETE, "!", row_id="AAAR3sAAEAAAACXAAB", is_undo=True))

    letters = [decode_undecoded_row(letter) for batch in found.batches for letter in batch.dead_letters]
    assert found.events() == []
    assert [letter.order.tx_ordinal for letter in letters] == [1, 2]
    assert found.counted == 2 and all("contradicts itself" in letter.reason for letter in letters)


def test_transaction_blocks_count_events_of_the_transaction_and_of_the_table() -> None:
    rows = [insert(1), change(1, "\"ID\" = '2'"), insert(3, object_id=OTHERS), insert(2, "'uncl"), insert(4)]

    found = gathered(*rows, transaction_metadata=True)

    blocks = [event.value["transaction"] for event in found.events()]
    assert {block["id"] for block in blocks} == {XID.hex()}
    assert [(block["total_order"], block["data_collection_order"]) for block in blocks] == [
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 1),
        (6, 4),
    ]
    first, *between, last = found.entries()
    assert first.transaction_boundary.status == TransactionBoundary.STATUS_BEGIN
    assert all(entry.HasField("run") for entry in between)
    assert last.transaction_boundary.status == TransactionBoundary.STATUS_END
    counts = [(each.table, each.events) for each in last.transaction_boundary.table_event_counts]
    assert counts == [("ORDERS", 4), ("OTHERS", 1)]


def test_rows_of_the_signal_table_are_signals_as_well() -> None:
    rows = [insert(1), insert(2, "'uncl"), delete(1), insert(3, "NULL", OTHERS)]

    found = gathered(*rows, signal_table="SHOP.ORDERS")

    assert found.signals == [("1", "a", None)]
    assert [event.key["ID"] for event in found.events()] == [1, 1, 3]
