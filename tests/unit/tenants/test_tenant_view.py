"""A tenant's view of a column that the source renamed; the rest of a view is in ``tests/unit/router/test_project.py``."""

import msgspec
import pytest

from libs.mysql.logical import column
from libs.tenants.view import WithheldBy, tenant_view, withheld_by
from libs.types.table import FormerName, TableId, TableSchema
from libs.types.tenant import ColumnMask, HashMask, NameAdjustment, SourceSelection

MAIL = msgspec.structs.replace(
    column("e-mail", "varchar(40)", charset="utf8mb4"), former_names=(FormerName(name="mail.address", last_version=2),)
)
TABLE = TableSchema(
    table_id=TableId(database="shop", table="people"),
    columns=(column("id", "int", is_optional=False), MAIL),
    key=("id",),
    version=3,
    ddl="ALTER TABLE people RENAME COLUMN `mail.address` TO `e-mail`",
)


def test_former_names_are_the_tenants_too() -> None:
    """A sink knows columns by the names that the tenant reads."""
    schema = tenant_view(TABLE, SourceSelection(name="s"), NameAdjustment.AVRO).schema

    assert schema.columns[1].name == "e_mail"
    assert schema.columns[1].former_names == (FormerName(name="mail_address", last_version=2),)
    assert schema.ddl == TABLE.ddl


def test_a_column_that_was_received_otherwise_before_is_another() -> None:
    """Masked, or not at all: its old values must not stand beside the new ones; nor does a hidden column's name show.
    An excluded one stays so."""
    hash_mask = HashMask(salt="pepper")
    hidden = SourceSelection(name="s", exclude_columns=(r".*\.mail\.address",))
    masked = SourceSelection(name="s", masks=(ColumnMask(columns=r".*\.e-mail", hash=hash_mask),))
    both = SourceSelection(name="s", masks=(ColumnMask(columns=r".*mail.*", hash=hash_mask),))
    id_hidden = SourceSelection(name="s", exclude_columns=(r".*\.e-mail",))

    views = [tenant_view(TABLE, selection).schema for selection in (hidden, masked, both, id_hidden)]

    assert [[bool(each.former_names) for each in view.columns] for view in views] == [
        [False],
        [False, False],
        [False, True],
        [False],
    ]
    assert [bool(view.ddl) for view in views] == [False, False, False, False]


@pytest.mark.parametrize(
    ("include", "exclude", "by"),
    [
        ((".*",), (), None),
        ((r"shop\.people\.(id|e-mail)",), (), None),
        ((r"shop\.people\.e-mail-2", r"shop\.orders\..*"), (), WithheldBy("include_columns", None)),
        ((r".*e-mai",), (), WithheldBy("include_columns", None)),
        ((), (), WithheldBy("include_columns", None)),
        ((r".*mail",), (r".*\.id", r".*\.e-mail"), WithheldBy("exclude_columns", 1)),
        ((r".*\.id",), (r".*\.e-mail",), WithheldBy("exclude_columns", 0)),
    ],
)
def test_a_column_comes_where_it_is_included_and_not_excluded(
    include: tuple[str, ...], exclude: tuple[str, ...], by: WithheldBy | None
) -> None:
    """Patterns match whole names; the pattern that excludes it wins, and is named."""
    selection = SourceSelection(name="s", include_columns=include, exclude_columns=exclude)

    assert withheld_by(selection, TABLE.table_id, "e-mail") == by


def test_what_is_not_included_is_nowhere_in_the_view() -> None:
    """Neither the column, nor its mask, nor the DDL that names it."""
    hash_mask = ColumnMask(columns=".*", hash=HashMask(salt="pepper"))
    view = tenant_view(TABLE, SourceSelection(name="s", include_columns=(r".*\.id",), masks=(hash_mask,)))

    assert view.mistakes == ()
    assert [column.name for column in view.schema.columns] == ["id"]
    assert (view.excluded, set(view.masks), view.names) == ({"e-mail"}, {"id"}, {"id": "id"})
    assert view.schema.ddl == ""


def test_a_key_column_must_be_included() -> None:
    """As it cannot be excluded: rows would be merged without it."""
    (mistake,) = tenant_view(TABLE, SourceSelection(name="s", include_columns=(r".*e-mail",))).mistakes

    assert mistake == (
        "include_columns: 'id' is part of the key; include it, and mask it by a hash where it must not show"
    )


def test_a_former_name_that_was_not_included_is_not_told() -> None:
    """The column was not received under it: its old values are not there."""
    included = SourceSelection(name="s", include_columns=(r".*\.id", r".*\.e-mail"))

    view = tenant_view(TABLE, included)

    assert [(column.name, column.former_names) for column in view.schema.columns] == [("id", ()), ("e-mail", ())]
