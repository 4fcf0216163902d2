"""MySQL's errors as ours, and the statements for servers of older releases."""

import socket
import struct
import threading
from pathlib import Path
from typing import Any

import pymysql
import pytest

from libs.errors import (
    AccessDenied,
    HeadwaterError,
    PipelineHalted,
    PositionPurged,
    SourceMisconfigured,
    SourceUnavailable,
)
from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.gtid import GtidSet
from libs.source.mysql import client
from libs.source.mysql.replica_lag import _seconds_behind


@pytest.mark.parametrize(
    ("code", "state", "text", "ours"),
    [
        (1054, "42S22", "Unknown column 'x' in 'where clause'", PipelineHalted),
        (1064, "42000", "You have an error in your SQL syntax", PipelineHalted),
        (1046, "3D000", "No database selected", PipelineHalted),
        (1690, "22003", "BIGINT value is out of range", PipelineHalted),
        (1142, "42000", "SELECT command denied to user", AccessDenied),
        (1226, "42000", "User has exceeded the 'max_queries_per_hour' resource", SourceUnavailable),
        (1412, "HY000", "Table definition has changed, please retry transaction", SourceUnavailable),
        (1053, "08S01", "Server shutdown in progress", SourceUnavailable),
        (
            3024,
            "HY000",
            "Query execution was interrupted, maximum statement execution time exceeded",
            SourceUnavailable,
        ),
        (1236, "HY000", "Could not find first log file name in binary log index file", PositionPurged),
        (1236, "HY000", "Cannot replicate because the source purged required binary logs.", PositionPurged),
        (1236, "HY000", "the master has purged binary logs containing GTIDs that the slave requires", PositionPurged),
        (1236, "HY000", "Client requested source to start replication from position > file size", PositionPurged),
        (
            1236,
            "HY000",
            "A replica with the same server_uuid/server_id as this replica has connected",
            SourceMisconfigured,
        ),
        (1236, "HY000", "log event entry exceeded max_allowed_packet; Increase it on source", PipelineHalted),
        (1236, "HY000", "binlog truncated in the middle of event", PipelineHalted),
    ],
)
def test_an_error_packet_says_what_to_do_next(code: int, state: str, text: str, ours: type[HeadwaterError]) -> None:
    packet = b"\xff" + struct.pack("<H", code) + b"#" + state.encode() + text.encode()

    with pytest.raises(ours, match=text[:20].replace("'", ".")) as failed:
        client.raise_error_packet(packet, 0, len(packet))

    assert type(failed.value) is ours
    assert client.mysql_error_code(failed.value) == code


def test_a_dump_is_asked_for_in_the_words_of_every_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server before 8.0.26 knows ``@master_…`` alone: without it, it would send no heartbeat and no checksums."""
    asked: list[str] = []
    monkeypatch.setattr(client, "query", lambda _, statement: asked.append(statement))
    near, far = socket.socketpair()

    class Connection:
        _sock = near
        in_use = threading.Lock()

        def _execute_command(self, command: int, payload: bytes) -> None:
            asked.append(f"command {command}")

    with near, far:
        client.start_dump(
            Connection(),  # type: ignore[arg-type]
            BinlogPosition(gtid_set="", file="binlog.000001", pos=4),
            also_done=GtidSet(),
            replica_server_id=7,
            heartbeat_s=0.5,
            spill_dir=Path(),
        )

    *settings, command = asked
    assert command == "command 30"
    assert sorted(settings) == [
        "SET @master_binlog_checksum = @@GLOBAL.binlog_checksum",
        "SET @master_heartbeat_period = 500000000",
        "SET @source_binlog_checksum = @@GLOBAL.binlog_checksum",
        "SET @source_heartbeat_period = 500000000",
    ]


def test_the_lag_of_a_replica_before_8_0_22_is_asked_for_by_its_older_name() -> None:
    class Cursor:
        def __enter__(self) -> "Cursor":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def execute(self, statement: str) -> None:
            if statement != "SHOW SLAVE STATUS":
                raise pymysql.ProgrammingError(1064, "You have an error in your SQL syntax")

        def fetchall(self) -> list[dict[str, Any]]:
            return [{"Seconds_Behind_Master": 7}, {"Seconds_Behind_Master": None}]

    class Connection:
        def cursor(self, _: object) -> Cursor:
            return Cursor()

    assert _seconds_behind(Connection()) == [7, None]  # type: ignore[arg-type]
