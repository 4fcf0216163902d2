"""Random tenants' documents and random names at the source, laid beside a good tenant: the good one's rows go on.

    python -m tests.fuzz.poison [--rounds N] [--seed S]

``make fuzz-tenants`` runs many rounds, the tests a few. A round has one document, every field of it perhaps at its edge, and
one table of any name. Whatever they are, nothing raises, the good tenant gets its row, and a document is either refused in
words or served. A refusal that the router makes of an unforeseen error is a find, though the tenant alone has it.
"""

import argparse
import random
import string
import sys
from collections.abc import Callable
from typing import Any, Final

import yaml
from structlog.testing import capture_logs

from libs.events.batch import BatchBuilder, BatchIdentity, RowRun
from libs.tenants.document import read_tenant
from libs.tenants.fit import misfits
from libs.tenants.row_filter import condition_mistakes
from libs.types.order import EventOrder
from libs.types.table import Column, TableId, TableSchema
from libs.types.tenant import SourceSelection, TenantSpec
from libs.types.value import LogicalKind, LogicalType
from services.router.deliver import Announced, BatchPlace, deliver_batch, read_changes, targets_of
from services.router.match import RouteBook
from services.router.topic_claims import TopicClaims

GOOD: Final = TenantSpec(tenant="good", sources=(SourceSelection(name="s"),), sink=None)
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_ODD: Final = "._`'\"$ -%é\u0130\u212a\u0000\n\t\x1b\x7f\u202e語\U0001f600"
_INTEGERS: Final = (-(2**63), -1, 0, 1, 2, 255, 2**15, 2**31, 2**32, 2**63, 3_000_000_000, 10**400)
_FLOATS: Final = (0.0, -0.0, 1e-300, 1e-7, 0.5, 1e300, float("inf"), float("-inf"), float("nan"))
_WHERES: Final = (
    "id = 1",
    "ID = 1",
    "c0 IS NULL",
    "id = " + "9" * 5001,
    "id = 1e400",
    "c1 = 1" + "0" * 400,
    "(" * 3_000 + "id = 1" + ")" * 3_000,
    "NOT " * 1_900 + "id",
    "- " * 3_000 + "1",
    "c1 = b'" + "1" * 7_000 + "'",
    "id = 1e",
    "id / 0 = 1",
    "c0 LIKE '" + "%_" * 3_000 + "'",
    "CASE WHEN " * 700,
    "c0 = '\\",
    "id IN (" + ", ".join(map(str, range(1_500))) + ")",
    "id = ²",
    "c2 > DATE '0000-00-00'",
)
_GOOD_PATTERNS: Final = (".*", "s\\..*", ".*\\.c[0-9]", ".*\\.(id|x)", "a", "[^.]*\\.[^.]*", ".*x", "é.*") * 3
_PATTERNS: Final = (
    ".*",
    "",
    "(a+)+$",
    "(" * 90 + ")" * 90,
    "[",
    "(?i).*",
    "(?P<n>a)(?P=n)",
    "\\",
    ".{0,194}" * 6,
    "a{4294967295}",
    "(?<!a.*)b",
    "s\\..*\\..*",
    "x" * 1_001,
    "\u0130.*",
)


def random_name(rng: random.Random) -> str:
    """A name of 1 to 64 characters, mostly odd ones."""
    alphabet = rng.choice((string.ascii_letters, _ODD, _ODD + string.ascii_letters + string.digits, "._", "`;."))
    return "".join(rng.choice(alphabet) for _ in range(rng.choice((1, 2, 3, 8, 64))))


def random_document(rng: random.Random) -> dict[str, Any]:
    """A tenant's document: some of its fields, each perhaps at an edge or of another type."""

    others = (None, 1, True, ["a"], "7", []) if rng.random() < _OTHER_TYPES else ()

    def text() -> Any:
        return rng.choice((random_name(rng), "a", "", "x" * 300, *others))

    def number() -> Any:
        return rng.choice((*_INTEGERS, *_FLOATS, *others))

    def pattern() -> Any:
        return rng.choice((*_PATTERNS, *_GOOD_PATTERNS, random_name(rng)))

    def mask() -> Any:
        way = rng.choice(("hash", "constant", "truncate_chars", "keep_last", "set_null", "hmac", "encrypt"))
        value = {
            "hash": {"salt": text(), "algorithm": rng.choice(("sha256", "md5", "shake_128", text()))},
            "hmac": {"key_from": {"env": text()}},
            "encrypt": {"key_from": {"file": text()}},
            "set_null": rng.choice((True, False, text())),
            "constant": text(),
        }.get(way, number())
        return {"columns": pattern(), way: value}

    def several(make: Callable[[], Any]) -> list[Any]:
        return [make() for _ in range(rng.choice((0, 1, 1, 2, 40)))]

    def some(**fields: Callable[[], Any]) -> dict[str, Any]:
        return {name: make() for name, make in fields.items() if rng.random() < _FIELD_SAID}

    def source() -> Any:
        return {"name": rng.choice(("s", "s", "s", text()))} | some(
            include_tables=lambda: [".*", *several(pattern)],
            exclude_tables=lambda: several(pattern),
            include_columns=lambda: [".*", *several(pattern)],
            exclude_columns=lambda: several(pattern),
            row_filters=lambda: several(
                lambda: {"tables": rng.choice((".*", pattern())), "where": rng.choice((*_WHERES, text()))}
            ),
            masks=lambda: several(mask),
            rename_columns=lambda: several(lambda: {"columns": pattern(), "to": text()}),
            skip_operations=lambda: several(lambda: rng.choice(("c", "u", "d", "t", text()))),
        )

    return {"tenant": rng.choice(("bad", "bad", "bad", text())), "sources": [source()], "sink": None} | some(
        format=lambda: some(
            kind=lambda: rng.choice(("json", "avro", "protobuf", text())),
            schemas=lambda: rng.choice((True, False)),
            field_names=lambda: rng.choice(("none", "avro", "avro_unicode", text())),
            source_types=lambda: some(columns=lambda: several(pattern), types=lambda: several(pattern)),
        ),
        topics=lambda: some(
            name=lambda: rng.choice(("{tenant}.{database}_{table}", "{tenant}.{source}.{database}-{table}", text())),
            layout=lambda: rng.choice(("per_table", "per_tenant")),
            kafka_partitions=number,
            replication_factor=number,
            transactions=lambda: rng.choice((True, False)),
        ),
        limits=lambda: some(events_per_s=number, bytes_per_s=number, weight=number),
        sink=lambda: some(
            trigger_s=number,
            trigger_max_s=number,
            trigger_rows=number,
            max_batch_rows=number,
            layouts=lambda: several(
                lambda: {"tables": pattern(), "sort_by": [rng.choice(("a", "bucket(9, a)", text()))]}
            ),
        ),
    )


_FIELD_SAID: Final = 0.25
_OTHER_TYPES: Final = 0.2
_KINDS: Final = {
    LogicalKind.STRING: "varchar(20)",
    LogicalKind.FLOAT64: "double",
    LogicalKind.DATE: "date",
    LogicalKind.DECIMAL: "decimal(8,0)",
    LogicalKind.BYTES: "varbinary(20)",
    LogicalKind.JSON: "json",
}
"""With the type of such a column at the source."""


def random_table(rng: random.Random) -> TableSchema:
    """A table of any names, with a key and a column of each kind."""
    names = {random_name(rng).lower() for _ in _KINDS} - {"id"}
    columns = [
        Column(name="id", source_type="int", logical_type=LogicalType(kind=LogicalKind.INT32), is_optional=False)
    ]
    for name, (kind, source_type) in zip(sorted(names), _KINDS.items(), strict=False):
        columns.append(Column(name=name, source_type=source_type, logical_type=LogicalType(kind=kind, precision=8)))
    table_id = TableId(database=random_name(rng), table=random_name(rng))
    return TableSchema(table_id=table_id, columns=tuple(columns), key=("id",), version=1, ddl="CREATE TABLE …")


def delivered_beside(table: TableSchema, bad: TenantSpec | None) -> int:
    """How many rows of the table the good tenant gets, with ``bad`` beside it."""
    book = RouteBook("s", (GOOD, bad) if bad else (GOOD,), lambda _table_id, _version: table, TopicClaims())
    batch = BatchBuilder(
        BatchIdentity(source="s", source_partition="0", connector="mysql", run_id="r", fencing_token=1)
    )
    run = RowRun(
        table_id=table.table_id,
        schema_version=1,
        transaction_id="t",
        first_order=EventOrder(epoch=1, rank=7, tx_ordinal=1),
        committed_at_us=1,
        is_snapshot=False,
        for_tenants=(),
    )
    run.rows.append(ord("c"), b'{"id":1}', b'{"before":null,"after":{"id":1},"op":"c"}')
    batch.open_run(run)
    batch.close_run()
    changes = read_changes(batch.take(2_000_000)[0])
    list(targets_of(changes, book))
    place = BatchPlace("headwater.changes.s", 0, 1)
    deliveries = list(deliver_batch(changes, book, Announced(), place, max_event_bytes=900_000))
    return sum(each.rows for each in deliveries if any(target.tenant == "good" for target in each.targets))


def poisoned(seed: int) -> str | None:
    """One round; None: the document was taken. Else the first of its mistakes.

    Raises:
        Exception: anything that a document or a name made escape.
    """
    rng = random.Random(seed)
    text = yaml.dump(random_document(rng), Dumper=_DUMPER, allow_unicode=True)
    mistakes: list[str] = []
    parsed = read_tenant(text, mistakes=mistakes, check_condition=condition_mistakes)
    assert (parsed is None) == bool(mistakes), f"seed {seed}: neither taken nor refused in words"
    assert not any("Headwater failed on it" in mistake for mistake in mistakes), f"seed {seed}: {mistakes}"
    table = random_table(rng)
    bad = None if parsed is None or parsed.spec.tenant == "good" else parsed.spec
    if bad is not None:
        for selection in bad.sources:
            misfits(bad, selection, table)
    topic_length = len(f"good.s.{table.table_id}")
    with capture_logs() as told:
        delivered = delivered_beside(table, bad)
    assert delivered == 1 or topic_length > _TOPIC_CHARACTERS, f"seed {seed}: the good tenant's row"
    unforeseen = [repr(each.get("exc_info")) for each in told if each["event"] == "refused_unforeseen"]
    assert not unforeseen, f"seed {seed}: contained, and nobody thought of it: {unforeseen}"
    return mistakes[0] if mistakes else None


_TOPIC_CHARACTERS: Final = 249


def main() -> int:
    """Run rounds until one fails; say how many documents were taken."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.poison")
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    taken = sum(poisoned(asked.seed + number) is None for number in range(asked.rounds))
    sys.stdout.write(f"{asked.rounds} documents and names, {taken} documents taken, the rest refused in words\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
