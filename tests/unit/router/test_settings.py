"""The router's settings refuse combinations that cannot work."""

from typing import Any

import pytest

from libs.config.connections import GrpcClientSettings
from libs.errors import InvalidSettings
from services.router.settings import LaneSettings, RouterSettings, TenantLimitSettings

SERVICE = GrpcClientSettings(address="127.0.0.1:1")


def settings(**parts: Any) -> RouterSettings:
    """Settings with one source."""
    return RouterSettings(**{"sources": ("s",), "schema_history": SERVICE, "checkpoint_committer": SERVICE, **parts})


def test_defaults_work() -> None:
    """Only the source and the services' addresses must be said."""
    assert settings().group == "headwater-router"


@pytest.mark.parametrize(
    ("parts", "place"),
    [
        ({"sources": ()}, "sources"),
        ({"sources": ("a", "a")}, "sources"),
        ({"heartbeat_interval_s": 5.0}, "heartbeat_interval_s"),
        ({"lane": LaneSettings(stuck_transaction_s=300.0)}, "lane.stuck_transaction_s"),
        ({"lane": LaneSettings(compression="brotli")}, "lane.compression"),
        ({"tenant_limits": TenantLimitSettings(max_weight=0)}, "tenant_limits.max_weight"),
        (
            {"tenant_limits": TenantLimitSettings(default_bytes_per_s=2, max_bytes_per_s=1)},
            "tenant_limits.default_bytes_per_s",
        ),
    ],
)
def test_contradictions_are_refused_by_name(parts: dict[str, Any], place: str) -> None:
    """A watchdog above the transaction's own timeout, or a heartbeat too rare, would break the promises."""
    with pytest.raises(InvalidSettings) as caught:
        settings(**parts)

    assert [mistake.split(":")[0] for mistake in caught.value.mistakes] == [place]


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd", "snappy", "gzip"])
def test_known_compressions_are_taken(compression: str) -> None:
    """Those that Kafka knows."""
    assert settings(lane=LaneSettings(compression=compression)).lane.compression == compression
