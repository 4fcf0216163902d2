"""The columns that vtgate's FIELD events have of a table, known from MySQL's definition of it before any of them comes."""

from contextlib import closing

import pytest

from libs.mysql.ddl import apply_ddl, show_create_to_schema
from libs.source.key_columns import KeyColumns
from libs.source.mysql.client import Connection, connect
from libs.source.mysql.settings import DatabaseSettings
from libs.source.mysql.snapshot import create_statement
from libs.source.vitess.columns import as_vtgate_reports, with_key_index
from libs.stand_ins.vtgate.fields import table_fields
from libs.types.table import TableId, TableSchema
from libs.types.value_modes import TimePrecision, VitessValueModes
from protos.vitess.binlogdata_pb2 import FieldEvent
from services.vstream_reader.fields import table_schema
from tests.conftest import MysqlServer

TABLE = """CREATE TABLE t (id BIGINT NOT NULL AUTO_INCREMENT, big BIGINT UNSIGNED DEFAULT 7, amount DECIMAL(12,2) NOT NULL,
    part FLOAT, ratio DOUBLE, flag BIT(1), bits BIT(9), day DATE, clock TIME(3), seen DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6),
    stamped TIMESTAMP NULL ON UPDATE CURRENT_TIMESTAMP, made YEAR, name VARCHAR(30) CHARACTER SET latin1 COMMENT 'x',
    note TEXT, code BINARY(4), raw VARBINARY(9), pile BLOB, kind ENUM('a','b'), tags SET('x','y'), doc JSON, place POINT,
    twice BIGINT GENERATED ALWAYS AS (big * 2) VIRTUAL, PRIMARY KEY (id, amount), UNIQUE (name)) DEFAULT CHARSET utf8mb4"""


@pytest.mark.parametrize(
    "modes",
    [VitessValueModes(), VitessValueModes(time_precision=TimePrecision.ISO_STRING)],
    ids=["default", "isostring"],
)
def test_a_definition_is_what_fields_tell(mysql_server: MysqlServer, database: str, modes: VitessValueModes) -> None:
    """Of every type, and after a statement that was followed by its text alone."""
    mysql_server.execute(TABLE, database=database)
    statements = (
        "ALTER TABLE t ADD COLUMN size MEDIUMINT UNSIGNED NOT NULL DEFAULT 3, RENAME COLUMN note TO remark, "
        "MODIFY day DATETIME(2), DROP COLUMN flag",
        "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
    )
    settings = DatabaseSettings(host=mysql_server.host, port=mysql_server.port, user="root")
    table_id = TableId(database=database, table="t")
    with closing(connect(settings)) as connection:
        told = told_by_fields(connection, database, modes)
        defined = show_create_to_schema(table_id, *create_statement(connection, table_id))
        assert shown(as_vtgate_reports(defined, modes, ())) == shown(told)
        for statement in statements:
            [change] = apply_ddl({table_id: with_key_index(told)}, database, statement)
            assert change.schema is not None
            mysql_server.execute(statement, database=database)
            told = told_by_fields(connection, database, modes)
            assert shown(as_vtgate_reports(change.schema, modes, ())) == shown(told)

    chosen = (KeyColumns(tables=r".*\.t", columns="amount"),)
    assert as_vtgate_reports(defined, modes, chosen).key == ("amount",)


def told_by_fields(connection: Connection, database: str, modes: VitessValueModes) -> TableSchema:
    found = table_fields(connection, database, "t")
    return table_schema(FieldEvent(table_name=f"{database}.t", fields=found.fields), database, modes=modes)


def shown(schema: TableSchema) -> tuple[object, ...]:
    return schema.table_id, schema.key, schema.columns
