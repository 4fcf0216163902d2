"""Faults of the server, for one test: errors at a statement or between its rows, and connections that end."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from libs.stand_ins.oracle.answers import Answer, OracleError, Rows, Value


class ConnectionLost(Exception):
    """The server ends the connection without a word."""


@dataclass(slots=True)
class _Fault:
    pattern: re.Pattern[str]
    error: Exception
    after_rows: int | None
    """None: before the statement is carried out."""
    times: int


class Faults:
    """Those that are to come. Each comes so many times, to whichever connection asks first."""

    def __init__(self) -> None:
        self._faults: list[_Fault] = []
        self.seen: list[str] = []
        """Statements that a fault met."""

    def fail(
        self, pattern: str, code: int, *, after_rows: int | None = None, times: int = 1, text: str = "a fault"
    ) -> None:
        """An error ``ORA-<code>`` at statements that match, before or after some of their rows."""
        error = OracleError(code, text)
        self._faults.append(_Fault(re.compile(pattern, re.IGNORECASE | re.DOTALL), error, after_rows, times))

    def end_connection(self, pattern: str, *, after_rows: int | None = None, times: int = 1) -> None:
        """The connection that executes a matching statement ends."""
        found = re.compile(pattern, re.IGNORECASE | re.DOTALL)
        self._faults.append(_Fault(found, ConnectionLost(), after_rows, times))

    def before(self, statement: str) -> None:
        """Raise the fault of this statement, if there is one."""
        fault = self._next(statement, at_rows=False)
        if fault is not None:
            raise fault.error

    def within(self, statement: str, answer: Answer) -> Answer:
        """The answer, with the fault between its rows, if there is one."""
        fault = self._next(statement, at_rows=True) if isinstance(answer, Rows) else None
        if fault is None or not isinstance(answer, Rows):
            return answer
        return Rows(answer.columns, _until(answer, fault))

    def _next(self, statement: str, *, at_rows: bool) -> _Fault | None:
        for fault in self._faults:
            if fault.times > 0 and (fault.after_rows is not None) == at_rows and fault.pattern.search(statement):
                fault.times -= 1
                self.seen.append(statement)
                return fault
        return None


def _until(answer: Rows, fault: _Fault) -> Iterator[Sequence[Value]]:
    for nth, row in enumerate(answer.rows):
        if nth == fault.after_rows:
            raise fault.error
        yield row
    raise fault.error
