"""The model database by SQL: changes, definitions, the dictionary and ROWIDs, asked by python-oracledb."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import oracledb
import pytest

from libs.stand_ins.oracle.answers import Column, Months, OracleType
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.definitions import column
from libs.stand_ins.oracle.dictionary import _declared
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.server import Listener, listening

ORDERS = (
    "CREATE TABLE SHOP.ORDERS (ID NUMBER(9) PRIMARY KEY, NM VARCHAR2(20 CHAR) DEFAULT 'new' NOT NULL, AMT NUMBER(12,2),"
    " N NUMBER, DOC CLOB, MADE TIMESTAMP(6))"
)
LONG_NUMBER = Decimal(f"1.{'0' * 29}1")
MINED = (
    'SELECT OPERATION_CODE, "DATA_OBJV#", STATUS, SEG_OWNER, TABLE_NAME, INFO, SQL_REDO, "ROLLBACK" FROM V$LOGMNR_CONTENTS'
    " WHERE OPERATION_CODE NOT IN (6, 7, 36)"
)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def database(model: Model) -> ModelDatabase:
    return ModelDatabase(
        model,
        {"C##HEADWATER": "secret", "SHOP": "secret", "GUEST": "secret"},
        grants={"GUEST": {"SHOP.ORDERS", "V$DATABASE"}},
    )


@pytest.fixture
def listener(database: ModelDatabase) -> Iterator[Listener]:
    with listening(database) as found:
        yield found


@pytest.fixture
def shop(listener: Listener) -> Iterator[oracledb.Connection]:
    with connect(listener, "shop") as connection:
        connection.cursor().execute(ORDERS)
        yield connection


def connect(listener: Listener, user: str = "c##headwater") -> oracledb.Connection:
    return oracledb.connect(user=user, password="secret", dsn=listener.dsn)


def query(connection: oracledb.Connection, statement: str, *binds: object) -> list[tuple[object, ...]]:
    return list(connection.cursor().execute(statement, list(binds), fetch_lobs=False))


def run(connection: oracledb.Connection, statement: str, *binds: object) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, list(binds))
        return cursor.rowcount


def mined(model: Model, connection: oracledb.Connection, statement: str = MINED) -> list[tuple[object, ...]]:
    """Everything that is in the one log."""
    run(connection, "BEGIN DBMS_LOGMNR.ADD_LOGFILE('/redo/a/group1.log', DBMS_LOGMNR.NEW); END;")
    options = "DBMS_LOGMNR.DICT_FROM_ONLINE_CATALOG + DBMS_LOGMNR.NO_ROWID_IN_STMT"
    run(
        connection,
        f"BEGIN DBMS_LOGMNR.START_LOGMNR(STARTSCN => :1, ENDSCN => :2, OPTIONS => {options}); END;",
        1,
        model.scn,
    )
    return query(connection, statement)


def test_changes_are_counted_seen_by_their_session_and_committed(shop: oracledb.Connection, listener: Listener) -> None:
    assert run(shop, "INSERT INTO orders (id, amt) VALUES (:1, :2)", 1, Decimal("1.005")) == 1
    assert run(shop, "INSERT INTO orders (id, nm, n, made) VALUES (2, 'two', 1e30, SYSTIMESTAMP)") == 1
    assert run(shop, "UPDATE orders SET amt = NVL(amt, 0) + id, nm = nm || '!' WHERE id <= :1", 2) == 2
    with connect(listener) as other:
        assert query(other, "SELECT COUNT(*) FROM SHOP.ORDERS") == [(0,)]
        shop.commit()
        assert query(other, "SELECT id, nm, amt, n FROM SHOP.ORDERS ORDER BY 1") == [
            (1, "new!", 2.01, None),
            (2, "two!", 2, 10**30),
        ]
    assert run(shop, "DELETE FROM orders WHERE nm LIKE 'two%'") == 1
    shop.rollback()
    assert query(shop, "SELECT id FROM orders ORDER BY id DESC") == [(2,), (1,)]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("INSERT INTO orders (id) VALUES (1)", 1),
        ("INSERT INTO orders (id, nm) VALUES (3, NULL)", 1400),
        ("INSERT INTO orders (id, nm) VALUES (3, 'more than twenty characters')", 12899),
        ("INSERT INTO orders (id, amt) VALUES (3, 99999999999)", 1438),
        ("INSERT INTO orders (id, amt) VALUES (3, 'x')", 1722),
        ("INSERT INTO orders (id, none) VALUES (3, 1)", 904),
        ("INSERT INTO orders (id, nm) VALUES (3)", 947),
        ("UPDATE orders SET id = 2 WHERE id = 1", 1),
        ("UPDATE none SET id = 2", 942),
        ("CREATE TABLE orders (id NUMBER)", 955),
        ("CREATE TABLE other (id GEOMETRY)", 902),
        ("ROLLBACK TO SAVEPOINT never", 1086),
        ("MERGE INTO orders", 900),
    ],
)
def test_statements_are_refused_as_by_the_server(statement: str, code: int, shop: oracledb.Connection) -> None:
    run(shop, "INSERT INTO orders (id) VALUES (1)")
    run(shop, "INSERT INTO orders (id) VALUES (2)")
    with pytest.raises(oracledb.DatabaseError, match=f"ORA-{code:05}"):
        run(shop, statement)
    assert query(shop, "SELECT COUNT(*) FROM orders") == [(2,)]


def test_a_savepoint_gives_the_rows_of_then(shop: oracledb.Connection, model: Model) -> None:
    run(shop, "INSERT INTO orders (id) VALUES (1)")
    run(shop, "SAVEPOINT then")
    run(shop, "UPDATE orders SET nm = 'undone'")
    run(shop, "ROLLBACK TO SAVEPOINT then")
    shop.commit()
    assert query(shop, "SELECT nm FROM orders") == [("new",)]
    assert [(row[0], row[7]) for row in mined(model, shop)[1:]] == [(1, 0), (3, 0), (3, 1)]


def test_a_row_that_another_transaction_changed_is_waited_for(
    shop: oracledb.Connection, listener: Listener, model: Model
) -> None:
    run(shop, "INSERT INTO orders (id) VALUES (1)")
    shop.commit()
    change = model.begin()
    (row_id,) = model.tables["SHOP", "ORDERS"].at(model.scn)
    change.update(model.tables["SHOP", "ORDERS"], row_id, {"NM": "first"})
    waiting = threading.Thread(target=run, args=(shop, "UPDATE orders SET nm = nm || ', second'"))
    waiting.start()
    while not model.waiting:
        time.sleep(0.01)
    change.commit()
    waiting.join()
    assert query(shop, "SELECT nm FROM orders") == [("first, second",)]


def test_definitions_are_records_with_their_text(shop: oracledb.Connection, model: Model) -> None:
    run(shop, "ALTER TABLE orders ADD (x NUMBER(3) DEFAULT 7, y DATE)")
    run(shop, "ALTER TABLE orders MODIFY (nm VARCHAR2(40 CHAR) NOT NULL)")
    run(shop, "INSERT INTO orders (id) VALUES (1)")
    run(shop, "ALTER TABLE orders RENAME COLUMN x TO z")
    run(shop, "ALTER TABLE orders DROP COLUMN y")
    assert query(shop, "SELECT z, nm FROM orders") == [(7, "new")]
    run(shop, "TRUNCATE TABLE orders")
    run(shop, "RENAME orders TO sales")
    assert query(shop, "SELECT * FROM sales") == []
    run(shop, "DROP TABLE sales")

    texts = [(row[5], row[6]) for row in mined(model, shop) if row[0] == 5]
    assert texts[1] == ("USER DDL (PlSql=0 RecDep=0)", "ALTER TABLE orders ADD (x NUMBER(3) DEFAULT 7, y DATE);")
    assert [text.split()[0] for _, text in texts] == [*["CREATE"], *["ALTER"] * 4, "TRUNCATE", "RENAME", "DROP"]
    assert texts[-1][1].startswith('DROP TABLE sales AS "BIN$')


def test_rows_of_an_older_version_come_by_numbers_of_columns(shop: oracledb.Connection, model: Model) -> None:
    run(shop, "INSERT INTO orders (id, nm) VALUES (8, 'test5')")
    shop.commit()
    assert mined(model, shop)[-1][6] == (
        'insert into "SHOP"."ORDERS"("ID","NM","AMT","N","DOC","MADE") values (\'8\',\'test5\',NULL,NULL,NULL,NULL);'
    )
    run(shop, "ALTER TABLE orders ADD x NUMBER")
    _, version, status, owner, name, info, text, _ = mined(model, shop)[1]
    assert (version, status, owner, name, info) == (1, 2, "SHOP", "ORDERS", "Dictionary Version Mismatch")
    assert text == (
        'insert into "SHOP"."ORDERS"("COL 1","COL 2","COL 3","COL 4","COL 5","COL 6")'
        " values (HEXTORAW('c109'),HEXTORAW('7465737435'),NULL,NULL,NULL,NULL);"
    )
    run(shop, "DROP TABLE orders PURGE")
    assert mined(model, shop)[1][3:5] == ("UNKNOWN", "OBJ# 73196")


def test_an_unused_column_keeps_its_number(shop: oracledb.Connection, model: Model) -> None:
    run(shop, "ALTER TABLE orders SET UNUSED (nm)")
    run(shop, "INSERT INTO orders (id, amt) VALUES (1, 2)")
    run(shop, "ALTER TABLE orders ADD x NUMBER")
    assert '("COL 1","COL 3","COL 4","COL 5","COL 6")' in str(mined(model, shop)[-2][6])
    names = query(
        shop,
        "SELECT column_name, column_id, internal_column_id, hidden_column FROM user_tab_cols WHERE table_name = 'ORDERS'"
        " ORDER BY internal_column_id",
    )
    assert names[:3] == [("ID", 1, 1, "NO"), ("SYS_C00002_26010100:00:00$", None, 2, "YES"), ("AMT", 2, 3, "NO")]


def test_a_table_as_of_an_scn_before_its_definition_is_an_error(shop: oracledb.Connection, model: Model) -> None:
    before = model.scn
    run(shop, "ALTER TABLE orders ADD x NUMBER")
    with pytest.raises(oracledb.DatabaseError, match="ORA-01466"):
        query(shop, "SELECT * FROM orders AS OF SCN :1", before)


@pytest.mark.parametrize(
    "declared",
    [
        "NUMBER",
        "NUMBER(*,0)",
        "NUMBER(12,2)",
        "NUMBER(3,-2)",
        "FLOAT(126)",
        "VARCHAR2(20 BYTE)",
        "VARCHAR2(20 CHAR)",
        "CHAR(3 BYTE)",
        "NVARCHAR2(10)",
        "NCHAR(3)",
        "RAW(16)",
        "DATE",
        "TIMESTAMP(6)",
        "TIMESTAMP(9)",
        "TIMESTAMP(3) WITH TIME ZONE",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "INTERVAL YEAR(4) TO MONTH",
        "INTERVAL DAY(3) TO SECOND(9)",
        "BINARY_FLOAT",
        "BINARY_DOUBLE",
        "CLOB",
        "NCLOB",
        "BLOB",
    ],
)
def test_a_type_is_written_as_it_was_declared(declared: str) -> None:
    assert _declared(column(f"C {declared}")) == declared


def test_the_dictionary_has_tables_columns_and_keys(shop: oracledb.Connection, listener: Listener) -> None:
    with connect(listener) as reader:
        assert query(
            reader,
            "SELECT column_name, data_type, data_length, char_length, data_precision, data_scale, nullable, data_default,"
            " character_set_name FROM dba_tab_cols WHERE owner = :1 AND table_name = :2 ORDER BY column_id",
            "SHOP",
            "ORDERS",
        ) == [
            ("ID", "NUMBER", 22, 0, 9, 0, "N", None, None),
            ("NM", "VARCHAR2", 80, 20, None, None, "N", "'new'", "CHAR_CS"),
            ("AMT", "NUMBER", 22, 0, 12, 2, "Y", None, None),
            ("N", "NUMBER", 22, 0, None, None, "Y", None, None),
            ("DOC", "CLOB", 4000, 0, None, None, "Y", None, "CHAR_CS"),
            ("MADE", "TIMESTAMP(6)", 11, 0, None, 6, "Y", None, None),
        ]
        assert query(
            reader,
            "SELECT c.column_name, k.constraint_type FROM all_cons_columns c JOIN all_constraints k ON c.owner = k.owner"
            " AND c.constraint_name = k.constraint_name WHERE k.constraint_type = 'P' AND k.owner = 'SHOP'",
        ) == [("ID", "P")]
        ((text,),) = query(reader, "SELECT DBMS_METADATA.GET_DDL('TABLE', 'ORDERS', 'SHOP') FROM DUAL")
        assert '"AMT" NUMBER(12,2)' in str(text)


def test_values_come_as_the_table_has_them(model: Model, listener: Listener) -> None:
    """No engine makes them coarser: nothing of 38 digits, of a zone or of a ROWID is lost."""
    columns = {
        Column("N", OracleType.NUMBER, 22, 0, -127): LONG_NUMBER,
        Column("Z", OracleType.TIMESTAMP_TZ, 13, scale=6): datetime(
            2024, 7, 1, 12, tzinfo=timezone(timedelta(hours=2))
        ),
        Column("L", OracleType.TIMESTAMP_LTZ, 11, scale=6): datetime(2024, 7, 1, 12, tzinfo=UTC),
        Column("Y", OracleType.INTERVAL_YM, 5): Months(-41),
        Column("I", OracleType.INTERVAL_DS, 11, scale=6): timedelta(days=-3, microseconds=1),
    }
    table = model.create("SHOP", "ALL", list(columns))
    transaction = model.begin()
    row_id = transaction.insert(table, {each.name: value for each, value in columns.items()})
    transaction.commit()
    with connect(listener) as connection, connection.cursor() as cursor:
        cursor.outputtypehandler = lambda cursor, metadata: (
            cursor.var(Decimal, arraysize=cursor.arraysize) if metadata.type_code is oracledb.DB_TYPE_NUMBER else None
        )
        cursor.execute("SELECT t.*, TO_CHAR(z, 'SYYYY-MM-DD HH24:MI:SS.FF3 TZR'), ROWID FROM SHOP.\"ALL\" t")
        ((number, _, local, months, interval, text, found),) = cursor.fetchall()
        cursor.execute('SELECT TO_CHAR(y), TO_CHAR(i), TO_CHAR(n) FROM SHOP."ALL" WHERE n >= 1')
        assert cursor.fetchall() == [("-03-05", "-02 23:59:59.999999", str(LONG_NUMBER))]
    assert (number, interval, found) == (LONG_NUMBER, timedelta(days=-3, microseconds=1), row_id)
    assert (months.years, months.months) == (-3, -5)
    assert text == " 2024-07-01 12:00:00.000 +02:00"
    assert local == datetime(2024, 7, 1, 12)


def test_a_region_is_kept(model: Model, listener: Listener) -> None:
    table = model.create("SHOP", "ZONED", [Column("Z", OracleType.TIMESTAMP_TZ, 13, scale=6)])
    transaction = model.begin()
    transaction.insert(table, {"Z": datetime(2022, 3, 27, 12, 34, 56, 7_890, tzinfo=ZoneInfo("Europe/Prague"))})
    transaction.commit()
    with connect(listener) as connection:
        assert "TO_TIMESTAMP_TZ('2022-03-27 12:34:56.007890 Europe/Prague')" in str(mined(model, connection)[-1][6])


def test_row_ids_are_compared_in_the_order_of_their_digits(model: Model, listener: Listener) -> None:
    """Ranges of extents, as a snapshot asks for them, have each row once."""
    table = model.create("SHOP", "MANY", [Column("ID", OracleType.NUMBER, 22, 9, 0)], key=["ID"])
    transaction = model.begin()
    for number in range(5_000):
        transaction.insert(table, {"ID": number})
    transaction.commit()
    with connect(listener) as connection:
        bounds = query(
            connection,
            "SELECT DBMS_ROWID.ROWID_CREATE(1, o.data_object_id, e.relative_fno, e.block_id, 0),"
            " DBMS_ROWID.ROWID_CREATE(1, o.data_object_id, e.relative_fno, e.block_id + e.blocks - 1, 32767)"
            " FROM dba_extents e JOIN dba_objects o ON e.owner = o.owner AND e.segment_name = o.object_name ORDER BY extent_id",
        )
        rows = [
            number
            for low, high in bounds
            for (number,) in query(connection, "SELECT id FROM SHOP.MANY WHERE ROWID BETWEEN :1 AND :2", low, high)
        ]
    assert len(bounds) == 10
    assert rows == list(range(5_000))


def test_key_pages_go_on_after_a_key(model: Model, listener: Listener) -> None:
    key = [Column("A", OracleType.NUMBER, 22, 9, 0), Column("B", size=10)]
    table = model.create("SHOP", "PAGED", key, key=["A", "B"])
    transaction = model.begin()
    for number in range(20):
        transaction.insert(table, {"A": number // 3, "B": "zyx"[number % 3]})
    scn = transaction.commit()
    statement = (
        "SELECT a, b FROM SHOP.PAGED AS OF SCN :1 WHERE (a > :2 OR (a = :2 AND b > :3)) ORDER BY a, b"
        " FETCH FIRST 5 ROWS ONLY"
    )
    with connect(listener) as connection:
        assert query(connection, "SELECT TO_CHAR(SYSTIMESTAMP, 'TZH:TZM') FROM DUAL") == [("+00:00",)]
        page = list(connection.cursor().execute(statement, {"1": scn, "2": 1, "3": "y"}))
    assert page == [(1, "z"), (2, "x"), (2, "y"), (2, "z"), (3, "x")]


def test_a_block_has_variables_and_opens_a_cursor_for_one(shop: oracledb.Connection) -> None:
    """The form in which ojdbc asks for a table's columns."""
    block = """declare
      in_owner varchar2(256) := null;
      found SYS_REFCURSOR;
    begin
      in_owner := :1;
      open found for SELECT column_name, DECODE(nullable, 'N', 0, 1), data_default FROM all_tab_cols
        WHERE owner LIKE in_owner ESCAPE '/' AND table_name = :2 ORDER BY column_id;
      :3 := found;
    end;"""
    with shop.cursor() as cursor:
        opened = cursor.var(oracledb.DB_TYPE_CURSOR)
        cursor.execute(block, ["SH%", "ORDERS", opened])
        assert opened.getvalue().fetchmany(2) == [("ID", 0, None), ("NM", 0, "'new'")]


def test_functions_of_the_database_are_asked_for_rows(shop: oracledb.Connection, model: Model) -> None:
    statement = "SELECT NLS_CHARSET_ID(value) FROM nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET'"
    assert query(shop, statement) == [(873,)]
    ((scn,),) = query(shop, "SELECT TIMESTAMP_TO_SCN(MAX(last_ddl_time)) FROM all_objects WHERE owner = 'SHOP'")
    assert scn == model.scn
    assert query(shop, "SELECT 1 FROM DUAL WHERE SCN_TO_TIMESTAMP(:1) = SCN_TO_TIMESTAMP(:1)", scn, scn) == [(1,)]


def test_a_user_sees_only_granted_things(shop: oracledb.Connection, listener: Listener) -> None:
    with connect(listener, "guest") as guest:
        assert query(guest, "SELECT COUNT(*) FROM SHOP.ORDERS") == [(0,)]
        assert query(guest, "SELECT log_mode FROM V$DATABASE") == [("ARCHIVELOG",)]
        for name in ("V$LOG", "DBA_TABLES", "SHOP.OTHER"):
            with pytest.raises(oracledb.DatabaseError, match="ORA-00942"):
                query(guest, f"SELECT * FROM {name}")
        with pytest.raises(oracledb.DatabaseError, match="ORA-06550"):
            run(guest, "BEGIN DBMS_LOGMNR.END_LOGMNR; END;")


def test_faults_come_once_before_or_between_rows(
    shop: oracledb.Connection, database: ModelDatabase, listener: Listener
) -> None:
    for number in range(150):
        run(shop, "INSERT INTO orders (id) VALUES (:1)", number)
    database.faults.fail("FROM orders", 1555, after_rows=120)
    with pytest.raises(oracledb.DatabaseError, match="ORA-01555"):
        query(shop, "SELECT * FROM orders")
    assert len(query(shop, "SELECT * FROM orders")) == 150
    database.faults.fail("V\\$THREAD", 3113)
    with pytest.raises(oracledb.DatabaseError, match="ORA-03113"):
        query(shop, "SELECT * FROM V$THREAD")
    database.faults.end_connection("V\\$THREAD")
    with connect(listener) as other, pytest.raises(oracledb.DatabaseError, match="DPY-4011"):
        query(other, "SELECT * FROM V$THREAD")
