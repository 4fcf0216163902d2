"""A router that receives its tenants: over a real gRPC connection, by the service that tenant_operator serves."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.config.connections import GrpcClientSettings, GrpcServerSettings
from libs.errors import ServiceUnavailable
from libs.rpc.server import RpcServer, start_server
from libs.rpc.tenants_client import TenantsClient
from protos.headwater.tenants.v1.tenants_pb2_grpc import add_TenantsServicer_to_server
from services.router.received_tenants import ReceivedTenants
from services.tenant_operator.service import SERVICE_NAME, TenantsService
from tests.unit.tenant_operator.test_refusals import Records, refusal


class Operator:
    """The operator's side, without Kubernetes."""

    def __init__(self) -> None:
        self.in_force: dict[str, str] = {"acme": "a"}
        self.is_listed = asyncio.Event()
        self.is_listed.set()
        self.records = Records()
        self.service = TenantsService(lambda: self.in_force, self.is_listed, self.records.keeper())
        self.server: RpcServer | None = None

    async def start(self) -> GrpcClientSettings:
        self.server = await start_server(
            GrpcServerSettings(), {SERVICE_NAME: lambda server: add_TenantsServicer_to_server(self.service, server)}
        )
        return GrpcClientSettings(address=f"127.0.0.1:{self.server.port}")

    async def stop(self) -> None:
        assert self.server is not None
        await self.server.stop(0)


@pytest.fixture
async def operator() -> AsyncIterator[Operator]:
    made = Operator()
    yield made
    if made.server is not None:
        await made.stop()


def documents(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text() for path in folder.glob("*.yaml")}


async def until(folder: Path, wanted: dict[str, str]) -> None:
    async with asyncio.timeout(30):
        while documents(folder) != wanted:  # noqa: ASYNC110 - a folder is waited for
            await asyncio.sleep(0.01)


async def test_the_folder_holds_what_is_in_force_and_follows_it(operator: Operator, tmp_path: Path) -> None:
    received = ReceivedTenants(await operator.start(), tmp_path)
    (tmp_path / "gone.yaml").write_text("left while this router was down")

    await received.begin(timeout_s=30)
    assert documents(tmp_path) == {"acme": "a"}

    following = asyncio.create_task(received.follow())
    operator.in_force = {"acme": "a2", "globex": "g"}
    operator.service.wake()
    await until(tmp_path, {"acme": "a2", "globex": "g"})
    operator.in_force = {"globex": "g"}
    operator.service.wake()
    await until(tmp_path, {"globex": "g"})
    following.cancel()


async def test_what_is_known_is_current_as_long_as_an_operator_tells(operator: Operator, tmp_path: Path) -> None:
    received = ReceivedTenants(await operator.start(), tmp_path)
    await received.begin(timeout_s=30)
    assert not received.is_current

    following = asyncio.create_task(received.follow())
    async with asyncio.timeout(30):
        while not received.is_current:  # noqa: ASYNC110 - it reports to nobody
            await asyncio.sleep(0.01)
        await operator.stop()
        while received.is_current:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    following.cancel()


async def test_refusals_are_told_durably_or_not_taken(operator: Operator) -> None:
    async with TenantsClient(await operator.start()) as client:
        standing = await client.report_refusals("r", ["shop"], [refusal()], [])
        operator.records.conflicts = 99
        with pytest.raises(ServiceUnavailable, match="try again"):
            await client.report_refusals("r", ["shop"], [], [refusal()])

    assert standing == [refusal()]
    assert "refusals.json" in operator.records.found["data"]


async def test_routing_waits_for_the_tenants(operator: Operator, tmp_path: Path) -> None:
    operator.is_listed.clear()
    received = ReceivedTenants(await operator.start(), tmp_path)
    beginning = asyncio.create_task(received.begin(timeout_s=30))
    await asyncio.sleep(0.2)
    assert not beginning.done()

    operator.is_listed.set()
    await beginning

    assert documents(tmp_path) == {"acme": "a"}


async def test_without_the_operator_what_it_told_before_counts(operator: Operator, tmp_path: Path) -> None:
    settings = await operator.start()
    await ReceivedTenants(settings, tmp_path).begin(timeout_s=30)
    await operator.stop()

    await ReceivedTenants(settings, tmp_path).begin(timeout_s=0.3)

    assert documents(tmp_path) == {"acme": "a"}


async def test_who_was_never_told_does_not_route(tmp_path: Path) -> None:
    with pytest.raises(ServiceUnavailable, match="nothing is known of them"):
        await ReceivedTenants(GrpcClientSettings(address="127.0.0.1:1"), tmp_path).begin(timeout_s=0.3)


async def test_an_operator_that_is_asked_anew_tells_what_its_stream_did_not(operator: Operator, tmp_path: Path) -> None:
    received = ReceivedTenants(await operator.start(), tmp_path)
    following = asyncio.create_task(received.follow())
    await until(tmp_path, {"acme": "a"})
    operator.in_force = {"acme": "a", "late": "l"}  # nobody wakes the stream: as one that is broken

    await asyncio.gather(received.ask_again(timeout_s=30), received.ask_again(timeout_s=30))
    assert documents(tmp_path) == {"acme": "a", "late": "l"}

    operator.in_force = {"late": "l2"}
    operator.service.wake()
    await until(tmp_path, {"late": "l2"})
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following


async def test_asking_ends_where_no_operator_answers(operator: Operator, tmp_path: Path) -> None:
    received = ReceivedTenants(await operator.start(), tmp_path)
    following = asyncio.create_task(received.follow())
    await until(tmp_path, {"acme": "a"})
    await operator.stop()

    with pytest.raises(TimeoutError):
        await received.ask_again(timeout_s=0.3)

    assert documents(tmp_path) == {"acme": "a"}
    following.cancel()
