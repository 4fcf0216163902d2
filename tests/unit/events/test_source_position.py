"""Where an event says that it stands in its source, for each kind of source, with and without a schema around it."""

import json

import msgspec
import pytest

from libs.events.envelope import MysqlSourceBlock, VitessSourceBlock, json_text, source_place, source_tail
from libs.events.source_position import SourcePlace
from libs.events.source_position import source_place as place_of

GTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562:17"
VGTID = (
    '[{"keyspace":"shop","shard":"80-","gtid":"MySQL56/b:1-2"},{"keyspace":"shop","shard":"-80","gtid":"MySQL56/a:1"}]'
)


def mysql_source(gtid: bytes) -> bytes:
    block = MysqlSourceBlock("shop", "shop", "orders")
    head = block.head(time_us=1_000, snapshot=b'"false"', server_id=1, gtid=gtid, file=b'"binlog.000003"')
    return head + source_place(540, 2) + source_tail(None)


def vitess_source() -> bytes:
    block = VitessSourceBlock("shop", "shop", "orders", "-80")
    return block.filled(time_us=1_000, snapshot=b'"false"', vgtid=json_text(VGTID))


def event(source: bytes) -> bytes:
    return b'{"before":null,"after":{"id":1,"source":{"gtid":"a row\'s own"}},"source":%b,"op":"c","ts_ms":1}' % source


def test_a_mysql_event_says_its_transaction_and_its_place_in_the_log() -> None:
    place = place_of(event(mysql_source(b'"%b"' % GTID.encode())))

    assert place == SourcePlace(source_partition="", position={"gtid": GTID, "file": "binlog.000003", "pos": 540})


def test_without_gtids_the_place_in_the_log_is_left() -> None:
    place = place_of(event(mysql_source(b"null")))

    assert place is not None
    assert place.position == {"file": "binlog.000003", "pos": 540}


def test_a_vgtid_names_the_shards_that_it_covers() -> None:
    """All shards of a stream are one source partition: each event has the positions of all."""
    place = place_of(event(vitess_source()))

    assert place == SourcePlace(source_partition="-80,80-", position={"vgtid": VGTID})


def test_a_schema_around_the_event_changes_nothing() -> None:
    plain = event(vitess_source())

    assert place_of(b'{"schema":{"type":"struct"},"payload":%b}' % plain) == place_of(plain)


def test_a_source_whose_position_is_removed_says_none() -> None:
    assert place_of(event(b'{"version":"1","connector":"vitess","vgtid":null}')) is None
    assert place_of(json.dumps({"before": None, "after": None, "op": "c"}).encode()) is None


def test_what_is_no_event_is_told() -> None:
    with pytest.raises(msgspec.DecodeError):
        place_of(b"no event")
