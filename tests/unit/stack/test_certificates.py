"""The embedded stack's certificates: made, renewed under calls, and asked for."""

import datetime
import stat
from datetime import UTC, timedelta
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from libs.config.connections import GrpcClientSettings, GrpcServerSettings
from libs.mesh.home import Home, home_at
from libs.mesh.own_services import caller, certificate_file, has_tls, key_file, server_files
from libs.rpc.authority import AUTHORITY_LIFE, HANDED_OUT, LIFE
from libs.rpc.client import open_channel
from libs.rpc.server import RpcServer, start_server
from libs.servers.ports import LOOPBACK
from libs.stack.certificates import forget_certificates, renew_certificates

PROCESSES = ("schema_history", "reader-web.0")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return home_at(tmp_path)


def test_they_are_the_owners_alone_and_stay_until_their_time(home: Home) -> None:
    now = datetime.datetime.now(UTC)

    assert renew_certificates(home, PROCESSES, now)
    assert has_tls(home)
    written = contents(home)

    assert not renew_certificates(home, PROCESSES, now + LIFE / 2)
    assert contents(home) == written
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.tls_dir.iterdir()} == {0o600}
    assert stat.S_IMODE(home.tls_dir.stat().st_mode) == 0o700


def test_a_file_that_was_broken_off_is_written_again_and_the_others_stay(home: Home) -> None:
    now = datetime.datetime.now(UTC)
    renew_certificates(home, PROCESSES, now)
    written = contents(home)
    certificate_file(home, "reader-web.0").write_bytes(b"-----BEGIN CERTIFICATE-----\n")

    assert renew_certificates(home, PROCESSES, now)
    changed = {name for name, content in contents(home).items() if content != written[name]}

    assert changed == {"reader-web.0.pem", "reader-web.0.key"}


def test_a_stack_without_tls_leaves_none_to_commands(home: Home) -> None:
    renew_certificates(home, PROCESSES, datetime.datetime.now(UTC))

    forget_certificates(home)

    assert not has_tls(home)
    assert caller(home, 7, timeout_s=1.0).tls_ca_file is None


async def test_only_who_has_a_certificate_of_the_home_is_answered(home: Home, tmp_path: Path) -> None:
    """A command of the home is; a stranger is not: in the clear, or with a certificate of another home."""
    other = home_at(tmp_path / "other")
    for each in (home, other):
        renew_certificates(each, PROCESSES, datetime.datetime.now(UTC))
    server = await started(home)

    own = await answers(caller(home, server.port, timeout_s=20.0))
    clear = await answers(caller(home_at(tmp_path / "none"), server.port, timeout_s=2.0))
    stranger = await answers(caller(other, server.port, timeout_s=2.0))
    await server.stop(0)

    assert (own, clear, stranger) == (True, False, False)


async def test_no_call_fails_while_certificates_and_authority_are_renewed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server and a caller that began with certificates that end soon, of an authority that ends soon."""
    monkeypatch.setattr("libs.rpc.renewing_channel.LOOK_S", 0.0)
    now = datetime.datetime.now(UTC)
    renew_certificates(home, PROCESSES, now - AUTHORITY_LIFE * 3 / 4)
    renew_certificates(home, PROCESSES, now - LIFE / 2)  # announces the next authority
    server = await started(home)
    settings = caller(home, server.port, timeout_s=20.0)
    seen = [contents(home)]

    async with open_channel(settings) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for moment in (now, now + HANDED_OUT, now + timedelta(hours=12)):
            await stub.Check(health_pb2.HealthCheckRequest())
            renew_certificates(home, PROCESSES, moment - HANDED_OUT)
            seen.append(contents(home))
            await stub.Check(health_pb2.HealthCheckRequest())
            assert await answers(settings)
    await server.stop(0)

    assert seen[0]["authority.pem"] != seen[-1]["authority.pem"]
    assert seen[0]["schema_history.pem"] != seen[-1]["schema_history.pem"]
    assert seen[-1]["authorities.pem"].count(b"BEGIN") == 2


async def started(home: Home) -> RpcServer:
    server = await start_server(GrpcServerSettings(host=LOOPBACK, **server_files(home, "schema_history")), {})
    await server.set_serving(True)
    return server


async def answers(settings: GrpcClientSettings) -> bool:
    async with open_channel(settings) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=settings.timeout_s)
        except grpc.aio.AioRpcError:
            return False
        return True


def contents(home: Home) -> dict[str, bytes]:
    assert key_file(home, "commands").exists()
    return {path.name: path.read_bytes() for path in home.tls_dir.iterdir()}
