"""Certificates for tests of TLS."""

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write_certificates(folder: Path, *, address: str = "127.0.0.1", is_expired: bool = False) -> dict[str, str]:
    """An authority, and one certificate of it for ``address``, as files.

    ``both``: key and certificate in one, as a broker's key store has them.
    """
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    now = datetime.datetime.now(datetime.UTC)
    ends = now + datetime.timedelta(days=1)

    def certify(subject: x509.Name, public_key: Any, *, is_authority: bool) -> bytes:
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=2))
            .not_valid_after(now - datetime.timedelta(days=1) if is_expired and not is_authority else ends)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
            .sign(authority_key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

    folder.mkdir(exist_ok=True)
    contents = {
        "ca": certify(authority, authority_key.public_key(), is_authority=True),
        "certificate": certify(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "peer")]), key.public_key(), is_authority=False
        ),
        "key": key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    }
    contents["both"] = contents["key"] + contents["certificate"]
    for name, content in contents.items():
        (folder / f"{name}.pem").write_bytes(content)
    return {name: str(folder / f"{name}.pem") for name in contents}
