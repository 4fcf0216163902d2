"""What a tenant learns of a column that the source renamed; the rest of a view is in ``tests/unit/router/test_project.py``."""

import msgspec

from libs.events.tenant_view import tenant_view
from libs.mysql.logical import column
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
    """Masked, or not at all: its old values must not stand beside the new ones; nor is a hidden column's name told."""
    hash_mask = HashMask(salt="pepper")
    hidden = SourceSelection(name="s", exclude_columns=(r".*\.mail\.address",))
    masked = SourceSelection(name="s", masks=(ColumnMask(columns=r".*\.e-mail", hash=hash_mask),))
    both = SourceSelection(name="s", masks=(ColumnMask(columns=r".*mail.*", hash=hash_mask),))
    id_hidden = SourceSelection(name="s", exclude_columns=(r".*\.e-mail",))

    views = [tenant_view(TABLE, selection).schema for selection in (hidden, masked, both, id_hidden)]

    assert [[bool(each.former_names) for each in view.columns] for view in views] == [
        [False, False],
        [False, False],
        [False, True],
        [False],
    ]
    assert [bool(view.ddl) for view in views] == [True, False, False, False]
