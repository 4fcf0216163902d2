"""Iceberg's own part of its sink; the promises of every sink are in ``tests/contract/test_sinks.py``."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.config.iceberg_catalog import CatalogKind, CatalogSettings
from libs.config.load import convert_document
from libs.errors import InvalidSettings
from libs.mysql.logical import column
from libs.sink_state.progress import encode_positions
from libs.testing.sink_contract import ID, NOTE, RowChange, put, source_rows, table
from libs.types.table import FormerName, TableSchema
from libs.types.table_layout import parse_ordered_term, parse_term
from libs.types.tenant import Deletes, SinkMode
from libs.types.warehouse import CATALOG, WarehouseTable
from spark.sinks.iceberg.catalog import catalog_config, place_in
from spark.sinks.iceberg.commits import commit
from spark.sinks.iceberg.settings import Settings
from spark.sinks.iceberg.sink import IcebergSink
from spark.sinks.port import Reached, TableRefused
from tests.contract.sink_harness import REACHED, WarehouseHarness
from tests.spark_session import SharedSpark


def test_maintenance_leaves_few_files(shared: SharedSpark) -> None:
    """After many small merges: delete files are rewritten, snapshots expired, rows and the last batch as before."""
    harness, orders = WarehouseHarness(shared.session, shared.sink, shared.rows, "maintain"), table()
    for rank in range(1, 9):
        harness.apply(orders, put(rank, rank % 3, f"at {rank}"), batch_id=rank)
    before = source_rows(harness, orders)

    harness.maintain(orders)
    harness.maintain(orders)

    name = harness.place(orders).quoted()
    counted = f"SELECT count(*) FILTER (WHERE content = 1) d, count(*) n FROM {name}.files"
    [files] = shared.session.sql(counted).collect()
    assert source_rows(harness, orders) == before
    assert (files["d"], files["n"] <= 2) == (0, True)
    assert shared.session.sql(f"SELECT * FROM {name}.snapshots").count() <= 2 * 3
    assert harness.is_applied(orders, 8)


def test_a_column_that_somebody_renamed_in_the_warehouse_parks_the_table(shared: SharedSpark) -> None:
    """Rows of before would be NULL in a new one of the old name. Put back, the table goes on."""
    harness, orders = WarehouseHarness(shared.session, shared.sink, shared.rows, "renamed-there"), table()
    harness.apply(orders, put(1, 1, "one"))
    place = harness.place(orders).quoted()

    shared.session.sql(f"ALTER TABLE {place} RENAME COLUMN note TO remark")
    with pytest.raises(TableRefused, match="somebody dropped or renamed column note; put it back"):
        harness.apply(orders, put(2, 2, "two"))
    shared.session.sql(f"ALTER TABLE {place} RENAME COLUMN remark TO note")
    harness.apply(orders, put(3, 3, "three"))
    renamed = note_renamed()
    harness.apply(renamed, RowChange("u", 4, {"id": 4, "text": "four"}))

    assert [row["text"] for row in source_rows(harness, renamed)] == ["one", "three", "four"]


def note_renamed() -> TableSchema:
    former = FormerName(name="note", last_version=1)
    return table(ID, msgspec.structs.replace(NOTE, name="text", former_names=(former,)), version=2)


def test_a_commit_says_how_far_the_table_got(shared: SharedSpark) -> None:
    """The first one, a merge, and one of an append table; commits that fill a column or maintain say nothing."""
    harness, orders, visits = (
        WarehouseHarness(shared.session, shared.sink, shared.rows, "reached"),
        table(),
        table(name="v"),
    )
    harness.apply(orders, put(1, 1, "one"))
    harness.apply(orders, put(2, 1, "two"))
    harness.apply(table(ID, NOTE, column("n", "int", default_expression="3"), version=2))
    harness.apply(visits, put(1, 1, "one"), mode=SinkMode.APPEND)

    def summaries(schema: TableSchema) -> list[tuple[str, ...]]:
        names = ("headwater.order", "headwater.committed-at-us", "headwater.offsets", "headwater.positions")
        columns = ", ".join(f"summary['{name}']" for name in names)
        statement = f"SELECT {columns} FROM {harness.place(schema).quoted()}.snapshots ORDER BY committed_at"
        return [tuple(row) for row in shared.session.sql(statement).collect()]

    positions = encode_positions(REACHED.positions).decode()
    said = (REACHED.order, str(REACHED.committed_at_us), '{"0": 5, "1": 7}', positions)
    assert summaries(orders) == [said, said, (None, None, None, None), said]
    assert summaries(visits) == [said]


def between(monkeypatch: pytest.MonkeyPatch, come: Callable[[], object]) -> None:
    """Let something come between the sink's look at a table and its next commit."""

    def commit_second(spark: SparkSession, reached: Reached, write: Callable[[], None]) -> None:
        monkeypatch.undo()
        come()
        commit(spark, reached, write)

    monkeypatch.setattr("spark.sinks.iceberg.sink.commit", commit_second)


@pytest.mark.parametrize("mode", [SinkMode.MIRROR, SinkMode.APPEND])
@pytest.mark.parametrize("batches_before", [0, 1])
def test_a_batch_that_another_commits_meanwhile_is_there_once(
    batches_before: int, mode: SinkMode, shared: SharedSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a job that was killed may have left it under way in the catalog: the append that comes second fails, also one that
    spares a merge, and the batch that comes again is known."""
    harness = WarehouseHarness(shared.session, shared.sink, shared.rows, f"twice-{mode.value}-{batches_before}")
    orders = table()
    for batch_id in range(batches_before):
        harness.apply(orders, put(1, 1, "one"), mode=mode, batch_id=batch_id)

    def second_batch() -> bool:
        created = [RowChange("c", 2, {"id": key, "note": "two"}) for key in (2, 3)]
        return harness.apply(orders, *created, mode=mode, batch_id=1)

    between(monkeypatch, second_batch)
    with pytest.raises(Py4JJavaError, match="ValidationException"):
        second_batch()

    assert not second_batch()
    noted = [row["note"] for row in harness.rows(orders) if row["note"] == "two"]
    assert noted == ["two", "two"]


def test_a_batch_that_came_since_it_was_asked_for_is_there_once(
    shared: SharedSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink looks once more where it appends."""
    harness, visits = WarehouseHarness(shared.session, shared.sink, shared.rows, "since"), table(name="v")
    monkeypatch.setattr(IcebergSink, "is_applied", lambda *_: False)

    for _ in range(2):
        harness.apply(visits, put(1, 1, "one"), mode=SinkMode.APPEND, batch_id=1)

    assert [row["note"] for row in harness.rows(visits)] == ["one"]


def test_files_that_are_rewritten_meanwhile_stop_no_append(
    shared: SharedSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job may maintain the tables; to readers of the table's snapshots a log of changes has appends alone."""
    harness, visits = WarehouseHarness(shared.session, shared.sink, shared.rows, "rewritten"), table(name="v")
    for rank in (1, 2):
        harness.apply(visits, put(rank, rank, "at rest"), mode=SinkMode.APPEND)
    name = harness.place(visits).quoted()
    rewrite = f"CALL {CATALOG}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"

    between(monkeypatch, lambda: shared.session.sql(rewrite).collect())
    harness.apply(visits, put(3, 3, "at rest"), mode=SinkMode.APPEND)

    operations = shared.session.sql(f"SELECT operation FROM {name}.snapshots ORDER BY committed_at").collect()
    assert [operation for (operation,) in operations] == ["append", "append", "replace", "append"]
    assert sorted(row["id"] for row in harness.rows(visits)) == [1, 2, 3]


def test_catalogs_of_one_level_keep_tables_apart() -> None:
    """Hive's and Glue's names are in lower case, and their databases lie side by side."""
    glue = CatalogSettings(kind=CatalogKind.GLUE)
    spelled = [
        ("a", "b", "c"),
        ("a__b", "c"),
        ("a", "b_", "c"),
        ("a", "b", "_c"),
        ("A", "b", "c"),
        ("a-b", "c"),
        ("a_b", "c"),
    ]

    placed = [place_in(glue, WarehouseTable(namespace=namespace, name="T")).namespace for namespace in spelled]

    assert placed[0] == ("a__b__c",)
    assert len(set(placed)) == len(spelled)
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for (name,) in placed)


@pytest.mark.parametrize(
    ("given", "mistake"),
    [
        ({"kind": "sqlite"}, "catalog.file: is missing"),
        ({"kind": "rest", "file": "f"}, "catalog.uri: is missing"),
        ({"kind": "jdbc", "uri": "postgresql://h/d"}, "catalog.uri: must begin with jdbc:"),
        ({"kind": "hadoop", "password": "x"}, "catalog.password: is for a catalog of kind jdbc"),
        (
            {"kind": "rest", "uri": "u", "credential": "a:b", "token": "t"},
            "catalog.token: the catalog gives tokens for",
        ),
        ({"kind": "glue", "token": "t"}, "catalog.token: is for a catalog of kind rest"),
        (
            {"kind": "hive", "uri": "u", "properties": {"s3.secret-access-key": "x"}},
            "catalog.properties.s3.secret-access-key",
        ),
        ({"kind": "rest", "uri": "u", "properties": {"token": "x"}}, "catalog.properties.token: is a secret"),
        ({"kind": "sqlit", "file": "f"}, "catalog.kind: unknown value 'sqlit'; did you mean 'sqlite'?"),
    ],
)
def test_a_catalog_that_cannot_be_reached_is_refused(given: dict[str, Any], mistake: str) -> None:
    mistakes: list[str] = []

    assert convert_document(Settings, {"warehouse_dir": "w", "catalog": given}, place="", mistakes=mistakes) is None
    assert [each for each in mistakes if each.startswith(mistake)], mistakes


@pytest.mark.parametrize(
    ("given", "mistakes"),
    [
        ({"filter_merges_at_rows": 0, "keep_snapshots": 0}, ["filter_merges_at_rows: must", "keep_snapshots: must"]),
        ({"orphans_older_than_hours": 1}, ["orphans_older_than_hours: must be at least 24"]),
        ({"format_version": 1, "orphans_every_commits": -1}, ["format_version: must", "orphans_every_commits: must"]),
        ({"filter_merge_at_rows": 5}, ["filter_merge_at_rows: unknown name; did you mean 'filter_merges_at_rows'?"]),
    ],
)
def test_values_that_make_no_sense_are_all_told(given: dict[str, Any], mistakes: list[str]) -> None:
    document = {"warehouse_dir": "w", "catalog": {"kind": "sqlite", "file": "f"}, **given}
    found: list[str] = []

    assert convert_document(Settings, document, place="", mistakes=found) is None
    for mistake in mistakes:
        assert [each for each in found if mistake in each], found


def test_tables_in_an_object_store_are_reached_by_icebergs_client_and_need_a_catalog_that_can_commit_there() -> None:
    """Hadoop's client is not there, and a rename is two steps in a store. A person's own setting stands."""
    jdbc = CatalogSettings(kind=CatalogKind.JDBC, uri="jdbc:postgresql://h/d")
    own = CatalogSettings(kind=CatalogKind.JDBC, uri="jdbc:postgresql://h/d", properties={"io-impl": "mine"})
    clients = [
        catalog_config(settings, place).get(f"spark.sql.catalog.{CATALOG}.io-impl")
        for settings, place in (
            (jdbc, "s3://lake/w"),
            (jdbc, "s3a://lake/w"),
            (jdbc, "gs://lake/w"),
            (jdbc, "abfss://lake@account.dfs.core.windows.net/w"),
            (jdbc, "file:///w"),
            (own, "s3://lake/w"),
        )
    ]

    assert clients == [
        *2 * ["org.apache.iceberg.aws.s3.S3FileIO"],
        "org.apache.iceberg.gcp.gcs.GCSFileIO",
        "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
        None,
        "mine",
    ]
    for place, name in (("s3://lake/w", "S3"), ("gs://lake/w", "Google Cloud Storage")):
        with pytest.raises(InvalidSettings, match=f"no single step in {name}.*take jdbc, rest or glue"):
            Settings(warehouse_dir=place, catalog=CatalogSettings(kind=CatalogKind.HADOOP))


def test_a_layout_is_followed_from_then_on_and_refused_by_name(shared: SharedSpark) -> None:
    """Partitioning and order are changed in place; a column that is not there parks the table."""
    harness, orders = WarehouseHarness(shared.session, shared.sink, shared.rows, "layout"), table()
    harness.apply(orders, put(1, 1, "a"), put(1, 2, "b"))

    def laid_out(partition_by: list[str], sort_by: list[str]) -> list[str]:
        wanted = harness.sink_table(orders, SinkMode.MIRROR, Deletes.HARD)
        terms = tuple(map(parse_term, partition_by)), tuple(map(parse_ordered_term, sort_by))
        shared.sink.ensure_table(
            shared.session.newSession(), dataclasses.replace(wanted, partition_by=terms[0], sort_by=terms[1])
        )
        with shared.loaded(harness.place(orders)) as found:
            sorts = [f"{field.transform} {field.direction}" for field in found.sort_order().fields]
            return [*(str(field.transform) for field in found.spec().fields), *sorts]

    first = laid_out(["truncate(1, NOTE)"], ["id desc"])
    harness.apply(orders, put(2, 1, "again"))
    second = laid_out(["bucket(4, id)"], [])

    assert first == ["truncate[1]", "identity DESC"]
    assert second == ["bucket[4]"]
    assert source_rows(harness, orders) == [{"id": 1, "note": "again"}, {"id": 2, "note": "b"}]
    with pytest.raises(TableRefused, match="there is no column nte; there are id, note"):
        laid_out(["nte"], [])
    with pytest.raises(TableRefused, match=r"sink\.layouts: .*day"):
        laid_out(["day(note)"], [])


def test_a_required_key_that_may_become_null_is_refused(shared: SharedSpark) -> None:
    """The stored table could not hold it; the others go on."""
    required = column("note", "varchar(20)", charset="utf8mb4", is_optional=False)
    harness = WarehouseHarness(shared.session, shared.sink, shared.rows, "required")
    harness.apply(table(ID, required, key=("note",)), put(1, 1, "one"))

    with pytest.raises(TableRefused, match="key column note may be NULL"):
        harness.apply(table(key=("note",), version=2), put(2, 1, "one"))
