"""The meaning of vtgate's status to the reader: by code, and where Vitess has one code for several faults, by its text."""

import grpc
import pytest

from libs.errors import (
    AccessDenied,
    HeadwaterError,
    PipelineHalted,
    PositionPurged,
    SourceMisconfigured,
    SourceUnavailable,
)
from libs.source.vitess.settings import VtgateSettings
from protos.vitess import vtgate_pb2, vtrpc_pb2
from services.vstream_reader.client import ShardsNotInStream, Vtgate, error_of

UNKNOWN, UNAVAILABLE = grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("code", "details", "error", "remedy"),
    [
        (UNAVAILABLE, "connection refused", SourceUnavailable, "connection refused"),
        (UNKNOWN, "vttablet: rpc error: code = Unavailable", SourceUnavailable, "vttablet"),
        (
            UNKNOWN,
            "stream (at source tablet) error @ x: purged required binary logs (errno 1236)",
            PositionPurged,
            "re-snap",
        ),
        (
            UNKNOWN,
            "Could not find first log file name in binary log index file (errno 1236)",
            PositionPurged,
            "re-snap",
        ),
        (
            UNKNOWN,
            "log event entry exceeded max_allowed_packet (errno 1236)",
            PipelineHalted,
            "raise max_allowed_packet",
        ),
        (UNKNOWN, "binlog truncated in the middle of event (errno 1236)", PipelineHalted, "repair the tablet"),
        (UNKNOWN, "cannot determine table columns for t: event has …", PipelineHalted, "--track_schema_versions"),
        (UNKNOWN, "cannot determine table columns for t: event has …", PipelineHalted, "make the column VISIBLE"),
        (
            UNKNOWN,
            "not all journaling participants are in the stream: journal: …",
            ShardsNotInStream,
            "shards",
        ),
        (UNKNOWN, "table t is not present in the database", SourceMisconfigured, "include_tables"),
        (UNKNOWN, "stream error @ x: table t not found in vttablet schema", SourceUnavailable, "reloaded its schema"),
        (UNKNOWN, "stream error @ x: unknown table t in schema", SourceUnavailable, "reloaded its schema"),
        (
            UNAVAILABLE,
            "target: ks.-80.rdonly: no healthy tablet available",
            SourceUnavailable,
            "stream.tablet_type must",
        ),
        (grpc.StatusCode.NOT_FOUND, "node doesn't exist: keyspaces/ks", SourceMisconfigured, "correct keyspace"),
        (
            grpc.StatusCode.INVALID_ARGUMENT,
            "could not decode position: x",
            PipelineHalted,
            "copy again by headwater reset",
        ),
        (grpc.StatusCode.UNAUTHENTICATED, "invalid password", AccessDenied, "vtgate.user"),
        (UNAVAILABLE, "error reading: TLSV13_ALERT_CERTIFICATE_REQUIRED", AccessDenied, "vtgate.tls_certificate_file"),
        (UNAVAILABLE, "remote error: tls: alert bad certificate", AccessDenied, "vtgate.tls_key_file"),
        (UNAVAILABLE, "SSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED: self signed", AccessDenied, "vtgate.tls_ca_file"),
        (UNKNOWN, "vttablet: tls: certificate has expired", SourceUnavailable, "vttablet"),
        (grpc.StatusCode.UNIMPLEMENTED, "", PipelineHalted, "another release"),
        (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "CLIENT: Received message larger than max (70000000 vs. 67108864)",
            PipelineHalted,
            "one answer has 70000000 bytes: raise vtgate.max_message_bytes",
        ),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams", SourceUnavailable, "too many streams"),
    ],
)
def test_a_status_says_what_to_do_next(
    code: grpc.StatusCode, details: str, error: type[HeadwaterError], remedy: str
) -> None:
    """The class is the next step, the message names vtgate and ends with the remedy."""
    found = error_of(code, details, where="vtgate.example:15991")

    assert type(found) is error
    assert "vtgate.example:15991" in str(found)
    assert remedy in str(found)


@pytest.mark.parametrize(
    "details",
    [
        "stream error @ x: unsupported constraint: id in (1, 2)",
        "vttablet: column w not found in table t",
        "vttablet: syntax error at position 31 near 'is'",
    ],
)
def test_only_of_a_condition_a_rule_that_cannot_be_filtered_by_is_told(details: str) -> None:
    """A stream without one is opened again: a tablet that does not know a table's columns yet says the like."""
    asked = error_of(UNKNOWN, details, where="vtgate.example:15991", has_condition=True)
    followed = error_of(UNKNOWN, details, where="vtgate.example:15991")

    assert isinstance(asked, SourceMisconfigured)
    assert "joined by AND" in str(asked)
    assert isinstance(followed, SourceUnavailable)
    assert "AND" not in str(followed)


@pytest.mark.parametrize(
    ("code", "error"), [(vtrpc_pb2.CLUSTER_EVENT, SourceUnavailable), (vtrpc_pb2.UNKNOWN, PipelineHalted)]
)
async def test_a_statement_that_a_reshard_stops_is_tried_again(
    code: vtrpc_pb2.Code, error: type[HeadwaterError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error stands in an answer whose status is OK. One that vtgate refuses is for people."""

    async def stopped(*_: object, **__: object) -> vtgate_pb2.ExecuteResponse:
        message = "target: ks.-80.primary: operation not allowed in state NOT_SERVING"
        return vtgate_pb2.ExecuteResponse(error=vtrpc_pb2.RPCError(code=code, message=message))

    async with Vtgate(VtgateSettings(host="127.0.0.1", port=1)) as vtgate:
        monkeypatch.setattr(vtgate, "_execute", stopped)
        with pytest.raises(error, match=r"refuses 'SHOW GLOBAL GTID_EXECUTED FROM `ks`': target: ks\.-80"):
            await vtgate.executed("ks")
