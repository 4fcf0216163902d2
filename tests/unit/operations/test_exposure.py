"""Connections that others can read on the way are reported before anything is followed."""

import pytest

from libs.config.connections import SecurityProtocol
from libs.config.load import Secret
from libs.operations.exposure import exposed_database, exposed_kafka
from libs.source.mysql.settings import DatabaseSettings, TlsMode


@pytest.mark.parametrize(
    ("host", "tls_mode", "ca", "told"),
    [
        ("db.internal", None, None, "tls_mode preferred to db.internal"),
        ("10.0.0.7", TlsMode.PREFERRED, None, "there is no TLS"),
        ("10.0.0.7", TlsMode.REQUIRED, None, "a certificate of his own"),
        ("10.0.0.7", TlsMode.DISABLED, None, "listener"),
        ("10.0.0.7", None, "/ca.pem", None),
        ("10.0.0.7", TlsMode.VERIFY_CA, "/ca.pem", None),
        ("127.0.0.1", None, None, None),
        ("localhost", TlsMode.DISABLED, None, None),
        ("::1", None, None, None),
    ],
)
def test_a_database_that_is_reached_without_a_verified_certificate_is_warned_of(
    host: str, tls_mode: TlsMode | None, ca: str | None, told: str | None
) -> None:
    settings = DatabaseSettings(host=host, user="u", password=Secret("p"), tls_mode=tls_mode, tls_ca_file=ca)

    found = [f"{each.what}; {each.mend}" for each in exposed_database(settings, host)]

    assert len(found) == (told is not None)
    assert told is None or (told in found[0] and "verify_identity" in found[0])


@pytest.mark.parametrize(
    ("protocol", "servers", "is_told"),
    [
        ("PLAINTEXT", "kafka:9092", True),
        ("SASL_PLAINTEXT", "127.0.0.1:9092,kafka:9092", True),
        ("SASL_SSL", "kafka:9092", False),
        ("SASL_PLAINTEXT", "127.0.0.1:9092,[::1]:9092", False),
        ("PLAINTEXT", "", False),
    ],
)
def test_a_kafka_that_is_reached_in_clear_is_warned_of(protocol: str, servers: str, is_told: bool) -> None:
    assert bool(list(exposed_kafka(SecurityProtocol(protocol), servers, "subscription"))) is is_told
