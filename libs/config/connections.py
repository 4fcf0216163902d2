"""Settings that several services share: how to reach Kafka, Redis and one another."""

import msgspec

from libs.config.load import Secret


class KafkaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Headwater's own Kafka."""

    bootstrap_servers: str = "127.0.0.1:9092"
    """``host:port``, several separated by commas."""
    security_protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    sasl_mechanism: str | None = None
    """SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN."""
    sasl_username: str | None = None
    sasl_password: Secret | None = None
    ssl_ca_file: str | None = None
    replication_factor: int = 1
    """Copies of each of Headwater's own topics; 3 in production."""


class RedisSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The Redis-protocol server that holds the fast views; everything in it can be rebuilt from Kafka."""

    url: str = "redis://127.0.0.1:6379/0"


class GrpcServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a service answers gRPC."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any free port."""
    tls_certificate_file: str | None = None
    """With the key: TLS. With the client CA too: mTLS."""
    tls_key_file: str | None = None
    tls_client_ca_file: str | None = None


class GrpcClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where another service answers gRPC."""

    address: str
    """``host:port``."""
    timeout_s: float = 10.0
    """How long one call may take, in seconds, before ServiceUnavailable."""
    tls_ca_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Logs, metrics and health."""

    http_host: str = "127.0.0.1"
    http_port: int = 0
    """``/metrics`` (Prometheus), ``/healthz`` (alive: progress is made) and ``/readyz``; 0: any free port."""
    log_level: str = "INFO"
    log_format: str = "json"
    """json, or ``console`` for a person at a terminal."""
