"""One table of every type on its way: MySQL, a reader, the router, and the topics of tenants in several formats."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Message

from tests.conftest import KafkaBroker, MysqlServer
from tests.consumers import every_type
from tests.integration.reader_pipeline import pipeline_of
from tests.integration.router_rig import RouterProcess, read_until
from tests.integration.service_process import Services


@dataclass(frozen=True, slots=True)
class Published:
    """All that the changes of ``every_type`` became; nothing more is written."""

    mysql: MysqlServer
    kafka: KafkaBroker
    database: str
    source: str
    tenants: Mapping[str, str]
    """By format: the tenant's name."""

    def topic(self, form: str) -> str:
        """Of the table, in that format."""
        return f"{self.tenants[form]}.{self.source}.{self.database}.{every_type.TABLE}"

    def records(self, form: str) -> list[Message]:
        """Of that topic, all of them."""
        return read_until(
            self.kafka.bootstrap_servers, self.topic(form), lambda found: len(found) >= every_type.RECORDS
        )

    def stored(self) -> dict[int, every_type.Row]:
        """The source's rows."""
        return every_type.stored(self.mysql, self.database)


@contextlib.contextmanager
def published(
    folder: Path,
    kafka: KafkaBroker,
    services: Services,
    mysql: MysqlServer,
    database: str,
    *,
    values: Mapping[str, str],
    formats: Mapping[str, Mapping[str, Any]],
    schema_registry: str | None = None,
) -> Iterator[Published]:
    """The source's document has the value modes ``values``; ``formats``: of one tenant each."""
    source = database.replace("_", "-")
    every_type.create(mysql, database)
    tenants = {form: f"{form}-{source}" for form in formats}
    documents = folder / "tenants"
    documents.mkdir(parents=True)
    for form, tenant in tenants.items():
        document = {"tenant": tenant, "sources": [{"name": source}], **formats[form]}
        (documents / f"{tenant}.yaml").write_text(yaml.safe_dump(document))
    captured = {"include_tables": [rf"{database}\..*"], "values": dict(values)}
    reader = pipeline_of(folder / "reader", source, kafka, services, mysql, **captured)
    router = RouterProcess(
        folder / "router",
        {
            "sources": [source],
            "group": f"router-{source}",
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
            **services.addresses,
            "tenants_folder": str(documents),
            "progress_interval_s": 0.5,
            **({"schema_registry": {"url": schema_registry}} if schema_registry else {}),
        },
    )
    try:
        reader.reader.start()
        reader.wait_for_log()
        every_type.change(mysql, database)
        router.start()
        whole = Published(mysql, kafka, database, source, tenants)
        for form in formats:
            whole.records(form)
        yield whole
    finally:
        router.stop()
        reader.stop()


def payload_of(record: Message) -> dict[str, Any] | None:
    """The event of a JSON record; None: a tombstone."""
    value = record.value()
    if value is None:
        return None
    event = json.loads(value)
    payload: dict[str, Any] = event.get("payload", event)
    return payload
