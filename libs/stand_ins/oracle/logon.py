"""O5LOGON: both sides show that they know the password, and neither sends it in the clear.

The 12c verifier (PBKDF2 with SHA-512), as python-oracledb's thin mode answers it (``messages/auth.pyx``).
"""

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_VERIFIER_12C: Final = 0x4815
_ROUNDS: Final = 4_096
"""Of the verifier, the least that a server has."""
_SESSION_ROUNDS: Final = 3
_BLOCK_BYTES: Final = 16
_KEY_BYTES: Final = 32
_SERVER_VERSION: Final = (19 << 24) | (26 << 16)


class Pair(NamedTuple):
    """A named text of a logon."""

    name: str
    text: str
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Challenge:
    """The server's question to a user, another one for each connection."""

    password: str
    salt: bytes = field(default_factory=lambda: os.urandom(_BLOCK_BYTES))
    session_salt: bytes = field(default_factory=lambda: os.urandom(_BLOCK_BYTES))
    server_key: bytes = field(default_factory=lambda: os.urandom(_KEY_BYTES))

    def pairs(self) -> list[Pair]:
        """The first answer of the server."""
        return [
            Pair("AUTH_SESSKEY", _encrypted(self._verifier(), self.server_key).hex().upper()),
            Pair("AUTH_VFR_DATA", self.salt.hex().upper(), _VERIFIER_12C),
            Pair("AUTH_PBKDF2_CSK_SALT", self.session_salt.hex().upper()),
            Pair("AUTH_PBKDF2_VGEN_COUNT", str(_ROUNDS)),
            Pair("AUTH_PBKDF2_SDER_COUNT", str(_SESSION_ROUNDS)),
            Pair("AUTH_GLOBALLY_UNIQUE_DBID\0", "A" * 32),
        ]

    def proof(self, answer: Mapping[str, str]) -> str | None:
        """The text that shows the client that the server knows the password; None where the client has another one."""
        client_key = _decrypted(self._verifier(), bytes.fromhex(answer["AUTH_SESSKEY"]))
        both = (client_key[:_KEY_BYTES] + self.server_key).hex().upper().encode()
        key = hashlib.pbkdf2_hmac("sha512", both, self.session_salt, _SESSION_ROUNDS, _KEY_BYTES)
        padded = _decrypted(key, bytes.fromhex(answer["AUTH_PASSWORD"]))[_BLOCK_BYTES:]
        if not hmac.compare_digest(padded[: -padded[-1]], self.password.encode()):
            return None
        return (
            _encrypted(key, os.urandom(_BLOCK_BYTES) + b"SERVER_TO_CLIENT" + bytes([_BLOCK_BYTES] * _BLOCK_BYTES))
            .hex()
            .upper()
        )

    def _verifier(self) -> bytes:
        salt = self.salt + b"AUTH_PBKDF2_SPEEDY_KEY"
        key = hashlib.pbkdf2_hmac("sha512", self.password.encode(), salt, _ROUNDS, 64)
        return hashlib.sha512(key + self.salt).digest()[:_KEY_BYTES]


def welcome(proof: str, database: str, session: int) -> list[Pair]:
    """The last answer of a logon: the server's name, release and settings."""
    texts = {
        "AUTH_VERSION_STRING": "- Production",
        "AUTH_VERSION_SQL": "25",
        "AUTH_XACTION_TRAITS": "3",
        "AUTH_VERSION_NO": str(_SERVER_VERSION),
        "AUTH_VERSION_STATUS": "0",
        "AUTH_CAPABILITY_TABLE": "",
        "AUTH_DBNAME": database,
        "AUTH_DB_MOUNT_ID\0": "0" * 16,
        "AUTH_DB_ID\0": "0" * 16,
        "AUTH_USER_ID": "100",
        "AUTH_SESSION_ID": str(session),
        "AUTH_SERIAL_NUM": "1",
        "AUTH_INSTANCE_NO": "1",
        "AUTH_SC_SERVER_HOST": "localhost",
        "AUTH_SC_INSTANCE_NAME": database,
        "AUTH_SC_DB_DOMAIN": "",
        "AUTH_SC_SERVICE_NAME": database,
        "AUTH_SC_DBUNIQUE_NAME": database,
        "AUTH_SC_INSTANCE_ID": "1",
        "AUTH_INSTANCENAME": database,
        "AUTH_NLS_LXLAN": "AMERICAN",
        "AUTH_NLS_LXCTERRITORY": "AMERICA",
        "AUTH_NLS_LXCDATEFM": "DD-MON-RR",
        "AUTH_NLS_LXCCHARSET": "AL32UTF8",
        "AUTH_MAX_OPEN_CURSORS": "300",
        "AUTH_PDB_UID\0": "0",
        "AUTH_SVR_RESPONSE": proof,
    }
    return [Pair(name, text) for name, text in texts.items()]


def banner() -> tuple[str, int]:
    """The server's name and its version as a number."""
    return "Oracle Database 19c Enterprise Edition Release 19.0.0.0.0 - Production", _SERVER_VERSION


def _encrypted(key: bytes, data: bytes) -> bytes:
    encryptor = Cipher(algorithms.AES(key), modes.CBC(bytes(_BLOCK_BYTES))).encryptor()
    return encryptor.update(data) + encryptor.finalize()


def _decrypted(key: bytes, data: bytes) -> bytes:
    decryptor = Cipher(algorithms.AES(key), modes.CBC(bytes(_BLOCK_BYTES))).decryptor()
    return decryptor.update(data) + decryptor.finalize()
