"""The place of a Vitess connector, by its offsets in Kafka Connect, as the ``start_vgtid`` of a source.

Read are the answer of Connect's REST interface (``GET /connectors/<name>/offsets``) and the records of its offsets topic as
kafka-console-consumer prints them with their keys. A connector has one offset; with ``vitess.offset.storage.per.task`` one for
each task of each generation (``task_key``: ``task0_2_1``). Of every shard that of the newest generation counts which has it.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from libs.source.vitess.tasks import task_of
from libs.source.vitess.vgtid import CURRENT, EMPTY, ShardGtid, Vgtid, parse_vgtid

_PLACE: Final = "--offsets"
_WHOLE: Final = -1
"""In place of a generation: the offset of a connector without tasks, which is older than all of them."""


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """One source partition's."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any]


@dataclass(slots=True)
class Start:
    """Where the source begins."""

    vgtid: Vgtid
    notes: list[str] = field(default_factory=list)
    """Differences from the connector, one line each."""


Offsets = Sequence[StoredOffset]


def parse_offsets(text: str, mistakes: list[str]) -> Offsets | None:
    """The offsets of ``text``, in either form; None: it has neither, and ``mistakes`` say why.

    Of the topic's records the last of each key counts, and one without a value takes its offset away.
    """
    try:
        document = json.loads(text)
    except ValueError:
        return _of_records(text, mistakes)
    except RecursionError:
        mistakes.append(f"{_PLACE}: is nested without end")
        return None
    match document:
        case {"offsets": [*entries]}:
            return [
                StoredOffset(entry["partition"], entry["offset"])
                for entry in entries
                if isinstance(entry, dict)
                and isinstance(entry.get("partition"), dict)
                and isinstance(entry.get("offset"), dict)
            ]
    mistakes.append(
        f"{_PLACE}: has no offsets; give the answer of GET /connectors/<name>/offsets answers: "
        '{"offsets": [{"partition": …, "offset": …}]}'
    )
    return None


def _of_records(text: str, mistakes: list[str]) -> Offsets | None:
    found: dict[str, StoredOffset] = {}
    decoder = json.JSONDecoder()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            key, end = decoder.raw_decode(line.strip())
            value = line.strip()[end:].strip(" \t|,:")
            offset = json.loads(value) if value and value != "null" else None
            _, partition = key
        except (ValueError, TypeError, RecursionError):
            mistakes.append(
                f"{_PLACE}: line {number} is no record of Connect's offsets topic: "
                '["<connector>",{"server":…}], a tab, {"vgtid":…} (kafka-console-consumer with print.key=true)'
            )
            return None
        name = json.dumps(key, sort_keys=True)
        found.pop(name, None)
        if isinstance(partition, dict) and isinstance(offset, dict):
            found[name] = StoredOffset(partition, offset)
    return list(found.values())


def start_of(offsets: Offsets, config: Mapping[str, str], mistakes: list[str]) -> Start | None:
    """Where the connector of ``config`` stands; None: there is no such place, and ``mistakes`` say why."""
    server = config.get("topic.prefix", "")
    mine = [each for each in offsets if each.partition.get("server") == server]
    if not mine:
        others = ", ".join(sorted({str(each.partition.get("server")) for each in offsets})) or "none"
        mistakes.append(f"{_PLACE}: has no offset of topic.prefix {server!r}; it has those of: {others}")
        return None
    has_tasks = config.get("vitess.offset.storage.per.task", "").lower() == "true"
    generation = config.get("vitess.offset.storage.task.key.gen", "")
    newest = (int(generation) if generation.isdigit() else sys.maxsize) if has_tasks else _WHOLE
    before = [each for each in mine if _generation(each) <= newest]
    if not before:
        keys = ", ".join(sorted(str(each.partition.get("task_key")) for each in mine))
        wanted = f"generation {generation or '0'} or before" if has_tasks else "a connector without tasks"
        mistakes.append(
            f"{_PLACE}: has no offset of {wanted}, only {keys}; see vitess.offset.storage.per.task and "
            "vitess.offset.storage.task.key.gen in the connector's configuration"
        )
        return None
    shards: dict[str, ShardGtid] = {}
    start = Start(())
    for stored in sorted(before, key=_generation):  # newer ones come later and stay
        for entry in _vgtid_of(stored, mistakes):
            shards[entry.shard] = entry
        if stored.offset.get("transaction_epoch") is not None and not start.notes:
            start.notes.append(
                f"{_PLACE}: transaction_epoch: a source that is moved over begins with epochs of its own, at 0; events of the "
                "two are not to be compared by it"
            )
    keyspace = config.get("vitess.keyspace", "")
    elsewhere = sorted({entry.keyspace for entry in shards.values()} - {keyspace})
    if elsewhere:
        mistakes.append(f"{_PLACE}: is of keyspace {', '.join(elsewhere)}, and vitess.keyspace is {keyspace!r}")
    start.vgtid = tuple(_beginning(shards[shard], start.notes) for shard in sorted(shards))
    return start


def _generation(stored: StoredOffset) -> int:
    task = task_of(str(stored.partition.get("task_key", "")))
    return _WHOLE if task is None else task.generation


def _vgtid_of(stored: StoredOffset, mistakes: list[str]) -> Vgtid:
    name = stored.partition.get("task_key", stored.partition.get("server"))
    text = stored.offset.get("vgtid")
    if not isinstance(text, str):
        mistakes.append(
            f"{_PLACE}: the offset of {name} has no vgtid: it is of another connector, or of a release before 1.5"
        )
        return ()
    try:
        return parse_vgtid(text)
    except ValueError as error:
        mistakes.append(f"{_PLACE}: the offset of {name}: vgtid {error}")
        return ()


def _beginning(entry: ShardGtid, notes: list[str]) -> ShardGtid:
    """The same place; where a copy was under way its beginning, because no finished table is known of it."""
    if entry.table_p_ks:
        notes.append(f"{_PLACE}: shard {entry.shard}: its tables were being copied; that copy begins again")
        return msgspec.structs.replace(entry, gtid=EMPTY, table_p_ks=())
    if entry.gtid == CURRENT:
        notes.append(
            f"{_PLACE}: shard {entry.shard}: stands at 'current', which is no place: the source begins there when it is started"
        )
    return entry
