"""A Debezium connector's configuration → our source document, and the properties that could not be carried over.

Both forms of the JSON are read: Kafka Connect's REST form ``{"name":…,"config":{…}}`` and the bare ``config``, with the names
of Debezium's releases from 0.x on. Nothing is guessed and nothing dropped in silence: a misspelt property is refused with the
nearest right name; one that has no place here, or whose value asks for a behaviour that Headwater lacks, is reported with the
other way to it; so is a default of Debezium's that is none of ours. No secret is printed or written.
"""

import difflib
import json
import re
from collections.abc import Mapping
from typing import Final

from libs.errors import InvalidSettings
from libs.migrate.carry import CONVERTING, PASSWORD, Connector, Migration, group
from libs.migrate.mysql import MYSQL
from libs.migrate.oracle import ORACLE, finish_oracle
from libs.migrate.properties import OLDER_NAMES, Property, Where, find, newer_name
from libs.migrate.vitess import VITESS, finish_keyspace
from libs.migrate.vitess_offsets import parse_offsets, start_of

_CONNECTORS: Final = {each.class_name: each for each in (MYSQL, VITESS, ORACLE)}
_NAMING: Final = {"converters": "<converter>.<setting>", "post.processors": "<post-processor>.<setting>"}
"""Properties that list names of the connector's own choice, and the family of the properties under such a name."""
_WHOLE_DATABASES: Final = ("database.include.list", "schema.include.list")
_PASSED_TO_JDBC: Final = "database.<setting>"
_MISSPELT: Final = 0.8
"""``difflib``'s ratio from which a name counts as a slip of the pen: below it stand properties of other products."""
_OVERRIDES: Final = "snapshot.select.statement.overrides.<table>"


def migrate(text: str, *, subject: str, name: str | None = None, offsets: str | None = None) -> Migration:
    """Judge every property of a connector's JSON. ``name``: of the source; None: the connector's ``topic.prefix``.

    ``offsets``: a Vitess connector's, as Kafka Connect has stored them, from where the source goes on (``vitess_offsets``).

    Raises:
        InvalidSettings: ``subject`` is no configuration of Debezium's MySQL, Vitess or Oracle connector, properties are
            misspelt or hold values of another kind, or the offsets are not this connector's; every mistake is listed.
    """
    config = _config_of(text, subject)
    connector = _CONNECTORS.get(config.get("connector.class", MYSQL.class_name), MYSQL)
    today = {**{newer_name(key): value for key, value in config.items()}, **config}  # given by both: today's
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
    if config.get("connector.class", MYSQL.class_name) not in _CONNECTORS:
        mistakes.append(f"connector.class: {config['connector.class']!r} is not {' or '.join(_CONNECTORS)}")
    families = {
        f"{part.strip()}.": family
        for lists, family in _NAMING.items()
        for part in today.get(lists, "").split(",")
        if part
    }
    for key, value in sorted(config.items(), key=lambda item: item[0] == CONVERTING):  # it gives way to others
        newer = newer_name(key)
        if newer != key and newer in config:
            migration.left_out.append(f"{key}: the older name of {newer}, which stands there too")
        elif newer in _WHOLE_DATABASES and today.get("table.include.list"):
            # Debezium wants a table to match both; ours takes one list, and the names of tables hold their databases.
            migration.left_out.append(f"{key}: table.include.list alone says which tables; see that it names no others")
        else:
            family = next((family for start, family in families.items() if key.startswith(start)), None)
            known = find(key, connector.properties) or (find(family, connector.properties) if family else None)
            _judge(connector, key, value, known, migration, mistakes)
    for key in connector.required:
        if key not in config:
            mistakes.append(f"{key}: is missing")
    if connector is VITESS:
        stored = parse_offsets(offsets, mistakes) if offsets is not None else None
        start = start_of(stored, today, mistakes) if stored is not None else None
        finish_keyspace(today, migration, start, mistakes, has_offsets=offsets is not None)
    elif offsets is not None:
        mistakes.append(
            f"--offsets: is for the Vitess connector; a source of the {connector.name} connector begins as snapshot.mode says"
        )
    if connector is ORACLE:
        finish_oracle(today, migration, mistakes)
    _report_defaults(connector, today, migration)
    if mistakes:
        raise InvalidSettings(subject, mistakes)
    return migration


def _config_of(text: str, subject: str) -> dict[str, str]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSettings(subject, [f"is no JSON ({error})"]) from error
    config = document.get("config", document) if isinstance(document, dict) else None
    if not isinstance(config, dict) or not config:
        raise InvalidSettings(subject, ['holds no configuration; give {"name": …, "config": {…}} or the config itself'])
    named = {"name": document["name"]} if "config" in document and "name" in document else {}
    return {
        key: json.dumps(value) if isinstance(value, bool | dict | list) else str(value)
        for key, value in {**named, **config}.items()
    }


def _judge(
    connector: Connector, key: str, value: str, known: Property | None, migration: Migration, mistakes: list[str]
) -> None:
    if known is None or known.name == _PASSED_TO_JDBC:
        near = _nearest(key, connector)
        if near:
            mistakes.append(
                f"{key}: Debezium's {connector.name} connector has no such property; did you mean {near!r}?"
            )
        else:
            no_effect = f"Debezium's {connector.name} connector has no such property: its purpose is met elsewhere"
            migration.left_out.append(f"{key}: {known.note if known else no_effect}")
        return
    if known.name == _OVERRIDES:
        overrides = migration.document.setdefault("snapshot", {}).setdefault("select_overrides", {})
        overrides[key.removeprefix(_OVERRIDES.partition("<")[0])] = value
        return
    carry = connector.carried.get(known.name)
    if carry is not None and known.ours and _PROVIDED.fullmatch(value) and not _is_secret(key):
        migration.left_out.append(f"{key} = {value}: Kafka Connect's config provider has it; put it into {known.ours}")
        if known.name in connector.required:
            group(migration, known.ours, PASSWORD)
    elif carry is not None:
        try:
            carry(value, migration)
        except ValueError as error:
            mistakes.append(f"{key}: {error}")
    elif known.where is Where.TENANT:
        migration.tenant.append(_tenant_line(key, known.name, value, known.ours))
    elif not known.is_met_by(value) and not _is_secret(key):
        setting = f"{key} = {value}" if known.where is Where.ALWAYS else key
        migration.left_out.append(f"{setting}: {known.note}")


_PROVIDED: Final = re.compile(r"\$\{[^{}]+:[^{}]*\}")
"""``${file:/run/secrets/mysql:user}``: the connector's JSON does not have the value."""


def _nearest(key: str, connector: Connector) -> str | None:
    """The property of which ``key`` is a misspelling. JDBC's have upper-case letters, Debezium's do not."""
    if key != key.lower():
        return None
    known = [name for name in (*(each.name for each in connector.properties), *OLDER_NAMES) if "<" not in name]
    return next(iter(difflib.get_close_matches(key, known, n=1, cutoff=_MISSPELT)), None)


def _report_defaults(connector: Connector, config: Mapping[str, str], migration: Migration) -> None:
    """Behaviours that Debezium or Kafka Connect has by default, and Headwater lacks."""
    if connector.skips_truncate and "skipped.operations" not in config:
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
        names = ", ".join(f"'{part.strip()}'" for part in value.split(","))
        return f"column.include.list: sources[].include_columns: [{names}]; name key columns too, which Debezium always keeps"
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
