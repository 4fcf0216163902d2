"""Debezium's Oracle connector: the part of each property that stands in a source's document."""

import re
from collections.abc import Mapping
from typing import Final

from libs.config.bounds import bound_mistakes
from libs.config.load import convert_document
from libs.mesh.documents import SNAPSHOT_MODES, OracleDocument
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
)
from libs.migrate.oracle_properties import ORACLE_PROPERTIES
from libs.source.oracle.settings import LackingValues
from libs.types.value_modes import IntervalMode, ZeroScaleMode

_DESTINATION: Final = re.compile(r"(?:LOG_ARCHIVE_DEST_)?(\d+)", re.IGNORECASE)
_CONDITION: Final = re.compile(r"\s*SELECT\s+\*\s+FROM\s+\S+\s+WHERE\s+(.+)", re.IGNORECASE | re.DOTALL)


def finish_oracle(config: Mapping[str, str], migration: Migration, mistakes: list[str]) -> None:
    """The tables of the SELECTs, and the kind; then the document is judged as ``headwater up`` would judge it."""
    document = migration.document = {"kind": "oracle", **migration.document}
    snapshot = document.get("snapshot", {})
    overrides = snapshot.pop("select_overrides", {})
    kept = {name: found[1].strip() for name, select in overrides.items() if (found := _CONDITION.fullmatch(select))}
    if kept:
        snapshot["select_overrides"] = kept
    elif not snapshot:
        document.pop("snapshot", None)
    migration.left_out += [
        f"snapshot.select.statement.overrides.{name}: snapshot.select_overrides takes a condition, and this is no "
        "SELECT * … WHERE <condition>: write the condition"
        for name in overrides.keys() - kept.keys()
    ]
    if mistakes:
        return
    good = convert_document(OracleDocument, document, place="", mistakes=mistakes)
    if good is not None:
        mistakes.extend(bound_mistakes(good))


def _snapshot_mode(value: str, migration: Migration) -> None:
    """Ours by Debezium's names; those that Oracle's reader does not follow have initial in their place."""
    offered = SNAPSHOT_MODES["oracle"]
    if value.lower() in offered:
        choice("snapshot.mode", {mode: mode for mode in offered})(value, migration)
    else:
        migration.left_out.append(f"snapshot.mode = {value}: initial stands; offered are {', '.join(offered)}")


def _destinations(value: str, migration: Migration) -> None:
    """``LOG_ARCHIVE_DEST_2`` is DEST_ID 2."""
    found = []
    for part in filter(None, (part.strip() for part in value.split(","))):
        match = _DESTINATION.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is no LOG_ARCHIVE_DEST_<number>")
        found.append(int(match[1]))
    group(migration, "mining.archive_destinations", found)


def _names(path: str) -> Carry:
    """A list of names."""
    return lambda value, migration: group(migration, path, [name.strip() for name in value.split(",") if name.strip()])


def _session_max(value: str, migration: Migration) -> None:
    """0 is no bound, and sessions here always have one."""
    if value != "0":
        milliseconds("mining.session_max_s")(value, migration)


_CARRIED: Final[Mapping[str, Carry]] = {
    **{name: carry for name, carry in ALIKE.items() if name != "bigint.unsigned.handling.mode"},
    "database.hostname": text("database.host"),
    "database.port": number("database.port"),
    "database.user": text("database.user"),
    "database.password": lambda value, migration: group(migration, "database.password", PASSWORD),
    "database.dbname": text("database.service_name"),
    "database.pdb.name": text("database.pdb_name"),
    "schema.include.list": patterns("include_tables", r"(?:{})\..*"),
    "schema.exclude.list": patterns("exclude_tables", r"(?:{})\..*"),
    "interval.handling.mode": choice("values.interval", names_of(IntervalMode)),
    "legacy.decimal.handling.strategy": choice(
        "values.zero_scale_numbers", {"false": ZeroScaleMode.EXACT.value, "true": ZeroScaleMode.INTEGER.value}
    ),
    "lob.enabled": choice(
        "lacking_values", {"true": LackingValues.READ_AGAIN.value, "false": LackingValues.UNAVAILABLE.value}
    ),
    "snapshot.mode": _snapshot_mode,
    "snapshot.select.statement.overrides": not_carried,
    "incremental.snapshot.chunk.size": number("snapshot.incremental_chunk_rows"),
    "signal.data.collection": text("signal_table"),
    "provide.transaction.metadata": switch("transaction_metadata"),
    "archive.destination.name": _destinations,
    "log.mining.session.max.ms": _session_max,
    "log.mining.username.include.list": _names("mining.users.include"),
    "log.mining.username.exclude.list": _names("mining.users.exclude"),
    "log.mining.clientid.include.list": _names("mining.client_ids.include"),
    "log.mining.clientid.exclude.list": _names("mining.client_ids.exclude"),
}

ORACLE: Final = Connector(
    name="Oracle",
    class_name="io.debezium.connector.oracle.OracleConnector",
    properties=ORACLE_PROPERTIES,
    carried=_CARRIED,
    required=("database.hostname", "database.user", "database.dbname"),
    skips_truncate=True,
)
