"""Signals: a person's requests to a running reader, in Debezium's JSON.

They come by the topic ``headwater.signals`` (key: the source's name; also those of gRPC and ``headwater signal``)
and as rows of a signal table at the source. Form: debezium.io, "Sending signals to a Debezium connector"; seeds/001.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from libs.errors import InvalidEvent
from libs.source.filter_text import no_condition

EXECUTE, STOP, PAUSE, RESUME, LOG = "execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot", "log"
TYPES: Final = (EXECUTE, STOP, PAUSE, RESUME, LOG)
"""Of every reader."""
DROP: Final = "drop-transaction"
ORACLE_TYPES: Final = (*TYPES, DROP)
_TRANSACTION_ID: Final = re.compile(r"[0-9A-Fa-f]{16}")


class InvalidSignal(InvalidEvent):
    """A signal cannot be acted upon: it is logged and passed over. The message lists each of its mistakes."""


@dataclass(frozen=True, slots=True)
class ExecuteSnapshot:
    """Read tables again, chunk by chunk, while the log is followed."""

    kind: ClassVar = EXECUTE
    signal_id: str
    tables: tuple[str, ...]
    """Names ``database.table`` or regular expressions that match whole names."""
    conditions: tuple[tuple[str, str], ...] = ()
    """Pairs of such a name and an SQL condition: only rows that meet it."""
    surrogate_key: str = ""
    """The column along which the tables are read instead of their keys."""
    for_tenants: tuple[str, ...] = ()
    """Only these tenants get the rows; empty: all that see the tables. Headwater's own, as ``tenants`` in ``data``."""


@dataclass(frozen=True, slots=True)
class StopSnapshot:
    """Drop tables from the running snapshot; none named: end it."""

    kind: ClassVar = STOP
    signal_id: str
    tables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PauseSnapshot:
    """Read no further chunk until ``ResumeSnapshot``."""

    kind: ClassVar = PAUSE
    signal_id: str


@dataclass(frozen=True, slots=True)
class ResumeSnapshot:
    """Go on after ``PauseSnapshot``."""

    kind: ClassVar = RESUME
    signal_id: str


@dataclass(frozen=True, slots=True)
class LogMessage:
    """Write a line to the reader's log: it shows that signals arrive."""

    kind: ClassVar = LOG
    signal_id: str
    message: str


@dataclass(frozen=True, slots=True)
class DropTransaction:
    """Pass over a transaction of an Oracle database that is open: none of its changes is delivered."""

    kind: ClassVar = DROP
    signal_id: str
    transaction_id: str
    """XID: 16 hexadecimal digits, in lower case."""


Signal = ExecuteSnapshot | StopSnapshot | PauseSnapshot | ResumeSnapshot | LogMessage | DropTransaction


def parse_signal(text: str | bytes, *, types: Sequence[str] = TYPES) -> Signal:
    """The signal in a record of the signals topic: ``{"id": …, "type": …, "data": {…}}``, the id optional.

    ``types``: those that the reader acts on.

    Raises:
        InvalidSignal: with every mistake.
    """
    document = _json_object(text, "the signal")
    unknown = sorted(set(document) - {"id", "type", "data"})
    if unknown:
        raise InvalidSignal(f"signal: unknown member(s) {', '.join(unknown)}; known: id, type, data")
    return signal_of(str(document.get("id") or ""), document.get("type"), document.get("data"), types=types)


def id_of(text: str | bytes) -> str:
    """The id in a signal that is refused; empty: it has none, or is not JSON."""
    try:
        document = json.loads(text)
    except ValueError:
        return ""
    return str(document.get("id") or "") if isinstance(document, dict) else ""


def signal_of(signal_id: str, kind: object, data: object, *, types: Sequence[str] = TYPES) -> Signal:
    """The signal with these parts: the columns of a signal table, ``data`` being JSON text or its value.

    Raises:
        InvalidSignal: with every mistake.
    """
    if kind not in types:
        raise InvalidSignal(f"signal {signal_id!r}: type {kind!r} is unknown to this reader; known: {', '.join(types)}")
    members = (
        _json_object(data, f"signal {signal_id!r}: data") if isinstance(data, str | bytes) and data else data or {}
    )
    if not isinstance(members, Mapping):
        raise InvalidSignal(f"signal {signal_id!r}: data must be a JSON object")
    mistakes: list[str] = []
    snapshot_type = str(members.get("type", "INCREMENTAL"))
    if kind != LOG and snapshot_type.upper() != "INCREMENTAL":
        mistakes.append(f"type: {snapshot_type!r} is not done by a signal; INCREMENTAL is")
    signal: Signal
    match kind:
        case "execute-snapshot":
            signal = ExecuteSnapshot(
                signal_id=signal_id,
                tables=_names(members, mistakes, is_required=True),
                conditions=_conditions(members, mistakes),
                surrogate_key=_text(members, "surrogate-key", mistakes),
                for_tenants=_tenants(members, mistakes),
            )
        case "stop-snapshot":
            signal = StopSnapshot(signal_id, _names(members, mistakes, is_required=False))
        case "pause-snapshot":
            signal = PauseSnapshot(signal_id)
        case "resume-snapshot":
            signal = ResumeSnapshot(signal_id)
        case "drop-transaction":
            signal = DropTransaction(signal_id, _transaction_id(members, mistakes))
        case _:
            signal = LogMessage(signal_id, _text(members, "message", mistakes))
    if mistakes:
        raise InvalidSignal(f"{kind} {signal_id!r}: " + "; ".join(mistakes))
    return signal


def snapshot_for_tenant(signal_id: str, tenant: str, tables: Sequence[str]) -> str:
    """The signal that has whole tables, by their names ``database.table``, read again for one tenant alone."""
    data = {"type": "INCREMENTAL", "data-collections": [re.escape(name) for name in tables], "tenants": [tenant]}
    return json.dumps({"id": signal_id, "type": EXECUTE, "data": data})


def matches(pattern: str, table: str) -> bool:
    """Whether an entry of ``data-collections`` means ``table``: its name, or a regular expression that matches it whole."""
    return pattern == table or re.fullmatch(pattern, table) is not None


def _json_object(text: object, what: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text)  # type: ignore[arg-type]  # a TypeError is caught as well
    except (ValueError, TypeError) as error:
        raise InvalidSignal(f"{what} is not JSON ({error})") from error
    if not isinstance(document, Mapping):
        raise InvalidSignal(f"{what} must be a JSON object")
    return document


def _transaction_id(members: Mapping[str, Any], mistakes: list[str]) -> str:
    found = _text(members, "transaction-id", mistakes)
    if not _TRANSACTION_ID.fullmatch(found):
        mistakes.append("transaction-id: must be the 16 hexadecimal digits of an XID")
    return found.lower()


def _names(members: Mapping[str, Any], mistakes: list[str], *, is_required: bool) -> tuple[str, ...]:
    names = members.get("data-collections")
    if names is None and not is_required:
        return ()
    if not isinstance(names, Sequence) or isinstance(names, str) or not all(isinstance(n, str) and n for n in names):
        mistakes.append("data-collections: must be a list of names like 'database.table'")
        return ()
    if not names and is_required:
        mistakes.append("data-collections: names no table")
    for name in names:
        _check_pattern(name, "data-collections", mistakes)
    return tuple(names)


def _tenants(members: Mapping[str, Any], mistakes: list[str]) -> tuple[str, ...]:
    """An empty list is a mistake: taken for none it would deliver the rows of a few to everybody."""
    if "tenants" not in members:
        return ()
    names = members["tenants"]
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and n for n in names):
        mistakes.append("tenants: must be a list of tenants' names; leave it out for all")
        return ()
    return tuple(sorted(set(names)))


def _conditions(members: Mapping[str, Any], mistakes: list[str]) -> tuple[tuple[str, str], ...]:
    """``additional-conditions``, or the one ``additional-condition`` of older releases, which is for every table."""
    old = _text(members, "additional-condition", mistakes)
    listed = members.get("additional-conditions") or ()
    conditions = [(".*", old)] if old.strip() else []
    if old.strip():
        mistakes.extend(f"additional-condition: {why}" for why in no_condition(old))
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        mistakes.append("additional-conditions: must be a list of {'data-collection': …, 'filter': …}")
        return ()
    for entry in listed:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("data-collection"), str):
            mistakes.append("additional-conditions: each needs a 'data-collection' and a 'filter'")
            continue
        name, condition = entry["data-collection"], entry.get("filter") or ""
        _check_pattern(name, "additional-conditions", mistakes)
        if not isinstance(condition, str):
            mistakes.append(f"additional-conditions: the filter of {name!r} must be text")
        elif condition.strip():
            mistakes.extend(f"additional-conditions: the filter of {name!r} {why}" for why in no_condition(condition))
            conditions.append((name, condition))
    return tuple(conditions)


def _text(members: Mapping[str, Any], name: str, mistakes: list[str]) -> str:
    value = members.get(name)
    if value is not None and not isinstance(value, str):
        mistakes.append(f"{name}: must be text")
        return ""
    return value or ""


def _check_pattern(pattern: str, place: str, mistakes: list[str]) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        mistakes.append(f"{place}: {pattern!r} is neither a name nor a regular expression ({error})")
