"""Twenty kinds of poison, which a tenant's document, or a name or value at its tables, may be (``fairness``)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from libs.types.table import TableId
from tests.integration.router_rig import order_row, row_value


@dataclass(frozen=True, slots=True)
class Poison:
    """One kind: settings in place of a plain document's, or rows that come with each tick."""

    name: str
    selection: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None
    """The whole document, as it is."""
    value: bytes | None = None
    """Of a row."""
    table: str | None = None
    """Of the rows; None: the tenant's plain one."""
    has_no_room: bool = False
    """Kafka refuses its records."""


def document_of(tenant: str, source: str, database: str, poison: Poison | None) -> str:
    """The tenant's document; None: a plain one."""
    selection = {"name": source, "include_tables": [rf"{database}\.{tenant}.*"]}
    document = {"tenant": tenant, "sources": [selection], "sink": None}
    if poison is None:
        return yaml.safe_dump(document)
    if poison.text is not None:
        return poison.text
    return yaml.safe_dump({**document, "sources": [{**selection, **poison.selection}], **poison.more})


def odd_tables(tenant: str, database: str) -> list[TableId]:
    """Tables whose topics Kafka cannot keep apart, or has no name for."""
    return [TableId(database=database, table=name) for name in (f"{tenant}.a", f"{tenant}_a", f"{tenant}`;\x1b語")]


def _filter(name: str, where: str) -> Poison:
    return Poison(name, selection={"row_filters": [{"tables": ".*", "where": where}]})


def _row(**changed: Any) -> bytes:
    return row_value("c", None, order_row(1, **changed))


POISONS: Final = (
    Poison("a document that is no YAML", text="tenant: ["),
    Poison("a document of 2 MB", text="tenant: poisoned\n# " + "x" * 2_000_000),
    _filter("a literal of 5,001 digits", "id = " + "9" * 5_001),
    _filter("a number beyond any float", "id = 1" + "0" * 400),
    _filter("3,000 parentheses", "(" * 3_000 + "id = 1" + ")" * 3_000),
    _filter("1,500 numbers in a list", f"id IN ({', '.join(map(str, range(1_500)))})"),
    Poison("a pattern that runs away", selection={"exclude_columns": [r".*\.(r+)+x$"]}),
    Poison("990 patterns", selection={"exclude_columns": [rf".*\.x{n}[a-z]*y" for n in range(990)]}),
    Poison("three billion Kafka partitions", more={"topics": {"kafka_partitions": 3_000_000_000}}),
    Poison("40,000 replicas", more={"topics": {"replication_factor": 40_000}}),
    Poison("two tables in one topic", more={"topics": {"name": "{tenant}.{source}.{database}"}}),
    Poison("a topic of another tenant", more={"topics": {"name": "quiet00.{source}.{database}.quiet00"}}),
    Poison("Avro without a registry", more={"format": {"kind": "avro"}}),
    Poison(
        "a mask without a key", selection={"masks": [{"columns": r".*\.email", "hmac": {"key_from": {"env": "X"}}}]}
    ),
    Poison("no column of the key", selection={"exclude_columns": [r".*\.id"]}),
    Poison("names of tables that Kafka folds to one", table="poisoned.a"),
    Poison("a name of signs", table="poisoned`;\x1b語"),
    Poison("a row that is no JSON", selection={"exclude_columns": [r".*\.region"]}, value=b"\xff{[\x00"),
    Poison(
        "a text in 9,000 levels",
        selection={"exclude_columns": [r".*\.region"]},
        value=_row(email="@").replace(b'"@"', b"[" * 9_000 + b"]" * 9_000),
    ),
    Poison("records that Kafka refuses", has_no_room=True),
)
