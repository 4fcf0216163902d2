"""Faults of the mesh's services as the operator knows them, and which of them a tenant hears of."""

import asyncio

import msgspec
import pytest

from libs.config.connections import GrpcClientSettings, GrpcServerSettings, WatchedService
from libs.rpc.server import start_server
from libs.telemetry.faults import (
    PROCESS_DOWN,
    READER_HALTED,
    ROWS_CHANGED_UNSEEN,
    TABLE_PARKED,
    fault_of,
    lift_fault,
    raise_fault,
)
from libs.types.fault import Fault, FaultScope
from services.tenant_operator import mesh_faults
from services.tenant_operator.judge import parse_document
from services.tenant_operator.mesh_faults import (
    LASTING_US,
    SILENT_US,
    KnownFaults,
    MeshFaults,
    faults_of_tenant,
    lasting,
    with_said,
)
from tests.waiting import until

SHOP = FaultScope(source="shop", process="reader-shop")
HALTED = fault_of(READER_HALTED, SHOP, happened="AccessDenied: 1045", since_us=5)


def known_after(*looks: tuple[int, list[Fault]]) -> KnownFaults:
    known: KnownFaults = {}
    for now_us, said in looks:
        known = with_said(known, said, now_us)
    return known


def test_a_fault_is_known_once_it_has_lasted() -> None:
    """A process that starts, or a blink of the network, is none."""
    assert lasting(known_after((0, [HALTED]))) == ()
    assert lasting(known_after((0, [HALTED]), (LASTING_US - 1, [HALTED]))) == ()
    assert lasting(known_after((0, [HALTED]), (LASTING_US, [HALTED]))) == (HALTED,)


def test_a_reader_that_halts_again_and_again_has_one_fault() -> None:
    """It is away for less than a minute and a half, and forgets when the fault began."""
    again = msgspec.structs.replace(HALTED, since_us=99, happened="AccessDenied: 1698")
    back_us = LASTING_US + SILENT_US - 1
    known = known_after((0, [HALTED]), (LASTING_US, [HALTED]), (back_us - 1, []), (back_us, [again]))

    assert lasting(known) == (msgspec.structs.replace(again, since_us=5),)
    assert lasting(with_said(known, [], back_us + SILENT_US)) == ()


def test_a_process_that_does_not_answer_is_away_from_the_first_look_on() -> None:
    """It says no time itself."""
    silent = fault_of(PROCESS_DOWN, SHOP, happened="does not answer", since_us=0)

    [fault] = lasting(known_after((7, [silent]), (7 + LASTING_US, [silent])))

    assert fault.since_us == 7


def test_a_tenant_hears_of_its_own_and_of_what_it_reads() -> None:
    """Its own in full, without the process; of its source and its tables only which kind of fault; of others nothing."""
    spec, mistakes = parse_document(
        "tenant: acme\nsources: [{name: shop, include_tables: ['shop\\.orders', 'shop\\.t']}, {name: web}]\n"
    )
    assert spec is not None, mistakes
    parked = FaultScope(tenant="acme", source="shop", table="shop.t", process="sink")
    said = [
        fault_of(kind, scope, happened=f"at {number}", since_us=number)
        for number, (kind, scope) in enumerate(
            [
                (TABLE_PARKED, parked),
                (TABLE_PARKED, FaultScope(tenant="globex", source="shop", table="shop.t")),
                (READER_HALTED, SHOP),
                (READER_HALTED, FaultScope(source="ledger")),
                (PROCESS_DOWN, FaultScope(process="schema-history")),
                (ROWS_CHANGED_UNSEEN, FaultScope(source="shop", table="shop.orders")),
                (ROWS_CHANGED_UNSEEN, FaultScope(source="shop", table="shop.hidden")),
                (ROWS_CHANGED_UNSEEN, FaultScope(source="web", table="any.table")),
            ]
        )
    ]

    found = faults_of_tenant(spec, said)

    assert [(each.since_us, each.scope.table, each.scope.process) for each in found] == [
        (0, "shop.t", ""),
        (2, "", ""),
        (5, "shop.orders", ""),
        (7, "any.table", ""),
    ]
    assert (found[0].happened, found[0].command) == ("at 0", "headwater retry acme shop.t")
    assert [(each.happened, each.command) for each in found[1:]] == [
        (READER_HALTED.cause, ""),
        (ROWS_CHANGED_UNSEEN.cause, ""),
        (ROWS_CHANGED_UNSEEN.cause, ""),
    ]
    assert found[1].remedy == f"operators of the mesh: {READER_HALTED.remedy}"


async def test_services_are_asked_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """By gRPC, of a real server; a change wakes the operator, and a fault that lasts as it is does not."""
    monkeypatch.setattr(mesh_faults, "LASTING_US", 0)
    monkeypatch.setattr(mesh_faults, "SILENT_US", 1)
    changes: list[int] = []
    server = await start_server(GrpcServerSettings(), {})
    service = WatchedService(
        name="reader-shop", source="shop", grpc=GrpcClientSettings(address=f"127.0.0.1:{server.port}")
    )
    faults = MeshFaults([service], on_change=lambda: changes.append(1), look_s=0.01)
    assert faults.lasting is None
    following = asyncio.create_task(faults.run())
    try:
        await until(lambda: faults.lasting == (), because="the service was asked, and has none")
        raised = raise_fault(READER_HALTED, SHOP, happened="AccessDenied: 1045")
        await until(lambda: faults.lasting == (raised,), because="the fault is raised")
        lift_fault(READER_HALTED, SHOP)
        await until(lambda: faults.lasting == (), because="the fault is lifted")
    finally:
        following.cancel()
        await server.stop(0)

    assert len(changes) == 3
