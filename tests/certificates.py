"""Certificates for tests of TLS."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write_certificates(folder: Path, *, address: str = "127.0.0.1", is_expired: bool = False) -> dict[str, str]:
    """An authority, and one certificate of it for ``address``, as files.

    ``both``: key and certificate in one, as a broker's key store has them.
    """
    authority = Authority()
    certificate, key = authority.certify([x509.IPAddress(ipaddress.ip_address(address))], is_expired=is_expired)
    folder.mkdir(exist_ok=True)
    contents = {"ca": authority.certificate, "certificate": certificate, "key": key, "both": key + certificate}
    for name, content in contents.items():
        (folder / f"{name}.pem").write_bytes(content)
    return {name: str(folder / f"{name}.pem") for name in contents}


_SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Signs certificates of peers; all that it gives is PEM."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        self.certificate = self._signed(self._name, self._key.public_key(), (), is_authority=True)

    def certify(self, names: Sequence[x509.GeneralName], *, is_expired: bool = False) -> tuple[bytes, bytes]:
        """A new certificate for these names, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        peer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "peer")])
        return self._signed(peer, key.public_key(), names, is_expired=is_expired), key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def secret(self, *hosts: str) -> dict[str, str]:
        """A new certificate for these DNS names, as Secrets have it (``kubernetes.io/tls``, with ``ca.crt``)."""
        certificate, key = self.certify([x509.DNSName(host) for host in hosts])
        entries = {"tls.crt": certificate, "tls.key": key, "ca.crt": self.certificate}
        return {name: content.decode() for name, content in entries.items()}

    def _signed(
        self,
        subject: x509.Name,
        public_key: ec.EllipticCurvePublicKey,
        names: Sequence[x509.GeneralName],
        *,
        is_authority: bool = False,
        is_expired: bool = False,
    ) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=2))
            .not_valid_after(now + datetime.timedelta(days=-1 if is_expired else 1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            # From Python 3.13 on ``ssl`` believes no certificate without these (VERIFY_X509_STRICT).
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if is_authority:
            builder = builder.add_extension(_SIGNS, critical=True)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
