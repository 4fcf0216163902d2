"""Requests of Kafka's protocol that confluent-kafka's AdminClient does not have, or takes too long for, over aiokafka."""

import asyncio
import contextlib
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable
from libs.kafka.aiokafka_clients import aiokafka_config

CLUSTER_AUTHORIZATION_FAILED: Final = 31
"""Kafka protocol, "Error Codes"."""


_TIMEOUT_S: Final = 30.0
"""Of a request, with its connection."""
_CLOSE_TIMEOUT_S: Final = 5.0


class BrokerClient:
    """A connection of its own to any broker; ``close`` it at the end."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._admin: Any = None

    async def ask(self, request: Any) -> Any:
        """The answer to ``request``, an ``aiokafka.protocol.api.Request``.

        Raises:
            BrokerUnavailable: Kafka does not answer; try again.
        """
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                if self._admin is None:
                    self._admin = AIOKafkaAdminClient(**aiokafka_config(self._settings))
                    await self._admin.start()
                return await self._admin._send_request(request)
        except (KafkaError, OSError, TimeoutError) as error:
            await self.close()
            raise BrokerUnavailable(f"Kafka does not answer ({type(request).__name__.strip('_')}): {error}") from error

    async def close(self) -> None:
        """End the connection."""
        admin, self._admin = self._admin, None
        if admin is not None:
            # Its own tasks are cancelled and waited for; one that misses the cancel would be waited for without end.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await admin.close()
