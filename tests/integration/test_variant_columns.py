"""JSON columns as VARIANT (``sink.json_as_variant``) in the warehouses that have the type, read without Spark."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import functions as sf

from libs.mesh.home import home_at
from libs.mysql.logical import column
from libs.testing.sink_contract import EVOLVE, ID, NOTE, RowChange, gone, put, refusal, source_rows, table
from libs.types.table import FormerName, TableId, TableSchema
from libs.types.tenant import Consistency, Deletes, SinkMode
from libs.types.value import UNAVAILABLE_VALUE
from libs.types.warehouse import CATALOG, ORDER_COLUMN, WarehouseTable, warehouse_table
from libs.warehouse.json_variants import with_variants
from libs.warehouse_readers.delta import DeltaTables
from libs.warehouse_readers.warehouse import IcebergTables, StoredTable
from spark.sinks.delta.sink import open_sink as open_delta_sink
from spark.sinks.iceberg.sink import IcebergSink
from spark.transforms.state_at import state_at
from tests.conftest import MysqlServer
from tests.contract.sink_harness import WarehouseHarness
from tests.headwater_command import write_shop
from tests.integration.sink_tenant import StartTenant
from tests.integration.test_check_by_sums import Rig, found_in, text_of
from tests.marks import rest
from tests.sink_topics import SOURCE, table_id
from tests.spark_session import Row, SharedSpark, shared_spark
from tests.unit.spark.events import orders_schema
from tests.unit.spark.test_history import Tables, Warehouse
from tests.unit.spark.test_history import put as put_version
from tests.unit.spark.test_history import versions as versions_of

DOC = column("doc", "json")
DOCUMENT = '{"b":[1,2.5,null,{"é":"\\"😀"}],"a":18446744073709551615}'
ALL = (".*",)


@dataclass(slots=True)
class Kept:
    """A tenant in a warehouse that has the type."""

    harness: WarehouseHarness
    load: Callable[[WarehouseTable], StoredTable]
    shared: SharedSpark = field(default_factory=shared_spark)

    def rows(self, place: WarehouseTable) -> list[Row]:
        return self.load(place).rows().to_pylist()

    def stored(self, schema: TableSchema) -> StoredTable:
        return self.load(self.harness.place(schema))

    def found(self, schema: TableSchema) -> list[Row]:
        """By id, documents parsed."""
        return [{name: parsed(name, value) for name, value in row.items()} for row in source_rows(self.harness, schema)]

    def types(self, schema: TableSchema) -> dict[str, str]:
        """Of the columns, as Spark calls them."""
        frame = self.harness.sink.read(self.shared.session, self.harness.place(schema))  # type: ignore[attr-defined]
        return {
            item.name: item.dataType.simpleString() for item in frame.schema if not item.name.startswith("_headwater")
        }


def parsed(name: str, value: object) -> object:
    return [json.loads(value)] if name.startswith("doc") and isinstance(value, str) else value


@pytest.fixture(params=["iceberg", *rest("delta", because="the gate shows it on Iceberg")])
def kept(request: pytest.FixtureRequest, unique_name: Callable[[str], str]) -> Kept:
    return kept_in(request.param, unique_name("variant").replace("_", "-"))


def kept_in(kind: str, tenant: str, *, is_at_hand: bool = False) -> Kept:
    shared = shared_spark()
    if kind == "delta":
        return Kept(WarehouseHarness(shared.session, open_delta_sink(shared.delta), read_delta, tenant), delta_table)
    sink = IcebergSink(msgspec.structs.replace(shared.iceberg, format_version=3))
    return Kept(WarehouseHarness(shared.session, sink, read_iceberg, tenant, is_at_hand=is_at_hand), iceberg_table)


def read_delta(place: WarehouseTable) -> list[Row]:
    return delta_table(place).rows().to_pylist()


def read_iceberg(place: WarehouseTable) -> list[Row]:
    return iceberg_table(place).rows().to_pylist()


def delta_table(place: WarehouseTable) -> StoredTable:
    stored = DeltaTables(shared_spark().delta.warehouse_dir).load(place)
    assert stored is not None
    return stored


def iceberg_table(place: WarehouseTable) -> StoredTable:
    settings = shared_spark().iceberg
    catalog = SqlCatalog(
        CATALOG, uri=f"sqlite:///{settings.catalog.file}", warehouse=f"file://{settings.warehouse_dir}"
    )
    try:
        stored = IcebergTables(catalog).load(place)
    finally:
        catalog.close()
    assert stored is not None
    return stored


def document(rank: int, key: int, doc: str | None, *, op: str = "u") -> RowChange:
    return RowChange(op, rank, {"id": key, "doc": doc})


def row(key: int, doc: str | None) -> Row:
    return {"id": key, "doc": None if doc is None else [json.loads(doc)]}


def test_a_mirror_holds_documents(kept: Kept) -> None:
    """Rows that come, change, go, are sent in part, or again, and are rewritten by maintenance; NULL is not JSON's null."""
    docs, harness = with_variants(table(ID, DOC), ALL), kept.harness
    harness.apply(docs, document(1, 1, DOCUMENT, op="c"), document(1, 2, "null", op="c"), document(1, 3, None, op="c"))
    first = kept.found(docs)
    harness.apply(docs, document(2, 1, "[]"), document(2, 2, UNAVAILABLE_VALUE), document(2, 4, "0.1"))
    harness.apply(docs, RowChange("d", 3, {"id": 3, "doc": None}), document(3, 5, DOCUMENT))
    merged = kept.found(docs)
    for rank in range(4, 8):
        harness.apply(docs, document(rank, rank % 2 + 6, f'{{"rank": {rank}}}'))
    rewritten = kept.found(docs)
    harness.maintain(docs)
    maintained = kept.found(docs)
    harness.apply_resync(docs, document(20, 1, DOCUMENT, op="r"), document(20, 2, UNAVAILABLE_VALUE))

    assert kept.types(docs) == {"id": "int", "doc": "variant"}
    assert first == [row(1, DOCUMENT), row(2, "null"), row(3, None)]
    assert merged == [row(1, "[]"), row(2, "null"), row(4, "0.1"), row(5, DOCUMENT)]
    assert maintained == rewritten == [*merged, row(6, '{"rank": 6}'), row(7, '{"rank": 7}')]
    assert kept.found(docs) == [row(1, DOCUMENT), row(2, "null")]


def test_soft_deletes_and_truncations(kept: Kept) -> None:
    docs, harness = with_variants(table(ID, DOC), ALL), kept.harness

    harness.apply(docs, document(1, 1, DOCUMENT), document(1, 2, "2"), deletes=Deletes.SOFT)
    harness.apply(docs, RowChange("d", 2, {"id": 1, "doc": DOCUMENT}), document(2, 3, "3"), deletes=Deletes.SOFT)
    harness.apply(docs, document(5, 4, "4"), truncated_at=4, deletes=Deletes.SOFT)

    assert kept.found(docs) == [row(1, DOCUMENT), row(2, "2"), row(3, "3"), row(4, "4")]


def test_a_log_and_a_history_hold_documents(kept: Kept) -> None:
    """A version opens where a document says something else, however it is written; a log gets some changes again."""
    log = with_variants(table(ID, DOC, name="log"), ALL)
    kept.harness.apply(log, document(1, 1, DOCUMENT, op="c"), mode=SinkMode.APPEND)
    kept.harness.apply(log, document(2, 1, "[1]"), document(3, 2, None), mode=SinkMode.APPEND)
    kept.harness.apply_resync(log, document(2, 1, "[1]"), mode=SinkMode.APPEND)
    delivered = orders_schema(ID, column("note", "json"), column("seen", "int"))
    delivered = msgspec.structs.replace(delivered, table_schema=with_variants(delivered.table_schema, ALL))
    history = Tables(kept.shared, delivered, warehouse=Warehouse(kept.harness.sink, kept.rows), mode=SinkMode.HISTORY)
    history.apply(put_version(1, 1, '{"b":1,"a":2}', op="c"), put_version(2, 1, '{"a": 2, "b": 1}'))
    history.apply(put_version(3, 1, '{"a":2}'), put_version(4, 2, "null", op="c"))
    history.apply(put_version(5, 2, None), put_version(6, 2, None))

    logged = sorted(kept.rows(kept.harness.place(log)), key=lambda found: found[ORDER_COLUMN])
    assert [json.loads(found["doc"]) if found["doc"] else None for found in logged] == [json.loads(DOCUMENT), [1], None]
    assert versions_of(history.rows()) == [
        (1, '{"a":2,"b":1}', 0, 1, 3, False),
        (1, '{"a":2}', 0, 3, None, True),
        (2, "null", 0, 4, 5, False),
        (2, None, 0, 5, None, True),
    ]


def test_a_log_is_rebuilt_into_a_table_of_its_kind(kept: Kept) -> None:
    """Also where new tables have another format by then."""
    log, sink = with_variants(table(ID, DOC, name="log"), ALL), kept.harness.sink
    kept.harness.apply(log, document(1, 1, DOCUMENT, op="c"), document(2, 2, "null", op="c"), mode=SinkMode.APPEND)
    kept.harness.apply(log, document(3, 1, "[1]"), mode=SinkMode.APPEND)
    place = kept.harness.place(log)
    into = msgspec.structs.replace(place, name="log_then")
    later = IcebergSink(kept.shared.iceberg) if isinstance(sink, IcebergSink) else sink

    with later.open_log(kept.shared.session, place) as opened:
        then = opened.rows.transform(state_at(sf.lit(True), None, key=opened.key))
        later.create_with(kept.shared.session, into, then, {}, like=place)

    rows = {found["id"]: json.loads(str(found["doc"])) for found in kept.rows(into)}
    assert rows == {1: [1], 2: None}


def test_small_tables_are_merged_without_a_query() -> None:
    """Rows that Iceberg merges by hand equal those that a query would have written."""
    docs = with_variants(table(ID, DOC), ALL)
    kept = [kept_in("iceberg", f"variant-{name}", is_at_hand=name == "hand") for name in ("hand", "query")]
    for each in kept:
        each.harness.apply(docs, document(1, 1, DOCUMENT, op="c"), document(1, 2, "null", op="c"))
        each.harness.apply(
            docs, document(2, 1, None), document(2, 3, "[2.0]"), RowChange("d", 2, {"id": 2, "doc": "null"})
        )

    assert [each.harness.merged_at_hand for each in kept] == [2, 0]
    assert kept[0].found(docs) == kept[1].found(docs) == [row(1, None), row(3, "[2.0]")]


def test_a_table_that_is_there_gets_a_column_beside(kept: Kept) -> None:
    """As any other type that changes: with the setting, and when it is taken back. By policy the table is parked."""
    docs, harness = table(ID, DOC), kept.harness
    harness.apply(docs, document(1, 1, "1"))

    parked = refusal(lambda: harness.apply(with_variants(docs, ALL), document(2, 2, "2"), policies=EVOLVE))
    harness.apply(with_variants(docs, ALL), document(2, 2, "2"))
    harness.apply(docs, document(3, 3, "3"))

    assert "column doc was string and is variant now" in parked
    assert kept.types(docs) == {"id": "int", "doc": "string", "doc__v_variant": "variant"}
    assert [(found["doc"], found["doc__v_variant"]) for found in kept.found(docs)] == [
        ([1], None),
        (None, [2]),
        ([3], None),
    ]


def test_columns_come_and_are_renamed(kept: Kept) -> None:
    """Beside one that is filled by an UPDATE with a condition, which Iceberg cannot do directly after a VARIANT's new name."""
    harness, called = kept.harness, (FormerName(name="doc", last_version=2),)
    first, more = table(ID, NOTE), table(ID, NOTE, DOC, version=2)
    renamed = msgspec.structs.replace(DOC, name="doc_now", former_names=called)
    last = with_variants(table(ID, NOTE, renamed, column("n", "int", default_expression="7"), version=3), ALL)

    harness.apply(first, put(1, 1, "one"))
    harness.apply(with_variants(more, ALL), put(2, 2, "two", doc="[2]"))
    harness.apply(last, put(3, 3, "three", doc_now="[3]", n=3), gone(3, 1))
    harness.apply(last, put(4, 2, "two", doc_now="[4]", n=4))

    assert kept.types(last) == {"id": "int", "note": "string", "doc_now": "variant", "n": "int"}
    assert kept.found(last) == [
        {"id": 2, "note": "two", "doc_now": [[4]], "n": 4},
        {"id": 3, "note": "three", "doc_now": [[3]], "n": 3},
    ]


def test_icebergs_format_2_has_no_variant() -> None:
    """A table that is to be made, and one that is there."""
    shared = shared_spark()
    harness = WarehouseHarness(shared.session, shared.sink, shared.rows, "variant-format-2")
    docs, there = table(ID, DOC), table(ID, DOC, name="there")
    harness.apply(there, document(1, 1, "1"))

    new = refusal(lambda: harness.apply(with_variants(docs, ALL), document(1, 1, "1")))
    old = refusal(lambda: harness.apply(with_variants(there, ALL), document(2, 2, "2")))

    assert "column doc should be VARIANT" in new
    assert "warehouses.iceberg.format_version to 3" in new
    assert "column doc__v_variant should be VARIANT" in old
    assert source_rows(harness, there) == [{"id": 1, "doc": "1"}]


@pytest.mark.parametrize("kind", ["iceberg", *rest("delta", because="the gate shows it on Iceberg")])
def test_check_compares_documents(
    kind: str,
    mysql_server: MysqlServer,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By checksums and row by row: a document of another order or other digits is the same, another one is not."""
    database, kept = unique_name("docs"), kept_in(kind, f"variant-check-{kind}")
    docs = with_variants(
        TableSchema(table_id=TableId(database=database, table="t"), columns=(ID, DOC), key=("id",), version=1), ALL
    )
    told = [
        None,
        "null",
        "{}",
        '{"bb": 1.0, "a": [1, "a, b: c", 1e300]}',
        DOCUMENT,
        "18446744073709551615",
        '"text"',
    ] * 30
    mysql_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, doc JSON)",
        *(
            f"INSERT INTO {database}.t VALUES ({key}, {'NULL' if doc is None else text_of(doc)[0]})"
            for key, doc in enumerate(told)
        ),
    )
    home = home_at(tmp_path / "home")
    write_shop(home, mysql_server, database, {"acme": f"{{mode: mirror, warehouse: {kind}, json_as_variant: ['.*']}}"})
    kept.harness.apply(docs, *(document(1, key, doc, op="c") for key, doc in enumerate(told)))
    right = Rig(home, kept.stored(docs))
    equal = [right.check(monkeypatch, reads_all=reads_all) for reads_all in (False, True)]
    kept.harness.apply(docs, document(2, 1, None), document(2, 3, '{"bb": 1.0, "a": [1, "a, b: d", 1e300]}'))
    wrong = Rig(home, kept.stored(docs))
    differing = [wrong.check(monkeypatch, reads_all=reads_all) for reads_all in (False, True)]

    assert [(each.is_equal, each.comparison.rows_compared) for each in equal] == [(True, len(told))] * 2
    assert [each.is_summed for each in equal] == [True, False]
    assert [each.comparison.rows_different for each in differing] == [2, 2]
    assert found_in(differing[0]) == found_in(differing[1])


@pytest.mark.timeout(1_800)
def test_documents_of_a_transaction_are_shown_together(start_tenant: StartTenant) -> None:
    """On a branch first, also after a new name of theirs and beside one more; a document that does not fit waits with its
    reason, and the transaction's other rows are shown."""
    tenant = start_tenant("iceberg", consistency=Consistency.TRANSACTION, json_as_variant=ALL)
    tenant.sink = IcebergSink(msgspec.structs.replace(shared_spark().iceberg, format_version=3))
    tenant.read_rows = read_iceberg
    tenant.topics.create_boundaries()
    renamed = msgspec.structs.replace(DOC, name="doc_now", former_names=(FormerName(name="doc", last_version=1),))
    names = ("orders", "notes")
    first = [TableSchema(table_id=table_id(name), columns=(ID, DOC), key=("id",), version=1) for name in names]
    second = [msgspec.structs.replace(each, columns=(ID, renamed, column("more", "json")), version=2) for each in first]
    for each in first:
        tenant.topics.create_table(each)

    def write(schemas: Sequence[TableSchema], **values: str | None) -> None:
        with tenant.topics.transaction() as transaction:
            for each in schemas:
                transaction.schema(each)
                for key in (1, 2):
                    transaction.change(each, op="u", after={"id": key, **values})

    write(first, doc=DOCUMENT)
    tenant.run_until_done(4)
    write(first, doc="[1]")
    tenant.run_until_done(8)
    write(second, doc_now="[2]", more="null")
    tenant.run_until_done(12)
    shown = [tenant.rows(name) for name in names]
    with tenant.topics.transaction() as transaction:
        transaction.change(second[0], op="u", after={"id": 1, "doc_now": json.dumps(int("9" * 40)), "more": None})
        transaction.change(second[1], op="u", after={"id": 1, "doc_now": "3", "more": None})
    tenant.run_until_done(14)

    assert shown == [[{"id": key, "doc_now": "[2]", "more": "null"} for key in (1, 2)]] * 2
    [letter] = tenant.letters
    assert "column doc_now (variant)" in letter.letter.reason
    assert tenant.rows("orders") == shown[0]
    assert tenant.rows("notes") == [{"id": 1, "doc_now": "3", "more": None}, shown[1][1]]
    place = warehouse_table(tenant.spec.tenant, SOURCE, table_id("orders"))
    refs = shared_spark().session.sql(f"SELECT name FROM {place.quoted()}.refs").collect()
    assert [ref.name for ref in refs] == ["main"]


@pytest.mark.rest(because="the test above has one in Iceberg; test_dead_letters.py: a key is taken up again")
@pytest.mark.timeout(1_800)
def test_a_document_that_does_not_fit_waits_alone(start_tenant: StartTenant) -> None:
    """Its key is parked with a reason that names the column, and is taken up again."""
    schema = TableSchema(table_id=table_id("orders"), columns=(ID, DOC), key=("id",), version=1)
    tenant = start_tenant("delta", schema, json_as_variant=ALL)
    bad = json.dumps({"n": int("9" * 40)})
    tenant.write(schema, {"id": 1, "doc": DOCUMENT}, {"id": 2, "doc": bad}, {"id": 3, "doc": "null"})
    tenant.run_until_done(3)
    tenant.read_rows = read_delta
    [letter] = tenant.letters
    before = [(found["id"], json.loads(found["doc"])) for found in tenant.rows()]
    tenant.write(schema, {"id": 2, "doc": "2"})
    tenant.run_until_done(4)

    assert tenant.replay() == (1, 0)

    assert before == [(1, json.loads(DOCUMENT)), (3, None)]
    assert "column doc (variant)" in letter.letter.reason
    assert bad not in letter.letter.reason
    assert sorted((found["id"], found["doc"]) for found in tenant.rows()) == [
        (1, '{"a":18446744073709551615,"b":[1,2.5,null,{"é":"\\"😀"}]}'),
        (2, "2"),
        (3, "null"),
    ]
