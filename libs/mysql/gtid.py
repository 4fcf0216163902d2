"""GTID sets: which transactions of which servers were executed (MySQL manual, "GTID Format and Storage").

``GtidSet`` is a value: the position of a checkpoint, or the transactions that the source still holds. ``ExecutedGtids`` is
the state of a reader that follows the log, where adding the next transaction costs one dictionary look-up. From MySQL 8.3 on
a GTID may carry a tag (``uuid:tag:7``); a tag's numbers are counted by themselves, so uuid and tag together are the *host* of
a sequence of numbers.
"""

import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Self


class InvalidGtid(ValueError):
    """A text is no GTID or GTID set."""


class GtidHost(NamedTuple):
    """Who numbers transactions."""

    uuid: str
    """Lower case, with hyphens."""
    tag: str = ""


Intervals = tuple[tuple[int, int], ...]
"""First and last number of each run, both included; ascending, never touching one another."""

_UUID: Final = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_TAG: Final = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_INTERVAL: Final = re.compile(r"(\d+)(?:-(\d+))?")
_NUMBERS: Final = range(1, 2**63 - 1)  # GNO_END in the server's rpl_gtid.h


class GtidSet:
    """An immutable set of transactions. Compare, hash, and test with ``in`` (a text ``uuid:n`` or ``uuid:tag:n``)."""

    __slots__ = ("_intervals",)

    def __init__(self, intervals: Mapping[GtidHost, Iterable[tuple[int, int]]] | None = None) -> None:
        joined = {host: _joined(runs) for host, runs in (intervals or {}).items()}
        self._intervals = {host: joined[host] for host in sorted(joined) if joined[host]}

    @classmethod
    def parse(cls, text: str) -> Self:
        """The set that a text names, as ``gtid_executed`` writes it or a person does.

        A run that ends before it begins is empty, as for the server's ``GTID_SUBSET`` and ``SET gtid_purged``.

        Raises:
            InvalidGtid: the text is no GTID set.
        """
        runs: dict[GtidHost, list[tuple[int, int]]] = {}
        for group in text.split(","):
            if group.strip():
                _read_group(group, runs)
        return cls(runs)

    def __str__(self) -> str:
        """As the server writes it, on one line: hosts sorted, runs joined."""
        groups: dict[str, list[str]] = {}
        for host, runs in self._intervals.items():
            parts = groups.setdefault(host.uuid, [host.uuid])
            if host.tag:
                parts.append(host.tag)
            parts.extend(str(first) if first == last else f"{first}-{last}" for first, last in runs)
        return ",".join(":".join(parts) for parts in groups.values())

    def __repr__(self) -> str:
        return f"GtidSet.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GtidSet) and self._intervals == other._intervals

    def __hash__(self) -> int:
        return hash(tuple(self._intervals.items()))

    def __bool__(self) -> bool:
        return bool(self._intervals)

    def __contains__(self, gtid: str) -> bool:
        uuid, tag, number = parse_gtid(gtid)
        return self.contains(uuid, tag, number)

    @property
    def hosts(self) -> frozenset[GtidHost]:
        """The servers that numbered the set's transactions."""
        return frozenset(self._intervals)

    @property
    def intervals(self) -> Mapping[GtidHost, Intervals]:
        """The runs of each host."""
        return self._intervals

    def contains(self, uuid: str, tag: str, number: int) -> bool:
        """The transaction is in the set."""
        runs = self._intervals.get(GtidHost(uuid.lower(), tag.lower()), ())
        at = bisect_right(runs, (number, _NUMBERS.stop)) - 1
        return at >= 0 and runs[at][0] <= number <= runs[at][1]

    def add(self, uuid: str, tag: str, number: int) -> "GtidSet":
        """The set with one transaction more. Where many follow, ``ExecutedGtids`` is the thing to use."""
        return self.union(GtidSet({GtidHost(uuid.lower(), tag.lower()): ((number, number),)}))

    def union(self, other: "GtidSet") -> "GtidSet":
        """What is in either."""
        hosts = self.hosts | other.hosts
        return GtidSet({host: (*self._intervals.get(host, ()), *other._intervals.get(host, ())) for host in hosts})

    def subtract(self, other: "GtidSet") -> "GtidSet":
        """The transactions of this set that the other lacks."""
        return GtidSet({host: _without(runs, other._intervals.get(host, ())) for host, runs in self._intervals.items()})

    def without(self, is_left_out: Callable[[str], bool]) -> "GtidSet":
        """The transactions of all servers whose uuid ``is_left_out`` does not name."""
        return GtidSet({host: runs for host, runs in self._intervals.items() if not is_left_out(host.uuid)})

    def is_superset(self, other: "GtidSet") -> bool:
        """Everything of the other is in this one."""
        return not other.subtract(self)

    def transaction_count(self) -> int:
        """How many transactions are in the set; as a rank it grows by one with each (see ``ExecutedGtids.rank``)."""
        return sum(map(_count, self._intervals.values()))

    def encode_binary(self) -> bytes:
        """The set as COM_BINLOG_DUMP_GTID and the log's Previous_gtids event hold it.

        ``Gtid_set::encode`` in the server's rpl_gtid_set.cc: the number of hosts, then each host's 16 bytes of uuid, its
        number of runs, and each run's first number and the one after its last, all little-endian 64 bits. With tags
        (MySQL 8.3 and later) the first 64 bits hold 1 in the lowest and in the highest byte and the number of hosts
        between, and after each uuid stands its tag: twice its length in a byte, then its characters.
        """
        is_tagged = any(host.tag for host in self._intervals)
        count = len(self._intervals)
        parts = [struct.pack("<Q", _TAGGED << 56 | count << 8 | _TAGGED if is_tagged else count)]
        for host, runs in self._intervals.items():
            parts.append(bytes.fromhex(host.uuid.replace("-", "")))
            if is_tagged:
                parts.append(bytes((len(host.tag) << 1,)) + host.tag.encode("ascii"))
            parts.append(struct.pack("<Q", len(runs)))
            parts.extend(struct.pack("<QQ", first, last + 1) for first, last in runs)
        return b"".join(parts)


_TAGGED: Final = 1


class ExecutedGtids:
    """The transactions executed so far, as a reader that follows the log counts them.

    Adding the number after a host's highest one, as a log brings it, costs one look-up at any size of the set.
    """

    def __init__(self, executed: GtidSet | None = None) -> None:
        # Each host's last run, [first, last], which grows; and the runs before it, which hardly ever change.
        self._growing: dict[tuple[str, str], list[int]] = {}
        self._settled: dict[tuple[str, str], Intervals] = {}
        self._text_before_growing = ""
        self._rank = 0
        for host, runs in (executed or GtidSet()).intervals.items():
            self._take(host, runs)

    def add(self, uuid: str, tag: str, number: int) -> None:
        """Count a transaction as executed; one that already is changes nothing. ``uuid`` is in lower case."""
        run = self._growing.get((uuid, tag))
        if run is not None and number == run[1] + 1:
            run[1] = number
            self._rank += 1
        else:
            self._take((uuid, tag), _joined((*self._runs((uuid, tag)), (number, number))))

    def contains(self, uuid: str, tag: str, number: int) -> bool:
        """Whether a transaction was executed. ``uuid`` is in lower case."""
        run = self._growing.get((uuid, tag))
        if run is None or number > run[1]:
            return False
        return number >= run[0] or any(first <= number <= last for first, last in self._settled[uuid, tag])

    def snapshot(self) -> GtidSet:
        """The set as a value."""
        return GtidSet({GtidHost(*host): self._runs(host) for host in self._growing})

    def text(self) -> str:
        """``str`` of the snapshot; built without one where a single host without tag numbers all transactions."""
        if len(self._growing) != 1 or not self._text_before_growing:
            return str(self.snapshot())
        (run,) = self._growing.values()
        return self._text_before_growing + _run_text(run[0], run[1])

    def rank(self) -> int:
        """How many transactions are executed: the rank of the last one in ``EventOrder``.

        Each transaction of any server adds one. The sum of the hosts' highest numbers, Debezium's rank for
        Vitess, is the same wherever numbers run from 1 without gaps; but it stands still while a gap is filled, as it is
        when group replication gives each member a block of numbers, and two transactions of one row would tie.
        """
        return self._rank

    def _runs(self, host: tuple[str, str]) -> Intervals:
        run = self._growing.get(host)
        return () if run is None else (*self._settled[host], (run[0], run[1]))

    def _take(self, host: tuple[str, str], runs: Intervals) -> None:
        """Replace a host's runs."""
        self._rank += _count(runs) - _count(self._runs(host))
        self._settled[host] = runs[:-1]
        self._growing[host] = list(runs[-1])
        uuid, tag = host
        texts = [uuid, *(_run_text(first, last) for first, last in runs[:-1]), ""]
        self._text_before_growing = "" if tag else ":".join(texts)


def parse_gtid(text: str) -> tuple[str, str, int]:
    """uuid, tag (empty: none) and number of one GTID. Raises InvalidGtid for any other text."""
    parts = [part.strip().lower() for part in text.split(":")]
    if len(parts) not in (2, 3):
        raise InvalidGtid(f"{text!r} is no GTID: uuid:number or uuid:tag:number is one")
    tag = parts[1] if len(parts) == 3 else ""
    if not _UUID.fullmatch(parts[0]) or (tag and not _TAG.fullmatch(tag)) or not parts[-1].isdigit():
        raise InvalidGtid(f"{text!r} is no GTID: uuid:number or uuid:tag:number is one")
    return _hyphenated(parts[0]), tag, _checked(int(parts[-1]), text)


def server_filter(includes: Sequence[str], excludes: Sequence[str]) -> Callable[[str], bool]:
    """Whether rows of transactions that a server (its uuid) numbered are passed over, by regular expressions for uuids."""
    include = [re.compile(pattern, re.IGNORECASE) for pattern in includes]
    exclude = [re.compile(pattern, re.IGNORECASE) for pattern in excludes]

    def is_passed(uuid: str) -> bool:
        is_included = not include or any(pattern.fullmatch(uuid) for pattern in include)
        return not is_included or any(pattern.fullmatch(uuid) for pattern in exclude)

    return is_passed


def _read_group(group: str, runs: dict[GtidHost, list[tuple[int, int]]]) -> None:
    """One uuid with its tags and runs: ``uuid:1-5:tag:1-3:7``."""
    uuid, *parts = (part.strip().lower() for part in group.split(":"))
    if not _UUID.fullmatch(uuid) or not parts:
        raise InvalidGtid(f"{group.strip()!r} is no part of a GTID set: uuid:first-last is one")
    host = GtidHost(_hyphenated(uuid))
    for part in parts:
        if _TAG.fullmatch(part):
            host = GtidHost(host.uuid, part)
            continue
        match = _INTERVAL.fullmatch(part.replace(" ", ""))
        if match is None:
            raise InvalidGtid(f"{part!r} in {group.strip()!r} is neither a run of numbers nor a tag")
        first = _checked(int(match[1]), group)
        runs.setdefault(host, []).append((first, _checked(int(match[2]), group) if match[2] else first))


def _checked(number: int, text: str) -> int:
    if number not in _NUMBERS:
        raise InvalidGtid(f"{text.strip()!r} has a number that no transaction can have")
    return number


def _hyphenated(uuid: str) -> str:
    digits = uuid.replace("-", "")
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _joined(runs: Iterable[tuple[int, int]]) -> Intervals:
    """The same numbers in the fewest runs; empty runs are gone."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(run for run in runs if run[0] <= run[1]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)


def _without(runs: Intervals, taken: Intervals) -> Intervals:
    """The numbers of ``runs`` that are in none of ``taken``."""
    left: list[tuple[int, int]] = []
    at = 0
    for first, last in runs:
        while at < len(taken) and taken[at][1] < first:
            at += 1
        cut = at
        while cut < len(taken) and taken[cut][0] <= last:
            if first < taken[cut][0]:
                left.append((first, taken[cut][0] - 1))
            first = taken[cut][1] + 1
            cut += 1
        if first <= last:
            left.append((first, last))
    return tuple(left)


def _count(runs: Intervals) -> int:
    return sum(last - first + 1 for first, last in runs)


def _run_text(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
