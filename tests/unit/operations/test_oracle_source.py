"""An Oracle database asked by commands while no stack runs, over the stand-in: its tables, its faults, how far it has got."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.config.load import Secret
from libs.mesh.documents import OracleDatabaseDocument, OracleDocument
from libs.mesh.executed import CommittedScn, executed_now
from libs.mesh.home import home_at
from libs.mesh.source_tables import is_captured, source_tables
from libs.operations.preflight import preflight, where
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.definitions import column
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.server import listening
from libs.types.table import TableId
from libs.types.value import LogicalKind
from libs.types.value_modes import DecimalMode, OracleValueModes

USER = "C##HEADWATER"


@pytest.fixture
def model() -> Model:
    made = Model()
    made.create("SHOP", "ORDERS", [column("ID NUMBER(9)"), column("TOTAL NUMBER(12,2)")], key=["ID"])
    return made


@pytest.fixture
def document(model: Model) -> Iterator[OracleDocument]:
    with listening(ModelDatabase(model, {USER: "secret"})) as listener:
        yield OracleDocument(
            database=OracleDatabaseDocument(
                port=listener.port, service_name="ORCLCDB", user=USER, password=Secret("secret")
            ),
            include_tables=(r"SHOP\..*",),
            values=OracleValueModes(decimal=DecimalMode.STRING),
        )


def test_its_tables_are_those_that_its_reader_would_record(document: OracleDocument, tmp_path: Path) -> None:
    """By the modes of the document; captured ones are known by name."""
    found = source_tables(home_at(tmp_path), "erp", document)

    [schema] = found.schemas.values()
    assert (str(schema.table_id), schema.key, schema.version) == ("SHOP.ORDERS", ("ID",), 1)
    assert schema.column("TOTAL").logical_type.kind is LogicalKind.DECIMAL_TEXT
    assert found.schemas_from == "source"
    assert is_captured(document, schema.table_id)
    assert not is_captured(document, TableId(database="HR", table="ORDERS"))


def test_its_faults_are_those_of_the_readers_pre_flight(document: OracleDocument, model: Model) -> None:
    """Each with the statement that mends it."""
    assert preflight(document).faults == ()
    model.tables["SHOP", "ORDERS"].logs_all_columns = False

    [fault] = preflight(document).faults

    assert fault.mend == 'ALTER TABLE "SHOP"."ORDERS" ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS;'
    assert where(document) == f"Oracle at 127.0.0.1:{document.database.port}/ORCLCDB"


def test_patterns_that_capture_nothing_are_a_warning(document: OracleDocument, model: Model) -> None:
    """Tables may come later."""
    del model.tables["SHOP", "ORDERS"]

    assert "include_tables matches no table" in [each.what for each in preflight(document).warnings]


def test_it_says_how_far_it_has_got(document: OracleDocument, model: Model) -> None:
    assert executed_now(document) == {"": CommittedScn(model.scn)}
