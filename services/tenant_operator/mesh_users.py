"""Makes the Kafka users of the mesh's components, with their rights: ``python -m services.tenant_operator.mesh_users``.

The chart runs it as a Job at each change, as a user that may do everything. It may be run again at any time: a password is set
again, a missing right is granted, and a right that nobody planned is taken back.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

import libs.telemetry.without_rich  # noqa: F401  # before anything loads structlog
from libs.config.connections import KafkaSettings, TelemetrySettings
from libs.config.load import Secret
from libs.errors import InvalidSettings
from libs.events.names import ROUTER_GROUP
from libs.kafka.admin import KafkaClient
from libs.kafka.mesh_rights import Component, rights_of
from libs.kafka.tenant_access import USER_PREFIX, Acl, Grant, KafkaAction, Revoke, SetPassword
from libs.rpc.lifecycle import run_service

log = structlog.get_logger()

_SUBJECT: Final = "mesh_users"


class MeshUser(msgspec.Struct, frozen=True, kw_only=True):
    """The Kafka user of a component."""

    component: Component
    username: str
    password: Secret
    sources: tuple[str, ...] = ()
    """Those that a reader reads, or a router routes."""


class MeshUsersSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Read once, in ``__main__``."""

    kafka: KafkaSettings
    """As a user that may make users and grant rights: a super user of the brokers, or one with ALTER on the cluster."""
    users: tuple[MeshUser, ...]
    router_group: str = ROUTER_GROUP
    """As in the router's settings."""
    telemetry: TelemetrySettings = TelemetrySettings()

    def __post_init__(self) -> None:
        """Refuse users that others use too. Raises InvalidSettings with every mistake."""
        names = [user.username for user in self.users]
        mistakes = []
        for index, name in enumerate(names):
            place = f"users[{index}].username"
            if names.index(name) != index:
                mistakes.append(f"{place}: {name!r} stands here twice, and one user would have the rights of both")
            if name.startswith(USER_PREFIX):
                mistakes.append(f"{place}: {name!r} begins like the users of tenants; take another")
            if name == self.kafka.sasl_username:
                mistakes.append(f"{place}: {name!r} makes the users, and may do everything; take another")
        if mistakes:
            raise InvalidSettings(_SUBJECT, mistakes)


def planned(settings: MeshUsersSettings, found: frozenset[Acl]) -> list[KafkaAction]:
    """The actions that give each user its password and exactly its rights, given the rights ``found``."""
    actions: list[KafkaAction] = []
    for user in settings.users:
        wanted = rights_of(user.component, user.username, user.sources, router_group=settings.router_group)
        held = {acl for acl in found if acl.user == user.username}
        missing = sorted(wanted - held, key=lambda acl: (acl.is_allow, acl))  # denials first
        actions += [Grant(user.component, acl) for acl in missing]
        actions += [Revoke(user.component, acl) for acl in sorted(held - wanted)]
        actions.append(SetPassword(user.component, user.username, user.password))
    return actions


async def make_users(settings: MeshUsersSettings, stop: asyncio.Event) -> None:
    """Bring Kafka's users and rights to the state that ``settings`` describe.

    Raises:
        BrokerUnavailable: Kafka does not answer; run it again.
        AccessDenied: the user in ``settings.kafka`` may not do this.
    """
    del stop  # it takes a second
    kafka = KafkaClient(settings.kafka)
    try:
        actions = planned(settings, await kafka.rights_of_users({user.username for user in settings.users}))
        failures = await kafka.apply(actions)
        for _, error in failures:
            raise error
        _log_actions(settings, actions)
    finally:
        await kafka.close()


def _log_actions(settings: MeshUsersSettings, actions: Sequence[KafkaAction]) -> None:
    for user in settings.users:
        mine = [action for action in actions if action.tenant == user.component]
        log.info(
            "mesh_user_made",
            component=user.component,
            user=user.username,
            granted=sum(isinstance(action, Grant) for action in mine),
            revoked=sum(isinstance(action, Revoke) for action in mine),
        )


if __name__ == "__main__":
    sys.exit(run_service("tenant_operator.mesh_users", MeshUsersSettings, make_users, sys.argv[1:]))
