"""An identity provider for tests: OAuth 2.0's client credentials grant (RFC 6749, section 4.4) over TLS, with signed tokens."""

import base64
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from libs.servers.ports import LOOPBACK

KEY_ID = "test"
LIFE_S = 300


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@dataclass(slots=True)
class IdentityProvider:
    """One client, whose tokens are for the user ``client_id``."""

    client_id: str
    client_secret: str
    url: str = ""
    refused: list[str] = field(default_factory=list)
    """Of requests that came with something else, the client's name."""
    _key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65_537, 2_048))

    def write_keys(self, file: Path) -> None:
        """The public key, as a broker reads it (RFC 7517)."""
        numbers = self._key.public_key().public_numbers()
        parts = {
            name: _base64(value.to_bytes((value.bit_length() + 7) // 8, "big")) for name, value in vars_of(numbers)
        }
        key = {"kty": "RSA", "kid": KEY_ID, "alg": "RS256", "use": "sig", **parts}
        file.write_text(json.dumps({"keys": [key]}))

    def token(self) -> str:
        """A new one (RFC 7519)."""
        now_s = int(time.time())
        claims = {"sub": self.client_id, "iat": now_s, "exp": now_s + LIFE_S, "scope": "kafka"}
        told = ".".join(
            _base64(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT", "kid": KEY_ID}, claims)
        )
        return f"{told}.{_base64(self._key.sign(told.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """Status and document."""
        given = base64.b64decode(authorization.removeprefix("Basic ")).decode().split(":", 1)
        if form.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        if given != [self.client_id, self.client_secret]:
            self.refused.append(given[0])
            return 401, {"error": "invalid_client"}
        return 200, {"access_token": self.token(), "token_type": "Bearer", "expires_in": LIFE_S}


def vars_of(numbers: rsa.RSAPublicNumbers) -> Iterator[tuple[str, int]]:
    """Modulus and exponent, by their names in a key's document."""
    yield from (("n", numbers.n), ("e", numbers.e))


@contextmanager
def identity_provider(client_id: str, client_secret: str, *, certificate_file: str) -> Iterator[IdentityProvider]:
    """Served on loopback by ``certificate_file`` (PEM: the key, then its certificate)."""
    provider = IdentityProvider(client_id, client_secret)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            status, document = provider.answer(self.headers.get("Authorization", ""), form)
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    provider.url = f"https://{LOOPBACK}:{server.server_address[1]}/token"
    serving = threading.Thread(target=server.serve_forever, name="identity-provider", daemon=True)
    serving.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
