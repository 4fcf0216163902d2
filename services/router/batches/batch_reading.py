"""A record of a changes topic as its batch: a reader's ChangeBatch, or bytes that are none."""

import functools
from collections.abc import Sequence
from typing import Final, NamedTuple

from libs.events.batch import (
    OP_CREATE,
    OP_DELETE,
    OP_KEY_CHANGE_CREATE,
    OP_KEY_CHANGE_DELETE,
    OP_READ,
    OP_TRUNCATE,
    OP_UPDATE,
)
from libs.formats.connect_schema import EnvelopeForm
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch, TableChange, TransactionBoundary
from services.router.batches.changes import Run, read_entries
from services.router.batches.survey import Survey, survey

_OPS: Final = frozenset(
    (OP_CREATE, OP_UPDATE, OP_DELETE, OP_READ, OP_TRUNCATE, OP_KEY_CHANGE_DELETE, OP_KEY_CHANGE_CREATE)
)


class Changes(NamedTuple):
    """A ChangeBatch, its runs as they lie in its bytes."""

    head: ChangeBatch
    """All but the entries."""
    entries: Sequence[Run | TableChange | TransactionBoundary]
    """In log order."""
    survey: Survey = Survey()
    """Of the entries."""
    unreadable: str | None = None
    """Why the record is no ChangeBatch; it has no entries then."""


def read_changes(payload: bytes) -> Changes:
    """Raises ValueError or protobuf's DecodeError where it is no ChangeBatch."""
    head, entries = read_entries(payload)
    return Changes(ChangeBatch.FromString(head), entries, survey(entries))


def read_record(payload: bytes | None, source: str) -> Changes:
    """A record of a source's changes topic, of any bytes: an unreadable one has no entries, and the reason."""
    try:
        changes = read_changes(payload or b"")
        if changes.head.source != source:
            raise ValueError("it is no batch of this source")
        for entry in changes.entries:
            _check_place(entry)
    except Exception as error:  # of bytes that anybody may have written
        reason = str(error) if type(error) is ValueError else type(error).__name__
        return Changes(ChangeBatch(source=source), (), unreadable=reason)
    return changes


def _check_place(entry: Run | TableChange | TransactionBoundary) -> None:
    """Raises ValueError where an entry cannot be put in order, or is of no table."""
    if isinstance(entry, TransactionBoundary):
        return
    if not (entry.rank.isascii() and entry.rank.isdigit()):
        raise ValueError("an entry has no rank")
    if isinstance(entry, Run) and not (entry.schema_version and entry.table and set(entry.ops) <= _OPS):
        raise ValueError("a run has no table, no schema version, or operations that there are not")


def form_of(batch: ChangeBatch) -> EnvelopeForm:
    """The common part of the batch's events."""
    removed = tuple(dict.fromkeys(batch.removed_fields))  # joined batches name them once each
    return _form(batch.connector, removed, batch.has_ordered_transactions)


@functools.lru_cache(maxsize=64)
def _form(connector: str, removed_fields: tuple[str, ...], has_ordered_transactions: bool, /) -> EnvelopeForm:
    """The same object for all batches of a reader: routes are found by it for each run, and one object is not compared."""
    return EnvelopeForm(
        connector=connector, removed_fields=removed_fields, has_ordered_transactions=has_ordered_transactions
    )
