"""Rows that differ are read again at the source: an incremental snapshot of just those keys.

The re-read rows reach every tenant that has the table, as snapshot rows (``op`` r) whose order is the moment of their
reading: they replace whatever older form a warehouse holds, and change nothing where it was right.
"""

import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from libs.config.connections import KafkaSettings
from libs.local.catch_up import SentSignals, wait_for_copies
from libs.local.check.compare import MISSING
from libs.local.check.run import CheckReport, TableCheck
from libs.local.documents import Documents, DtsDocument
from libs.local.home import Home
from libs.local.plan import kafka_address
from libs.local.state import read_ports
from libs.source.signal_topic import send_signal
from libs.source.signals import EXECUTE

_ID_PREFIX: Final = "check-"


@dataclass(frozen=True, slots=True)
class Repair:
    """What was asked for, and what cannot be."""

    rows: int
    """Asked for again, a row of several tenants once for each."""
    left: tuple[str, ...]
    """Differences that no re-read mends, each with what to do."""


def repair(
    home: Home,
    documents: Documents,
    report: CheckReport,
    *,
    timeout_s: float,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Repair:
    """Have the rows that differ for certain read again; returns when their readers have published them. The stack must be up.

    Raises:
        BrokerUnavailable: Kafka did not take a signal; try again.
        NotCaughtUp: a reader has not read them within ``timeout_s``; it goes on, look with ``headwater status``.
    """
    kafka = KafkaSettings(bootstrap_servers=kafka_address(read_ports(home)))
    sent: dict[str, SentSignals] = {}
    left = [line for table in report.tables if (line := _not_mended(table, documents)) is not None]
    mended = [table for table in report.tables if table.conditions and _can_signal(table, documents)]
    conditions: dict[tuple[str, str], dict[str, None]] = {}
    for check in mended:
        place = (check.source, str(check.table.table_id))
        conditions.setdefault(place, {}).update(dict.fromkeys(check.conditions))
    for (source, table), rows in conditions.items():
        signal_id = f"{_ID_PREFIX}{uuid.uuid4()}"
        data = {
            "type": "INCREMENTAL",
            "data-collections": [re.escape(table)],
            "additional-conditions": [{"data-collection": re.escape(table), "filter": " OR ".join(rows)}],
        }
        offset = send_signal(kafka, source, json.dumps({"id": signal_id, "type": EXECUTE, "data": data}))
        before = sent.get(source, SentSignals((), 0))
        sent[source] = SentSignals((*before.ids, signal_id), offset)
    if sent:
        wait_for_copies(home, sent, timeout_s=timeout_s, on_progress=on_progress)
    return Repair(sum(table.comparison.rows_different for table in mended), tuple(left))


def _can_signal(table: TableCheck, documents: Documents) -> bool:
    return not isinstance(documents.sources[table.source], DtsDocument)


def _not_mended(table: TableCheck, documents: Documents) -> str | None:
    name = f"{table.tenant}: {table.table.table_id}"
    if table.faults:
        return f"{name}: {table.faults[0]}"
    if not table.comparison.rows_different:
        return None
    if not _can_signal(table, documents):
        return f"{name}: the reader of a DTS subscription takes no signals; copy the source anew"
    if not table.is_sure:
        return f"{name}: not by their keys; `headwater signal {table.source} execute-snapshot` copies all of it again"
    gone = sum(1 for difference in table.comparison.first if difference.source is MISSING)
    if gone:
        return (
            f"{name}: {gone:,} row(s) or more are in the warehouse and not at the source: reading again takes none away; "
            "delete them in the warehouse"
        )
    return None
