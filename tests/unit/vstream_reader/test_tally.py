"""The counts of a stream, and the metrics made of them."""

from typing import Any

from prometheus_client import REGISTRY

from protos.vitess import binlogdata_pb2
from services.vstream_reader.tally import StreamTally, TallyMetrics
from tests.unit.vstream_reader.stream import (
    answer,
    event,
    fields,
    inserted,
    replay,
    row,
    rows,
    start_of,
    transaction,
    vgtid,
)

PLACES = {"-80": "a:1-5", "80-": "b:1-9"}


def metric(name: str, source: str, **labels: str) -> float | None:
    """The value of a metric; None: it is not there."""
    return REGISTRY.get_sample_value(f"headwater_{name}", {"source": source, "source_partition": "0", **labels})


def test_shards_and_tables_are_counted_each_by_itself() -> None:
    """Copied rows are no transactions; rows of tables that nobody captures are counted apart."""
    tally = StreamTally()
    stream = replay(
        start_of("-80", "80-"), is_copying=True, tally=tally, is_captured=lambda table_id: table_id.table != "hidden"
    )
    stream.decoder.tick(1_700_000_012 * 1_000_000_000)
    stream.feed(
        answer(event("BEGIN"), fields(), vgtid(PLACES), event("COMMIT")),
        answer(
            event("BEGIN"),
            rows((None, row(1, "a")), (None, row(2, "b")), timestamp=0),
            vgtid(PLACES, {"-80": 2}),
            event("COMMIT"),
        ),
        answer(event("COPY_COMPLETED", shard="")),
    )
    later = {"-80": "a:1-5", "80-": "b:1-10"}
    stream.feed(
        transaction(
            later,
            fields(shard="80-"),
            fields(table="hidden", shard="80-"),
            inserted(3, "c", shard="80-"),
            inserted(4, "d", shard="80-"),
            inserted(9, "x", table="hidden", shard="80-"),
        )
    )

    low, high = stream.decoder.shard_progress()

    assert (low.rows_copied, high.rows_copied) == (2, 0)
    assert (low.shard, low.rows, low.transactions, low.committed_at_us) == ("-80", 2, 0, 0)
    assert (high.rows, high.transactions, high.lag_s, high.rank) == (2, 1, 12.0, 10)
    assert high.position == "MySQL56/b:1-10"
    assert {name: (table.changed, table.copied) for name, table in tally.tables.items()} == {"ks.t": (2, 2)}
    assert tally.filtered_events == 1


def test_metrics_follow_the_tally_and_forget_shards_that_are_gone() -> None:
    """Counters grow by new counts, also when the connection was lost meanwhile; a reshard leaves no old series."""
    source, tally = "tally-a", StreamTally()
    told = TallyMetrics((source, "0"), tally)
    first = replay(start_of("-80", "80-", gtid="MySQL56/a:1-5"), tally=tally)
    first.feed(transaction(PLACES, fields(), inserted(1, "a"), inserted(2, "b")))

    told.report(first.decoder.shard_progress(), 0.0)
    told.report(first.decoder.shard_progress(), 1.0)
    again = replay(first.decoder.shards.place, tally=tally)
    again.feed(transaction({**PLACES, "-80": "a:1-6"}, fields(), inserted(3, "c")))
    told.report(again.decoder.shard_progress(), 2.0)

    assert metric("reader_shard_rows_total", source, shard="-80") == 3
    assert metric("reader_shard_transactions_total", source, shard="-80") == 2
    assert metric("reader_shard_position_transactions", source, shard="-80") == 6
    assert metric("reader_shard_committed_timestamp_seconds", source, shard="-80") == 1_700_000_000
    assert metric("reader_shard_committed_timestamp_seconds", source, shard="80-") is None
    assert metric("reader_table_rows_total", source, table="ks.t", kind="changed") == 3
    assert metric("reader_shards", source) == 2

    _split(again)
    told.report(again.decoder.shard_progress(), 3.0)
    assert metric("reader_ended_shards", source) == 1
    again.feed(answer(vgtid({"-40": "c:1-2", "40-80": "d:1", "80-": "b:1-9"})))
    told.report(again.decoder.shard_progress(), 4.0)

    assert metric("reader_shard_rows_total", source, shard="-80") is None
    assert metric("reader_shard_epoch", source, shard="-80") is None
    assert metric("reader_shard_copying", source, shard="-80") is None
    assert metric("reader_shard_server_transactions", source, shard="-80", server_uuid="a") is None
    assert metric("reader_shard_server_transactions", source, shard="-40", server_uuid="c") == 2
    assert metric("reader_shard_epoch", source, shard="-40") == 1
    assert (metric("reader_shards", source), metric("reader_ended_shards", source)) == (3, 0)


def test_each_shard_tells_its_copy_and_its_place() -> None:
    """The copy of one may end before another's; a server that is gone from the GTID set takes its place with it."""
    source, tally = "tally-d", StreamTally()
    told = TallyMetrics((source, "0"), tally)
    stream = replay(start_of("-80", "80-"), is_copying=True, tally=tally)
    stream.feed(
        answer(event("BEGIN"), fields(), vgtid({"-80": "a:1-5,b:1-2", "80-": ""}), event("COMMIT")),
        answer(
            event("BEGIN"),
            rows((None, row(1, "a")), (None, row(2, "b")), timestamp=0),
            vgtid({"-80": "a:1-5,b:1-2", "80-": ""}, {"-80": 2}),
            event("COMMIT"),
        ),
    )

    told.report(stream.decoder.shard_progress(), 0.0)
    assert [metric("reader_shard_copying", source, shard=shard) for shard in PLACES] == [1, 1]
    assert metric("reader_shard_copied_rows_total", source, shard="-80") == 2
    assert metric("reader_shard_copied_rows_total", source, shard="80-") == 0
    assert [metric("reader_shard_server_transactions", source, shard="-80", server_uuid=server) for server in "ab"] == [
        5,
        2,
    ]

    stream.feed(answer(event("COPY_COMPLETED"), vgtid({"-80": "b:1-3", "80-": ""})))
    told.report(stream.decoder.shard_progress(), 1.0)
    assert [metric("reader_shard_copying", source, shard=shard) for shard in PLACES] == [0, 1]
    assert [metric("reader_shard_server_transactions", source, shard="-80", server_uuid=server) for server in "ab"] == [
        None,
        3,
    ]


def test_tables_beyond_the_bound_share_a_name() -> None:
    """No row goes uncounted, and no schema of ten thousand tables fills Prometheus."""
    source, tally = "tally-b", StreamTally()
    for number in range(2_000):
        tally.of_table(f"ks.t{number}").changed += 1

    TallyMetrics((source, "0"), tally).report((), 0.0)

    counted = [
        sample
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == "headwater_reader_table_rows_total" and sample.labels["source"] == source
    ]
    assert len(counted) == 501
    assert sum(sample.value for sample in counted) == 2_000
    assert metric("reader_table_rows_total", source, table="(others)", kind="changed") == 1_500


def test_metrics_are_told_twice_a_second() -> None:
    """Not with each of thousands of answers: a keyspace may have hundreds of shards."""
    told = TallyMetrics(("tally-c", "0"), StreamTally())

    assert told.is_due(100.0)
    told.report((), 100.0)
    assert not told.is_due(100.4)
    assert told.is_due(100.5)


def _split(stream: Any) -> None:
    journal = binlogdata_pb2.Journal(
        migration_type=binlogdata_pb2.SHARDS,
        participants=[binlogdata_pb2.KeyspaceShard(keyspace="ks", shard="-80")],
        shard_gtids=[
            binlogdata_pb2.ShardGtid(keyspace="ks", shard=shard, gtid="MySQL56/c:1-2") for shard in ("-40", "40-80")
        ],
    )
    stream.feed(answer(event("JOURNAL", journal=journal)))
