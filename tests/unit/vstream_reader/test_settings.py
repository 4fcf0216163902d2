"""Mistakes in the settings of a VStream reader are reported before anything is read, all at once."""

from typing import Any

import pytest

from libs.config.connections import GrpcClientSettings
from libs.source.failure_policy import FailureHandling
from libs.source.vitess.settings import CellPreference, StreamSettings, VtgateSettings
from services.vstream_reader.settings import SnapshotMode, SnapshotSettings, VstreamReaderSettings, mistakes_in
from services.vstream_reader.snapshot import first_position

UNUSED = GrpcClientSettings(address="127.0.0.1:1")


def settings(**chosen: Any) -> VstreamReaderSettings:
    usual = {"vtgate": VtgateSettings(host="vtgate"), "schema_history": UNUSED, "checkpoint_committer": UNUSED}
    return VstreamReaderSettings(**{"source": "s", "keyspace": "ks", **usual, **chosen})


@pytest.mark.parametrize("interval_s", [0, -3])
def test_a_stream_without_heartbeats_is_refused(interval_s: int) -> None:
    """A keyspace at rest would count as lost every two seconds."""
    (mistake,) = mistakes_in(settings(stream=StreamSettings(heartbeat_interval_s=interval_s)))

    assert mistake == "stream.heartbeat_interval_s: must be from 1 to 3,600"


def test_numbers_that_cannot_be_are_told_all_at_once() -> None:
    vtgate = VtgateSettings(host="vtgate", max_message_bytes=0, keepalive_s=0, timeout_s=-1)

    mistakes = mistakes_in(settings(vtgate=vtgate, lease_s=0, heartbeat_interval_s=-0.5))

    assert {mistake.partition(":")[0] for mistake in mistakes} == {
        "vtgate.max_message_bytes", "vtgate.keepalive_s", "vtgate.timeout_s", "heartbeat_interval_s", "lease_s",
    }  # fmt: skip


def test_a_row_that_cannot_be_read_stops_no_other_table_by_default() -> None:
    """As of a MySQL or Oracle source: a byte that a charset does not map held up a whole keyspace."""
    assert settings().failure_handling is FailureHandling.DEAD_LETTER


def test_no_table_to_copy_is_a_mistake_unless_nothing_is_copied() -> None:
    """vtgate takes an empty list for all tables."""
    nothing = SnapshotSettings(include_tables=())

    assert mistakes_in(settings(snapshot=nothing)) == [
        "snapshot.include_tables: is empty; to copy nothing set snapshot.mode to no_data"
    ]
    assert not mistakes_in(settings(snapshot=SnapshotSettings(include_tables=(), mode=SnapshotMode.NO_DATA)))


PLACE = '[{"keyspace":"ks","shard":"-80","gtid":"MySQL56/a:1-9"}]'


@pytest.mark.parametrize(
    ("start", "beside", "mistake"),
    [
        ("[{}]", {}, "start_vgtid: is no VGTID (Object missing required field `keyspace` - at `$[0]`)"),
        ("MySQL56/a:1-9", {}, "start_vgtid: a GTID set alone needs exactly one shard in 'shards'"),
        ("curent", {}, "start_vgtid: 'curent' is no place; did you mean 'current'?"),
        ("EARLIEST", {}, "start_vgtid: 'EARLIEST' is no place; did you mean 'earliest'?"),
        ("earliest", {"snapshot": SnapshotSettings(mode=SnapshotMode.NEVER)}, "start_vgtid: earliest copies the tables, and"),
        (PLACE, {"keyspace": "other"}, "start_vgtid: is of keyspace ks, and keyspace is 'other'"),
        (PLACE, {"shards": ("-80", "80-")}, "start_vgtid: names no place of shard 80-, which 'shards' has read; add an entry"),
    ],
)  # fmt: skip
def test_a_start_that_cannot_be_is_refused(start: str, beside: dict[str, Any], mistake: str) -> None:
    """With the value that was meant, or the part that is missing."""
    (found,) = mistakes_in(settings(start_vgtid=start, **beside))

    assert found.startswith(mistake)


@pytest.mark.parametrize("start", ["", "current", "earliest", " current\n", PLACE])
def test_a_start_that_can_be_is_taken(start: str) -> None:
    """For any number of shards; which of them the VGTID lacks is known when vtgate has listed them."""
    assert not mistakes_in(settings(start_vgtid=start))
    assert not mistakes_in(settings(start_vgtid="MySQL56/a:1-9", shards=("-80",)))


def test_an_entry_without_a_shard_stands_for_all_others() -> None:
    """As vtgate takes it."""
    text = '[{"keyspace":"ks","gtid":"current"},{"keyspace":"ks","shard":"-80","gtid":"MySQL56/a:1-9"}]'

    found = first_position(settings(start_vgtid=text), ("-80", "80-")).vgtid

    assert [(entry.shard, entry.gtid) for entry in found] == [("-80", "MySQL56/a:1-9"), ("80-", "current")]


@pytest.mark.parametrize(
    ("stream", "mistake"),
    [
        (StreamSettings(cells=("a,b",)), "stream.cells[0]: 'a,b' is no cell"),
        (StreamSettings(cell_preference=CellPreference.ONLY_SPECIFIED), "stream.cell_preference: onlyspecified needs"),
    ],
)
def test_cells_that_cannot_be_are_refused(stream: StreamSettings, mistake: str) -> None:
    """vtgate would look in a cell of another name, or in none."""
    (found,) = mistakes_in(settings(stream=stream))

    assert found.startswith(mistake)


def test_a_shard_that_is_named_twice_is_refused() -> None:
    """Its rows would come twice."""
    assert mistakes_in(settings(shards=("-80", "80-", "-80"))) == ["shards[2]: '-80' is named twice"]
