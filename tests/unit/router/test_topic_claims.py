"""Which of several tables has a topic, whichever router asks."""

import pytest

from libs.errors import ServiceUnavailable
from libs.events.names import folded_topic
from libs.types.table import TableId
from libs.types.tenant import SourceSelection, TenantSpec, TopicSettings
from services.router.routes import topic_claims
from services.router.routes.topic_claims import TableOf, TopicClaims, TopicCollision
from tests.unit.router.test_match import tenant

BLANK, LINE = (TableId(database="shop", table=table) for table in ("a b", "a_b"))
OTHER = TableId(database="shop", table="orders")
TOPIC = "t.s.shop.a_b"


class World:
    """The tables and topics that schema_history and Kafka give to every router."""

    def __init__(self, *tables: TableId) -> None:
        self.tables = set(tables)
        self.announced: list[TableOf] = []
        """The last one first."""
        self.asked = 0
        self.read = 0

    def router(self) -> TopicClaims:
        def now(source: str) -> set[TableId]:
            self.asked += 1
            return set(self.tables) if source == "s" else set()

        def announced(tenant: str, topic: str) -> list[TableOf]:
            self.read += 1
            return list(self.announced) if topic == folded_topic(TOPIC) else []

        return TopicClaims(now, announced)


def has_it(claims: TopicClaims, table_id: TableId, spec: TenantSpec | None = None) -> bool:
    try:
        claims.claim(spec or tenant("t"), "s", table_id)
    except TopicCollision:
        return False
    return True


@pytest.mark.parametrize("owner", [BLANK, LINE])
def test_who_was_written_there_last_has_the_topic_in_every_router(owner: TableId) -> None:
    """Whichever table a router meets first, and after each restart."""
    world = World(BLANK, LINE, OTHER)
    world.announced = [("s", owner), ("s", LINE if owner == BLANK else BLANK), ("s", OTHER)]

    for met_first in (BLANK, LINE):
        claims = world.router()
        assert has_it(claims, met_first) == (met_first == owner)
        assert (has_it(claims, BLANK), has_it(claims, LINE)) == (owner == BLANK, owner == LINE)


def test_where_none_was_written_the_first_by_name_has_it_in_every_router() -> None:
    world = World(BLANK, LINE)

    assert not has_it(world.router(), LINE)
    assert has_it(world.router(), BLANK)


def test_a_table_that_comes_later_takes_no_topic_away() -> None:
    """Neither in the router that writes the first one, nor in another."""
    world = World(LINE)
    writes = world.router()
    assert has_it(writes, LINE)
    world.tables.add(BLANK)
    world.announced = [("s", LINE)]

    assert not has_it(world.router(), BLANK)
    assert not has_it(writes, BLANK)
    assert has_it(writes, LINE)


def test_a_table_that_is_gone_or_excluded_leaves_its_topic_to_the_other() -> None:
    world = World(BLANK, LINE)
    world.announced = [("s", BLANK)]
    claims = world.router()
    excludes = tenant("t", selection={"exclude_tables": (".*a b",)})
    assert not has_it(claims, LINE)

    assert has_it(claims, LINE, excludes)
    assert not has_it(world.router(), LINE)
    world.tables.discard(BLANK)
    assert claims.release("s", LINE)
    assert has_it(claims, LINE)
    assert has_it(world.router(), LINE)


def test_kafka_is_asked_only_where_two_tables_meet_and_schema_history_once() -> None:
    world = World(BLANK, OTHER)
    claims = world.router()

    for name in ("t", "u", "v"):
        for table_id in (BLANK, OTHER):
            claims.claim(tenant(name), "s", table_id)

    assert (world.asked, world.read) == (1, 0)


def test_a_table_that_is_gone_and_has_rows_yet_is_asked_for_once() -> None:
    """A router that lags meets it. It is not taken for one that shares no topic."""
    world = World(LINE)
    world.announced = [("s", BLANK)]
    claims = world.router()

    for name in ("t", "u", "v"):
        claims.claim(tenant(name), "s", OTHER)
    assert world.asked == 1
    assert has_it(claims, BLANK)
    assert not has_it(claims, LINE)


def test_a_template_of_the_tenants_own_and_a_second_source_count() -> None:
    """The names of two sources' tables may meet too."""
    spec = TenantSpec(
        tenant="t",
        sources=(SourceSelection(name="s"), SourceSelection(name="s_shop")),
        topics=TopicSettings(name="{tenant}.{source}_{database}_{table}.x"),
    )
    far = TableId(database="a", table="b")

    def now(source: str) -> set[TableId]:
        return {TableId(database="shop_a", table="b")} if source == "s" else {far}

    for _ in range(2):
        claims = TopicClaims(now, lambda _tenant, _topic: [("s_shop", far)])
        with pytest.raises(TopicCollision, match=r"tables a\.b of s_shop and shop_a\.b of s both map to it"):
            claims.claim(spec, "s", TableId(database="shop_a", table="b"))


def test_while_nobody_tells_who_has_it_nothing_is_decided() -> None:
    def away(_source: str) -> set[TableId]:
        raise ServiceUnavailable("schema_history does not answer")

    with pytest.raises(ServiceUnavailable):
        TopicClaims(away).claim(tenant("t"), "s", LINE)


def test_a_table_that_comes_has_no_other_named_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though all are asked for: schema_history may know none of thousands yet."""
    named: list[str] = []
    monkeypatch.setattr(topic_claims, "folded_topic", lambda topic: named.append(topic) or folded_topic(topic))
    world = World()
    claims = world.router()

    for number in range(100):
        assert has_it(claims, TableId(database="shop", table=f"orders {number}"))
        world.tables.add(TableId(database="shop", table=f"orders_{number}"))

    assert world.asked == 100
    assert len(named) <= 400
    assert not has_it(claims, TableId(database="shop", table="orders_99"))
