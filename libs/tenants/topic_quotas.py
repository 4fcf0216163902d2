"""How many topics, of how many Kafka partitions, a tenant may have, above its document's selection.

Routers and tenant_operator have the same setting.
"""

from typing import Final

import msgspec

from libs.errors import InvalidSettings


class TopicQuotaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Of all topics that begin with a tenant's name. Not in its document: nobody grants himself more."""

    per_tenant: int | None = None
    """Of each tenant that ``tenants`` does not name; None: no limit."""
    tenants: dict[str, int] = {}
    """By tenant, instead of ``per_tenant``."""

    partitions_per_tenant: int | None = None
    """Kafka partitions of all those topics together, of each tenant that ``partitions`` does not name; None: no limit."""
    partitions: dict[str, int] = {}
    """By tenant, instead of ``partitions_per_tenant``."""

    def of(self, tenant: str) -> int | None:
        """How many ``tenant`` may have; None: no limit."""
        return self.tenants.get(tenant, self.per_tenant)

    def partitions_of(self, tenant: str) -> int | None:
        """How many Kafka partitions its topics may have together; None: no limit."""
        return self.partitions.get(tenant, self.partitions_per_tenant)

    def __post_init__(self) -> None:
        """Raises InvalidSettings with every value that makes no sense."""
        limits = {
            "per_tenant": self.per_tenant,
            **{f"tenants.{name}": most for name, most in self.tenants.items()},
            "partitions_per_tenant": self.partitions_per_tenant,
            **{f"partitions.{name}": most for name, most in self.partitions.items()},
        }
        mistakes = [
            f"{name}: must be at least 1; leave it out for no limit"
            for name, most in limits.items()
            if most is not None and most < 1
        ]
        if mistakes:
            raise InvalidSettings("topic_quotas", mistakes)


NO_TOPIC_QUOTAS: Final = TopicQuotaSettings()
