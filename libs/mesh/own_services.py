"""How a command, or a process of the embedded stack, calls another one: on loopback, with the home's own certificates."""

from pathlib import Path
from typing import Any, Final

from libs.config.connections import GrpcClientSettings
from libs.mesh.home import Home
from libs.servers.ports import LOOPBACK

AUTHORITIES: Final = "authorities"
"""The file of authorities whose certificates are taken."""
COMMANDS: Final = "commands"
"""The certificate of all commands."""


def certificate_file(home: Home, name: str) -> Path:
    """The certificate of a process, or another file of certificates (PEM)."""
    return home.tls_dir / f"{name}.pem"


def key_file(home: Home, name: str) -> Path:
    """Its key; readable by the home's owner alone."""
    return home.tls_dir / f"{name}.key"


def has_tls(home: Home) -> bool:
    """Whether the stack was started with certificates."""
    return certificate_file(home, AUTHORITIES).exists()


def caller(home: Home, port: int, *, timeout_s: float) -> GrpcClientSettings:
    """How a command calls the process at ``port``."""
    files = client_files(home, COMMANDS) if has_tls(home) else {}
    return GrpcClientSettings(address=f"{LOOPBACK}:{port}", timeout_s=timeout_s, **files)


def client_files(home: Home, name: str) -> dict[str, Any]:
    """TLS settings of ``name`` as a caller."""
    return {
        "tls_ca_file": str(certificate_file(home, AUTHORITIES)),
        "tls_certificate_file": str(certificate_file(home, name)),
        "tls_key_file": str(key_file(home, name)),
    }


def server_files(home: Home, name: str) -> dict[str, Any]:
    """TLS settings of ``name`` as a server that refuses callers without a certificate."""
    return {
        "tls_certificate_file": str(certificate_file(home, name)),
        "tls_key_file": str(key_file(home, name)),
        "tls_client_ca_file": str(certificate_file(home, AUTHORITIES)),
    }
