"""256 shards in one stream: the work on the VGTID is counted, because a clock would not show it."""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from libs.events.envelope import VitessSourceBlock
from libs.source.vitess.settings import EventSettings
from libs.source.vitess.vgtid import parse_vgtid
from services.vstream_reader import row_runs, shard_set
from services.vstream_reader.shard_set import ShardSet
from tests.unit.vstream_reader.stream import Replay, fields, inserted, replay, start_of, transaction

Work = Counter[str]


def names(count: int) -> list[str]:
    """Shards as Vitess names them: key ranges of equal size."""
    bounds = ["", *(f"{256 // count * nth:02x}" for nth in range(1, count)), ""]
    return [f"{begin}-{end}" for begin, end in itertools.pairwise(bounds)]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Counts calls that read or write a position, and the work for each run of rows."""
    done: Work = Counter()

    def counted(owner: Any, name: str, label: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def count(*arguments: Any, **named: Any) -> Any:
            done[label] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, count)

    counted(shard_set, "shard_gtids", "VGTIDs cut into shards")
    counted(shard_set, "_shard_gtid", "shards parsed")
    counted(shard_set, "parse_shard_position", "GTID sets parsed")
    counted(shard_set, "shard_at", "shards written as JSON")
    counted(ShardSet, "vgtid_json", "VGTIDs joined")
    counted(VitessSourceBlock, "filled", "source blocks filled")
    counted(row_runs, "EventFrame", "frames")
    counted(shard_set, "shard_epoch", "epochs compared")
    counted(shard_set, "encode_position", "positions encoded")
    return done


def stream_of(shards: int, *, use_local_vgtid: bool = False) -> Replay:
    """A stream that has met every shard and the table on the first; the work until then is not counted."""
    events = EventSettings(use_local_vgtid=use_local_vgtid)
    stream = replay(start_of(*names(shards), gtid="MySQL56/a:1-5"), events=events)
    stream.feed(
        transaction(places(shards, 6), fields(shard=names(shards)[0]), inserted(0, "x", shard=names(shards)[0]))
    )
    return stream


def places(shards: int, last: int) -> dict[str, str]:
    """Only the first shard's transactions count on."""
    first, *others = names(shards)
    return {first: f"a:1-{last}", **dict.fromkeys(others, "a:1-5")}


def work_of(work: Work, *, shards: int, transactions: int, rows_each: int) -> Work:
    """The work of decoding after the first transaction; each row is an event of its own, as vtgate sends statements."""
    stream = stream_of(shards, use_local_vgtid=True)
    first = names(shards)[0]
    answers = [
        transaction(places(shards, 7 + nth), *(inserted(row, "x", shard=first) for row in range(rows_each)))
        for nth in range(transactions)
    ]
    work.clear()
    stream.feed(*answers)
    done = Counter(work)
    runs = stream.runs()
    assert sum(len(run.values) for run in runs) == 1 + transactions * rows_each
    return done


def test_a_row_costs_nothing_of_the_vgtid(work: Work) -> None:
    """Five hundred rows of a transaction, which are one run, take the work of one."""
    one = work_of(work, shards=256, transactions=1, rows_each=1)
    many = work_of(work, shards=256, transactions=1, rows_each=500)

    assert one == many
    assert one["frames"] == one["source blocks filled"] == 1


def test_a_transaction_reads_and_writes_its_own_shard_alone(work: Work) -> None:
    """Whether there are 2 or 256 of them: one is parsed and written as JSON, the others are the bytes that they were."""
    few = work_of(work, shards=2, transactions=10, rows_each=3)
    many = work_of(work, shards=256, transactions=10, rows_each=3)

    assert few == many
    assert many["shards parsed"] == many["GTID sets parsed"] == many["shards written as JSON"] == 10
    assert many["VGTIDs cut into shards"] == 10
    assert many["VGTIDs joined"] == 20  # the transaction's, and the row's own shard
    assert many["epochs compared"] == 0
    assert many["positions encoded"] == 0


def test_what_did_not_change_is_kept_as_it_is() -> None:
    """Byte for byte the objects from before, so nothing is made of them again."""
    stream = stream_of(256)
    before = list(stream.decoder.shards._raw_shards), list(stream.decoder.shards)

    stream.feed(transaction(places(256, 9), inserted(1, "x", shard=names(256)[0])))

    after = stream.decoder.shards._raw_shards, list(stream.decoder.shards)
    for old, new in zip(before, after, strict=True):
        assert [one is other for one, other in zip(old, new, strict=True)] == [False] + 255 * [True]


def test_runs_stay_small_whatever_the_vgtid_weighs() -> None:
    """It stands in every row, many times as large: a run of as many rows as usual would be more than Kafka takes."""
    stream, first = stream_of(256), names(256)[0]
    stream.runs()
    stream.feed(transaction(places(256, 9), *(inserted(row, "x", shard=first) for row in range(2_000))))

    sizes = [sum(map(len, run.values)) for run in stream.runs()]

    assert sum(sizes) > 2_000 * 256 * 50
    assert max(sizes) < 600_000


def test_each_row_bears_the_whole_vgtid() -> None:
    """For all that: every row's source says where all 256 shards stood."""
    stream = stream_of(256)
    stream.runs()
    stream.feed(transaction(places(256, 9), *(inserted(row, "x", shard=names(256)[0]) for row in range(3))))

    told = [parse_vgtid(event["source"]["vgtid"]) for event in stream.events()]

    assert len(told) == 3
    assert told[0] == told[1] == told[2]
    assert [entry.shard for entry in told[0]] == names(256)
    assert [entry.gtid for entry in told[0][:2]] == ["MySQL56/a:1-9", "MySQL56/a:1-5"]


def test_a_heartbeat_of_all_shards_costs_nothing_when_none_moved(work: Work) -> None:
    """The same VGTID again, as vtgate sends it for statements of others."""
    stream = stream_of(256)
    repeated = transaction(places(256, 6))
    work.clear()

    stream.feed(repeated, repeated)

    assert work == {"VGTIDs cut into shards": 2}
