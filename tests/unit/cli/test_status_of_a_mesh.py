"""``headwater status --mesh FILE``: the services' own gRPC, and the tenants' ConfigMaps, in one page, the worst first."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from libs.config.connections import GrpcServerSettings
from libs.rpc.server import RpcServer, start_server
from libs.servers.ports import free_port
from libs.source.control import ReaderControl
from libs.source.status import ReaderState, ReaderStatus
from libs.telemetry.faults import READER_HALTED, lift_fault
from libs.types.fault import FaultScope
from libs.types.position import SourcePartition
from protos.headwater.reader_control.v1 import reader_control_pb2_grpc
from tests.headwater_command import run_here

CONFIG_MAP = {
    "metadata": {
        "namespace": "team-acme",
        "name": "acme-cdc",
        "annotations": {
            "headwater.dev/state": "degraded",
            "headwater.dev/message": "in force: …",
            "headwater.dev/refused-tables": json.dumps({"shop.orders of shop": "no column 'regoin'"}),
            "headwater.dev/sink-wait": "the object store does not answer",
        },
    },
    "data": {"tenant.yaml": "tenant: acme\nsources: [{name: shop}]\n"},
}
REFUSED = {
    "metadata": {
        "namespace": "team-globex",
        "name": "globex",
        "annotations": {"headwater.dev/state": "refused", "headwater.dev/message": "1 mistake\n- tenant.yaml:3: no"},
    },
    "data": {"tenant.yaml": "tenant: globex\n"},
}


def signal_of_nobody(_signal: str) -> int:
    raise AssertionError("nobody signals")


@pytest.fixture
def reader() -> ReaderStatus:
    return ReaderStatus(SourcePartition(source="shop", name="0"))


@pytest.fixture
def server(reader: ReaderStatus) -> Iterator[RpcServer]:
    """Of a reader, in a thread of its own, because the command takes the main one."""

    def register(target: Any) -> None:
        control = ReaderControl(reader, signal_of_nobody)
        reader_control_pb2_grpc.add_ReaderControlServicer_to_server(control, target)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    name = "headwater.reader_control.v1.ReaderControl"
    started = asyncio.run_coroutine_threadsafe(start_server(GrpcServerSettings(), {name: register}), loop).result()
    yield started
    asyncio.run_coroutine_threadsafe(started.stop(0), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def mesh_file(folder: Path, *services: dict[str, Any], **more: Any) -> str:
    file = folder / "mesh.yaml"
    file.write_text(yaml.safe_dump({"kafka": {"bootstrap_servers": "127.0.0.1:1"}, "services": services, **more}))
    return str(file)


def at(port: int, name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "grpc": {"address": f"127.0.0.1:{port}", "timeout_s": 5}, **fields}


def status(*arguments: str) -> Result:
    return run_here("status", *arguments)


def kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch, *config_maps: dict[str, Any]) -> None:
    """A kubectl that lists these."""
    program = folder / "kubectl"
    (folder / "found.json").write_text(json.dumps({"items": config_maps}))
    program.write_text(f"#!/bin/sh\ncat {folder}/found.json\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")


def test_a_halted_reader_is_the_first_line_and_the_exit_code(
    reader: ReaderStatus, server: RpcServer, tmp_path: Path
) -> None:
    """With its cause and remedy; once that is mended the mesh is well."""
    file = mesh_file(tmp_path, at(server.port, "reader-shop", source="shop"))
    reader.halted("AccessDenied: 1045: correct user and password")
    halted = status("--mesh", file)
    reader.connected(None)
    reader.halted_because = ""
    lift_fault(READER_HALTED, FaultScope(source="shop"))
    mended = status("--mesh", file)

    first, remedy = halted.output.splitlines()[:2]
    assert first.startswith("halted source shop: reader_halted since ")
    assert first.endswith(": AccessDenied: 1045: correct user and password")
    assert remedy.endswith("`headwater validate shop`")
    assert f"home {file}   stack elsewhere" in halted.output
    assert (halted.exit_code, mended.exit_code) == (1, 0)
    assert "shop/0" in mended.output


def test_a_service_that_is_away_is_named(server: RpcServer, tmp_path: Path) -> None:
    """The others are shown all the same."""
    file = mesh_file(tmp_path, at(server.port, "reader-shop", source="shop"), at(free_port(), "checkpoint-committer"))

    found = status("--mesh", file, "--json")

    told = json.loads(found.output)
    assert found.exit_code == 1
    assert [(each["id"], each["scope"]["process"]) for each in told["faults"]] == [
        ("process_down", "checkpoint-committer")
    ]
    assert {each["name"]: each["phase"] for each in told["processes"]} == {
        "reader-shop": "up",
        "checkpoint-committer": "unknown",
    }
    assert [each["state"] for each in told["sources"]] == ["starting"]
    assert told["unknown"][0].startswith("progress of tenants: checkpoint_committer")


def test_what_teams_read_of_their_tenants_is_told(
    server: RpcServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By kubectl; the tenant is that of the document, under any name of its ConfigMap."""
    kubectl(tmp_path, monkeypatch, CONFIG_MAP, REFUSED)
    file = mesh_file(tmp_path, at(server.port, "reader-shop", source="shop"), kubernetes={})

    found = status("--mesh", file, "--json")

    told = [
        (each["id"], each["scope"]["tenant"], each["scope"]["table"]) for each in json.loads(found.output)["faults"]
    ]
    assert told == [
        ("sink_halted", "acme", ""),
        ("tenant_refused", "globex", ""),
        ("table_refused", "acme", "shop.orders"),
    ]


def test_tenants_in_kubernetes_are_listed_with_their_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes keeps no versions, so none are asked for."""
    unseen = {
        "metadata": {"namespace": "team-new", "name": "new"},
        "data": {"tenant.yaml": "tenant: new\nsources: [{name: web}]\nsink: null\n"},
    }
    kubectl(tmp_path, monkeypatch, CONFIG_MAP, REFUSED, unseen)
    file = mesh_file(tmp_path, kubernetes={})

    shown = run_here("tenant", "list", "--mesh", file)
    document = json.loads(run_here("tenant", "list", "acme", "--mesh", file, "--json").stdout)
    versions = run_here("tenant", "list", "--mesh", file, "--versions")
    alone = run_here("tenant", "list", "--mesh", mesh_file(tmp_path))

    assert [re.sub(r" {2,}", "|", line.rstrip()) for line in shown.output.splitlines()] == [
        "tenant|version|sources|sink|file|state",
        "acme|shop|iceberg mirror|team-acme/acme-cdc|degraded",
        "globex|team-globex/globex|refused: tenant.yaml:3: no",
        "new|web|topics only|team-new/new|no tenant-operator has reported",
    ]
    assert [(each["tenant"], each["state"], each["mistakes"]) for each in document] == [("acme", "degraded", [])]
    assert (versions.exit_code, alone.exit_code) == (2, 2)
    assert "kubernetes: is missing" in alone.stderr


def test_readers_are_held_and_continue(reader: ReaderStatus, server: RpcServer, tmp_path: Path) -> None:
    """All that read the source; another source's are left alone, and one that is not there is named by the nearest."""
    file = mesh_file(
        tmp_path, at(server.port, "reader-shop", source="shop"), at(free_port(), "reader-web", source="web")
    )
    reader.connected(None)

    paused = run_here("pause", "shop", "--mesh", file)
    state = reader.state
    resumed = run_here("resume", "shop", "--mesh", file)
    misspelt = run_here("pause", "shpo", "--mesh", file)
    silent = run_here("pause", "web", "--mesh", file)

    # The reader's own log comes before it: it is this process.
    assert paused.output.endswith("paused reader-shop; `headwater resume shop` continues\n")
    assert resumed.output.endswith("resumed reader-shop\n")
    assert (state, reader.state) == (ReaderState.PAUSED, ReaderState.SNAPSHOTTING)
    assert (misspelt.exit_code, "did you mean 'shop'" in misspelt.output) == (2, True)
    assert (silent.exit_code, silent.output.startswith("headwater: reader-web: ")) == (1, True)


def test_a_file_without_services_says_what_to_write(tmp_path: Path) -> None:
    """Exit code 2: the person can mend it."""
    found = status("--mesh", mesh_file(tmp_path))

    assert found.exit_code == 2
    assert "services: is missing" in found.output
