"""The VStream reader before a vtgate with TLS, client certificates and passwords: the clients that get in, and the errors of
the others.

A refusal names the setting that mends it and ends the reader; ``Follower`` would try again for ever at an error that may pass.
"""

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from libs.config.connections import GrpcClientSettings
from libs.config.load import Secret
from libs.errors import AccessDenied, InvalidSettings, SourceUnavailable
from libs.mesh.documents import VtgateDocument
from libs.mesh.vtgate import Vtgate as AskedVtgate
from libs.operations.status import ask_reader
from libs.servers.ports import LOOPBACK, free_ports
from libs.source.vitess.settings import VtgateSettings
from libs.stand_ins.vtgate.service import Security, VtgateServer
from protos.headwater.reader_control.v1 import reader_control_pb2 as pb
from protos.headwater.reader_control.v1 import reader_control_pb2_grpc
from services.vstream_reader.client import Vtgate
from tests.certificates import write_certificates
from tests.conftest import StartVtgate
from tests.integration.service_process import ServiceProcess, Services
from tests.integration.test_vstream_reader import Follower, has_all

USER, PASSWORD = "headwater", "s3cret"
EXIT_INVALID_SETTINGS, EXIT_HALTED = 2, 3

Files = dict[str, str]


@dataclass(frozen=True, slots=True)
class Certificates:
    """Each with an authority of its own."""

    good: Files
    other: Files
    of_another_host: Files
    expired: Files


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    return Certificates(
        good=write_certificates(folder / "good"),
        other=write_certificates(folder / "other"),
        of_another_host=write_certificates(folder / "host", address="10.1.2.3"),
        expired=write_certificates(folder / "expired", is_expired=True),
    )


def security(files: Files, *, clients: Files | None = None, users: dict[str, str] | None = None) -> Security:
    """A vtgate that shows ``files``' certificate; ``clients``: and wants one of that authority."""
    return Security(
        users=users or {},
        certificate_file=Path(files["certificate"]),
        key_file=Path(files["key"]),
        client_ca_file=Path(clients["ca"]) if clients is not None else None,
    )


def own(files: Files) -> dict[str, str]:
    """The settings of a client certificate."""
    return {"tls_certificate_file": files["certificate"], "tls_key_file": files["key"]}


def reader(server: VtgateServer, **settings: Any) -> Follower:
    """A reader with these settings of vtgate."""
    return Follower(server, vtgate=VtgateSettings(host=LOOPBACK, port=server.port, **settings))


# --- clients that get in -----------------------------------------------------------------------------------------------


async def test_rows_come_by_mutual_tls_with_a_password(start_vtgate: StartVtgate, certificates: Certificates) -> None:
    """A copy and changes, as without."""
    good = certificates.good
    server = start_vtgate(security=security(good, users={USER: PASSWORD}, clients=good))
    follower = reader(server, tls_ca_file=good["ca"], **own(good), user=USER, password=Secret(PASSWORD))
    await asyncio.to_thread(_fill_behind_the_guard, server)

    await follower.read(has_all)
    server.topology.serving(follower.keyspace)[0].primary.execute("UPDATE t SET v = 'w'")
    await follower.read(has_all)

    assert set(follower.table.values()) >= {"w"}


def _fill_behind_the_guard(server: VtgateServer) -> None:
    """Rows on each shard's own MySQL: the tests' client of vtgate has no certificate."""
    keyspace = server.topology.keyspaces[0].name
    for number, shard in enumerate(server.topology.serving(keyspace)):
        shard.primary.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(40))")
        shard.primary.execute(f"INSERT INTO t VALUES ({number}, 'v'), ({number + 10}, 'v')")


# --- clients that do not -----------------------------------------------------------------------------------------------

Case = tuple[Callable[[Certificates], Security], Callable[[Certificates], dict[str, Any]], str]
REFUSALS: dict[str, Case] = {
    "of another authority": (
        lambda c: security(c.good),
        lambda c: {"tls_ca_file": c.other["ca"]},
        r"not of the authority in vtgate\.tls_ca_file",
    ),
    "of another host": (
        lambda c: security(c.of_another_host),
        lambda c: {"tls_ca_file": c.of_another_host["ca"]},
        r"of another host: name it in vtgate\.host",
    ),
    "expired": (
        lambda c: security(c.expired),
        lambda c: {"tls_ca_file": c.expired["ca"]},
        r"certificate is not valid now: have it renewed",
    ),
    "no client certificate": (
        lambda c: security(c.good, clients=c.good),
        lambda c: {"tls_ca_file": c.good["ca"]},
        r"wants a client certificate: name one in vtgate\.tls_certificate_file and its key in vtgate\.tls_key_file",
    ),
    "client certificate of another authority": (
        lambda c: security(c.good, clients=c.good),
        lambda c: {"tls_ca_file": c.good["ca"], **own(c.other)},
        r"refuses the client certificate in vtgate\.tls_certificate_file",
    ),
    "client certificate expired": (
        lambda c: security(c.good, clients=c.expired),
        lambda c: {"tls_ca_file": c.good["ca"], **own(c.expired)},
        r"refuses the client certificate in vtgate\.tls_certificate_file: expired",
    ),
    "TLS not asked for": (
        lambda c: security(c.good),
        lambda c: {},
        r"answers with TLS only: name its certificate authority in vtgate\.tls_ca_file",
    ),
    "TLS not spoken": (
        lambda c: Security(),
        lambda c: {"tls_ca_file": c.good["ca"]},
        r"answers without TLS: take vtgate\.tls_ca_file",
    ),
    "wrong password": (
        lambda c: security(c.good, users={USER: PASSWORD}),
        lambda c: {"tls_ca_file": c.good["ca"], "user": USER, "password": Secret("wrong")},
        r"check vtgate\.user, vtgate\.password",
    ),
    "no user": (
        lambda c: security(c.good, users={USER: PASSWORD}),
        lambda c: {"tls_ca_file": c.good["ca"]},
        r"check vtgate\.user, vtgate\.password",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_refusal_names_the_setting_that_mends_it(
    start_vtgate: StartVtgate, certificates: Certificates, case: str
) -> None:
    """At once, and no secret in it. The commands, which have a client of their own, say the same."""
    guarded, settings, message = REFUSALS[case]
    server = start_vtgate(security=guarded(certificates))
    said = settings(certificates)

    with pytest.raises(AccessDenied, match=message) as told:
        await reader(server, **said).read(has_all)
    asked = AskedVtgate(VtgateDocument(host=LOOPBACK, port=server.port, **said))
    with asked, pytest.raises(AccessDenied, match=message):
        await asyncio.to_thread(asked.keyspaces)

    assert "wrong" not in str(told.value)
    assert PASSWORD not in str(told.value)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (lambda c, f: {"tls_ca_file": f"{f}/no-such.pem"}, r"tls_ca_file: .*no-such\.pem cannot be read"),
        (lambda c, f: {"tls_ca_file": f"{f}/rubbish.pem"}, r"tls_ca_file: .*rubbish\.pem holds no certificate"),
        (
            lambda c, f: {"tls_ca_file": c.good["ca"], "tls_certificate_file": c.good["certificate"]},
            r"tls_certificate_file and tls_key_file: give both",
        ),
        (lambda c, f: {"tls_key_file": c.good["key"]}, r"tls_certificate_file and tls_key_file: give both"),
        (
            lambda c, f: {**own(c.good), "tls_key_file": c.other["key"]},
            r"the key in tls_key_file \(.*other/key\.pem\) is not its own",
        ),
        (lambda c, f: {**own(c.good), "tls_certificate_file": f"{f}/rubbish.pem"}, r"rubbish\.pem is no certificate"),
    ],
)
async def test_files_that_are_of_no_use_are_told_before_connecting(
    certificates: Certificates, tmp_path: Path, files: Callable[[Certificates, Path], dict[str, str]], message: str
) -> None:
    """gRPC would end the process, or only say that it cannot shake hands."""
    (tmp_path / "rubbish.pem").write_text("rubbish")
    settings = files(certificates, tmp_path)

    with pytest.raises(InvalidSettings, match=message):
        Vtgate(VtgateSettings(host=LOOPBACK, port=1, **settings))
    with pytest.raises(InvalidSettings, match=message):
        AskedVtgate(VtgateDocument(host=LOOPBACK, port=1, **settings))


async def test_a_vtgate_that_is_down_is_tried_again(certificates: Certificates) -> None:
    """Nobody at the port, or a listener that says nothing: neither is a matter of certificates."""
    (port,) = free_ports(1)

    with pytest.raises(SourceUnavailable, match="refused"):
        await _ask(port, tls_ca_file=certificates.good["ca"])
    silent = await asyncio.start_server(lambda reads, writes: writes.close(), LOOPBACK, port)
    try:
        with pytest.raises(SourceUnavailable):
            await _ask(port, tls_ca_file=certificates.good["ca"])
        with pytest.raises(SourceUnavailable):
            await _ask(port)
    finally:
        silent.close()
        await silent.wait_closed()


async def test_a_vtgate_that_answered_before_does_not_halt_the_reader_when_it_hangs_up(
    start_vtgate: StartVtgate, certificates: Certificates
) -> None:
    """It may be on its way down; the possible mistake is said all the same."""
    server = start_vtgate(security=security(certificates.good, clients=certificates.good))

    with pytest.raises(SourceUnavailable, match="wants a client certificate"):
        await _ask(server.port, has_answered=True, tls_ca_file=certificates.good["ca"])


async def _ask(port: int, *, has_answered: bool = False, **settings: Any) -> None:
    async with Vtgate(VtgateSettings(host=LOOPBACK, port=port, **settings), has_answered=has_answered) as vtgate:
        await vtgate.keyspaces()


# --- the process -------------------------------------------------------------------------------------------------------


def process(services: Services, server: VtgateServer, folder: Path, **settings: Any) -> ServiceProcess:
    """The reader of a keyspace, not started yet."""
    keyspace = server.topology.keyspaces[0].name
    return ServiceProcess.of(
        "vstream_reader",
        folder,
        {
            "source": f"src-{keyspace.replace('_', '-')}",
            "vtgate": {"host": LOOPBACK, "port": server.port, **settings},
            "keyspace": keyspace,
            "kafka": {"bootstrap_servers": services.bootstrap_servers},
            **services.addresses,
        },
    )


def test_the_process_reads_by_mutual_tls(
    services: Services, start_vtgate: StartVtgate, certificates: Certificates, tmp_path: Path
) -> None:
    """And reports for each shard the rows that it read of it."""
    good = certificates.good
    server = start_vtgate(security=security(good, users={USER: PASSWORD}, clients=good))
    _fill_behind_the_guard(server)
    reads = process(services, server, tmp_path, tls_ca_file=good["ca"], **own(good), user=USER, password=PASSWORD)

    reads.start()
    answer = _status_with_rows(reads, 4)
    address = GrpcClientSettings(address=f"127.0.0.1:{reads.grpc_port}")
    shown = asyncio.run(ask_reader("shop", address))
    code = reads.stop()

    assert {shard.shard: shard.rows for shard in answer.shards} == {"-80": 2, "80-": 2}
    assert {shard.shard: shard.rows for shard in shown.shards} == {"-80": 2, "80-": 2}
    assert code == 0
    assert PASSWORD not in reads.log_text


@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        (lambda c: {"tls_ca_file": c.other["ca"]}, EXIT_HALTED, r"not of the authority in vtgate\.tls_ca_file"),
        (lambda c: {"tls_ca_file": c.good["ca"]}, EXIT_HALTED, r"wants a client certificate"),
        (
            lambda c: {"tls_ca_file": c.good["ca"], "tls_certificate_file": c.good["certificate"]},
            EXIT_INVALID_SETTINGS,
            r"give both, or none",
        ),
    ],
)
def test_the_process_ends_with_the_reason(
    services: Services,
    start_vtgate: StartVtgate,
    certificates: Certificates,
    tmp_path: Path,
    settings: Callable[[Certificates], dict[str, str]],
    code: int,
    message: str,
) -> None:
    """By itself, with the exit code that says that a human is needed."""
    server = start_vtgate(security=security(certificates.good, clients=certificates.good))
    reads = process(services, server, tmp_path, **settings(certificates))

    reads.start(waits=False)

    assert reads.wait_for_exit() == code
    assert re.search(message, reads.log_text)


def _status_with_rows(reads: ServiceProcess, rows: int) -> pb.GetStatusResponse:
    with grpc.insecure_channel(f"{LOOPBACK}:{reads.grpc_port}") as channel:
        stub = reader_control_pb2_grpc.ReaderControlStub(channel)
        give_up_s = time.monotonic() + 60
        while True:
            answer = stub.GetStatus(pb.GetStatusRequest(), timeout=120)
            if answer.rows_published >= rows or time.monotonic() > give_up_s:
                return answer
            time.sleep(0.1)
