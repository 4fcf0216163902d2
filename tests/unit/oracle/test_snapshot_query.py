"""SELECTs of copies: pages along any key bring every row once, in the key's order."""

import hypothesis.strategies as st
import orjson
import pytest
from hypothesis import given, settings

from libs.oracle.logical import column
from libs.oracle.row_ids import RowIdRange
from libs.oracle.snapshot_query import ROW_ID, can_page_by, page_select, place_of, range_select, selected
from libs.stand_ins.oracle.answers import Column, OracleError, OracleType, Rows, Value
from libs.stand_ins.oracle.sql import Queries, Table
from libs.types.table import TableId, TableSchema

COLUMNS = (
    Column("A", OracleType.NUMBER, 22, 18, 0, is_nullable=False),
    Column("B", OracleType.VARCHAR2, 20, is_nullable=False),
    Column("N", OracleType.NUMBER, 22, 18, 0),
)
SCHEMA = TableSchema(
    table_id=TableId(database="SHOP", table="ORDERS"),
    columns=(
        column("A", "NUMBER(18)", is_optional=False),
        column("B", "VARCHAR2(20)", is_optional=False),
        column("N", "NUMBER(18)"),
    ),
    key=("A", "B"),
)


class OneTable:
    """A session that sees one table."""

    def __init__(self, rows: list[tuple[Value, ...]]) -> None:
        self._table = Table(COLUMNS, rows, [f"AAAR3sAAEAAAACP{nth:03}" for nth in range(len(rows))])

    def table(self, owner: str | None, name: str, scn: int | None, only: object = None) -> Table:
        assert (owner, name, scn) == ("SHOP", "ORDERS", 7)
        return self._table

    def function(self, name: str, arguments: object) -> Value:
        raise OracleError(904, name)


keys = st.lists(st.tuples(st.integers(-3, 3), st.sampled_from(["a", "b", "É", "Z", "ab"])), max_size=12, unique=True)


def pages(rows: list[tuple[Value, ...]], key: tuple[str, ...], size: int) -> list[list[tuple[Value, ...]]]:
    queries = Queries(OneTable(rows))
    found: list[list[tuple[Value, ...]]] = []
    behind = b""
    while not found or len(found[-1]) == size:
        select = page_select(SCHEMA, 7, key, behind, size)
        answer = queries.select(select.sql, list(select.binds.values()))  # type: ignore[arg-type]
        assert isinstance(answer, Rows)
        page = [tuple(str(value) if value is not None else None for value in row) for row in answer.rows]
        found.append(page)  # type: ignore[arg-type]
        if page:
            behind = place_of(SCHEMA, key, page[-1])
    return found


@settings(max_examples=20, deadline=None)
@given(keys, st.integers(1, 4))
def test_pages_bring_every_row_once_in_order(found: list[tuple[int, str]], size: int) -> None:
    rows: list[tuple[Value, ...]] = [(a, b, None) for a, b in found]
    told = [(int(str(row[0])), row[1]) for page in pages(rows, ("A", "B"), size) for row in page]
    assert told == sorted(found, key=lambda each: (each[0], each[1].encode()))


@settings(max_examples=20, deadline=None)
@given(keys, st.integers(1, 4))
def test_a_table_without_a_key_is_read_along_its_storage(found: list[tuple[int, str]], size: int) -> None:
    rows: list[tuple[Value, ...]] = [(a, b, None) for a, b in found]
    told = [(int(str(row[0])), row[1]) for page in pages(rows, (ROW_ID,), size) for row in page]
    assert told == found


def test_a_place_is_kept_as_texts() -> None:
    assert orjson.loads(place_of(SCHEMA, ("B", "A"), ("5", "é", None))) == ["é", "5"]
    assert orjson.loads(place_of(SCHEMA, (ROW_ID,), ("5", "é", None, "AAAR3sAAEAAAACPAAB"))) == ["AAAR3sAAEAAAACPAAB"]


def test_a_condition_is_one_more() -> None:
    sql = range_select(SCHEMA, 7, RowIdRange("X", "Y"), "N = 1 OR N = 2").sql
    assert sql.endswith("AND (N = 1 OR N = 2)")
    assert "AS OF SCN 7" in sql


@pytest.mark.parametrize(
    ("source_type", "printed"),
    [
        ("NUMBER(12,2)", 'TO_CHAR("C")'),
        ("TIMESTAMP(9) WITH TIME ZONE", "TO_CHAR(\"C\", 'SYYYY-MM-DD HH24:MI:SS.FF9 TZR')"),
        ("INTERVAL DAY(2) TO SECOND(6)", 'TO_CHAR("C")'),
        ("XMLTYPE", 'XMLSERIALIZE(CONTENT "C" AS CLOB)'),
        ("VARCHAR2(10)", '"C"'),
        ("BLOB", '"C"'),
    ],
)
def test_values_are_selected_as_the_log_prints_them(source_type: str, printed: str) -> None:
    assert selected(column("C", source_type)) == printed


def test_only_columns_with_an_order_that_a_text_says_are_a_key() -> None:
    schema = TableSchema(
        table_id=SCHEMA.table_id, columns=(column("F", "BINARY_DOUBLE"), column("D", "DATE"), column("R", "RAW(16)"))
    )
    assert can_page_by(schema, ("D", "R"))
    assert not can_page_by(schema, ("F",))
    assert not can_page_by(schema, ())
