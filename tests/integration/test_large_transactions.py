"""Transactions larger than a reader's memory, through the whole of one: MySQL, the reader's process, Kafka."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from libs.events.names import changes_topic
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch
from tests.conftest import MysqlServer
from tests.integration.reader_pipeline import ReaderPipeline
from tests.marks import rest

ROW_BYTES = 100_000
MAX_RSS_MB = 200
"""Far less than either transaction: the reader's memory does not grow with it."""


@pytest.mark.parametrize("rows", [2_500, *rest(12_000, because="of 250 MB in the gate, with the same bound")])
def test_a_transaction_larger_than_memory_is_read_in_bounded_memory(
    start_reader: Callable[..., ReaderPipeline], mysql_server: MysqlServer, database: str, rows: int
) -> None:
    """Every row once, in order; the reader's peak memory stays far below the transaction's size, 250 MB and 1.2 GB."""
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)", database=database)
    pipeline = start_reader()
    pipeline.reader.is_alone = True
    pipeline.reader.start()
    pipeline.wait_for_log()

    with (
        mysql_server.connect(database, autocommit=False, read_timeout=600) as connection,
        connection.cursor() as cursor,
    ):
        for first in range(0, rows, 200):
            cursor.execute(
                "INSERT INTO t WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < 199) "
                f"SELECT {first} + n, REPEAT(CHAR(97 + n % 26), {ROW_BYTES}) FROM s"
            )
        connection.commit()
    ids = rows_in_order(pipeline, rows)

    assert ids == [*range(rows)]
    assert peak_rss_mb(pipeline) < MAX_RSS_MB


def rows_in_order(pipeline: ReaderPipeline, rows: int) -> list[int]:
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
        while len(ids) < rows:
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
