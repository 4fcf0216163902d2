"""The lines of ``headwater retry``, and its exit codes."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from libs.cli import retry as command
from libs.config.connections import KafkaSettings
from libs.durable_file import replace_durably
from libs.mesh import mesh
from libs.mesh.home import home_at, write_examples
from libs.sink_state.progress import ParkedTable, SinkProgress, TableProgress, encode_sink_progress

WAITS = ParkedTable(because="no key; add one", from_offsets={0: 1}, to_offsets={0: 5})
CATCHES_UP = ParkedTable(because="", from_offsets={0: 1}, to_offsets={0: 5}, is_catching_up=True)


class Stack:
    """A home with a tenant, whose stack seems to run."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._home = home_at(folder)
        self.asked: list[str] = []
        write_examples(self._home)
        for example in (self._home.sources_dir / "shop.yaml.example", self._home.tenants_dir / "acme.yaml.example"):
            example.with_suffix("").write_text(example.read_text())
        monkeypatch.setattr(mesh, "running_state", lambda _: None)
        monkeypatch.setattr(mesh, "read_ports", lambda _: {"kafka": 9092})
        monkeypatch.setattr(command, "ask_for_retry", self._ask)

    def _ask(self, _kafka: KafkaSettings, tenant: str, topics: Sequence[str]) -> None:
        self.asked += [f"{tenant}: {topic}" for topic in topics]

    def has(self, **parked: ParkedTable | None) -> None:
        tables = {name: _table(f"shop.{name}", waiting) for name, waiting in parked.items()}
        progress = SinkProgress(tenant="acme", tables=tables)
        replace_durably(self._home.sink_dir / "progress" / "acme.json", encode_sink_progress(progress))

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(command.retry, [*arguments, "--home", str(self._home.root)])


def _table(name: str, parked: ParkedTable | None) -> TableProgress:
    return TableProgress(topic=name, source="shop", table=name, warehouse_table=name, parked=parked)


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    return Stack(tmp_path, monkeypatch)


def test_all_parked_tables_are_asked_for(stack: Stack) -> None:
    stack.has(orders=WAITS, visits=None, users=CATCHES_UP, items=WAITS)

    answer = stack.run("acme")

    assert answer.exit_code == 0
    assert "the sink will try 2 parked table(s) of acme now: shop.items, shop.orders" in answer.output
    assert "shop.users is no longer parked: its waiting events are being read" in answer.output
    assert stack.asked == ["acme: shop.items", "acme: shop.orders"]


def test_for_programs_the_tables_are_named(stack: Stack) -> None:
    """Text goes to standard error."""
    stack.has(orders=WAITS, notes=None)

    done = stack.run("acme", "orders", "notes", "--json")

    assert json.loads(done.stdout) == {
        "tenant": "acme",
        "asked": ["shop.orders"],
        "not_parked": ["shop.notes"],
        "catching_up": [],
    }
    assert "parked table(s) of acme now" in done.stderr


def test_a_named_table_that_is_not_parked_is_told_beside_those_that_are(stack: Stack) -> None:
    stack.has(orders=WAITS, visits=None, items=WAITS)

    answer = stack.run("acme", "visits", "orders")

    assert answer.exit_code == 0
    assert "shop.visits is not parked" in answer.output
    assert "the sink will try 1 parked table(s) of acme now: shop.orders\n" in answer.output
    assert stack.asked == ["acme: shop.orders"]


def test_that_nothing_is_to_be_done_fails_only_where_a_table_was_named(stack: Stack) -> None:
    stack.has(visits=None)

    named, all_of_it = stack.run("acme", "visits"), stack.run("acme")

    assert (named.exit_code, all_of_it.exit_code) == (1, 0)
    assert "shop.visits is not parked" in named.output
    assert "no table of acme is parked" in all_of_it.output
    assert stack.asked == []


@pytest.mark.parametrize(
    ("arguments", "says"), [(("acne",), "did you mean 'acme'"), (("acme", "vists"), "did you mean 'visits'")]
)
def test_a_misspelt_name_is_told_the_nearest(stack: Stack, arguments: tuple[str, ...], says: str) -> None:
    stack.has(visits=None, orders=WAITS)

    answer = stack.run(*arguments)

    assert says in str(answer.exception)
    assert stack.asked == []
