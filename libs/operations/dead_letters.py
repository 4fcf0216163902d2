"""A tenant's dead letters as ``headwater dead-letter`` shows them, and the request to take them up again."""

import json
import time
import uuid
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING

from libs.config.connections import KafkaSettings
from libs.errors import HeadwaterError, InvalidSettings
from libs.events.dead_letter import (
    DeadLetter,
    ReplayRequest,
    SetAsideBy,
    decode_dead_letter,
    encode_replay_request,
)
from libs.events.names import dead_letter_topic, replays_topic
from libs.mesh.mesh import Mesh
from libs.mesh.parked import parked_keys_in
from libs.mesh.sink_requests import send_to_sink
from libs.mesh.sink_state import sink_progress
from libs.mesh.tenant_topics import open_consumer, partitions_of, read_to_end
from libs.sink_state.parked_keys import (
    ParkedKey,
    ReplayAnswer,
    TenantParkedKeys,
)

_READ_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.5


class ReplayUnanswered(HeadwaterError):
    """The sink has not taken up a request in time; it is not lost, and acts when the sink comes to it."""


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A letter as it lies in the tenant's dead-letter topic."""

    number: int
    """Its offset there."""
    set_aside_at_us: int
    """Microseconds since 1970."""
    letter: DeadLetter
    headers: Sequence[tuple[str, bytes]]
    """The event's own."""
    is_waiting: bool | None
    """Of the sink's: its key is parked; None where nobody here can know. Of the router's: always, nothing takes those up."""


def read_letters(kafka: KafkaSettings, tenant: str, parked: TenantParkedKeys | None) -> list[StoredLetter]:
    """Every letter of ``tenant``, oldest first; one that was written twice comes once. ``parked``: None where it is not seen.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    consumer = open_consumer(kafka)
    topic = dead_letter_topic(tenant)
    try:
        starts = {(topic, partition): OFFSET_BEGINNING for partition in partitions_of(consumer, topic)}
        messages = list(read_to_end(consumer, starts, timeout_s=_READ_TIMEOUT_S)) if starts else []
    finally:
        consumer.close()
    found: dict[tuple[Any, ...], StoredLetter] = {}
    for message in sorted(messages, key=lambda message: message.offset() or 0):
        value, number = message.value(), message.offset() or 0
        if value is None:
            continue
        letter = decode_dead_letter(value)
        is_sinks = letter.set_aside_by is SetAsideBy.SINK
        place = (letter.topic, letter.event_kafka_partition, letter.event_offset) if is_sinks else (number,)
        headers: Any = message.headers() or []
        at_us = message.timestamp()[1] * 1_000
        stored = StoredLetter(number, at_us, letter, headers, not is_sinks or _is_waiting(letter, parked))
        found.setdefault(place, stored)
    return list(found.values())


def _is_waiting(letter: DeadLetter, parked: TenantParkedKeys | None) -> bool | None:
    if parked is None:
        return None
    table = parked.tables.get(letter.topic)
    if table is None or letter.event_offset is None:
        return False
    key = None if letter.event_key is None else plain_key(letter.event_key)
    return any(
        each.kafka_partition == letter.event_kafka_partition
        and each.offset <= (letter.event_offset or 0) <= each.last_offset
        and (key is None or plain_key(each.event_key.encode()) == key)
        for each in table.keys.values()
    )


def router_remedies(tenant: str, letters: Iterable[StoredLetter], topics: Container[str] | None = None) -> list[str]:
    """For a person, of each table (in ``topics``, where given): the command that brings the rows that the router set aside.
    Its letters are
    not replayed (docs/adr/0013)."""
    by_table: dict[tuple[str, str], list[DeadLetter]] = {}
    for letter in (each.letter for each in letters):
        if letter.set_aside_by is SetAsideBy.ROUTER and letter.op and (topics is None or letter.topic in topics):
            by_table.setdefault((letter.source, f"{letter.database}.{letter.table}"), []).append(letter)
    lines = []
    for (source, table), found in sorted(by_table.items()):
        place = f"{source}.{table}"
        remedy = f"`headwater tenant snapshot {tenant} {place}` reads its rows again"
        if any(letter.op in ("d", "t") for letter in found):  # t: TRUNCATE
            remedy += (
                f"; there are deletes among them, which only `headwater resync {tenant} {place}` brings to a mirror"
            )
        count = "1 event" if len(found) == 1 else f"{len(found)} events"
        lines.append(
            f"{place}: {count} set aside by the router, which no replay takes up; once the cause is mended, {remedy}"
        )
    return lines


def plain_key(key: bytes) -> Any:
    """An event's key without its Connect schema; bytes that are no JSON as they are."""
    try:
        parsed = json.loads(key)
    except ValueError:
        return key
    if isinstance(parsed, dict) and isinstance(parsed.get("schema"), dict) and "payload" in parsed:
        return parsed["payload"]
    return parsed


def keys_to_replay(
    parked: TenantParkedKeys | None,
    letters: Iterable[StoredLetter],
    topics: Sequence[str] | None,
    event_keys: Sequence[str] = (),
) -> Mapping[str, Iterable[str]]:
    """The key texts to replay, by topic; an empty one: all keys of the table. ``topics``: of these alone, where given.

    Where the parked keys are not seen (None), all keys are meant of each table that has letters of the sink's, and
    ``event_keys`` name none.

    Raises:
        InvalidSettings: as ``chosen_keys``.
    """
    if parked is not None:
        return chosen_keys(parked, sorted(parked.tables) if topics is None else topics, event_keys)
    assert not event_keys, "a key can be named only where the parked ones are seen"
    with_letters = {each.letter.topic for each in letters if each.letter.set_aside_by is SetAsideBy.SINK}
    return dict.fromkeys(sorted(with_letters if topics is None else with_letters & set(topics)), ())


def chosen_keys(
    parked: TenantParkedKeys, topics: Sequence[str], event_keys: Sequence[str]
) -> dict[str, dict[str, ParkedKey]]:
    """By topic and key text: the parked keys of ``topics``; of ``event_keys`` (JSON, as in the events) alone, if any are given.

    Raises:
        InvalidSettings: none of ``topics`` has such a key parked; all such keys are listed.
    """
    wanted = [plain_key(key.encode()) for key in event_keys]
    chosen: dict[str, dict[str, ParkedKey]] = {}
    for topic in topics:
        table = parked.tables.get(topic)
        for text, key in {} if table is None else table.keys.items():
            if not wanted or plain_key(key.event_key.encode()) in wanted:
                chosen.setdefault(topic, {})[text] = key
    met = [plain_key(key.event_key.encode()) for keys in chosen.values() for key in keys.values()]
    if unmet := [text for text, key in zip(event_keys, wanted, strict=True) if key not in met]:
        raise InvalidSettings(
            "dead-letter replay",
            [f"key {text} is not parked; `headwater dead-letter list` has those that are" for text in unmet],
        )
    return chosen


def send_requests(kafka: KafkaSettings, tenant: str, requests: Sequence[ReplayRequest]) -> None:
    """Ask the tenant's sink; durable when this returns, and acted upon once.

    Raises:
        BrokerUnavailable: Kafka does not take them.
    """
    records = {encode_replay_request(request): request.topic for request in requests}
    send_to_sink(kafka, replays_topic(tenant), records)


def replay_requests(chosen: Mapping[str, Iterable[str]], *, leave_out_refused: bool) -> list[ReplayRequest]:
    """One for each table, by its topic: of those keys, or of all that are parked where none is named."""
    return [
        ReplayRequest(id=str(uuid.uuid4()), topic=topic, keys=tuple(keys), leave_out_refused=leave_out_refused)
        for topic, keys in sorted(chosen.items())
    ]


def await_answers(
    mesh: Mesh, tenant: str, requests: Sequence[ReplayRequest], *, timeout_s: float
) -> Iterator[tuple[ReplayRequest, ReplayAnswer]]:
    """Each request with its result, by the sink's answer; none of a mesh whose sink's files are not seen from here.

    Raises:
        ReplayUnanswered: not all are answered in time.
    """
    if mesh.home is None:
        return
    deadline_s = time.monotonic() + timeout_s
    open_requests = {request.id: request for request in requests}
    while open_requests:
        progress = sink_progress(mesh.home, tenant)
        tables = parked_keys_in(mesh.home, tenant).tables.values()
        answers = {request: answer for table in tables for request, answer in table.answers.items()}
        for request in [request for request in open_requests if request in answers]:
            # It is noted before the batch is in the warehouse.
            if progress is not None and progress.batch_id >= answers[request].batch_id:
                yield open_requests.pop(request), answers[request]
        if open_requests and time.monotonic() > deadline_s:
            raise ReplayUnanswered(
                f"the sink has not answered for {timeout_s:.0f} s; the request waits for it: see `headwater status`"
            )
        if open_requests:
            time.sleep(_POLL_S)
