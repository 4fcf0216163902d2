"""The stand-in for Tencent's DTS, run by a test; and the work that DTS's Kafka does by itself."""

import itertools
import threading
import time

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from libs.source.mysql.settings import DatabaseSettings
from libs.stand_ins.dts.producer import ProducerSettings, StandIn
from tests.conftest import MysqlServer

TIMEOUT_S = 120.0
_REPLICA_SERVER_IDS = itertools.count(9_001)


class RunningStandIn:
    """Writes the server's log to the topic, in a thread, until ``stop``."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._stand_in = StandIn(settings)
        self._thread = threading.Thread(target=self._stand_in.run, name="dts-stand-in", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stand_in.stop = True
        self._thread.join(TIMEOUT_S)


def stand_in(
    server: MysqlServer,
    bootstrap_servers: str,
    topic: str,
    *,
    checkpoint_every_s: float = 0.5,
    max_message_bytes: int = 900_000,
) -> RunningStandIn:
    """Started, after all that the server has executed so far or the topic's last CHECKPOINT."""
    return RunningStandIn(
        ProducerSettings(
            database=DatabaseSettings(host=server.host, port=server.port, user="root"),
            bootstrap_servers=bootstrap_servers,
            topic=topic,
            replica_server_id=next(_REPLICA_SERVER_IDS),
            checkpoint_every_s=checkpoint_every_s,
            max_message_bytes=max_message_bytes,
        )
    )


def topic_end(bootstrap_servers: str, topic: str) -> int:
    """The offset that comes next."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "test-looks"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)[1])
    finally:
        consumer.close()


def delete_records(bootstrap_servers: str, topic: str) -> None:
    """As retention does: everything up to now is gone, once the messages that are written just now have come."""
    time.sleep(1.0)  # the stand-in's last messages are under way
    end = topic_end(bootstrap_servers, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, end)]).values():
        future.result(timeout=TIMEOUT_S)
