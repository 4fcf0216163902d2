"""A record in a tenant's own topic that has its query begin a micro-batch: Spark begins none where nothing is new.

A parked table is tried again with a batch. Of a quiet tenant none would come.
"""

from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from libs.errors import TransientError
from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER, wakes_topic
from libs.sink_state.wake import Wake, encode_wake
from libs.types.order import EventOrder
from libs.types.tenant import TenantSpec
from spark.jvm.errors import described
from spark.kafka.producer import send_record
from spark.pending.letters import create_topic

_HEADERS: Final = {
    # In the sink's stream every record has an order and a version.
    ORDER_HEADER: EventOrder(epoch=0, rank=0, tx_ordinal=0).sort_key().encode(),
    SCHEMA_VERSION_HEADER: b"0",
}


def wake(spark: SparkSession, kafka: KafkaSettings, tenant: TenantSpec) -> None:
    """Durable when this returns: a batch comes.

    Raises:
        TransientError: Kafka does not take it; try again.
    """
    topic = wakes_topic(tenant.tenant)
    create_topic(spark, kafka, topic, tenant.topics.replication_factor)
    try:
        send_record(spark, kafka, topic, encode_wake(Wake()), headers=_HEADERS)
    except Py4JJavaError as error:
        raise TransientError(f"topic {topic} cannot be written: {described(error)}") from error
