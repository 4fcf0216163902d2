"""Kafka's client quotas, which confluent-kafka's AdminClient cannot ask for: two requests of Kafka's protocol.

Kafka protocol, DescribeClientQuotas (48) and AlterClientQuotas (49), version 0; any broker answers.
"""

from collections.abc import Mapping
from typing import Any, Final

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Float64, Int8, Int16, Int32, Schema, String

from libs.errors import AccessDenied, BrokerUnavailable, HeadwaterError
from libs.kafka.broker_client import CLUSTER_AUTHORIZATION_FAILED, BrokerClient

_USER: Final = "user"
_ANY_NAME: Final = 2


class _DescribeResponse(Response):  # type: ignore[misc]  # aiokafka is untyped
    API_KEY = 48
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("error_message", String("utf-8")),
        (
            "entries",
            Array(
                ("entity", Array(("entity_type", String("utf-8")), ("entity_name", String("utf-8")))),
                ("values", Array(("key", String("utf-8")), ("value", Float64))),
            ),
        ),
    )


class _DescribeStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 48
    API_VERSION = 0
    RESPONSE_TYPE = _DescribeResponse
    SCHEMA = Schema(
        ("components", Array(("entity_type", String("utf-8")), ("match_type", Int8), ("match", String("utf-8")))),
        ("strict", Boolean),
    )


class _DescribeClientQuotas(Request[_DescribeStruct]):  # type: ignore[misc]
    API_KEY = 48

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class([(_USER, _ANY_NAME, None)], True)


class _AlterResponse(Response):  # type: ignore[misc]
    API_KEY = 49
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "entries",
            Array(
                ("error_code", Int16),
                ("error_message", String("utf-8")),
                ("entity", Array(("entity_type", String("utf-8")), ("entity_name", String("utf-8")))),
            ),
        ),
    )


class _AlterStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 49
    API_VERSION = 0
    RESPONSE_TYPE = _AlterResponse
    SCHEMA = Schema(
        (
            "entries",
            Array(
                ("entity", Array(("entity_type", String("utf-8")), ("entity_name", String("utf-8")))),
                ("ops", Array(("key", String("utf-8")), ("value", Float64), ("remove", Boolean))),
            ),
        ),
        ("validate_only", Boolean),
    )


class _AlterClientQuotas(Request[_AlterStruct]):  # type: ignore[misc]
    API_KEY = 49

    def __init__(self, wanted: Mapping[str, Mapping[str, float | None]]) -> None:
        self._wanted = wanted

    def build(self, request_struct_class: Any) -> Any:
        entries = [
            (
                [(_USER, user)],
                [(key, 0.0 if value is None else value, value is None) for key, value in values.items()],
            )
            for user, values in self._wanted.items()
        ]
        return request_struct_class(entries, False)


async def describe_quotas(broker: BrokerClient) -> dict[str, dict[str, float]]:
    """The quotas of every user that has some of its own.

    Raises:
        BrokerUnavailable: Kafka does not answer; try again.
        AccessDenied: our user may not look; grant DESCRIBE_CONFIGS on the cluster.
    """
    answer = await broker.ask(_DescribeClientQuotas())
    if answer.error_code:
        raise _error(answer.error_code, answer.error_message)
    return {
        name: dict(values) for [(_, name)], values in answer.entries if name is not None
    }  # a name of None is the default of all users


async def alter_quotas(
    broker: BrokerClient, wanted: Mapping[str, Mapping[str, float | None]]
) -> dict[str, HeadwaterError]:
    """Set (or, with None, take away) users' quotas; returns Kafka's refusals, by user.

    Raises:
        BrokerUnavailable: Kafka does not answer; try again.
    """
    answer = await broker.ask(_AlterClientQuotas(wanted))
    return {name: _error(code, message) for code, message, [(_, name)] in answer.entries if code}


def _error(code: int, message: str | None) -> HeadwaterError:
    if code == CLUSTER_AUTHORIZATION_FAILED:
        return AccessDenied("may not look at or set quotas: grant DESCRIBE_CONFIGS and ALTER_CONFIGS on the cluster")
    return BrokerUnavailable(f"Kafka refuses quotas: {message or code}")
