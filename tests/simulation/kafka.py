"""A Kafka of one broker as a value in memory: partitions, transactions with their markers, fencing, groups' offsets.

It does each request at once, and answers by Kafka's error codes. Whether a question or its answer gets lost, and how long
either takes, is decided by the caller (``clients``).

It has of the real one:

* A transactional id has one producer and an epoch. Opening it again fences the one before, and aborts its transaction.
* The markers of an ended transaction may come some time after its end. Until then the id takes no new transaction, readers see
  nothing of it, and its offsets are not stable.
* A producer's batch has a sequence number: one that is sent twice is there once.
* A transaction that is older than its timeout is aborted.
"""

import bisect
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.simulation.scheduler import Scheduler

NO_ERROR: Final = 0
OUT_OF_ORDER_SEQUENCE: Final = 45
INVALID_PRODUCER_EPOCH: Final = 47
INVALID_TXN_STATE: Final = 48
INVALID_PRODUCER_ID_MAPPING: Final = 49
CONCURRENT_TRANSACTIONS: Final = 51
TOPIC_AUTHORIZATION_FAILED: Final = 29
OPERATION_NOT_ATTEMPTED: Final = 55
UNKNOWN_TOPIC: Final = 3
TOO_LARGE: Final = 10

_PRODUCER: Final = struct.Struct(">qhii")
"""Producer id, epoch, base sequence and count in a record batch's head (Kafka, "Record Batch")."""
_PRODUCER_AT: Final = 43


class Place(NamedTuple):
    """A Kafka partition."""

    topic: str
    number: int


@dataclass(slots=True)
class Stored:
    """A record batch as it lies in a partition; a marker has no payload."""

    offset: int
    count: int
    payload: bytes
    producer_id: int
    state: str = "open"
    """``open``, ``committed``, ``aborted`` or ``marker``."""


class Log:
    """One partition."""

    def __init__(self) -> None:
        self.entries: list[Stored] = []
        self.end = 0
        self._offsets: list[int] = []
        self._open: dict[int, list[Stored]] = {}
        """By producer."""
        self.sequences: dict[int, tuple[int, int, int, int]] = {}
        """By producer: epoch, next sequence, and the last batch's first sequence and offset."""

    @property
    def stable_end(self) -> int:
        """Below it everything is decided, and ``read_committed`` may see it."""
        return min((batches[0].offset for batches in self._open.values()), default=self.end)

    def append(self, payload: bytes, count: int, producer_id: int) -> Stored:
        """A batch of an open transaction."""
        stored = Stored(self.end, count, payload, producer_id)
        self._put(stored)
        self._open.setdefault(producer_id, []).append(stored)
        return stored

    def open_of(self, producer_id: int) -> Sequence[Stored]:
        """The batches of a producer's open transaction."""
        return self._open.get(producer_id, ())

    def mark(self, producer_id: int, *, commits: bool) -> None:
        """End a producer's transaction here."""
        for stored in self._open.pop(producer_id, []):
            stored.state = "committed" if commits else "aborted"
        self._put(Stored(self.end, 1, b"", producer_id, "marker"))

    def _put(self, stored: Stored) -> None:
        self.entries.append(stored)
        self._offsets.append(stored.offset)
        self.end += stored.count

    def committed_from(self, offset: int) -> Iterator[Stored]:
        """The batches that a reader of committed ones gets from an offset on; each is one record in a changes topic."""
        stable_end = self.stable_end
        for place in range(bisect.bisect_left(self._offsets, offset), len(self.entries)):
            stored = self.entries[place]
            if stored.offset >= stable_end:
                return
            if stored.state == "committed":
                yield stored


@dataclass(slots=True)
class Transaction:
    """The coordinator's state of a transactional id."""

    producer_id: int
    epoch: int
    timeout_s: float
    state: str = "empty"
    """``empty``, ``ongoing``, ``commits``, ``aborts`` (markers are to come), ``committed`` or ``aborted``."""
    began_s: float = 0.0
    ends_s: float = 0.0
    """When the markers come."""
    places: set[Place] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    offsets: dict[tuple[str, Place], tuple[int, str]] = field(default_factory=dict)
    appended: dict[tuple[str, Place], int] = field(default_factory=dict)
    """When each of them was sent, as a count."""


class Committed(NamedTuple):
    """A transaction that is sure to become visible."""

    transactional_id: str
    batches: Sequence[tuple[Place, Stored]]
    offsets: dict[tuple[str, Place], tuple[int, str]]


class Kafka:
    """The broker."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.logs: dict[Place, Log] = {}
        self.topics: dict[str, int] = {}
        """Their partitions."""
        self.transactions: dict[str, Transaction] = {}
        self.offsets: dict[tuple[str, Place], tuple[int, str]] = {}
        """Committed, with the note."""
        self.unauthorized: set[str] = set()
        """Topics that the router may not write."""
        self.too_small: set[str] = set()
        """Topics that take no batch: each is larger than they like."""
        self.marker_delay_s: Callable[[], float] = lambda: 0.0
        self.group_delay_s: Callable[[], float] = lambda: 0.0
        """How long after its transaction's end an offset is still not stable."""
        self.on_commit: Callable[[Committed], None] = lambda _committed: None
        """Called when a transaction is decided; its markers may come later."""
        self._next_producer_id = 1
        self._appended = 0
        self._newest: dict[tuple[str, Place], int] = {}
        self._unstable: list[tuple[float, tuple[str, Place], int, tuple[int, str]]] = []

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """A topic that is there stays as it is."""
        if topic not in self.topics:
            self.topics[topic] = partitions
            for number in range(partitions):
                self.logs[Place(topic, number)] = Log()

    def tick(self) -> None:
        """Do all that became due after the last request."""
        now_s = self._scheduler.now_s
        if self._unstable:
            self._apply()
        for transactional_id, transaction in self.transactions.items():
            if transaction.state in ("commits", "aborts") and transaction.ends_s <= now_s:
                self._end(transactional_id, transaction)
            elif transaction.state == "ongoing" and transaction.began_s + transaction.timeout_s < now_s:
                transaction.epoch += 1
                transaction.state = "aborts"
                self._end(transactional_id, transaction)

    # --- a producer's requests

    def init_producer(self, transactional_id: str, timeout_s: float) -> tuple[int, int, int]:
        """Error, producer id and epoch."""
        self.tick()
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            transaction = self.transactions[transactional_id] = Transaction(self._next_producer_id, -1, timeout_s)
            self._next_producer_id += 1
        elif transaction.state == "ongoing":
            transaction.epoch += 1  # from now on the one before is refused
            self._begin_end(transactional_id, transaction, commits=False)
            return CONCURRENT_TRANSACTIONS, -1, -1
        elif transaction.state in ("commits", "aborts"):
            return CONCURRENT_TRANSACTIONS, -1, -1
        transaction.epoch += 1
        transaction.state = "empty"
        return NO_ERROR, transaction.producer_id, transaction.epoch

    def add_partitions(
        self, transactional_id: str, producer_id: int, epoch: int, places: Sequence[Place]
    ) -> list[tuple[Place, int]]:
        """An error for each."""
        self.tick()
        error = self._refusal(transactional_id, producer_id, epoch)
        if error:
            return [(place, error) for place in places]
        denied = {place for place in places if place.topic in self.unauthorized}
        if denied:
            return [
                (place, TOPIC_AUTHORIZATION_FAILED if place in denied else OPERATION_NOT_ATTEMPTED) for place in places
            ]
        if any(place not in self.logs for place in places):
            return [(place, UNKNOWN_TOPIC if place not in self.logs else OPERATION_NOT_ATTEMPTED) for place in places]
        self._ongoing(transactional_id).places.update(places)
        return [(place, NO_ERROR) for place in places]

    def add_group(self, transactional_id: str, producer_id: int, epoch: int, group: str) -> int:
        """An error."""
        self.tick()
        error = self._refusal(transactional_id, producer_id, epoch)
        if not error:
            self._ongoing(transactional_id).groups.add(group)
        return error

    def commit_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        group: str,
        offsets: Sequence[tuple[Place, int, str]],
    ) -> int:
        """An error. They count when the transaction does."""
        self.tick()
        error = self._refusal(transactional_id, producer_id, epoch)
        if error:
            return error
        transaction = self.transactions[transactional_id]
        if transaction.state != "ongoing" or group not in transaction.groups:
            return INVALID_TXN_STATE
        for place, offset, note in offsets:
            self._appended += 1
            transaction.offsets[group, place] = (offset, note)
            transaction.appended[group, place] = self._appended
        return NO_ERROR

    def produce(self, transactional_id: str, place: Place, payload: bytes) -> tuple[int, int]:
        """Error and offset."""
        self.tick()
        producer_id, epoch, sequence, count = _PRODUCER.unpack_from(payload, _PRODUCER_AT)
        transaction = self.transactions[transactional_id]
        if epoch != transaction.epoch or producer_id != transaction.producer_id:
            return INVALID_PRODUCER_EPOCH, -1
        log = self.logs.get(place)
        if log is None:
            return UNKNOWN_TOPIC, -1
        known_epoch, expected, last, last_offset = log.sequences.get(producer_id, (-1, 0, -1, -1))
        if known_epoch != epoch:
            expected, last, last_offset = 0, -1, -1
        if sequence == last:
            return NO_ERROR, last_offset  # it came already
        if transaction.state != "ongoing" or place not in transaction.places:
            return INVALID_TXN_STATE, -1
        if place.topic in self.too_small:
            return TOO_LARGE, -1
        if sequence != expected:
            return OUT_OF_ORDER_SEQUENCE, -1
        stored = log.append(payload, count, producer_id)
        log.sequences[producer_id] = (epoch, sequence + count, sequence, stored.offset)
        return NO_ERROR, stored.offset

    def end_transaction(self, transactional_id: str, producer_id: int, epoch: int, *, commits: bool) -> int:
        """An error. Said again, it is as it was."""
        self.tick()
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.producer_id != producer_id:
            return INVALID_PRODUCER_ID_MAPPING
        if transaction.epoch != epoch:
            return INVALID_PRODUCER_EPOCH
        if transaction.state == "ongoing":
            self._begin_end(transactional_id, transaction, commits=commits)
            return NO_ERROR
        if transaction.state in ("commits", "aborts"):
            is_same = (transaction.state == "commits") == commits
            return CONCURRENT_TRANSACTIONS if is_same else INVALID_TXN_STATE
        is_same = transaction.state == ("committed" if commits else "aborted")
        return NO_ERROR if is_same else INVALID_TXN_STATE

    def _refusal(self, transactional_id: str, producer_id: int, epoch: int) -> int:
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.producer_id != producer_id:
            return INVALID_PRODUCER_ID_MAPPING
        if transaction.epoch != epoch:
            return INVALID_PRODUCER_EPOCH
        return CONCURRENT_TRANSACTIONS if transaction.state in ("commits", "aborts") else NO_ERROR

    def _ongoing(self, transactional_id: str) -> Transaction:
        transaction = self.transactions[transactional_id]
        if transaction.state != "ongoing":
            transaction.state = "ongoing"
            transaction.began_s = self._scheduler.now_s
            transaction.places, transaction.groups, transaction.offsets = set(), set(), {}
        return transaction

    def _begin_end(self, transactional_id: str, transaction: Transaction, *, commits: bool) -> None:
        transaction.state = "commits" if commits else "aborts"
        transaction.ends_s = self._scheduler.now_s + self.marker_delay_s()
        if self._scheduler.traces:
            self._scheduler.note(f"Kafka: {transactional_id} {transaction.state}, offsets {transaction.offsets}")
        if commits:
            batches = [
                (place, stored)
                for place in sorted(transaction.places)
                for stored in self.logs[place].open_of(transaction.producer_id)
            ]
            self.on_commit(Committed(transactional_id, batches, dict(transaction.offsets)))
        if transaction.ends_s <= self._scheduler.now_s:
            self._end(transactional_id, transaction)

    def _end(self, transactional_id: str, transaction: Transaction) -> None:
        commits = transaction.state == "commits"
        transaction.state = "committed" if commits else "aborted"
        for place in sorted(transaction.places):
            self.logs[place].mark(transaction.producer_id, commits=commits)
        if commits:
            due_s = self._scheduler.now_s + self.group_delay_s()
            self._unstable += [
                (due_s, key, transaction.appended[key], each) for key, each in transaction.offsets.items()
            ]
            self._apply()
        transaction.offsets = {}

    def _apply(self) -> None:
        """Offsets of ended transactions count, those whose time has come."""
        now_s = self._scheduler.now_s
        for due_s, key, appended, offset in self._unstable:
            # Of two that are decided, the one that was sent last counts, whichever marker comes first.
            if due_s <= now_s and self._newest.get(key, 0) < appended:
                self._newest[key] = appended
                self.offsets[key] = offset
        self._unstable = [each for each in self._unstable if each[0] > now_s]

    # --- groups

    def committed_offset(self, group: str, place: Place) -> tuple[int, str] | None:
        """A group's offset and note; None: none is committed."""
        self.tick()
        return self.offsets.get((group, place))

    def is_stable(self, group: str, place: Place) -> bool:
        """No transaction that is to move the offset is open."""
        self.tick()
        if any(key == (group, place) for _, key, _, _ in self._unstable):
            return False
        return not any(
            (group, place) in transaction.offsets
            for transaction in self.transactions.values()
            if transaction.state in ("ongoing", "commits", "aborts")
        )

    def groups(self) -> list[str]:
        """Those with offsets."""
        self.tick()
        return sorted({group for group, _ in self.offsets})
