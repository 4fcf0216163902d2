"""The stand-in's protocol, asked by a driver that was not written here: python-oracledb in its thin mode."""

import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import oracledb
import pytest

from libs.oracle import internal_values
from libs.stand_ins.oracle import cells, messages
from libs.stand_ins.oracle.answers import Answer, Column, Cursors, Done, OracleError, OracleType, RowId, Rows, Value
from libs.stand_ins.oracle.server import Listener, listening
from libs.stand_ins.oracle.wire import Reader

NUMBER = Column("N", OracleType.NUMBER, 22)


class Scripted:
    """A database that gives prepared answers, and keeps the statements that it was asked."""

    name = "ORCLCDB"

    def __init__(self) -> None:
        self.answers: dict[str, Answer | OracleError] = {}
        self.asked: list[tuple[str, Sequence[Sequence[Value]]]] = []
        self.ended: list[str] = []

    def password(self, user: str) -> str | None:
        return "pässword" if user == "C##HEADWATER" else None

    def connect(self, user: str) -> "Scripted":
        return self

    def execute(self, statement: str, binds: Sequence[Sequence[Value]]) -> Answer:
        self.asked.append((statement, binds))
        answer = self.answers[statement]
        if isinstance(answer, OracleError):
            raise answer
        return answer

    def commit(self) -> None:
        self.ended.append("commit")

    def rollback(self) -> None:
        self.ended.append("rollback")


@pytest.fixture
def database() -> Scripted:
    return Scripted()


@pytest.fixture
def listener(database: Scripted) -> Iterator[Listener]:
    with listening(database) as found:
        yield found


@pytest.fixture
def connection(listener: Listener) -> Iterator[oracledb.Connection]:
    with connect(listener) as found:
        yield found


def connect(listener: Listener, user: str = "c##headwater", password: str = "pässword") -> oracledb.Connection:
    return oracledb.connect(user=user, password=password, dsn=listener.dsn)


def query(connection: oracledb.Connection, statement: str, *, fetch_lobs: bool = True) -> list[tuple[object, ...]]:
    return list(connection.cursor().execute(statement, fetch_lobs=fetch_lobs))


def test_a_driver_logs_on_and_learns_the_release(connection: oracledb.Connection) -> None:
    assert connection.thin
    assert connection.version == "19.26.0.0.0"


@pytest.mark.parametrize(("user", "password"), [("c##headwater", "password"), ("nobody", "pässword"), ("nobody", "x")])
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(listener: Listener, user: str, password: str) -> None:
    with pytest.raises(oracledb.DatabaseError, match="ORA-01017"):
        connect(listener, user, password)


VALUES: dict[Column, list[Value]] = {
    Column("N", OracleType.NUMBER, 22): [0, 1, -1, 100, Decimal("0.01"), Decimal("-12345.678"), 10**37, 12345678901234],
    Column("T"): ["a", "é" * 2_000, "x" * 252, "x" * 253, "中😀"],
    Column("NT", is_national=True): ["é中😀"],
    Column("C", OracleType.CHAR, 3): ["a  "],
    Column("R", OracleType.RAW, 16): [b"\0\xff" * 8],
    Column("D", OracleType.DATE, 7): [datetime(1, 1, 1), datetime(2024, 2, 29, 23, 59, 59), datetime(9999, 12, 31)],
    Column("TS", OracleType.TIMESTAMP, 11, scale=6): [datetime(2024, 1, 2), datetime(2024, 1, 2, 3, 4, 5, 678_901)],
    Column("F", OracleType.BINARY_FLOAT, 4): [0.0, -0.5, 1e30 * 0 + 2.5],
    Column("B", OracleType.BINARY_DOUBLE, 8): [0.0, -1 / 3, 1e300, float("inf")],
    Column("I", OracleType.INTERVAL_DS, 11): [timedelta(), timedelta(days=-3, seconds=1), timedelta(microseconds=7)],
}


@pytest.mark.parametrize("column", VALUES, ids=lambda column: column.type.name + "-national" * column.is_national)
def test_a_driver_reads_what_the_database_has(
    column: Column, database: Scripted, connection: oracledb.Connection
) -> None:
    values = [*VALUES[column], None]
    database.answers["SELECT 1"] = Rows([column], [(value,) for value in values])
    with connection.cursor() as cursor:
        cursor.outputtypehandler = _exactly
        assert [value for (value,) in cursor.execute("SELECT 1")] == values


def _exactly(cursor: oracledb.Cursor, metadata: oracledb.FetchInfo) -> object:
    return cursor.var(Decimal, arraysize=cursor.arraysize) if metadata.type_code is oracledb.DB_TYPE_NUMBER else None


def test_the_formats_are_those_that_the_reader_of_redo_reads() -> None:
    numbers = [Decimal(text) for text in ("1", "-1", "0.001", "-99.5", "1E+37", "123456789012345678901234567890.5")]
    assert [internal_values.read_number(cells.number(number)) for number in numbers] == numbers
    zoned = datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))
    read = internal_values.read_zoned_timestamp(cells.zoned_timestamp(zoned))
    assert (read.utc.hour, read.utc.minute, read.offset_minutes) == (6, 34, -210)
    span = timedelta(days=-2, hours=5, microseconds=1)
    assert internal_values.read_day_second(cells.interval(span)).nanoseconds == span / timedelta(microseconds=1) * 1_000
    assert internal_values.read_binary_double(cells.binary_number(-0.1, ">d")) == -0.1


@pytest.mark.parametrize(("scale", "signed"), [(-127, b"\x81\x7f"), (-2, b"\x81\2"), (0, b"\0"), (2, b"\1\2")])
def test_ojdbc_reads_a_scale_as_a_signed_number_and_others_as_one_byte(scale: int, signed: bytes) -> None:
    """A NUMBER that was declared without precision has the scale -127."""
    column = Column("N", OracleType.NUMBER, 22, scale=scale)

    def scale_in(described: bytes, *, is_java: bool) -> tuple[bytes, int]:
        read = Reader(described)
        read.numbers(2)  # the bytes of a row, and the columns
        read.raw(1)
        assert read.raw(3) == bytes([OracleType.NUMBER, 0, 0])
        before = read.rest
        found = read.number() if is_java else read.byte()
        written = before[: len(before) - len(read.rest)]
        assert read.number() == 22  # the size stands where the reader looks for it
        return written, found

    assert scale_in(messages.columns_of([column], is_java=True), is_java=True) == (signed, scale)
    assert scale_in(messages.columns_of([column], is_java=False), is_java=False)[1] == scale & 0xFF


def test_a_zoned_timestamp_has_the_clock_of_its_zone(database: Scripted, connection: oracledb.Connection) -> None:
    value = datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2)))
    database.answers["SELECT 1"] = Rows([Column("Z", OracleType.TIMESTAMP_TZ, 13)], [(value,)])
    assert query(connection, "SELECT 1") == [(value.replace(tzinfo=None),)]  # the driver leaves the zone out


def test_row_ids_have_eighteen_characters(database: Scripted, connection: oracledb.Connection) -> None:
    database.answers["SELECT 1"] = Rows([Column("R", OracleType.ROWID, 10)], [(RowId(73_196, 4, 143, 1),), (None,)])
    assert query(connection, "SELECT 1") == [("AAAR3sAAEAAAACPAAB",), (None,)]


@pytest.mark.parametrize("fetch_lobs", [True, False])
def test_lobs_come_by_locator_or_within_the_rows(
    fetch_lobs: bool, database: Scripted, connection: oracledb.Connection
) -> None:
    values: list[tuple[Value, ...]] = [("中" * 50_000, b"\xff\0" * 40_000), ("", b""), ("short", b"1"), (None, None)]
    columns = [Column("C", OracleType.CLOB), Column("B", OracleType.BLOB)]
    database.answers["SELECT 1"] = Rows(columns, values[:1] + values[2:])

    read = []
    for row in connection.cursor().execute("SELECT 1", fetch_lobs=fetch_lobs):
        read.append(tuple(value.read() if isinstance(value, oracledb.LOB) else value for value in row))
    assert read == values[:1] + values[2:]


def test_a_lob_is_read_piece_by_piece(database: Scripted, connection: oracledb.Connection) -> None:
    database.answers["SELECT 1"] = Rows([Column("C", OracleType.CLOB)], [("0123456789é",)])
    ((lob,),) = query(connection, "SELECT 1")
    assert isinstance(lob, oracledb.LOB)
    assert (lob.size(), lob.read(3, 4), lob.read(10)) == (11, "2345", "9é")


def test_many_rows_come_fetch_by_fetch_and_no_sooner(database: Scripted, connection: oracledb.Connection) -> None:
    taken = itertools.count()
    database.answers["SELECT 1"] = Rows([NUMBER, Column("T")], ((next(taken), "x" * 100) for _ in range(5_000)))
    with connection.cursor() as cursor:
        cursor.arraysize = cursor.prefetchrows = 100
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (0, "x" * 100)
        assert next(taken) <= 300
        assert len(cursor.fetchall()) == 4_999


def test_an_error_between_rows_comes_after_the_rows_before_it(
    database: Scripted, connection: oracledb.Connection
) -> None:
    def rows() -> Iterator[tuple[Value, ...]]:
        yield from ((number,) for number in range(150))
        raise OracleError(1291, "missing log file")

    database.answers["SELECT 1"] = Rows([NUMBER], rows())
    read = []
    with pytest.raises(oracledb.DatabaseError, match="ORA-01291"):
        for (number,) in connection.cursor().execute("SELECT 1"):
            read.append(number)
    assert read[:100] == list(range(100))


def test_bind_values_of_each_type_reach_the_database(database: Scripted, connection: oracledb.Connection) -> None:
    database.answers["SELECT :1, :2, :3, :4, :5, :6"] = Rows([NUMBER], [(1,)])
    row = [Decimal("-3.5"), "é", datetime(2024, 1, 2, 3, 4, 5), b"\1\2", None, 10**20]
    connection.cursor().execute("SELECT :1, :2, :3, :4, :5, :6", row).fetchall()
    ((_, [values]),) = database.asked
    assert list(values) == row


def test_a_statement_runs_again_with_other_values(database: Scripted, connection: oracledb.Connection) -> None:
    database.answers["SELECT :1"] = Rows([NUMBER], [(1,)])
    with connection.cursor() as cursor:
        for number in (1, 2):
            assert cursor.execute("SELECT :1", [number]).fetchall() == [(1,)]
    assert [list(binds[0]) for _, binds in database.asked] == [[1], [2]]


def test_changes_are_counted_and_transactions_end(database: Scripted, connection: oracledb.Connection) -> None:
    statement = "UPDATE t SET a = :1 WHERE b = :2"
    database.answers[statement] = Done(3)
    with connection.cursor() as cursor:
        cursor.executemany(statement, [(1, "a"), (2, "b")])
        assert cursor.rowcount == 3
    connection.commit()
    connection.rollback()
    assert database.asked == [(statement, [[1, "a"], [2, "b"]])]
    assert database.ended[:2] == ["commit", "rollback"]


def test_a_block_opens_a_cursor(database: Scripted, connection: oracledb.Connection) -> None:
    rows = Rows([NUMBER, Column("T")], [(number, "x" * number) for number in range(1, 301)])
    database.answers["BEGIN OPEN :1 FOR SELECT; END;"] = Cursors({0: rows})
    with connection.cursor() as cursor:
        opened = cursor.var(oracledb.DB_TYPE_CURSOR)
        cursor.execute("BEGIN OPEN :1 FOR SELECT; END;", [opened])
        assert opened.getvalue().fetchall() == rows.rows


def test_an_error_has_its_code_and_place_and_the_connection_goes_on(
    database: Scripted, connection: oracledb.Connection
) -> None:
    database.answers |= {
        "SELECT x": OracleError(942, "table or view does not exist", place=7),
        "SELECT 1": Rows([], []),
    }
    database.answers["SELECT 1"] = Rows([NUMBER], [(1,)])
    with pytest.raises(oracledb.DatabaseError) as raised:
        connection.cursor().execute("SELECT x")
    assert (raised.value.args[0].code, raised.value.args[0].offset) == (942, 7)
    assert query(connection, "SELECT 1") == [(1,)]


def test_a_statement_longer_than_a_packet_comes_whole(database: Scripted, connection: oracledb.Connection) -> None:
    statement = f"SELECT 1 /* {'é' * 50_000} */"
    database.answers[statement] = Rows([NUMBER], [(1,)])
    assert query(connection, statement) == [(1,)]


def test_connections_that_the_server_ends_are_errors_of_the_driver(listener: Listener, database: Scripted) -> None:
    database.answers["SELECT 1"] = Rows([NUMBER], [(number,) for number in range(1_000)])
    connection = connect(listener)
    rows = iter(connection.cursor().execute("SELECT 1"))
    next(rows)
    listener.end_connections()
    with pytest.raises(oracledb.DatabaseError, match="DPY-4011"):
        list(rows)
