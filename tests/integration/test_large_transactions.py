"""Transactions larger than a reader's memory, through the whole of one: MySQL, the reader's process, Kafka."""

import re
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from libs.events.names import changes_topic
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch
from tests.conftest import MysqlServer
from tests.integration.reader_pipeline import ReaderPipeline

ROWS = 12_000
ROW_BYTES = 100_000
MAX_RSS_MB = 400
"""A third of the transaction: what the reader holds does not grow with it."""


def test_a_transaction_of_more_than_a_gigabyte_is_read_in_bounded_memory(
    start_reader: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str
) -> None:
    """Every row once, in order, all of them visible at once; the reader's peak memory stays below a third of it."""
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)", database=database)
    pipeline = start_reader()
    pipeline.reader.is_alone = True
    pipeline.reader.start()
    pipeline.wait_for_log()

    with (
        mysql_server.connect(database, autocommit=False, read_timeout=600) as connection,
        connection.cursor() as cursor,
    ):
        for first in range(0, ROWS, 200):
            cursor.execute(
                "INSERT INTO t WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < 199) "
                f"SELECT {first} + n, REPEAT(CHAR(97 + n % 26), {ROW_BYTES}) FROM s"
            )
        connection.commit()
    ids = rows_in_order(pipeline)

    assert ids == [*range(ROWS)]
    assert peak_rss_mb(pipeline) < MAX_RSS_MB


def rows_in_order(pipeline: ReaderPipeline) -> list[int]:
    """The keys of all rows, none of whose values is kept: the whole is too large for the test as well."""
    consumer = Consumer(
        {
            "bootstrap.servers": pipeline.kafka.bootstrap_servers,
            "group.id": "test-reads",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 65_536,
        }
    )
    consumer.assign([TopicPartition(changes_topic(pipeline.source), 0, 0)])
    ids: list[int] = []
    try:
        while len(ids) < ROWS:
            message = consumer.poll(300.0)
            assert message is not None, pipeline.reader.log_text[-2000:]
            assert message.error() is None
            for entry in ChangeBatch.FromString(message.value() or b"").entries:
                ids += [int(re.sub(rb"\D", b"", key)) for key in entry.run.keys]
    finally:
        consumer.close()
    return ids


def peak_rss_mb(pipeline: ReaderPipeline) -> float:
    """Of the reader's process."""
    assert pipeline.reader.running is not None
    status = Path(f"/proc/{pipeline.reader.running.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024
