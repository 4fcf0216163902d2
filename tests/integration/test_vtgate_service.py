"""The stand-in's answers besides the stream: statements, positions, callers without rights, failures on demand."""

import datetime
import ipaddress
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from libs.stand_ins.vtgate.client import At, StreamReader, changes, count, execute, kinds, last_vgtid
from libs.stand_ins.vtgate.cluster import on_every_shard
from libs.stand_ins.vtgate.faults import AnonymousColumns, Delay, Drop, MissingField, OversizedRow, WrongFields
from libs.stand_ins.vtgate.replay import ReplayServer, write_record
from libs.stand_ins.vtgate.rules import row_values
from libs.stand_ins.vtgate.service import Security, VtgateServer
from libs.stand_ins.vtgate.vindex import KeyRange, keyspace_id
from protos.vitess.binlogdata_pb2 import ShardGtid, VEventType
from protos.vitess.topodata_pb2 import TabletType
from protos.vitess.vtctldata_pb2 import ExecuteVtctlCommandRequest, ShardReplicationPositionsRequest
from protos.vitess.vtctlservice_pb2_grpc import VtctldStub, VtctlStub
from protos.vitess.vtgate_pb2 import VStreamResponse
from tests.conftest import StartVtgate

REPOSITORY = Path(__file__).parents[2]
WHOLE_COPY = 9 + 3 + 2  # of a shard with four rows: the table, its completion, COPY_COMPLETED of the shard and of all


def test_the_hash_vindex_is_vitess() -> None:
    """Vitess source go/vt/vtgate/vindexes/hash_test.go."""
    known = {1: "166b40b44aba4bd6", 2: "06e7ea22ce92708f", 3: "4eb190c9a2fa169c", 4: "d2fd8867d50d2dfe"}

    assert {number: keyspace_id(number).hex() for number in known} == known
    assert [KeyRange.parse(name).holds(keyspace_id(4)) for name in ("-80", "80-", "d0-e0", "0")] == [
        False,
        True,
        True,
        True,
    ]


def test_show_and_routed_statements(start_vtgate: StartVtgate) -> None:
    vtgate = start_vtgate()
    keyspace = vtgate.topology.keyspaces[0].name
    on_every_shard(vtgate.topology, keyspace, ["CREATE TABLE t (id BIGINT PRIMARY KEY, val VARCHAR(9))"])
    execute(vtgate, "INSERT INTO t (id, val) VALUES (1, 'a'), (4, 'b'), (5, 'c')", keyspace)

    assert _rows(vtgate, f"/*vt+ WORKLOAD_NAME=x */ SHOW VITESS_SHARDS LIKE '{keyspace}/%'") == [
        [f"{keyspace}/-80".encode()],
        [f"{keyspace}/80-".encode()],
    ]
    assert _rows(vtgate, f"SHOW TABLES FROM {keyspace}") == _rows(vtgate, "SHOW TABLES", f"{keyspace}:80-") == [[b"t"]]
    assert [keyspace.encode()] in _rows(vtgate, "SHOW DATABASES;")
    assert [row[1:4] for row in _rows(vtgate, "SHOW VITESS_TABLETS")] == [
        [keyspace.encode(), b"-80", b"PRIMARY"],
        [keyspace.encode(), b"80-", b"PRIMARY"],
    ]
    assert _rows(vtgate, "SELECT id FROM t ORDER BY id", f"{keyspace}:-80") == [[b"1"], [b"5"]]
    assert _rows(vtgate, "SELECT val FROM t WHERE id = 4", keyspace) == [[b"b"]]
    assert execute(vtgate, "UPDATE t SET val = 'z' WHERE id IN (1, 4)", keyspace).rows_affected == 2
    with pytest.raises(AssertionError, match="unknown database 'nowhere'"):
        execute(vtgate, "SHOW TABLES FROM nowhere")
    with pytest.raises(AssertionError, match="errno 1062"):
        execute(vtgate, "INSERT INTO t (id, val) VALUES (1, 'twice')", keyspace)


def test_positions_through_vtctld(start_vtgate: StartVtgate) -> None:
    """As text, whose ninth word is the position, and as records."""
    vtgate = start_vtgate()
    keyspace = vtgate.topology.keyspaces[0].name
    primary = vtgate.topology.shard(keyspace, "-80").primary

    with grpc.insecure_channel(vtgate.address) as channel:
        request = ExecuteVtctlCommandRequest(args=["ShardReplicationPositions", f"{keyspace}:-80"])
        lines = [answer.event.value for answer in VtctlStub(channel).ExecuteVtctlCommand(request)]
        answer = VtctldStub(channel).ShardReplicationPositions(
            ShardReplicationPositionsRequest(keyspace=keyspace, shard="-80")
        )

    assert [line.split(" ")[8] for line in lines] == [primary.position()]
    assert answer.replication_statuses[primary.alias].position == primary.position()
    assert answer.tablet_map[primary.alias].type == TabletType.PRIMARY


def test_callers_without_the_password_are_refused(start_vtgate: StartVtgate) -> None:
    vtgate = start_vtgate(security=Security(users={"vitess": "secret"}))
    keyspace = vtgate.topology.keyspaces[0].name
    start = [ShardGtid(keyspace=keyspace, gtid="current")]

    for said in ((), (("username", "vitess"), ("password", "wrong"))):
        with StreamReader(vtgate, start, metadata=said) as stream:
            stream.until_over()
        assert stream.error.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError, match="invalid credentials"):
            execute(vtgate, "SHOW DATABASES", metadata=said)
    right = (("username", "vitess"), ("password", "secret"))
    with StreamReader(vtgate, start, metadata=right) as stream:
        assert kinds(stream.until(count(VEventType.OTHER, 2)))


def test_mutual_tls(start_vtgate: StartVtgate, tmp_path: Path) -> None:
    """Without a certificate of the authority nobody gets in."""
    certificate, key = _certificate(tmp_path)
    vtgate = start_vtgate(security=Security(certificate_file=certificate, key_file=key, client_ca_file=certificate))
    start = [ShardGtid(keyspace=vtgate.topology.keyspaces[0].name, gtid="current")]
    authority, pair = (
        certificate.read_bytes(),
        {"private_key": key.read_bytes(), "certificate_chain": certificate.read_bytes()},
    )

    for options, is_let_in in (({}, False), (pair, True)):
        credentials = grpc.ssl_channel_credentials(root_certificates=authority, **options)
        channel = grpc.secure_channel(vtgate.address, credentials)
        with StreamReader(vtgate, start, channel=channel) as stream:
            if is_let_in:
                stream.until(count(VEventType.OTHER, 2))
            else:
                stream.until_over()
                assert stream.error.code() is grpc.StatusCode.UNAVAILABLE


def test_failures_on_demand(start_vtgate: StartVtgate) -> None:
    """Each is met once; the stream that follows is whole again."""
    vtgate, keyspace = _with_rows(start_vtgate)
    start = [ShardGtid(keyspace=keyspace, shard="-80")]

    vtgate.faults.arm(Drop(behind_events=4))
    with StreamReader(vtgate, start, tables=["t"]) as stream:
        events = stream.until_over()
    assert kinds(events) == ["BEGIN", "FIELD", "VGTID", "ROW"]
    assert stream.error.code() is grpc.StatusCode.UNAVAILABLE

    vtgate.faults.arm(AnonymousColumns("t"))
    assert [field.name for field in _copied(vtgate, start)[1].field_event.fields] == ["@1", "@2"]
    vtgate.faults.arm(WrongFields("t"))
    assert [field.name for field in _copied(vtgate, start)[1].field_event.fields] == ["id", "val", "gone"]
    vtgate.faults.arm(MissingField("t"))
    assert kinds(_copied(vtgate, start))[:3] == ["BEGIN", "VGTID", "ROW"]
    vtgate.faults.arm(OversizedRow("t", 5_000_000))
    with grpc.insecure_channel(vtgate.address) as channel, StreamReader(vtgate, start, channel=channel) as stream:
        stream.until_over()
        assert stream.error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    vtgate.faults.arm(Delay(0.7))
    before_s = time.monotonic()
    assert len(_copied(vtgate, start)) == WHOLE_COPY
    assert time.monotonic() - before_s >= 0.7
    assert vtgate.faults.armed == ()
    assert len(_copied(vtgate, start)) == WHOLE_COPY


def test_a_stopped_server_breaks_its_streams_and_another_takes_over(start_vtgate: StartVtgate) -> None:
    vtgate, keyspace = _with_rows(start_vtgate)
    first = VtgateServer(vtgate.topology).start()

    with StreamReader(first, [ShardGtid(keyspace=keyspace)], tables=["t"]) as stream:
        stream.until(count(VEventType.COPY_COMPLETED, 3))
        first.stop()
        stream.until_over()
    again = VtgateServer(vtgate.topology, port=first.port).start()
    try:
        assert len(_copied(again, [ShardGtid(keyspace=keyspace, shard="-80")])) == WHOLE_COPY
    finally:
        again.stop()
    assert stream.error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def test_replay_serves_a_record(start_vtgate: StartVtgate, tmp_path: Path) -> None:
    """Messages that were received from one server come again from a record of it, for every caller from the beginning."""
    vtgate, keyspace = _with_rows(start_vtgate)
    with StreamReader(vtgate, [ShardGtid(keyspace=keyspace)], tables=["t"]) as stream:
        recorded = stream.until(count(VEventType.COPY_COMPLETED, 3))
    write_record(tmp_path / "record", [VStreamResponse(events=response) for response in stream.responses])
    replay = ReplayServer(tmp_path / "record").start()
    try:
        for _ in range(2):
            with StreamReader(replay, []) as again:
                assert again.until(count(VEventType.COPY_COMPLETED, 3)) == recorded
        shown = execute(replay, f"SHOW VITESS_SHARDS LIKE '{keyspace}/%'")
        assert [row_values(row) for row in shown.rows] == [[f"{keyspace}/-80".encode()], [f"{keyspace}/80-".encode()]]
        shown = execute(replay, f"SHOW GLOBAL GTID_EXECUTED FROM `{keyspace}`")
        last = {shard.shard: shard.gtid.removeprefix("MySQL56/") for shard in last_vgtid(recorded).shard_gtids}
        assert {row_values(row)[2].decode(): row_values(row)[1].decode() for row in shown.rows} == last
    finally:
        replay.stop()


def test_as_a_process(shard_servers, unique_name, tmp_path: Path) -> None:
    """``python -m libs.stand_ins.vtgate FILE`` makes the databases, prints where it listens and ends with SIGTERM."""
    keyspace = unique_name("ks")
    shards = dict(zip(("-80", "80-"), ({"host": s.host, "port": s.port} for s in shard_servers(2)), strict=True))
    document = {"keyspaces": {keyspace: {"shards": shards, "vindex_columns": {"o": "customer"}}}}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "libs.stand_ins.vtgate", str(tmp_path / "cluster.yaml")]

    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            said = process.stdout.readline().split()
            server = At(said[-1])
            execute(server, "CREATE TABLE o (n INT PRIMARY KEY, customer BIGINT)", keyspace)
            execute(server, "INSERT INTO o (n, customer) VALUES (1, 1), (2, 4)", keyspace)
            on_low = execute(server, "SELECT n FROM o", f"{keyspace}:-80")
        finally:
            process.terminate()
    assert said[:2] == ["listening", "on"]
    assert [row_values(row) for row in on_low.rows] == [[b"1"]]
    assert process.returncode == 0


def _rows(vtgate: VtgateServer, sql: str, target: str = "") -> list[list[bytes | None]]:
    return [row_values(row) for row in execute(vtgate, sql, target).rows]


def _with_rows(start_vtgate: StartVtgate) -> tuple[VtgateServer, str]:
    vtgate = start_vtgate()
    keyspace = vtgate.topology.keyspaces[0].name
    on_every_shard(vtgate.topology, keyspace, ["CREATE TABLE t (id BIGINT PRIMARY KEY, val BIGINT)"])
    execute(vtgate, "INSERT INTO t (id, val) VALUES " + ", ".join(f"({n}, {n})" for n in range(1, 9)), keyspace)
    return vtgate, keyspace


def _copied(vtgate: VtgateServer, start: list[ShardGtid]) -> list:
    """The whole copy of shard -80: four rows."""
    with StreamReader(vtgate, start, tables=["t"]) as stream:
        events = stream.until(count(VEventType.COPY_COMPLETED, 2))
    assert len(changes(events, "t")) == 4
    return events


def _certificate(folder: Path) -> tuple[Path, Path]:
    """For loopback, signed by itself: server, client and authority in one."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vtgate")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths
