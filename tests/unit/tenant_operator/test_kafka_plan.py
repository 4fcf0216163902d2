"""From documents and Kafka's state to the actions that are due."""

from dataclasses import replace

from libs.kafka.clients import TopicSpec
from libs.kafka.tenant_access import (
    Acl,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    DeleteUser,
    Grant,
    KafkaAction,
    KafkaState,
    Revoke,
    SetPassword,
    SetQuotas,
)
from services.tenant_operator.judge import Standing
from services.tenant_operator.kafka_plan import RIGHTS, plan_kafka
from services.tenant_operator.settings import QuotaSettings
from tests.unit.tenant_operator.tenants import config_map, document, judged, record

TOPICS = frozenset({"acme.headwater.table-schemas", "acme.dead-letter", "acme.shop"})
ACLS = frozenset(Acl("tenant.acme", resource, "acme.", True, operation) for resource, operation in RIGHTS)
SETTLED = KafkaState(
    topics=TOPICS | {"headwater.changes.shop", "acmex.shop"},
    configs={"acme.headwater.table-schemas": {"cleanup.policy": "compact"}},
    users=frozenset({"tenant.acme"}),
    acls=ACLS,
    quotas={"tenant.acme": {"consumer_byte_rate": 5.0}},
)
QUOTAS = QuotaSettings(consumer_bytes_per_s=5.0)


def not_expected(_: str, error: Exception) -> None:
    raise error


def plan(found: KafkaState, standing: Standing, quotas: QuotaSettings = QUOTAS) -> list[KafkaAction]:
    return plan_kafka(standing.in_force, standing.leaving, found, quotas_of=lambda _: quotas, note=not_expected)


def acme(text: str | None = None) -> Standing:
    return judged(config_map("acme", text), records=(record("acme"),))


def with_(**fields: object) -> KafkaState:
    return KafkaState(**{**{key: getattr(SETTLED, key) for key in SETTLED.__slots__}, **fields})  # type: ignore[arg-type]


def test_where_all_is_as_it_should_be_nothing_is_done() -> None:
    assert plan(SETTLED, acme()) == []


def test_an_empty_kafka_gets_everything() -> None:
    actions = plan(KafkaState(quotas={}), acme())

    created = {action.topic.name: action.topic for action in actions if isinstance(action, CreateTopic)}
    assert created.keys() == TOPICS
    assert created["acme.headwater.table-schemas"].config == {"cleanup.policy": "compact"}
    assert {action.acl for action in actions if isinstance(action, Grant)} == ACLS
    assert [action.user for action in actions if isinstance(action, SetPassword)] == ["tenant.acme"]
    assert [action.values["consumer_byte_rate"] for action in actions if isinstance(action, SetQuotas)] == [5.0]


def test_topics_are_made_as_the_document_wants_them() -> None:
    text = document("acme", "topics: {replication_factor: 3, transactions: true, schema_changes: false}\n")

    made = [action.topic for action in plan(KafkaState(quotas={}), acme(text)) if isinstance(action, CreateTopic)]

    assert [topic.name for topic in made[1:]] == ["acme.dead-letter", "acme.shop.transaction"]
    assert all(topic == TopicSpec(name=topic.name, replication_factor=3, config=topic.config) for topic in made)


def test_rights_that_nobody_planned_are_taken_away() -> None:
    stranger = Acl("tenant.acme", "TOPIC", "globex.", True, "READ")

    assert plan(with_(acls=ACLS | {stranger}), acme()) == [Revoke("acme", stranger)]


def test_a_right_that_is_missing_is_granted_again() -> None:
    lost = min(ACLS)

    assert plan(with_(acls=ACLS - {lost}), acme()) == [Grant("acme", lost)]


def test_a_topic_whose_setting_was_changed_is_put_right() -> None:
    changed = with_(configs={"acme.headwater.table-schemas": {"cleanup.policy": "delete"}})

    assert plan(changed, acme()) == [
        ConfigureTopic("acme", "acme.headwater.table-schemas", {"cleanup.policy": "compact"})
    ]


def test_the_password_is_set_when_the_secret_changes_and_when_the_user_is_gone() -> None:
    older = judged(config_map("acme"), records=(record("acme", password_version="acme/0"),))

    assert [type(action) for action in plan(SETTLED, older)] == [SetPassword]
    assert [type(action) for action in plan(with_(users=frozenset()), acme())] == [SetPassword]


def test_no_password_is_set_without_a_secret() -> None:
    standing = judged(config_map("acme"), records=(record("acme"),), without_secret="acme")

    assert plan(with_(users=frozenset()), standing) == []


def test_a_quota_that_is_no_longer_wanted_goes() -> None:
    [action] = plan(SETTLED, acme(), QuotaSettings())

    assert isinstance(action, SetQuotas)
    assert set(action.values.values()) == {None}


def test_who_goes_keeps_its_topics_and_nothing_else() -> None:
    gone = judged(records=(record("acme"),))

    kinds = [type(action) for action in plan(SETTLED, gone)]

    assert kinds[0] is DeleteUser  # first of all, nobody comes in any more
    assert set(kinds) == {DeleteUser, Revoke, SetQuotas}


def test_who_asks_for_it_loses_its_own_topics_only() -> None:
    """`acmex.` begins like `acme`, but not like `acme.`."""
    going = config_map("acme", is_leaving=True, annotations={"headwater.dev/on-delete": "delete"})

    actions = plan(SETTLED, judged(going, records=(record("acme"),)))

    assert {action.topic for action in actions if isinstance(action, DeleteTopic)} == TOPICS


def test_topics_wait_for_the_tables_that_go_with_them() -> None:
    """A sink that still runs may make its dead-letter topic again."""
    going = config_map("acme", is_leaving=True, annotations={"headwater.dev/on-delete": "delete"})
    standing = judged(going, records=(record("acme", sink_job="packed-0"),))
    [leaving] = standing.leaving

    waiting = plan(SETTLED, standing)
    let_go = plan(SETTLED, replace(standing, leaving=(replace(leaving, has_let_go=True),)))

    assert {type(action) for action in waiting} == {DeleteUser, Revoke, SetQuotas}
    assert {action.topic for action in let_go if isinstance(action, DeleteTopic)} == TOPICS


def test_what_was_cleared_away_is_not_cleared_away_again() -> None:
    assert plan(KafkaState(topics=TOPICS, quotas={}), judged(records=(record("acme"),))) == []
