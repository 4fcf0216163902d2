"""A rule that hides a table or column follows it through renames, in any case of its name, until a person lifts it."""

from collections.abc import Mapping
from typing import Any

import pytest

from libs.events.schema_change import SchemaChange, SchemaChangeKind
from libs.mysql.ddl import apply_ddl
from libs.tenants.fit import misfits
from libs.tenants.view import TenantView, beside_hidden, tenant_view
from libs.types.order import EventOrder
from libs.types.position import SourcePosition
from libs.types.table import TableId, TableSchema
from libs.types.tenant import ColumnMask, RowFilter, SourceSelection, TenantSpec, UnknownColumns
from services.router.routes.project import InvalidProjection, compile_projection
from services.schema_history.history import recorded, with_names_of

CREATED = (
    "CREATE TABLE people (id INT PRIMARY KEY, email VARCHAR(99), ssn CHAR(11), note TEXT, region CHAR(2))",
    "CREATE TABLE hidden (id INT PRIMARY KEY, secret TEXT)",
)
HIDING: dict[str, Any] = {
    "exclude_tables": (r"shop\.hidden",),
    "exclude_columns": (r"shop\.people\.ssn",),
    "masks": (ColumnMask(columns=r"shop\.people\.email", set_null=True),),
    "row_filters": (RowFilter(tables=r"shop\.people", where="region = 'EU'"),),
}


def after(*statements: str) -> Mapping[TableId, TableSchema]:
    """The tables as the reader's model has them, by the source's own statements."""
    tables: dict[TableId, TableSchema] = {}
    for statement in (*CREATED, *statements):
        for change in apply_ddl(tables, "shop", statement):
            if change.previous_id is not None:
                tables.pop(change.previous_id, None)
            if change.schema is None:
                tables.pop(change.table_id, None)
            else:
                tables[change.table_id] = change.schema
    return tables


def table(name: str, *statements: str) -> TableSchema:
    return after(*statements)[TableId(database="shop", table=name)]


def seen(schema: TableSchema, **more: Any) -> TenantView:
    return tenant_view(schema, SourceSelection(name="s", **(HIDING | more)))


@pytest.mark.parametrize(
    ("name", "statements"),
    [
        ("people", ("ALTER TABLE people CHANGE ssn SSN CHAR(11), CHANGE email EMail VARCHAR(99)",)),
        ("people", ("ALTER TABLE people MODIFY Ssn CHAR(12), MODIFY EMAIL VARCHAR(100)",)),
        ("people", ("ALTER TABLE people RENAME COLUMN ssn TO number, RENAME COLUMN email TO address",)),
        (
            "people",
            ("ALTER TABLE people CHANGE ssn a CHAR(11), CHANGE email b TEXT", "ALTER TABLE people CHANGE a c TEXT"),
        ),
        ("people", ("ALTER TABLE people RENAME COLUMN ssn TO email, RENAME COLUMN email TO ssn",)),
        ("people", ("ALTER TABLE people RENAME COLUMN ssn TO x", "ALTER TABLE people CONVERT TO CHARACTER SET latin1")),
        ("people_2025", ("RENAME TABLE people TO people_2025",)),
        ("p3", ("RENAME TABLE people TO p2", "ALTER TABLE p2 RENAME TO p3")),
        ("p2", ("ALTER TABLE people RENAME COLUMN ssn TO a, RENAME COLUMN email TO b", "RENAME TABLE people TO p2")),
        ("p2", ("RENAME TABLE people TO p2", "ALTER TABLE p2 RENAME COLUMN ssn TO a, RENAME COLUMN email TO b")),
        ("p2", ("ALTER TABLE people RENAME TO p2, RENAME COLUMN ssn TO a",)),
    ],
)
def test_a_renamed_column_stays_hidden(name: str, statements: tuple[str, ...]) -> None:
    """Excluded or masked, and the rows by the filter of the table's old name."""
    schema = table(name, *statements)
    selection = SourceSelection(name="s", **HIDING)
    projection = compile_projection(schema, selection)

    ssn, email = schema.columns[2].name, schema.columns[1].name
    if ssn == "email":  # the two changed places
        assert {ssn, email} <= projection.excluded | projection.masks.keys()
    else:
        assert projection.excluded == {ssn}
        assert projection.masks.keys() == {email}
    assert len(projection.filters) == 1
    assert not projection.filters[0].matches({"region": "US"})


def test_a_renamed_table_stays_excluded_and_says_so() -> None:
    """Its rows are set aside without their values; the reason is in status, explain and ConfigMap."""
    schema = table("hidden_archive", "RENAME TABLE hidden TO hidden_archive")
    selection = SourceSelection(name="s", **HIDING)

    with pytest.raises(
        InvalidProjection, match=r"shop\.hidden_archive was shop\.hidden, which 'shop\\\\\.hidden' excludes"
    ):
        compile_projection(schema, selection)
    (found,) = misfits(TenantSpec(tenant="acme", sources=(selection,)), selection, schema)
    assert "show_renamed" in found.why


def test_a_person_lifts_it() -> None:
    archive = table("hidden_archive", "RENAME TABLE hidden TO hidden_archive")
    people = table("people_2025", "RENAME TABLE people TO people_2025")

    assert seen(archive, show_renamed=(r"shop\.hidden_archive",)).mistakes == ()
    assert seen(people, show_renamed=(r"shop\.people_2025\.email",)).masks == {}
    assert seen(people, show_renamed=(r"shop\.people_2025\.email",)).excluded == {"ssn"}


def test_a_copy_put_in_a_tables_place_is_that_table() -> None:
    """As gh-ost and pt-online-schema-change do it: a rule that excludes their copies by name hides no table."""
    swapped = table(
        "people",
        "CREATE TABLE _people_gho LIKE people",
        "RENAME TABLE people TO _people_del, _people_gho TO people",
    )
    selection = SourceSelection(name="s", exclude_tables=(r"shop\._.*_gho",))

    assert swapped.former_ids == ()
    assert tenant_view(swapped, selection).mistakes == ()


def test_another_table_in_a_tables_place_is_not_that_table() -> None:
    swapped = table("people", "RENAME TABLE people TO old, hidden TO people")

    assert "was shop.hidden" in seen(swapped).mistakes[0]


def test_a_new_column_of_a_hidden_name_is_hidden_and_a_name_that_is_free_again_is_not() -> None:
    schema = table(
        "people", "ALTER TABLE people DROP COLUMN ssn", "ALTER TABLE people ADD COLUMN ssn TEXT, ADD COLUMN x INT"
    )

    assert seen(schema).excluded == {"ssn"}


def test_tenants_hear_of_no_former_name() -> None:
    schema = table("p2", "ALTER TABLE people RENAME COLUMN note TO remark", "RENAME TABLE people TO p2")
    view = seen(schema)

    assert view.schema.former_ids == ()
    assert [column.earlier_names for column in view.schema.columns] == [()] * len(view.schema.columns)


def test_a_name_with_a_line_break_is_hidden_too() -> None:
    schema = table("people", "ALTER TABLE people ADD COLUMN `ssn\n2` TEXT")

    assert seen(schema, exclude_columns=(r"shop\.people\.ssn.*",)).excluded == {"ssn", "ssn\n2"}


def test_generated_columns_beside_hidden_ones_are_warned_of() -> None:
    schema = table("people", "ALTER TABLE people ADD COLUMN upper_ssn CHAR(11) AS (UPPER(ssn)), ADD COLUMN whole JSON")

    assert beside_hidden(schema, seen(schema)) == ("upper_ssn", "whole")
    hidden = seen(schema, exclude_columns=(r".*ssn", r".*\.whole"))
    assert beside_hidden(schema, hidden) == ()


def test_a_definition_read_anew_keeps_the_names_that_the_history_knows() -> None:
    """A snapshot reads SHOW CREATE, which lacks former names."""
    renamed = table("p2", "ALTER TABLE people RENAME COLUMN ssn TO a", "RENAME TABLE people TO p2")
    read_anew = table("p2", "CREATE TABLE p2 (id INT PRIMARY KEY, email VARCHAR(99), A CHAR(11), region CHAR(2))")
    kept = change_of(read_anew, 2)

    schema = with_names_of(kept, recorded(change_of(renamed, 1), 1)).table_schema

    assert schema is not None
    assert seen(schema).excluded == {"A"}
    assert seen(schema).masks.keys() == {"email"}
    assert with_names_of(change_of(renamed, 2), recorded(change_of(renamed, 1), 1)) == change_of(renamed, 2)


@pytest.mark.parametrize(
    ("name", "statements"),
    [
        ("people", ("ALTER TABLE people ADD COLUMN email2 TEXT",)),
        ("people", ("ALTER TABLE people ADD email3 TEXT", "ALTER TABLE people RENAME COLUMN email3 TO email2")),
        (
            "people",
            (
                "ALTER TABLE people ADD email2 INT",
                "ALTER TABLE people MODIFY email2 TEXT, CONVERT TO CHARACTER SET latin1",
            ),
        ),
        ("p2", ("ALTER TABLE people ADD email2 TEXT", "RENAME TABLE people TO p2")),
        (
            "people",
            (
                "CREATE TABLE _people_gho LIKE people",
                "ALTER TABLE _people_gho ADD email2 TEXT",
                "RENAME TABLE people TO _people_del, _people_gho TO people",
            ),
        ),
        (
            "people",
            ("CREATE TABLE other (id INT PRIMARY KEY, email2 TEXT)", "RENAME TABLE people TO old, other TO people"),
        ),
    ],
)
def test_a_column_that_comes_later_is_refused_until_a_document_names_it(name: str, statements: tuple[str, ...]) -> None:
    schema = table(name, *statements)
    refuse = {"unknown_columns": UnknownColumns.REFUSE}

    assert seen(schema).unknown == ()
    view = seen(schema, **refuse)
    assert view.unknown == ("email2",)
    assert "email2" not in [column.name for column in view.schema.columns]
    assert compile_projection(schema, SourceSelection(name="s", **refuse)).unknown == ("email2",)
    for naming in (
        {"include_columns": (".*", r"shop\..*\.email2")},
        {"include_columns": (".*", r".*\.email[0-9]")},
        {"masks": (ColumnMask(columns=r".*", set_null=False, keep_last=4), ColumnMask(columns=".*", set_null=True))},
        {"exclude_columns": (r".*\.email2",)},
    ):
        assert seen(schema, **(refuse | naming)).unknown == (), naming
    assert seen(schema, **refuse, include_columns=(r"shop\..*", r".*\.[a-z].*")).unknown == ("email2",)


def test_a_definition_read_again_knows_which_columns_are_late() -> None:
    """Also those that came while nobody followed the source's log."""
    first = table("people", "ALTER TABLE people ADD COLUMN a INT")
    read_again = table("p2", "CREATE TABLE p2 (id INT PRIMARY KEY, EMAIL TEXT, a INT, b INT)")

    schema = with_names_of(change_of(read_again, 2), recorded(change_of(first, 1), 1)).table_schema

    assert schema is not None
    assert [column.name for column in schema.columns if column.is_late] == ["a", "b"]


def change_of(schema: TableSchema, rank: int) -> SchemaChange:
    return SchemaChange(
        source="s",
        table_id=schema.table_id,
        kind=SchemaChangeKind.SNAPSHOT,
        order=EventOrder(epoch=0, rank=rank, tx_ordinal=0),
        position=SourcePosition(source_kind="mysql", token=b"p"),
        committed_at_us=0,
        ddl="",
        table_schema=schema,
    )
