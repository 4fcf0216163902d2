"""Random tenants' documents, and random names and values at the source, beside a good tenant: the good one's rows go on.

    python -m tests.fuzz.poison [--rounds N] [--seed S]

``make fuzz-tenants`` runs many rounds, the tests a few. A round has one document, every field of it perhaps at its edge, and
one table of any name, with rows of any values. Nothing raises in any round, the good tenant gets its rows, and a document is
either refused in words or served. A refusal that the router makes of an unforeseen error is a find, though the tenant alone
has it.
"""

import argparse
import json
import random
import string
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import yaml
from structlog.testing import capture_logs

from libs.events.batch import BatchBuilder, BatchIdentity, RowRun
from libs.tenants.document import read_tenant
from libs.tenants.fit import misfits
from libs.tenants.row_filter import condition_mistakes
from libs.types.order import EventOrder
from libs.types.table import Column, TableId, TableSchema
from libs.types.tenant import SinkSettings, SourceSelection, TenantSpec
from libs.types.value import LogicalKind, LogicalType
from services.router.batches.batch_reading import read_changes
from services.router.delivery.deliver import deliver_batch
from services.router.delivery.delivery import Announced, BatchPlace
from services.router.routes.batch_targets import targets_of
from services.router.routes.book import RouteBook
from services.router.routes.topic_claims import TopicClaims

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
        sink=lambda: (
            some(trigger_s=number, trigger_max_s=number, trigger_rows=number, max_batch_rows=number)
            | random_sink(rng, pattern if rng.random() < _OTHER_TYPES else lambda: rng.choice(_GOOD_PATTERNS), text)
        ),
    )


def random_sink(rng: random.Random, pattern: Callable[[], Any], name: Callable[[], Any]) -> dict[str, Any]:
    """What a document's sink part says of tables, some of it with the patterns and names that are given."""

    def column() -> str:
        return rng.choice(("id", "a", "`{}`".format(str(name()).replace("`", "``"))))

    def term() -> str:
        return rng.choice(("{}", "bucket(9, {})", "truncate(2, {})", "day({})", "hour({})")).format(column())

    def layout() -> dict[str, Any]:
        order = rng.choice(("", "", " desc"))
        return {"tables": pattern(), "sort_by": [term() + order], "partition_by": [term()][: rng.randrange(2)]}

    fields: dict[str, Callable[[], Any]] = {
        "mode": lambda: rng.choice(("mirror", "append", "history")),
        "deletes": lambda: rng.choice(("hard", "soft")),
        "images": lambda: rng.choice(("after", "before_and_after")),
        "tracked_columns": lambda: [pattern()],
        "json_as_variant": lambda: [pattern()],
        "layouts": lambda: [layout() for _ in range(rng.choice((1, 2, 30)))],
        "schema_changes": lambda: {"default": rng.choice(("lenient", "exception", "evolve", "ignore", "drop"))},
    }
    return {field: make() for field, make in fields.items() if rng.random() < _FIELD_SAID}


def taken_sink(rng: random.Random, table_names: Sequence[str]) -> SinkSettings:
    """A sink part that a document may have, about tables with columns of these names."""
    while True:
        sink = random_sink(rng, lambda: rng.choice(_GOOD_PATTERNS), lambda: rng.choice(table_names))
        document = {"tenant": "bad", "sources": [{"name": "s"}], "sink": sink}
        parsed = read_tenant(yaml.dump(document, Dumper=_DUMPER, allow_unicode=True), mistakes=[])
        if parsed is not None and parsed.spec.sink is not None:
            return parsed.spec.sink


_BATCH_BYTES: Final = 8_000_000
_FIELD_SAID: Final = 0.25
_OTHER_KINDS: Final = 0.05
_ESCAPED: Final = 0.5
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


def random_value(rng: random.Random, kind: LogicalKind) -> str:
    """A value as a reader writes it in JSON, mostly an odd one; also what no reader writes, of another kind than its column."""
    texts = (
        "",
        "x" * 100_000,
        "\x00",
        "\x1b[2J",
        "\u202e",
        "\ud7ff\uffff",
        random_name(rng),
        "NaN",
        "9" * 6_000,
        "1e400",
    )
    deep = ("[" * 9_000 + "]" * 9_000, '{"a":' * 9_000 + "1" + "}" * 9_000, "[" * 9_000, '{"a":1,"a":[1e999]}')
    usual = {
        LogicalKind.STRING: (rng.choice(texts),),
        LogicalKind.FLOAT64: (0.0, -0.0, 5e-324, 1.7976931348623157e308),
        LogicalKind.DATE: (0, -719_528, 2**31 - 1, -(2**31), 2_932_896),
        LogicalKind.DECIMAL: ("0", "-99999999", "9" * 65, "0." + "0" * 30, "1e9"),
        LogicalKind.BYTES: ("", "/+8=", "AA", "=" * 5, "A" * 100_000),
        LogicalKind.JSON: ("null", '"x"', "1e400", *deep),
    }[kind]
    value = rng.choice(usual) if rng.random() > _OTHER_KINDS else rng.choice((*texts, *deep, None, True, 10**400, 1.5))
    return json.dumps(value, ensure_ascii=rng.random() < _ESCAPED)


def random_rows(rng: random.Random, table: TableSchema) -> list[tuple[bytes, bytes]]:
    """Keys and events of the table's rows: a plain one, and some with odd values, of which none is too large for a record."""
    rows = [(b'{"id":1}', b'{"before":null,"after":{"id":1},"op":"c"}')]
    for number in range(2, rng.choice((2, 3, 6))):
        values = [f'"id":{number}'] + [
            f"{json.dumps(column.name, ensure_ascii=False)}:{random_value(rng, column.logical_type.kind)}"
            for column in table.columns[1:]
        ]
        after = "{" + ",".join(values) + "}"
        rows.append((f'{{"id":{number}}}'.encode(), f'{{"before":null,"after":{after},"op":"c"}}'.encode()))
    return rows


def delivered_beside(table: TableSchema, bad: TenantSpec | None, rows: Sequence[tuple[bytes, bytes]]) -> int:
    """How many of ``rows`` the good tenant gets, with ``bad`` beside it."""
    book = RouteBook("s", (GOOD, bad) if bad else (GOOD,), lambda _table_id, _version: table, TopicClaims()).view()
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
    for row in rows:
        run.rows.append(ord("c"), *row)
    batch.open_run(run)
    batch.close_run()
    changes = read_changes(batch.take(_BATCH_BYTES)[0])
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
    rows = random_rows(rng, table)
    bad = None if parsed is None or parsed.spec.tenant == "good" else parsed.spec
    if bad is not None:
        for selection in bad.sources:
            misfits(bad, selection, table)
    topic_length = len(f"good.s.{table.table_id}")
    with capture_logs() as told:
        delivered = delivered_beside(table, bad, rows)
    assert delivered == len(rows) or topic_length > _TOPIC_CHARACTERS, f"seed {seed}: {delivered} of {len(rows)} rows"
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
