"""Passwords of Kafka's users, salted here: librdkafka takes 30 to 50 ms, OpenSSL 2.

Kafka protocol, AlterUserScramCredentials (51), version 0; brokers hand it on to the controller. RFC 5802: the stored value is
PBKDF2 of the password, so that Kafka never has it.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Mapping
from typing import Any, Final

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from libs.config.load import Secret
from libs.errors import AccessDenied, BrokerUnavailable, HeadwaterError
from libs.kafka.broker_client import CLUSTER_AUTHORIZATION_FAILED, BrokerClient

_SCRAM_SHA_512: Final = 2
_ITERATIONS: Final = 4_096
"""Kafka's own default, and its least."""
_SALT_BYTES: Final = 32
_USERS_AT_ONCE: Final = 500
"""One request of so many is answered well within its time-out."""


class _AlterResponse(Response):  # type: ignore[misc]  # aiokafka is untyped
    API_KEY = 51
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "results",
            CompactArray(
                ("user", CompactString("utf-8")),
                ("error_code", Int16),
                ("error_message", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _AlterStruct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 51
    API_VERSION = 0
    RESPONSE_TYPE = _AlterResponse
    SCHEMA = Schema(
        (
            "deletions",
            CompactArray(("name", CompactString("utf-8")), ("mechanism", Int8), ("tags", TaggedFields)),
        ),
        (
            "upsertions",
            CompactArray(
                ("name", CompactString("utf-8")),
                ("mechanism", Int8),
                ("iterations", Int32),
                ("salt", CompactBytes),
                ("salted_password", CompactBytes),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _AlterUserScramCredentials(Request[_AlterStruct]):  # type: ignore[misc]
    API_KEY = 51

    def __init__(self, salted: Mapping[str, tuple[bytes, bytes]]) -> None:
        self._salted = salted

    def build(self, request_struct_class: Any) -> Any:
        upsertions: list[Any] = [
            (user, _SCRAM_SHA_512, _ITERATIONS, salt, salted, {}) for user, (salt, salted) in self._salted.items()
        ]
        return request_struct_class([], upsertions, {})


async def set_passwords(broker: BrokerClient, passwords: Mapping[str, Secret]) -> dict[str, HeadwaterError]:
    """Make users, or give them another password; returns Kafka's refusals, by user.

    Raises:
        BrokerUnavailable: Kafka does not answer; try again. Some may have been set.
    """
    users = list(passwords)
    refused: dict[str, HeadwaterError] = {}
    for begin in range(0, len(users), _USERS_AT_ONCE):
        chosen = {user: passwords[user] for user in users[begin : begin + _USERS_AT_ONCE]}
        salted = await asyncio.to_thread(_salted, chosen)  # a second, in which the lease has to be renewed
        answer = await broker.ask(_AlterUserScramCredentials(salted))
        refused |= {user: _error(code, message) for user, code, message, _ in answer.results if code}
    return refused


def _salted(passwords: Mapping[str, Secret]) -> dict[str, tuple[bytes, bytes]]:
    """Of each user the salt, and Kafka's "salted password"."""
    salts = {user: secrets.token_bytes(_SALT_BYTES) for user in passwords}
    return {
        user: (salts[user], hashlib.pbkdf2_hmac("sha512", password.reveal().encode(), salts[user], _ITERATIONS))
        for user, password in passwords.items()
    }


def _error(code: int, message: str | None) -> HeadwaterError:
    if code == CLUSTER_AUTHORIZATION_FAILED:
        return AccessDenied("may not set passwords of Kafka's users: grant ALTER on the cluster")
    return BrokerUnavailable(f"Kafka refuses a password: {message or code}")
