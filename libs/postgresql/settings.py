"""Settings of PostgreSQL as a warehouse: ``warehouses.postgresql`` of the sink job, ``warehouses.yaml`` of a home."""

from libs.config.connections import PostgresqlSettings
from libs.errors import InvalidSettings
from libs.postgresql.names import SCHEMA_TEMPLATE, template_mistake


class PostgresqlWarehouse(PostgresqlSettings, frozen=True, kw_only=True):
    """Where the tables lie, and how they are written."""

    schema: str = SCHEMA_TEMPLATE
    """Name of the schema in which a table lies. It should keep tenants, sources and databases apart: two tables that would
    share a place are refused, not mixed."""
    copy_connections: int = 4
    """How many connections one table's batch is staged by at once; more only where Spark and the server have the cores."""
    idle_connections: int = 4
    """How many connections are kept between batches: as many as tables are written at once."""
    lock_timeout_s: float = 30.0
    """How long a commit or a change of columns waits for locks that others hold on a table, in seconds, before the batch
    fails and is tried again."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work. Raises InvalidSettings with every mistake."""
        super().__post_init__()
        mistakes = []
        if (mistake := template_mistake(self.schema)) is not None:
            mistakes.append(f"schema: {mistake}")
        for name in ("copy_connections", "idle_connections", "lock_timeout_s"):
            if getattr(self, name) <= 0:
                mistakes.append(f"{name}: must be above 0, is {getattr(self, name)}")
        if mistakes:
            raise InvalidSettings("postgresql", mistakes)
