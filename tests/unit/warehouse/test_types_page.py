"""The page of types, and its statements about sources that differ."""

from pathlib import Path

import pytest

from libs.mysql import column_type
from libs.mysql.column_type import parse_column_type
from libs.oracle.column_type import parse_column_type as parse_oracle_type
from libs.oracle.logical import _BINARY, _KINDS
from libs.source.vitess.columns import vitess_logical_type
from libs.types.value_modes import OracleValueModes, TimePrecision, ValueModes, VitessValueModes
from libs.warehouse.dialect import DIALECTS
from libs.warehouse.types_page import (
    FAMILIES,
    ORACLE_FAMILIES,
    TypeFamily,
    example_columns,
    oracle_example_columns,
    types_document,
)
from spark.sinks.registry import SINKS

DOCS = Path(__file__).parents[3] / "docs" / "types.md"


def test_the_page_is_fresh() -> None:
    """``docs/types.md`` is the output of ``make docs-types``."""
    assert types_document() == DOCS.read_text(encoding="utf-8"), "run `make docs-types`"


def test_every_type_and_every_warehouse_is_on_it() -> None:
    """A type that is added to the reader, or a warehouse to the sink, cannot be forgotten here."""
    shown = {parse_column_type(example).name for family in FAMILIES for example in family.examples}

    assert shown == column_type._KNOWN
    assert set(DIALECTS) == set(SINKS)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.shown)
def test_a_family_is_treated_alike(family: TypeFamily) -> None:
    """One line of the page is true of all of its types: but for lengths and members, they are one."""
    for precision in TimePrecision:
        columns = example_columns(family, ValueModes(time_precision=precision))
        kinds = {column.logical_type.kind for column in columns}

        assert len(kinds) == 1
        for dialect in DIALECTS.values():
            assert len({dialect.type_of(column) for column in columns}) == 1


@pytest.mark.parametrize("precision", list(TimePrecision))
def test_vitess_differs_as_the_page_says(precision: TimePrecision) -> None:
    """In FLOAT, and in isostring's form of times; the default modes are the Vitess connector's."""
    modes = VitessValueModes(time_precision=precision)
    differing = {
        parse_column_type(column.source_type).name
        for family in FAMILIES
        for column in example_columns(family, modes)
        if vitess_logical_type(parse_column_type(column.source_type), column.charset, modes) != column.logical_type
    }

    assert differing == {"float"} | ({"date", "time", "datetime"} if precision is TimePrecision.ISO_STRING else set())


def test_every_type_of_oracle_is_on_it() -> None:
    """A type that is added to the reader cannot be forgotten here."""
    shown = {parse_oracle_type(example).name for family in ORACLE_FAMILIES for example in family.examples}
    moments = {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE"}
    others = {"NUMBER", "FLOAT", "INTERVAL YEAR TO MONTH", "INTERVAL DAY TO SECOND"}

    assert shown == (_KINDS.keys() | _BINARY | moments | others) - {"UROWID"}  # as ROWID


@pytest.mark.parametrize("family", ORACLE_FAMILIES, ids=lambda family: family.shown)
def test_a_family_of_oracle_is_treated_alike(family: TypeFamily) -> None:
    for precision in TimePrecision:
        columns = oracle_example_columns(family, OracleValueModes(time_precision=precision))

        assert len({column.logical_type.kind for column in columns}) == 1
        for dialect in DIALECTS.values():
            assert len({dialect.type_of(column) for column in columns}) == 1
