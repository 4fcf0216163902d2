"""Servers that a stack runs itself: which processes come of the file in the home, and in which order they start."""

from pathlib import Path

import pytest
import yaml

from libs.config.load import convert_document
from libs.demo.sources import DEMO_SOURCES
from libs.errors import InvalidSettings
from libs.mesh.home import Home, home_at, write_examples
from libs.servers import mysql_server
from libs.servers.process import ProcessSpec
from libs.stack import own_servers
from libs.stack.plan import STAGE_PIPELINE, STAGE_SERVICES, STAGE_STAND_INS
from libs.stack.supervisor import Supervised
from libs.stand_ins.dts.producer import ProducerSettings


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home on a machine that may lack MySQL."""

    def prepared(data_dir: Path, *, name: str, **_: object) -> ProcessSpec:
        return ProcessSpec(name=name, command=("mysqld",), environ={}, working_dir=data_dir, ready=None)

    monkeypatch.setattr(mysql_server, "prepare", prepared)
    made = home_at(tmp_path)
    write_examples(made)
    return made


def planned(home: Home, kind: str) -> dict[str, Supervised]:
    own_servers.write_own_servers(home, DEMO_SOURCES[kind]().servers)
    return {each.spec.name: each for each in own_servers.own_servers(home, "127.0.0.1:9092")}


def test_most_homes_have_none(home: Home) -> None:
    """Only a demo writes the file."""
    assert own_servers.own_servers(home, "127.0.0.1:9092") == ()


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("mysql", ["mysql"]),
        ("dts", ["mysql", own_servers.DTS_STAND_IN]),
        ("vitess", ["mysql-1", "mysql-2", own_servers.VTGATE_STAND_IN]),
        ("oracle", [own_servers.ORACLE_STAND_IN]),
    ],
)
def test_a_stand_in_starts_between_the_databases_and_the_reader(home: Home, kind: str, names: list[str]) -> None:
    """A reader that came before the stand-in would miss changes that are committed meanwhile."""
    found = planned(home, kind)

    assert list(found) == names
    for name, each in found.items():
        is_database = name.startswith("mysql") or name == own_servers.ORACLE_STAND_IN
        assert each.stage == (STAGE_SERVICES if is_database else STAGE_STAND_INS)
        assert each.stage < STAGE_PIPELINE


@pytest.mark.parametrize(("kind", "database"), [("mysql", "mysql"), ("oracle", own_servers.ORACLE_STAND_IN)])
def test_a_database_counts_as_ready_once_it_is_filled(
    home: Home, kind: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a reader would copy half a shop."""
    monkeypatch.setattr(own_servers, "_listens", lambda _: True)
    ready = planned(home, kind)[database].spec.ready
    assert ready is not None

    before = ready()
    home.own_servers_filled_file.touch()

    assert (before, ready()) == (False, True)


def test_the_stand_in_for_dts_accepts_its_settings(home: Home) -> None:
    """By its own record."""
    planned(home, "dts")
    mistakes: list[str] = []

    settings = convert_document(
        ProducerSettings,
        yaml.safe_load(home.settings_file(own_servers.DTS_STAND_IN).read_text()),
        place="",
        mistakes=mistakes,
    )

    assert settings is not None, mistakes
    assert settings.bootstrap_servers == "127.0.0.1:9092"


def test_the_stand_in_for_vtgate_is_told_every_shard(home: Home) -> None:
    """With the port of the server that it lies on."""
    found = DEMO_SOURCES["vitess"]().servers
    own_servers.write_own_servers(home, found)
    own_servers.own_servers(home, "127.0.0.1:9092")

    document = yaml.safe_load(home.settings_file(own_servers.VTGATE_STAND_IN).read_text())

    shards = document["keyspaces"]["shop"]["shards"]
    assert {name: place["port"] for name, place in shards.items()} == {
        "-80": found.mysql_ports["mysql-1"],
        "80-": found.mysql_ports["mysql-2"],
    }
    assert document["track_schema_versions"] is True


def test_a_broken_file_is_named(home: Home) -> None:
    """With the command that writes it."""
    home.own_servers_file.write_text("{")

    with pytest.raises(InvalidSettings, match=r"own-servers\.json"):
        own_servers.own_servers(home, "127.0.0.1:9092")
