"""The stand-in's listener on loopback."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Final

from libs.servers.ports import LOOPBACK
from libs.stand_ins.oracle.answers import Database
from libs.stand_ins.oracle.faults import ConnectionLost
from libs.stand_ins.oracle.session import Session

_WAITING: Final = 50


class Listener:
    """Accepts connections, each with a thread of its own. ``faults`` has the errors that ended connections."""

    def __init__(self, database: Database, port: int = 0) -> None:
        """``port``: 0: any free one."""
        self._database = database
        self._socket = socket.create_server((LOOPBACK, port), backlog=_WAITING)
        self._connections: list[socket.socket] = []
        self.faults: list[Exception] = []
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def dsn(self) -> str:
        """What python-oracledb connects to."""
        return f"{LOOPBACK}:{self.port}/{self._database.name}"

    @property
    def connections(self) -> int:
        """How many are open."""
        return sum(connection.fileno() >= 0 for connection in self._connections)

    def end_connections(self) -> None:
        """As a server that is killed: no client hears a word."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._connections.clear()

    def close(self) -> None:
        """Accept nobody any more, and end who is there."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.end_connections()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            Session(connection, self._database).serve()
        except ConnectionLost:
            pass
        except Exception as error:
            self.faults.append(error)
        finally:
            connection.close()


@contextlib.contextmanager
def listening(database: Database, port: int = 0) -> Iterator[Listener]:
    """A listener for the time of the block; ``port``: 0: any free one.

    Raises:
        AssertionError: a client sent something unknown, or an answer of the model does not fit its columns.
    """
    listener = Listener(database, port)
    try:
        yield listener
    finally:
        listener.close()
    assert not listener.faults, listener.faults
