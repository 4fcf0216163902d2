"""Debezium's MySQL connector and the router report the same types of a source's columns: every type, and chosen ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from bench.debezium import debezium
from bench.stack import Servers
from libs.formats.connect_schema import EnvelopeForm
from libs.mysql.ddl import show_create_to_schema
from libs.types.table import TableId, TableSchema
from libs.types.tenant import FormatSettings, SourceSelection, SourceTypes, TenantSpec
from services.router.routes.book import RouteBook
from services.router.routes.topic_claims import TopicClaims
from tests.conftest import MysqlServer, StartMysql
from tests.differential.test_debezium_on_the_stand_in import Topic

pytestmark = pytest.mark.rest(because="unit/mysql/test_source_types.py holds types to those that the connector wrote")

EVERY_TYPE: Final = (
    "TINYINT", "TINYINT(1)", "TINYINT UNSIGNED", "BOOLEAN", "SMALLINT", "SMALLINT UNSIGNED", "MEDIUMINT",
    "MEDIUMINT UNSIGNED", "INT", "INT(7)", "INT UNSIGNED", "INT(5) UNSIGNED ZEROFILL", "BIGINT", "BIGINT UNSIGNED",
    "BIT(1)", "BIT(9)", "BIT(64)", "FLOAT", "FLOAT(10)", "FLOAT(30)", "FLOAT(7,3)", "DOUBLE", "DOUBLE(9,2)",
    "DOUBLE UNSIGNED", "REAL", "DECIMAL", "DECIMAL(10)", "DECIMAL(12,2)", "DECIMAL(65,30)", "DECIMAL(8,3) UNSIGNED",
    "NUMERIC(5,1)", "DATE", "YEAR", "TIME", "TIME(3)", "TIME(6)", "DATETIME", "DATETIME(3)", "DATETIME(6)",
    "TIMESTAMP NULL", "TIMESTAMP(4) NULL", "CHAR", "CHAR(3)", "VARCHAR(40)", "VARCHAR(300) CHARACTER SET latin1",
    "NCHAR(4)", "NVARCHAR(5)", "CHAR(5) BINARY", "TINYTEXT", "TEXT", "TEXT(900)", "MEDIUMTEXT", "LONGTEXT", "BINARY",
    "BINARY(16)", "VARBINARY(9)", "TINYBLOB", "BLOB", "BLOB(70)", "MEDIUMBLOB", "LONGBLOB", "ENUM('a','b,c')",
    "SET('a')", "SET('x','y','z')", "JSON", "GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT",
    "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION",
)  # fmt: skip
CHOSEN_COLUMNS: Final = (r".*\.every\..*", r".*\.chosen\.V", r".*\.chosen\.am")
"""The last one names no whole column: nothing is reported of it by that."""
CHOSEN_TYPES: Final = (r".*\.chosen\.INT UNSIGNED", r".*\.chosen\.decimal", r".*\.chosen\.CHAR")


def test_the_parameters_of_every_field(
    start_mysql: StartMysql, unique_name: Callable[[str], str], bootstrap_servers: str, tmp_path: Path
) -> None:
    """``column.propagate.source.type`` and ``datatype.propagate.source.type``, as ``format.source_types`` has them."""
    mysql_server = start_mysql()  # the connector parses every table of a server, other tests' too
    database = unique_name("types")
    mysql_server.execute(f"CREATE DATABASE {database}")
    columns = ", ".join(f"c{number} {declared}" for number, declared in enumerate(EVERY_TYPE))
    mysql_server.execute(
        f"CREATE TABLE every (id INT PRIMARY KEY, {columns})",
        "CREATE TABLE chosen (id INT UNSIGNED PRIMARY KEY, v VARCHAR(9), amount DECIMAL(8,3), c CHAR(2), n INT)",
        "INSERT INTO every (id) VALUES (1)",
        "INSERT INTO chosen (id) VALUES (1)",
        database=database,
    )
    options = {
        "topic.prefix": f"types_{database}",
        "database.include.list": database,
        "schema.history.internal.kafka.topic": f"history_{database}",
        "column.propagate.source.type": ",".join(CHOSEN_COLUMNS),
        "datatype.propagate.source.type": ",".join(CHOSEN_TYPES),
    }
    servers = Servers(bootstrap_servers, "", mysql_server.port)
    with debezium(
        tmp_path / "connect", servers, snapshot_mode="initial", options=options, with_schemas=True
    ) as connector:
        for table in ("every", "chosen"):
            topic = Topic(bootstrap_servers, f"types_{database}.{database}.{table}")
            [record] = topic.until(1, connector)
            topic.close()

            ours = _our_value_schema(_definition(mysql_server, TableId(database=database, table=table)))
            assert _parameters(ours) == _parameters(record.value["schema"])
            assert "__debezium" not in json.dumps(record.key["schema"])


def _definition(server: MysqlServer, table_id: TableId) -> TableSchema:
    [(_, statement)] = server.execute(f"SHOW CREATE TABLE {table_id.table}", database=table_id.database)
    return msgspec.structs.replace(show_create_to_schema(table_id, statement, "utf8mb4"), version=1)


def _our_value_schema(table: TableSchema) -> dict[str, Any]:
    """As the router writes it for a tenant that chose them."""
    chosen = SourceTypes(columns=CHOSEN_COLUMNS, types=CHOSEN_TYPES)
    tenant = TenantSpec(
        tenant="a", sources=(SourceSelection(name="s"),), format=FormatSettings(schemas=True, source_types=chosen)
    )
    book = RouteBook("s", [tenant], lambda *_: table, TopicClaims()).view()
    (group,) = book.routes(table.table_id.database, table.table_id.table, 1, EnvelopeForm("mysql")).groups
    return json.loads(group.encoding.value_prefix + b"null}")["schema"]  # type: ignore[no-any-return]


def _parameters(value_schema: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Of each field of ``after`` those that describe its source, in their order."""
    after = next(field["fields"] for field in value_schema["fields"] if field["field"] == "after")
    return {
        field["field"]: [
            (name, value) for name, value in field.get("parameters", {}).items() if name.startswith("__debezium.")
        ]
        for field in after
    }
