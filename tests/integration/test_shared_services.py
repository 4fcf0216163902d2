"""The services that all tests of a worker share."""

from collections.abc import Callable

from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.types.position import SourcePartition
from tests.integration.router_rig import orders_schema, record_schema
from tests.integration.service_process import Services


async def test_services_that_rested_answer_with_what_they_held(
    services: Services, unique_name: Callable[[str], str]
) -> None:
    """A test that asks for them after a rest finds tables and leases of before."""
    source, schema = unique_name("src"), orders_schema()
    partition = SourcePartition(source=source, name="0")
    await record_schema(services.schema_history.client_settings, source, schema)
    async with CheckpointCommitterClient(services.checkpoint_committer.client_settings) as client:
        token = await client.acquire(partition, "reader", 600.0)

    services.rest()
    assert services.schema_history.has_ended(within_s=0.0)
    assert services.checkpoint_committer.has_ended(within_s=0.0)
    services.supervise()

    async with SchemaHistoryClient(services.schema_history.client_settings) as history:
        assert [found.table_id for found in await history.list_tables(source)] == [schema.table_id]
    async with CheckpointCommitterClient(services.checkpoint_committer.client_settings) as client:
        assert await client.acquire(partition, "reader", 600.0) == token
