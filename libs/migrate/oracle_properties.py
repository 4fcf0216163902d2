"""Every property of Debezium's Oracle connector, and where Headwater has it.

``headwater migrate debezium`` judges a connector's configuration by it, and docs/debezium-oracle-properties.md is written from
it (``python -m libs.migrate.oracle_properties``). A test holds it against the names that the connector 3.6.1 itself lists
(``tests/golden/debezium-oracle/properties.tsv``).
"""

import sys
from collections.abc import Sequence
from typing import Final

from libs.migrate.properties import PROPERTIES, Property, Where, page_of, rows

_IN_SOURCE: Final = (
    ("lob.enabled", "lacking_values", "true: read_again, as of the commit; false: unavailable"),
    ("connector.class", "kind", "kind: oracle"),
    ("log.mining.username.include.list", "mining.users.include", "by the START of each transaction"),
    ("log.mining.username.exclude.list", "mining.users.exclude", "as log.mining.username.include.list"),
    ("log.mining.clientid.include.list", "mining.client_ids.include", "as log.mining.username.include.list"),
    ("log.mining.clientid.exclude.list", "mining.client_ids.exclude", "as log.mining.username.include.list"),
    ("database.hostname", "database.host", ""),
    ("database.port", "database.port", "1521 where none is given, as Debezium"),
    ("database.user", "database.user", "c##name where the root is mined"),
    ("database.password", "database.password", "never printed; put it in by hand"),
    ("database.dbname", "database.service_name", "the service of the root, or of a database without containers"),
    ("database.pdb.name", "database.pdb_name", "the one pluggable database whose tables are captured"),
    ("schema.include.list", "include_tables", "becomes <schema>\\..* of each"),
    ("schema.exclude.list", "exclude_tables", "becomes <schema>\\..* of each"),
    ("table.include.list", "include_tables", "regular expressions over SCHEMA.TABLE, in the case that Oracle has"),
    ("table.exclude.list", "exclude_tables", "as table.include.list"),
    ("message.key.columns", "key_columns", "a list of `tables` and `columns`; case-sensitive here"),
    (
        "signal.data.collection",
        "signal_table",
        "SCHEMA.TABLE; signals come by headwater.signals too, which needs no table",
    ),
    ("provide.transaction.metadata", "transaction_metadata", ""),
    ("heartbeat.interval.ms", "heartbeat_interval_s", "in seconds; the checkpoint moves without it too"),
    ("event.processing.failure.handling.mode", "failure_handling", "the same names, and dead-letter"),
    (
        "decimal.handling.mode",
        "values.decimal",
        "the same names; a NUMBER without scale is a VariableScaleDecimal with precise",
    ),
    ("binary.handling.mode", "values.binary", "the same names"),
    ("time.precision.mode", "values.time_precision", "the same names"),
    ("interval.handling.mode", "values.interval", "the same names"),
    ("legacy.decimal.handling.strategy", "values.zero_scale_numbers", "false: exact; true: integer"),
    ("unavailable.value.placeholder", "values.unavailable_placeholder", "unset: a row that lacks a value fails"),
    (
        "snapshot.mode",
        "snapshot.mode",
        "the same names; initial stands for configuration_based and custom",
    ),
    ("snapshot.select.statement.overrides", "snapshot.select_overrides", "the condition of each table's SELECT"),
    (
        "snapshot.select.statement.overrides.<table>",
        "snapshot.select_overrides",
        "the table's entry: the condition alone",
    ),
    ("incremental.snapshot.chunk.size", "snapshot.incremental_chunk_rows", ""),
    (
        "archive.destination.name",
        "mining.archive_destinations",
        "DEST_ID, in order of preference: LOG_ARCHIVE_DEST_2 is 2",
    ),
    ("log.mining.session.max.ms", "mining.session_max_s", "in seconds; 600 where none is given"),
    ("custom.metric.tags", "metric_tags", "a mapping; labels on every metric of the reader"),
)
_ALWAYS_SO: Final = (
    ("database.connection.adapter", "", "LogMiner, its rows ordered by commit here", ("logminer",)),
    ("log.mining.strategy", "", "the online catalogue, and our own history where that lacks a table", ("online_catalog",)),
    ("log.mining.read.only", "", "nothing is ever written to the source", ("true",)),
    ("internal.log.mining.read.only", "", "as log.mining.read.only", ("true",)),
    ("log.mining.flush.table.name", "", "nothing is written: the redo is read as far as V$THREAD says that it is written"),
    ("log.mining.query.filter.mode", "", "in: captured tables by name, with rows whose table LogMiner cannot name", ("in",)),
    ("log.mining.transaction.retention.ms", "", "no transaction is ever given up", ("0",)),
    ("log.mining.restart.connection", "", "mining.connection_max_s renews the connection: 3,600 s", ("true",)),
    ("log.mining.buffer.type", "", "memory up to mining.transaction_memory_mb, then files of spill_dir", ("memory",)),
    ("log.mining.buffer.drop.on.stop", "", "spilled rows are of no use after a restart: the position covers them"),
    ("log.mining.buffer.deferred.transaction.<setting>", "", "a transaction is known by its first captured row"),
    ("log.mining.buffer.memory.<setting>", "", "as log.mining.buffer.type"),
    ("log.mining.buffer.track.<setting>", "", "all of them are tracked"),
    ("log.mining.buffer.transaction.events.threshold", "", "no transaction is given up for its size", ("0",)),
    ("log.mining.include.<rows>.events", "", "INTERNAL rows of tables with LOBs are read", ("true",)),
    ("log.mining.archive.log.only.scn.poll.interval.ms", "", "mining.min_pause_s"),
    ("log.mining.log.count.min", "", "mining.window_redo_mb: windows are cut by bytes, not by files"),
    ("log.mining.window.max.ms", "", "a long transaction is kept, in files where it is large"),
    ("archive.log.hours", "", "logs of any age that a view lists", ("0",)),
    ("snapshot.locking.mode", "", "none: a definition is held against its SCN instead (ADR 35)", ("none",)),
    ("snapshot.lock.timeout.ms", "", "nothing is locked"),
    ("snapshot.database.errors.max.retries", "", "transient errors are retried for ever, with growing pauses"),
    ("snapshot.max.threads", "", "one process copies", ("1",)),
    ("incremental.snapshot.watermarking.strategy", "", "each chunk is AS OF an SCN: nothing is written to the source"),
    ("internal.log.mining.transaction.snapshot.boundary.mode", "", "transactions open at the copy's SCN come whole", ("all",)),
    ("internal.log.mining.redo.thread.scn.adjustment", "", "the bound is the redo that is written"),
    ("internal.log.mining.max.scn.deviation.ms", "", "as internal.log.mining.redo.thread.scn.adjustment"),
    ("internal.log.mining.log.query.max.retries", "", "for ever, with pauses; a log that no view lists halts"),
    ("internal.log.mining.log.backoff.<setting>", "", "as internal.log.mining.log.query.max.retries"),
    ("internal.log.mining.resume.position.interval.ms", "", "the position goes with every batch"),
    ("internal.log.mining.sql.relaxed.quote.detection", "", "texts are read strictly; one that cannot be read is reported"),
    ("internal.log.position.check.enable", "", "a log that is gone is found at the start", ("true",)),
    ("internal.snapshot.enhance.predicate.scn", "", "every SELECT of a copy has AS OF SCN"),
    ("internal.object.id.cache.size", "", "schemas are records in memory, for captured tables alone"),
    ("internal.advanced.metrics.enable", "", "docs/metrics.md"),
    ("poll.dispatch.interval.ms", "", "nothing polls: what has come is sent at once"),
    ("sourceinfo.struct.maker", "", "Debezium's own form", ("io.debezium.connector.oracle.OracleSourceInfoStructMaker",)),
)  # fmt: skip
_ABSENT: Final = (
    ("database.url", "", "database.host, port and service_name; a TNS descriptor is not read yet"),
    ("rac.nodes", "", "database.host: one address, such as the cluster's SCAN, reaches every thread's redo"),
    ("log.mining.archive.log.only.mode", "", "online logs are read too", ("false",)),
    ("log.mining.include.redo.sql", "", "source.redo_sql is null: it may hold what a mask hides", ("false",)),
    ("log.mining.path.dictionary", "", "Oracle took dictionaries in files away (ORA-44613)"),
    ("log.mining.continuous.mine", "", "Oracle took it away with 19c", ("false",)),
    ("log.mining.readonly.hostname", "", "the primary is mined"),
    ("log.mining.buffer.infinispan.<setting>", "", "files of spill_dir"),
    ("log.mining.buffer.ehcache.<setting>", "", "as log.mining.buffer.infinispan"),
    ("internal.log.mining.hash.area.size", "", "set it for the user at the server", ("0",)),
    ("internal.log.mining.sort.area.size", "", "as internal.log.mining.hash.area.size", ("0",)),
    ("internal.log.mining.use.cte.query", "", "one query a window", ("false",)),
    ("internal.log.mining.schema_changes.username.exclude.list", "", "recursive statements are known by INFO"),
    ("internal.legacy.snapshot.max.threads", "", "one process copies", ("false",)),
    ("internal.snapshot.scan.all.columns.force", "", "rows are read by ROWID", ("false",)),
    ("openlogreplicator.<setting>", "", "LogMiner alone"),
    ("xstream.<setting>", "", "LogMiner alone"),
    ("database.out.server.name", "", "LogMiner alone"),
    ("capture.mode", "", "the primary is mined", ("primary",)),
    ("secondary.<setting>", "", "the primary is mined"),
    ("snapshot.fetch.size", "", "batches of rows are bounded by the reader"),
    ("query.fetch.size", "", "as snapshot.fetch.size"),
    ("snapshot.tables.order.by.row.count", "", "by name", ("disabled",)),
    ("heartbeat.action.query", "", "not needed: the checkpoint moves with the mined SCN, whatever changed"),
    ("custom.retriable.exception", "", "ORA codes say which errors are retried (docs/oracle.md)"),
    ("database.<setting>", "", "passed to the JDBC driver by Debezium: no JDBC"),
)  # fmt: skip
_OF_MYSQL_ALONE: Final = (
    "connect.", "gtid.", "binlog.", "database.", "driver.", "enable.time", "include.query", "table.ignore.builtin",
    "use.nongraceful", "min.row.count", "read.only", "ddl.parser", "snapshot.new.tables", "inconsistent.",
)  # fmt: skip
"""Beginnings of properties that the Oracle connector lacks."""


def _shared() -> Sequence[Property]:
    """The MySQL connector's, where both connectors have them and we have them alike."""
    own = {row[0] for row in (*_IN_SOURCE, *_ALWAYS_SO, *_ABSENT)}
    return [
        each
        for each in PROPERTIES
        if each.name not in own
        and not each.name.startswith(_OF_MYSQL_ALONE)
        and (each.where is not Where.SOURCE or each.name in ("name", "topic.prefix"))
    ]


_OWN: Final = (
    *rows(Where.SOURCE, *_IN_SOURCE),
    *rows(Where.ALWAYS, *_ALWAYS_SO),
    *rows(Where.ABSENT, *_ABSENT),
)
ORACLE_PROPERTIES: Final = (*_OWN, *_shared())


def page() -> str:
    """docs/debezium-oracle-properties.md."""
    heading = [
        "# The properties of Debezium's Oracle connector",
        "",
        "Every property of Debezium's Oracle connector 3.6.1, and where Headwater has it. Written by",
        "`python -m libs.migrate.oracle_properties`; a test holds it against the names that the connector itself lists.",
        "`headwater migrate debezium CONFIG.json` carries a connector's configuration over ([cli.md](cli.md)).",
        "Properties that are alike in MySQL's connector, and here, stand in [debezium-properties.md](debezium-properties.md).",
        "[oracle.md](oracle.md) says what was tried, and with what.",
    ]
    return page_of(heading, _OWN)


if __name__ == "__main__":
    sys.stdout.write(page())
