"""Faults of services, asked over gRPC: every server of ours answers, and one that does not answer is a fault."""

from pathlib import Path

from libs.config.connections import GrpcClientSettings, GrpcServerSettings, WatchedService
from libs.rpc.faults import fault_from_proto, fault_to_proto
from libs.rpc.faults_client import gather_faults
from libs.rpc.server import start_server
from libs.servers.ports import free_port
from libs.telemetry.faults import CATALOGUE, ROWS_CHANGED_UNSEEN, SOURCE_UNREACHABLE, fault_of, raise_fault
from libs.types.fault import FaultScope
from protos.headwater.faults.v1 import faults_pb2 as pb
from tests.certificates import Authority

SHOP = FaultScope(source="shop")
ORDERS = FaultScope(source="shop", table="shop.orders")


def watched(port: int) -> WatchedService:
    return WatchedService(name="reader-shop", source="shop", grpc=GrpcClientSettings(address=f"localhost:{port}"))


def test_every_kind_is_the_same_on_both_sides() -> None:
    """With all fields, of each severity."""
    scope = FaultScope(source="shop", tenant="acme", table="shop.orders", process="router")
    faults = [fault_of(kind, scope, happened="é at 1", since_us=7) for kind in CATALOGUE]

    assert [fault_from_proto(fault_to_proto(each)) for each in faults] == faults
    assert fault_from_proto(pb.Fault(id="later", severity=99)).severity.value == "halted"  # type: ignore[arg-type]


async def test_every_server_tells_its_faults_the_worst_first() -> None:
    """Also one that has no service of its own."""
    later = raise_fault(ROWS_CHANGED_UNSEEN, ORDERS, happened="DROP PARTITION p1")
    worst = raise_fault(SOURCE_UNREACHABLE, SHOP, happened="refused")
    server = await start_server(GrpcServerSettings(host="localhost"), {})
    try:
        found = await gather_faults([watched(server.port)])
    finally:
        await server.stop(0)

    assert found == [worst, later]


async def test_a_service_that_does_not_answer_is_a_fault() -> None:
    """With its name, its source and where it was looked for; the others are reported all the same."""
    raised = raise_fault(ROWS_CHANGED_UNSEEN, ORDERS, happened="DROP PARTITION p1")
    server = await start_server(GrpcServerSettings(host="localhost"), {})
    port = free_port()
    unknown = WatchedService(name="router", has_several=True, grpc=GrpcClientSettings(address="nowhere.invalid:7000"))
    try:
        found = await gather_faults([watched(port), watched(server.port), unknown])
    finally:
        await server.stop(0)

    assert [(each.id, each.scope.source, each.scope.process) for each in found] == [
        ("process_down", "", "router"),
        ("process_down", "shop", "reader-shop"),
        ("rows_changed_unseen", "shop", ""),
    ]
    assert found[0].happened.startswith("router its name is unknown")
    assert found[1].happened.startswith(f"reader-shop does not answer at localhost:{port}")
    assert found[2] == raised


async def test_each_process_behind_a_name_is_asked_by_the_certificate_of_the_name(tmp_path: Path) -> None:
    """It is called by its address, for which the certificate is not."""
    raised = raise_fault(SOURCE_UNREACHABLE, SHOP, happened="refused")
    files = {name: str(tmp_path / name) for name in ("ca.crt", "tls.crt", "tls.key")}
    for name, content in Authority().secret("localhost").items():
        (tmp_path / name).write_text(content)
    pair = {"tls_certificate_file": files["tls.crt"], "tls_key_file": files["tls.key"]}
    server = await start_server(GrpcServerSettings(host="127.0.0.1", tls_client_ca_file=files["ca.crt"], **pair), {})
    settings = GrpcClientSettings(address=f"localhost:{server.port}", tls_ca_file=files["ca.crt"], **pair)
    try:
        found = await gather_faults([WatchedService(name="router", has_several=True, grpc=settings)])
    finally:
        await server.stop(0)

    assert raised in found
    assert not [each for each in found if "127.0.0.1" in each.happened]
