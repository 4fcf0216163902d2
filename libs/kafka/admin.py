"""Kafka for its administrator: its objects of tenants, and actions on it, many at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
)

from libs.config.connections import KafkaSettings
from libs.errors import AccessDenied, BrokerUnavailable, HeadwaterError
from libs.events.names import ROUTER_GROUP, is_side_topic, straggler_group
from libs.kafka.broker_client import BrokerClient
from libs.kafka.clients import client_config, create_topics
from libs.kafka.passwords import set_passwords
from libs.kafka.quotas import alter_quotas, describe_quotas
from libs.kafka.tenant_access import (
    USER_PREFIX,
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
    prefix_of,
)

_TIMEOUT_S: Final = 10.0
"""Of one request; a look that fails is soon followed by another."""
_ACTIONS_AT_ONCE: Final = 500
"""One request of so many is answered well within its time-out."""
_PRINCIPAL: Final = "User:"
_GONE_OR_THERE: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.RESOURCE_NOT_FOUND}
)
"""A deleted object is away already: as wanted."""

Failures = list[tuple[KafkaAction, HeadwaterError]]

_EVERYTHING: Final = AclBindingFilter(
    ResourceType.ANY,
    None,  # type: ignore[arg-type]  # the stubs know no "any"
    ResourcePatternType.ANY,
    None,  # type: ignore[arg-type]
    None,  # type: ignore[arg-type]
    AclOperation.ANY,
    AclPermissionType.ANY,
)


class KafkaClient:
    """Kafka with an administrator's rights; ``close`` it at the end."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._admin = AdminClient(client_config(settings))
        self._broker = BrokerClient(settings)

    async def observe(self, configured_topics: Iterable[str] = ()) -> KafkaState:
        """Kafka's present objects; of ``configured_topics`` also their settings.

        Raises:
            BrokerUnavailable: Kafka does not answer; try again.
            AccessDenied: our user may not look.
        """
        state = await asyncio.to_thread(self._observe, tuple(configured_topics))
        quotas = await describe_quotas(self._broker)
        return KafkaState(state.topics, state.configs, state.users, state.acls, quotas)

    async def rights_of_users(self, users: Collection[str]) -> frozenset[Acl]:
        """The rights that these users hold, and those that they are denied.

        Raises:
            BrokerUnavailable: Kafka does not answer; try again.
            AccessDenied: our user may not look.
        """
        found = map(_acl, await asyncio.to_thread(self._acls, _EVERYTHING))
        return frozenset(acl for acl in found if acl.user in users)

    async def apply(self, actions: Sequence[KafkaAction]) -> Failures:
        """Do all of ``actions``, those of a kind together; which of them failed, and why. Each may be repeated."""
        failures: Failures = []
        for kind in (DeleteUser, CreateTopic, ConfigureTopic, Revoke, Grant, DeleteTopic):
            chosen = [action for action in actions if isinstance(action, kind)]
            for begin in range(0, len(chosen), _ACTIONS_AT_ONCE):
                failures += await asyncio.to_thread(self._apply, chosen[begin : begin + _ACTIONS_AT_ONCE])
        passwords = {action.user: action for action in actions if isinstance(action, SetPassword)}
        if passwords:
            setting = set_passwords(self._broker, {user: action.password for user, action in passwords.items()})
            failures += [(passwords[user], error) for user, error in (await _refused(setting, passwords)).items()]
        quotas = {action.user: action for action in actions if isinstance(action, SetQuotas)}
        if quotas:
            altering = alter_quotas(self._broker, {user: action.values for user, action in quotas.items()})
            failures += [(quotas[user], error) for user, error in (await _refused(altering, quotas)).items()]
        return failures

    async def close(self) -> None:
        """End the connections."""
        await self._broker.close()

    def _observe(self, configured_topics: Sequence[str]) -> KafkaState:
        topics = frozenset(_asked(lambda: self._admin.list_topics(timeout=_TIMEOUT_S)).topics)
        there = [ConfigResource(ResourceType.TOPIC, name) for name in configured_topics if name in topics]
        configs = None
        if configured_topics:
            described = self._admin.describe_configs(there, request_timeout=_TIMEOUT_S) if there else {}
            configs = {
                resource.name: {name: entry.value for name, entry in _answer(future).items()}
                for resource, future in described.items()
            }
        acls = self._acls(_EVERYTHING)
        describe_all: Any = self._admin.describe_user_scram_credentials  # the stubs know only the one for given users
        users = _answer(describe_all(request_timeout=_TIMEOUT_S))
        return KafkaState(
            topics,
            configs,
            frozenset(
                name
                for name, described_user in users.items()
                if any(each.mechanism is ScramMechanism.SCRAM_SHA_512 for each in described_user.scram_credential_infos)
            ),
            frozenset(_acl(binding) for binding in acls if binding.principal.startswith(_PRINCIPAL + USER_PREFIX)),
        )

    def _acls(self, chosen: AclBindingFilter) -> Sequence[Any]:
        """None of a broker without an authorizer: there everybody may do everything."""
        try:
            return list(_answer(self._admin.describe_acls(chosen, request_timeout=_TIMEOUT_S)))
        except BrokerUnavailable as error:
            if _code(error) == KafkaError.SECURITY_DISABLED:
                return []
            raise

    async def events_of(self, tenants: Collection[str]) -> dict[str, int]:
        """How many records each tenant's row topics ever got, by their ends; by tenant.

        Of records that routers write in transactions Kafka counts one more for each transaction and Kafka partition.

        Raises:
            BrokerUnavailable: Kafka does not answer; try again.
            AccessDenied: our user may not look.
        """

        def look() -> dict[str, int]:
            counted = dict.fromkeys(tenants, 0)
            topics = _asked(lambda: self._admin.list_topics(timeout=_TIMEOUT_S)).topics
            places = [
                TopicPartition(name, partition)
                for name, topic in topics.items()
                if name.partition(".")[0] in counted and not is_side_topic(name)
                for partition in topic.partitions
            ]
            for begin in range(0, len(places), _ACTIONS_AT_ONCE):
                asked: dict[TopicPartition, OffsetSpec] = {
                    place: OffsetSpec.latest() for place in places[begin : begin + _ACTIONS_AT_ONCE]
                }
                answers = self._admin.list_offsets(
                    asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=_TIMEOUT_S
                )
                for place, future in answers.items():
                    counted[place.topic.partition(".")[0]] += int(_answer(future).offset)
            return counted

        return await asyncio.to_thread(look)

    async def groups_of(self, tenant: str) -> list[str]:
        """The consumer groups that belong to ``tenant`` by their name, the router's for it among them.

        Raises:
            BrokerUnavailable: Kafka does not answer; try again.
            AccessDenied: our user may not look.
        """

        def look() -> list[str]:
            listed = _answer(self._admin.list_consumer_groups(request_timeout=_TIMEOUT_S)).valid
            routers = straggler_group(ROUTER_GROUP, tenant)
            groups = [each.group_id for each in listed]
            return sorted(group for group in groups if group.startswith(prefix_of(tenant)) or group == routers)

        return await asyncio.to_thread(look)

    async def delete_groups(self, groups: Sequence[str]) -> dict[str, HeadwaterError]:
        """Delete consumer groups; why one is still there, by name: somebody reads as it. May be repeated."""

        def delete() -> dict[str, HeadwaterError]:
            futures = self._admin.delete_consumer_groups(list(groups), request_timeout=_TIMEOUT_S) if groups else {}
            failed: dict[str, HeadwaterError] = {}
            for group, future in futures.items():
                try:
                    _answer(future)
                except HeadwaterError as error:
                    if _code(error) == KafkaError.NON_EMPTY_GROUP:
                        failed[group] = BrokerUnavailable("somebody reads as this group: stop that consumer")
                    elif _code(error) != KafkaError.GROUP_ID_NOT_FOUND:
                        failed[group] = error
            return failed

        return await asyncio.to_thread(delete)

    def _apply(self, actions: Sequence[KafkaAction]) -> Failures:
        """Actions of one kind."""
        futures: Mapping[Any, Future[Any]]
        match actions[0]:
            case CreateTopic():
                topics = {action.topic.name: action for action in actions if isinstance(action, CreateTopic)}
                errors = create_topics(self._settings, [action.topic for action in topics.values()])
                return [(topics[name], error) for name, error in errors.items()]
            case ConfigureTopic():
                by_key = {action.topic: action for action in actions if isinstance(action, ConfigureTopic)}
                altered = self._admin.incremental_alter_configs(
                    [_configured(action) for action in by_key.values()], request_timeout=_TIMEOUT_S
                )
                return _failures([(by_key[resource.name], future) for resource, future in altered.items()])
            case DeleteTopic():
                by_name = {action.topic: action for action in actions if isinstance(action, DeleteTopic)}
                futures = self._admin.delete_topics(list(by_name), request_timeout=_TIMEOUT_S)
                return _failures([(by_name[name], future) for name, future in futures.items()])
            case DeleteUser():
                by_user = {action.user: action for action in actions if isinstance(action, DeleteUser)}
                deletions: list[Any] = [
                    UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512) for user in by_user
                ]
                futures = self._admin.alter_user_scram_credentials(deletions, request_timeout=_TIMEOUT_S)
                return _failures([(by_user[user], future) for user, future in futures.items()])
            case Grant():
                granted = {_binding(action.acl): action for action in actions if isinstance(action, Grant)}
                futures = self._admin.create_acls(list(granted), request_timeout=_TIMEOUT_S)
                return _failures([(granted[binding], future) for binding, future in futures.items()])
            case Revoke():
                revoked = {_filter(action.acl): action for action in actions if isinstance(action, Revoke)}
                futures = self._admin.delete_acls(list(revoked), request_timeout=_TIMEOUT_S)
                return _failures([(revoked[each], future) for each, future in futures.items()])
            case SetPassword() | SetQuotas():
                raise AssertionError("these go another way")


async def _refused(asked: Awaitable[dict[str, HeadwaterError]], users: Iterable[str]) -> dict[str, HeadwaterError]:
    """Kafka's refusals, by user: all of ``users``, where it did not answer."""
    try:
        return await asked
    except HeadwaterError as error:
        return dict.fromkeys(users, error)


def _failures(futures: Sequence[tuple[KafkaAction, "Future[Any]"]]) -> Failures:
    failures: Failures = []
    for action, future in futures:
        try:
            _answer(future)
        except HeadwaterError as error:
            if not _is_as_wanted(error):
                failures.append((action, error))
    return failures


def _is_as_wanted(error: HeadwaterError) -> bool:
    return _code(error) in _GONE_OR_THERE


def _code(error: HeadwaterError) -> int | None:
    """Kafka's own, the cause of our error."""
    cause = error.__cause__
    failure = cause.args[0] if isinstance(cause, KafkaException) else None
    return int(failure.code()) if isinstance(failure, KafkaError) else None


def _answer(future: "Future[Any]") -> Any:
    return _asked(lambda: future.result(timeout=_TIMEOUT_S + 5.0))


def _asked(ask: Callable[[], Any]) -> Any:
    """The answer, with Kafka's errors turned into ours."""
    try:
        return ask()
    except (KafkaException, TimeoutError) as error:
        failure = error.args[0] if isinstance(error, KafkaException) else None
        if isinstance(failure, KafkaError) and failure.code() in (
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
        ):
            raise AccessDenied(
                f"Kafka does not let this user do this: {failure.str()}; see docs/kubernetes.md"
            ) from error
        raise BrokerUnavailable(
            f"Kafka: {failure.str() if isinstance(failure, KafkaError) else 'no answer in time'}"
        ) from error


def _configured(action: ConfigureTopic) -> ConfigResource:
    return ConfigResource(
        ResourceType.TOPIC,
        action.topic,
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in action.config.items()
        ],
    )


def _acl(binding: Any) -> Acl:
    return Acl(
        user=binding.principal.removeprefix(_PRINCIPAL),
        resource=binding.restype.name,
        name=binding.name,
        is_prefix=binding.resource_pattern_type is ResourcePatternType.PREFIXED,
        operation=binding.operation.name,
        is_allow=binding.permission_type is AclPermissionType.ALLOW,
        host=binding.host,
    )


def _binding(acl: Acl) -> AclBinding:
    return AclBinding(*_terms(acl))


def _filter(acl: Acl) -> AclBindingFilter:
    return AclBindingFilter(*_terms(acl))


def _terms(acl: Acl) -> tuple[Any, ...]:
    return (
        ResourceType[acl.resource],
        acl.name,
        ResourcePatternType.PREFIXED if acl.is_prefix else ResourcePatternType.LITERAL,
        f"{_PRINCIPAL}{acl.user}",
        acl.host,
        AclOperation[acl.operation],
        AclPermissionType.ALLOW if acl.is_allow else AclPermissionType.DENY,
    )
