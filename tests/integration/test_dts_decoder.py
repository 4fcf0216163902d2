"""The DTS decoder on a real Kafka, fed by a stand-in for DTS that follows a real MySQL's binlog."""

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from libs.config.connections import KafkaSettings
from libs.events.names import source_dead_letter_topic
from libs.kafka.clients import TopicSpec, ensure_topics
from protos.dts import subscription_pb2 as pb
from services.dts_decoder.dead_letters import decode_letter
from tests.conftest import KafkaBroker, MysqlServer
from tests.integration.dts_stand_in import RunningStandIn, delete_records, stand_in
from tests.integration.reader_pipeline import PublishedRow, ReaderPipeline, pipeline_of, reset_source
from tests.integration.router_rig import read_closed_topic
from tests.integration.service_process import ServiceProcess, Services
from tests.integration.test_binlog_reader import ALL_TYPES, VALUES
from tests.unit.dts_decoder.topic import begin, checkpoint, commit, dml, insert
from tests.waiting import wait_until

EXIT_HALTED = 3


class Subscription:
    """A topic with a stand-in that fills it from the shared server, and a decoder of one database of it."""

    def __init__(self, folder: Path, kafka: KafkaBroker, services: Services, mysql: MysqlServer, database: str) -> None:
        self.folder, self.kafka, self.services, self.mysql, self.database = folder, kafka, services, mysql, database
        self.topic = f"topic-subs-{database}"
        self.group = f"consumer-grp-{database}"
        ensure_topics(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers), [TopicSpec(name=self.topic)])
        self.pipelines: list[ReaderPipeline] = []
        self.stand_ins: list[RunningStandIn] = []

    def fill(self, **settings: Any) -> RunningStandIn:
        """From now on the server's log comes by the topic."""
        self.stand_ins.append(stand_in(self.mysql, self.kafka.bootstrap_servers, self.topic, **settings))
        return self.stand_ins[-1]

    def decoder(self, *, with_database: bool = True, **settings: Any) -> ReaderPipeline:
        """Not started yet, and the services that it needs."""
        pipeline = self._pipeline(self.database)
        old = pipeline.reader.settings
        named = {"database": old["database"]} if with_database else {}
        pipeline.reader = ServiceProcess.of(
            "dts_decoder",
            self.folder,
            {
                **{
                    name: old[name] for name in ("source", "lease_s", "kafka", "schema_history", "checkpoint_committer")
                },
                **named,
                "subscription": {
                    "bootstrap_servers": self.kafka.bootstrap_servers,
                    "topic": self.topic,
                    "group_id": self.group,
                },
                "include_tables": [rf"{self.database}\..*"],
                **settings,
            },
        )
        return pipeline

    def binlog_reader(self, **settings: Any) -> ReaderPipeline:
        """A binlog reader of the same database, under another source."""
        pipeline = self._pipeline(f"{self.database}_log")
        pipeline.reader.settings = {
            **{name: value for name, value in pipeline.reader.settings.items() if name != "subscription"},
            "include_tables": [rf"{self.database}\..*"],
            **settings,
        }
        return pipeline

    def _pipeline(self, source: str) -> ReaderPipeline:
        """With the two services, which all of a test share."""
        if not self.pipelines:
            pipeline = pipeline_of(self.folder, source, self.kafka, self.services, self.mysql)
        else:
            first = self.pipelines[0]
            reader = ServiceProcess.of(
                "binlog_reader", self.folder / source, {**first.reader.settings, "source": source}
            )
            pipeline = ReaderPipeline(source, self.kafka, reader, self.services)
        self.pipelines.append(pipeline)
        return pipeline

    def send(self, *entries: pb.Entry, ps: int) -> None:
        """A message of the test's own."""
        data = pb.Entries(items=entries).SerializeToString()
        self.send_value(pb.Envelope(version=1, total=1, data=data).SerializeToString(), ps=ps)

    def send_value(self, value: bytes, *, ps: int) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers})
        producer.produce(self.topic, value=value, partition=0, headers=[("ps", str(ps).encode())])
        assert producer.flush(120) == 0

    def group_offset(self) -> int:
        """Where DTS's console sees the consumer group."""
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": self.group})
        try:
            [found] = consumer.committed([TopicPartition(self.topic, 0)], timeout=120.0)
            return int(found.offset)
        finally:
            consumer.close()

    def stop(self) -> None:
        for running in self.stand_ins:
            running.stop()
        for pipeline in self.pipelines:
            pipeline.stop()


@pytest.fixture
def subscription(
    tmp_path: Path, kafka_broker: KafkaBroker, services: Services, mysql_server: MysqlServer, database: str
) -> Iterator[Subscription]:
    one = Subscription(tmp_path, kafka_broker, services, mysql_server, database)
    yield one
    one.stop()


def _comparable(rows: list[PublishedRow]) -> list[tuple[Any, ...]]:
    """Everything of the live events but the source block, the order's rank and when they were processed."""
    return [
        (
            row.table,
            row.op,
            row.key,
            {name: value for name, value in row.value.items() if name not in ("source", "ts_ms", "ts_us", "ts_ns")},
            row.order[2],
        )
        for row in rows
        if not row.is_snapshot
    ]


def test_the_same_traffic_gives_equal_events_by_both_roads(
    subscription: Subscription, mysql_server: MysqlServer, database: str
) -> None:
    """Every type and every extreme, updates, deletes, DDL: by the binlog reader and by the DTS decoder."""
    lenient = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
    mysql_server.execute(
        ALL_TYPES,
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET gb18030)",
        "CREATE TABLE places (id INT PRIMARY KEY, p POINT, g GEOMETRY)",
        database=database,
    )
    mysql_server.execute(lenient, f"INSERT INTO types VALUES (900, {VALUES[3]})", database=database)
    subscription.fill(max_message_bytes=20_000)  # most messages come in parts
    by_dts = subscription.decoder(transaction_metadata=True)
    by_log = subscription.binlog_reader(
        transaction_metadata=True, database=by_dts.reader.settings["database"], replica_server_id=6_999
    )
    for pipeline in (by_log, by_dts):
        pipeline.reader.start()
        pipeline.wait_for_rows(lambda rows: len(rows) >= 1, timeout_s=120.0)

    for number, values in enumerate(VALUES):
        mysql_server.execute(lenient, f"INSERT INTO types VALUES ({number}, {values})", database=database)
    mysql_server.execute(
        "UPDATE types SET id = id + 100 WHERE id < 2",
        "DELETE FROM types WHERE id = 2",
        "INSERT INTO places VALUES (1, POINT(1.5, -2), ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326)), (2, NULL, NULL)",
        "UPDATE places SET g = POINT(3, 4) WHERE id = 2",
        "INSERT INTO t VALUES (1, '漢字'), (2, NULL)",
        "ALTER TABLE t ADD COLUMN w BIT(12) FIRST, MODIFY v VARCHAR(30) CHARACTER SET gbk",
        "UPDATE t SET v = '字', w = b'101' WHERE id = 2",
        "RENAME TABLE t TO u",
        "INSERT INTO u VALUES (NULL, 3, 'z')",
        "TRUNCATE TABLE u",
        "DROP TABLE places",
        "CREATE TABLE places (id INT PRIMARY KEY)",
        "INSERT INTO places VALUES (7)",
        "DELETE FROM types",
        database=database,
    )
    enough = lambda rows: sum(row.op == "d" for row in rows) >= 1 + len(VALUES)  # noqa: E731
    logged = by_log.wait_for_rows(enough)
    expected = _comparable(logged)
    found = _comparable(by_dts.wait_for_rows(enough))

    assert found == expected
    assert len(found) > 2 * len(VALUES)
    # One that is emptied, one that is made again.
    assert [row.table.split(".")[1] for row in logged if row.op == "t"] == ["u", "places"]


@pytest.mark.parametrize(
    "failpoint",
    [
        "reader_after_produce_before_commit=kill@3",
        "reader_after_commit=kill@3",
        "reader_between_snapshot_chunks=kill@2",
    ],
)
def test_kill_9_loses_nothing_and_repeats_nothing(
    subscription: Subscription, mysql_server: MysqlServer, database: str, failpoint: str
) -> None:
    """In the snapshot, before a commit and after one; the stand-in restarts too, and repeats as DTS does."""
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", database=database)
    mysql_server.execute(f"INSERT INTO t VALUES {','.join(f'({n}, 0)' for n in range(300))}", database=database)
    filling = subscription.fill()
    pipeline = subscription.decoder(snapshot={"chunk_rows": 50})
    pipeline.reader.start(failpoints=failpoint, waits=False)
    ids = itertools.count(1_000)

    def write(transactions: int) -> None:
        for _ in range(transactions):
            mysql_server.execute(
                f"INSERT INTO t VALUES ({next(ids)}, 1), ({next(ids)}, 1)",
                "UPDATE t SET v = v + 1 WHERE id = 7",
                database=database,
            )
            time.sleep(0.02)

    write(20)
    pipeline.reader.wait_for_exit()
    filling.stop()
    subscription.fill()
    write(10)
    pipeline.reader.start()
    pipeline.wait_for_rows(lambda rows: any(row.key == {"id": 299} for row in rows))  # later rows are after the copy
    write(10)
    source = dict(mysql_server.execute("SELECT id, v FROM t", database=database))
    rows = pipeline.wait_for_rows(lambda rows: _replayed(rows) == source)

    assert any(row.op == "u" for row in rows)
    live = [row.order for row in rows if not row.is_snapshot]
    assert live == sorted(set(live))
    copied = [row.key["id"] for row in rows if row.is_snapshot and row.key]
    assert len(copied) == len(set(copied))


def _replayed(rows: list[PublishedRow]) -> dict[int, int]:
    """The table that the rows leave, taken in the order that they carry."""
    return {row.value["after"]["id"]: row.value["after"]["v"] for row in sorted(rows, key=lambda row: row.order)}


def test_the_group_is_set_behind_a_checkpoint_and_only_there(
    subscription: Subscription, mysql_server: MysqlServer, database: str
) -> None:
    """DTS's console sees how far it was read; never further than the durable rows."""
    pipeline = subscription.decoder(with_database=False)
    pipeline.reader.start()
    subscription.send(begin(1), insert(1, schemaName=database), commit(1), ps=1)
    pipeline.wait_for_rows(lambda rows: len(rows) >= 1)
    assert subscription.group_offset() < 0

    subscription.send(checkpoint(), ps=2)
    subscription.send(begin(2), insert(2, gtid=2, schemaName=database), ps=3)

    found = wait_until(
        lambda: max(subscription.group_offset(), 0),
        because="the group's offset is set",
        seen=lambda: pipeline.reader.log_text[-3000:],
        pause_s=0.2,
    )
    assert found == 2


def test_tables_are_learned_from_messages_where_there_is_no_server(subscription: Subscription, database: str) -> None:
    """Typed by originalType; a restart goes on with the same version."""
    pipeline = subscription.decoder(with_database=False)
    subscription.send(begin(1), insert(1, schemaName=database), commit(1), ps=1)
    pipeline.reader.start()
    pipeline.wait_for_rows(lambda rows: len(rows) >= 1)
    pipeline.reader.kill()
    subscription.send(
        begin(1),
        insert(1, schemaName=database),
        commit(1),
        begin(2),
        insert(2, gtid=2, schemaName=database),
        commit(2),
        ps=2,
    )

    pipeline.reader.start()
    rows = pipeline.wait_for_rows(lambda rows: len(rows) >= 2)

    assert [(row.op, row.value["after"], row.schema_version) for row in rows] == [
        ("c", {"id": 1, "v": "v1"}, 1),
        ("c", {"id": 2, "v": "v2"}, 1),
    ]


def test_what_cannot_be_decoded_halts_with_its_place(subscription: Subscription, database: str) -> None:
    """Topic, partition and offset; nothing after it is published. A row alone is a dead letter, and the others go on."""
    pipeline = subscription.decoder(with_database=False)
    too_large = pb.RowChange(newColumns=[pb.Data(dataType=pb.DATA_TYPE_INT32, sv="9" * 12), pb.Data()])
    subscription.send(begin(1), dml([too_large], schemaName=database), insert(1, schemaName=database), commit(1), ps=1)
    subscription.send_value(b"\xff rubbish", ps=2)
    subscription.send(begin(2), insert(2, gtid=2, schemaName=database), commit(2), ps=3)

    pipeline.reader.start(waits=False)

    assert pipeline.reader.wait_for_exit() == EXIT_HALTED
    assert f"{subscription.topic}[0]@1: no Envelope" in pipeline.reader.log_text
    assert [row.key for row in pipeline.wait_for_rows(bool)] == [{"id": 1}]
    written = read_closed_topic(subscription.kafka.bootstrap_servers, source_dead_letter_topic(database))
    assert [decode_letter(message.value() or b"").entry for message in written] == [1]


def test_by_policy_it_is_set_aside_once_and_reading_goes_on(subscription: Subscription, database: str) -> None:
    """A message, an entry and a row, in the transaction of the rows around them."""
    pipeline = subscription.decoder(with_database=False, failure_handling="dead-letter")
    too_large = pb.RowChange(newColumns=[pb.Data(dataType=pb.DATA_TYPE_INT32, sv="9" * 12), pb.Data()])
    subscription.send(begin(1), insert(1, schemaName=database), dml([too_large], schemaName=database), commit(1), ps=1)
    subscription.send_value(b"\xff rubbish", ps=2)
    subscription.send(begin(2), insert(2, gtid=2, schemaName=database), commit(2), ps=3)
    pipeline.reader.start(failpoints="reader_after_produce_before_commit=kill@2", waits=False)
    wait_until(
        lambda: pipeline.reader.has_ended(within_s=0.0) or len(pipeline.rows()) >= 2,
        because="the decoder is killed before its second commit, or has read all in its first",
        seen=lambda: pipeline.reader.log_text[-3000:],
    )
    pipeline.reader.kill()

    pipeline.reader.start()
    pipeline.wait_for_rows(lambda rows: len(rows) >= 2)

    topic = source_dead_letter_topic(database)
    written = read_closed_topic(subscription.kafka.bootstrap_servers, topic)
    letters = [decode_letter(message.value() or b"") for message in written]
    assert [(letter.offset, letter.entry) for letter in letters] == [(0, 2), (1, None)]
    assert letters[1].envelope == b"\xff rubbish"
    assert [row.key for row in pipeline.rows()] == [{"id": 1}, {"id": 2}]


def test_a_lost_range_halts_with_the_range_and_the_remedy(subscription: Subscription, database: str) -> None:
    """DTS deleted messages that were not read: never a jump in silence."""
    pipeline = subscription.decoder(with_database=False)
    subscription.send(begin(1), insert(1, schemaName=database), commit(1), ps=1)
    pipeline.reader.start()
    pipeline.wait_for_rows(lambda rows: len(rows) >= 1)
    pipeline.reader.stop()
    subscription.send(begin(2), insert(2, gtid=2, schemaName=database), commit(2), ps=2)
    delete_records(subscription.kafka.bootstrap_servers, subscription.topic)

    pipeline.reader.start(waits=False)

    assert pipeline.reader.wait_for_exit() == EXIT_HALTED
    assert "messages 1 to 1 were deleted" in pipeline.reader.log_text
    assert "re-snapshot" in pipeline.reader.log_text


def test_a_source_that_was_reset_is_copied_again_in_a_new_epoch(
    subscription: Subscription, mysql_server: MysqlServer, database: str, tmp_path: Path
) -> None:
    """Messages were deleted before they were read. Changes since the place come to nobody; the copy wins over all before, and
    the topic is read on from it."""
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)", database=database)
    subscription.fill()
    pipeline = subscription.decoder()
    pipeline.reader.start()
    pipeline.wait_for_log()
    mysql_server.execute("INSERT INTO t VALUES (2, 1)", database=database)
    pipeline.wait_for_rows(lambda rows: len(rows) >= 2)
    pipeline.reader.stop()
    mysql_server.execute("UPDATE t SET v = 2", "DELETE FROM t WHERE id = 2", database=database)
    delete_records(subscription.kafka.bootstrap_servers, subscription.topic)
    pipeline.reader.start(waits=False)
    assert pipeline.reader.wait_for_exit() == EXIT_HALTED
    assert "were deleted before they were read" in pipeline.reader.log_text

    said = reset_source(pipeline.source, subscription.kafka, subscription.services, tmp_path / "mesh.yaml")
    pipeline.reader.start()
    pipeline.wait_for_rows(lambda rows: len(rows) >= 3)
    mysql_server.execute("UPDATE t SET v = 3", database=database)
    first, live, copied, after = pipeline.wait_for_rows(lambda rows: len(rows) >= 4)

    assert f'{pipeline.source}/0: forgets {{"topic":' in said
    shown = [(row.op, row.value["after"]["id"], row.value["after"]["v"]) for row in (first, live, copied, after)]
    assert shown == [("r", 1, 1), ("c", 2, 1), ("r", 1, 2), ("u", 1, 3)]
    assert copied.order[0] == first.order[0] + 1 == live.order[0] + 1 == after.order[0]
    assert '"checkpoint_was_reset"' in pipeline.reader.log_text
    pipeline.reader.stop()
    pipeline.reader.start()  # what was reset was done once
    mysql_server.execute("UPDATE t SET v = 4", database=database)
    assert len(pipeline.wait_for_rows(lambda rows: rows[-1].value["after"]["v"] == 4)) == 5


def test_without_a_server_a_reset_reads_on_where_the_group_stands(
    subscription: Subscription, database: str, tmp_path: Path
) -> None:
    """No row is copied; the tables stay known, and what comes has a new epoch."""
    pipeline = subscription.decoder(with_database=False)
    subscription.send(begin(1), insert(1, schemaName=database), commit(1), ps=1)
    pipeline.reader.start()
    pipeline.wait_for_rows(lambda rows: len(rows) >= 1)
    pipeline.reader.stop()
    subscription.send(begin(2), insert(2, gtid=2, schemaName=database), commit(2), ps=2)
    delete_records(subscription.kafka.bootstrap_servers, subscription.topic)
    subscription.send(begin(3), insert(3, gtid=3, schemaName=database), commit(3), ps=3)

    reset_source(pipeline.source, subscription.kafka, subscription.services, tmp_path / "mesh.yaml")
    pipeline.reader.start()
    before, after = pipeline.wait_for_rows(lambda rows: len(rows) >= 2)

    assert [(row.value["after"]["id"], row.schema_version) for row in (before, after)] == [(1, 1), (3, 1)]
    assert after.order[0] == before.order[0] + 1


def test_little_headroom_is_warned_of(subscription: Subscription, database: str) -> None:
    """/readyz says how many hours are left, and the metric how many seconds."""
    pipeline = subscription.decoder(with_database=False)
    settings = dict(pipeline.reader.settings)
    settings["subscription"] = {**settings["subscription"], "retention_h": 5.0}  # type: ignore[dict-item]
    pipeline.reader.settings = settings
    subscription.send(begin(1), insert(1, schemaName=database), commit(1), ps=1)

    pipeline.reader.start()
    pipeline.wait_for_rows(lambda rows: len(rows) >= 1)

    status, text = pipeline.reader.get("/readyz")
    assert status == 200
    assert "deletes messages that were not read in 5.0 h" in text
    assert "headwater_dts_headroom_seconds" in pipeline.reader.get("/metrics")[1]


def test_two_partitions_are_two_source_partitions(
    subscription: Subscription, database: str, kafka_broker: KafkaBroker
) -> None:
    """Each decoder reads one; both publish to the source's changes topic, each to a Kafka partition of its own."""
    settings = KafkaSettings(bootstrap_servers=kafka_broker.bootstrap_servers)
    subscription.topic = f"{subscription.topic}-two"
    ensure_topics(settings, [TopicSpec(name=subscription.topic, kafka_partitions=2)])
    first = subscription.decoder(with_database=False)
    second = ServiceProcess.of(
        "dts_decoder",
        subscription.folder / "second",
        {**first.reader.settings, "subscription": {**first.reader.settings["subscription"], "partition": 1}},  # type: ignore[dict-item]
    )
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for partition in (0, 1):
        entries = [begin(1), insert(partition, schemaName=database), commit(1)]
        data = pb.Entries(items=entries).SerializeToString()
        value = pb.Envelope(version=1, total=1, data=data).SerializeToString()
        producer.produce(subscription.topic, value=value, partition=partition, headers=[("ps", b"1")])
    producer.flush(120)
    first.reader.start()
    second.start()
    try:
        assert [row.key for row in first.wait_for_rows(lambda rows: len(rows) >= 1)] == [{"id": 0}]
        assert json.dumps([row.key for row in _of_partition(first, 1)]) == '[{"id": 1}]'
    finally:
        second.stop()


def _of_partition(pipeline: ReaderPipeline, partition: int) -> list[PublishedRow]:
    pipeline.partition = partition
    return pipeline.wait_for_rows(lambda rows: len(rows) >= 1)
