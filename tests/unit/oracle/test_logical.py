"""Oracle's types as logical ones. ``golden`` holds the answers of Debezium's converters 3.6.1 to each type and mode."""

import pytest

from libs.formats.connect_schema import connect_field
from libs.oracle.column_type import OracleType, UnknownColumnType, parse_column_type, type_of_catalog
from libs.oracle.logical import column, in_value_modes
from libs.types.table import TableId, TableSchema
from libs.types.value_modes import (
    BinaryMode,
    DecimalMode,
    IntervalMode,
    OracleValueModes,
    TimePrecision,
    ZeroScaleMode,
)
from tests.unit.oracle.debezium_answers import ANSWERS, Answer, modes_of

TYPES = (
    *(
        "NUMBER",
        "NUMBER(38,0)",
        "NUMBER(3,-2)",
        "NUMBER(2,5)",
        "FLOAT(126)",
        "VARCHAR2(20)",
        "NCHAR(1)",
        "RAW(16)",
        "DATE",
    ),
    *("TIMESTAMP(9)", "TIMESTAMP(6) WITH TIME ZONE", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "INTERVAL YEAR(2) TO MONTH"),
    *("INTERVAL DAY(3) TO SECOND(0)", "UROWID", "UROWID(100)", "LONG", "LONG RAW", "CLOB", "XMLTYPE", "BINARY_FLOAT"),
)


@pytest.mark.parametrize("text", TYPES)
def test_type_text_is_read_back(text: str) -> None:
    """``Column.source_type`` is all that a later start has of a type."""
    assert str(parse_column_type(text)) == text


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_connect_schema_is_that_of_debezium(answer: Answer) -> None:
    """Type, name and parameters of the field, in every handling mode."""
    table = TableSchema(table_id=TableId(database="S", table="T"), columns=(column("C", answer.source_type),))

    field = connect_field(in_value_modes(table, modes_of(answer.config)).columns[0])

    assert (field["type"], field.get("name"), field.get("parameters")) == (
        answer.connect_type,
        answer.schema_name,
        answer.parameters,
    )


def test_catalog_gives_the_types_that_ddl_gives() -> None:
    """A table that is read again equals the one that statements made."""
    assert type_of_catalog("NUMBER", data_length=22, scale=0) == parse_column_type("INTEGER")
    assert type_of_catalog("NUMBER", data_length=22, precision=12, scale=2) == parse_column_type("NUMBER(12,2)")
    assert type_of_catalog("NUMBER", data_length=22) == parse_column_type("NUMBER")
    assert type_of_catalog("FLOAT", data_length=22, precision=126) == parse_column_type("DOUBLE PRECISION")
    assert type_of_catalog("VARCHAR2", data_length=80, char_length=20) == parse_column_type("VARCHAR2(20 CHAR)")
    assert type_of_catalog("RAW", data_length=16, char_length=0) == parse_column_type("RAW(16)")
    assert type_of_catalog("TIMESTAMP(6) WITH TIME ZONE", data_length=13, scale=6) == parse_column_type(
        "TIMESTAMP WITH TIME ZONE"
    )
    assert type_of_catalog("INTERVAL DAY(2) TO SECOND(6)", data_length=11, precision=2, scale=6) == OracleType(
        "INTERVAL DAY TO SECOND", 2, 6
    )


def test_type_that_the_log_lacks_is_refused() -> None:
    """LogMiner shows no row of a table with such a column."""
    with pytest.raises(UnknownColumnType, match="BFILE"):
        column("C", "BFILE")
    with pytest.raises(UnknownColumnType):
        column("C", "SDO_GEOMETRY")


def test_default_is_a_constant_or_computed() -> None:
    """Rows of before a new column have its constant; an expression is the server's to know."""
    assert column("C", "VARCHAR2(9)", default="'it''s' ").default_expression == "it's"
    assert column("C", "NUMBER(5,2)", default="-1.5\n").default_expression == "-1.5"
    computed = column("C", "DATE", default="sysdate")
    assert computed.default_expression is None
    assert computed.is_default_computed
    assert not column("C", "DATE", default="NULL").is_default_computed


def test_modes_turn_into_one_another() -> None:
    """A schema that was recorded in one mode is read in another one."""
    usual = TableSchema(
        table_id=TableId(database="S", table="T"),
        columns=tuple(column(f"C{nth}", text) for nth, text in enumerate(TYPES)),
    )
    others = OracleValueModes(
        time_precision=TimePrecision.ISO_STRING,
        decimal=DecimalMode.STRING,
        binary=BinaryMode.HEX,
        interval=IntervalMode.STRING,
        zero_scale_numbers=ZeroScaleMode.INTEGER,
    )

    changed = in_value_modes(usual, others)

    assert changed != usual
    assert in_value_modes(changed, OracleValueModes()) == usual
