"""How many topics a tenant's document needs, and whether the tenant may have so many."""

from collections.abc import Mapping
from typing import Final

from libs.events.names import tenant_row_topic
from libs.tenants.known_tables import KnownTables
from libs.types.tenant import TenantSpec

_OF_EACH_TENANT: Final = 2
"""Topics, of dead letters and of table schemas."""


def topics_needed(spec: TenantSpec, tables: Mapping[str, KnownTables]) -> tuple[int, int]:
    """How many topics of rows, and of other kinds. ``tables``: by source, those that its reader reads now; of one that is not
    there, nothing is known."""
    rows = {
        tenant_row_topic(spec, selection.name, table.table_id)
        for selection in spec.sources
        if selection.name in tables
        for table in tables[selection.name].selected(selection)
    }
    of_each_source = spec.topics.schema_changes + spec.topics.transactions
    return len(rows), _OF_EACH_TENANT + of_each_source * len(spec.sources)


def quota_mistakes(
    spec: TenantSpec,
    tables: Mapping[str, KnownTables],
    most: int | None,
    most_partitions: int | None,
    *,
    granted_in: str,
) -> list[str]:
    """Why the document needs more than ``most`` topics, or more Kafka partitions, than the tenant may have; place first. None:
    there is no limit. ``granted_in``: where a person raises it."""
    if most is None and most_partitions is None:
        return []
    rows, others = topics_needed(spec, tables)
    found = []
    partitions = rows * spec.topics.kafka_partitions + others
    if most_partitions is not None and partitions > most_partitions:
        found.append(
            f"topics.kafka_partitions: needs {partitions} Kafka partitions by the tables that there are now, "
            f"{spec.topics.kafka_partitions} for each of {rows} topics of rows and {others} others, and tenant "
            f"{spec.tenant} may have {most_partitions}: take fewer, select fewer tables, or have {granted_in} raised"
        )
    if most is None or rows + others <= most:
        return found
    return [
        *found,
        f"sources: needs {rows + others} topics by the tables that there are now, {rows} of rows and {others} others, and "
        f"tenant {spec.tenant} may have {most}: select fewer tables (include_tables, exclude_tables), take topics.layout: "
        f"per_tenant, or have {granted_in} raised",
    ]


def topic_count(spec: TenantSpec, tables: Mapping[str, KnownTables], most: int) -> str:
    """The plan's text for it."""
    rows, others = topics_needed(spec, tables)
    return f"{rows + others} topics by the tables that there are now, {rows} of rows and {others} others; it may have {most}"
