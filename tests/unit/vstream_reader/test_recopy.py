"""The second stream of an incremental snapshot: when it is opened, on which shards, and the meaning of its end."""

import json
from typing import Any

import msgspec
import pytest
import structlog

from libs.errors import HeadwaterError, PositionPurged, SourceMisconfigured, SourceUnavailable, UndecodableValue
from libs.telemetry.faults import ROWS_CHANGED_UNSEEN, lasting_faults, raise_fault
from libs.types.checkpoint import NO_INCREMENTAL, IncrementalSnapshot, TableCopy
from libs.types.fault import FaultScope
from libs.types.position import SourcePosition
from protos.vitess import binlogdata_pb2, vtgate_pb2
from services.vstream_reader.client import ShardsNotInStream
from services.vstream_reader.position import SOURCE_KIND, VitessPosition, decode_position
from services.vstream_reader.recopy import Recopy
from services.vstream_reader.settings import VstreamReaderSettings
from tests.unit.vstream_reader.stream import Replay, answer, event, fields, replay, row, rows, start_of, vgtid

HALVES = ("-80", "80-")
QUARTERS = ("-40", "40-80", "80-")


class Rig:
    """A ``Recopy`` beside main streams that are made up."""

    def __init__(self, *tables: TableCopy) -> None:
        unused: Any = {"address": "127.0.0.1:1"}
        settings = VstreamReaderSettings(
            source="s",
            keyspace="ks",
            vtgate=None,  # type: ignore[arg-type]  # not asked here
            schema_history=unused,
            checkpoint_committer=unused,
        )
        self.second: Replay | None = None
        state = msgspec.structs.replace(NO_INCREMENTAL, tables=tables)
        self.recopy = Recopy(settings, state, labels=("recopy", "0"), make_decoder=self._decoder)

    def _decoder(self, position: VitessPosition, for_tenants: tuple[str, ...]) -> Any:
        self.second = replay(position, is_copying=True, is_recopy=True, for_tenants=for_tenants)
        return self.second.decoder

    @property
    def state(self) -> IncrementalSnapshot:
        return self.recopy.state

    def due(self, *shards: str, now_s: float = 0.0) -> vtgate_pb2.VStreamRequest | None:
        """The second stream to open beside a main stream of these shards."""
        return self.recopy.due(main(*shards).decoder, now_s)

    def feed(self, *answers: bytes) -> bool:
        """Whether the second stream is over."""
        assert self.second is not None
        self.second.feed(*answers)
        is_over = self.recopy.delivered()
        if is_over:
            self.recopy.ended()
        return is_over

    def breaks(self, error: HeadwaterError | None, now_s: float = 0.0) -> None:
        self.recopy.broke(error, now_s)
        self.recopy.ended()


def main(*shards: str) -> Replay:
    return replay(start_of(*shards, gtid="MySQL56/a:1-9"))


def copied(row_id: int, last_keys: dict[str, int], *, first: bool = False) -> bytes:
    """A row of the shard 80-, and how far both are."""
    places = {"-80": "a:1-5", "80-": "b:1-9"}
    opening = [event("BEGIN"), *([fields(shard="80-")] if first else [])]
    return answer(
        *opening,
        rows((None, row(row_id, "v")), timestamp=0, shard="80-"),
        vgtid(places, last_keys, shard="80-"),
        event("COMMIT", shard="80-"),
    )


def shards_asked(request: vtgate_pb2.VStreamRequest | None) -> list[tuple[str, str]]:
    assert request is not None
    return [(entry.shard, entry.gtid) for entry in request.vgtid.shard_gtids]


def test_a_copy_that_is_opened_has_begun() -> None:
    """Before its first row: rows that vtgate reads from then on may be older than a request to come."""
    rig = Rig(TableCopy(table="ks.t", condition="id > 5"))

    request = rig.due(*HALVES)

    assert shards_asked(request) == [("-80", ""), ("80-", "")]
    assert request is not None
    assert [(rule.match, rule.filter) for rule in request.filter.rules] == [("t", "select * from `t` where id > 5")]
    assert rig.state.tables[0].last_key
    assert rig.due(*HALVES) is None  # it runs


def test_a_main_stream_that_does_not_know_its_shards_yet_is_awaited() -> None:
    assert Rig(TableCopy(table="ks.t")).due("") is None


def test_a_copy_goes_on_from_its_place() -> None:
    """In another process, which has the checkpoint alone."""
    rig = Rig(TableCopy(table="ks.t"))
    rig.due(*HALVES)
    rig.feed(copied(7, {"-80": 3, "80-": 7}, first=True))

    (copy,) = rig.state.tables
    request = Rig(copy).due(*HALVES)

    assert (copy.rows_read, copy.chunks_read) == (1, 1)
    assert shards_asked(request) == [("-80", "MySQL56/a:1-5"), ("80-", "MySQL56/b:1-9")]
    assert request is not None
    assert all(entry.table_p_ks for entry in request.vgtid.shard_gtids)


def test_a_copy_whose_shards_the_main_stream_has_left_begins_again() -> None:
    """Its reshard was followed before the copy came to it, or while the reader was dead."""
    rig = Rig(TableCopy(table="ks.t"))
    rig.due(*HALVES)
    rig.feed(copied(7, {"-80": 3, "80-": 7}, first=True))

    is_left = rig.recopy.is_to_end(frozenset(QUARTERS))
    rig.recopy.ended()
    request = rig.due(*QUARTERS)

    assert is_left
    assert shards_asked(request) == [(shard, "") for shard in QUARTERS]
    assert rig.state.tables[0].rows_read == 0


def test_a_shard_that_was_finished_before_its_reshard_is_not_copied_again() -> None:
    """The other one goes on where it is."""
    rig = Rig(TableCopy(table="ks.t"))
    rig.due(*HALVES)
    done = answer(event("COPY_COMPLETED"), vgtid({"-80": "a:1-5", "80-": "b:1-9"}, {"80-": 7}))
    rig.feed(copied(7, {"-80": 3, "80-": 7}, first=True), done)

    is_left = rig.recopy.is_to_end(frozenset(QUARTERS))
    rig.recopy.ended()
    request = rig.due(*QUARTERS)

    assert not is_left
    assert shards_asked(request) == [("80-", "MySQL56/b:1-9")]
    assert rig.state.tables[0].rows_read == 1


def test_a_reshard_that_the_copy_meets_first_is_awaited() -> None:
    """It begins again once the main stream has left the old shards, and a request of meanwhile is answered by that."""
    rig = Rig(TableCopy(table="ks.t"))
    rig.due(*HALVES)
    rig.feed(copied(7, {"-80": 3, "80-": 7}, first=True))

    is_over = rig.feed(answer(vgtid({"-40": "c:1", "40-80": "d:1", "80-": "b:1-9"}, {"80-": 7})))

    assert is_over
    assert rig.state.tables == (TableCopy(table="ks.t"),)
    assert rig.due(*HALVES) is None
    assert shards_asked(rig.due(*QUARTERS)) == [(shard, "") for shard in QUARTERS]


def test_a_stream_that_ends_at_a_reshard_is_awaited_too() -> None:
    """As with ``stream.stop_on_reshard``."""
    rig = Rig(TableCopy(table="ks.t"))
    rig.due(*HALVES)
    journal = binlogdata_pb2.Journal(
        migration_type=binlogdata_pb2.SHARDS,
        participants=[binlogdata_pb2.KeyspaceShard(keyspace="ks", shard="-80")],
    )
    rig.feed(copied(7, {"-80": 3, "80-": 7}, first=True), answer(event("JOURNAL", journal=journal)))

    rig.breaks(None)

    assert rig.due(*HALVES) is None
    assert shards_asked(rig.due(*QUARTERS)) == [(shard, "") for shard in QUARTERS]


@pytest.mark.parametrize("error", [None, SourceUnavailable("EOF")])
def test_what_passes_is_tried_again_ever_later(error: HeadwaterError | None) -> None:
    """From where it was; the pause is short again once rows have come."""
    rig = Rig(TableCopy(table="ks.t"))
    rig.due(*HALVES)
    rig.feed(copied(7, {"-80": 3, "80-": 7}, first=True))
    now_s, pauses = 100.0, []
    for _ in range(8):
        rig.breaks(error, now_s)
        pause_s = next(pause for pause in range(1, 100) if rig.due(*HALVES, now_s=now_s + pause) is not None)
        now_s += pause_s
        pauses.append(pause_s)
    rig.feed(copied(8, {"-80": 3, "80-": 8}, first=True))
    rig.breaks(error, now_s)

    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert rig.state.tables[0].rows_read == 2
    assert shards_asked(rig.due(*HALVES, now_s=now_s + 1)) == [("-80", "MySQL56/a:1-5"), ("80-", "MySQL56/b:1-9")]


@pytest.mark.parametrize("error", [PositionPurged("errno 1236"), ShardsNotInStream("joins others")])
def test_a_place_that_is_gone_begins_the_table_again(error: HeadwaterError) -> None:
    rig = Rig(TableCopy(table="ks.t", signal_id="1"))
    rig.due(*HALVES)
    rig.feed(copied(7, {"-80": 3, "80-": 7}, first=True))

    rig.breaks(error)

    assert rig.state.tables == (TableCopy(table="ks.t", signal_id="1"),)
    assert shards_asked(rig.due(*HALVES, now_s=1.0)) == [("-80", ""), ("80-", "")]


@pytest.mark.parametrize("error", [SourceMisconfigured("unsupported constraint"), UndecodableValue("ks.t.v at row 3")])
def test_what_does_not_pass_takes_one_request_off_the_list(error: HeadwaterError) -> None:
    """By name; another one of the same table is done."""
    other = TableCopy(table="ks.t", signal_id="2")
    rig = Rig(TableCopy(table="ks.t", condition="id IN (1)", signal_id="1"), other)
    rig.due(*HALVES)

    with structlog.testing.capture_logs() as lines:
        rig.breaks(error)

    assert rig.state.tables == (other,)
    assert rig.state.finished == ()
    (line,) = [line for line in lines if line["event"] == "incremental_table_refused"]
    assert (line["table"], line["reason"]) == ("ks.t", str(error))
    assert [(fault.id, fault.scope.table) for fault in lasting_faults()] == [("copy_refused", "ks.t")]


def test_a_copy_is_over_when_all_shards_are() -> None:
    """Its end names the signal and its rows."""
    rig = Rig(TableCopy(table="ks.t", signal_id="1"))
    rig.due(*HALVES)
    rig.recopy.expect(12)

    is_over = rig.feed(copied(7, {"80-": 7}, first=True), answer(event("COPY_COMPLETED", shard="")))

    assert is_over
    assert rig.state.tables == ()
    (end,) = rig.state.finished
    assert (end.table, end.signal_id, end.rows_read) == ("ks.t", "1", 1)


def test_a_whole_copy_for_everybody_ends_the_tables_faults() -> None:
    """One for a tenant, or of a part, brings not all that differs."""
    scope = FaultScope(source="s", table="ks.t")
    raise_fault(ROWS_CHANGED_UNSEEN, scope, happened="TRUNCATE TABLE at -80")
    for copy, lasts in (
        (TableCopy(table="ks.t", condition="id > 5"), True),
        (TableCopy(table="ks.t", for_tenants=("acme",)), True),
        (TableCopy(table="ks.t"), False),
    ):
        rig = Rig(copy)
        rig.due(*HALVES)

        assert rig.feed(copied(7, {"80-": 7}, first=True), answer(event("COPY_COMPLETED", shard="")))

        assert bool(lasting_faults()) == lasts, copy


def test_a_copy_that_was_stopped_and_asked_for_anew_is_begun_anew() -> None:
    """It is of the same table, and both signals came at once."""
    rig = Rig(TableCopy(table="ks.t", condition="id > 5"))
    rig.due(*HALVES)
    rig.feed(copied(7, {"-80": 3, "80-": 7}, first=True))
    was_right = not rig.recopy.is_to_end(frozenset(HALVES))

    rig.recopy.state = msgspec.structs.replace(rig.state, tables=(TableCopy(table="ks.t"),))

    assert was_right
    assert rig.recopy.is_to_end(frozenset(HALVES))


def test_an_estimate_stays_with_the_copy() -> None:
    rig = Rig(TableCopy(table="ks.t"))
    rig.due(*HALVES)
    rig.recopy.expect(12)
    rig.feed(copied(7, {"-80": 3, "80-": 7}, first=True))

    assert rig.state.tables[0].rows_estimated == 12


def test_the_copys_rows_stand_in_the_main_streams_epochs() -> None:
    """Also from its beginning on, so that the later row wins."""
    rig = Rig(TableCopy(table="ks.t"))
    rig.recopy.due(
        replay(VitessPosition(vgtid=main(*HALVES).decoder.shards.place.vgtid, epochs={"-80": 3, "80-": 5})).decoder, 0
    )
    rig.feed(copied(7, {"-80": 3, "80-": 7}, first=True))

    token = rig.state.tables[0].last_key
    assert json.loads(token)["vgtid"]
    assert decode_position(SourcePosition(source_kind=SOURCE_KIND, token=token)).epochs == {"-80": 3, "80-": 5}
