"""DDL of each dialect, as ``headwater schema plan`` reads it: MySQL's by its own tests, Oracle's here."""

import msgspec
import pytest

from libs.errors import InvalidSettings
from libs.mesh.documents import OracleDatabaseDocument, OracleDocument
from libs.mesh.source_tables import SourceTables, as_read
from libs.mysql.ddl import TableChangeKind
from libs.operations.statements import Effect, dialect_of
from libs.oracle.logical import column
from libs.types.table import Index, TableId, TableSchema
from libs.types.value import LogicalKind
from libs.types.value_modes import DecimalMode, OracleValueModes

DOCUMENT = OracleDocument(database=OracleDatabaseDocument(service_name="ORCL", user="u"))
ORDERS = TableId(database="SHOP", table="ORDERS")


def tables() -> SourceTables:
    columns = [
        column("ID", "NUMBER(9,0)", is_optional=False),
        column("NOTE", "VARCHAR2(40)", charset="WE8ISO8859P1"),
    ]
    schema = TableSchema(
        table_id=ORDERS,
        columns=tuple(msgspec.structs.replace(each, number=number) for number, each in enumerate(columns, start=1)),
        key=("ID",),
        indexes=(Index(name="PRIMARY", columns=("ID",), is_unique=True),),
        version=3,
    )
    return SourceTables({ORDERS: schema}, "source")


def effect(statement: str, database: str = "SHOP") -> Effect:
    return dialect_of(DOCUMENT)(tables(), statement, database, "erp")


@pytest.mark.parametrize(
    ("statement", "kind", "names"),
    [
        ("ALTER TABLE ORDERS ADD (TOTAL NUMBER(12,2))", TableChangeKind.ALTER, ["ID", "NOTE", "TOTAL"]),
        ("alter table shop.orders drop column note", TableChangeKind.ALTER, ["ID"]),
        ("CREATE TABLE ITEMS (ID NUMBER(9) PRIMARY KEY, NAME VARCHAR2(9))", TableChangeKind.CREATE, ["ID", "NAME"]),
        ("DROP TABLE ORDERS", TableChangeKind.DROP, None),
        ("RENAME ORDERS TO BILLS", TableChangeKind.RENAME, ["ID", "NOTE"]),
        ("TRUNCATE TABLE ORDERS", TableChangeKind.TRUNCATE, ["ID", "NOTE"]),
    ],
)
def test_a_statement_of_oracle_is_understood_as_the_reader_will(
    statement: str, kind: TableChangeKind, names: list[str] | None
) -> None:
    [change] = effect(statement).changes

    assert change.kind is kind
    assert (None if change.schema is None else [each.name for each in change.schema.columns]) == names


def test_a_rename_is_one_change_of_two_names() -> None:
    [change] = effect("ALTER TABLE ORDERS RENAME TO BILLS").changes

    assert (change.previous_id, change.table_id) == (ORDERS, TableId(database="SHOP", table="BILLS"))


def test_a_new_column_has_the_tables_character_set() -> None:
    [change] = effect("ALTER TABLE ORDERS ADD (NAME VARCHAR2(9))").changes

    assert change.schema is not None
    assert change.schema.column("NAME").charset == "WE8ISO8859P1"


def test_values_have_the_forms_of_the_sources_document() -> None:
    """As its reader gives them to schema_history."""
    document = msgspec.structs.replace(DOCUMENT, values=OracleValueModes(decimal=DecimalMode.STRING))
    [change] = effect("ALTER TABLE ORDERS ADD (TOTAL NUMBER(12,2))").changes
    assert change.schema is not None

    assert as_read(document, change.schema).column("TOTAL").logical_type.kind is LogicalKind.DECIMAL_TEXT


@pytest.mark.parametrize(
    ("statement", "database", "mistake"),
    [
        (
            "ALTER TABLE ORDRES ADD (A NUMBER)",
            "SHOP",
            "SHOP.ORDRES is no table of source erp; did you mean 'SHOP.ORDERS'?",
        ),
        ("ALTER TABLE ORDERS ADD (A NUMBER)", "", "says no schema of ORDERS; write it, or give --database"),
        ("ALTER TABLE ORDERS DROP COLUMN NOBODY", "SHOP", "the reader asks the server for the definition then"),
    ],
)
def test_a_statement_that_cannot_be_planned_is_refused(statement: str, database: str, mistake: str) -> None:
    """With the reason, and the nearest right name."""
    with pytest.raises(InvalidSettings) as refused:
        effect(statement, database)

    assert mistake in str(refused.value)
