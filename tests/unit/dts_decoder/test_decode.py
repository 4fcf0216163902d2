"""Entries to transactions to rows: repeats, ends, orders, places to resume at, and damage."""

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.errors import HeadwaterError, PipelineHalted, SchemaContradiction, UndecodableMessage, UndecodableValue
from libs.mysql.logical import column
from libs.types.table import TableId, TableSchema
from protos.dts import subscription_pb2 as pb
from services.dts_decoder.assembly import WholeMessage
from services.dts_decoder.found import RolledBack
from services.dts_decoder.position import DtsPosition
from services.dts_decoder.set_aside import SetAside
from tests.marks import examples
from tests.unit.dts_decoder.topic import (
    COLUMNS,
    TABLE,
    TOPIC,
    UUID,
    begin,
    checkpoint,
    commit,
    ddl,
    decode,
    dml,
    envelopes,
    header,
    heartbeat,
    insert,
    kafka_message,
    messages,
    number,
    rollback,
    text,
    whole,
)
from tests.unit.dts_decoder.topic import assembler as make_assembler

SCHEMA = TableSchema(
    table_id=TABLE,
    columns=(column("id", "int", is_optional=False), column("v", "varchar(20)", charset="utf8mb4")),
    key=("id",),
    version=3,
)


def ids(made: Any) -> list[int]:
    """Of the rows after the change."""
    return [value["after"]["id"] for _, _, value in made.rows]


def test_a_transaction_becomes_events_as_debezium_writes_them() -> None:
    """The envelope, with DTS's own count as the source block's sequence."""
    made = decode([whole(begin(), insert(7, position=120), commit(position=150))], schemas=[SCHEMA])

    [(table, op, value)] = made.rows
    assert (table, op) == ("shop.orders", "c")
    assert value["before"] is None
    assert value["after"] == {"id": 7, "v": "v7"}
    source = value["source"]
    assert (source["connector"], source["name"], source["db"], source["table"]) == ("dts", "shop", "shop", "orders")
    assert (source["file"], source["pos"], source["row"]) == ("mysql-bin.000005", 120, 0)
    assert (source["gtid"], source["server_id"], source["thread"]) == (f"{UUID}:1", 7, 42)
    assert (source["sequence"], source["ts_ms"]) == ("120", 1_700_000_000_000)
    assert made.orders == [(0, 1, 1)]


def test_entries_side_by_side_keep_their_own_places_times_and_operations() -> None:
    """Entries of one table are decoded in one go; their differences stand in each event, and another table between them,
    or another log file, is seen."""
    gone = pb.RowChange(oldColumns=[number(2), text("v2")])
    entries = [
        insert(1, 2, position=120),
        insert(3, position=130, seqId=2**63, timestamp=1_700_000_001),
        dml([gone], kind=pb.DML_TYPE_DELETE, position=140),
        insert(4, position=150, tableName="items"),
        insert(5, position=160),
        insert(6, position=4, fileName="mysql-bin.000006"),
    ]

    made = decode([whole(begin(), *entries, commit())], schemas=[SCHEMA])

    assert [
        (
            table,
            op,
            value["source"]["file"][-1],
            value["source"]["pos"],
            value["source"]["row"],
            value["source"]["sequence"],
        )
        for table, op, value in made.rows
    ] == [
        ("shop.orders", "c", "5", 120, 0, "120"),
        ("shop.orders", "c", "5", 120, 1, "120"),
        ("shop.orders", "c", "5", 130, 0, "9223372036854775808"),
        ("shop.orders", "d", "5", 140, 0, "140"),
        ("shop.items", "c", "5", 150, 0, "150"),
        ("shop.orders", "c", "5", 160, 0, "160"),
        ("shop.orders", "c", "6", 4, 0, "4"),
    ]
    times_s = [value["source"]["ts_ns"] // 1_000_000_000 for _, _, value in made.rows]
    assert times_s == [1_700_000_000 + (nth == 2) for nth in range(7)]
    assert made.orders == [(0, 1, ordinal) for ordinal in range(1, 8)]


def test_an_update_of_the_key_becomes_a_delete_and_a_create() -> None:
    """As Debezium does, so that a compacted topic forgets the old key."""
    row = pb.RowChange(oldColumns=[number(1), text("a")], newColumns=[number(2), text("a")])

    made = decode([whole(begin(), dml([row], kind=pb.DML_TYPE_UPDATE), commit())])

    assert [(op, value["op"]) for _, op, value in made.rows] == [("D", "d"), ("C", "c")]
    assert made.orders == [(0, 1, 1), (0, 1, 2)]


def test_a_key_that_the_row_after_lacks_did_not_change() -> None:
    """It is that of the row before."""
    row = pb.RowChange(oldColumns=[number(1), text("a")], newColumns=[pb.Data(dataType=pb.DATA_TYPE_NA), text("b")])

    made = decode([whole(begin(), dml([row], kind=pb.DML_TYPE_UPDATE), commit())])

    ((_, op, value),) = made.rows
    assert (op, value["after"]) == ("u", {"id": 1, "v": "b"})


def test_an_absent_value_is_unavailable_and_not_null() -> None:
    """NA and NIL are two things; an NA is the value of before, where the row before has it."""
    absent = pb.Data(dataType=pb.DATA_TYPE_NA)
    changes = [
        pb.RowChange(oldColumns=[number(1), before], newColumns=[number(1), after])
        for before, after in [(absent, absent), (text("a"), absent), (absent, pb.Data())]
    ]

    made = decode([whole(begin(), dml(changes, kind=pb.DML_TYPE_UPDATE), commit())])

    assert [value["after"]["v"] for _, _, value in made.rows] == ["__debezium_unavailable_value", "a", None]


@pytest.mark.parametrize("before", [[], [number(2), pb.Data(dataType=pb.DATA_TYPE_NA)]])
def test_an_absent_value_of_a_new_row_is_an_error(before: list[Any]) -> None:
    """There is no value of before that a reader could keep; an update of the key makes a new row as well."""
    row = pb.RowChange(oldColumns=before, newColumns=[number(1), pb.Data(dataType=pb.DATA_TYPE_NA)])
    kind = pb.DML_TYPE_UPDATE if before else pb.DML_TYPE_INSERT

    with pytest.raises(UndecodableValue, match=r"orders\.v: row 0: .*not in the message"):
        decode([whole(begin(), dml([row], kind=kind), commit())])


def test_transaction_metadata_is_told() -> None:
    """Numbers in the events, BEGIN and END beside them."""
    made = decode([whole(begin(), insert(1, 2), commit())], transaction_metadata=True)

    assert [value["transaction"]["total_order"] for _, _, value in made.rows] == [1, 2]
    kinds = [entry.WhichOneof("entry") for entry in made.batches[0].entries]
    assert kinds == ["transaction_boundary", "run", "transaction_boundary"]


# --- repeats -----------------------------------------------------------------------------------------------------------


def test_a_transaction_that_comes_again_is_dropped() -> None:
    """DTS delivers at least once: after a restart it begins further back."""
    first = [begin(1), insert(1), commit(1), begin(2), insert(2, gtid=2), commit(2)]
    again = [*first, begin(3), insert(3, gtid=3), commit(3)]

    made = decode(messages([*first, *again]))

    assert ids(made) == [1, 2, 3]
    assert made.orders == [(0, 1, 1), (0, 2, 1), (0, 3, 1)]
    assert made.decoder.progress.repeats == 2


def test_a_transaction_begun_again_in_its_middle_comes_once() -> None:
    """Its rows that were read are passed over, also where an entry holds several."""
    entries = [begin(1), insert(1, 2), insert(3), begin(1), insert(1, 2), insert(3, 4), commit(1)]

    made = decode(messages(entries))

    assert ids(made) == [1, 2, 3, 4]
    assert made.orders == [(0, 1, ordinal) for ordinal in (1, 2, 3, 4)]


def test_older_transactions_may_come_again_inside_an_open_one() -> None:
    """DTS restarts in the middle of transaction 2, from transaction 1 on."""
    entries = [
        *(begin(1), insert(1), commit(1), begin(2), insert(2, gtid=2)),
        *(begin(1), insert(1), commit(1), checkpoint(), begin(2), insert(2, 3, gtid=2), commit(2)),
    ]

    made = decode(messages(entries))

    assert ids(made) == [1, 2, 3]


def test_repeats_are_known_by_place_where_there_are_no_gtids() -> None:
    """By file and position of one server; a file of seven digits comes after one of six."""
    first = [begin(None, position=10), insert(1, gtid=None, position=20), commit(None, position=30)]
    turned = {"fileName": "mysql-bin.1000000"}
    later = [
        begin(None, position=4, **turned),
        insert(2, gtid=None, position=5, **turned),
        commit(None, position=6, **turned),
    ]
    before = {"fileName": "mysql-bin.999999"}
    old = [
        begin(None, position=40, **before),
        insert(9, gtid=None, position=41, **before),
        commit(None, position=42, **before),
    ]

    made = decode(messages([*old, *later, *old, *later]))

    assert ids(made) == [9, 2]
    assert first  # a file with fewer digits is older still
    assert ids(decode(messages([*first, *old, *first]))) == [1, 9]


def test_another_server_without_gtids_begins_a_new_epoch() -> None:
    """Its places say nothing about the old one's, so orders must grow otherwise."""
    switched = {"serverId": 8, "fileName": "mysql-bin.000001"}
    entries = [
        *(begin(None), insert(1, gtid=None), commit(None)),
        *(begin(None, **switched), insert(2, gtid=None, **switched), commit(None, **switched)),
    ]

    made = decode(messages(entries))

    assert made.orders == [(0, 1, 1), (1, 2, 1)]


def test_a_switch_of_the_server_with_gtids_keeps_the_order_growing() -> None:
    """Transactions of the new server follow; those that both hold come once."""
    other = "11111111-1111-1111-1111-111111111111"
    switched = {"serverId": 8, "fileName": "mysql-bin.000001", "gtid": f"{other}:1"}
    entries = [
        *(begin(5), insert(1, gtid=5), commit(5)),
        *(begin(5, serverId=8), insert(1, gtid=5), commit(5)),
        *(begin(**switched), insert(2, **switched), commit(**switched)),
    ]

    made = decode(messages(entries))

    assert ids(made) == [1, 2]
    assert made.orders == sorted(set(made.orders))


def test_holes_are_closed_one_checkpoint_late() -> None:
    """A partition holds some transactions only; the set of those that came must not grow without end."""
    entries = [
        begin(2),
        insert(2, gtid=2),
        commit(2),
        checkpoint(f"{UUID}:1-4"),
        begin(7),
        insert(7, gtid=7),
        commit(7),
    ]

    before = decode(messages(entries)).decoder.position.gtid_set
    after = decode(messages([*entries, checkpoint(f"{UUID}:1-9")])).decoder.position

    assert before == f"{UUID}:2:7"
    assert (after.gtid_set, after.synced_gtid_set) == (f"{UUID}:1-4:7", f"{UUID}:1-9")


# --- ends --------------------------------------------------------------------------------------------------------------


def test_rows_without_a_begin_are_a_transaction() -> None:
    """One GTID's entries belong together; any other entry ends it."""
    made = decode(messages([insert(1), insert(2), insert(3, gtid=2), heartbeat()]))

    assert made.orders == [(0, 1, 1), (0, 1, 2), (0, 2, 1)]
    assert made.decoder.is_between_transactions


def test_a_rolled_back_transaction_is_read_again_without_it() -> None:
    """Its rows may be with the publisher already: the topic is read from the checkpoint, and it is left out."""
    entries = [
        begin(1),
        insert(1),
        commit(1),
        begin(2),
        insert(2, gtid=2),
        rollback(2),
        begin(3),
        insert(3, gtid=3),
        commit(3),
    ]
    with pytest.raises(RolledBack) as raised:
        decode(messages(entries))

    made = decode(messages(entries), rolled_back=frozenset([raised.value.place]))

    assert ids(made) == [1, 3]


def test_a_transaction_that_never_ends_halts() -> None:
    """Its rest is missing: a new snapshot is the only way on."""
    with pytest.raises(PipelineHalted, match=r"has not ended.*re-snapshot"):
        decode(messages([begin(1), insert(1), begin(2)]))


def test_a_place_to_resume_at_lies_between_transactions_only() -> None:
    """At a message's end while a transaction is open, the place before it stands."""
    made = decode([whole(begin(1), insert(1), commit(1), begin(2), insert(2, gtid=2), offset=4)])

    assert not made.decoder.is_between_transactions
    assert (made.decoder.position.offset, made.decoder.position.entry) == (4, 3)


@given(st.data())
def test_a_replay_from_any_place_gives_the_same_rows_and_orders(data: Any) -> None:
    """However entries are merged into messages, and wherever reading broke off."""
    transactions = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    entries: list[pb.Entry] = []
    row = itertools.count()
    for gtid, rows in enumerate(transactions, 1):
        entries += [begin(gtid), *(insert(next(row), gtid=gtid) for _ in range(rows)), commit(gtid)]
        if data.draw(st.booleans()):
            entries.append(heartbeat())
    stream = list(_merged(entries, data))
    all_of_it = decode(stream)

    rows_done = 0
    for stop in range(len(stream) + 1):
        first = decode(stream[:stop])
        if not first.decoder.is_between_transactions:
            continue
        position = msgspec.structs.replace(first.decoder.position)
        rest = decode(stream[stop:], position=position, rank=first.decoder.progress.last_order.rank)
        assert ids(first) + ids(rest) == ids(all_of_it)
        assert first.orders + rest.orders == all_of_it.orders
        rows_done = len(ids(first))
    assert rows_done == len(ids(all_of_it))


def _merged(entries: Sequence[pb.Entry], data: Any) -> Any:
    offset = 0
    place = 0
    while place < len(entries):
        count = data.draw(st.integers(1, 4))
        yield whole(*entries[place : place + count], offset=offset)
        place += count
        offset += 1


def test_resuming_inside_a_message_passes_over_what_is_done() -> None:
    """Entries of one message belong to several transactions."""
    message = whole(
        begin(1), insert(1), commit(1), begin(None), insert(2, gtid=None, position=200), commit(None), offset=4
    )
    position = DtsPosition(topic=TOPIC, partition=0, offset=4, entry=3, ps=4)

    assert ids(decode([message], position=position)) == [2]


# --- schemas -----------------------------------------------------------------------------------------------------------


def test_a_statement_is_handed_out_before_what_is_behind_it() -> None:
    """And counts as a transaction of its own."""
    made = decode(
        messages(
            [
                begin(1),
                insert(1),
                commit(1),
                ddl("ALTER TABLE orders ADD c INT", 2),
                begin(3),
                insert(3, gtid=3),
                commit(3),
            ]
        )
    )

    assert made.statements == ["ALTER TABLE orders ADD c INT"]
    assert made.orders == [(0, 1, 1), (0, 3, 1)]


def test_a_repeated_statement_is_dropped() -> None:
    """Applying it twice would be wrong."""
    made = decode(messages([ddl("DROP TABLE x", 2), ddl("DROP TABLE x", 2)]))

    assert made.statements == ["DROP TABLE x"]


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param(COLUMNS[:1], id="fewer"),
        pytest.param((COLUMNS[1], COLUMNS[0]), id="another-order"),
        pytest.param((COLUMNS[0], pb.Column(name="v", originalType="int(11)")), id="another-type"),
        pytest.param((COLUMNS[0], pb.Column(name="w", originalType="varchar(20)")), id="another-name"),
        pytest.param((COLUMNS[0], pb.Column(name="v", originalType="no type")), id="no-type"),
    ],
)
def test_columns_that_are_not_the_schemas_halt(columns: Sequence[pb.Column]) -> None:
    """No row is read by a wrong schema."""
    entry = dml([pb.RowChange(newColumns=[number(1)] * len(columns))], columns=columns)

    with pytest.raises(SchemaContradiction, match="re-snapshot"):
        decode([whole(begin(), entry)], schemas=[SCHEMA])


def test_tables_that_nobody_captures_are_passed_over() -> None:
    """Even with rows of an unknown type."""
    strange = dml([pb.RowChange(newColumns=[pb.Data(dataType=99)])], tableName="other", columns=COLUMNS)  # type: ignore[arg-type]

    made = decode([whole(begin(), strange, insert(1), commit())], is_captured=lambda table_id: table_id == TABLE)

    assert ids(made) == [1]


# --- mistakes and damage ----------------------------------------------------------------------------------------------

_NUMBER_AS_TEXT = pb.Data(dataType=pb.DATA_TYPE_STRING, charset="utf8", bv=b"1")
BAD_ENTRIES = [
    pytest.param(pb.Entry(header=header(99), event=pb.Event(beginEvent=pb.BeginEvent())), "MessageType 99", id="type"),
    pytest.param(pb.Entry(header=header(2), event=pb.Event(beginEvent=pb.BeginEvent())), "another type", id="event"),
    pytest.param(pb.Entry(header=header(2)), "another type", id="no-event"),
    pytest.param(checkpoint(), "CHECKPOINT inside the transaction", id="checkpoint-inside"),
    pytest.param(dml([pb.RowChange(newColumns=[number(1)])]), "fewer values", id="fewer-values"),
    pytest.param(dml([pb.RowChange(newColumns=[number(1), text("a"), text("b")])]), "more values", id="more-values"),
    pytest.param(dml([pb.RowChange(oldColumns=[number(1), text("a")])]), "fewer values", id="insert-of-old"),
    pytest.param(
        dml([pb.RowChange(newColumns=[number(1), text("a")], oldColumns=[number(1), text("a")])]),
        "old values",
        id="both",
    ),
    pytest.param(
        dml([pb.RowChange(newColumns=[number(1), pb.Data(dataType=77, bv=b"x")])]),  # type: ignore[arg-type]
        "unknown DataType",
        id="data-type",
    ),
    pytest.param(dml([pb.RowChange(newColumns=[number(1), text("a", "klingon")])]), "klingon", id="charset"),
    pytest.param(dml([pb.RowChange(newColumns=[number(2**31), text("a")])]), "cannot hold", id="too-large"),
    pytest.param(dml([pb.RowChange(newColumns=[_NUMBER_AS_TEXT, text("a")])]), "not an integer", id="no-integer"),
    pytest.param(dml([pb.RowChange(newColumns=[pb.Data(dataType=3), text("a")])]), "without digits", id="no-digits"),
    pytest.param(dml([pb.RowChange(newColumns=[pb.Data(sv="5"), text("a")])]), "without a type", id="no-type"),
    pytest.param(
        dml([pb.RowChange(newColumns=[pb.Data(dataType=pb.DATA_TYPE_NA), text("a")])]), "key column", id="key"
    ),
    pytest.param(
        dml([pb.RowChange(newColumns=[number(1), pb.Data(dataType=13, charset="utf8", bv=b"\xff\xfe")])]),
        "UnicodeDecodeError",
        id="no-utf8",
    ),
    pytest.param(
        dml([pb.RowChange(newColumns=[number(1), pb.Data(dataType=13, charset="gbk", bv=b"\x81")])]),
        "UnicodeDecodeError",
        id="no-gbk",
    ),
    pytest.param(
        dml([pb.RowChange(newColumns=[number(1), pb.Data(dataType=13, sv="x")])]), "place of numbers", id="sv"
    ),
    pytest.param(insert(1, kind=9), "unknown kind", id="dml-type"),
]


@pytest.mark.parametrize(("entry", "reason"), BAD_ENTRIES)
def test_what_cannot_be_decoded_is_named_with_its_place(entry: pb.Entry, reason: str) -> None:
    """Topic, partition and offset; never the value."""
    message = whole(begin(), insert(5), entry, insert(6), commit(), offset=12)

    with pytest.raises((UndecodableMessage, UndecodableValue), match=reason) as raised:
        decode([message], schemas=[SCHEMA])

    assert "topic-subs-test[0]@12, entry 2" in str(raised.value)


@pytest.mark.parametrize(("entry", "reason"), BAD_ENTRIES)
def test_by_policy_it_is_set_aside_and_the_rest_goes_on(entry: pb.Entry, reason: str) -> None:
    """The rows around it come; an entry set aside can be decoded again once the cause is mended."""
    made = decode(
        [whole(begin(), insert(5), entry, insert(6), commit(), offset=12)], schemas=[SCHEMA], dead_letters=True
    )

    assert ids(made) == [5, 6]
    [aside] = made.set_aside
    assert reason in aside.reason
    assert (aside.offset, aside.entry) == (12, 2)
    assert pb.Entries.FromString(aside.entries).items[0].header.gtid == entry.header.gtid


def test_of_many_rows_only_the_bad_one_is_set_aside() -> None:
    """With its header and columns, as an entry of its own."""
    rows = [pb.RowChange(newColumns=[number(row), text("x")]) for row in (1, 2**40, 3)]

    made = decode([whole(begin(), dml(rows), commit())], schemas=[SCHEMA], dead_letters=True)

    assert ids(made) == [1, 3]
    [aside] = made.set_aside
    [item] = pb.Entries.FromString(aside.entries).items
    assert item.event.dmlEvent.rows == [rows[1]]
    assert item.event.dmlEvent.columns == list(COLUMNS)
    assert (item.header.schemaName, item.header.tableName, aside.table) == ("shop", "orders", "shop.orders")


def test_by_default_a_row_is_set_aside_and_an_entry_halts() -> None:
    """An entry may be a statement, or rows of any table."""
    aside: list[SetAside] = []
    rows = [pb.RowChange(newColumns=[number(row), text("x")]) for row in (1, 2**40, 3)]

    made = decode([whole(begin(), dml(rows), commit())], schemas=[SCHEMA], set_row_aside=aside.append)

    assert (ids(made), len(aside)) == ([1, 3], 1)
    damaged = pb.Entries(items=[begin(), insert(1)]).SerializeToString()[:-4]
    with pytest.raises(UndecodableMessage, match="cannot be read"):
        decode([WholeMessage(TOPIC, 0, 3, 3, 4, memoryview(damaged))], schemas=[SCHEMA], set_row_aside=aside.append)


def test_the_rest_of_a_damaged_message_is_set_aside() -> None:
    """Nothing after the damage can be trusted, and nothing of it is lost."""
    good = pb.Entries(items=[begin(), insert(1), commit()]).SerializeToString()
    damaged = good + pb.Entries(items=[begin(2), insert(2, gtid=2)]).SerializeToString()[:-4]

    made = decode([WholeMessage(TOPIC, 0, 3, 3, 4, memoryview(damaged))], dead_letters=True)

    assert ids(made) == [1]
    assert damaged.endswith(made.set_aside[-1].entries)


def test_a_source_that_is_not_mysql_halts() -> None:
    """DTS subscribes to several kinds of databases."""
    entry = begin(sourceType=pb.SOURCE_TYPE_PGSQL)

    with pytest.raises(PipelineHalted, match="PGSQL source"):
        decode([whole(entry)])


def test_mariadb_is_followed_by_places() -> None:
    """Its GTIDs are of another form."""
    maria = {"sourceType": pb.SOURCE_TYPE_MARIADB, "gtid": "0-1-77"}
    entries = [begin(position=10, **maria), insert(1, position=20, **maria), commit(position=30, **maria)]

    made = decode(messages([*entries, *entries]))

    assert ids(made) == [1]
    assert made.rows[0][2]["source"]["gtid"] == "0-1-77"


def test_a_checkpoint_in_front_may_be_confirmed() -> None:
    """And one after other entries not: Tencent's own client looks at the first entry only."""
    assert decode([whole(checkpoint(), offset=8)]).decoder.progress.confirmable_offset == 9
    assert decode([whole(heartbeat(), checkpoint(), offset=8)]).decoder.progress.confirmable_offset is None


@given(
    st.lists(
        st.sampled_from([begin(1), insert(1), commit(1), begin(2), rollback(1), checkpoint(), heartbeat()]), max_size=8
    ),
    st.binary(max_size=30),
    st.integers(0, 400),
)
@settings(max_examples=examples(300))
def test_no_stream_crashes_it(entries: list[pb.Entry], rubbish: bytes, place: int) -> None:
    """Entries in any order, with bytes replaced: rows, or an error of ours."""
    data = pb.Entries(items=entries).SerializeToString()
    data = data[:place] + rubbish + data[place + len(rubbish) :]
    join = make_assembler()
    for offset, value in enumerate(envelopes(data, 1 + place % 3)):
        try:
            found = join.take(kafka_message(value, offset))
            if found is not None:
                decode([found], dead_letters=bool(place % 2))
        except HeadwaterError:
            pass


def test_names_are_the_source_schemas() -> None:
    """A table id of the message's header."""
    made = decode([whole(begin(), insert(1, tableName="größe"), commit())])

    assert TableId(database="shop", table="größe") in made.decoder.schemas
