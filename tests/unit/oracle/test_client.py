"""The connection to Oracle: rows, and each error as one of ours."""

from collections.abc import Iterator
from decimal import Decimal

import pytest

from libs.config.load import Secret
from libs.errors import AccessDenied, HeadwaterError, PipelineHalted, SourceUnavailable
from libs.oracle.error_codes import Treatment, treatment_of
from libs.source.oracle.client import Connection, connect, fetch, hang_up, oracle_error_code, query
from libs.source.oracle.settings import OracleDatabaseSettings
from libs.stand_ins.oracle.answers import Answer, Column, OracleError, OracleType, Rows, Value
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.server import Listener, listening

COLUMNS = (Column("ID", OracleType.NUMBER, 22, 18, 0), Column("TEXT"))


class Failing:
    """A session whose every query gives some rows, then an error."""

    def __init__(self, error: OracleError, rows: int) -> None:
        self._error = error
        self._rows = rows

    def execute(self, statement: str, binds: list[list[Value]]) -> Answer:
        if not statement.startswith("SELECT"):
            return Rows((), ())
        return Rows(COLUMNS, self._found())

    def _found(self) -> Iterator[tuple[Value, ...]]:
        yield from ((Decimal(number), "text") for number in range(self._rows))
        raise self._error

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class FailingDatabase(ModelDatabase):
    """Its sessions fail."""

    def __init__(self, error: OracleError, rows: int = 0) -> None:
        super().__init__(Model(), {"C##HEADWATER": "secret"})
        self._session = Failing(error, rows)

    def connect(self, user: str) -> Failing:
        return self._session


def settings(listener: Listener, *, password: str = "secret") -> OracleDatabaseSettings:
    return OracleDatabaseSettings(
        host="127.0.0.1",
        port=listener.port,
        service_name="ORCLCDB",
        user="c##headwater",
        password=Secret(password),
    )


def failure_of(connection: Connection) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as caught:
        query(connection, "SELECT ID, TEXT FROM T")
    return caught.value


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        (310, SourceUnavailable),
        (1306, SourceUnavailable),
        (4036, SourceUnavailable),
        (60, SourceUnavailable),
        (1089, SourceUnavailable),  # the driver gives this one and the next another name
        (600, SourceUnavailable),
        (30_000, SourceUnavailable),  # nobody foresaw it
        (1031, AccessDenied),
        (1555, PipelineHalted),
        (1343, PipelineHalted),
    ],
)
def test_an_error_of_oracle_is_one_of_ours_with_its_code(code: int, ours: type[HeadwaterError]) -> None:
    with listening(FailingDatabase(OracleError(code, "why"))) as listener:
        connection = connect(settings(listener))

        error = failure_of(connection)

        hang_up(connection)
    assert type(error) is ours
    assert f"ORA-{code:05}" in str(error)
    assert oracle_error_code(error) == code


def test_rows_before_an_error_are_handed_over() -> None:
    """The end of the rows is never taken for an error, nor an error for their end."""
    with listening(FailingDatabase(OracleError(310, "the log was reused"), rows=25)) as listener:
        connection = connect(settings(listener))
        found: list[int] = []

        with pytest.raises(SourceUnavailable):
            for rows in fetch(connection, "SELECT ID, TEXT FROM T", rows=10):
                found += [row[0] for row in rows]

        hang_up(connection)
    assert found == list(range(len(found))) and len(found) >= 20


def test_a_wrong_password_halts_at_once() -> None:
    with (
        listening(ModelDatabase(Model(), {"C##HEADWATER": "secret"})) as listener,
        pytest.raises(AccessDenied, match="ORA-01017"),
    ):
        connect(settings(listener, password="wrong"))


def test_a_server_that_is_away_is_tried_again() -> None:
    with listening(ModelDatabase(Model(), {})) as listener:
        gone = settings(listener)
    with pytest.raises(SourceUnavailable):
        connect(gone)


def test_a_connection_that_breaks_is_no_error_of_the_database() -> None:
    with listening(ModelDatabase(Model(), {"C##HEADWATER": "secret"})) as listener:
        connection = connect(settings(listener))
        listener.end_connections()

        error = failure_of(connection)

        hang_up(connection)
    assert isinstance(error, SourceUnavailable)
    assert oracle_error_code(error) is None


def test_a_code_that_nobody_foresaw_has_no_treatment() -> None:
    assert treatment_of(1291) is Treatment.CHOOSE_LOGS
    assert treatment_of(30_000) is None
