"""Which topics of rows a tenant may not have any more."""

import pytest

from libs.errors import BrokerUnavailable, InvalidSettings
from libs.kafka.clients import TopicSpec
from libs.tenants.topic_quotas import TopicQuotaSettings
from services.router.routes.match import Target
from services.router.routes.topic_quotas import TopicQuotas


class Kafka:
    def __init__(self, *topics: str) -> None:
        self.topics = dict.fromkeys(topics, 1)
        self.asked = 0

    def all_topics(self) -> dict[str, int]:
        self.asked += 1
        return dict(self.topics)


def targets(*names: str) -> list[Target]:
    return [Target(name.partition(".")[0], TopicSpec(name=name)) for name in names]


def time_passes(quotas: TopicQuotas, seconds: float) -> None:
    """As if so much of it had."""
    quotas._listed_s -= seconds


def test_a_topic_beyond_the_quota_is_refused_with_the_count_and_what_to_do() -> None:
    """Those of the batch before it count too, and those that each tenant gets, there or not; another tenant's do not."""
    kafka = Kafka("a.dead-letter", "a.s.shop.orders", "ab.s.shop.orders", "other")
    quotas = TopicQuotas(TopicQuotaSettings(per_tenant=4), kafka.all_topics)

    refused = quotas.beyond("s", targets("a.s.shop.items", "a.s.shop.late", "ab.s.shop.items"))

    assert list(refused) == ["a.s.shop.late"]
    assert (
        "topic a.s.shop.late: tenant a has 4 topics and may have 4 (topicQuotas of the mesh, topic_quotas.yaml of a home): "
        "exclude tables"
    ) in str(refused["a.s.shop.late"])


def test_what_is_there_stays_and_topics_without_rows_are_always_made() -> None:
    """Also of a tenant that has more than it may; a record set aside must lie somewhere."""
    kafka = Kafka("a.s.shop.orders", "a.s.shop.items")
    quotas = TopicQuotas(TopicQuotaSettings(per_tenant=1), kafka.all_topics)

    of_others = ("a.dead-letter", "a.headwater.table-schemas", "a.s", "a.s.transaction")
    refused = quotas.beyond("s", targets("a.s.shop.orders", "a.s.shop.items", *of_others, "a.s.shop.late"))

    assert list(refused) == ["a.s.shop.late"]


def test_kafka_partitions_have_a_quota_of_their_own() -> None:
    """One topic may have thousands: a broker pays for each."""
    kafka = Kafka("a.s.shop.orders")
    kafka.topics["a.s.shop.orders"] = 4
    quotas = TopicQuotas(TopicQuotaSettings(partitions_per_tenant=10, partitions={"b": 100}), kafka.all_topics)
    wide = [
        Target(name[0], TopicSpec(name=name, kafka_partitions=3)) for name in ("a.s.shop.x", "a.s.shop.y", "b.s.shop.x")
    ]

    refused = quotas.beyond("s", wide)

    assert list(refused) == ["a.s.shop.y"]
    assert "has 9 Kafka partitions, this one would have 3, and it may have 10" in str(refused["a.s.shop.y"])


def test_a_trial_takes_no_place_and_what_is_made_takes_one() -> None:
    quotas = TopicQuotas(TopicQuotaSettings(per_tenant=3), Kafka().all_topics)

    assert quotas.beyond("s", targets("a.s.shop.orders"), is_trial=True) == {}
    assert quotas.beyond("s", targets("a.s.shop.items")) == {}
    assert list(quotas.beyond("s", targets("a.s.shop.orders"), is_trial=True)) == ["a.s.shop.orders"]
    assert quotas.beyond("s", targets("a.s.shop.items")) == {}


def test_topics_without_rows_take_a_place_once_they_are_made() -> None:
    quotas = TopicQuotas(TopicQuotaSettings(per_tenant=4), Kafka("a.s.shop.orders").all_topics)
    assert quotas.beyond("s", targets("a.s.shop.items"), is_trial=True) == {}

    assert quotas.beyond("s", targets("a.s", "a.dead-letter")) == {}

    assert list(quotas.beyond("s", targets("a.s.shop.items"))) == ["a.s.shop.items"]


def test_topics_that_were_deleted_make_room() -> None:
    """Kafka is asked again before a topic is refused, and not for each."""
    kafka = Kafka("a.s.shop.old")
    quotas = TopicQuotas(TopicQuotaSettings(per_tenant=3), kafka.all_topics)
    assert len(quotas.beyond("s", targets("a.s.shop.orders"))) == 1
    assert len(quotas.beyond("s", targets("a.s.shop.orders"))) == 1
    assert kafka.asked == 1

    kafka.topics.clear()
    time_passes(quotas, 6)

    assert quotas.beyond("s", targets("a.s.shop.orders")) == {}
    assert kafka.asked == 2


def test_a_tenant_may_have_another_number_or_any_and_kafka_is_not_asked_for_nothing() -> None:
    kafka = Kafka("a.s.shop.x", "b.s.shop.x")
    only_a = TopicQuotas(TopicQuotaSettings(tenants={"a": 3}), kafka.all_topics)

    assert only_a.beyond("s", targets("b.s.shop.orders")) == {}
    assert kafka.asked == 0
    assert len(only_a.beyond("s", targets("a.s.shop.orders", "b.s.shop.orders"))) == 1
    raised = TopicQuotas(TopicQuotaSettings(per_tenant=3, tenants={"a": 4}), kafka.all_topics)
    assert list(raised.beyond("s", targets("a.s.shop.orders", "b.s.shop.orders"))) == ["b.s.shop.orders"]


def test_while_kafka_does_not_tell_nothing_is_decided() -> None:
    def away() -> set[str]:
        raise BrokerUnavailable("Kafka does not answer")

    with pytest.raises(BrokerUnavailable):
        TopicQuotas(TopicQuotaSettings(per_tenant=1), away).beyond("s", targets("a.s.shop.orders"))


def test_a_quota_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidSettings, match=r"(?s)per_tenant: must be at least 1.*tenants\.a: must be at least 1"):
        TopicQuotaSettings(per_tenant=0, tenants={"a": 0})
