"""Settings that several services share: how to reach Kafka, a schema registry, Redis, PostgreSQL and one another."""

import enum
import ipaddress
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from libs.config.load import Secret
from libs.errors import InvalidSettings


def is_loopback(host: str) -> bool:
    """Whether nothing leaves this machine on the way to ``host``.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "[::1]", "db.internal", "10.0.0.1")]
    [True, True, True, False, False]
    """
    bare = host.strip("[]").lower()
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


class SecurityProtocol(enum.StrEnum):
    """How a connection to Kafka is protected, in Kafka's words (its documentation, ``security.protocol``)."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_users(self) -> bool:
        """Whether a client proves itself by a user's password."""
        return self.value.startswith("SASL")

    @property
    def is_encrypted(self) -> bool:
        """By TLS."""
        return self.value.endswith("SSL")


class SaslMechanism(enum.StrEnum):
    """How the password is proved, in Kafka's words (its documentation, ``sasl.mechanism``)."""

    PLAIN = "PLAIN"
    """The password itself is sent."""
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"
    """No password: a token of an identity provider."""

    @property
    def has_password(self) -> bool:
        """Whether a user proves itself by a password."""
        return self is not SaslMechanism.OAUTHBEARER


class KafkaOauth(msgspec.Struct, frozen=True, kw_only=True):
    """An OAuth 2.0 client (RFC 6749, section 4.4, "Client Credentials Grant"), as whom Kafka knows Headwater."""

    token_url: str
    """``https://…``, where the identity provider hands out tokens."""
    client_id: str
    client_secret: Secret
    """It is sent as it is, not form-encoded as RFC 6749 asks (section 2.3.1), because no client of Kafka does so. Of letters,
    digits and ``-._~`` it is the same in both forms."""
    scope: str | None = None
    """The token's scopes, where the provider asks for them; several separated by spaces."""
    ca_file: str | None = None
    """Certificate authority of the identity provider (PEM); None: those that the machine trusts."""

    def __post_init__(self) -> None:
        """Raises InvalidSettings: the address is none, or the secret would be sent in clear text."""
        found = re.fullmatch(r"(https?)://(\[[^/\]@]+\]|[^/:@\[]+)(:\d+)?(/.*)?", self.token_url)
        mistakes = []
        if found is None:
            mistakes.append("token_url: is no address; take https://host/path")
        elif found[1] == "http" and not is_loopback(found[2]):
            mistakes.append("token_url: http:// sends the client's secret in clear text; take https://")
        elif found[1] == "http" and self.ca_file is not None:
            mistakes.append("ca_file: is given, and http:// encrypts nothing; take https://")
        if mistakes:
            raise InvalidSettings("kafka.oauth", mistakes)


class KafkaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Headwater's own Kafka."""

    bootstrap_servers: str = "127.0.0.1:9092"
    """``host:port``, several separated by commas."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    sasl_mechanism: SaslMechanism | None = None
    """SCRAM-SHA-512, SCRAM-SHA-256, PLAIN or OAUTHBEARER."""
    sasl_username: str | None = None
    sasl_password: Secret | None = None
    oauth: KafkaOauth | None = None
    """With OAUTHBEARER, in place of user and password."""
    ssl_ca_file: str | None = None
    """Certificate authority of the brokers (PEM); None: those that the machine trusts."""
    ssl_certificate_file: str | None = None
    """Certificate of the client, with its chain (PEM), where brokers ask for one. Goes with ssl_key_file."""
    ssl_key_file: str | None = None
    """Key of that certificate (PEM, PKCS#8, without a password)."""
    replication_factor: int = 1
    """Copies of each of Headwater's own topics; 3 in production."""

    def __post_init__(self) -> None:
        """Refuse settings that Kafka's clients would ignore silently. Raises InvalidSettings with every mistake."""
        protocol, mistakes = self.security_protocol, []
        has_user = self.sasl_username is not None or self.sasl_mechanism is not None
        is_oauth = self.sasl_mechanism is SaslMechanism.OAUTHBEARER
        if has_user and not protocol.has_users:
            mistakes.append(
                f"security_protocol: {protocol} sends no user: take {'SASL_SSL' if protocol.is_encrypted else 'SASL_PLAINTEXT'}"
            )
        elif is_oauth and self.oauth is None:
            mistakes.append("oauth: is missing, and sasl_mechanism is OAUTHBEARER")
        elif protocol.has_users and self.sasl_username is None and not is_oauth:
            mistakes.append(f"security_protocol: {protocol} needs a user, and none is named")
        elif protocol.has_users and self.sasl_mechanism is None:
            mistakes.append(f"sasl_mechanism: is missing, and security_protocol is {protocol}")
        if self.ssl_ca_file is not None and not protocol.is_encrypted:
            mistakes.append(f"ssl_ca_file: is given, and security_protocol {protocol} encrypts nothing")
        if is_oauth and (self.sasl_username is not None or self.sasl_password is not None):
            mistakes.append("sasl_username: has no effect with OAUTHBEARER, whose token names the user; leave it out")
        if self.oauth is not None and not is_oauth:
            mistakes.append("oauth: has no effect without sasl_mechanism OAUTHBEARER")
        if (self.ssl_certificate_file is None) != (self.ssl_key_file is None):
            mistakes.append("ssl_certificate_file: goes with ssl_key_file; give both or neither")
        if self.ssl_certificate_file is not None and not protocol.is_encrypted:
            mistakes.append(f"ssl_certificate_file: is given, and security_protocol {protocol} encrypts nothing")
        if mistakes:
            raise InvalidSettings("kafka", mistakes)


class KafkaAccess(msgspec.Struct, frozen=True, kw_only=True):
    """A Kafka that somebody else runs, as its users are handed it: address, user and password, perhaps no more."""

    bootstrap_servers: str
    """``host:port``, several separated by commas."""
    username: str | None = None
    """None: no authentication."""
    password: Secret = Secret("")
    security_protocol: SecurityProtocol | None = None
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; None: SASL_PLAINTEXT with a user, else PLAINTEXT."""
    sasl_mechanism: SaslMechanism = SaslMechanism.SCRAM_SHA_512
    """SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN."""
    ssl_ca_file: str | None = None
    """Certificate authority of the brokers (PEM); None: those that the machine trusts."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself. Raises InvalidSettings with every mistake."""
        self.as_kafka()

    def as_kafka(self) -> KafkaSettings:
        """In the form that clients are made of."""
        usual = SecurityProtocol.PLAINTEXT if self.username is None else SecurityProtocol.SASL_PLAINTEXT
        return KafkaSettings(
            bootstrap_servers=self.bootstrap_servers,
            security_protocol=self.security_protocol or usual,
            sasl_mechanism=None if self.username is None else self.sasl_mechanism,
            sasl_username=self.username,
            sasl_password=self.password,
            ssl_ca_file=self.ssl_ca_file,
        )


class SchemaRegistrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """A schema registry with Confluent's interface."""

    url: str
    """``http://host:8081``, several of one registry separated by commas; Apicurio's ends with ``/apis/ccompat/v7``."""
    username: str | None = None
    """Basic authentication; None: none."""
    password: Secret = Secret("")
    tls_ca_file: str | None = None
    """Certificate authority of the registry (PEM); None: those that the machine trusts."""
    tls_certificate_file: str | None = None
    """With the key: mTLS."""
    tls_key_file: str | None = None
    timeout_s: float = 5.0
    """How long one answer may take, in seconds; docs/tenants.md, "Avro", says which rows wait for it."""

    def __post_init__(self) -> None:
        """Refuse settings that the client would refuse later, or ignore. Raises InvalidSettings with every mistake."""
        mistakes = []
        urls = [url.strip() for url in self.url.split(",")]
        if not all(re.match("https?://[^/@]+", url) and "@" not in url for url in urls):
            mistakes.append("url: is no address; take http://host:port or https://host:port, and username for the user")
        if self.username is not None and ":" in self.username:
            mistakes.append("username: must not hold ':', which parts it from the password")
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            mistakes.append("tls_certificate_file: goes with tls_key_file; give both or neither")
        given = self.tls_ca_file or self.tls_certificate_file
        if given is not None and any(url.startswith("http://") for url in urls):
            mistakes.append("url: http:// encrypts nothing, and a TLS file is given; take https://")
        if not self.timeout_s > 0:
            mistakes.append("timeout_s: must be more than 0 seconds")
        if mistakes:
            raise InvalidSettings("schema_registry", mistakes)


class LineageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where OpenLineage events go: one of ``url`` and ``file``."""

    namespace: str = "headwater"
    """Of the jobs."""
    url: str | None = None
    """``http://host:5000``; events are posted to ``/api/v1/lineage`` below it."""
    file: str | None = None
    """A JSON object a line is appended to it."""
    api_key: Secret | None = None
    """Sent as a bearer token; with ``url``."""
    timeout_s: float = 5.0
    """Of one request."""
    queued_events: int = 1_000
    """Most waiting events while nobody takes them; more are dropped, and counted."""

    def __post_init__(self) -> None:
        """Raises InvalidSettings with every field that is wrong."""
        mistakes = []
        if (self.url is None) == (self.file is None):
            mistakes.append("url: give either url or file")
        if self.url is not None and not re.fullmatch("https?://[^/@]+(/.*)?", self.url):
            mistakes.append("url: is no address; take http://host:port or https://host:port")
        if self.api_key is not None and self.url is None:
            mistakes.append("api_key: is for url; leave it out")
        if self.timeout_s <= 0:
            mistakes.append("timeout_s: must be above 0")
        if self.queued_events < 1:
            mistakes.append("queued_events: must be at least 1")
        if mistakes:
            raise InvalidSettings("openlineage", mistakes)


class RedisSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The Redis-protocol server that holds the fast views; everything in it can be rebuilt from Kafka."""

    url: str = "redis://127.0.0.1:6379/0"


class PostgresqlTls(enum.StrEnum):
    """How a connection to PostgreSQL is protected, in libpq's words (PostgreSQL manual 34.19, ``sslmode``)."""

    DISABLE = "disable"
    PREFER = "prefer"
    """TLS where the server has it; an attacker in between can turn it off."""
    REQUIRE = "require"
    """TLS, without a check of the server's identity."""
    VERIFY_CA = "verify-ca"
    VERIFY_FULL = "verify-full"
    """TLS with a server whose certificate is trusted and names the host."""


class PostgresqlSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a PostgreSQL server."""

    host: str = "127.0.0.1"
    port: int = 5432
    database: str
    user: str
    password: Secret = Secret("")
    tls_mode: PostgresqlTls = PostgresqlTls.PREFER
    """disable, prefer, require, verify-ca or verify-full."""
    tls_ca_file: str | None = None
    """Certificate authority of the server (PEM); wanted by verify-ca and verify-full."""
    connect_timeout_s: int = 10
    """How long to wait for the server's answer, in seconds."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself. Raises InvalidSettings with every mistake."""
        is_verifying = self.tls_mode in (PostgresqlTls.VERIFY_CA, PostgresqlTls.VERIFY_FULL)
        if is_verifying and self.tls_ca_file is None:
            raise InvalidSettings("postgresql", [f"tls_ca_file: is missing, and tls_mode is {self.tls_mode}"])
        if self.tls_ca_file is not None and not is_verifying:
            raise InvalidSettings(
                "postgresql",
                [f"tls_ca_file: is given, and tls_mode {self.tls_mode} verifies nothing: take verify-full"],
            )


class GrpcServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a service answers gRPC."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any free port."""
    tls_certificate_file: str | None = None
    """With the key: TLS. With the client CA too: mTLS."""
    tls_key_file: str | None = None
    tls_client_ca_file: str | None = None
    client_names: tuple[str, ...] = ()
    """Callers that are let in, of those that the client CA knows: a caller's certificate must have one of these names (its
    subject alternative names, as they stand there). Empty: all of them."""
    has_reflection: bool = False
    """Show the methods to any caller, for ``grpcurl`` during development."""


class GrpcClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where another service answers gRPC."""

    address: str
    """``host:port``."""
    timeout_s: float = 10.0
    """How long one call may take, in seconds, before ServiceUnavailable."""
    tls_ca_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None


class WatchedService(msgspec.Struct, frozen=True, kw_only=True):
    """A service of the mesh that is asked for its faults."""

    name: str
    """Its name for a person: ``reader-shop``."""
    source: str = ""
    """Of a reader: which source it reads."""
    has_several: bool = False
    """The address's name stands for several processes, each of which is asked: a headless Service."""
    grpc: GrpcClientSettings

    def __post_init__(self) -> None:
        """Raises InvalidSettings: the address has no port."""
        if not self.grpc.address.rpartition(":")[2].isdigit():
            raise InvalidSettings(self.name, [f"grpc.address: {self.grpc.address!r} is no host:port"])


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Logs, metrics and health."""

    http_host: str = "127.0.0.1"
    http_port: int = 0
    """``/metrics`` (Prometheus), ``/healthz`` (alive: progress is made) and ``/readyz``; 0: any free port."""
    halted_s: float = 60.0
    """A halted reader stays so long, in seconds, with its reason in status and metrics, before it ends and is started again.

    Above a scrape interval (15 to 30 s), or the alert on ``headwater_halted`` never sees it.
    """
    log_level: str = "INFO"
    log_format: str = "json"
    """json, or ``console`` for a person at a terminal."""
    tags: dict[str, str] = {}
    """Labels on every metric of the process, by name: ``{team: shop, region: eu}``. The environment's names are lower case."""

    def __post_init__(self) -> None:
        """Refuse labels that Prometheus would not take. Raises InvalidSettings with every mistake."""
        mistakes = [mistake for name, value in self.tags.items() for mistake in _tag_mistakes(name, value)]
        if mistakes:
            raise InvalidSettings("telemetry", mistakes)


_LABEL_NAME: Final = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
METRIC_LABELS: Final = frozenset(
    {
        *(
            "source",
            "source_partition",
            "shard",
            "table",
            "kind",
            "tenant",
            "hop",
            "warehouse",
            "way",
            "method",
            "code",
        ),
        *("handling", "outcome", "reason", "server_uuid", "phase", "id", "severity"),
        # Of histograms, and of Prometheus' client's own metrics about Python.
        *("le", "implementation", "version", "major", "minor", "patchlevel", "generation"),
    }
)
"""Labels that metrics have already; a test holds them against ``libs.telemetry.metrics``, which is not imported here."""


def _tag_mistakes(name: str, value: str) -> Iterator[str]:
    """Prometheus, "Data model": the form of a label's name; an empty value is no label."""
    if not _LABEL_NAME.fullmatch(name):
        yield f"tags.{name}: is no label's name; take letters, digits and '_', no digit first"
    elif name.startswith("__"):
        yield f"tags.{name}: names that begin with '__' are Prometheus' own; take another"
    elif name in METRIC_LABELS:
        yield f"tags.{name}: metrics have a label of this name already; take another"
    if not value:
        yield f"tags.{name}: must not be empty: Prometheus takes an empty label for none"
