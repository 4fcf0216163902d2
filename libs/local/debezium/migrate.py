"""A Debezium connector's configuration → our source document, with what could not be carried over.

Both forms of the JSON are read: Kafka Connect's REST form ``{"name":…,"config":{…}}`` and the bare ``config``, with the names
of Debezium's releases from 0.x on. Nothing is guessed and nothing dropped in silence: a misspelt property is refused with the
nearest right name; one that has no place here, or whose value asks for what is not so here, is told with the way that there is
instead; so is a default of Debezium's that is none of ours. No secret is printed or written.
"""

import difflib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from libs.errors import InvalidSettings
from libs.local.debezium.properties import OLDER_NAMES, PROPERTIES, Property, Where, find, newer_name
from libs.source.failure_handling import FailureHandling
from libs.source.key_columns import KeyColumns
from libs.source.mysql.settings import SnapshotLock, SnapshotMode, TlsMode
from libs.types.value_modes import BinaryMode, DecimalMode, TimePrecision, UnsignedBigintMode

PASSWORD: Final = "change-me"  # noqa: S105
"""What stands in the written document: the connector's own is not copied."""
_REQUIRED: Final = ("database.hostname", "database.user")
_NAMING: Final = {"converters": "<converter>.<setting>", "post.processors": "<post-processor>.<setting>"}
"""Properties that list names of the connector's own choice, and the family of what is set under such a name."""
_PASSED_TO_JDBC: Final = "database.<setting>"
_CONVERTING: Final = "event.converting.failure.handling.mode"
_MISSPELT: Final = 0.8
"""``difflib``'s ratio from which a name counts as a slip of the pen: below it stand properties of other products."""
_OVERRIDES: Final = "snapshot.select.statement.overrides.<table>"
_CONNECTOR: Final = "io.debezium.connector.mysql.MySqlConnector"


@dataclass(slots=True)
class Migration:
    """What came of one connector."""

    source: str
    document: dict[str, Any] = field(default_factory=dict)
    """``sources/<source>.yaml``."""
    tenant: list[str] = field(default_factory=list)
    """For each tenant's document, one line each."""
    left_out: list[str] = field(default_factory=list)
    """What was not carried over, and why, one line each."""

    def text(self) -> str:
        """The document as YAML, with the notes as comments."""
        lines = [f"# Written from the Debezium connector {self.source!r} by `headwater migrate debezium`."]
        lines += [f"# for the tenants' documents: {each}" for each in self.tenant]
        lines += [f"# not carried over: {each}" for each in self.left_out]
        return "\n".join(lines) + "\n" + yaml.safe_dump(self.document, sort_keys=False, allow_unicode=True)


def migrate(text: str, *, subject: str, name: str | None = None) -> Migration:
    """Judge every property of a connector's JSON. ``name``: of the source; None: the connector's ``topic.prefix``.

    Raises:
        InvalidSettings: ``subject`` is no configuration of Debezium's MySQL connector, or properties are misspelt or hold
            what they cannot; every mistake is listed.
    """
    config = _config_of(text, subject)
    today = {**{newer_name(key): value for key, value in config.items()}, **config}  # what is given by both: today's
    mistakes: list[str] = []
    prefix = name or today.get("topic.prefix") or today.get("name") or ""
    migration = Migration(re.sub(r"[^a-z0-9-]+", "-", prefix.lower()).strip("-")[:40])
    if not migration.source:
        mistakes.append("topic.prefix: is missing; it names the source (or give --name)")
    elif migration.source != prefix:
        migration.left_out.append(
            f"topic.prefix {prefix!r}: a source's name has lower-case letters, digits and '-' only; topics begin with "
            f"<tenant>.{migration.source}"
        )
    if config.get("connector.class", _CONNECTOR) != _CONNECTOR:
        mistakes.append(f"connector.class: {config['connector.class']!r} is not {_CONNECTOR}")
    families = {
        f"{part.strip()}.": family
        for lists, family in _NAMING.items()
        for part in today.get(lists, "").split(",")
        if part
    }
    for key, value in sorted(
        config.items(), key=lambda item: item[0] == _CONVERTING
    ):  # it gives way to what others say
        newer = newer_name(key)
        if newer != key and newer in config:
            migration.left_out.append(f"{key}: the older name of {newer}, which stands there too")
        elif newer == "database.include.list" and today.get("table.include.list"):
            # Debezium wants a table to match both; ours takes one list, and the names of tables hold their databases.
            migration.left_out.append(f"{key}: table.include.list alone says which tables; see that it names no others")
        else:
            family = next((family for start, family in families.items() if key.startswith(start)), None)
            _judge(key, value, find(key) or (find(family) if family else None), migration, mistakes)
    for key in _REQUIRED:
        if key not in config:
            mistakes.append(f"{key}: is missing")
    _tell_defaults(today, migration)
    if mistakes:
        raise InvalidSettings(subject, mistakes)
    return migration


def _config_of(text: str, subject: str) -> dict[str, str]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidSettings(subject, [f"is no JSON ({error})"]) from error
    config = document.get("config", document) if isinstance(document, dict) else None
    if not isinstance(config, dict) or not config:
        raise InvalidSettings(subject, ['holds no configuration; give {"name": …, "config": {…}} or the config itself'])
    named = {"name": document["name"]} if "config" in document and "name" in document else {}
    return {
        key: json.dumps(value) if isinstance(value, bool | dict | list) else str(value)
        for key, value in {**named, **config}.items()
    }


def _judge(key: str, value: str, known: Property | None, migration: Migration, mistakes: list[str]) -> None:
    if known is None or known.name == _PASSED_TO_JDBC:
        near = _nearest(key)
        if near:
            mistakes.append(f"{key}: Debezium's MySQL connector has no such property; did you mean {near!r}?")
        else:
            no_effect = "Debezium's MySQL connector has no such property: what it was for goes on elsewhere"
            migration.left_out.append(f"{key}: {known.note if known else no_effect}")
        return
    if known.name == _OVERRIDES:
        overrides = migration.document.setdefault("snapshot", {}).setdefault("select_overrides", {})
        overrides[key.removeprefix(_OVERRIDES.partition("<")[0])] = value
        return
    carry = _CARRIED.get(known.name)
    if carry is not None and known.ours and _PROVIDED.fullmatch(value) and not _is_secret(key):
        migration.left_out.append(f"{key} = {value}: Kafka Connect's config provider has it; put it into {known.ours}")
        if known.name in _REQUIRED:
            _group(migration, known.ours, PASSWORD)
    elif carry is not None:
        try:
            carry(value, migration)
        except ValueError as error:
            mistakes.append(f"{key}: {error}")
    elif known.where is Where.TENANT:
        migration.tenant.append(_tenant_line(key, known.name, value, known.ours))
    elif not known.is_met_by(value) and not _is_secret(key):
        told = f"{key} = {value}" if known.where is Where.ALWAYS else key
        migration.left_out.append(f"{told}: {known.note}")


_PROVIDED: Final = re.compile(r"\$\{[^{}]+:[^{}]*\}")
"""``${file:/run/secrets/mysql:user}``: the connector's JSON does not have the value."""


def _nearest(key: str) -> str | None:
    """The property of which ``key`` is a misspelling. JDBC's have upper-case letters, Debezium's do not."""
    if key != key.lower():
        return None
    known = [name for name in (*(each.name for each in PROPERTIES), *OLDER_NAMES) if "<" not in name]
    return next(iter(difflib.get_close_matches(key, known, n=1, cutoff=_MISSPELT)), None)


def _tell_defaults(config: Mapping[str, str], migration: Migration) -> None:
    """What Debezium or Kafka Connect does without another word, and ours does not."""
    if "skipped.operations" not in config:
        migration.tenant.append(
            "skipped.operations is not set, and Debezium leaves TRUNCATE out then; for the same: sources[].skip_operations: [t]"
        )
    if config.get("provide.transaction.metadata", "").lower() == "true":
        migration.tenant.append("provide.transaction.metadata: topics.transactions: true, for BEGIN and END")
    for side in ("key", "value"):
        is_json = config.get(f"{side}.converter", "").endswith(".JsonConverter")
        if is_json and f"{side}.converter.schemas.enable" not in config:
            migration.tenant.append(
                f"{side}.converter.schemas.enable is not set, and JsonConverter writes schemas then; for the same: "
                "format.schemas: true"
            )


def _is_secret(key: str) -> bool:
    return "password" in key or "sasl" in key


def _tenant_line(key: str, family: str, value: str, ours: str) -> str:
    """A property of a tenant's document. A salt stands in the property's own name: it is not repeated."""
    shown = family if "salt" in key else key
    if shown == "column.include.list":
        names = "|".join(part.strip() for part in value.split(","))
        return f"column.include.list: sources[].exclude_columns: ['^(?!(?:{names})$).*$']"
    stars = re.fullmatch(r"column\.mask\.with\.(\d+)\.chars", key)
    if stars:
        return f"{key}: sources[].masks: {{columns: '{_joined(value)}', constant: '{'*' * int(stars[1])}'}}"
    cut = re.fullmatch(r"column\.truncate\.to\.(\d+)\.chars", key)
    if cut:
        return f"{key}: sources[].masks: {{columns: '{_joined(value)}', truncate_chars: {cut[1]}}}"
    if key == "skipped.operations":
        skipped = [part.strip() for part in value.split(",") if part.strip() != "none"]
        return f"{key}: sources[].skip_operations: [{', '.join(skipped)}]"
    if "salt" in key:
        return f"{family}: sources[].masks: {{columns: '{_joined(value)}', hash: {{salt: the connector's}}}}"
    return f"{shown} = {value}: {ours}"


def _joined(value: str) -> str:
    return "|".join(part.strip() for part in value.split(","))


Carry = Callable[[str, Migration], None]


def _group(migration: Migration, path: str, value: object) -> None:
    target = migration.document
    *groups, last = path.split(".")
    for group in groups:
        target = target.setdefault(group, {})
    target[last] = value


def _text(path: str) -> Carry:
    return lambda value, migration: _group(migration, path, value)


def _number(path: str) -> Carry:
    def carry(value: str, migration: Migration) -> None:
        if not value.isdigit():
            raise ValueError(f"{value!r} is no whole number")
        _group(migration, path, int(value))

    return carry


def _milliseconds(path: str) -> Carry:
    """Ours are seconds."""

    def carry(value: str, migration: Migration) -> None:
        if not value.isdigit():
            raise ValueError(f"{value!r} is no whole number")
        _group(migration, path, int(value) / 1000)

    return carry


def _whole_seconds(path: str) -> Carry:
    """At least one."""

    def carry(value: str, migration: Migration) -> None:
        if not value.isdigit():
            raise ValueError(f"{value!r} is no whole number")
        _group(migration, path, max(1, math.ceil(int(value) / 1000)))

    return carry


def _switch(path: str) -> Carry:
    def carry(value: str, migration: Migration) -> None:
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{value!r} is neither true nor false")
        _group(migration, path, value.lower() == "true")

    return carry


def _choice(path: str, choices: Mapping[str, str]) -> Carry:
    def carry(value: str, migration: Migration) -> None:
        chosen = choices.get(value.lower())
        if chosen is None:
            close = difflib.get_close_matches(value.lower(), choices, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(choices))}"
            raise ValueError(f"{value!r} is no value of it; {hint}")
        _group(migration, path, chosen)

    return carry


def _patterns(path: str, form: str) -> Carry:
    def carry(value: str, migration: Migration) -> None:
        for part in filter(None, (part.strip() for part in value.split(","))):
            try:
                re.compile(part)
            except re.error as error:
                raise ValueError(f"{part!r} is no regular expression ({error})") from error
            patterns = migration.document.setdefault(path, [])
            patterns.append(form.format(part))

    return carry


def _key_columns(value: str, migration: Migration) -> None:
    """``<table>:<column>,<column>;…``; both are regular expressions in Debezium too."""
    for part in filter(None, (part.strip() for part in value.split(";"))):
        tables, colon, columns = part.partition(":")
        names = [name.strip() for name in columns.split(",")]
        if not colon or not tables.strip() or not all(names):
            raise ValueError(f"{part!r} is not <database>.<table>:<column>,<column>")
        chosen = {"tables": tables.strip(), "columns": "|".join(names)}
        try:
            KeyColumns(**chosen)
        except InvalidSettings as error:
            raise ValueError(f"{part!r}: {'; '.join(error.mistakes)}") from error
        migration.document.setdefault("key_columns", []).append(chosen)


def _failure_of_converting(value: str, migration: Migration) -> None:
    """Debezium asks twice, of a row and of its values; where the answers differ, that for the row stands."""
    of_rows = migration.document.get("failure_handling")
    _choice("failure_handling", _FAILURES)(value, migration)
    if of_rows not in (None, migration.document["failure_handling"]):
        migration.document["failure_handling"] = of_rows
        migration.left_out.append(
            f"{_CONVERTING} = {value}: one mode for rows and values, and {of_rows} is asked for rows"
        )


def _snapshot_mode(value: str, migration: Migration) -> None:
    """Ours by Debezium's names; those that a plug-in of Debezium's would answer have no counterpart."""
    if value.lower() in ("configuration_based", "custom"):
        migration.left_out.append(
            f"snapshot.mode = {value.lower()}: initial stands; see docs/snapshots.md for the others"
        )
        return
    choices = {**_names(SnapshotMode), "schema_only_recovery": SnapshotMode.RECOVERY.value}  # its name before 2.6
    _choice("snapshot.mode", choices)(value, migration)


def _locking_mode(value: str, migration: Migration) -> None:
    """Of Debezium's locks ours has the shortest, or none."""
    if value.lower() in ("extended", "custom"):
        migration.left_out.append(
            f"snapshot.locking.mode = {value}: snapshot.lock is minimal: rows are read behind the lock, at its one moment"
        )
        return
    _choice("snapshot.lock", {**_names(SnapshotLock), "minimal_percona": SnapshotLock.MINIMAL.value})(value, migration)


def _java_key_store(name: str, ours: str) -> Carry:
    """Ours are PEM files; a Java key store is not one, whatever it is called."""

    def carry(value: str, migration: Migration) -> None:
        migration.left_out.append(
            f"{name} = {value}: a Java key store; write what it holds as PEM, and name that: {ours}"
        )

    return carry


def _metric_tags(value: str, migration: Migration) -> None:
    """``name=value,name=value``."""
    for part in filter(None, (part.strip() for part in value.split(","))):
        tag, equals, told = part.partition("=")
        if not equals or not tag.strip():
            raise ValueError(f"{part!r} is not <name>=<value>")
        migration.document.setdefault("metric_tags", {})[tag.strip()] = told.strip()


def _names(members: Any) -> dict[str, str]:
    return {member.value: member.value for member in members}


_FAILURES: Final = {**_names(FailureHandling), "ignore": FailureHandling.SKIP.value}
_CARRIED: Final[Mapping[str, Carry]] = {
    "name": lambda value, migration: None,
    "topic.prefix": lambda value, migration: None,
    "connector.class": lambda value, migration: None,
    "database.hostname": _text("database.host"),
    "database.port": _number("database.port"),
    "database.user": _text("database.user"),
    "database.password": lambda value, migration: _group(migration, "database.password", PASSWORD),
    "connect.timeout.ms": _milliseconds("database.connect_timeout_s"),
    "database.ssl.mode": _choice("database.tls_mode", _names(TlsMode)),
    "database.ssl.truststore": _java_key_store("database.ssl.truststore", "database.tls_ca_file"),
    "database.ssl.keystore": _java_key_store(
        "database.ssl.keystore", "database.tls_certificate_file and database.tls_key_file"
    ),
    "custom.metric.tags": _metric_tags,
    "heartbeat.interval.ms": _milliseconds("heartbeat_interval_s"),
    "gtid.source.includes": _patterns("gtid_source_includes", "{}"),
    "gtid.source.excludes": _patterns("gtid_source_excludes", "{}"),
    "database.server.id": _number("replica_server_id"),
    "database.include.list": _patterns("include_tables", r"(?:{})\..*"),
    "database.exclude.list": _patterns("exclude_tables", r"(?:{})\..*"),
    "table.include.list": _patterns("include_tables", "{}"),
    "table.exclude.list": _patterns("exclude_tables", "{}"),
    "snapshot.mode": _snapshot_mode,
    "snapshot.locking.mode": _locking_mode,
    "snapshot.lock.timeout.ms": _whole_seconds("snapshot.lock_wait_s"),
    "snapshot.max.threads": _number("snapshot.readers"),
    "snapshot.select.statement.overrides": lambda value, migration: None,
    "incremental.snapshot.chunk.size": _number("snapshot.incremental_chunk_rows"),
    "signal.data.collection": _text("signal_table"),
    "time.precision.mode": _choice("values.time_precision", _names(TimePrecision)),
    "decimal.handling.mode": _choice("values.decimal", _names(DecimalMode)),
    "bigint.unsigned.handling.mode": _choice("values.unsigned_bigint", _names(UnsignedBigintMode)),
    "binary.handling.mode": _choice("values.binary", _names(BinaryMode)),
    "unavailable.value.placeholder": _text("values.unavailable_placeholder"),
    "event.processing.failure.handling.mode": _choice("failure_handling", _FAILURES),
    _CONVERTING: _failure_of_converting,
    "message.key.columns": _key_columns,
    "provide.transaction.metadata": _switch("transaction_metadata"),
}
