"""Requests to a tenant's sink, as a micro-batch holds them: records of topics that it reads in its stream.

A batch that comes again holds the same ones.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import structlog
from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from spark.kafka.read_topics import read_records
from spark.transforms.survey import Slice

Request = TypeVar("Request")

log = structlog.get_logger()


def read_requests(
    spark: SparkSession, kafka: KafkaSettings, parts: Sequence[Slice], topic: str, decode: Callable[[bytes], Request]
) -> list[Request]:
    """Those to ``topic`` among the ``parts`` of a batch, as they came.

    A record that ``decode`` takes for none (msgspec.DecodeError) is passed over, with a line in the log.
    """
    found = []
    for part in parts:
        if part.topic != topic:
            continue
        records = read_records(spark, kafka, topic, part.from_offsets, part.to_offsets).collect()
        for record in sorted(records, key=lambda record: (record.partition, record.offset)):
            try:
                found.append(decode(bytes(record.value)))
            except msgspec.DecodeError:
                log.warning("sink_request_refused", topic=topic, offset=record.offset)
    return found
