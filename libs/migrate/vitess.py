"""Debezium's Vitess connector: the part of each property that stands in a source's document."""

from collections.abc import Mapping
from typing import Any, Final

from libs.config.load import convert_document
from libs.mesh.documents import SNAPSHOT_MODES, VitessDocument
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
from libs.migrate.vitess_offsets import Start
from libs.migrate.vitess_properties import VITESS_PROPERTIES
from libs.source.vitess.settings import REMOVABLE_FIELDS, TabletType, TransactionMetadata, keyspace_mistakes
from libs.source.vitess.vgtid import format_vgtid, parse_vgtid

_ORDERED_FACTORY: Final = "VitessOrderedTransactionMetadataFactory"
_TRANSFORM: Final = "io.debezium.connector.vitess.transforms."
_LONGEST_KEEPALIVE_MS: Final = 86_400_000


def finish_keyspace(
    config: Mapping[str, str], migration: Migration, start: Start | None, mistakes: list[str], *, has_offsets: bool
) -> None:
    """Settings that several properties, or the offsets, decide together; then the document is judged as ``headwater up``
    would judge it."""
    document = migration.document = {"kind": "vitess", **migration.document}
    _transactions(config, document)
    _transforms(config, migration)
    if start is not None:
        document["start_vgtid"] = format_vgtid(start.vgtid)
        migration.left_out += start.notes
    elif not has_offsets:
        begins = f"start_vgtid {document['start_vgtid']!r}" if "start_vgtid" in document else "snapshot.mode"
        migration.left_out.append(
            f"the connector's offsets: are not given, so the source begins as {begins} says; to go on where the connector "
            "stands, stop it, and give --offsets the answer of GET /connectors/<name>/offsets"
        )
    _tasks(config, migration, start, mistakes)
    if mistakes:
        return
    good = convert_document(VitessDocument, document, place="", mistakes=mistakes)
    if good is not None:
        mistakes.extend(keyspace_mistakes(good))


def _transactions(config: Mapping[str, str], document: dict[str, Any]) -> None:
    if config.get("provide.transaction.metadata", "").lower() == "true":
        is_ordered = config.get("transaction.metadata.factory", "").endswith(_ORDERED_FACTORY)
        chosen = TransactionMetadata.ORDERED if is_ordered else TransactionMetadata.ON
        document.setdefault("events", {})["transaction_metadata"] = chosen.value


def _transforms(config: Mapping[str, str], migration: Migration) -> None:
    """Three of the connector's own have settings here; every other one is reported by its properties."""
    taken, kept_back = [], []
    for name in filter(None, (part.strip() for part in config.get("transforms", "").split(","))):
        kind = config.get(f"transforms.{name}.type", "")
        if kind == f"{_TRANSFORM}UseLocalVgtid":
            group(migration, "events.use_local_vgtid", True)
        elif kind == f"{_TRANSFORM}FilterTransactionTopicRecords":
            group(migration, "events.filter_transaction_topic", True)
        elif kind == f"{_TRANSFORM}RemoveField":
            fields = [part.strip() for part in config.get(f"transforms.{name}.field_names", "").split(",")]
            group(migration, "events.remove_fields", [field for field in fields if field in REMOVABLE_FIELDS])
            kept = [field for field in fields if field and field not in REMOVABLE_FIELDS]
            kept_back += [f"RemoveField of {field}: consumers cannot do without it, it stays" for field in kept]
        else:
            continue
        taken.append(name)
    others = [part for part in config.get("transforms", "").split(",") if part.strip() not in taken]
    starts = tuple(f"transforms.{name}." for name in taken)
    migration.left_out[:] = [
        line
        for line in migration.left_out
        if not (starts and line.startswith(starts)) and not (line.startswith("transforms:") and not others)
    ] + kept_back


def _tasks(config: Mapping[str, str], migration: Migration, start: Start | None, mistakes: list[str]) -> None:
    """As many as the connector has: with one offset it has one task, and never more than shards."""
    asked = config.get("tasks.max", "1")
    if not asked.isdigit() or int(asked) < 1:
        mistakes.append(f"tasks.max: {asked!r} is no number of tasks; 1 or more")
        return
    if config.get("vitess.offset.storage.per.task", "").lower() != "true":
        if int(asked) > 1:
            migration.left_out.append(
                f"tasks.max = {asked}: the connector has one task without vitess.offset.storage.per.task, and so has the "
                f"source; tasks: {asked} in the document has the shards read by so many"
            )
        return
    shards = migration.document.get("shards") or ([entry.shard for entry in start.vgtid] if start is not None else [])
    tasks = min(int(asked), len(shards)) if shards else int(asked)
    if tasks < int(asked):
        migration.left_out.append(
            f"tasks.max = {asked}: there are {tasks} shard(s), and one without a shard has nothing to read"
        )
    if tasks > 1:
        migration.document["tasks"] = tasks


def _headers(value: str, migration: Migration) -> None:
    """``name:value,name:value``."""
    for part in filter(None, (part.strip() for part in value.split(","))):
        name, colon, text = part.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"{part!r} is not <name>:<value>")
        headers = migration.document.setdefault("vtgate", {}).setdefault("headers", {})
        headers[name.strip().lower()] = text.strip()


def _shards(value: str, migration: Migration) -> None:
    migration.document["shards"] = [part.strip() for part in value.split(",") if part.strip()]


def _vgtid(value: str, migration: Migration) -> None:
    if value.strip().startswith("["):
        parse_vgtid(value)
    if value.strip():
        migration.document["start_vgtid"] = value.strip()


def _gtid(value: str, migration: Migration) -> None:
    """The older property gives way to ``vitess.vgtid``."""
    if value.strip():
        migration.document.setdefault("start_vgtid", value.strip())


def _snapshot_mode(value: str, migration: Migration) -> None:
    if value.lower() in ("configuration_based", "custom"):
        migration.left_out.append(f"snapshot.mode = {value.lower()}: initial stands; a signal copies other tables")
        return
    known = {mode: mode for mode in SNAPSHOT_MODES["vitess"]}
    choice("snapshot.mode", {**known, "schema_only": "no_data"})(value, migration)


def _copied_tables(value: str, migration: Migration) -> None:
    patterns("include_tables", "{}")(value, copied := Migration(migration.source))
    group(migration, "snapshot.include_tables", copied.document.get("include_tables", []))


def _keepalive(value: str, migration: Migration) -> None:
    """The connector's default is never, as a number of milliseconds that no clock reaches."""
    if value.isdigit() and int(value) > _LONGEST_KEEPALIVE_MS:
        migration.left_out.append(
            f"vitess.keepalive.interval.ms = {value}: vtgate.keepalive_s is 20: a connection that is dead is found out"
        )
        return
    milliseconds("vtgate.keepalive_s")(value, migration)


def _metadata_factory(value: str, migration: Migration) -> None:
    if not value.endswith((_ORDERED_FACTORY, "DefaultTransactionMetadataFactory")):
        migration.left_out.append(
            f"transaction.metadata.factory = {value}: Debezium's own form, or the connector's ordered one"
        )


def _judged(carry: Carry) -> Carry:
    """An impossible value is refused; a possible one is taken together with others, in ``finish_keyspace``."""
    return lambda value, migration: carry(value, Migration(migration.source))


_TABLET_TYPES: Final = {**names_of(TabletType), "master": TabletType.PRIMARY.value}
_CARRIED: Final[Mapping[str, Carry]] = {
    **ALIKE,
    "tasks.max": not_carried,
    "vitess.offset.storage.per.task": _judged(switch("per_task")),
    "vitess.offset.storage.task.key.gen": _judged(number("number")),
    "vitess.prev.num.tasks": _judged(number("number")),
    "database.hostname": text("vtgate.host"),
    "database.port": number("vtgate.port"),
    "database.user": text("vtgate.user"),
    "database.password": lambda value, migration: group(migration, "vtgate.password", PASSWORD),
    "vitess.keyspace": text("keyspace"),
    "vitess.shard": _shards,
    "vitess.vgtid": _vgtid,
    "vitess.gtid": _gtid,
    "vitess.tablet.type": choice("stream.tablet_type", _TABLET_TYPES),
    "vitess.stop_on_reshard": switch("stream.stop_on_reshard"),
    "vitess.stream.keyspace.heartbeats": switch("stream.stream_keyspace_heartbeats"),
    "vitess.exclude.keyspace.from.table.name": switch("stream.exclude_keyspace_from_table_name"),
    "vitess.keepalive.interval.ms": _keepalive,
    "vitess.grpc.headers": _headers,
    "vitess.grpc.max_inbound_message_size": number("vtgate.max_message_bytes"),
    "connection.validation.timeout.ms": milliseconds("vtgate.timeout_s"),
    "snapshot.mode": _snapshot_mode,
    "snapshot.include.collection.list": _copied_tables,
    "provide.transaction.metadata": _judged(switch("provided")),
    "transaction.metadata.factory": _metadata_factory,
}

VITESS: Final = Connector(
    name="Vitess",
    class_name="io.debezium.connector.vitess.VitessConnector",
    properties=VITESS_PROPERTIES,
    carried=_CARRIED,
    required=("database.hostname", "vitess.keyspace"),
    skips_truncate=False,
)
