"""The machine's trusted certificates in the form that Java reads.

A JRE out of a Python package trusts the certificates that came with it. apt, pip and git trust the machine's,
and on a network whose proxy signs with a certificate of its own only those will do; so Maven, when it runs on such
a JRE, is given the machine's too. Standard library only.
"""

import hashlib
import os
import ssl
import struct
import time
from collections.abc import Sequence
from pathlib import Path

# The JKS format, as sun.security.provider.JavaKeyStore documents it in OpenJDK: trusted certificates only, and at
# the end a digest against damage, salted with a password that is no secret.
PASSWORD = "changeit"  # noqa: S105 - Java's customary one
MAGIC, VERSION, TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2
DIGEST_SALT = b"Mighty Aphrodite"


def options(cache: Path) -> tuple[str, ...]:
    """Java options that make it trust the machine's certificates; none where the machine has none to show."""
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificates:
        return ()
    path = cache / "java" / "machine-certificates.jks"
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f"{path.name}.{os.getpid()}")
    staged.write_bytes(_key_store(certificates))
    staged.rename(path)
    return (f"-Djavax.net.ssl.trustStore={path}", f"-Djavax.net.ssl.trustStorePassword={PASSWORD}")


def _key_store(certificates: Sequence[bytes]) -> bytes:
    now_ms = int(time.time() * 1_000)
    content = struct.pack(">III", MAGIC, VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        content += struct.pack(">I", TRUSTED_CERTIFICATE) + _text(f"machine-{number}") + struct.pack(">Q", now_ms)
        content += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    digest = hashlib.sha1(PASSWORD.encode("utf-16-be") + DIGEST_SALT + content)  # noqa: S324 - the format's
    return content + digest.digest()


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded
