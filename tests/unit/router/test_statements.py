"""A statement as a tenant reads it names nothing that is hidden from it."""

from typing import Any

import msgspec
import pytest

from libs.events.delivered_schema import decode_delivered_schema
from libs.mysql.ddl import apply_ddl
from libs.mysql.schema_change_event import schema_change_key, schema_change_value
from libs.oracle import schema_change_event as oracle_events
from libs.oracle.logical import column as oracle_column
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from libs.types.tenant import ColumnMask, HashMask, SourceSelection
from services.router.delivery.statements import project_statement
from services.router.routes.book import RouteBook
from services.router.routes.topic_claims import TopicClaims
from tests.unit.router.test_deliver import builder, deliver, records_of, taken, tenant

PEOPLE = TableId(database="shop", table="people")
DDL = (
    "CREATE TABLE people (id INT PRIMARY KEY, note TEXT COMMENT 'harmless', "
    "ssn CHAR(11) DEFAULT '000-SECRET' COMMENT 'SECRET1', "
    "state ENUM('SECRET2','x') DEFAULT 'SECRET2' COMMENT 'SECRET3')"
)
HIDING: dict[str, Any] = {
    "exclude_columns": (r".*\.SSN",),
    "masks": (ColumnMask(columns=r".*\.state", set_null=True),),
}


def model(ddl: str) -> TableSchema:
    (change,) = apply_ddl({}, "shop", ddl)
    assert change.schema is not None
    return msgspec.structs.replace(change.schema, version=1, ddl=ddl)


def told(selection: dict[str, Any], *, version: int = 1, table: str = "people", ddl: str = DDL) -> list[dict[str, Any]]:
    """The statement's events in ``acme.s``, and the schemas that its sink gets, as one text in ``_all``."""
    schema = model(DDL)
    batch = builder()
    value = schema_change_value(
        source_block=b'{"table":"people"}',
        ts_ms=1,
        database="shop",
        ddl=ddl,
        table_id=PEOPLE if table else None,
        schema=schema if table else None,
        kind="CREATE",
        with_comments=True,
    )
    batch.add_table_change(
        TableId(database="shop", table=table),
        schema_version=version,
        order=EventOrder(epoch=0, rank=1, tx_ordinal=1),
        committed_at_us=1,
        is_snapshot=False,
        key=schema_change_key("shop"),
        value=value,
        database_tables=["people"],
    )
    book = RouteBook(
        "s", (tenant("acme", selection=selection),), lambda _table_id, _version: schema, TopicClaims()
    ).view()
    deliveries = deliver(taken(batch), book)
    events = [msgspec.json.decode(value) for _, value, _ in records_of(deliveries, "acme.s")]
    schemas = [value for _, value, _ in records_of(deliveries, "acme.headwater.table-schemas")]
    for each in schemas:
        decode_delivered_schema(each)
    everything = b"".join(bytes(value) for each in deliveries for value in each.records.values if value)  # type: ignore[union-attr]
    for event in events:
        event["_all"] = everything.decode()
    return events


@pytest.mark.parametrize("version", [1, 0])
def test_hidden_columns_are_in_no_word_of_it(version: int) -> None:
    """No name, default, member, comment or text of them, in neither topic."""
    (event,) = told(HIDING, version=version)

    columns = event["tableChanges"][0]["table"]["columns"]
    assert [(each["name"], each["position"]) for each in columns] == [("id", 1), ("note", 2), ("state", 3)]
    assert event["ddl"] is None
    assert "SECRET" not in event["_all"]
    assert "ssn" not in event["_all"].lower()
    assert columns[1]["comment"] == "harmless"


def test_a_masked_columns_type_is_the_one_that_the_tenant_gets() -> None:
    hashed = {"masks": (ColumnMask(columns=r".*\.ssn", hash=HashMask(salt="pepper")),)}

    (event,) = told(hashed)

    ssn = event["tableChanges"][0]["table"]["columns"][2]
    assert (ssn["name"], ssn["typeName"], ssn["length"], ssn["defaultValueExpression"]) == ("ssn", "VARCHAR", 64, None)


def test_who_sees_all_reads_the_statement_itself() -> None:
    (event,) = told({})

    assert event["ddl"] == DDL
    assert [each["name"] for each in event["tableChanges"][0]["table"]["columns"]] == ["id", "note", "ssn", "state"]


def test_a_statement_about_a_database_is_no_way_around_it() -> None:
    """A view's text names columns of tables."""
    (event,) = told(HIDING, table="", ddl="CREATE VIEW v AS SELECT ssn FROM people")

    assert event["ddl"] is None
    assert "ssn" not in event["_all"]


@pytest.mark.parametrize(
    ("ddl", "is_read"),
    [(DDL, True), ("DROP TABLE people, salaries", False), ("RENAME TABLE people TO p, a TO salaries", False)],
)
def test_who_gets_some_tables_reads_statements_of_these_alone(ddl: str, is_read: bool) -> None:
    (event,) = told({"include_tables": (r"shop\.people",)}, ddl=ddl)

    assert (event["ddl"] is not None) == is_read


def test_a_table_that_is_excluded_by_its_former_name_tells_nothing() -> None:
    schema = msgspec.structs.replace(model(DDL), former_ids=(TableId(database="shop", table="hidden"),))
    book = RouteBook(
        "s",
        (tenant("acme", selection={"exclude_tables": (r"shop\.hidden",)}),),
        lambda _table_id, _version: schema,
        TopicClaims(),
    ).view()
    batch = builder()
    for version in (1, 0):
        batch.add_table_change(
            PEOPLE,
            schema_version=version,
            order=EventOrder(epoch=0, rank=1, tx_ordinal=1),
            committed_at_us=1,
            is_snapshot=False,
            key=b"{}",
            value=b'{"ddl":"x","tableChanges":[]}',
        )

    assert records_of(deliver(taken(batch), book), "acme.s") == []


@pytest.mark.parametrize(
    ("mask", "type_name"),
    [
        ({"set_null": True}, "TIMESTAMP(6) WITH TIME ZONE"),
        ({"hash": HashMask(salt="s", algorithm="sha256")}, "VARCHAR2"),
        ({"keep_last": 4}, "CLOB"),
    ],
)
def test_a_masked_column_of_oracle_is_told_in_oracles_words(mask: dict[str, Any], type_name: str) -> None:
    """The column's own type, or a text of Oracle's: MySQL's words know neither."""
    people = TableId(database="SHOP", table="PEOPLE")
    columns = (oracle_column("ID", "NUMBER(9,0)"), oracle_column("SEEN", "TIMESTAMP(6) WITH TIME ZONE"))
    schema = TableSchema(table_id=people, columns=columns, key=("ID",), version=1)
    value = oracle_events.schema_change_value(
        database="ORCL",
        table_id=people,
        schema=schema,
        kind="CREATE",
        ddl="CREATE TABLE PEOPLE …",
        source_block=b'{"connector":"oracle"}',
        ts_ms=1,
    )
    selection = SourceSelection(name="s", masks=(ColumnMask(columns=r".*\.SEEN", **mask),))

    event = msgspec.json.decode(project_statement(value, selection, people, schema))

    told = event["tableChanges"][0]["table"]["columns"]
    assert [(each["name"], each["typeName"]) for each in told] == [("ID", "NUMBER"), ("SEEN", type_name)]
    assert event["ddl"] is None
