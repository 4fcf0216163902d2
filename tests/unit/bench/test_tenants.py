"""The settings that the bench of a thousand tenants gives to the operators that it starts."""

import msgspec

from bench.tenants import settings_of_operators
from services.tenant_operator.settings import TenantOperatorSettings


def test_a_successor_is_another_to_the_lease_and_has_to_wait_for_its_end() -> None:
    """One of the same identity renews the lease of the killed one at once, as no other pod could."""
    settings = settings_of_operators("any.kubeconfig", "kafka:9092")
    first, second = (msgspec.convert(next(settings), TenantOperatorSettings) for _ in range(2))

    assert first.lease.identity != second.lease.identity
    assert msgspec.structs.replace(second, lease=first.lease) == first
