"""Settings of ClickHouse as a warehouse: ``warehouses.clickhouse`` of the sink job, ``warehouses.yaml`` of a home."""

import msgspec

from libs.clickhouse.names import DATABASE_TEMPLATE, template_mistake
from libs.config.load import Secret
from libs.errors import InvalidSettings


class ClickhouseWarehouse(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server answers, and how tables are written and kept."""

    host: str = "127.0.0.1"
    port: int = 8123
    """Of HTTP; servers usually have 8443 for HTTPS."""
    user: str = "default"
    password: Secret = Secret("")
    is_secure: bool = False
    """HTTPS, with a certificate that is trusted and names the host."""
    tls_ca_file: str | None = None
    """Certificate authority of the server (PEM); without it those that Python trusts. Goes with ``is_secure``."""
    connect_timeout_s: int = 10
    """How long to wait for the server to take a connection, in seconds."""
    statement_timeout_s: int = 3_600
    """How long one statement may take, in seconds, before the batch fails and is tried again."""
    database: str = DATABASE_TEMPLATE
    """Name of the database in which a table lies. It should keep tenants, sources and databases apart: two tables that would
    share a place are refused, not mixed."""
    stage_connections: int = 4
    """How many connections one table's batch is staged by at once; more only where Spark and the server have the cores."""
    is_maintaining: bool = True
    """Remove the marks of deleted rows. False where another job does."""
    cleanup_every_commits: int = 500
    """How often the marks of deleted rows are counted in a mirror."""
    cleanup_at_share: float = 0.2
    """From which share of a table's rows on the marks are removed, 0 to 1; the whole table is rewritten for it."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work. Raises InvalidSettings with every mistake."""
        mistakes = []
        if (mistake := template_mistake(self.database)) is not None:
            mistakes.append(f"database: {mistake}")
        if self.tls_ca_file is not None and not self.is_secure:
            mistakes.append("tls_ca_file: is given, and is_secure is false: set is_secure, or leave it out")
        for name in ("connect_timeout_s", "statement_timeout_s", "stage_connections", "cleanup_every_commits"):
            if getattr(self, name) <= 0:
                mistakes.append(f"{name}: must be above 0, is {getattr(self, name)}")
        if not 0 < self.cleanup_at_share <= 1:
            mistakes.append(f"cleanup_at_share: must be above 0 and at most 1, is {self.cleanup_at_share}")
        if mistakes:
            raise InvalidSettings("clickhouse", mistakes)
