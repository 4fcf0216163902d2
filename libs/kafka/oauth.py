"""Tokens of an identity provider, for clients of Kafka that do not ask for them themselves: aiokafka's and Faust's.

librdkafka and Kafka's Java clients have code of their own for the same settings (``libs.kafka.clients``,
``spark.kafka.read_topics``).
"""

import asyncio
import base64
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

from aiokafka.abc import AbstractTokenProvider

from libs.config.connections import KafkaOauth
from libs.errors import ServiceUnavailable

_TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 1 << 20
_RENEWED_AT: Final = 0.8
"""The part of a token's life after which another one is asked for: librdkafka's and Java's clients do so too."""


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """The token of one client, kept for the greater part of its life. A connection asks for it when it opens."""

    def __init__(self, oauth: KafkaOauth) -> None:
        self._oauth = oauth
        self._token = ""
        self._until_s = 0.0
        self._asking = asyncio.Lock()

    async def token(self) -> str:
        """Called by aiokafka.

        Raises:
            ServiceUnavailable: the identity provider does not answer, or refuses; aiokafka tries again.
        """
        async with self._asking:
            if time.monotonic() >= self._until_s:
                asked_s = time.monotonic()
                self._token, life_s = await asyncio.to_thread(fetch_token, self._oauth)
                self._until_s = asked_s + _RENEWED_AT * life_s
            return self._token


def fetch_token(oauth: KafkaOauth) -> tuple[str, float]:
    """A new token, and its life in seconds (RFC 6749, sections 4.4 and 5.1). Blocks.

    Raises:
        ServiceUnavailable: the identity provider does not answer, or refuses; the message names neither secret nor token.
    """
    form = {"grant_type": "client_credentials"} | ({} if oauth.scope is None else {"scope": oauth.scope})
    # As librdkafka and Kafka's Java clients send it. Section 2.3.1 would have both form-encoded first.
    user = f"{oauth.client_id}:{oauth.client_secret.reveal()}"
    request = urllib.request.Request(  # noqa: S310 - https, or http on loopback (KafkaOauth)
        oauth.token_url,
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}", "Accept": "application/json"},
    )
    try:
        context = ssl.create_default_context(cafile=oauth.ca_file) if oauth.token_url.startswith("https") else None
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as response:  # noqa: S310 - as above
            answer: Any = json.loads(response.read(_MOST_BYTES))
        return str(answer["access_token"]), float(answer.get("expires_in", 0))
    except urllib.error.HTTPError as error:
        said = f"answers {error.code}: check oauth.client_id, oauth.client_secret and oauth.scope"
        raise ServiceUnavailable(f"the identity provider at {oauth.token_url} {said}") from error
    except OSError as error:
        raise ServiceUnavailable(f"the identity provider at {oauth.token_url} does not answer: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ServiceUnavailable(f"the identity provider at {oauth.token_url} answers no token") from error
