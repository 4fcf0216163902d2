"""Statements of a keyspace after which tenants' rows differ, and of which a stream has no row."""

from collections.abc import Sequence

import pytest

from libs.mysql.ddl import show_create_to_schema
from libs.source.vitess.columns import as_vtgate_reports
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from libs.types.value_modes import VitessValueModes
from protos.vitess import query_pb2
from services.vstream_reader.found import DdlStatement, NewForm
from services.vstream_reader.position import VitessPosition, position_of
from services.vstream_reader.unseen_statements import StatementWatch
from tests.unit.vstream_reader.stream import NOT_NULL_PRIMARY, column, fields, inserted, replay, start_of, transaction

T, U = TableId(database="ks", table="t"), TableId(database="ks", table="u")
PLACE = {"-80": "a:1-2"}


def form(table_id: TableId, columns: str, version: int = 1) -> TableSchema:
    """A table as FIELD events describe it."""
    made = show_create_to_schema(table_id, f"CREATE TABLE {table_id.table} ({columns}, PRIMARY KEY (id))")
    schema = as_vtgate_reports(made, VitessValueModes(), ())
    return TableSchema(table_id=table_id, columns=schema.columns, key=schema.key, version=version)


TABLES = {table_id: form(table_id, "id INT NOT NULL, s INT, d DECIMAL(10,4)") for table_id in (T, U)}


def statement(text: str, shard: str = "-80") -> DdlStatement:
    return DdlStatement(
        statement=text,
        shard=shard,
        order=EventOrder(epoch=0, rank=1, tx_ordinal=0),
        position=position_of(VitessPosition(vgtid=(), epochs={})),
        committed_at_us=0,
        vgtid=b"[]",
    )


def reports(
    *statements: str | tuple[str, str],
    tables: dict[TableId, TableSchema] = TABLES,
    versions: Sequence[TableSchema] = (),
    watch: StatementWatch | None = None,
) -> list[tuple[str, str]]:
    """(table, clause) for each report of the statements, in order."""
    watch = watch or StatementWatch("ks", lambda _: True)
    return [
        (table_id.table, unseen.clause)
        for each in statements
        for found in [statement(each) if isinstance(each, str) else statement(*each)]
        for unseen in watch.unseen(found, tables, [*versions, *tables.values()])
        for table_id in unseen.table_ids
    ]


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("RENAME TABLE t TO v", [("v", "RENAME of ks.t to it, whose rows came under that name")]),
        ("ALTER TABLE t RENAME v", [("v", "RENAME of ks.t to it, whose rows came under that name")]),
        ("RENAME TABLE elsewhere TO t", [("t", "RENAME of ks.elsewhere, whose rows were not captured, to it")]),
        ("RENAME TABLE t TO _vt_hld_6ace8bcef73211ea87e9f875a4d24e90_20200915120410_", []),
        (
            "RENAME TABLE t TO _swap, _vt_vrp_6ace8bcef73211ea87e9f875a4d24e90_20200915120410_ TO t, "
            "_swap TO _vt_vrp_6ace8bcef73211ea87e9f875a4d24e90_20200915120410_",
            [],
        ),
        ("RENAME TABLE t TO _t_del, _t_gho TO t", []),
        (
            "RENAME TABLE t TO _4e5dcf80_354b_11eb_82cd_f875a4d24e90_20201203114014_del, "
            "_4e5dcf80_354b_11eb_82cd_f875a4d24e90_20201203114014_vrepl TO t",
            [],
        ),
        (
            "RENAME TABLE t TO x, u TO t, x TO u",
            [
                ("t", "RENAME of ks.u to it, whose rows came under that name"),
                ("u", "RENAME of ks.t to it, whose rows came under that name"),
            ],
        ),
        ("TRUNCATE TABLE t", [("t", "TRUNCATE TABLE")]),
        ("ALTER TABLE t MODIFY d DECIMAL(10,2)", [("t", "d from decimal(10,4) to decimal(10,2)")]),
        ("ALTER TABLE t DROP PARTITION p0", [("t", "DROP PARTITION")]),
        ("ALTER TABLE t ADD c INT", []),
        ("ALTER TABLE t ADD c INT NOT NULL", []),
        ("ALTER TABLE t ADD c INT NOT NULL DEFAULT 0", []),
        ("ALTER TABLE t ADD c VARCHAR(9) NOT NULL DEFAULT ''", []),
        ("ALTER TABLE t ADD c ENUM('a','b') NOT NULL DEFAULT 'a'", []),
        ("ALTER TABLE t ADD c INT DEFAULT 0", [("t", "ADD COLUMN c, whose DEFAULT vtgate does not send")]),
        ("ALTER TABLE t ADD c INT NOT NULL DEFAULT 7", [("t", "ADD COLUMN c, whose DEFAULT vtgate does not send")]),
        (
            "ALTER TABLE t ADD c DATETIME DEFAULT CURRENT_TIMESTAMP",
            [("t", "ADD COLUMN c, whose values in the rows of before the server computed")],
        ),
        ("ALTER TABLE t RENAME COLUMN s TO s2", [("t", "s renamed to s2, whose values stay under the former name")]),
        ("ALTER TABLE t CHANGE s s2 BIGINT", [("t", "s renamed to s2, whose values stay under the former name")]),
        ("ALTER TABLE t RENAME COLUMN s TO S", []),
        ("ALTER TABLE t DROP s, ADD s INT", [("t", "ADD COLUMN s, which has a dropped column's values at tenants")]),
        (
            "ALTER TABLE t RENAME COLUMN s TO s2, ADD s INT",
            [
                (
                    "t",
                    "s renamed to s2, whose values stay under the former name, "
                    "ADD COLUMN s, which has a dropped column's values at tenants",
                )
            ],
        ),
        ("ALTER TABLE t ADD INDEX (s)", []),
        ("DROP TABLE t", []),
        ("CREATE TABLE v (id INT PRIMARY KEY)", []),
        ("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)", []),
        ("ALTER TABLE v ADD c INT DEFAULT 7", []),
    ],
)
def test_a_statement_is_reported_where_tenants_rows_differ_after_it(text: str, reported: list[tuple[str, str]]) -> None:
    """Swaps of Online DDL, gh-ost and pt-online-schema-change are none: the shadow table has the rows."""
    assert reports(text) == reported


def test_a_table_that_a_shard_makes_again_is_reported_of_that_shard_alone() -> None:
    again = ("t", "CREATE TABLE of a table that was dropped or renamed")
    create = "CREATE TABLE t (id INT PRIMARY KEY)"

    assert reports("DROP TABLE t", create) == [again]
    assert reports("DROP TABLE IF EXISTS t", "CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)") == [again]
    assert reports("RENAME TABLE t TO _vt_hld_6ace_20200915120410_", create, create) == [again]
    assert reports(("DROP TABLE t", "-80"), (create, "80-")) == []


def test_a_table_is_made_again_also_where_an_earlier_reader_saw_it_dropped() -> None:
    watch = StatementWatch("ks", lambda _: True)
    watch.known_at_start = frozenset({T})

    assert reports("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE v (id INT PRIMARY KEY)", watch=watch) == [
        ("t", "CREATE TABLE of a table that was dropped or renamed")
    ]


def test_a_column_that_comes_back_is_reported() -> None:
    former = form(T, "id INT NOT NULL, s INT, d DECIMAL(10,4), c INT")
    now = {T: form(T, "id INT NOT NULL, s INT, d DECIMAL(10,4)", version=2)}

    assert reports("ALTER TABLE t ADD c INT", tables=now, versions=[former]) == [
        ("t", "ADD COLUMN c, which has a dropped column's values at tenants")
    ]


def test_a_shard_that_follows_the_others_late_is_judged_by_the_form_that_its_statement_fits() -> None:
    newest = {T: form(T, "id INT NOT NULL, s INT, d DECIMAL(10,4), c INT", version=2)}

    def of(text: str) -> list[tuple[str, str]]:
        return reports(text, tables=newest, versions=[TABLES[T]])

    assert of("ALTER TABLE t ADD c INT") == []
    assert of("ALTER TABLE t ADD c INT DEFAULT 7") == [("t", "ADD COLUMN c, whose DEFAULT vtgate does not send")]
    [(table, clause)] = of("ALTER TABLE t FROBNICATE")
    assert (table, "is not understood" in clause) == ("t", True)


def test_what_online_ddl_changed_is_known_by_the_next_form() -> None:
    """An ALTER of the table itself was judged by its text."""
    after = form(T, "id INT NOT NULL, s INT, d DECIMAL(10,2), c INT", version=2)
    swapped, altered = StatementWatch("ks", lambda _: True), StatementWatch("ks", lambda _: True)
    reports("RENAME TABLE t TO _vt_x, _a_vrepl TO t", watch=swapped)
    reports("ALTER TABLE t ADD c INT, MODIFY d DECIMAL(10,2)", watch=altered)

    found = swapped.unseen_form(NewForm(TABLES[T], after, "-80"))

    assert found is not None
    assert found.clause == (
        "d from decimal(10,4) to decimal(10,2), a new column c, whose value in the rows of before vtgate does not send"
    )
    assert altered.unseen_form(NewForm(TABLES[T], after, "-80")) is None
    assert altered.unseen_form(NewForm(TABLES[T], after, "80-")) is not None
    assert swapped.unseen_form(NewForm(TABLES[T], form(T, "id INT NOT NULL, s INT, d DECIMAL(12,4)"), "-80")) is None


def test_a_shards_table_comes_as_a_new_form_also_where_the_form_is_known() -> None:
    """The first form that a stream meets is compared with the newest that was known before."""
    wider = column("v", query_pb2.TEXT, "text"), column("w", query_pb2.INT32, "int")
    id_column = column("id", query_pb2.INT64, "bigint", NOT_NULL_PRIMARY)
    stream = replay(start_of("-80", gtid="a:1"))
    stream.feed(
        transaction(PLACE, fields(), inserted(1, "a")),
        transaction(PLACE, fields(), inserted(2, "a")),
        transaction(PLACE, fields(id_column, *wider), inserted(3, "a", 1)),
        transaction(PLACE, fields(), inserted(4, "a")),
    )
    forms = [(each.before.version, each.after.version) for each in stream.found if isinstance(each, NewForm)]

    assert forms == [(1, 2), (2, 1)]
    assert [each.version for each in stream.decoder.tables_of("-80").values()] == [1]
    assert stream.decoder.tables_of("80-") == {}
