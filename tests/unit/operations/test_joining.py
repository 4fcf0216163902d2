"""Tenants that join a home: noticed on disk, asked for once, through kills at each step."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from libs.errors import BrokerUnavailable, InvalidSettings, TransientError
from libs.mesh.documents import Documents, read_documents
from libs.mesh.home import Home, home_at
from libs.operations.joining import Surroundings, due_copies, joining_path, note_beginnings, take_in
from libs.operations.tenant_snapshot import choose_tables
from libs.source.joining import DueCopy
from libs.types.table import TableId

MYSQL = "database: {host: db, user: reader}\n"
ORDERS, ITEMS = (TableId(database="shop", table=name) for name in ("orders", "items"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Of one source, without tenants."""
    made = home_at(tmp_path)
    made.sources_dir.mkdir(parents=True)
    made.tenants_dir.mkdir(parents=True)
    (made.sources_dir / "shop.yaml").write_text(MYSQL)
    return made


def put_tenant(home: Home, name: str = "acme", *, tables: str = r"shop\.orders", on_joining: bool = True) -> Documents:
    """The home's documents with this one."""
    (home.tenants_dir / f"{name}.yaml").write_text(
        f"tenant: {name}\nsources: [{{name: shop, include_tables: ['{tables}']}}]\n"
        f"snapshot: {{on_joining: {str(on_joining).lower()}}}\n"
    )
    return read_documents(home)


@dataclass
class World:
    """Kafka and schema_history, as far as they answer."""

    sent: list[tuple[str, DueCopy]] = field(default_factory=list)
    fails: Callable[[], None] = lambda: None

    def send(self, tenant: str, copy: DueCopy) -> None:
        self.fails()
        self.sent.append((tenant, copy))

    @property
    def around(self) -> Surroundings:
        return Surroundings(captured=lambda _: (ORDERS, ITEMS), send=self.send)

    @property
    def asked(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(tenant, copy.tables) for tenant, copy in self.sent]


def test_who_is_there_when_a_source_is_first_planned_does_not_join_and_who_comes_later_does(home: Home) -> None:
    documents, world = put_tenant(home), World()
    note_beginnings(home, documents)
    take_in(home, documents.tenants["acme"], world.around)
    assert world.asked == []

    late = put_tenant(home, "late", tables=".*")
    note_beginnings(home, late)  # the stack was started again meanwhile: the source is not new any more
    for spec in late.tenants.values():
        take_in(home, spec, world.around)

    assert world.asked == [("late", ("shop.items", "shop.orders"))]


def test_a_further_table_is_asked_for_once(home: Home) -> None:
    documents, world = put_tenant(home), World()
    note_beginnings(home, documents)
    wider = put_tenant(home, tables=".*").tenants["acme"]

    for _ in range(3):
        take_in(home, wider, world.around)

    assert world.asked == [("acme", ("shop.items",))]


@pytest.mark.parametrize(
    ("failpoint", "times_sent"),
    [("joining_after_noting_before_sending", 1), ("joining_after_sending_before_noting", 2)],
)
def test_a_kill_between_notice_and_signal_neither_loses_nor_doubles(
    home: Home, monkeypatch: pytest.MonkeyPatch, failpoint: str, times_sent: int
) -> None:
    """Sent twice it has the same id, by which the reader acts once (test_signals, test_joining of the integration tests)."""
    note_beginnings(home, read_documents(home))
    spec, world = put_tenant(home).tenants["acme"], World()

    def killed_at(name: str) -> None:
        if name == failpoint:
            raise TransientError("killed")

    monkeypatch.setattr("libs.operations.joining.failpoint", killed_at)
    with pytest.raises(TransientError):
        take_in(home, spec, world.around)
    assert [copy.tables for copy in due_copies(home)["acme"]] == [("shop.orders",)]
    monkeypatch.undo()
    take_in(home, spec, world.around)

    assert len(world.sent) == times_sent
    assert len({copy.signal_id for _, copy in world.sent}) == 1
    assert due_copies(home) == {}


def test_what_kafka_does_not_take_stays_due(home: Home) -> None:
    note_beginnings(home, read_documents(home))
    spec, world = put_tenant(home).tenants["acme"], World()

    def fails() -> None:
        raise BrokerUnavailable("away")

    world.fails = fails
    with pytest.raises(BrokerUnavailable):
        take_in(home, spec, world.around)
    world.fails = lambda: None
    take_in(home, spec, world.around)

    assert world.asked == [("acme", ("shop.orders",))]


def test_tables_that_are_not_known_now_leave_the_tenant_unnoticed(home: Home) -> None:
    """Noticed without its tables, it would never get their rows."""
    note_beginnings(home, read_documents(home))
    spec, world = put_tenant(home).tenants["acme"], World()

    def unknown(_: str) -> tuple[TableId, ...]:
        raise TransientError("schema_history is away")

    with pytest.raises(TransientError):
        take_in(home, spec, Surroundings(captured=unknown, send=world.send))
    take_in(home, spec, world.around)

    assert world.asked == [("acme", ("shop.orders",))]


def test_without_the_setting_nobody_is_asked_for_tables(home: Home) -> None:
    note_beginnings(home, read_documents(home))
    spec, world = put_tenant(home, on_joining=False).tenants["acme"], World()

    def asked(_: str) -> tuple[TableId, ...]:
        raise AssertionError

    take_in(home, spec, Surroundings(captured=asked, send=world.send))

    assert world.asked == []


def test_a_broken_file_is_told_with_its_remedy(home: Home) -> None:
    note_beginnings(home, put_tenant(home))
    joining_path(home, "acme").write_text("{")

    with pytest.raises(InvalidSettings) as refused:
        due_copies(home)

    assert "remove it, and the tenant joins again" in str(refused.value)


def test_a_subscription_copies_nothing_for_one_tenant(home: Home) -> None:
    """Refused where the document is judged, and where rows are asked for by hand."""
    (home.sources_dir / "shop.yaml").write_text(f"kind: dts\n{MYSQL}")
    documents = put_tenant(home)

    assert any(
        "acme.yaml:3: snapshot.on_joining: source 'shop' is a DTS subscription" in mistake
        for mistake in documents.tenant_mistakes
    )


def test_tables_asked_for_by_hand_are_those_that_the_tenant_sees(home: Home) -> None:
    documents = put_tenant(home)
    spec, captured = documents.tenants["acme"], {"shop": [ORDERS, ITEMS]}

    for names in ([], ["orders"], ["shop.orders"], ["shop.shop.orders"]):
        assert choose_tables(spec, documents.sources, captured, names) == {"shop": ("shop.orders",)}
    with pytest.raises(InvalidSettings) as refused:
        choose_tables(spec, documents.sources, captured, ["order", "items"])

    assert refused.value.mistakes[0].endswith("; did you mean 'orders'?")
    assert refused.value.mistakes[1].startswith("items: tenant acme sees no such table")
