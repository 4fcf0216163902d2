"""One connection: the client's calls and their answers."""

import contextlib
import itertools
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from libs.stand_ins.oracle import logon, messages
from libs.stand_ins.oracle.answers import Cursors, Database, DatabaseSession, Done, OracleError, Rows
from libs.stand_ins.oracle.logon import Challenge
from libs.stand_ins.oracle.messages import Execute
from libs.stand_ins.oracle.packets import ConnectionEnded, Packets, ProtocolError
from libs.stand_ins.oracle.statements import LOB_CHUNK_BYTES, Cursor, Lobs, bound_values, fetch
from libs.stand_ins.oracle.wire import Incomplete, Reader, Writer

_EXECUTES: Final = 0x20
_FETCHES: Final = 0x40
_DESCRIBES: Final = 0x20000 | 0x01
_CLOSE_CURSORS: Final = 105
_SESSION_STATE: Final = 176

_session_numbers = itertools.count(1)


@dataclass(slots=True)
class _User:
    """The user that logs on, or has."""

    name: str
    challenge: Challenge | None
    session: DatabaseSession | None = None


class Session:
    """Serves one client until it goes. Every call is answered before the next one is read."""

    def __init__(self, connection: socket.socket, database: Database) -> None:
        self._packets = Packets(connection)
        self._database = database
        self._is_java = False
        self._sequence = 0
        self._user: _User | None = None
        self._cursors: dict[int, Cursor] = {}
        self._numbers = itertools.count(1)
        self._lobs = Lobs()
        self._functions: dict[int, Callable[[Reader], bytes]] = {
            4: lambda call: self._execute_again(call, fetches=False),
            5: self._fetch,
            9: lambda call: messages.status(self._sequence),  # log off
            14: self._commit,
            15: self._roll_back,
            59: self._version,
            78: lambda call: self._execute_again(call, fetches=True),
            94: self._execute,
            96: self._read_lob,
            115: self._log_on,
            118: self._challenge,
            147: lambda call: messages.status(self._sequence),  # ping
        }

    def serve(self) -> None:
        """Answer calls until the client goes.

        Raises:
            ProtocolError: the client sent something unknown.
        """
        with contextlib.suppress(ConnectionEnded):
            self._packets.accept()
            while True:
                self._packets.send_message(self._answer())

    def _answer(self) -> bytes:
        """To the next message, of as many packets as it has."""
        data = self._packets.receive_data()
        while True:
            try:
                return self._answer_to(Reader(data))
            except Incomplete:
                data += self._packets.receive_data()

    def _answer_to(self, message: Reader) -> bytes:
        kind = message.byte()
        if kind == messages.PROTOCOL:
            self._is_java = b"Java" in message.rest
            return messages.protocol()
        if kind == messages.DATA_TYPES:
            return messages.data_types()
        closed: list[int] = []
        while kind == messages.PIGGYBACK:
            closed += _closed_cursors(message)
            kind = message.byte()
        if kind != messages.FUNCTION:
            raise ProtocolError(f"message {kind}")
        function, self._sequence = message.byte(), message.byte()
        if function not in self._functions:
            raise ProtocolError(f"function {function}")
        try:
            answer = self._functions[function](message)
        except OracleError as error:
            answer = self._failed(error)
        for number in closed:
            self._cursors.pop(number, None)
        return answer

    # Logon

    def _challenge(self, call: Reader) -> bytes:
        name, _ = messages.read_logon(call, is_java=self._is_java)
        password = self._database.password(name.upper())
        # An unknown user is asked as a known one is, and fails at the second step, as at a real server.
        challenge = Challenge(password if password is not None else "")
        self._user = _User(name.upper(), challenge if password is not None else None)
        return messages.pairs(challenge.pairs()) + self._ended()

    def _log_on(self, call: Reader) -> bytes:
        _, named = messages.read_logon(call, is_java=self._is_java)
        user = self._user
        proof = user.challenge.proof(named) if user is not None and user.challenge is not None else None
        if user is None or proof is None:
            raise OracleError(1017, "invalid username/password; logon denied")
        user.session = self._database.connect(user.name)
        values = logon.welcome(proof, self._database.name, next(_session_numbers))
        return messages.pairs(values) + self._ended()

    @property
    def _session(self) -> DatabaseSession:
        if self._user is None or self._user.session is None:
            raise OracleError(1012, "not logged on")
        return self._user.session

    # Calls without a cursor

    def _commit(self, call: Reader) -> bytes:
        self._session.commit()
        return messages.status(self._sequence)

    def _roll_back(self, call: Reader) -> bytes:
        self._session.rollback()
        return messages.status(self._sequence)

    def _version(self, call: Reader) -> bytes:
        return messages.version(*logon.banner()) + self._ended()

    def _read_lob(self, call: Reader) -> bytes:
        call.byte()
        locator_bytes = call.number()
        call.byte()
        call.numbers(3)
        call.raw(3)
        operation = call.number()
        call.raw(2)
        begin, _ = call.numbers(2)
        has_amount = call.byte()
        call.raw(6)
        locator = call.raw(locator_bytes)
        amount = call.number() if has_amount else 0
        data, unit_bytes = self._lobs.value(locator), self._lobs.unit_bytes(locator)
        answer = Writer()
        match operation:
            case messages.LobOperation.READ:
                part = data[unit_bytes * (begin - 1) :][: unit_bytes * amount]
                answer.byte(messages.LOB_DATA).value(part)
                result = len(part) // unit_bytes
            case messages.LobOperation.LENGTH:
                result = len(data) // unit_bytes
            case messages.LobOperation.CHUNK_SIZE:
                result = LOB_CHUNK_BYTES
            case _:
                raise ProtocolError(f"operation {operation} on a LOB")
        return bytes(answer.byte(8).raw(locator).signed(result).data) + self._ended()

    # Statements

    def _execute(self, call: Reader) -> bytes:
        known = {number: cursor.binds for number, cursor in self._cursors.items()}
        request = messages.read_execute(call, known, is_java=self._is_java)
        cursor = self._cursor(request)
        if request.defines:
            cursor.defines = request.defines
        executes = bool(request.options & _EXECUTES) or cursor.columns is None
        return self._carry_out(cursor, request, executes=executes)

    def _execute_again(self, call: Reader, *, fetches: bool) -> bytes:
        number, times, _, _ = call.numbers(4)
        cursor = self._cursors[number]
        rows = messages.read_bind_rows(call, cursor.binds)
        options = _EXECUTES | (_FETCHES if fetches else 0)
        request = Execute(options, number, None, times, False, cursor.binds, rows, [])
        return self._carry_out(cursor, request, executes=True)

    def _cursor(self, request: Execute) -> Cursor:
        if request.statement is None:
            cursor = self._cursors[request.cursor]
        else:
            cursor = Cursor(request.cursor or next(self._numbers), request.statement)
            self._cursors[cursor.number] = cursor
        cursor.binds = request.binds
        return cursor

    def _carry_out(self, cursor: Cursor, request: Execute, *, executes: bool) -> bytes:
        if executes:
            values = [bound_values(request.binds, row) for row in request.rows]
            try:
                answer = self._session.execute(cursor.statement, values)
            except OracleError as error:
                return self._failed(error, cursor)
            match answer:
                case Done(rows):
                    return _returned(cursor, request) + self._ended(cursor, rows)
                case Cursors():
                    return self._opened(cursor, request, answer)
                case Rows():
                    cursor.take(answer)
        assert cursor.columns is not None
        described = b""
        if request.options & _DESCRIBES:
            described = messages.describe(cursor.columns, is_java=self._is_java)
        if request.options & _FETCHES and not cursor.awaits_defines:
            return described + self._fetched(cursor, request.times, _returned(cursor, request))
        return described + _returned(cursor, request) + self._ended(cursor)

    def _opened(self, cursor: Cursor, request: Execute, answer: Cursors) -> bytes:
        """A block's cursors, as the values of its bind variables."""
        message = Writer().raw(messages.bind_directions(len(request.binds), set(answer.opened)))
        message.byte(messages.ROW_DATA)
        for _, rows in sorted(answer.opened.items()):
            opened = Cursor(next(self._numbers), cursor.statement)
            opened.take(rows)
            self._cursors[opened.number] = opened
            columns = messages.columns_of(rows.columns, is_java=self._is_java)
            message.byte(1).raw(columns).number(opened.number).signed(0)
        return bytes(message.data) + _returned(cursor, request) + self._ended(cursor, 1)

    def _fetch(self, call: Reader) -> bytes:
        number, rows = call.numbers(2)
        if number not in self._cursors:
            raise OracleError(1001, "invalid cursor")
        return self._fetched(self._cursors[number], rows, b"")

    def _fetched(self, cursor: Cursor, rows: int, returned: bytes) -> bytes:
        assert cursor.columns is not None
        header = messages.row_header(len(cursor.columns), rows)
        fetched = fetch(cursor, rows, self._lobs)
        if fetched.error is not None:
            return header + fetched.data + self._failed(fetched.error, cursor)
        end = self._ended(cursor, cursor.fetched)
        if fetched.is_over:
            end = messages.ended(
                self._sequence,
                cursor=cursor.number,
                rows=cursor.fetched,
                code=messages.NO_MORE_ROWS,
                text="ORA-01403: no data found",
            )
        return header + fetched.data + returned + end

    def _ended(self, cursor: Cursor | None = None, rows: int = 0) -> bytes:
        return messages.ended(self._sequence, cursor=cursor.number if cursor else 0, rows=rows)

    def _failed(self, error: OracleError, cursor: Cursor | None = None) -> bytes:
        return messages.ended(
            self._sequence,
            cursor=cursor.number if cursor else 0,
            rows=cursor.fetched if cursor else 0,
            code=error.code,
            text=str(error),
            place=error.place,
        )


def _returned(cursor: Cursor, request: Execute) -> bytes:
    return messages.parameters(cursor.number, wants_row_counts=request.wants_row_counts)


def _closed_cursors(message: Reader) -> list[int]:
    """The cursors that a client closes along with its next call.

    Raises:
        ProtocolError: it sends something else along.
    """
    function = message.byte()
    message.byte()
    if function == _SESSION_STATE:
        message.number()
        return []
    if function != _CLOSE_CURSORS:
        raise ProtocolError(f"function {function} along with a call")
    message.byte()
    return message.numbers(message.number())
