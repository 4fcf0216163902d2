"""The mesh's own certificate authority: callers and services prove themselves by its certificates, and nobody else has one.

The embedded stack keeps it in its home, the chart in a Secret. Both look at it from time to time and write the
files that ``renewed`` returns; services read their files again at the next connection.
"""

import datetime
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE: Final = datetime.timedelta(days=90)
"""Of a certificate, which is renewed when a third of this is left."""
AUTHORITY_LIFE: Final = datetime.timedelta(days=3650)
_LEFT: Final = 3
_EARLIER: Final = datetime.timedelta(hours=1)
"""Certificates count from so long before: clocks differ."""
HANDED_OUT: Final = datetime.timedelta(hours=6)
"""A new authority signs nothing for so long: until then every service has read its certificate and takes its signatures."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Certificates:
    """All that the mesh has."""

    authority: KeyPair
    following: KeyPair | None = None
    """The authority that signs next, once everybody knows it."""
    former: bytes = b""
    """The certificate of the authority before, while certificates of it may be in use."""
    of_components: Mapping[str, KeyPair] = field(default_factory=dict)

    @property
    def known(self) -> bytes:
        """The authorities whose certificates are taken, PEM one after another."""
        return self.authority.certificate + (self.following.certificate if self.following else b"") + self.former


def renewed(
    found: Certificates | None, names: Mapping[str, Sequence[str]], now: datetime.datetime
) -> Certificates | None:
    """The certificates as they should be from ``now`` on; None: as they are. ``names``: hosts by component.

    A certificate is made again if it is missing, has other names, is of another authority, or has a third of its life left.
    """
    authority = new_authority(now) if found is None else found.authority
    following, former = (None, b"") if found is None else (found.following, found.former)
    if following is not None and _began(following.certificate) + HANDED_OUT <= now:
        former, authority, following = authority.certificate, following, None
    elif following is None and is_due(authority.certificate, now):
        following = new_authority(now)
    if former and _load(former).not_valid_after_utc <= now:
        former = b""
    there = {} if found is None else found.of_components
    of_components = {
        component: there[component]
        if component in there and _is_good(there[component].certificate, authority, hosts, now)
        else certified(authority, component, hosts, now)
        for component, hosts in names.items()
    }
    wanted = Certificates(authority, following, former, of_components)
    return None if wanted == found else wanted


def new_authority(now: datetime.datetime) -> KeyPair:
    """An authority that signs certificates, and no further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named(f"headwater {now:%Y-%m-%d}")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _certificate(name, name, key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder, key, key)


def certified(authority: KeyPair, component: str, hosts: Sequence[str], now: datetime.datetime) -> KeyPair:
    """A certificate of ``authority`` for servers and clients, for names and addresses."""
    signing = serialization.load_pem_private_key(authority.key, password=None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = _load(authority.certificate)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        _certificate(_named(component), issuer.subject, key.public_key(), now, LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
    )
    return _pair(builder, key, signing)


def is_due(certificate: bytes, now: datetime.datetime) -> bool:
    """Whether a third of the certificate's life, or less, is left."""
    found = _load(certificate)
    life = found.not_valid_after_utc - found.not_valid_before_utc
    return found.not_valid_after_utc - now <= life / _LEFT


def is_whole(pair: KeyPair) -> bool:
    """Whether the two are a certificate and its own key: files may be half written, or somebody else's."""
    try:
        key = serialization.load_pem_private_key(pair.key, password=None)
        return _load(pair.certificate).public_key() == key.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def _is_good(certificate: bytes, authority: KeyPair, hosts: Sequence[str], now: datetime.datetime) -> bool:
    found, issuer = _load(certificate), _load(authority.certificate)
    try:
        found.verify_directly_issued_by(issuer)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):  # of another authority, or made by others
        return False
    return list(names) == [_general_name(host) for host in hosts] and not is_due(certificate, now)


def _began(certificate: bytes) -> datetime.datetime:
    return _load(certificate).not_valid_before_utc + _EARLIER


def _load(certificate: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificate)


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    life: datetime.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + life)
    )


def _pair(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signing: ec.EllipticCurvePrivateKey
) -> KeyPair:
    return KeyPair(
        builder.sign(signing, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
