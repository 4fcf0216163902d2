"""Every property of Debezium's MySQL connector, and where Headwater has it.

One table for three readers: ``headwater migrate debezium`` judges a connector's configuration by it,
docs/debezium-properties.md is written from it (``python -m libs.migrate.properties``), and a test holds it against the
names that Debezium 3.6.1's own ``config()`` lists (``tests/golden/debezium-mysql/properties.tsv``).
"""

import enum
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


class Where(enum.Enum):
    """Which document has the setting."""

    SOURCE = "source"
    """``sources/<name>.yaml``"""
    TENANT = "tenant"
    """``tenants/<name>.yaml``: it is each team's own choice."""
    ALWAYS = "always"
    """No setting: the note is always true."""
    ABSENT = "absent"
    """Not offered; the note has the remedy."""


@dataclass(frozen=True, slots=True)
class Property:
    """A property, or a family of them: ``<…>`` stands for any text."""

    name: str
    where: Where
    ours: str
    """The setting's path; empty where there is none."""
    note: str
    same: tuple[str, ...] = ()
    """Without a setting: the values that ask for Headwater's fixed behaviour.

    None named: all values where the behaviour is fixed, no value where it is absent.
    """

    def is_met_by(self, value: str) -> bool:
        """Whether that value, or each part of a list, asks for Headwater's fixed behaviour alone."""
        if not self.same:
            return self.where is Where.ALWAYS
        same = {each.lower() for each in self.same}
        return all(part.strip().lower() in same for part in value.split(","))

    def matches(self, name: str) -> bool:
        """Whether ``name`` is this property, or one of its family; never where the family's name is the user's choice."""
        if self.name.startswith("<"):
            return False
        pattern = ".+".join(re.escape(part) for part in re.split(r"<[^>]*>", self.name))
        return re.fullmatch(pattern, name) is not None


def find(name: str, properties: Sequence[Property] | None = None) -> Property | None:
    """The property of that name, today's or an older one; one that is named whole goes before a family. Without ``properties``
    the MySQL connector's."""
    name = newer_name(name)
    properties = PROPERTIES if properties is None else properties
    exact = next((each for each in properties if each.name == name), None)
    return exact or next((each for each in properties if each.matches(name)), None)


def newer_name(name: str) -> str:
    """Debezium's present name of a property that it called ``name`` until release 2; ``name`` itself if it has stayed."""
    for older, newer in OLDER_NAMES.items():
        stem, family, _ = older.partition("<setting>")
        if name == older or (family and name.startswith(stem) and name != stem):
            return newer.partition("<setting>")[0] + name.removeprefix(stem) if family else newer
    return name


OLDER_NAMES: Final = {
    "column.blacklist": "column.exclude.list",
    "column.whitelist": "column.include.list",
    "database.blacklist": "database.exclude.list",
    "database.history": "schema.history.internal",
    "database.history.<setting>": "schema.history.internal.<setting>",
    "database.server.name": "topic.prefix",
    "database.whitelist": "database.include.list",
    "event.deserialization.failure.handling.mode": "event.processing.failure.handling.mode",
    "table.blacklist": "table.exclude.list",
    "table.whitelist": "table.include.list",
}
"""Names of the connector's releases 0.x and 1.x, and today's."""


def rows(where: Where, *rows: tuple[str, str, str] | tuple[str, str, str, tuple[str, ...]]) -> list[Property]:
    return [Property(row[0], where, *row[1:]) for row in rows]


PROPERTIES: Final = (
    *rows(
        Where.SOURCE,
        ("heartbeat.interval.ms", "heartbeat_interval_s", "in seconds; the checkpoint moves without it too"),
        ("gtid.source.includes", "gtid_source_includes", "the same regular expressions, over server uuids"),
        ("gtid.source.excludes", "gtid_source_excludes", "the same regular expressions, over server uuids"),
        ("name", "", "the file's name"),
        ("topic.prefix", "", "the file's name: it stands in topic names and in source.name"),
        ("connector.class", "kind", "kind: mysql"),
        ("database.hostname", "database.host", ""),
        ("database.port", "database.port", ""),
        ("database.user", "database.user", ""),
        ("database.password", "database.password", "never printed; put it in by hand"),
        ("database.server.id", "replica_server_id", "derived from the document's path where none is given"),
        ("database.include.list", "include_tables", "becomes <database>\\..* of each"),
        ("database.exclude.list", "exclude_tables", "becomes <database>\\..* of each"),
        ("table.include.list", "include_tables", "the same regular expressions, case-sensitive here"),
        ("table.exclude.list", "exclude_tables", "the same regular expressions, case-sensitive here"),
        ("snapshot.mode", "snapshot.mode", "the same names (docs/snapshots.md)"),
        ("snapshot.max.threads", "snapshot.readers", "processes that copy side by side, under one position"),
        (
            "snapshot.locking.mode",
            "snapshot.lock",
            "minimal or none: one global read lock for some milliseconds, or none",
        ),
        (
            "snapshot.lock.timeout.ms",
            "snapshot.lock_wait_s",
            "whole seconds; then the snapshot goes on without the lock",
        ),
        ("snapshot.select.statement.overrides", "snapshot.select_overrides", "a mapping of database.table to SELECT"),
        ("snapshot.select.statement.overrides.<table>", "snapshot.select_overrides", "the table's entry"),
        ("incremental.snapshot.chunk.size", "snapshot.incremental_chunk_rows", ""),
        ("signal.data.collection", "signal_table", "signals come by headwater.signals too, which needs no table"),
        ("time.precision.mode", "values.time_precision", "the same names"),
        ("decimal.handling.mode", "values.decimal", "the same names"),
        ("bigint.unsigned.handling.mode", "values.unsigned_bigint", "the same names"),
        ("binary.handling.mode", "values.binary", "the same names"),
        ("unavailable.value.placeholder", "values.unavailable_placeholder", "unset: a row that lacks a value fails"),
        ("event.processing.failure.handling.mode", "failure_handling", "the same names, and dead-letter"),
        (
            "event.converting.failure.handling.mode",
            "failure_handling",
            "one mode for rows and values; nothing becomes null in silence",
        ),
        ("connect.timeout.ms", "database.connect_timeout_s", "in seconds"),
        ("database.ssl.mode", "database.tls_mode", "the same names"),
        ("database.ssl.truststore", "database.tls_ca_file", "a PEM file: keytool -exportcert -rfc writes it"),
        ("database.ssl.keystore", "database.tls_certificate_file", "a PEM file, its key in tls_key_file"),
        ("custom.metric.tags", "metric_tags", "a mapping; labels on every metric of the reader"),
        ("message.key.columns", "key_columns", "a list of `tables` and `columns`; case-sensitive here"),
        ("provide.transaction.metadata", "transaction_metadata", ""),
    ),
    *rows(
        Where.TENANT,
        ("column.exclude.list", "sources.exclude_columns", "per tenant; the same regular expressions"),
        ("column.include.list", "sources.include_columns", "per tenant; the same, and key columns must match"),
        (
            "column.mask.hash.<algorithm>.with.salt.<salt>",
            "sources.masks.hash",
            "digests salt and text as Debezium's v2 does",
        ),
        (
            "column.mask.hash.v2.<algorithm>.with.salt.<salt>",
            "sources.masks.hash",
            "the same digest; not cut to the column's length",
        ),
        ("column.mask.with.<length>.chars", "sources.masks.constant", "a constant of that many asterisks"),
        ("column.truncate.to.<length>.chars", "sources.masks.truncate_chars", "of texts that are no key"),
        ("skipped.operations", "sources.skip_operations", "c, u, d, t; Debezium skips t by default, Headwater nothing"),
        ("skip.messages.without.change", "sources.skip_unchanged_updates", "of the tenant's columns, as it sees them"),
        ("tombstones.on.delete", "format.tombstones", ""),
        ("include.schema.changes", "topics.schema_changes", ""),
        ("key.converter", "format.kind", "json; avro for AvroConverter, protobuf for ProtobufConverter"),
        ("value.converter", "format.kind", "json; avro for AvroConverter, protobuf for ProtobufConverter"),
        ("key.converter.schemas.enable", "format.schemas", "one switch for key and value"),
        ("value.converter.schemas.enable", "format.schemas", "one switch for key and value"),
        (
            "column.propagate.source.type",
            "format.source_types.columns",
            "the same regular expressions; with format.schemas. Masked columns have none",
        ),
        (
            "datatype.propagate.source.type",
            "format.source_types.types",
            "database.table.TYPE, as MySQL calls it: .*\\.INT UNSIGNED",
        ),
        ("schema.name.adjustment.mode", "format.schema_names", "the same names: none, avro, avro_unicode"),
        ("field.name.adjustment.mode", "format.field_names", "the same names; a sink's columns are named so too"),
        ("sanitize.field.names", "format.field_names", "the older name: true is avro, false is none"),
        ("topic.creation.<group>", "topics.kafka_partitions", "partitions and replication of a tenant's topics"),
    ),
    *rows(
        Where.ALWAYS,
        ("tasks.max", "", "a source has one reader; every partition of work is owned by a lease"),
        ("connect.keep.alive", "", "a lost connection is opened again, with growing pauses", ("true",)),
        ("connect.keep.alive.interval.ms", "", "as connect.keep.alive"),
        (
            "connection.validation.timeout.ms",
            "",
            "the pre-flight asks the server at each start; `headwater validate SOURCE` at any time",
        ),
        ("database.query.timeout.ms", "", "600 s for the first row of a chunk", ("600000",)),
        ("errors.max.retries", "", "transient errors are retried for ever, with growing pauses", ("-1",)),
        ("retriable.restart.connector.wait.ms", "", "as errors.max.retries"),
        ("errors.retry.<setting>", "", "as errors.max.retries"),
        ("extended.headers.enabled", "", "the __debezium.context.* headers are always there", ("true",)),
        (
            "gtid.source.filter.dml.events",
            "",
            "rows of servers that are not included are passed over, DDL counts",
            ("true",),
        ),
        (
            "heartbeat.topics.prefix",
            "",
            "heartbeats go to __debezium-heartbeat.<source>",
            ("__debezium-heartbeat",),
        ),
        ("topic.heartbeat.prefix", "", "as heartbeat.topics.prefix", ("__debezium-heartbeat",)),
        ("include.schema.comments", "", "schema-change events have no comments", ("false",)),
        ("incremental.snapshot.allow.schema.changes", "", "a chunk whose table changed is read again"),
        ("incremental.snapshot.watermarking.strategy", "", "GTID watermarks: nothing is written to the source"),
        ("read.only", "", "nothing is ever written to the source, its signal table is only read", ("true",)),
        ("max.batch.size", "", "batches are bounded by rows and bytes"),
        ("max.queue.size", "", "queues are bounded by batches and bytes"),
        ("max.queue.size.in.bytes", "", "as max.queue.size"),
        ("queue.provider.type", "", "as max.queue.size"),
        ("poll.interval.ms", "", "nothing polls: events are sent at once"),
        ("min.row.count.to.stream.results", "", "every table is streamed"),
        ("query.fetch.size", "", "every table is streamed"),
        ("snapshot.fetch.size", "", "every table is streamed; snapshot.chunk_rows says how many rows one SELECT gives"),
        ("schema.history.internal", "", "schema_history keeps every version in headwater.schema-history"),
        (
            "schema.history.internal.skip.unparseable.ddl",
            "",
            "a statement that is not understood is passed over where it is about no captured table; else the table is "
            "compared with the source, and only that table halts on a contradiction",
            ("false",),
        ),
        (
            "schema.history.internal.store.only.captured.tables.ddl",
            "",
            "schemas of all tables in captured databases are kept, so a table can be added later",
        ),
        (
            "schema.history.internal.store.only.captured.databases.ddl",
            "",
            "as schema.history.internal.store.only.captured.tables.ddl",
        ),
        ("schema.history.internal.<setting>", "", "as schema.history.internal; its Kafka is Headwater's own"),
        (
            "snapshot.query.mode",
            "",
            "select_all; snapshot.select_overrides names other rows to read of a table",
            ("select_all",),
        ),
        (
            "table.ignore.builtin",
            "",
            "mysql, sys, information_schema and performance_schema are never captured",
            ("true",),
        ),
        ("statistics.metrics.enabled", "", "docs/metrics.md"),
        ("use.nongraceful.disconnect", "", "a reader leaves within seconds"),
        ("executor.shutdown.timeout.ms", "", "SIGTERM drains and ends in 10 s"),
        ("exactly.once.support", "", "every hop is exactly once (ADR 1)"),
        ("transaction.boundary", "", "a Kafka transaction never ends inside a source transaction"),
        ("transaction.boundary.interval.ms", "", "as transaction.boundary"),
        ("offset.<setting>", "", "checkpoints are written with the events they cover"),
        ("offsets.<setting>", "", "as offset.<setting>"),
        (
            "guardrail.collections.max",
            "",
            "no limit; memory does not grow with tables that are not captured",
            ("0",),
        ),
        ("guardrail.collections.<setting>", "", "as guardrail.collections.max"),
        (
            "inconsistent.schema.handling.mode",
            "",
            "a row that fits no known schema halts with the remedy",
            ("fail",),
        ),
        (
            "signal.enabled.channels",
            "",
            "topic, signal table, gRPC and `headwater signal` are all heard; neither files nor JMX",
            ("source", "kafka"),
        ),
        (
            "signal.kafka.topic",
            "",
            "signals are read from headwater.signals, on Headwater's Kafka; their key is the source's name",
            ("headwater.signals",),
        ),
        ("signal.kafka.<setting>", "", "as signal.kafka.topic"),
        ("signal.consumer.<setting>", "", "as signal.kafka.topic"),
        ("signal.poll.interval.ms", "", "signals are read as they come"),
        ("topic.delimiter", "", "a dot; a tenant's topics.name may have '_' or '-'", (".",)),
        (
            "topic.naming.strategy",
            "",
            "<tenant>.<source>.<database>.<table>; a tenant's topics.name says another",
            ("io.debezium.schema.SchemaTopicNamingStrategy", "io.debezium.schema.DefaultTopicNamingStrategy"),
        ),
        ("topic.cache.size", "", "topics are known by schema version"),
        ("topic.transaction", "", "<tenant>.<source>.transaction", ("transaction",)),
        (
            "transaction.metadata.factory",
            "",
            "Debezium's own form",
            ("io.debezium.pipeline.txmetadata.DefaultTransactionMetadataFactory",),
        ),
        (
            "sourceinfo.struct.maker",
            "",
            "Debezium's own form",
            ("io.debezium.connector.mysql.MySqlSourceInfoStructMaker",),
        ),
        ("memory.management.<setting>", "", "schemas are records in memory, for captured databases alone"),
        (
            "binlog.buffer.size",
            "",
            "transactions are streamed; only compressed ones are held, beyond 16 MB in spill_dir",
        ),
    ),
    *rows(
        Where.ABSENT,
        ("converters", "", "handling modes and masks only; every type has one form"),
        ("<converter>.<setting>", "", "as converters: of a name that converters lists"),
        ("post.processors", "", "transform after the tenant's topics"),
        ("<post-processor>.<setting>", "", "as post.processors: of a name that post.processors lists"),
        (
            "transforms",
            "",
            "Kafka Connect's: projections and filters are in the tenant's document, other work after the topics",
        ),
        ("transforms.<setting>", "", "as transforms"),
        ("predicates", "", "as transforms"),
        ("predicates.<setting>", "", "as transforms"),
        (
            "enable.time.adjuster",
            "",
            "the server has read two-digit years already; a stored year 18 is year 18",
            ("false",),
        ),
        ("include.query", "", "source.query is null; statements may hold values that a mask hides", ("false",)),
        ("gtid.ignore.on.recovery", "", "a purged position halts with the missing range", ("false",)),
        (
            "gtid.new.channel.position",
            "",
            "of a server that joins, its transactions after the checkpoint are read (earliest)",
            ("earliest",),
        ),
        (
            "snapshot.new.tables",
            "",
            "`headwater signal SOURCE execute-snapshot` copies tables that are added later",
            ("off",),
        ),
        (
            "snapshot.include.collection.list",
            "",
            "snapshot.mode no_data, then `headwater signal SOURCE execute-snapshot` for the tables wanted",
        ),
        ("snapshot.delay.ms", "", "start the reader later", ("0",)),
        ("streaming.delay.ms", "", "start the reader later", ("0",)),
        ("snapshot.max.threads.multiplier", "", "snapshot.readers alone", ("1",)),
        ("legacy.snapshot.max.threads", "", "snapshot.readers alone", ("false",)),
        ("snapshot.mode.<setting>", "", "snapshot.mode itself, or a signal"),
        ("snapshot.query.mode.custom.name", "", "snapshot.select_overrides"),
        ("snapshot.locking.mode.custom.name", "", "as snapshot.locking.mode"),
        ("snapshot.tables.order.by.row.count", "", "by name", ("disabled",)),
        ("heartbeat.action.query", "", "not needed: the checkpoint moves with the server's own heartbeats"),
        ("notification.enabled.channels", "", "logs, metrics and `headwater status`"),
        ("notification.sink.topic.name", "", "as notification.enabled.channels"),
        ("signal.file", "", "`headwater signal`, headwater.signals, the signal table or gRPC"),
        ("custom.sanitize.pattern", "", "secrets print as *** everywhere"),
        (
            "custom.retriable.exception",
            "",
            "MySQL's errors are distinguished by their numbers: those of the world are retried, others halt",
        ),
        ("schema.change.event.exclude.list", "", "a tenant learns of its own tables alone"),
        ("topic.heartbeat.name", "", "as topic.heartbeat.prefix"),
        ("topic.key.<setting>", "", "as topic.regex"),
        ("topic.regex", "", "a tenant's topics.name, and topics.layout: one topic for all of its tables"),
        ("topic.replacement", "", "as topic.regex"),
        (
            "openlineage.integration.enabled",
            "",
            "of the sink job (docs/sinks/settings.md, Lineage): topics to tables",
            ("false",),
        ),
        (
            "openlineage.integration.<setting>",
            "",
            "of the sink job (docs/sinks/settings.md, Lineage): topics to tables",
        ),
        ("ddl.parser.type", "", "one parser (ADR 4)", ("default",)),
        ("ddl.parser.mode", "", "as ddl.parser.type"),
        ("database.initial.statements", "", "set them for the user at the server"),
        ("database.jdbc.driver", "", "no JDBC"),
        ("database.protocol", "", "no JDBC"),
        ("driver.<setting>", "", "no JDBC"),
        (
            "database.allowPublicKeyRetrieval",
            "",
            "the server's key is asked for where no TLS is; database.server_public_key_file names it instead",
            ("true",),
        ),
        ("database.connectionTimeZone", "", "times are read in UTC, as the log has them", ("UTC", "+00:00")),
        ("database.serverTimezone", "", "as database.connectionTimeZone", ("UTC", "+00:00")),
        ("database.<setting>", "", "passed to the JDBC driver by Debezium: no JDBC"),
        ("database.server.id.offset", "", "one connection reads the log"),
        ("database.ssl.keystore.password", "", "PEM files, readable by the reader alone"),
        ("database.ssl.truststore.password", "", "as database.ssl.keystore.password"),
        ("binlog.net.read.timeout", "", "the server's net_read_timeout", ("0",)),
        ("binlog.net.write.timeout", "", "the server's net_write_timeout", ("0",)),
        (
            "header.converter",
            "",
            "format.headers of a tenant: text is SimpleHeaderConverter's, json is JsonConverter's",
        ),
        ("key.converter.<setting>", "", "a schema registry is the installation's: schema_registry.yaml"),
        ("value.converter.<setting>", "", "a schema registry is the installation's: schema_registry.yaml"),
        ("errors.<setting>", "", "a tenant's rows that cannot be delivered go to <tenant>.dead-letter"),
        ("config.action.reload", "", "Kafka Connect's"),
        ("producer.override.<setting>", "", "Kafka Connect's"),
        ("consumer.override.<setting>", "", "Kafka Connect's"),
        ("admin.override.<setting>", "", "Kafka Connect's"),
        ("internal.<setting>", "", "Debezium's own switches"),
    ),
)

_TITLES: Final = {
    Where.SOURCE: ("In the source's document", "`sources/<name>.yaml`"),
    Where.TENANT: (
        "In each tenant's document",
        "`tenants/<name>.yaml`: one reader serves all tenants, and each chooses for itself",
    ),
    Where.ALWAYS: (
        "Always so",
        "no setting is needed. `migrate` reports a value that asks for something else than the last column; where that is "
        "empty, every value is met",
    ),
    Where.ABSENT: (
        "Not offered",
        "and another way. `migrate` reports each, except with a value of the last column",
    ),
}


def page() -> str:
    """docs/debezium-properties.md."""
    heading = [
        "# Debezium's properties",
        "",
        "Every property of Debezium's MySQL connector 3.6.1, and where Headwater has it. Written by",
        "`python -m libs.migrate.properties`; a test holds it against the names that the connector itself lists.",
        "`headwater migrate debezium CONFIG.json` carries a connector's configuration over ([cli.md](cli.md)).",
        "The Vitess connector's properties: [debezium-vitess-properties.md](debezium-vitess-properties.md).",
        "The Oracle connector's properties: [debezium-oracle-properties.md](debezium-oracle-properties.md).",
    ]
    older = ["", "## Older names", "", "Of Debezium 0.x and 1.x; `migrate` reads them as today's.", ""]
    older += ["| then | today |", "|---|---|", *(f"| `{then}` | `{now}` |" for then, now in OLDER_NAMES.items())]
    return page_of(heading, PROPERTIES) + "\n".join(older) + "\n"


def page_of(heading: Sequence[str], properties: Sequence[Property]) -> str:
    """The page of a connector's properties, below its ``heading``."""
    lines = [*heading]
    for where, (title, subtitle) in _TITLES.items():
        own = sorted((each for each in properties if each.where is where), key=lambda each: each.name)
        if not own:
            continue
        lines += ["", f"## {title}", "", f"{subtitle[0].upper()}{subtitle[1:]}.", ""]
        lines += (
            ["| Debezium | ours | how |", "|---|---|---|"]
            if where in _NAMED
            else ["| Debezium | how | as with |", "|---|---|---|"]
        )
        lines += [_row(each) for each in own]
    return "\n".join(lines) + "\n"


_NAMED: Final = (Where.SOURCE, Where.TENANT)


def _row(each: Property) -> str:
    cells = [f"`{each.name}`", each.note.replace("|", "\\|")]
    if each.where in _NAMED:
        cells.insert(1, f"`{each.ours}`" if each.ours else "")
    else:
        cells.append(", ".join(f"`{value}`" for value in each.same))
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.stdout.write(page())
