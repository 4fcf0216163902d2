"""The mesh's own authority: the certificates that it signs, and when they are made again."""

import datetime
import ssl
from datetime import UTC, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from libs.rpc.authority import AUTHORITY_LIFE, HANDED_OUT, LIFE, Certificates, KeyPair, is_whole, renewed

NOW = datetime.datetime(2026, 11, 28, tzinfo=UTC)
NAMES = {"router": ("headwater-router", "127.0.0.1"), "sink": ("headwater-sink",)}


def made(now: datetime.datetime = NOW) -> Certificates:
    found = renewed(None, NAMES, now)
    assert found is not None
    return found


def test_each_component_has_a_pair_of_its_own_and_nothing_is_made_twice() -> None:
    first = made()

    assert first.of_components.keys() == NAMES.keys()
    assert len({pair.key for pair in first.of_components.values()}) == 2
    assert renewed(first, NAMES, NOW + LIFE / 2) is None


def test_a_certificate_with_a_third_of_its_life_left_is_made_anew_by_the_same_authority() -> None:
    """With a new key: a stolen one ends."""
    first = made()

    later = renewed(first, NAMES, NOW + LIFE * 2 / 3 + timedelta(hours=1))

    assert later is not None
    assert later.authority == first.authority
    for component, pair in first.of_components.items():
        assert later.of_components[component].key != pair.key
    assert is_known(later.of_components["router"], first.known)


def test_another_name_and_a_further_component_have_certificates_made() -> None:
    first = made()

    later = renewed(first, {**NAMES, "sink": ("headwater-spark",), "check": ("headwater-check",)}, NOW)

    assert later is not None
    assert later.of_components["router"] == first.of_components["router"]
    assert later.of_components["sink"] != first.of_components["sink"]
    assert "check" in later.of_components


def test_an_authority_is_known_before_it_signs_and_as_long_as_what_it_signed() -> None:
    """Each certificate that is shown is taken by everybody, also by those that read their files some hours before."""
    first = made()
    announced = renewed(first, NAMES, NOW + AUTHORITY_LIFE * 3 / 4)
    assert announced is not None
    assert announced.following is not None
    assert announced.authority == first.authority
    signs = renewed(announced, NAMES, NOW + AUTHORITY_LIFE * 3 / 4 + HANDED_OUT)
    assert signs is not None
    assert signs.authority == announced.following
    assert signs.former == first.authority.certificate
    assert is_known(announced.of_components["router"], signs.known)
    assert is_known(signs.of_components["router"], announced.known)
    forgotten = renewed(signs, NAMES, NOW + AUTHORITY_LIFE + timedelta(days=1))
    assert forgotten is not None
    assert forgotten.former == b""


@pytest.mark.parametrize("broken", [b"", b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"])
def test_half_a_pair_is_none(broken: bytes) -> None:
    router, sink = made().of_components.values()

    assert is_whole(router)
    assert not is_whole(KeyPair(broken, router.key))
    assert not is_whole(KeyPair(router.certificate, sink.key))
    assert not is_whole(KeyPair(router.certificate, broken))


def test_openssl_takes_a_pair_and_its_authority(tmp_path: Path) -> None:
    """A handshake in memory, both sides with a certificate, the host's name checked."""
    found = made(datetime.datetime.now(UTC))
    pair = found.of_components["router"]
    files = {"ca": found.known, "certificate": pair.certificate, "key": pair.key}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    sides = []
    for purpose in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
        context = ssl.SSLContext(purpose)
        context.load_verify_locations(tmp_path / "ca")
        context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        sides.append(context)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = sides[0].wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    server = sides[1].wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue

    assert ("IP Address", "127.0.0.1") in (client.getpeercert() or {})["subjectAltName"]
    assert server.getpeercert()


def is_known(pair: KeyPair, authorities: bytes) -> bool:
    """Whether one of ``authorities`` signed it."""
    found = x509.load_pem_x509_certificate(pair.certificate)
    for authority in x509.load_pem_x509_certificates(authorities):
        try:
            found.verify_directly_issued_by(authority)
        except (ValueError, InvalidSignature):
            continue
        return True
    return False
