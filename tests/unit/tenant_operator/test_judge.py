"""Which tenants are in force, which documents are refused, which tenants go."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from libs.config.connections import GrpcClientSettings
from libs.errors import InvalidSettings
from libs.mysql.logical import column
from libs.tenants.topic_quotas import TopicQuotaSettings
from libs.types.table import TableId, TableSchema
from services.tenant_operator.judge import Standing
from services.tenant_operator.objects import (
    EarlierVersion,
    Origin,
    TenantRecord,
    record_manifest,
    tenant_record,
)
from services.tenant_operator.settings import JoiningSettings, KubernetesSettings, TenantNames, TenantOperatorSettings
from tests.unit.tenant_operator.tenants import config_map, document, judged, record

BAD = "tenant: acme\nsources: [{nam: shop}]\n"


def in_force(standing: Standing) -> dict[str, str]:
    return {each.tenant: each.record.text for each in standing.in_force}


def mistakes(standing: Standing) -> dict[str, str]:
    return {each.config_map.origin.name: " ".join(each.mistakes) for each in standing.refused}


def test_a_good_document_is_in_force_and_to_be_recorded() -> None:
    standing = judged(config_map("acme"))

    assert in_force(standing) == {"acme": document("acme")}
    assert not standing.in_force[0].is_recorded


def test_what_is_recorded_needs_no_record() -> None:
    assert judged(config_map("acme"), records=(record("acme"),)).in_force[0].is_recorded


def test_a_bad_document_leaves_its_last_good_version_in_force_and_others_alone() -> None:
    standing = judged(config_map("acme", BAD), config_map("globex"), records=(record("acme"),))

    assert in_force(standing) == {"acme": document("acme"), "globex": document("globex")}
    assert [each.tenant for each in standing.refused] == ["acme"]
    assert "unknown name" in mistakes(standing)["acme"]


def test_every_mistake_is_told_at_once() -> None:
    told = mistakes(
        judged(config_map("acme", BAD, annotations={"headwater.dev/on-delete": "burn"}), without_secret="acme")
    )

    assert "unknown name" in told["acme"]
    assert "'burn' is none of keep, delete" in told["acme"]
    assert "Secret teams/acme-kafka: is missing" in told["acme"]


def test_a_secret_that_went_leaves_the_tenant_in_force() -> None:
    standing = judged(config_map("acme"), records=(record("acme"),), without_secret="acme")

    assert in_force(standing) == {"acme": document("acme")}
    assert standing.in_force[0].credentials is None
    assert "acme-kafka" in mistakes(standing)["acme"]


def test_a_secret_that_the_release_does_not_name_is_refused_with_the_setting_that_names_it() -> None:
    """In another namespace, and of another name: as before."""
    named = {"teams": ("acme-kafka",), "other": ()}

    standing = judged(config_map("acme"), config_map("globex"), without_secret="globex", named_secrets=named)
    elsewhere = judged(config_map("globex"), without_secret="globex", named_secrets={"other": ()})

    assert in_force(standing) == {"acme": document("acme")}
    assert "tenantOperator.tenantSecrets.teams" in mistakes(standing)["globex"]
    assert "is missing, or lacks the label" in mistakes(elsewhere)["globex"]


def test_who_holds_a_name_keeps_it_whoever_came_first() -> None:
    older = config_map("thief", document("acme"), created_at="2020-01-01T00:00:00Z")

    standing = judged(older, config_map("acme"), records=(record("acme"),))

    assert in_force(standing) == {"acme": document("acme")}
    assert "claimed by ConfigMap teams/acme already" in mistakes(standing)["thief"]


def test_of_two_newcomers_the_older_gets_the_name() -> None:
    newer = config_map("aaa", document("acme"), created_at="2026-02-01T00:00:00Z")

    standing = judged(newer, config_map("acme"))

    assert [each.config_map.origin.name for each in standing.in_force] == ["acme"]
    assert list(mistakes(standing)) == ["aaa"]


def test_a_tenant_cannot_be_renamed() -> None:
    """Its topics, user and tables would be another's from one moment to the next, by a slip of the pen."""
    standing = judged(config_map("acme", document("acne")), records=(record("acme"),))

    assert in_force(standing) == {"acme": document("acme")}
    assert "cannot be renamed" in mistakes(standing)["acme"]


def test_a_name_is_not_free_before_its_owner_is_cleared_away() -> None:
    going = config_map("acme", is_leaving=True)
    heir = config_map("heir", document("acme"))

    standing = judged(going, heir, records=(record("acme"),))

    assert [each.tenant for each in standing.leaving] == ["acme"]
    assert "claimed" in mistakes(standing)["heir"]


@pytest.mark.parametrize(
    ("asked", "sink_job", "topics_and_tables_go"),
    [
        ("delete", "packed-0", (True, True)),
        ("delete", "", (True, False)),  # it never had any
        ("delete-topics", "packed-0", (True, False)),
        ("keep", "packed-0", (False, False)),
        (None, "packed-0", (False, False)),
    ],
)
def test_topics_and_tables_go_only_where_the_config_map_asks_for_it_to_the_end(
    asked: str | None, sink_job: str, topics_and_tables_go: tuple[bool, bool]
) -> None:
    annotations = {} if asked is None else {"headwater.dev/on-delete": asked}
    records = (record("acme", sink_job=sink_job),)

    [by_word] = judged(config_map("acme", is_leaving=True, annotations=annotations), records=records).leaving
    [vanished] = judged(records=records).leaving

    assert (by_word.deletes_topics, by_word.deletes_tables) == topics_and_tables_go
    assert by_word.has_let_go is not by_word.deletes_tables
    assert (vanished.deletes_topics, vanished.deletes_tables) == (False, False)


def test_a_config_map_that_was_made_again_is_another_one() -> None:
    """The one of before goes first; its name is free at the next look."""
    again = config_map("acme", origin=Origin("teams", "acme", "uid-of-the-second"))

    standing = judged(again, records=(record("acme"),))

    assert [each.tenant for each in standing.leaving] == ["acme"]
    assert standing.in_force == ()


def test_a_deleted_config_map_that_never_was_in_force_is_let_go() -> None:
    standing = judged(config_map("acme", BAD, is_leaving=True))

    assert [each.origin.name for each in standing.released] == ["acme"]
    assert standing.leaving == ()


def test_a_document_that_is_too_large_is_not_even_read() -> None:
    assert "at most 10000 are taken" in mistakes(judged(config_map("acme", "x" * 10_001)))["acme"]


def test_a_document_of_endless_depth_is_refused() -> None:
    assert "is nested deeper than" in mistakes(judged(config_map("acme", "[" * 4_000)))["acme"]


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        ("row_filters: [{tables: '.*', where: 'total >'}]", "sources[0].row_filters[0].where: is not SQL"),
        (f"row_filters: [{{tables: '.*', where: '{'(' * 99}a{')' * 99}'}}]", "is nested"),
        ("include_tables: ['(a+)+']", "sources[0].include_tables[0]: could run away"),
    ],
)
def test_what_the_router_would_refuse_is_refused_here(selection: str, says: str) -> None:
    """With the line; the others are not concerned."""
    bad = f"tenant: acme\nsources:\n- name: shop\n  {selection}\n"

    standing = judged(config_map("acme", bad), config_map("globex", document("globex")))

    assert "line 4: " in mistakes(standing)["acme"]
    assert says in mistakes(standing)["acme"]
    assert list(in_force(standing)) == ["globex"]


def test_a_document_that_needs_more_topics_than_the_mesh_grants_is_refused_with_the_count() -> None:
    """By the tables that there are; one topic for all of them fits again, and a document in force stays so."""
    tables = {
        "shop": [msgspec.structs.replace(ORDERS, table_id=TableId(database="shop", table=f"t{n}")) for n in range(8)]
    }
    quotas = TopicQuotaSettings(per_tenant=10, tenants={"globex": 11})
    shared = document("initech", "topics: {layout: per_tenant}\nformat: {tombstones: false}\nsink: null\n")

    standing = judged(
        config_map("acme"), config_map("globex"), config_map("initech", shared), tables=tables, topic_quotas=quotas
    )
    known = judged(config_map("acme"), records=(record("acme"),), tables=tables, topic_quotas=quotas)

    assert mistakes(standing)["acme"].startswith(
        "tenant.yaml: line 2: sources: needs 11 topics by the tables that there are now, 8 of rows and 3 others, and tenant "
        "acme may have 10: select fewer tables"
    )
    assert sorted(in_force(standing)) == ["globex", "initech"]
    assert (known.refused, list(in_force(known))) == ((), ["acme"])
    assert judged(config_map("acme"), topic_quotas=quotas).refused == ()


OF_TEAMS = (
    TenantNames(namespace="teams", tenants=("acme(-.*)?", "globex")),
    TenantNames(namespace="*", tenants=("{namespace}(-.*)?",)),
)


@pytest.mark.parametrize(
    ("namespace", "tenant", "is_refused"),
    [
        ("teams", "acme", False),
        ("teams", "acme-eu", False),
        ("teams", "acmes", True),
        ("teams", "teams", True),
        ("blue", "blue-eu", False),
        ("blue", "acme", True),
    ],
)
def test_a_namespace_claims_its_own_names_alone(namespace: str, tenant: str, is_refused: bool) -> None:
    """Patterns are for whole names; `*` is for namespaces that are not named."""
    claims = config_map(tenant, origin=Origin(namespace, tenant, "uid"))

    standing = judged(claims, tenant_names=OF_TEAMS)

    assert bool(standing.refused) == is_refused


def test_a_name_of_another_namespace_is_refused_with_those_that_are_its_own() -> None:
    """The same where it may claim none; where nothing is said, as ever, any namespace may claim any name."""
    [refused] = judged(config_map("initech"), tenant_names=OF_TEAMS).refused
    [none] = judged(config_map("initech"), tenant_names=(TenantNames(namespace="blue", tenants=("b",)),)).refused

    assert (
        "tenant: namespace teams may not claim 'initech': its names match acme(-.*)? or globex; take such a name"
        in (refused.mistakes[0])
    )
    assert "tenantOperator.tenantNames" in refused.mistakes[0]
    assert "namespace teams may not claim 'initech': it may claim none" in none.mistakes[0]
    assert judged(config_map("initech")).refused == ()


def test_who_was_there_before_names_were_given_out_keeps_what_is_in_force() -> None:
    """And nothing else of it comes into force."""
    known = record("initech", text=document("initech", "limits: {weight: 2}\n"))

    standing = judged(config_map("initech"), records=(known,), tenant_names=OF_TEAMS)

    assert [each.record.text for each in standing.in_force] == [known.text]
    assert [each.tenant for each in standing.refused] == ["initech"]


def test_a_pattern_that_is_none_or_a_namespace_twice_is_refused() -> None:
    with pytest.raises(InvalidSettings) as raised:
        TenantOperatorSettings(
            kubernetes=KubernetesSettings(own_namespace="headwater"),
            tenant_names=(
                TenantNames(namespace="a", tenants=("(",)),
                TenantNames(namespace="a", tenants=("{namespace}",)),
            ),
        )

    assert "tenant_names[0].tenants[0]" in str(raised.value)
    assert "tenant_names[1].namespace: 'a' stands here twice" in str(raised.value)


def test_what_the_operator_cannot_do_is_refused_by_name() -> None:
    """Taken for good, the tenant would never get the rows that its document asks for."""
    asking = document("acme", "snapshot: {on_joining: true}\n")

    standing = judged(config_map("acme", asking), config_map("globex"), records=(record("acme"),))

    assert (
        "line 3: snapshot.on_joining: cannot be done, for the operator lacks the addresses"
        in mistakes(standing)["acme"]
    )
    assert in_force(standing) == {"acme": document("acme"), "globex": document("globex")}


def test_a_config_map_without_the_key_is_refused() -> None:
    told = judged(config_map("acme").__class__(**{**_fields("acme"), "text": None}))

    assert "has no such key" in mistakes(told)["acme"]


def _fields(name: str) -> dict[str, object]:
    made = config_map(name)
    return {key: getattr(made, key) for key in made.__slots__}


def test_a_source_that_the_mesh_has_not_is_refused_with_its_line_and_the_nearest_name() -> None:
    text = "tenant: acme\nsources:\n- {name: shop}\n- {name: shpo}\n"
    standing = judged(config_map("acme", text), records=(record("acme"),), sources=("ledger", "shop"))

    assert in_force(standing) == {"acme": document("acme")}
    assert mistakes(standing) == {
        "acme": "tenant.yaml: line 4: sources[1].name: no source 'shpo' in this mesh; did you mean 'shop'?"
    }


def test_a_source_that_is_missing_is_told_of_once_where_its_rows_are_asked_for_too() -> None:
    joining = JoiningSettings(schema_history=GrpcClientSettings(address="any:1"), sources=())
    joins = config_map("acme", document("acme", "snapshot: {on_joining: true}\n"))

    [refused] = judged(joins, sources=("crm",), joining=joining).refused
    [by_joining] = judged(joins, joining=joining).refused

    assert [each.partition("no source")[2] for each in refused.mistakes] == [" 'shop' in this mesh; known: crm"]
    assert "nobody can be asked for its rows" in by_joining.mistakes[0]


def test_a_warehouse_that_no_spark_job_has_is_refused_and_topics_alone_are_not() -> None:
    text = document("acme", "sink:\n  warehouse: icberg\n")
    topics = config_map("globex", document("globex", "sink: null\n"))

    standing = judged(config_map("acme", text), topics, warehouses=("iceberg", "postgresql"))

    assert list(in_force(standing)) == ["globex"]
    assert "line 4: sink.warehouse: 'icberg' is no warehouse of this mesh's Spark jobs" in mistakes(standing)["acme"]
    assert "did you mean 'iceberg'?" in mistakes(standing)["acme"]


def test_who_is_ready_when_a_source_goes_stays_in_force() -> None:
    standing = judged(config_map("acme"), records=(record("acme"),), sources=())

    assert in_force(standing) == {"acme": document("acme")}
    assert "no source 'shop' in this mesh; there is none yet" in mistakes(standing)["acme"]


def test_where_nobody_knows_the_sources_none_is_refused() -> None:
    assert judged(config_map("acme")).refused == ()
    assert judged(config_map("acme"), sources=("shop",), warehouses=("iceberg",)).refused == ()


ORDERS = TableSchema(
    table_id=TableId(database="shop", table="orders"),
    columns=(column("id", "int", is_optional=False), column("note", "varchar(20)", charset="utf8mb4")),
    key=("id",),
)
UNFIT = (
    "tenant: acme\nsources:\n  - name: shop\n    row_filters:\n      - tables: .*orders\n"
    "        where: note > 5\n    exclude_columns: ['.*\\.id']\n"
)


def test_a_new_document_that_does_not_fit_its_tables_is_refused_with_the_lines() -> None:
    """Every event of the table would be set aside, while the tenant looked ready."""
    standing = judged(config_map("acme", UNFIT), records=(record("acme"),), tables={"shop": [ORDERS]})

    told = mistakes(standing)["acme"]
    assert in_force(standing) == {"acme": document("acme")}
    assert "line 6: sources[0].row_filters[0].where: table shop.orders: row filter: " in told
    assert "cannot compare" in told
    assert "table shop.orders: " in told.partition("cannot compare")[0]
    assert "'id' is part of the key" in told


def test_a_document_that_is_in_force_stays_so_when_a_table_changes_under_it() -> None:
    """The router sets events aside then; a tenant that lost its place for it would have nothing at all."""
    standing = judged(config_map("acme", UNFIT), records=(record("acme", text=UNFIT),), tables={"shop": [ORDERS]})

    assert in_force(standing) == {"acme": UNFIT}
    assert standing.refused == ()


@pytest.mark.parametrize("tables", [{}, {"shop": []}, {"another": [ORDERS]}])
def test_tables_that_nobody_knows_are_no_mistake(tables: dict[str, list[TableSchema]]) -> None:
    assert in_force(judged(config_map("acme", UNFIT), tables=tables)) == {"acme": UNFIT}


def test_a_rule_that_fits_none_of_many_tables_is_told_of_some() -> None:
    """The message is an annotation, whose room is small."""
    tables = [
        msgspec.structs.replace(ORDERS, table_id=TableId(database="shop", table=f"{number}_orders"))
        for number in range(100)
    ]

    [refused] = judged(config_map("acme", UNFIT), tables={"shop": tables}).refused

    assert len(refused.mistakes) == 11
    assert "and 190 more of the kind" in refused.mistakes[-1]


IDLE = document("acme", "").replace("{name: shop}", "{name: shop, masks: [{columns: 'orders\\.note', set_null: true}]}")


def test_a_pattern_that_matches_nothing_is_a_mistake_of_a_new_document() -> None:
    """It would mask nothing. In force it stays so; a table that the reader leaves out counts, and so does a source unknown."""
    known = {"shop": [ORDERS]}
    new = judged(config_map("acme", IDLE), known_tables=known)
    old = judged(config_map("acme", IDLE), records=(record("acme", text=IDLE),), known_tables=known)
    marked = judged(
        config_map("acme", IDLE.replace("masks:", "may_match_nothing: ['orders\\.note'], masks:")), known_tables=known
    )
    good = judged(config_map("acme", IDLE.replace("'orders", "'shop\\.orders")), known_tables=known)

    assert "line 2: sources[0].masks[0].columns: 'orders" in mistakes(new)["acme"]
    assert "matches no database.table.column of the source" in mistakes(new)["acme"]
    assert "may_match_nothing" in mistakes(new)["acme"]
    assert new.in_force == ()
    assert old.refused == marked.refused == good.refused == ()
    assert judged(config_map("acme", IDLE), known_tables={"shop": []}).refused == ()


def test_a_planned_document_is_not_in_force() -> None:
    """Nor is anything of a new tenant; the document in force stays so. A document with mistakes is refused as ever."""
    plan = {"headwater.dev/plan": "true"}
    other = document("acme", "topics: {transactions: true}\n")

    edited = judged(config_map("acme", other, annotations=plan), records=(record("acme"),))
    new = judged(config_map("acme", annotations=plan), config_map("heir", document("acme")))
    bad = judged(config_map("acme", BAD, annotations=plan), records=(record("acme"),))
    misspelt = judged(config_map("acme", annotations={"headwater.dev/plan": "yes"}))

    assert in_force(edited) == {"acme": document("acme")}
    assert [(each.would_be.spec.topics.transactions, each.in_force is None) for each in edited.planned] == [
        (True, False)
    ]
    assert edited.refused == edited.leaving == ()
    assert [each.config_map.origin.name for each in new.in_force] == ["heir"]  # a plan holds no name
    assert [each.in_force for each in new.planned] == [None]
    assert (bad.planned, [each.tenant for each in bad.refused]) == ((), ["acme"])
    assert "'yes' is none of false, true" in mistakes(misspelt)["acme"]


def test_earlier_versions_are_kept_in_the_record() -> None:
    """Ten of them, numbered as they came; of large ones as many as there is room for, the newest always."""
    known = record("acme")
    for number in range(2, 15):
        [now] = judged(config_map("acme", document("acme", f"# {number}\n")), records=(known,)).in_force
        known = tenant_record({**record_manifest(now.record, "headwater"), "metadata": _stored(now.record)})
    [again] = judged(config_map("acme", known.text), records=(known,)).in_force
    large = document("acme", f"# {'x' * 100_000}\n")
    [grown] = judged(config_map("acme"), records=(replace(known, text=large, earlier=known.earlier),)).in_force
    [shrunk] = judged(config_map("acme", BAD), records=(replace(known, text=large),)).in_force

    assert known.text.endswith("# 14\n")
    assert [each.number for each in known.earlier] == list(range(4, 14))
    assert known.earlier[-1].text == document("acme", "# 13\n")
    assert again.is_recorded
    assert [each.number for each in grown.record.earlier] == list(range(5, 15))
    assert shrunk.record.earlier == known.earlier  # the document in force has not changed
    two_large = replace(known, text=large, earlier=(EarlierVersion(number=1, text=large),))
    assert [each.number for each in two_large.earlier_behind(document("acme"))] == [2]


def _stored(stored: TenantRecord) -> dict[str, Any]:
    """The metadata of a record as the API server gives it back."""
    return {**record_manifest(stored, "headwater")["metadata"], "resourceVersion": "8"}
