"""``headwater doctor``: its findings, their order, and the secrets that it never prints."""

import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from libs.mesh.home import Home, home_at, write_examples
from libs.mesh.state import replace_file
from libs.operations.doctor import machine as machine_module
from libs.operations.doctor.machine import machine, memory
from libs.operations.doctor.report import Verdict
from libs.servers.ports import LOOPBACK, free_port
from tests.headwater_command import run_here

SECRET = "p-of-a-source"
GIB = 2**30


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home on a machine where all is well."""
    monkeypatch.setattr(machine_module, "machine", lambda *_, **__: iter(()))
    monkeypatch.setattr(machine_module, "set_up", lambda: iter(()))
    monkeypatch.setattr("libs.mesh.tenant_topics.TIMEOUT_S", 0.2)
    made = home_at(tmp_path / "home")
    write_examples(made)
    return made


def findings(*options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run_here("doctor", "--json", *options).stdout)["findings"]
    return found


def of(area: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in found if each["area"] == area]


def write_source(home: Home, port: int) -> None:
    (home.sources_dir / "shop.yaml").write_text(
        f"database: {{host: {LOOPBACK}, port: {port}, user: u, password: {SECRET}}}\ninclude_tables: ['shop\\..*']\n"
    )


def test_a_fresh_home_has_no_fault_and_says_what_it_lacks(home: Home) -> None:
    done = run_here("doctor", "--home", str(home.root))

    first, second, third = done.stdout.splitlines()[:3]
    assert first == f"{home.root}: 0 fault(s), 2 warning(s), 4 ok"
    assert second == "warning documents: sources: there is none: nothing is delivered"
    assert third.startswith("        remedy: copy an example in ")
    assert done.exit_code == 0


def test_a_folder_that_is_no_home_is_a_fault(home: Home, tmp_path: Path) -> None:
    done = run_here("doctor", "--home", str(tmp_path / "nowhere"))

    assert done.stdout.splitlines()[1] == f"fault   home: folder: {tmp_path / 'nowhere'} is no Headwater home"
    assert done.exit_code == 1


def test_servers_that_do_not_answer_are_named_without_their_secrets(home: Home) -> None:
    """Neither form holds a password."""
    nobody = free_port()
    write_source(home, nobody)
    home.warehouses_file.write_text(
        f"postgresql: {{host: {LOOPBACK}, port: {nobody}, database: w, user: u, password: {SECRET}}}\n"
    )
    home.schema_registry_file.write_text(f"{{url: 'http://{LOOPBACK}:{nobody}', username: u, password: {SECRET}}}\n")

    shown = run_here("doctor", "--home", str(home.root))
    found = of("servers", findings("--home", str(home.root)))

    assert [(each["verdict"], each["subject"]) for each in found] == [
        ("fault", "source shop"),
        ("fault", "PostgreSQL"),
        ("fault", f"schema registry {LOOPBACK}:{nobody}"),
    ]
    assert "`headwater validate shop` asks it again" in found[0]["remedy"]
    assert f"PostgreSQL {LOOPBACK}:{nobody}/w: does not answer" in shown.stdout
    assert SECRET not in shown.output + json.dumps(found)
    assert shown.exit_code == 1


def test_each_mistake_of_a_document_is_a_fault_with_its_line(home: Home) -> None:
    (home.sources_dir / "shop.yaml").write_text("database: {user: u, prot: 1}\n")

    found = of("documents", findings("--home", str(home.root)))

    assert "shop.yaml:1: database.prot: unknown name; did you mean 'port'" in found[0]["said"]
    assert (found[0]["verdict"], found[0]["subject"]) == ("fault", "sources")


def test_a_port_of_the_last_start_that_is_taken_is_named_with_its_owner(home: Home) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        replace_file(home.ports_file, json.dumps({"kafka": port}).encode())
        (found,) = of("ports", findings("--home", str(home.root)))
    after = of("ports", findings("--home", str(home.root)))

    assert (found["verdict"], found["subject"]) == ("warning", f"port {port} of kafka")
    assert found["said"].startswith(f"process {os.getpid()} (")
    assert [each["verdict"] for each in after] == ["ok"]


def test_a_home_that_others_can_read_is_a_warning_until_its_remedy(home: Home) -> None:
    home.root.chmod(0o755)
    (found,) = [each for each in findings("--home", str(home.root)) if each["subject"] == "permissions"]
    home.root.chmod(0o700)
    (after,) = [each for each in findings("--home", str(home.root)) if each["subject"] == "permissions"]

    assert (found["verdict"], f"chmod -R go= {home.root}" in found["remedy"]) == ("warning", True)
    assert after["verdict"] == "ok"


def test_a_mesh_elsewhere_is_looked_at_by_its_file(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    nobody = free_port()
    file.write_text(
        f"kafka: {{bootstrap_servers: '{LOOPBACK}:{nobody}'}}\n"
        f"services: [{{name: router, grpc: {{address: '{LOOPBACK}:{nobody}'}}}}]\n"
    )

    done = run_here("doctor", "--mesh", str(file))

    lines = done.stdout.splitlines()
    assert lines[0] == f"{file}: 2 fault(s), 0 warning(s), 1 ok"
    assert lines[1].startswith(f"fault   servers: Kafka: Kafka at {LOOPBACK}:{nobody} does not answer")
    assert lines[3].startswith("fault   mesh: process router: process_down: ")
    assert "ok      mesh: services: 0 of 1 answer" in lines
    assert done.exit_code == 1


@pytest.mark.parametrize(
    ("available", "is_running", "verdict"),
    [
        (4 * GIB, False, Verdict.OK),
        (2 * GIB, False, Verdict.WARNING),
        (GIB // 2, False, Verdict.FAULT),
        (2 * GIB, True, Verdict.OK),
        (GIB // 4, True, Verdict.FAULT),
    ],
)
def test_memory_is_judged_by_what_a_stack_takes_yet(available: int, is_running: bool, verdict: Verdict) -> None:
    assert memory(available, 8 * GIB, is_running=is_running).verdict is verdict


@pytest.mark.parametrize(
    ("free_blocks", "free_inodes", "verdict"),
    [
        (50 * GIB, 9, Verdict.OK),
        (2 * GIB, 9, Verdict.WARNING),
        (GIB // 2, 9, Verdict.FAULT),
        (50 * GIB, 0, Verdict.FAULT),
    ],
)
def test_a_disk_is_judged_by_blocks_and_inodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_blocks: int, free_inodes: int, verdict: Verdict
) -> None:
    """The folder does not have to exist yet: its file system is that of its parents."""

    def statvfs(_path: object) -> SimpleNamespace:
        return SimpleNamespace(f_bavail=free_blocks, f_blocks=100 * GIB, f_frsize=1, f_files=9, f_favail=free_inodes)

    monkeypatch.setattr(os, "statvfs", statvfs)

    found = {each.subject: each.verdict for each in machine(tmp_path / "not" / "yet", is_running=False)}

    assert found["disk of the home"] is verdict
