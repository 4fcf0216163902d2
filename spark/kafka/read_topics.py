"""From a tenant's row topics to events: one row an event, its key and its row image still text.

Which table and version an event belongs to stands in its topic and headers, so nothing is parsed before events are
split by them, and a row's JSON is parsed once, with its own table's schema.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from libs.config.connections import KafkaSettings, SaslMechanism
from libs.errors import InvalidSettings
from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER, sink_request_topics, transactions_topic
from libs.types.order import SORT_KEY_LENGTH
from libs.types.tenant import TenantSpec
from spark.kafka.kafka_ranges import OffsetRange, records_of
from spark.transforms.cut_envelope import cut_envelope, payload_of

_HEADERS: Final = {"order": ORDER_HEADER, "schema_version": SCHEMA_VERSION_HEADER}
"""Columns of an event that are the router's headers."""
_TOKENS: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
"""Of Kafka's clients: it asks the identity provider itself."""
_PARTS_PER_CORE = 2
_KAFKA_TIMEOUT_MS = 30_000
_RECORDS_PER_POLL = 5_000
_MAX_FETCH_WAIT_MS = 10
_MOST_FETCHED_BYTES = 16_000_000
"""By a task at once: some hundred small Kafka partitions, or of larger ones a megabyte each."""


def topic_pattern(tenant: TenantSpec) -> str:
    """Java regular expression of the tenant's row topics, ``<tenant>.<source>.<database>.<table>``, of those of requests to its
    sink, and of no others.

    It does not name the tenant's sources: a source that leaves the document must not look like lost partitions.
    """
    others = [re.escape(transactions_topic(tenant.tenant, source.name)) for source in tenant.sources]
    rows = rf"(?!(?:{'|'.join([*others, 'headwater'])})$){re.escape(tenant.tenant)}\.(?!headwater\.)[^.]+\.[^.]+\..+"
    requests = "|".join(map(re.escape, sink_request_topics(tenant.tenant)))
    return rf"^(?:{rows}|{requests})$"


def parts_of_batch(spark: SparkSession) -> int:
    """Into how many parts a micro-batch is put at most, so many tasks a table has."""
    return _PARTS_PER_CORE * spark.sparkContext.defaultParallelism


def read_range(
    spark: SparkSession,
    kafka: KafkaSettings,
    topic: str,
    from_offsets: Mapping[int, int],
    to_offsets: Mapping[int, int],
    *,
    with_before: bool,
    fails_on_loss: bool = True,
) -> DataFrame:
    """The events of one topic between two offsets a Kafka partition, the end excluded. ``fails_on_loss``: see
    ``read_records``."""
    ranges = {topic: (from_offsets, to_offsets)}
    return read_ranges(spark, kafka, ranges, with_before=with_before, fails_on_loss=fails_on_loss)


def read_ranges(
    spark: SparkSession,
    kafka: KafkaSettings,
    ranges: Mapping[str, OffsetRange],
    *,
    with_before: bool,
    fails_on_loss: bool = True,
) -> DataFrame:
    """The events of several topics, as ``read_range`` has those of one."""
    return _records(spark, kafka, ranges, fails_on_loss=fails_on_loss, headers=_HEADERS).transform(
        _events, with_before=with_before
    )


def read_records(
    spark: SparkSession,
    kafka: KafkaSettings,
    topic: str,
    from_offsets: Mapping[int, int],
    to_offsets: Mapping[int, int],
    *,
    fails_on_loss: bool = True,
) -> DataFrame:
    """The same as they lie in Kafka: ``key``, ``value``, ``headers``, ``partition``, ``offset`` …

    Records that Kafka has no more fail it; without ``fails_on_loss`` there are only those that it has.
    """
    return _records(spark, kafka, {topic: (from_offsets, to_offsets)}, fails_on_loss=fails_on_loss, headers={})


def _records(
    spark: SparkSession,
    kafka: KafkaSettings,
    ranges: Mapping[str, OffsetRange],
    *,
    fails_on_loss: bool,
    headers: Mapping[str, str],
) -> DataFrame:
    return records_of(
        spark,
        kafka_options(kafka),
        ranges,
        most_parts=parts_of_batch(spark),
        fails_on_loss=fails_on_loss,
        headers=headers,
    )


def kafka_options(kafka: KafkaSettings) -> dict[str, str]:
    """Options of Spark's Kafka reader; only committed transactions are read."""
    return {**{f"kafka.{name}": value for name, value in consumer_options(kafka).items()}, "includeHeaders": "true"}


def consumer_options(kafka: KafkaSettings) -> dict[str, str]:
    """Of one of Kafka's consumers, by its own names; it reads committed transactions alone."""
    return {
        **client_options(kafka),
        "isolation.level": "read_committed",
        "max.poll.records": str(_RECORDS_PER_POLL),
        "fetch.max.bytes": str(_MOST_FETCHED_BYTES),
        # Nothing here waits for events: the requested ones are there.
        "fetch.max.wait.ms": str(_MAX_FETCH_WAIT_MS),
        # By Kafka's default a consumer that asks for a topic which was deleted meanwhile makes it again, also where its tenant
        # was erased.
        "allow.auto.create.topics": "false",
    }


def client_options(kafka: KafkaSettings) -> dict[str, str]:
    """Of any client of Kafka's, by its own names: whom it asks, and as whom."""
    options = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol.value,
        "metadata.max.age.ms": "2000",
        "default.api.timeout.ms": str(_KAFKA_TIMEOUT_MS),
        # Half the cost of a consumer is to register its metrics, at which nobody looks, and to remove them.
        "auto.include.jmx.reporter": "false",
        "enable.metrics.push": "false",
    }
    if kafka.sasl_mechanism is not None:
        options["sasl.mechanism"] = kafka.sasl_mechanism.value
        options["sasl.jaas.config"] = _jaas_config(kafka)
    if kafka.oauth is not None:
        options["sasl.login.callback.handler.class"] = _TOKENS
        options["sasl.oauthbearer.token.endpoint.url"] = kafka.oauth.token_url
    if kafka.ssl_ca_file is not None:
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.location"] = kafka.ssl_ca_file
    if kafka.ssl_certificate_file is not None and kafka.ssl_key_file is not None:
        options["ssl.keystore.type"] = "PEM"
        options["ssl.keystore.certificate.chain"] = _text("ssl_certificate_file", kafka.ssl_certificate_file)
        options["ssl.keystore.key"] = _text("ssl_key_file", kafka.ssl_key_file)
    return options


def _text(setting: str, file: str) -> str:
    """Kafka's Java clients take one file for both, or the texts of two."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidSettings("kafka", [f"{setting}: {file} cannot be read"]) from error


def _jaas_config(kafka: KafkaSettings) -> str:
    """Kafka documentation, "Authentication using SASL": the login module of the mechanism, with the user in it."""
    if kafka.oauth is not None:
        oauth = kafka.oauth
        given = {"clientId": oauth.client_id, "clientSecret": oauth.client_secret.reveal(), "scope": oauth.scope}
        if oauth.ca_file is not None:
            given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": oauth.ca_file}
        return _login("oauthbearer.OAuthBearer", given)
    module = "plain.Plain" if kafka.sasl_mechanism is SaslMechanism.PLAIN else "scram.Scram"
    password = kafka.sasl_password.reveal() if kafka.sasl_password else ""
    return _login(module, {"username": kafka.sasl_username or "", "password": password})


def _login(module: str, given: Mapping[str, str | None]) -> str:
    quoted = {
        name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in given.items() if value is not None
    }
    options = " ".join(f'{name}="{value}"' for name, value in quoted.items())
    return f"org.apache.kafka.common.security.{module}LoginModule required {options};"


def events_of(records: DataFrame, *, with_before: bool = False) -> DataFrame:
    """Kafka records as events. Tombstones are gone: the delete event before each one says all that it says.

    ``key`` and ``image`` are JSON text; ``key`` is NULL where the record has none (see also ``cut_envelope``).
    """
    headers = {column: _header(header) for column, header in _HEADERS.items()}
    return records.withColumns(headers).transform(_events, with_before=with_before)


def _events(records: DataFrame, *, with_before: bool) -> DataFrame:
    """Of records with columns for the headers, too: a query that looks for them itself hands each record from one step to the
    next as a copy."""
    return (
        records.where(sf.col("value").isNotNull())
        .select(
            "topic",
            sf.col("partition").alias("kafka_partition"),
            "offset",
            payload_of(sf.col("key").cast("string")).alias("key"),
            # Another text would stand above every order that comes after it.
            sf.when(sf.length("order") == SORT_KEY_LENGTH, sf.col("order")).alias("order"),
            sf.col("schema_version").cast("int").alias("schema_version"),
            sf.col("value").cast("string").alias("text"),
        )
        .transform(cut_envelope, with_before=with_before)
    )


def _header(name: str) -> Column:
    """The text of the last header of that name."""
    matching = sf.filter("headers", lambda header: header["key"] == name)
    return sf.try_element_at(matching, sf.lit(-1))["value"].cast("string")
