"""A router's refusals: how they are found, how they are reported, and when each is over."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec
import pytest

from libs.config.connections import GrpcClientSettings
from libs.errors import AccessDenied, BrokerUnavailable, HeadwaterError, ServiceUnavailable
from libs.events.names import tenant_row_topic
from libs.formats.connect_schema import MYSQL_FORM
from libs.rpc.tenants_client import TenantsClient
from libs.telemetry.faults import CATALOGUE, COLUMN_REFUSED, lasting_faults, lift_fault
from libs.tenants.mask_keys import NO_KEYS, MaskKeys
from libs.types.refusal import Refusal, RefusedKind
from libs.types.table import TableId, TableSchema
from libs.types.tenant import (
    ColumnMask,
    EventFormat,
    FormatSettings,
    HmacMask,
    KeyFrom,
    RowFilter,
    SourceSelection,
    TenantSpec,
    TopicSettings,
    UnknownColumns,
)
from services.router.routes.book import RouteBook, RouteView
from services.router.routes.encode import RegisteredSchema, SchemaIds, SchemaRefused, SchemaText
from services.router.routes.match import NO_REGISTRY, Target
from services.router.routes.refusals import RecordsFate, RefusalReporter, Refusals
from services.router.routes.topic_claims import TopicClaims
from tests.unit.router.test_match import ORDERS, schema, tenant

AVRO = FormatSettings(kind=EventFormat.AVRO)
UNFIT, FIT = "id = 'one'", "id = 1"


def filtered(name: str, where: str = UNFIT) -> TenantSpec:
    return tenant(name, selection={"row_filters": (RowFilter(tables=".*", where=where),)})


def fetch(table_id: TableId, version: int) -> TableSchema:
    return schema(table_id, version)


class Registry:
    """A schema registry; ``refuses`` the schemas that it is asked for, ``is_away``, or takes them."""

    def __init__(self) -> None:
        self.refuses, self.is_away, self.asked, self.forgot = True, False, 0, 0

    def register(self, subject: str, schema: SchemaText) -> RegisteredSchema:
        self.asked += 1
        if self.is_away:
            raise ServiceUnavailable("the schema registry does not answer")
        if self.refuses:
            raise SchemaRefused(f"subject {subject}: incompatible, request {self.asked}")
        return RegisteredSchema(1, schema.text)

    def known(self, subject: str, schema: SchemaText) -> RegisteredSchema:
        return self.register(subject, schema)

    def forget_refusals(self) -> None:
        self.forgot += 1


class Kafka:
    """It ``refuses`` all topics but the first that it is asked for, ``is_away``, or takes them."""

    def __init__(self) -> None:
        self.refuses, self.is_away = True, False
        self.asked: list[list[str]] = []

    def tries(self, _source: str, targets: Sequence[Target]) -> dict[str, HeadwaterError]:
        names = [target.topic.name for target in targets]
        self.asked.append(names)
        if self.is_away:
            return {name: BrokerUnavailable("Kafka does not answer") for name in names}
        reason = f"may not create, request {len(self.asked)}"
        return {name: AccessDenied(reason) for name in names[:1]} if self.refuses else {}


def book(
    *tenants: TenantSpec,
    without: Iterable[str] = (),
    registry: SchemaIds = NO_REGISTRY,
    keys: MaskKeys = NO_KEYS,
) -> RouteView:
    return RouteBook("s", tenants, fetch, TopicClaims(), keys, registry).view(set(without))


@dataclass
class Router:
    """One process: its lanes' findings, and their reporter. ``specs``: the documents in force, as they are now."""

    specs: Sequence[TenantSpec] | None
    fetch: Callable[[TableId, int], TableSchema] = fetch
    refusals: Refusals = field(default_factory=Refusals)
    registry: Registry = field(default_factory=Registry)
    keys: MaskKeys = NO_KEYS
    kafka: "Kafka" = field(default_factory=lambda: Kafka())
    claims: TopicClaims = field(default_factory=TopicClaims)
    fates: Sequence[RecordsFate] = ()
    """Of the lanes that it has."""

    def __post_init__(self) -> None:
        self.reporter = RefusalReporter(
            GrpcClientSettings(address="127.0.0.1:1"),
            ["s"],
            self.refusals,
            tenants=lambda: self.specs,
            fetch_schema=lambda _: self.fetch,
            keys=self.keys,
            registry=self.registry,
            try_topics=self.kafka.tries,
            claims=self.claims,
            records=lambda: self.fates,
        )

    def meets(self, version: int = 1, *, by: RouteView | None = None) -> None:
        """Rows of ``shop.orders`` came, and their transaction is committed."""
        routed_by = book(*(self.specs or ()), registry=self.registry, keys=self.keys) if by is None else by
        routed_by.routes("shop", "orders", version)
        self.refusals.take_in(routed_by)

    async def tells(self, operator: "Operator") -> None:
        self.reporter._asked_s = -1e9  # it is time to ask
        await self.reporter.report(cast(TenantsClient, operator))


class Operator:
    """The refusals that operators hold; ``is_away``: none answers."""

    def __init__(self) -> None:
        self.standing: list[Refusal] = []
        self.told = 0
        self.is_away = False

    async def report_refusals(
        self, router: str, _sources: Sequence[str], found: Sequence[Refusal], over: Sequence[Refusal]
    ) -> list[Refusal]:
        if self.is_away:
            raise ServiceUnavailable("away")
        self.told += len(found) + len(over)
        places = [place(each) for each in found]
        kept = [each for each in self.standing if each not in over and place(each) not in places]
        self.standing = [*kept, *found]
        return [each for each in self.standing if each.router in ("", router)]


def place(refusal: Refusal) -> tuple[object, ...]:
    return refusal.tenant, refusal.what, refusal.table_id, refusal.router, refusal.kafka_partition


async def test_a_table_that_a_filter_does_not_fit_is_told_once() -> None:
    router, operator = Router([filtered("acme"), tenant("globex")]), Operator()

    router.meets()
    await router.tells(operator)
    router.meets()  # in another lane
    await router.tells(operator)

    [told] = operator.standing
    assert (told.tenant, told.source, told.table_id, told.schema_version) == ("acme", "s", ORDERS, 1)
    assert "cannot compare" in told.reason
    assert operator.told == 1


async def test_what_an_operator_did_not_take_is_told_again() -> None:
    router, operator = Router([filtered("acme")]), Operator()
    operator.is_away = True
    router.meets()
    with pytest.raises(ServiceUnavailable):
        await router.tells(operator)
    operator.is_away = False

    await router.tells(operator)

    assert len(operator.standing) == 1


async def test_nothing_is_told_while_the_documents_in_force_are_not_known() -> None:
    """A document of before would end a refusal by the one in force."""
    router, operator = Router([filtered("acme")]), Operator()
    router.meets()
    router.specs = None

    await router.tells(operator)

    assert operator.told == 0


@pytest.mark.parametrize(
    "mended", [[filtered("acme", FIT)], [tenant("acme", selection={"exclude_tables": (".*",)})], []]
)
async def test_a_mended_document_ends_it_without_a_row_in_any_router(mended: Sequence[TenantSpec]) -> None:
    found_by, operator = Router([filtered("acme")]), Operator()
    found_by.meets()
    await found_by.tells(operator)
    started_later = Router(mended)

    await started_later.tells(operator)
    await started_later.tells(operator)

    assert operator.standing == []


async def test_a_router_that_starts_anew_ends_nothing_that_stands_and_tells_nothing_twice() -> None:
    found_by, operator = Router([filtered("acme")]), Operator()
    found_by.meets()
    await found_by.tells(operator)
    anew = Router([filtered("acme")])

    await anew.tells(operator)
    anew.meets()
    await anew.tells(operator)

    assert len(operator.standing) == 1
    assert operator.told == 1


async def test_another_mistake_in_the_document_is_told_in_place_of_the_first() -> None:
    router, operator = Router([filtered("acme")]), Operator()
    router.meets()
    await router.tells(operator)
    router.specs = [filtered("acme", "nothing = 1")]

    await router.tells(operator)
    await router.tells(operator)

    [told] = operator.standing
    assert "nothing" in told.reason


async def test_a_newer_version_of_the_table_ends_it_and_an_older_one_does_not() -> None:
    """Shards of Vitess, or a table that lags far: rows of before the DDL come beside rows of after it."""
    router, operator = Router([filtered("acme")]), Operator()
    router.meets(2)
    await router.tells(operator)
    fits = book(tenant("acme"))

    router.meets(1, by=fits)
    assert len(router.refusals.all()) == 1
    router.meets(3, by=fits)
    await router.tells(operator)

    assert operator.standing == []


async def test_it_ends_by_a_router_that_did_not_find_it() -> None:
    found_by, other, operator = Router([filtered("acme")]), Router([filtered("acme")]), Operator()
    found_by.meets()
    await found_by.tells(operator)
    await other.tells(operator)

    other.meets(2, by=book(tenant("acme")))
    await other.tells(operator)
    await found_by.tells(operator)

    assert operator.standing == []
    assert found_by.refusals.all() == []


async def test_a_table_that_is_gone_is_refused_no_more() -> None:
    router, operator = Router([filtered("acme")]), Operator()
    router.meets()
    await router.tells(operator)

    router.refusals.forget_table("s", ORDERS)
    await router.tells(operator)

    assert operator.standing == []


async def test_a_tenant_that_a_lane_leaves_out_is_judged_by_who_routes_for_it() -> None:
    router = Router([filtered("acme")])
    router.meets()

    router.meets(2, by=book(tenant("acme"), without=["acme"]))

    assert len(router.refusals.all()) == 1


def refused_by_kafka(spec: TenantSpec) -> RouteView:
    made = book(spec)
    made.routes("shop", "orders", 1)
    made.book.refuse_topic(tenant_row_topic(spec, "s", ORDERS), "no leader")
    return made


async def test_a_topic_that_kafka_refuses_stands_until_rows_go_there() -> None:
    """The document alone does not say whether it is over."""
    spec, operator = tenant("acme"), Operator()
    router = Router([spec])
    router.meets(by=refused_by_kafka(spec))
    await router.tells(operator)
    await Router([spec]).tells(operator)
    await router.tells(operator)
    [told] = operator.standing
    assert (told.is_of_topic, told.is_of_document, told.is_of_registry) == (True, False, False)

    router.meets()
    await router.tells(operator)

    assert operator.standing == []


async def test_a_topic_that_kafka_takes_at_last_ends_it_without_a_row() -> None:
    """It is asked with growing pauses, by any router that knows of the refusal, and makes nothing while it is asked."""
    spec, operator = tenant("acme"), Operator()
    router, later = Router([spec]), Router([spec])
    router.meets(by=refused_by_kafka(spec))
    await router.tells(operator)
    assert router.kafka.asked == [["acme.s.shop.orders", "acme.headwater.table-schemas"]]
    time_passes(router, 14)
    await router.tells(operator)
    assert len(router.kafka.asked) == 1
    router.kafka.is_away = True
    time_passes(router, 2)
    await router.tells(operator)
    assert (len(router.kafka.asked), len(operator.standing)) == (2, 1)

    later.kafka.refuses = False
    await later.tells(operator)
    await later.tells(operator)
    await router.tells(operator)

    assert operator.standing == []
    assert (router.refusals.all(), router.refusals.ended) == ([], 1)


async def test_one_topic_is_asked_for_at_a_time() -> None:
    specs, operator = [tenant(f"t{number}") for number in range(3)], Operator()
    router = Router(specs)
    for spec in specs:
        router.meets(by=refused_by_kafka(spec))

    await router.tells(operator)

    assert (len(operator.standing), len(router.kafka.asked)) == (3, 1)


async def test_a_table_whose_topic_another_had_ends_without_a_row_once_that_one_is_gone() -> None:
    """Whichever router saw it go."""
    there = {TableId(database="shop", table=table) for table in ("a b", "a_b")}
    spec, operator = tenant("acme"), Operator()
    router = Router([spec], claims=TopicClaims(lambda _source: frozenset(there)))
    routed_by = RouteBook("s", [spec], fetch, router.claims).view()
    routed_by.routes("shop", "a_b", 1)
    router.refusals.take_in(routed_by)
    await router.tells(operator)
    [told] = operator.standing
    assert (told.is_of_claim, told.is_of_document, told.is_of_topic) == (True, False, False)
    time_passes(router, 16)
    await router.tells(operator)
    assert len(operator.standing) == 1

    there.discard(TableId(database="shop", table="a b"))
    later = Router([spec], claims=TopicClaims(lambda _source: frozenset(there)))
    await later.tells(operator)
    await later.tells(operator)

    assert operator.standing == []


MARKS = TopicSettings(transactions=True, schema_changes=True)


def writes_marks(router: Router, by: RouteView) -> None:
    """A statement and a transaction came; the records for their topics are written or left out."""
    (subscriber,) = by.audience.subscribers
    by.schema_changes_encoding(subscriber, MYSQL_FORM)
    by.transactions_encoding(subscriber)
    router.refusals.take_in(by)


async def test_topics_without_rows_are_told_and_end_when_they_are_written() -> None:
    spec, operator = tenant("acme", topics=MARKS), Operator()
    router, refused_by = Router([spec]), book(spec)
    writes_marks(router, refused_by)
    for topic in ("acme.s", "acme.s.transaction"):
        refused_by.book.refuse_topic(topic, "may not create")
    writes_marks(router, refused_by)
    await router.tells(operator)
    assert sorted((each.what.value, each.is_of_topic) for each in operator.standing) == [
        ("schema_changes", True),
        ("transactions", True),
    ]
    told = operator.told
    writes_marks(router, refused_by)
    await router.tells(operator)
    assert operator.told == told + 1  # Kafka's words, which it was asked for

    writes_marks(router, book(spec))
    await router.tells(operator)

    assert operator.standing == []


async def test_topics_without_rows_end_by_kafka_by_the_registry_or_by_the_document() -> None:
    spec, operator = tenant("acme", topics=MARKS, format=AVRO), Operator()
    router = Router([spec])
    refused_by = book(spec, registry=router.registry)
    refused_by.book.refuse_topic("acme.s.transaction", "may not create")
    writes_marks(router, refused_by)
    await router.tells(operator)
    assert sorted((each.what.value, each.is_of_topic, each.is_of_registry) for each in operator.standing) == [
        ("schema_changes", False, True),
        ("transactions", True, False),
    ]

    router.kafka.refuses = False
    time_passes(router, 16)
    await router.tells(operator)
    assert [each.what for each in operator.standing] == [RefusedKind.SCHEMA_CHANGES]
    router.registry.refuses = False
    time_passes(router, 31)
    await router.tells(operator)
    assert operator.standing == []

    router.registry.refuses = True
    writes_marks(router, book(spec, registry=router.registry))
    await router.tells(operator)
    assert len(operator.standing) == 2
    router.specs = [tenant("acme", format=AVRO, topics=TopicSettings(transactions=False, schema_changes=False))]
    await router.tells(operator)
    await router.tells(operator)

    assert operator.standing == []


async def test_a_tenant_that_is_behind_ends_nothing_by_a_book_that_leaves_it_out() -> None:
    """The same book says so once it is back."""
    spec, operator = tenant("acme", topics=MARKS), Operator()
    router, refused_by, lane = Router([spec]), book(spec), book(spec, without={"acme"})
    refused_by.book.refuse_topic("acme.s.transaction", "may not create")
    writes_marks(router, refused_by)
    writes_marks(router, lane)
    await router.tells(operator)
    assert len(operator.standing) == 1

    lane = lane.book.view()
    writes_marks(router, lane)
    await router.tells(operator)

    assert operator.standing == []


def time_passes(router: Router, seconds: float) -> None:
    """As if so much of it had."""
    for key, looked in router.reporter._looked_at.items():
        router.reporter._looked_at[key] = dataclasses.replace(looked, at_s=looked.at_s - seconds)


async def test_a_schema_that_the_registry_takes_at_last_ends_it_without_a_row() -> None:
    """The registry is asked with growing pauses, in any words of its refusal."""
    router, operator = Router([tenant("acme", format=AVRO)]), Operator()
    router.meets()
    await router.tells(operator)
    [told] = operator.standing
    assert (told.is_of_registry, told.is_of_document) == (True, False)
    first = router.registry.asked

    await router.tells(operator)
    assert router.registry.asked == first
    time_passes(router, 16)
    await router.tells(operator)
    assert router.registry.asked > first
    second = router.registry.asked
    time_passes(router, 16)
    await router.tells(operator)
    assert router.registry.asked == second
    router.registry.refuses = False
    time_passes(router, 31)
    await router.tells(operator)

    assert operator.standing == []
    assert router.registry.forgot == 1


async def test_who_only_heard_of_it_asks_once_it_knows_the_form_of_the_sources_events() -> None:
    """A schema follows from it too: another one must not come into the registry. Lanes of all routers hear of the end."""
    found_by, operator = Router([tenant("acme", format=AVRO)]), Operator()
    found_by.meets()
    await found_by.tells(operator)
    later = Router([tenant("acme", format=AVRO)])
    later.registry.refuses = False
    await later.tells(operator)
    await later.tells(operator)
    assert (len(operator.standing), later.registry.asked) == (1, 0)

    other_table = book(tenant("globex"))
    other_table.routes("shop", "items", 1)
    later.refusals.take_in(other_table)
    time_passes(later, 16)
    await later.tells(operator)
    await found_by.tells(operator)

    assert operator.standing == []
    assert found_by.refusals.all() == []
    assert (found_by.refusals.ended, found_by.registry.forgot) == (1, 1)


async def test_a_document_that_mends_the_schema_has_the_registry_asked_at_once() -> None:
    router, operator = Router([tenant("acme", format=AVRO)]), Operator()
    router.meets()
    await router.tells(operator)
    router.registry.refuses = False
    router.specs = [tenant("acme", format=AVRO, selection={"skip_unchanged_updates": True})]

    await router.tells(operator)

    assert operator.standing == []


async def test_a_registry_that_is_away_ends_nothing_and_keeps_no_other_from_being_looked_at() -> None:
    router, operator = Router([tenant("acme", format=AVRO), filtered("globex")]), Operator()
    router.meets()
    await router.tells(operator)
    router.registry.is_away = True
    router.specs = [tenant("acme", format=AVRO, selection={"skip_unchanged_updates": True}), filtered("globex", FIT)]

    await router.tells(operator)

    assert [each.tenant for each in operator.standing] == ["acme"]


async def test_one_schema_is_asked_for_at_a_time() -> None:
    """A registry that hangs must not hold up the reports."""
    router, operator = Router([tenant(f"t{number}", format=AVRO) for number in range(3)]), Operator()
    router.meets()
    before = router.registry.asked

    await router.tells(operator)

    assert len(operator.standing) == 3
    assert router.registry.asked == before + 1


async def test_a_key_that_comes_back_ends_it_without_a_row_by_who_lacked_it(tmp_path: Path) -> None:
    """Another router that has the key does not know whether the first one has it."""
    mask = ColumnMask(columns=".*", hmac=HmacMask(key_from=KeyFrom(file="pii")))
    specs, operator = [tenant("acme", selection={"masks": (mask,)})], Operator()
    lacks, has = MaskKeys(tmp_path / "lacks", {}), MaskKeys(tmp_path / "has", {})
    put_key(has)
    router, other = Router(specs, keys=lacks), Router(specs, keys=has)
    router.meets()
    await router.tells(operator)
    assert "cannot be read" in operator.standing[0].reason
    for _ in range(2):
        await other.tells(operator)
        time_passes(other, 1e9)
    assert len(operator.standing) == 1
    put_key(lacks)

    time_passes(router, 16)
    await router.tells(operator)

    assert operator.standing == []


def put_key(keys: MaskKeys) -> None:
    assert keys.folder is not None
    (keys.folder / "acme").mkdir(parents=True)
    (keys.folder / "acme" / "pii").write_text("k" * 32)


async def test_while_schema_history_is_away_nothing_is_decided() -> None:
    def away(_table_id: TableId, _version: int) -> TableSchema:
        raise ServiceUnavailable("schema_history does not answer")

    found_by, operator = Router([filtered("acme")]), Operator()
    found_by.meets()
    await found_by.tells(operator)
    anew = Router([filtered("acme", FIT)], fetch=away)
    await anew.tells(operator)
    await anew.tells(operator)
    assert len(operator.standing) == 1

    anew.fetch = fetch
    await anew.tells(operator)

    assert operator.standing == []


async def test_what_ends_while_an_operator_is_told_of_it_is_told_next() -> None:
    router = Router([filtered("acme")])
    router.meets()

    class Slow(Operator):
        async def report_refusals(
            self, name: str, sources: Sequence[str], found: Sequence[Refusal], over: Sequence[Refusal]
        ) -> list[Refusal]:
            if found:
                router.meets(2, by=book(tenant("acme")))
            return await super().report_refusals(name, sources, found, over)

    operator = Slow()
    await router.tells(operator)
    assert len(operator.standing) == 1

    await router.tells(operator)

    assert operator.standing == []


async def test_more_than_one_call_takes_is_told_by_the_next() -> None:
    router, operator = Router([filtered(f"t{number}") for number in range(250)]), Operator()
    router.meets()

    await router.tells(operator)
    assert len(operator.standing) == 200
    await router.tells(operator)

    assert len(operator.standing) == 250


async def test_what_is_found_while_an_operator_answers_is_not_lost() -> None:
    router = Router([filtered("acme")])

    class Slow(Operator):
        async def report_refusals(
            self, name: str, sources: Sequence[str], found: Sequence[Refusal], over: Sequence[Refusal]
        ) -> list[Refusal]:
            if not self.told:
                router.meets()
            return await super().report_refusals(name, sources, found, over)

    operator = Slow()
    await router.tells(operator)
    await router.tells(operator)

    assert len(operator.standing) == 1


async def test_a_document_is_refused_by_one_router_until_that_one_takes_it() -> None:
    """Reported once a minute: operators forget reports of a router that is gone. It says nothing of another router."""
    now_us = [1_000_000]
    here, there = (Router([], refusals=Refusals(name, lambda: now_us[0])) for name in ("here", "there"))
    operator = Operator()
    for router in (here, there):
        router.refusals.refuse_documents({"acme": "no key; put it there"})
        await router.tells(operator)
    await here.tells(operator)

    assert [(each.tenant, each.what, each.router, each.reason) for each in operator.standing] == [
        ("acme", RefusedKind.DOCUMENT, "here", "no key; put it there"),
        ("acme", RefusedKind.DOCUMENT, "there", "no key; put it there"),
    ]
    assert operator.told == 2

    now_us[0] += 61_000_000
    await here.tells(operator)
    assert operator.told == 3

    here.refusals.refuse_documents({"acme": "another reason"})
    await here.tells(operator)
    here.refusals.refuse_documents({})
    await here.tells(operator)

    assert [each.router for each in operator.standing] == ["there"]
    assert here.refusals.all() == there.refusals.all() == []


async def test_a_document_that_an_operator_forgot_is_told_again() -> None:
    router, operator = Router([], refusals=Refusals("here")), Operator()
    router.refusals.refuse_documents({"acme": "no key"})
    await router.tells(operator)
    operator.standing.clear()
    await router.tells(operator)

    await router.tells(operator)

    assert [each.router for each in operator.standing] == ["here"]


def records_of(partition: int, *untried: str, **refused: str) -> RecordsFate:
    return RecordsFate("s", partition, refused, untried)


async def test_records_that_kafka_does_not_take_are_told_by_who_has_the_lane_and_end_by_the_next_one_too() -> None:
    """A router that only heard of it ends nothing, one that has the lane now and has not tried yet neither."""
    specs, operator = [tenant("acme"), tenant("globex")], Operator()
    first, bystander, next_one = Router(specs), Router(specs), Router(specs)
    first.fates = [records_of(0, acme="grant WRITE"), records_of(1)]
    bystander.fates = [records_of(2)]
    for router in (first, bystander, first, bystander):
        await router.tells(operator)
    [told] = operator.standing
    assert (told.tenant, told.source, told.what, told.kafka_partition) == ("acme", "s", RefusedKind.RECORDS, 0)
    assert (told.reason, operator.told) == ("grant WRITE", 1)

    next_one.fates = [records_of(0, "acme")]
    await next_one.tells(operator)
    next_one.fates = [records_of(0, acme="grant WRITE")]
    await next_one.tells(operator)
    assert (operator.standing, operator.told) == ([told], 1)
    next_one.fates = [records_of(0)]
    await next_one.tells(operator)

    assert operator.standing == []
    await bystander.tells(operator)
    assert bystander.refusals.all() == []


async def test_what_stands_refused_is_a_fault_of_each_router_that_knows_it() -> None:
    """A router that just started hears of it from an operator. Of two partitions it lasts until both go on."""
    spec, operator = tenant("acme", topics=MARKS), Operator()
    router, refused_by = Router([spec]), book(spec)
    refused_by.book.refuse_topic("acme.s.transaction", "may not create")
    writes_marks(router, refused_by)
    router.refusals.take_in_records(records_of(0, acme="grant WRITE"))
    router.refusals.take_in_records(records_of(1, acme="grant WRITE"))
    router.refusals.refuse_documents({"globex": "no key; put it there"})
    found = {(each.id, each.scope.source, each.scope.tenant): each.happened for each in lasting_faults()}

    assert found == {
        ("topic_refused", "s", "acme"): "may not create",
        ("tenant_waits", "s", "acme"): "grant WRITE",
        ("tenant_refused", "", "globex"): "no key; put it there",
    }
    await router.tells(operator)
    for fault in lasting_faults():
        lift_fault(next(kind for kind in CATALOGUE if kind.id == fault.id), fault.scope)
    again = Router([spec])
    await again.tells(operator)
    await again.tells(operator)
    assert {each.id for each in lasting_faults()} == {"topic_refused", "tenant_waits"}

    again.refusals.take_in_records(records_of(0))
    assert {each.id for each in lasting_faults()} == {"topic_refused", "tenant_waits"}
    again.refusals.take_in_records(records_of(1))
    assert {each.id for each in lasting_faults()} == {"topic_refused"}


async def test_of_two_topics_that_refuse_records_in_turn_the_words_change_once_a_minute() -> None:
    now_us = [1]
    router, operator = Router([tenant("acme")], refusals=Refusals("here", lambda: now_us[0])), Operator()
    for number in range(6):
        router.fates = [records_of(0, acme=f"topic {number % 2}")]
        await router.tells(operator)
        now_us[0] += 2_000_000
    assert (operator.told, operator.standing[0].reason) == (1, "topic 0")

    now_us[0] += 60_000_000
    await router.tells(operator)

    assert operator.standing[0].reason == "topic 1"


@pytest.mark.parametrize("mended", [[], [TenantSpec(tenant="acme", sources=(SourceSelection(name="other"),))]])
async def test_records_of_a_tenant_or_source_that_is_gone_are_refused_no_more(mended: Sequence[TenantSpec]) -> None:
    router, operator = Router([tenant("acme")]), Operator()
    router.fates = [records_of(0, acme="grant WRITE")]
    await router.tells(operator)
    router.specs, router.fates = mended, []

    await router.tells(operator)

    assert operator.standing == []


async def test_where_there_is_no_operator_what_stands_is_looked_at_all_the_same() -> None:
    spec = tenant("acme")
    router = Router([spec])
    router.meets(by=refused_by_kafka(spec))
    assert "acme.s.shop.orders" in router.refusals.topics_of("s", [spec])
    router.kafka.refuses = False

    await router.reporter.report(None)

    assert router.refusals.all() == []
    assert router.refusals.topics_of("s", [spec]) == set()


def test_topics_that_stand_refused_are_those_of_one_source_by_the_documents_in_force() -> None:
    spec = tenant("acme", topics=MARKS)
    router, refused_by = Router([spec]), book(spec)
    refused_by.book.refuse_topic("acme.s.transaction", "may not create")
    writes_marks(router, refused_by)
    router.refusals.take_in_records(records_of(0, acme="grant WRITE"))

    assert router.refusals.topics_of("s", [spec]) == {"acme.s.transaction"}
    assert router.refusals.topics_of("other", [spec]) == set()
    assert router.refusals.topics_of("s", []) == set()


def with_late_column(table_id: TableId, version: int) -> TableSchema:
    first = schema(table_id, version)
    late = msgspec.structs.replace(first.columns[-1], name="email2", is_late=True)
    return msgspec.structs.replace(first, columns=(*first.columns, late))


@pytest.mark.parametrize(
    "mended", [{"exclude_columns": (r".*email2",)}, {"include_columns": (".*", r".*email2")}, None]
)
async def test_a_late_column_that_is_kept_back_is_a_fault_until_the_document_names_it(
    mended: dict[str, tuple[str, ...]] | None,
) -> None:
    def met(**selection: object) -> None:
        spec = tenant("acme", selection={"unknown_columns": UnknownColumns.REFUSE, **selection})
        routed_by = RouteBook("s", [spec, tenant("globex")], with_late_column, TopicClaims()).view()
        routed_by.routes("shop", "orders", 1)
        router.refusals.take_in(routed_by)

    router = Router([tenant("globex")])
    met()
    faults = lasting_faults()
    if mended is not None:
        met(**mended)
    else:  # the tenant is gone
        await router.tells(Operator())

    assert [(each.id, each.scope.tenant) for each in faults] == [(COLUMN_REFUSED.id, "acme")]
    assert "email2" in faults[0].happened
    assert lasting_faults() == []
