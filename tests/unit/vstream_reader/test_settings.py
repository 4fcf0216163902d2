"""Mistakes in the settings of a VStream reader are told before anything is read, all at once."""

from typing import Any

import pytest

from libs.config.connections import GrpcClientSettings
from libs.source.vitess.settings import StreamSettings, VtgateSettings
from services.vstream_reader.settings import SnapshotMode, SnapshotSettings, VstreamReaderSettings, mistakes_in

UNUSED = GrpcClientSettings(address="127.0.0.1:1")


def settings(**chosen: Any) -> VstreamReaderSettings:
    usual = {"vtgate": VtgateSettings(host="vtgate"), "schema_history": UNUSED, "checkpoint_committer": UNUSED}
    return VstreamReaderSettings(**{"source": "s", "keyspace": "ks", **usual, **chosen})


@pytest.mark.parametrize("interval_s", [0, -3])
def test_a_stream_without_heartbeats_is_refused(interval_s: int) -> None:
    """A keyspace at rest would count as lost every two seconds."""
    (mistake,) = mistakes_in(settings(stream=StreamSettings(heartbeat_interval_s=interval_s)))

    assert mistake.startswith(f"stream.heartbeat_interval_s: must be 1 or more, is {interval_s}: ")


def test_numbers_that_cannot_be_are_told_all_at_once() -> None:
    vtgate = VtgateSettings(host="vtgate", max_message_bytes=0, keepalive_s=0, timeout_s=-1)

    mistakes = mistakes_in(settings(vtgate=vtgate, lease_s=0, heartbeat_interval_s=-0.5))

    assert [mistake.partition(":")[0] for mistake in mistakes] == [
        "vtgate.max_message_bytes", "vtgate.keepalive_s", "vtgate.timeout_s", "heartbeat_interval_s", "lease_s",
    ]  # fmt: skip


def test_no_table_to_copy_is_a_mistake_unless_nothing_is_copied() -> None:
    """vtgate takes an empty list for all tables."""
    nothing = SnapshotSettings(include_tables=())

    assert mistakes_in(settings(snapshot=nothing)) == [
        "snapshot.include_tables: is empty; to copy nothing set snapshot.mode to no_data"
    ]
    assert not mistakes_in(settings(snapshot=SnapshotSettings(include_tables=(), mode=SnapshotMode.NO_DATA)))
