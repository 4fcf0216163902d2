"""``python -m tests.fuzz.record``: record the first messages of the corpus again, of a real MySQL, by the stand-in for DTS."""

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from libs.config.connections import KafkaSettings
from libs.kafka.clients import TopicSpec, ensure_topics
from libs.stand_ins.dts.recording import Heading, RecordedMessage, Slice, read_slice, write_recording
from tests.conftest import start_kafka_in, start_mysql_in
from tests.fuzz.__main__ import RECORDING
from tests.integration.dts_stand_in import stand_in
from tests.integration.test_binlog_reader import ALL_TYPES, VALUES

TOPIC = "topic-subs-stand-in"
LENIENT = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
TRAFFIC = (
    LENIENT,
    ALL_TYPES,
    # The row with the longest values would be most of the file.
    *(
        f"INSERT INTO types VALUES ({number}, {values})"
        for number, values in enumerate(VALUES)
        if "70000" not in values
    ),
    "UPDATE types SET id = id + 100 WHERE id < 2",
    "DELETE FROM types WHERE id = 3",
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET gb18030, j JSON, g POINT)",
    "INSERT INTO t VALUES (1, '漢字', '{\"a\": [1, null]}', ST_GeomFromText('POINT(1 2)')), (2, NULL, NULL, NULL)",
    "BEGIN",
    "UPDATE t SET v = 'x' WHERE id = 1",
    "INSERT INTO t (id) VALUES (3)",
    "DELETE FROM t WHERE id = 2",
    "COMMIT",
    "ALTER TABLE t ADD COLUMN w BIT(12) FIRST, MODIFY v VARCHAR(30) CHARACTER SET gbk",
    "INSERT INTO t (id, v, w) VALUES (4, '字', b'101')",
    "RENAME TABLE t TO u",
    "TRUNCATE TABLE u",
    "DROP TABLE u",
)
LAST = b"DROP TABLE"
TIMEOUT_S = 120.0


def main() -> int:
    """The exit code."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        kafka = start_kafka_in(Path(folder) / "kafka", servers)
        mysql = start_mysql_in(Path(folder) / "mysql", servers)
        settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
        ensure_topics(settings, [TopicSpec(name=TOPIC)])
        filling = stand_in(mysql, kafka.bootstrap_servers, TOPIC, max_message_bytes=2_000)
        mysql.execute("CREATE DATABASE shop")
        mysql.execute(*TRAFFIC, database="shop")
        messages: list[RecordedMessage] = []
        deadline_s = time.monotonic() + TIMEOUT_S
        while not any(LAST in message.value for message in messages):
            assert time.monotonic() < deadline_s, f"{len(messages)} messages, and the last is not among them"
            messages = list(read_slice(settings, Slice(TOPIC), group_id="fuzz"))
        filling.stop()
        RECORDING.parent.mkdir(parents=True, exist_ok=True)
        heading = Heading(topic=TOPIC, is_masked=False, recorded_at_us=time.time_ns() // 1_000)
        count = write_recording(RECORDING, heading, messages)
    sys.stdout.write(f"{count} messages in {RECORDING}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
