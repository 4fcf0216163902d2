"""A tenant in Kubernetes: its document, the document's state, and its refused tables.

A tenant is a ConfigMap of its team's; the document in force stands in another, its *record*, which tenant_operator alone
writes in its namespace. Names that both are read by stand here and nowhere else.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from libs.types.fault import Fault
from libs.types.refusal import Refusal, RefusedKind
from libs.types.table import TableId

Json = Mapping[str, Any]

TENANT_LABEL: Final = "headwater.dev/tenant"
"""``true`` on a tenant's ConfigMap and on its Secret."""
RECORD_LABEL: Final = "headwater.dev/record"
"""On a record: the tenant."""
DOCUMENT_KEY: Final = "tenant.yaml"
REFUSALS_KEY: Final = "refusals.json"
"""Of a record."""
ON_DELETE_ANNOTATION: Final = "headwater.dev/on-delete"
"""Whether a tenant's topics and tables go with its ConfigMap: one of the three below."""
KEEP: Final = "keep"
DELETE: Final = "delete"
DELETE_TOPICS: Final = "delete-topics"
STATE_ANNOTATION: Final = "headwater.dev/state"
MESSAGE_ANNOTATION: Final = "headwater.dev/message"
REFUSED_TABLES_ANNOTATION: Final = "headwater.dev/refused-tables"
"""On a tenant's ConfigMap: the tables that routers refuse it, by the last report to the team."""
REFUSED_TOPICS_ANNOTATION: Final = "headwater.dev/refused-topics"
"""The same of its topics of statements and of transactions."""
REFUSED_RECORDS_ANNOTATION: Final = "headwater.dev/refused-records"
"""The same of its sources, of which all waits because records of a topic cannot be written."""
REFUSED_DOCUMENT_ANNOTATION: Final = "headwater.dev/refused-document"
"""On a tenant's ConfigMap: why routers do not take its document, by the last report to the team."""
SINK_WAIT_ANNOTATION: Final = "headwater.dev/sink-wait"
"""On a tenant's ConfigMap: why its tables stand still in its Spark job, by the last report to the team."""
FAULTS_ANNOTATION: Final = "headwater.dev/faults"
"""On a tenant's ConfigMap: the faults of the mesh that concern it, the worst first, by the last report to the team; JSON."""

_TOPICS: Final = {RefusedKind.SCHEMA_CHANGES: "schema changes", RefusedKind.TRANSACTIONS: "transactions"}

READY: Final = "ready"
DEGRADED: Final = "degraded"
"""In force as far as the operator sees to it, and routers refuse some of its tables, a router its document, or Kafka its
records; or its tables stand still in its Spark job; or a fault of the mesh keeps rows from it, or makes them differ."""
REFUSED: Final = "refused"
WAITING: Final = "waiting"
LEAVING: Final = "leaving"
PLANNED: Final = "planned"


@dataclass(frozen=True, slots=True)
class TenantObject:
    """A tenant's ConfigMap, its record, or a document alone."""

    place: str
    """``namespace/name``; of a document alone a person's name for it."""
    text: str | None
    """The document; None: it has none."""
    is_config_map: bool = True
    """Else nothing but the document is known."""
    is_record: bool = False
    """It is in force, also if the team's ConfigMap differs."""
    state: str | None = None
    """By the operator's last report; None: there is none, as for a record."""
    message: str = ""
    refused_tables: Mapping[str, str] = field(default_factory=dict)
    """Why routers set a table's rows aside, by ``refused_table_name``."""
    refused_topics: Mapping[str, str] = field(default_factory=dict)
    """Why routers write nothing to a topic without rows, by its content."""
    refused_records: Mapping[str, str] = field(default_factory=dict)
    """Why all of a source waits at routers, by source."""
    refused_document: str = ""
    """Why routers do not take the document; empty: all of them do."""
    sink_wait: str = ""
    """Why its tables stand still in its Spark job; empty, also of a record: nothing is known of that."""
    faults: tuple[Fault, ...] = ()
    """Of the mesh, as far as they concern it, the worst first; none of a record."""


def tenant_object(found: Json) -> TenantObject:
    """A ConfigMap's content, in the API's JSON or as kubectl prints it."""
    metadata = found.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    place = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    text = (found.get("data") or {}).get(DOCUMENT_KEY)
    if RECORD_LABEL in (metadata.get("labels") or {}):
        refusals = record_refusals(found)
        return TenantObject(
            place,
            text,
            is_record=True,
            refused_tables=reasons_by_table(refusals),
            refused_topics=reasons_by_topic(refusals),
            refused_records=reasons_by_waiting_source(refusals),
            refused_document=document_reason(refusals),
        )
    return TenantObject(
        place,
        text,
        state=annotations.get(STATE_ANNOTATION),
        message=annotations.get(MESSAGE_ANNOTATION, ""),
        refused_tables=reported_reasons(annotations.get(REFUSED_TABLES_ANNOTATION)),
        refused_topics=reported_reasons(annotations.get(REFUSED_TOPICS_ANNOTATION)),
        refused_records=reported_reasons(annotations.get(REFUSED_RECORDS_ANNOTATION)),
        refused_document=annotations.get(REFUSED_DOCUMENT_ANNOTATION, ""),
        sink_wait=annotations.get(SINK_WAIT_ANNOTATION, ""),
        faults=reported_faults(annotations.get(FAULTS_ANNOTATION)),
    )


def record_name(tenant: str) -> str:
    """Of a tenant's record."""
    return f"headwater-tenant-{tenant}"


def record_refusals(found: Json) -> tuple[Refusal, ...]:
    """Those in a record. Where somebody made them unreadable there are none: routers report again when they meet the tables."""
    text = (found.get("data") or {}).get(REFUSALS_KEY)
    try:
        return () if text is None else msgspec.json.decode(text, type=tuple[Refusal, ...])
    except msgspec.DecodeError:
        return ()


def reported_reasons(text: str | None) -> dict[str, str]:
    """``REFUSED_TABLES_ANNOTATION``, or that of topics or of records: each with its reason. An unreadable one is empty."""
    try:
        return {} if text is None else msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return {}


def reported_faults(text: str | None) -> tuple[Fault, ...]:
    """``FAULTS_ANNOTATION``. Where somebody made it unreadable, there are none."""
    try:
        return () if text is None else msgspec.json.decode(text, type=tuple[Fault, ...])
    except msgspec.DecodeError:
        return ()


def reasons_by_table(refusals: tuple[Refusal, ...]) -> dict[str, str]:
    """Of each table why; by a name for a person."""
    return {
        refused_table_name(each.source, each.table_id): each.reason
        for each in refusals
        if each.what is RefusedKind.TABLE
    }


def reasons_by_topic(refusals: tuple[Refusal, ...]) -> dict[str, str]:
    """For each topic without rows the reason; by its content, for a person."""
    return {f"{_TOPICS[each.what]} of {each.source}": each.reason for each in refusals if each.what in _TOPICS}


def reasons_by_waiting_source(refusals: tuple[Refusal, ...]) -> dict[str, str]:
    """Of each source of which all waits why, each reason once."""
    reasons: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for each in refusals:
        if each.what is RefusedKind.RECORDS:
            reasons[each.source][each.reason] = None
    return {source: "; ".join(of_source) for source, of_source in reasons.items()}


def document_reason(refusals: tuple[Refusal, ...]) -> str:
    """Why routers do not take the document, each reason once; empty: all of them do."""
    return "; ".join(dict.fromkeys(each.reason for each in refusals if each.what is RefusedKind.DOCUMENT))


def refused_table_name(source: str, table: TableId | str) -> str:
    """A table, or its ``database.table``, for a person.

    >>> refused_table_name("shop", TableId(database="sales", table="orders"))
    'sales.orders of shop'
    """
    return f"{table} of {source}"
