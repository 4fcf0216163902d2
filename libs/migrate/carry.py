"""How one property of a connector gets into a source's document: small functions, by the kind of value; of both connectors."""

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from libs.config.plain_text import one_line
from libs.errors import InvalidSettings
from libs.migrate.properties import Property
from libs.source.failure_policy import FailureHandling
from libs.source.key_columns import KeyColumns
from libs.types.value_modes import BinaryMode, DecimalMode, TimePrecision, UnsignedBigintMode

PASSWORD: Final = "change-me"  # noqa: S105
"""The connection in the written document: the connector's own is not copied."""
CONVERTING: Final = "event.converting.failure.handling.mode"


@dataclass(slots=True)
class Migration:
    """The result of one connector."""

    source: str
    document: dict[str, Any] = field(default_factory=dict)
    """``sources/<source>.yaml``."""
    tenant: list[str] = field(default_factory=list)
    """For each tenant's document, one line each."""
    left_out: list[str] = field(default_factory=list)
    """Properties that were not carried over, with the reason, one line each."""

    def text(self) -> str:
        """The document as YAML, with the notes as comments."""
        lines = [f"# Written from the Debezium connector {self.source!r} by `headwater migrate debezium`."]
        lines += [f"# for the tenants' documents: {one_line(each)}" for each in self.tenant]
        lines += [f"# not carried over: {one_line(each)}" for each in self.left_out]
        return "\n".join(lines) + "\n" + yaml.safe_dump(self.document, sort_keys=False, allow_unicode=True)


Carry = Callable[[str, Migration], None]
"""Puts a property's value into the document, or notes why not. Raises ValueError: it cannot be, and why."""


@dataclass(frozen=True, slots=True)
class Connector:
    """One of Debezium's connectors."""

    name: str
    class_name: str
    properties: tuple[Property, ...]
    carried: Mapping[str, Carry]
    required: tuple[str, ...]
    skips_truncate: bool
    """Without ``skipped.operations`` it leaves TRUNCATE out."""


def not_carried(value: str, migration: Migration) -> None:
    """It is reported elsewhere, or by the kind of the document."""


def group(migration: Migration, path: str, value: object) -> None:
    target = migration.document
    *groups, last = path.split(".")
    for each in groups:
        target = target.setdefault(each, {})
    target[last] = value


def text(path: str) -> Carry:
    return lambda value, migration: group(migration, path, value)


def number(path: str) -> Carry:
    return lambda value, migration: group(migration, path, _whole_number(value))


def milliseconds(path: str) -> Carry:
    """Ours are seconds."""
    return lambda value, migration: group(migration, path, _whole_number(value) / 1000)


def whole_seconds(path: str) -> Carry:
    """At least one."""
    return lambda value, migration: group(migration, path, max(1, math.ceil(_whole_number(value) / 1000)))


def _whole_number(value: str) -> int:
    if not value.isdigit():
        raise ValueError(f"{value!r} is no whole number")
    return int(value)


def switch(path: str) -> Carry:
    def carry(value: str, migration: Migration) -> None:
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{value!r} is neither true nor false")
        group(migration, path, value.lower() == "true")

    return carry


def choice(path: str, choices: Mapping[str, str]) -> Carry:
    def carry(value: str, migration: Migration) -> None:
        chosen = choices.get(value.lower())
        if chosen is None:
            close = difflib.get_close_matches(value.lower(), choices, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(choices))}"
            raise ValueError(f"{value!r} is no value of it; {hint}")
        group(migration, path, chosen)

    return carry


def patterns(path: str, form: str) -> Carry:
    def carry(value: str, migration: Migration) -> None:
        for part in filter(None, (part.strip() for part in value.split(","))):
            try:
                re.compile(part)
            except re.error as error:
                raise ValueError(f"{part!r} is no regular expression ({error})") from error
            patterns = migration.document.setdefault(path, [])
            patterns.append(form.format(part))

    return carry


def key_columns(value: str, migration: Migration) -> None:
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


def failure_of_converting(value: str, migration: Migration) -> None:
    """Debezium asks twice, of a row and of its values; where the answers differ, that for the row stands."""
    of_rows = migration.document.get("failure_handling")
    choice("failure_handling", _FAILURES)(value, migration)
    if of_rows not in (None, migration.document["failure_handling"]):
        migration.document["failure_handling"] = of_rows
        migration.left_out.append(
            f"{CONVERTING} = {value}: one mode for rows and values, and {of_rows} is asked for rows"
        )


def metric_tags(value: str, migration: Migration) -> None:
    """``name=value,name=value``."""
    for part in filter(None, (part.strip() for part in value.split(","))):
        tag, equals, label = part.partition("=")
        if not equals or not tag.strip():
            raise ValueError(f"{part!r} is not <name>=<value>")
        migration.document.setdefault("metric_tags", {})[tag.strip()] = label.strip()


def names_of(members: Any) -> dict[str, str]:
    return {member.value: member.value for member in members}


_FAILURES: Final = {**names_of(FailureHandling), "ignore": FailureHandling.SKIP.value}
ALIKE: Final[Mapping[str, Carry]] = {
    "name": not_carried,
    "topic.prefix": not_carried,
    "connector.class": not_carried,
    "table.include.list": patterns("include_tables", "{}"),
    "table.exclude.list": patterns("exclude_tables", "{}"),
    "time.precision.mode": choice("values.time_precision", names_of(TimePrecision)),
    "decimal.handling.mode": choice("values.decimal", names_of(DecimalMode)),
    "bigint.unsigned.handling.mode": choice("values.unsigned_bigint", names_of(UnsignedBigintMode)),
    "binary.handling.mode": choice("values.binary", names_of(BinaryMode)),
    "unavailable.value.placeholder": text("values.unavailable_placeholder"),
    "event.processing.failure.handling.mode": choice("failure_handling", _FAILURES),
    CONVERTING: failure_of_converting,
    "message.key.columns": key_columns,
    "heartbeat.interval.ms": milliseconds("heartbeat_interval_s"),
    "custom.metric.tags": metric_tags,
}
"""Properties of both connectors that both kinds of documents have alike."""
