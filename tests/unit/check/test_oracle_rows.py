"""An Oracle database asked by ``check``, on the stand-in: every type's value, filters, keys, and one moment for all."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import oracledb
import pyarrow as pa
import pytest

from libs.check.oracle_conditions import NotTranslated, oracle_condition
from libs.check.oracle_rows import OracleRows, as_of_now
from libs.check.oracle_values import event_text, from_arrow, is_hashed_by_spelling
from libs.check.projection import ExpectedTable, expected_tables
from libs.config.load import Secret
from libs.mesh.executed import CommittedScn
from libs.source.oracle.settings import OracleDatabaseSettings
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.definitions import column
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.server import Listener, listening
from libs.types.tenant import ColumnMask, HashMask, RowFilter, SourceSelection

USER, PASSWORD = "SHOP", "secret"
COLUMNS = (
    "ID NUMBER(9)", "TOTAL NUMBER(12,2)", "RATIO NUMBER", "NOTE VARCHAR2(40)", "CODE CHAR(4)", "RAW_ID RAW(4)", "DAY DATE",
    "AT TIMESTAMP(6)", "SEEN TIMESTAMP(3) WITH TIME ZONE", "F BINARY_FLOAT", "D BINARY_DOUBLE", "TEXT CLOB",
)  # fmt: skip
NAMES = [each.split()[0] for each in COLUMNS]
MORNING = datetime.datetime(2024, 2, 29, 12, 34, 56)
FULL = (
    1, Decimal("12.50"), Decimal("0.125"), "it's ü 😀", "ab  ", bytes.fromhex("00FF00FF"), MORNING,
    MORNING.replace(microsecond=789),
    MORNING.replace(microsecond=250_000, tzinfo=datetime.timezone(datetime.timedelta(hours=2))), 0.5, 0.1, "long " * 9,
)  # fmt: skip


@pytest.fixture
def model() -> Model:
    made = Model()
    made.create("SHOP", "ORDERS", [column(each) for each in COLUMNS], key=["ID"])
    return made


@pytest.fixture
def listener(model: Model) -> Iterator[Listener]:
    with listening(ModelDatabase(model, {USER: PASSWORD})) as found:
        yield found


@pytest.fixture
def full(model: Model) -> None:
    """One row with a value in every column."""
    transaction = model.begin()
    transaction.insert(model.tables["SHOP", "ORDERS"], dict(zip(NAMES, FULL, strict=True)))
    transaction.commit()


def run(listener: Listener, statement: str, binds: tuple[Any, ...] = ()) -> None:
    with oracledb.connect(user=USER, password=PASSWORD, dsn=listener.dsn) as connection:
        connection.cursor().execute(statement, list(binds))
        connection.commit()


def asked(listener: Listener) -> Any:
    return as_of_now(
        OracleDatabaseSettings(
            host="127.0.0.1", port=listener.port, service_name="ORCLCDB", user=USER, password=Secret(PASSWORD)
        )
    )


def expected(rows: OracleRows, **selection: Any) -> ExpectedTable:
    [table] = expected_tables(SourceSelection(name="s", include_tables=(r"SHOP\..*",), **selection), rows.tables())
    return table


def test_every_value_is_what_was_written(full: None, listener: Listener) -> None:
    """As the value that a warehouse has: moments of a zone in UTC, numbers by value, no digit lost."""
    with asked(listener) as rows:
        table = expected(rows)
        [row] = rows.rows(table, table.columns)

    assert dict(zip((column.name for column in table.columns), row, strict=True)) == {
        "ID": 1,
        "TOTAL": Decimal("12.5"),
        "RATIO": Decimal("0.125"),
        "NOTE": "it's ü 😀",
        "CODE": "ab  ",
        "RAW_ID": b"\x00\xff\x00\xff",
        "DAY": datetime.datetime(2024, 2, 29, 12, 34, 56),
        "AT": datetime.datetime(2024, 2, 29, 12, 34, 56, 789),
        "SEEN": datetime.datetime(2024, 2, 29, 10, 34, 56, 250_000),
        "F": 0.5,
        "D": 0.1,
        "TEXT": "long " * 9,
    }


def test_a_block_sees_one_moment(listener: Listener) -> None:
    """Rows that are written meanwhile are not there, and the place says so."""
    run(listener, "INSERT INTO SHOP.ORDERS (ID) VALUES (1)")
    with asked(listener) as rows:
        run(listener, "INSERT INTO SHOP.ORDERS (ID) VALUES (2)")
        table = expected(rows)
        found = [row[0] for row in rows.rows(table, table.columns)]
        before = rows.executed()
    with asked(listener) as rows:
        now = [row[0] for row in rows.rows(table, table.columns)]

    assert (found, now) == ([1], [1, 2])
    assert before == {"": CommittedScn(rows.scn - 3)}


FILTERS = {
    "note = 'globex'": [2],
    "code = 'ab'": [],  # padded with blanks, which a filter counts
    "code = 'ab  ' OR total > 100": [1, 3],
    "note IS NULL": [3],
    "NOT (note LIKE 'glo%') AND id BETWEEN 1 AND 2": [1],
    "day >= '2024-02-29' AND id IN (1, 2)": [1],
    "total > -1": [1, 3],
}


def test_a_filter_means_the_same_to_oracle(full: None, listener: Listener) -> None:
    run(listener, "INSERT INTO SHOP.ORDERS (ID, NOTE) VALUES (2, 'globex')")
    run(listener, "INSERT INTO SHOP.ORDERS (ID, TOTAL) VALUES (3, 1000)")
    found = {}
    with asked(listener) as rows:
        for where in FILTERS:
            table = expected(rows, row_filters=(RowFilter(tables=".*", where=where),), include_columns=(r".*\.ID",))
            assert rows.refusal(table) is None
            found[where] = [int(row[0]) for row in rows.rows(table, table.columns)]

    assert found == FILTERS


TYPES = {name: text.partition(" ")[2] for name, text in zip(NAMES, COLUMNS, strict=True)}


@pytest.mark.parametrize(
    "where", ["id + 1 = 2", "note", "note = ''", "text = 'x'", "nobody = 1", "note = 5", "id = note"]
)
def test_a_filter_that_might_mean_another_thing_is_refused(where: str) -> None:
    """Rather than compared wrongly."""
    with pytest.raises(NotTranslated):
        oracle_condition(where, TYPES)


def test_a_refused_filter_is_named(listener: Listener) -> None:
    """With the remedy."""
    with asked(listener) as rows:
        refused = rows.refusal(expected(rows, row_filters=(RowFilter(tables=".*", where="id + 1 = 2"),)))

    assert refused is not None
    assert refused.startswith("its row filter has id + 1, which is not put to Oracle: ")


def test_rows_are_found_by_their_keys(full: None, listener: Listener) -> None:
    """For the second look, and for a repair's signal."""
    run(listener, "INSERT INTO SHOP.ORDERS (ID) VALUES (2)")
    with asked(listener) as rows:
        table = expected(rows)
        literal = rows.sql.key_literal("NUMBER(9,0)", Decimal(2))
        condition = f"({rows.sql.quoted('ID')}) IN (({literal}))"

        assert [row[0] for row in rows.rows_of(table, table.columns, condition)] == [2]


def test_a_masked_value_is_the_hash_of_its_text_in_an_event(full: None, listener: Listener) -> None:
    """Of the digits that the column's scale has, and of milliseconds since 1970."""
    mask = ColumnMask(columns=r".*\.(TOTAL|DAY|NOTE|RATIO)", hash=HashMask(salt="s", algorithm="md5"))
    with asked(listener) as rows:
        table = expected(rows, masks=(mask,))
        [row] = rows.rows(table, table.columns)

    assert event_text("NUMBER(12,2)", "12.5") == "12.50"
    assert event_text("DATE", " 2024-02-29 12:34:56") == "1709210096000"
    assert is_hashed_by_spelling("NUMBER")
    assert not is_hashed_by_spelling("TIMESTAMP(6)")
    assert row[2] == "(a hash)"


@pytest.mark.parametrize(
    ("oracle_type", "arrow_type", "held", "value"),
    [
        ("NUMBER(9,2)", pa.decimal128(9, 2), Decimal("1.50"), Decimal("1.5")),
        ("NUMBER", pa.string(), "1E+3", Decimal(1000)),
        ("NUMBER(9,2)", pa.float64(), 1.5, Decimal("1.5")),
        ("BINARY_DOUBLE", pa.float64(), float("nan"), "NaN"),
        ("INTERVAL YEAR(2) TO MONTH", pa.string(), "P-1Y-2M0DT0H0M0S", -14 * 2_629_800_000_000),
        ("INTERVAL DAY(2) TO SECOND(6)", pa.string(), "P0Y0M-1DT0H0M-0.5S", -86_400_500_000),
        ("TIMESTAMP(6) WITH TIME ZONE", pa.timestamp("us", "UTC"), datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
         datetime.datetime(2024, 1, 1)),
    ],
)  # fmt: skip
def test_a_warehouses_value_has_the_same_form(
    oracle_type: str, arrow_type: pa.DataType, held: object, value: object
) -> None:
    convert = from_arrow(oracle_type, arrow_type)

    assert (held if convert is None else convert(held)) == value


def test_a_value_in_a_column_of_another_kind_is_a_fault() -> None:
    with pytest.raises(TypeError, match="an Oracle RAW"):
        from_arrow("RAW(4)", pa.string())


def test_a_condition_names_columns_without_their_case() -> None:
    assert oracle_condition("a = 1 AND `b` <> 'x'", {"A": "NUMBER(9,0)", "b": "VARCHAR2(9)"}) == (
        '("A" = 1 AND "b" <> \'x\')'
    )
    with pytest.raises(NotTranslated):
        oracle_condition("a = 1", {"A": "NUMBER(9,0)", "a": "NUMBER(9,0)"})
