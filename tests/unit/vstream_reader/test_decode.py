"""A stream through the decoder: transactions, orders, positions, and refusals."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from libs.errors import PipelineHalted, SchemaContradiction, SourceUnavailable, UndecodableValue
from libs.events.dead_letter import UndecodedRow
from libs.source.key_columns import KeyColumns
from libs.source.vitess.settings import EventSettings, TransactionMetadata
from libs.source.vitess.vgtid import format_vgtid
from libs.types.table import TableId
from libs.types.value_modes import DecimalMode, UnsignedBigintMode, ValueModes
from protos.headwater.changes.v1.change_batch_pb2 import TransactionBoundary
from protos.vitess import binlogdata_pb2, query_pb2
from services.vstream_reader.copy_progress import copying_shards
from services.vstream_reader.found import NewTable, Reshard
from services.vstream_reader.position import begun_again, decode_position, followed_to_its_end, resume_vgtid
from services.vstream_reader.transaction_store import TransactionStore
from services.vstream_reader.vevents import VEvents, shard_gtids
from tests.unit.vstream_reader.stream import (
    ID_AND_V,
    answer,
    column,
    event,
    fields,
    inserted,
    last_key,
    replay,
    row,
    rows,
    start_of,
    transaction,
    vgtid,
)

ONE_SHARD = start_of("-80", gtid="MySQL56/a:1-10")
PRECISE = ValueModes(decimal=DecimalMode.PRECISE, unsigned_bigint=UnsignedBigintMode.LONG)


# --- transactions ------------------------------------------------------------------------------------------------------


def test_a_transaction_is_put_together_over_many_answers() -> None:
    """BEGIN in the first, COMMIT in the last; no row is lost, and no place between is one to resume from."""
    stream = replay(ONE_SHARD)

    stream.feed(answer(event("BEGIN"), fields(), inserted(1, "a")))
    assert not stream.decoder.is_between_transactions
    stream.feed(answer(inserted(2, "b"), inserted(3, "c")))
    stream.feed(answer(inserted(4, "d"), vgtid({"-80": "a:1-11"}), event("COMMIT")))

    assert stream.decoder.is_between_transactions
    (run,) = stream.runs()
    assert list(run.keys) == [b'{"id":1}', b'{"id":2}', b'{"id":3}', b'{"id":4}']
    assert (run.epoch, run.rank, run.first_tx_ordinal) == (0, "11", 1)


def test_a_large_transaction_lies_on_disk_until_its_commit(tmp_path: Path) -> None:
    """Answers are read back as they were put in, in order, and the file is gone afterwards."""
    store = TransactionStore(tmp_path, max_bytes_in_memory=100)
    parts = [VEvents(answer(event("BEGIN"), *(inserted(n, "v" * 50) for n in range(3)))) for _ in range(4)]
    for part in parts:
        store.add(part, 0, len(part))

    taken = list(store.taken(parts[-1], 1, 2))

    assert [(part.data, first, last) for part, first, last in taken] == [
        *((part.data, 0, 4) for part in parts),
        (parts[-1].data, 1, 2),
    ]
    assert not store.has_rows


def test_several_transactions_in_one_answer_keep_their_own_places() -> None:
    """Each has the VGTID that came with it."""
    stream = replay(ONE_SHARD).feed(
        answer(
            event("BEGIN"),
            fields(),
            inserted(1, "a"),
            vgtid({"-80": "a:1-11"}),
            event("COMMIT"),
            event("BEGIN"),
            inserted(2, "b"),
            vgtid({"-80": "a:1-12"}),
            event("COMMIT"),
        )
    )

    first, second = stream.runs()

    assert (first.rank, second.rank) == ("11", "12")
    assert json.loads(second.values[0])["source"]["vgtid"].count("a:1-12") == 1


def test_an_empty_transaction_moves_the_position_alone() -> None:
    """BEGIN, VGTID, COMMIT: no event, another place."""
    stream = replay(ONE_SHARD).feed(transaction({"-80": "a:1-11"}))

    assert stream.runs() == []
    assert decode_position(stream.decoder.shards.position).vgtid[0].gtid == "MySQL56/a:1-11"


def test_current_and_heartbeats_are_taken() -> None:
    """The first answer to ``current`` is VGTID and OTHER for each shard; a HEARTBEAT says nothing."""
    stream = replay(start_of("-80", "80-", gtid="current"))

    stream.feed(answer(vgtid({"-80": "a:1-5", "80-": "current"}), event("OTHER")), answer(event("HEARTBEAT")))

    place = decode_position(stream.decoder.shards.position)
    assert [entry.gtid for entry in place.vgtid] == ["MySQL56/a:1-5", "current"]


def test_no_place_is_kept_until_every_shard_has_one() -> None:
    """From ``current`` a reader that is started again would pass over its shard's changes of meanwhile."""
    stream = replay(start_of("-80", "80-", gtid="current"))
    assert not stream.decoder.is_resumable

    stream.feed(transaction({"-80": "a:1-5", "80-": "current"}, fields(), inserted(1, "a")))
    assert not stream.decoder.is_resumable
    stream.feed(answer(vgtid({"-80": "a:1-5", "80-": "b:1-7"}), event("OTHER")))
    assert not stream.decoder.is_resumable
    stream.decoder.shards.begun.confirm({"-80", "80-"})

    assert stream.decoder.is_resumable
    assert [bytes(key) for run in stream.runs() for key in run.keys] == [b'{"id":1}']


@pytest.mark.parametrize("has_rows", [True, False])
def test_no_place_is_kept_until_every_shard_has_copied_rows_or_finished(has_rows: bool) -> None:
    """One that began again after the journal of a reshard would never come to it."""
    stream = replay(start_of("-80", "80-"), is_copying=True)
    before, after = {"-80": "a:1-5", "80-": ""}, {"-80": "a:1-5", "80-": "b:1-7"}
    first = fields(), inserted(1, "a", timestamp=0), vgtid(before, {"-80": 1})
    stream.feed(answer(event("BEGIN"), *first, event("COMMIT")))
    assert not stream.decoder.is_resumable

    stream.feed(transaction(after, fields()))
    assert not stream.decoder.is_resumable
    if has_rows:
        second = fields(), inserted(2, "b", timestamp=0), vgtid(after, {"-80": 1, "80-": 2})
        stream.feed(answer(event("BEGIN"), *second, event("COMMIT")))
    else:
        stream.feed(answer(event("COPY_COMPLETED", shard="80-")))
    assert not stream.decoder.is_resumable
    stream.decoder.shards.begun.confirm({"-80", "80-"})

    assert stream.decoder.is_resumable


def test_a_begin_after_columns_only_is_taken() -> None:
    """A copy that finds no row leaves its first BEGIN without a COMMIT (Vitess, uvstreamer)."""
    stream = replay(start_of("-80"), is_copying=True)

    stream.feed(
        answer(event("BEGIN"), fields()), transaction({"-80": "a:1-3"}, fields(), inserted(1, "a", timestamp=0))
    )

    assert [run.ops for run in stream.runs()] == [b"r"]


# --- positions and orders ----------------------------------------------------------------------------------------------


def test_only_the_shards_that_changed_are_read_again() -> None:
    """Of 256 shards' positions 255 are the very bytes of before."""
    before = binlogdata_pb2.VGtid(
        shard_gtids=[
            binlogdata_pb2.ShardGtid(keyspace="ks", shard=f"{n:02x}-", gtid="MySQL56/a:1-9") for n in range(256)
        ]
    )
    after = binlogdata_pb2.VGtid()
    after.CopyFrom(before)
    after.shard_gtids[7].gtid = "MySQL56/a:1-10"
    shards, changed = shard_gtids(before.SerializeToString(), [])
    assert changed == list(range(256))

    shards_after, changed = shard_gtids(after.SerializeToString(), shards)

    assert changed == [7]
    assert all(one is other for n, (one, other) in enumerate(zip(shards, shards_after, strict=True)) if n != 7)


def test_a_lost_host_makes_an_epoch_of_its_shard() -> None:
    """A smaller rank of the next epoch is still later."""
    stream = replay(start_of("-80", "80-", gtid="MySQL56/a:1-10,b:1-5"))
    stream.feed(
        transaction({"-80": "a:1-11,b:1-5", "80-": "a:1-10,b:1-5"}, fields(), inserted(1, "x")),
        transaction({"-80": "a:1-12", "80-": "a:1-10,b:1-5"}, inserted(1, "y")),
    )

    before, after = stream.runs()

    assert (before.epoch, before.rank) == (0, "16")
    assert (after.epoch, after.rank) == (1, "12")
    assert decode_position(stream.decoder.shards.position).epochs == {"-80": 1, "80-": 0}


def test_ranks_go_beyond_64_bits() -> None:
    """Three hosts of 2**63 transactions each."""
    huge = 2**63 - 2
    stream = replay(ONE_SHARD, events=EventSettings(transaction_metadata=TransactionMetadata.ORDERED))
    stream.feed(transaction({"-80": f"a:1-{huge},b:1-{huge},c:1-{huge}"}, fields(), inserted(1, "x")))

    (run,) = stream.runs()

    assert run.rank == str(3 * huge)


def test_new_shards_inherit_the_epoch_of_those_they_overlap() -> None:
    """A split and a merge; rows of the new shards are later than all of the old ones."""
    stream = replay(start_of("-80", "80-", gtid="MySQL56/a:1-900"))
    stream.feed(
        transaction({"-80": "a:1-901", "80-": "a:1-900"}, fields(), inserted(1, "x")),
        transaction(
            {"-40": "c:1-2", "40-80": "d:1-1", "80-": "a:1-900"}, fields(shard="-40"), inserted(1, "y", shard="-40")
        ),
        transaction({"-": "e:1-3"}, fields(shard="-"), inserted(1, "z", shard="-")),
    )

    assert [(run.epoch, int(run.rank)) for run in stream.runs()] == [(0, 901), (1, 2), (2, 3)]
    assert decode_position(stream.decoder.shards.position).epochs == {"-": 2}


def test_a_shard_that_is_finished_is_not_copied_again_for_its_changes() -> None:
    """They come while another shard is still being copied; a stream that is opened from there follows them alone."""
    stream = replay(start_of("-80", "80-"), is_copying=True)
    halfway = {"-80": "a:1-5", "80-": "b:1-9"}
    stream.feed(answer(event("BEGIN"), fields(), vgtid(halfway, {"-80": 2, "80-": 7}), event("COMMIT")))

    stream.feed(answer(event("COPY_COMPLETED"), vgtid(halfway, {"80-": 7})))
    later = {**halfway, "-80": "a:1-6"}
    stream.feed(answer(event("BEGIN"), inserted(3, "c"), vgtid(later, {"80-": 7}), event("COMMIT")))

    assert stream.decoder.shards.copy.shards == {"80-"}
    assert copying_shards(decode_position(stream.decoder.shards.position)) == {"80-"}


def test_a_shard_that_met_no_row_is_begun_again_in_the_epoch_that_it_was_in() -> None:
    """vtgate is asked for it from its beginning, and says so with the other shard's first answer."""
    stream = replay(start_of("-80", "80-"), is_copying=True)
    stream.feed(answer(event("BEGIN"), fields(), vgtid({"-80": "a:1-5", "80-": ""}), event("COMMIT")))
    again = begun_again(stream.decoder.shards.place, stream.decoder.shards.begun.to_begin_again)
    assert [entry.gtid for entry in again.vgtid] == ["", ""]
    resumed = replay(again, is_copying=True)

    resumed.feed(answer(event("BEGIN"), fields(shard="80-"), vgtid({"-80": "", "80-": "b:1-9"}), event("COMMIT")))
    resumed.feed(answer(event("BEGIN"), fields(), vgtid({"-80": "a:1-6", "80-": "b:1-9"}), event("COMMIT")))

    place = resumed.decoder.shards.place
    assert [entry.gtid for entry in place.vgtid] == ["MySQL56/a:1-6", "MySQL56/b:1-9"]
    assert place.epochs == {"-80": 1, "80-": 1} == stream.decoder.shards.place.epochs | {"80-": 1}


def test_a_shard_that_is_only_followed_is_copied_from_its_new_shards() -> None:
    """It ended before any of it was copied: its log is read from a place before, its changes are delivered, and all its tables
    count as unfinished."""
    start = followed_to_its_end(start_of("-80", "80-"), "-80", "MySQL56/a:1-3")
    assert [entry.gtid for entry in resume_vgtid(start.vgtid, start.copied)] == ["MySQL56/a:1-3", ""]
    stream = replay(start, is_copying=True)
    before, after = {"-80": "a:1-4", "80-": ""}, {"-80": "a:1-4", "80-": "b:1-9"}
    stream.feed(transaction(before, fields(), inserted(1, "changed")))
    second = fields(shard="80-"), inserted(9, "x", timestamp=0, shard="80-"), vgtid(after, {"80-": 9})
    stream.feed(answer(event("BEGIN"), *second, event("COMMIT")))
    stream.decoder.shards.begun.confirm({"80-"})
    assert stream.decoder.shards.begun.to_begin_again == set()
    assert not stream.decoder.is_resumable

    stream.feed(answer(vgtid({"-40": "n:1-2", "40-80": "m:1-2", "80-": "b:1-9"}, {"80-": 9}), event("OTHER")))

    assert [bytes(run.ops) for run in stream.runs()] == [b"c", b"r"]
    assert stream.decoder.shards.copy.cut_short == {"-80": frozenset()}
    assert stream.decoder.is_resumable


def test_a_position_resumes_where_it_was_taken() -> None:
    """Encoded and decoded, and as vtgate is asked for it."""
    stream = replay(start_of("-80", "80-", gtid="MySQL56/a:1-10"))
    stream.feed(transaction({"-80": "a:1-11", "80-": "a:1-10"}, fields(), inserted(1, "x")))

    place = decode_position(stream.decoder.shards.position)

    assert place == stream.decoder.shards.place
    assert format_vgtid(resume_vgtid(place.vgtid, place.copied)) == (
        '[{"keyspace":"ks","shard":"-80","gtid":"MySQL56/a:1-11","table_p_ks":[]},'
        '{"keyspace":"ks","shard":"80-","gtid":"MySQL56/a:1-10","table_p_ks":[]}]'
    )


def test_a_shard_waits_before_its_journal_until_others_took_over() -> None:
    """A reader that resumes has to meet the journal again: its shard's position does not pass it."""
    journal = binlogdata_pb2.Journal(
        id=1,
        migration_type=binlogdata_pb2.SHARDS,
        participants=[binlogdata_pb2.KeyspaceShard(keyspace="ks", shard="-80")],
        shard_gtids=[binlogdata_pb2.ShardGtid(keyspace="ks", shard="-40", gtid="MySQL56/n:1")],
    )
    stream = replay(start_of("-80", "80-", gtid="MySQL56/a:1-10"))

    stream.feed(
        answer(
            event("BEGIN"),
            event("JOURNAL", journal=journal),
            vgtid({"-80": "a:1-11", "80-": "a:1-10"}),
            event("COMMIT"),
        ),
        transaction({"-80": "a:1-11", "80-": "a:1-12"}, fields(shard="80-"), inserted(9, "x", shard="80-")),
    )

    assert [type(found) for found in stream.found] == [Reshard, NewTable]
    assert [entry.gtid for entry in stream.decoder.shards.place.vgtid] == ["MySQL56/a:1-10", "MySQL56/a:1-12"]


# --- copy --------------------------------------------------------------------------------------------------------------


def copy_of(*row_ids: int, place: str = "a:1-5") -> bytes:
    """A packet of the copy: rows without a time, and the last key with the position."""
    return answer(
        event("BEGIN"),
        fields(),
        *(inserted(row_id, "v", timestamp=0) for row_id in row_ids),
        vgtid({"-80": place}, {"-80": row_ids[-1]}),
        event("COMMIT"),
    )


def test_copied_rows_are_reads_before_any_later_change() -> None:
    """With the order after the place of their copy; changes between the packets are changes."""
    stream = replay(start_of("-80"), is_copying=True)
    stream.feed(
        copy_of(1, 2),
        answer(
            event("BEGIN"),
            fields(),
            rows((row(1, "v"), row(1, "w"))),
            vgtid({"-80": "a:1-6"}, {"-80": 2}),
            event("COMMIT"),
        ),
        copy_of(3, 4, place="a:1-6"),
    )

    first, change, second = stream.runs()

    assert (first.ops, change.ops, second.ops) == (b"rr", b"u", b"rr")
    assert (first.epoch, first.rank, first.first_tx_ordinal, first.is_snapshot) == (1, "6", 0, True)
    assert (change.epoch, change.rank, change.first_tx_ordinal) == (1, "6", 1)
    assert json.loads(first.values[0])["source"]["snapshot"] == "true"


def test_a_finished_table_is_not_copied_again() -> None:
    """vtgate forgets it in its positions; the reader asks for it after its last key."""
    stream = replay(start_of("-80"), is_copying=True)
    stream.feed(copy_of(1, 2), transaction({"-80": "a:1-5"}))

    place = decode_position(stream.decoder.shards.position)

    assert place.vgtid[0].table_p_ks == ()
    (table,) = resume_vgtid(place.vgtid, place.copied)[0].table_p_ks
    assert table.lastpk is not None
    assert table.lastpk.rows[0].values == "2"
    assert stream.decoder.shards.tables_copied == {"t"}


def test_a_table_is_copied_when_every_shard_has_finished_it() -> None:
    """One that a shard has yet to copy counts as unfinished, though the others have it."""
    stream = replay(start_of("-80", "80-"), is_copying=True)
    both = {"-80": "a:1-5", "80-": "b:1-7"}
    for shard in both:
        copied = fields(shard=shard), inserted(1, "a", timestamp=0, shard=shard), vgtid(both, {shard: 1})
        stream.feed(answer(event("BEGIN"), *copied, event("COMMIT")))
    assert stream.decoder.shards.tables_copied == set()

    stream.feed(answer(event("BEGIN"), vgtid(both, {"80-": 1}), event("COMMIT")))
    assert stream.decoder.shards.tables_copied == set()
    stream.feed(answer(event("COPY_COMPLETED", shard="80-")))
    assert stream.decoder.shards.tables_copied == {"t"}


def test_the_end_of_the_copy_is_that_of_all_shards() -> None:
    """A COPY_COMPLETED with a shard is only that shard's; the last one ends the copy, because after a reshard none comes for
    all."""
    stream = replay(start_of("-80", "80-"), is_copying=True)

    stream.feed(answer(event("COPY_COMPLETED")))
    assert stream.decoder.shards.copy.shards == {"80-"}
    stream.feed(answer(event("COPY_COMPLETED", shard="80-")))

    assert not stream.decoder.shards.copy.is_running
    assert decode_position(stream.decoder.shards.position).copied == {}


def test_a_shard_that_has_finished_its_copy_follows_its_log_while_others_copy() -> None:
    """Asked for without a key after its newest change, vtgate would copy it again, and deletes before that were lost."""
    stream = replay(start_of("-80", "80-"), is_copying=True)
    at_begin = {"80-": "b:1-3"}
    stream.feed(
        transaction({"-80": "a:1-5", **at_begin}, fields(), inserted(1, "v", timestamp=0)),
        answer(event("COPY_COMPLETED", shard="-80")),
        transaction({"-80": "a:1-6", **at_begin}, inserted(2, "live")),
    )

    place = decode_position(stream.decoder.shards.position)

    assert place.copied.keys() <= {"80-"}
    [finished, _] = resume_vgtid(place.vgtid, place.copied)
    assert (finished.gtid, finished.table_p_ks) == ("MySQL56/a:1-6", ())


def test_a_recopy_delivers_copied_rows_only() -> None:
    """The changes come in the main stream."""
    stream = replay(start_of("-80"), is_copying=True, is_recopy=True)
    stream.feed(
        copy_of(1, 2),
        answer(event("BEGIN"), rows((row(1, "v"), None)), vgtid({"-80": "a:1-6"}, {"-80": 2}), event("COMMIT")),
    )

    (run,) = stream.runs()

    assert run.ops == b"rr"
    assert json.loads(run.values[0])["source"]["snapshot"] == "incremental"


def test_a_recopy_for_some_tenants_says_so_in_each_run() -> None:
    """And the main stream's runs are for all."""
    recopy = replay(start_of("-80"), is_copying=True, is_recopy=True, for_tenants=("acme",))
    recopy.feed(copy_of(1, 2))
    main = replay(ONE_SHARD)
    main.feed(transaction({"-80": "a:1-11"}, fields(), inserted(1, "x")))

    assert [[*run.for_tenants] for run in recopy.runs()] == [["acme"]]
    assert [[*run.for_tenants] for run in main.runs()] == [[]]


# --- events ------------------------------------------------------------------------------------------------------------


def test_ordered_metadata_stands_in_the_transaction_block() -> None:
    """Epoch, and the rank as Connect's Decimal of scale 0."""
    stream = replay(ONE_SHARD, events=EventSettings(transaction_metadata=TransactionMetadata.ORDERED))
    stream.feed(transaction({"-80": "a:1-1513"}, fields(), inserted(1, "x"), inserted(2, "y")))

    block = stream.events()[1]["transaction"]

    assert list(block) == ["id", "total_order", "data_collection_order", "transaction_epoch", "transaction_rank"]
    assert (block["total_order"], block["transaction_epoch"], block["transaction_rank"]) == (2, 0, "Bek=")


def test_transactions_begin_and_end_with_their_counts() -> None:
    """For the transaction topic; not where the setting filters them."""
    change = transaction({"-80": "a:1-11"}, fields(), inserted(1, "x"), inserted(2, "y"))
    told = replay(ONE_SHARD, events=EventSettings(transaction_metadata=TransactionMetadata.ON)).feed(change)
    filtered = replay(
        ONE_SHARD, events=EventSettings(transaction_metadata=TransactionMetadata.ON, filter_transaction_topic=True)
    ).feed(change)

    boundaries = [entry.transaction_boundary for entry in told.entries() if entry.HasField("transaction_boundary")]

    assert [boundary.status for boundary in boundaries] == [
        TransactionBoundary.STATUS_BEGIN,
        TransactionBoundary.STATUS_END,
    ]
    assert [(count.database, count.table, count.events) for count in boundaries[1].table_event_counts] == [
        ("ks", "t", 2)
    ]
    assert not any(entry.HasField("transaction_boundary") for entry in filtered.entries())


def test_a_transaction_that_takes_seconds_ends_at_its_commit() -> None:
    """Begun with the event that begins it; its rows have the time of the first of them."""
    told = replay(ONE_SHARD, events=EventSettings(transaction_metadata=TransactionMetadata.ON)).feed(
        answer(event("BEGIN", timestamp=1_700_000_000), fields(), inserted(1, "x", timestamp=1_700_000_001)),
        answer(inserted(2, "y", timestamp=1_700_000_002), vgtid({"-80": "a:1-11"})),
        answer(event("COMMIT", timestamp=1_700_000_004)),
    )

    begin, *runs, end = told.entries()

    assert begin.transaction_boundary.committed_at_us == 1_700_000_000_000_000
    assert [json.loads(run.run.values[0])["source"]["ts_ms"] for run in runs] == [1_700_000_001_000]
    assert end.transaction_boundary.committed_at_us == 1_700_000_004_000_000
    assert told.decoder.progress.committed_at_us == 1_700_000_004_000_000


def test_the_local_vgtid_names_the_events_shard() -> None:
    """In the source block; the transaction's id stays whole."""
    settings = EventSettings(use_local_vgtid=True, transaction_metadata=TransactionMetadata.ON)
    stream = replay(start_of("-80", "80-", gtid="MySQL56/a:1-10"), events=settings)
    stream.feed(transaction({"-80": "a:1-11", "80-": "a:1-10"}, fields(), inserted(1, "x")))

    (made,) = stream.events()

    assert [entry["shard"] for entry in json.loads(made["source"]["vgtid"])] == ["-80"]
    assert [entry["shard"] for entry in json.loads(made["transaction"]["id"])] == ["-80", "80-"]


def test_removed_members_are_in_no_event() -> None:
    """As the RemoveField transformation."""
    removed = ("source.vgtid", "source.db", "transaction.id", "ts_ns", "transaction.transaction_rank")
    settings = EventSettings(remove_fields=removed, transaction_metadata=TransactionMetadata.ORDERED)
    stream = replay(ONE_SHARD, events=settings).feed(transaction({"-80": "a:1-11"}, fields(), inserted(1, "x")))

    (made,) = stream.events()

    assert not {"vgtid", "db"} & made["source"].keys()
    assert list(made["transaction"]) == ["total_order", "data_collection_order", "transaction_epoch"]
    assert list(made) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us"]


@pytest.mark.parametrize(
    ("columns", "chosen", "key"),
    [
        (ID_AND_V, (), ("id",)),
        ((column("a", query_pb2.INT64, "bigint", 3), column("b", query_pb2.INT64, "bigint", 3)), (), ("a", "b")),
        ((column("n", query_pb2.INT64, "bigint", 4), column("u", query_pb2.INT64, "bigint", 5)), (), ("u",)),
        ((column("n", query_pb2.INT64, "bigint", 4),), (), ()),
        (ID_AND_V, (KeyColumns(tables=r"ks\.t", columns="v|id"),), ("id", "v")),
        (ID_AND_V, (KeyColumns(tables=r"ks\.other", columns="v"),), ("id",)),
    ],
)
def test_keys_follow_the_rules(columns: Any, chosen: tuple[KeyColumns, ...], key: tuple[str, ...]) -> None:
    """The chosen columns, the primary key, the first column that is unique and never NULL; else none."""
    stream = replay(ONE_SHARD, key_columns=chosen).feed(transaction({"-80": "a:1-11"}, fields(*columns)))

    (schema,) = stream.schemas

    assert schema.key == key


def test_a_values_absence_is_told_from_null() -> None:
    """A row image of ``binlog_row_image=noblob`` lacks a column that did not change; the row before may hold it."""
    change = binlogdata_pb2.RowChange(
        before=row(1, "long text"),
        after=row(1, None),
        data_columns=binlogdata_pb2.RowChange.Bitmap(count=2, cols=b"\x01"),
    )
    update = rows((row(1, "a"), row(1, "b")))
    update.row_event.row_changes[0].CopyFrom(change)

    (made,) = replay(ONE_SHARD).feed(transaction({"-80": "a:1-11"}, fields(), update)).events()

    assert [made[image]["v"] for image in ("before", "after")] == ["long text"] * 2


def test_a_text_that_a_new_row_lacks_is_null_or_the_row_is_an_error() -> None:
    """A placeholder has a reader keep the value of before, which a new row does not have; a changed key makes one as well."""
    absent = binlogdata_pb2.RowChange.Bitmap(count=2, cols=b"\x01")
    insert = binlogdata_pb2.RowChange(after=row(1, None), data_columns=absent)
    moved = binlogdata_pb2.RowChange(before=row(1, None), after=row(2, None), data_columns=absent)

    def made_of(change: Any) -> Any:
        made = rows((row(1, "a"), row(1, "b")))
        made.row_event.row_changes[0].CopyFrom(change)
        return replay(ONE_SHARD).feed(transaction({"-80": "a:1-11"}, fields(), made)).events()

    assert [each["after"]["v"] for each in made_of(insert)] == [None]
    with pytest.raises(UndecodableValue, match=r"t\.v at row 0: the log does not hold the value"):
        made_of(moved)


def test_a_row_before_an_update_lacks_what_the_row_after_lacks() -> None:
    """vtgate sends NULL and absence of the row before in the same way; a value that is there is the value."""

    def update(before: str | None, after: str | None, columns: bytes) -> Any:
        made = rows((row(1, "a"), row(1, "b")))
        change = binlogdata_pb2.RowChange(
            before=row(1, before),
            after=row(1, after),
            data_columns=binlogdata_pb2.RowChange.Bitmap(count=2, cols=columns),
        )
        made.row_event.row_changes[0].CopyFrom(change)
        return made

    absent, null = update(None, None, b"\x01"), update(None, "new", b"\x03")
    first, second = replay(ONE_SHARD).feed(transaction({"-80": "a:1-11"}, fields(), absent, null)).events()

    assert [first[image]["v"] for image in ("before", "after")] == ["__debezium_unavailable_value"] * 2
    assert [second[image]["v"] for image in ("before", "after")] == [None, "new"]


def test_the_placeholder_is_the_settings() -> None:
    change = binlogdata_pb2.RowChange(
        before=row(1, None), after=row(1, None), data_columns=binlogdata_pb2.RowChange.Bitmap(count=2, cols=b"\x01")
    )
    update = rows((row(1, "a"), row(1, "b")))
    update.row_event.row_changes[0].CopyFrom(change)
    modes = ValueModes(unavailable_placeholder="not here")

    (made,) = replay(ONE_SHARD, modes=modes).feed(transaction({"-80": "a:1-11"}, fields(), update)).events()

    assert made["after"]["v"] == "not here"


def test_a_document_that_was_changed_in_part_is_not_called_unchanged() -> None:
    """``binlog_row_value_options=PARTIAL_JSON``: a placeholder would have sinks keep the document of before."""
    columns = (column("id", query_pb2.INT64, "bigint", 3), column("v", query_pb2.JSON, "json"))
    update = rows((row(1, '{"a": 1}'), row(1, "JSON_SET(...)")))
    partial = binlogdata_pb2.RowChange.Bitmap(count=1, cols=b"\x02")
    update.row_event.row_changes[0].json_partial_values.CopyFrom(partial)

    with pytest.raises(UndecodableValue, match="binlog_row_value_options"):
        replay(ONE_SHARD).feed(transaction({"-80": "a:1-11"}, fields(*columns), update))


def test_a_value_without_a_placeholder_is_not_guessed() -> None:
    """A number that the log lacks (``binlog_row_image=minimal``) is no row; the message names the setting."""
    change = binlogdata_pb2.RowChange(
        before=row(None, "x"), after=row(None, "y"), data_columns=binlogdata_pb2.RowChange.Bitmap(count=2, cols=b"\x02")
    )
    update = rows((row(1, "a"), row(1, "b")))
    update.row_event.row_changes[0].CopyFrom(change)

    with pytest.raises(UndecodableValue, match="binlog_row_image=full"):
        replay(ONE_SHARD).feed(transaction({"-80": "a:1-11"}, fields(), update))


def test_a_change_without_any_row_is_told_as_that() -> None:
    """And not as a value of whichever column was read last."""
    with pytest.raises(UndecodableValue, match=r"ks\.t at row 1: .*neither the row before nor the row after"):
        replay(ONE_SHARD).feed(transaction({"-80": "a:1-11"}, fields(), rows((None, row(1, "a")), (None, None))))


def test_shards_share_what_decodes_a_table() -> None:
    """A keyspace has hundreds of them, each with every table; a version that no shard has any more is let go."""
    shards = {"-40": "a:1-10", "40-80": "b:1-10", "80-": "c:1-10"}
    stream = replay(start_of(*shards, gtid="MySQL56/a:1-9"))
    told = [fields(shard=shard) for shard in shards]
    stream.feed(transaction(shards, *told))
    decoders = stream.decoder._tables._decoders

    assert len(decoders) == 1
    wide = (*ID_AND_V, column("w", query_pb2.INT64, "bigint"))
    stream.feed(transaction(shards, *(fields(*wide, shard=shard) for shard in shards)))
    assert len(decoders) == 1


def test_tables_that_are_not_captured_are_passed_over() -> None:
    """Their rows are not read, even where they lack a column."""
    stream = replay(ONE_SHARD, is_captured=lambda table_id: table_id == TableId(database="ks", table="t"))
    stream.feed(
        transaction(
            {"-80": "a:1-11"},
            fields(table="other"),
            fields(),
            inserted(1, table="other"),
            inserted(1, "x"),
            inserted(2, table="other"),
            inserted(2, "y"),
        )
    )

    assert [key for run in stream.runs() for key in run.keys] == [b'{"id":1}', b'{"id":2}']


def test_shards_with_different_columns_have_their_own_versions() -> None:
    """While a change of the table goes through the shards; a form that comes again is the version that it was."""
    wider = (*ID_AND_V, column("w", query_pb2.INT64, "bigint"))
    stream = replay(start_of("-80", "80-", gtid="MySQL56/a:1-10"))
    stream.feed(
        transaction({"-80": "a:1-11", "80-": "a:1-10"}, fields(*wider), inserted(1, "x", 5)),
        transaction({"-80": "a:1-11", "80-": "a:1-11"}, fields(shard="80-"), inserted(2, "y", shard="80-")),
        transaction({"-80": "a:1-11", "80-": "a:1-12"}, fields(*wider, shard="80-"), inserted(3, "z", 6, shard="80-")),
    )

    assert [run.schema_version for run in stream.runs()] == [1, 2, 1]
    assert len(stream.schemas) == 2


# --- bad input ---------------------------------------------------------------------------------------------------------


def test_column_names_of_vtgates_own_making_are_not_taken() -> None:
    """The stream is opened again: the tablet may have reloaded its schema by then."""
    numbered = (column("@1", query_pb2.INT64, "bigint"), column("@2", query_pb2.VARCHAR, "varchar(9)"))

    with pytest.raises(SourceUnavailable, match=r"ks\.t @1 to @2.*track_schema_versions"):
        replay(ONE_SHARD).feed(transaction({"-80": "a:1-11"}, fields(*numbered), inserted(1, "x")))


def test_a_column_may_be_named_with_an_at_sign() -> None:
    """Debezium refuses it; only numbers in order are vtgate's."""
    named = (column("id", query_pb2.INT64, "bigint", 3), column("@1", query_pb2.VARCHAR, "varchar(9)"))

    (made,) = replay(ONE_SHARD).feed(transaction({"-80": "a:1-11"}, fields(*named), inserted(1, "x"))).events()

    assert made["after"] == {"id": 1, "@1": "x"}


def test_a_row_that_contradicts_its_columns_halts() -> None:
    """Named: table, counts, shard, transaction and remedy."""
    with pytest.raises(
        SchemaContradiction, match=r"ks\.t: .*3 values.*2 columns.*shard -80.*a:1-11.*copy the table again"
    ):
        replay(ONE_SHARD).feed(transaction({"-80": "a:1-11"}, fields(), inserted(1, "x", "too much")))


def test_a_row_before_its_columns_opens_the_stream_again() -> None:
    """vtgate sends the columns at the front of every stream."""
    with pytest.raises(SourceUnavailable, match=r"row of ks\.t \(shard -80\) before its columns"):
        replay(ONE_SHARD).feed(transaction({"-80": "a:1-11"}, inserted(1, "x")))


@pytest.mark.parametrize("value", ["12x", "", "-", "1.5"])
def test_a_value_that_is_no_number_is_named_and_not_shown(value: str) -> None:
    """Table, column, row, type and place; never the value."""
    with pytest.raises(UndecodableValue, match=r"ks\.t\.id at row 1.*bigint.*shard -80.*a:1-11") as raised:
        replay(ONE_SHARD).feed(transaction({"-80": "a:1-11"}, fields(), inserted(1, "x"), inserted(value, "secret")))

    assert "secret" not in str(raised.value)


DOUBLE, FLOAT = (query_pb2.FLOAT64, "double"), (query_pb2.FLOAT32, "float")
AMOUNT, UNSIGNED = (query_pb2.DECIMAL, "decimal(12,2)"), (query_pb2.UINT64, "bigint unsigned")
WHOLE = (query_pb2.DECIMAL, "decimal(20,0)")


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (DOUBLE, "12.5", b"12.5"),
        (DOUBLE, "12", b"12.0"),
        (DOUBLE, "-0", b"-0.0"),
        (DOUBLE, "0.1", b"0.1"),
        (DOUBLE, "634.6234230462541", b"634.6234230462541"),
        (DOUBLE, "0.00001", b"0.00001"),
        (DOUBLE, "1e-05", b"0.00001"),
        (DOUBLE, "-1.7976931348623157e308", b"-1.7976931348623157e+308"),
        (DOUBLE, "100000000000000000000", b"1e+20"),
        (DOUBLE, "0." + "0" * 30 + "5", b"5e-31"),
        (FLOAT, "3.4", b"3.4000000953674316"),
        (FLOAT, "3.40282e38", b"3.402820018375656e+38"),
        (FLOAT, "16777216", b"16777216.0"),
        (AMOUNT, "0.00", b'"AA=="'),
        (AMOUNT, "-12.30", b'"+zI="'),
        (AMOUNT, "-12.3", b'"+zI="'),
        (AMOUNT, "9999999999.99", b'"AOjUpQ//"'),
        (AMOUNT, "12345678901234567890.12", b'"Qu0SOwvYIDoU"'),
        (WHOLE, "999999999999999999", b'"DeC2s6dj//8="'),
        (WHOLE, "9223372036854775807", b'"f/////////8="'),
        (WHOLE, "9223372036854775808", b'"AIAAAAAAAAAA"'),
        (WHOLE, "-9223372036854775809", b'"/3//////////"'),
        (WHOLE, "9999999999999999999", b'"AIrHIwSJ5///"'),
        (UNSIGNED, "0", b"0"),
        (UNSIGNED, "0007", b"7"),
        (UNSIGNED, "999999999999999999", b"999999999999999999"),
        (UNSIGNED, "9223372036854775808", b"-9223372036854775808"),
        (UNSIGNED, "18446744073709551615", b"-1"),
    ],
)
def test_numbers_are_written_as_they_are(kind: tuple[int, str], text: str, expected: bytes) -> None:
    """Those that compiled code takes, and those that it leaves, before and after."""
    columns = (ID_AND_V[0], column("n", *kind))
    decoder = replay(ONE_SHARD, modes=PRECISE).feed(
        transaction({"-80": "a:1-11"}, fields(*columns), rows((row(1, text), row(1, text))))
    )

    [run] = decoder.runs()
    [value] = run.values

    image = b'{"id":1,"n":%b}' % expected
    assert value.startswith(b'{"before":%b,"after":%b,"source"' % (image, image))


def test_every_double_is_the_nearest_to_its_text() -> None:
    """However many digits it has: they are divided where that is exact, and left to the library otherwise."""
    chance = random.Random(3)
    texts = [repr(chance.random() * 10 ** chance.randrange(6)) for _ in range(500)]
    texts += [f"{chance.randrange(10**6)}.{chance.randrange(10**width):0{width}d}" for width in range(1, 20)]
    texts += [
        "9007199254740992",
        "9007199254740993",
        "0.9007199254740993",
        "-" + "9" * 18,
        "9" * 19,
        "0." + "0" * 20 + "1",
        # With 64 bits they seem to lie halfway between two doubles, and do not.
        "546459716517.410614",
        "5946952.64736356074",
        "343.242843581153096",
    ]
    decoder = replay(ONE_SHARD).feed(
        transaction(
            {"-80": "a:1-11"}, fields(ID_AND_V[0], column("n", *DOUBLE)), *(inserted(1, text) for text in texts)
        )
    )

    written = [event["after"]["n"] for event in decoder.events()]

    assert written == [float(text) for text in texts]


@pytest.mark.parametrize("text", ["", "-", ".", "1.2.3", "1-2", "--1", "1,5", "0x10", "1e999999x", "1 2", "é"])
@pytest.mark.parametrize("kind", [DOUBLE, FLOAT, AMOUNT, UNSIGNED])
def test_a_text_that_is_no_number_is_named(kind: tuple[int, str], text: str) -> None:
    """With any sort of number in the column."""
    columns = (ID_AND_V[0], column("n", *kind))
    with pytest.raises(UndecodableValue, match=r"ks\.t\.n at row 0"):
        replay(ONE_SHARD, modes=PRECISE).feed(transaction({"-80": "a:1-11"}, fields(*columns), inserted(1, text)))


def test_a_float_beyond_single_precision_is_named() -> None:
    """MySQL stores none; it would be infinite, which JSON has no number for."""
    columns = (ID_AND_V[0], column("n", *FLOAT))
    with pytest.raises(UndecodableValue, match=r"ks\.t\.n at row 0"):
        replay(ONE_SHARD).feed(transaction({"-80": "a:1-11"}, fields(*columns), inserted(1, b"9" * 30 + b"0" * 9)))


def test_a_text_that_is_not_utf8_is_refused() -> None:
    """It would not be text in any event."""
    with pytest.raises(UndecodableValue, match=r"ks\.t\.v at row 0"):
        replay(ONE_SHARD).feed(transaction({"-80": "a:1-11"}, fields(), inserted(1, b"\xff\xfe")))


@pytest.mark.parametrize(
    "events",
    [
        (event("COMMIT"),),
        (inserted(1, "x"),),
        (event("BEGIN"), fields(), inserted(1, "x"), event("COMMIT")),
        (
            event("BEGIN"),
            fields(),
            inserted(1, "x", shard="no-such"),
            vgtid({"-80": "a:1", "80-": "b:1"}),
            event("COMMIT"),
        ),
    ],
)
def test_a_stream_that_contradicts_itself_is_opened_again(events: tuple[binlogdata_pb2.VEvent, ...]) -> None:
    """A COMMIT or row outside a transaction, a transaction without a VGTID, a shard that no position names."""
    with pytest.raises(SourceUnavailable, match="opened again"):
        replay(start_of("-80", "80-", gtid="MySQL56/a:1")).feed(answer(*events))


@pytest.mark.parametrize("kind", ["DDL", "OTHER"])
@pytest.mark.parametrize("is_empty", [False, True], ids=["rows", "no rows"])
def test_a_transaction_goes_on_after_its_statement_and_those_of_other_shards(kind: str, is_empty: bool) -> None:
    """CREATE TABLE … AS SELECT: vtgate sends the statement at once, and the rows without a BEGIN, perhaps much later. A restart
    between them would begin after the rows: their GTID is in the position that came with the statement."""
    stream = replay(start_of("-80", "80-", gtid="MySQL56/a:1"))
    before, after = {"-80": "a:1-2", "80-": "a:1"}, {"-80": "a:1-2", "80-": "a:1-2"}
    made = event(kind, statement="CREATE TABLE t (id BIGINT) START TRANSACTION")
    stream.feed(answer(event("BEGIN"), vgtid(before), made))
    others = (fields(shard="80-"), inserted(2, "y", shard="80-"))
    stream.feed(answer(event("BEGIN", shard="80-"), *others, vgtid(after), event("COMMIT", shard="80-")))
    are_resumable = [stream.decoder.is_resumable]

    stream.feed(answer(*([] if is_empty else [fields(), inserted(1, "x")]), vgtid(after), event("COMMIT")))

    assert [*are_resumable, stream.decoder.is_resumable] == [False, True]
    assert [each["after"]["id"] for each in stream.events()] == ([2] if is_empty else [2, 1])
    with pytest.raises(SourceUnavailable, match="outside a transaction"):
        stream.feed(answer(inserted(3, "z")))


def test_columns_of_a_copy_outlast_a_statement_after_them() -> None:
    """vtgate sends a table's columns once: an opening transaction with columns is no statement's, and stays open."""
    stream = replay(ONE_SHARD).feed(answer(event("BEGIN"), fields()), answer(vgtid({"-80": "a:1"}), event("OTHER")))

    stream.feed(answer(inserted(1, "x"), vgtid({"-80": "a:1-2"}), event("COMMIT")))

    assert stream.decoder.is_resumable
    assert [each["after"]["id"] for each in stream.events()] == [1]


def test_a_begin_before_the_rest_of_the_same_shards_transaction_is_refused() -> None:
    """The stream is opened again from before it: nothing of it may be passed over."""
    stream = replay(ONE_SHARD).feed(
        answer(event("BEGIN"), vgtid({"-80": "a:1-2"}), event("DDL", statement="CREATE TABLE t"))
    )

    with pytest.raises(SourceUnavailable, match="inside another"):
        stream.feed(answer(event("BEGIN")))
    assert not stream.decoder.is_resumable


def test_a_statement_without_a_shard_leaves_its_transaction_open() -> None:
    """Its rows, which name theirs, are not refused."""
    stream = replay(ONE_SHARD)

    stream.feed(
        answer(event("BEGIN"), vgtid({"-80": "a:1-2"}), event("DDL", shard="", statement="CREATE TABLE t (id INT)"))
    )
    stream.feed(answer(fields(), inserted(1, "x"), vgtid({"-80": "a:1-2"}), event("COMMIT")))

    assert [each["after"]["id"] for each in stream.events()] == [1]


def test_a_second_begin_behind_rows_is_refused() -> None:
    """Nothing of the first transaction is delivered by halves."""
    stream = replay(ONE_SHARD).feed(answer(event("BEGIN"), fields(), inserted(1, "x")))

    with pytest.raises(SourceUnavailable, match="inside another"):
        stream.feed(answer(event("BEGIN")))
    assert stream.runs() == []


def test_a_position_that_cannot_be_read_halts() -> None:
    """A GTID set that is none."""
    with pytest.raises(PipelineHalted, match="position that cannot be read"):
        replay(ONE_SHARD).feed(transaction({"-80": "nonsense"}))


@pytest.mark.parametrize("cut", [1, 7, 20, 60])
def test_a_damaged_answer_is_refused(cut: int) -> None:
    """Bytes that end too early are not read beyond."""
    whole = transaction({"-80": "a:1-11"}, fields(), inserted(1, "x"))

    with pytest.raises(SourceUnavailable):
        replay(ONE_SHARD).feed(whole[:-cut])


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",  # a field without its length
        b"\x0a\x80",  # … with half of it
        b"\x0a\x05ab",  # … longer than the message
        b"\x0a\x02\x08\x80",  # a number of an event cut off
        b"\x0a\x03\x1a\x05a",  # the inside of an event is longer than it
        b"\x0a" + b"\xff" * 11,  # a length beyond 64 bits
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # … as large as 64 bits hold
        b"\x09\0\0",  # 64 bits cut off
        b"\x0d\0\0",  # 32 bits cut off
        b"\x0b\x0c",  # a group, which proto3 has none of
        b"\x0f",  # a wire type that nobody has
    ],
)
def test_rubbish_is_refused(data: bytes) -> None:
    """And the bytes that it ends in are not read."""
    with pytest.raises(SourceUnavailable, match="no answer"):
        replay(ONE_SHARD).feed(data)


def test_fields_of_later_releases_are_passed_over() -> None:
    """Of every wire type."""
    unknown = b"\xf8\x01\x96\x01" + b"\xf9\x01" + b"\0" * 8 + b"\xfa\x01\x03abc" + b"\xfd\x01" + b"\0" * 4
    events = VEvents(unknown + answer(event("BEGIN"), event("COMMIT")) + unknown)

    assert [events.kind(nth) for nth in range(len(events))] == [binlogdata_pb2.BEGIN, binlogdata_pb2.COMMIT]


def test_the_last_keys_of_a_copy_are_vtgates() -> None:
    """The helper above writes keys as vtgate sends them: guards the tests themselves."""
    assert last_key(7).lastpk.rows[0].values == b"7"


@pytest.mark.parametrize("changes_an_event", [1, 2, 5])
def test_by_policy_bad_rows_are_left_out_and_the_others_keep_their_orders(changes_an_event: int) -> None:
    """Wherever in its event the bad row stands; a replay without it would number the others alike."""
    set_aside: list[UndecodedRow] = []
    stream = replay(ONE_SHARD, set_aside=set_aside.append)
    values = [(1, "a"), ("no number", "b"), (3, "c"), (4, "d"), ("neither", "e")]
    changes = [(None, row(*value)) for value in values]
    inside = [rows(*changes[nth : nth + changes_an_event]) for nth in range(0, 5, changes_an_event)]

    stream.feed(transaction({"-80": "a:1-11"}, fields(), *inside))

    runs = stream.runs()
    seen = [(run.first_tx_ordinal + nth, key) for run in runs for nth, key in enumerate(run.keys)]
    assert seen == [(1, b'{"id":1}'), (3, b'{"id":3}'), (4, b'{"id":4}')]
    assert [(letter.column, letter.order.tx_ordinal, letter.order.rank) for letter in set_aside] == [
        ("id", 2, 11),
        ("id", 5, 11),
    ]
    assert [binlogdata_pb2.RowChange.FromString(letter.images).after for letter in set_aside] == [
        row("no number", "b"),
        row("neither", "e"),
    ]
    assert "no number" not in set_aside[0].reason
    assert stream.decoder.is_resumable


def test_a_row_of_other_columns_is_never_left_out() -> None:
    """The schema is wrong, and so are all rows after it."""
    stream = replay(ONE_SHARD, set_aside=lambda _: None)

    with pytest.raises(SchemaContradiction):
        stream.feed(transaction({"-80": "a:1-11"}, fields(), inserted(1)))


def test_the_order_of_a_checkpoint_never_goes_backwards() -> None:
    """Shards count their transactions each by itself: checkpoint_committer would refuse a lower order, and its events would
    come again after a crash."""
    places = {"-80": "a:1-10", "80-": "b:1-500"}
    stream = replay(start_of("-80", "80-", gtid="MySQL56/a:1-1"))
    orders = []

    for shard, host, number in (("80-", "b", 501), ("-80", "a", 11), ("80-", "b", 502), ("-80", "a", 12)):
        places = {**places, shard: f"{host}:1-{number}"}
        stream.feed(transaction(places, fields(shard=shard), inserted(number, "v", shard=shard), shard=shard))
        orders.append(stream.decoder.progress.last_order)

    assert orders == sorted(orders)
    assert [order.rank for order in orders] == [501, 501, 502, 502]
    assert [int(run.rank) for run in stream.runs()] == [501, 11, 502, 12]


def test_a_statement_moves_the_place_without_a_transaction() -> None:
    """Writes of other databases, and DDL, are part of the position too: else a quiet source would seem to lag for ever."""
    stream = replay(ONE_SHARD)

    stream.feed(answer(vgtid({"-80": "a:1-11"}), event("OTHER")))

    assert (stream.decoder.shards.places, stream.decoder.progress.transactions) == (1, 0)
    assert decode_position(stream.decoder.shards.position).vgtid[0].gtid == "MySQL56/a:1-11"
