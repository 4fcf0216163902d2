"""The reach of a listener on the way to a server, by the connection that a document describes."""

from collections.abc import Iterator

from libs.config.connections import SecurityProtocol, is_loopback
from libs.mysql.preflight import Fault
from libs.source.mysql.settings import DatabaseSettings, TlsMode


def exposed_database(settings: DatabaseSettings, host: str) -> Iterator[Fault]:
    """Warnings of a MySQL server that is reached at ``host``."""
    mode = settings.tls_mode or (TlsMode.VERIFY_IDENTITY if settings.tls_ca_file else TlsMode.PREFERRED)
    seen = {
        TlsMode.DISABLED: "a listener on the way reads every row, and changes it",
        TlsMode.PREFERRED: "an attacker on the way says that there is no TLS, reads every row, and can get the password",
        TlsMode.REQUIRED: "an attacker on the way shows a certificate of his own, reads every row, and gets the password",
    }.get(mode)
    if seen is not None and not is_loopback(host):
        yield Fault(
            f"tls_mode {mode.value} to {host}: {seen}",
            "set tls_mode: verify_identity and tls_ca_file (the server's ca.pem), or keep the way private",
        )


def exposed_kafka(protocol: SecurityProtocol, servers: str, place: str) -> Iterator[Fault]:
    """Warnings of a Kafka cluster; ``place``: of its settings in the document."""
    away = [server for server in servers.split(",") if server and not is_loopback(server.rpartition(":")[0])]
    if not protocol.is_encrypted and away:
        yield Fault(
            f"{place}: security_protocol {protocol} to {', '.join(away)}: a listener on the way reads every event, and "
            "with sasl_mechanism PLAIN the password",
            "set security_protocol: SASL_SSL (or SSL), or keep the way private",
        )
