"""The pre-flight of an Oracle source, over the stand-in: each fault has the statement that mends it."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from libs.config.load import Secret
from libs.errors import SourceMisconfigured
from libs.oracle.preflight import REQUIRED_VIEWS, DatabaseState, database_faults, database_warnings
from libs.source.oracle.preflight import check_source, require_sound_source
from libs.source.oracle.settings import OracleDatabaseSettings, OracleSourceSettings
from libs.stand_ins.oracle.answers import Column, OracleType
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.server import listening

ID = Column("ID", OracleType.NUMBER, 22, 18, 0, is_nullable=False)
USER = "C##HEADWATER"
SOUND = DatabaseState("19.26.0.0.0", "ARCHIVELOG", "PRIMARY", "YES", "NO", "YES", 1_800)


@contextmanager
def source(grants: Mapping[str, Collection[str]] | None = None) -> Iterator[tuple[Model, OracleSourceSettings]]:
    model = Model(clock=lambda: datetime.now(UTC).replace(tzinfo=None))
    model.create("SHOP", "ORDERS", (ID,), ("ID",))
    with listening(ModelDatabase(model, {USER: "secret"}, grants=grants)) as listener:
        database = OracleDatabaseSettings(
            host="127.0.0.1", port=listener.port, service_name="ORCLCDB", user=USER, password=Secret("secret")
        )
        yield model, OracleSourceSettings(database=database, include_tables=(r"SHOP\..*",))


def test_a_sound_source_has_no_faults() -> None:
    with source() as (_, settings):
        assert not check_source(settings).faults


def test_a_table_without_supplemental_logging_is_named_with_its_statement() -> None:
    with source() as (model, settings):
        model.tables["SHOP", "ORDERS"].logs_all_columns = False
        with pytest.raises(SourceMisconfigured) as raised:
            require_sound_source(settings)
    assert 'ALTER TABLE "SHOP"."ORDERS" ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS;' in str(raised.value)


def test_a_name_that_logminer_cannot_read_is_named() -> None:
    with source() as (model, settings):
        model.create("SHOP", "N" * 31, (ID,), ("ID",))
        [fault] = check_source(settings).faults
    assert "30 bytes" in fault.what
    assert "exclude_tables" in fault.mend


def test_each_view_that_is_not_granted_is_named_at_once() -> None:
    granted = {*REQUIRED_VIEWS, "V$INSTANCE", "SHOP.ORDERS"} - {"V$LOGFILE", "DBA_EXTENTS"}
    with source({USER: granted}) as (_, settings):
        mends = [fault.mend for fault in check_source(settings).faults]
    assert f"GRANT SELECT ON SYS.V_$LOGFILE TO {USER};" in mends
    assert f"GRANT SELECT ON SYS.DBA_EXTENTS TO {USER};" in mends
    assert any("DBMS_LOGMNR" in mend for mend in mends)


def test_a_table_that_is_not_granted_is_named() -> None:
    granted = {*REQUIRED_VIEWS, "V$INSTANCE", "V$UNDOSTAT", "DBMS_LOGMNR"}
    with source({USER: granted}) as (_, settings):
        faults = check_source(settings).faults
    assert [fault.mend for fault in faults] == [
        f'GRANT SELECT ON "SHOP"."ORDERS" TO {USER}; GRANT FLASHBACK ON "SHOP"."ORDERS" TO {USER};'
    ]


@pytest.mark.parametrize(
    ("facts", "mend"),
    [
        ({"log_mode": "NOARCHIVELOG"}, "ALTER DATABASE ARCHIVELOG"),
        ({"supplemental_min": "NO"}, "ALTER DATABASE ADD SUPPLEMENTAL LOG DATA;"),
        ({"role": "PHYSICAL STANDBY"}, "database.host"),
        ({"release": "11.2.0.4.0"}, "upgrade"),
    ],
)
def test_a_fault_of_the_database_has_its_statement(facts: dict[str, str], mend: str) -> None:
    [fault] = database_faults(dataclasses.replace(SOUND, **facts))
    assert mend in fault.mend
    assert not list(database_faults(SOUND))


def test_what_may_be_regretted_is_a_warning() -> None:
    warned = list(database_warnings(dataclasses.replace(SOUND, force_logging="NO", undo_retention_s=60)))
    assert [warning.mend for warning in warned] == [
        "ALTER DATABASE FORCE LOGGING;",
        "ALTER SYSTEM SET UNDO_RETENTION=900;",
    ]
    assert not list(database_warnings(SOUND))
