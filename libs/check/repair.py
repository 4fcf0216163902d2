"""Rows that differ are read again at the source: an incremental snapshot of just those keys.

The re-read rows reach every tenant that has the table, as snapshot rows (``op`` r) whose order is the moment of their
reading: they replace any older form that a warehouse holds, and change nothing where it was right. So rows beside them may
be read too: of a keyspace they are, because vtgate cannot be asked for single keys.
"""

import json
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from libs.check.canonical_text import WHOLE_NUMBERS
from libs.check.compare import MISSING, Row
from libs.check.compared import ComparedMesh
from libs.check.projection import ExpectedTable
from libs.check.run import CheckReport, TableCheck
from libs.mesh.catch_up import Hops, SentSignals, wait_for_copies
from libs.mesh.documents import DtsDocument, SourceDocument, VitessDocument
from libs.mysql.identifiers import quote_identifier
from libs.source.signal_topic import send_signal
from libs.source.signals import EXECUTE
from libs.types.tenant import SinkMode

_ID_PREFIX: Final = "check-"


@dataclass(frozen=True, slots=True)
class Repair:
    """The requested rows, and those that cannot be requested."""

    rows: int
    """Asked for again, a row of several tenants once for each."""
    left: tuple[str, ...]
    """Differences that no re-read mends, each with the remedy."""


def repair(
    mesh: ComparedMesh,
    hops: Hops,
    report: CheckReport,
    *,
    timeout_s: float,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Repair:
    """Have the rows that differ for certain read again; returns when their readers have published them, by ``hops``.

    Raises:
        BrokerUnavailable: Kafka did not take a signal; try again.
        NotCaughtUp: a reader has not read them within ``timeout_s``; it goes on, look with ``headwater status``.
    """
    sent: dict[str, SentSignals] = {}
    left = [line for table in report.tables if (line := not_mended(table, mesh)) is not None]
    mended = [table for table in report.tables if table.conditions and _can_signal(table, mesh)]
    by_table: dict[tuple[str, str], list[TableCheck]] = {}
    for check in mended:
        by_table.setdefault((check.source, str(check.table.table_id)), []).append(check)
    for (source, table), checks in by_table.items():
        signal_id = f"{_ID_PREFIX}{uuid.uuid4()}"
        condition = _condition(mesh.sources[source], checks)
        data = {
            "type": "INCREMENTAL",
            "data-collections": [re.escape(table)],
            "additional-conditions": [{"data-collection": re.escape(table), "filter": condition}],
        }
        offset = send_signal(hops.kafka, source, json.dumps({"id": signal_id, "type": EXECUTE, "data": data}))
        before = sent.get(source, SentSignals((), 0))
        sent[source] = SentSignals((*before.ids, signal_id), offset)
    if sent:
        wait_for_copies(hops, sent, timeout_s=timeout_s, on_progress=on_progress)
    return Repair(sum(table.comparison.rows_different for table in mended), tuple(left))


def _condition(document: SourceDocument, checks: Sequence[TableCheck]) -> str:
    """SQL that is true of the rows of one table that differ, for the reader of ``document``; empty: all of them."""
    if isinstance(document, VitessDocument):
        return enclosing_condition(checks[0].table, [key for check in checks for key in check.comparison.suspects])
    return " OR ".join(dict.fromkeys(condition for check in checks for condition in check.conditions))


def enclosing_condition(table: ExpectedTable, keys: Iterable[Row]) -> str:
    """A filter of vtgate, comparisons with constants joined by AND: true of the rows of ``keys``, and of those between
    them. Empty, which means all rows, where no column of the key is a whole number."""
    types = {column.name: column.data_type for column in table.columns}
    bounds = []
    for name, values in zip(table.key, zip(*keys, strict=True), strict=True):
        if types[name] in WHOLE_NUMBERS:
            quoted = quote_identifier(name)
            bounds.append(f"{quoted} >= {min(values)} AND {quoted} <= {max(values)}")
    return " AND ".join(bounds)


def _can_signal(table: TableCheck, mesh: ComparedMesh) -> bool:
    return not isinstance(mesh.sources[table.source], DtsDocument)


def not_mended(table: TableCheck, mesh: ComparedMesh) -> str | None:
    """Why reading rows again does not mend the table, and the remedy; None: it does, or nothing is wrong."""
    name = f"{table.tenant}: {table.table.table_id}"
    if table.faults:
        return f"{name}: {table.faults[0]}"
    if not table.comparison.rows_different:
        return None
    if not _can_signal(table, mesh):
        return f"{name}: the reader of a DTS subscription takes no signals; copy the source again"
    if not table.is_sure:
        return f"{name}: not by their keys; `headwater signal {table.source} execute-snapshot` copies all of it again"
    gone = sum(1 for difference in table.comparison.first if difference.source is MISSING)
    if gone:
        sink = mesh.tenants[table.tenant].sink
        is_mirror = sink is not None and sink.mode is SinkMode.MIRROR
        mend = (
            f"`headwater resync {table.tenant} {table.table.table_id}` does"
            if is_mirror
            else "delete them in the warehouse"
        )
        found = f"{gone:,} row(s) or more are in the warehouse and not at the source"
        return f"{name}: {found}: reading again takes none away; {mend}"
    return None
