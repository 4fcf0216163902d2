"""Debezium's MySQL connector: the part of each property that stands in a source's document."""

from collections.abc import Mapping
from typing import Final

from libs.migrate.carry import (
    ALIKE,
    PASSWORD,
    Carry,
    Connector,
    Migration,
    choice,
    group,
    milliseconds,
    names_of,
    not_carried,
    number,
    patterns,
    switch,
    text,
    whole_seconds,
)
from libs.migrate.properties import PROPERTIES
from libs.source.mysql.settings import SnapshotLock, TlsMode
from libs.source.snapshot_mode import SnapshotMode


def _snapshot_mode(value: str, migration: Migration) -> None:
    """Ours by Debezium's names; those that a plug-in of Debezium's would answer have no counterpart."""
    if value.lower() in ("configuration_based", "custom"):
        migration.left_out.append(
            f"snapshot.mode = {value.lower()}: initial stands; see docs/snapshots.md for the others"
        )
        return
    choices = {**names_of(SnapshotMode), "schema_only_recovery": SnapshotMode.RECOVERY.value}  # its name before 2.6
    choice("snapshot.mode", choices)(value, migration)


def _locking_mode(value: str, migration: Migration) -> None:
    """Of Debezium's locks ours has the shortest, or none."""
    if value.lower() in ("extended", "custom"):
        migration.left_out.append(
            f"snapshot.locking.mode = {value}: snapshot.lock is minimal: rows are read after the lock, at its one moment"
        )
        return
    choice("snapshot.lock", {**names_of(SnapshotLock), "minimal_percona": SnapshotLock.MINIMAL.value})(value, migration)


def _java_key_store(name: str, ours: str) -> Carry:
    """Ours are PEM files; a Java key store is not one under any name."""

    def carry(value: str, migration: Migration) -> None:
        migration.left_out.append(
            f"{name} = {value}: a Java key store; write its content as PEM, and name that: {ours}"
        )

    return carry


_CARRIED: Final[Mapping[str, Carry]] = {
    **ALIKE,
    "database.hostname": text("database.host"),
    "database.port": number("database.port"),
    "database.user": text("database.user"),
    "database.password": lambda value, migration: group(migration, "database.password", PASSWORD),
    "connect.timeout.ms": milliseconds("database.connect_timeout_s"),
    "database.ssl.mode": choice("database.tls_mode", names_of(TlsMode)),
    "database.ssl.truststore": _java_key_store("database.ssl.truststore", "database.tls_ca_file"),
    "database.ssl.keystore": _java_key_store(
        "database.ssl.keystore", "database.tls_certificate_file and database.tls_key_file"
    ),
    "gtid.source.includes": patterns("gtid_source_includes", "{}"),
    "gtid.source.excludes": patterns("gtid_source_excludes", "{}"),
    "database.server.id": number("replica_server_id"),
    "database.include.list": patterns("include_tables", r"(?:{})\..*"),
    "database.exclude.list": patterns("exclude_tables", r"(?:{})\..*"),
    "snapshot.mode": _snapshot_mode,
    "snapshot.locking.mode": _locking_mode,
    "snapshot.lock.timeout.ms": whole_seconds("snapshot.lock_wait_s"),
    "snapshot.max.threads": number("snapshot.readers"),
    "snapshot.select.statement.overrides": not_carried,
    "incremental.snapshot.chunk.size": number("snapshot.incremental_chunk_rows"),
    "signal.data.collection": text("signal_table"),
    "provide.transaction.metadata": switch("transaction_metadata"),
}

MYSQL: Final = Connector(
    name="MySQL",
    class_name="io.debezium.connector.mysql.MySqlConnector",
    properties=PROPERTIES,
    carried=_CARRIED,
    required=("database.hostname", "database.user"),
    skips_truncate=True,
)
