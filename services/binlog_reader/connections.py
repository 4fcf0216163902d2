"""The connections of one open source, closed together."""

from libs.source.mysql.client import Connection, connect, hang_up
from libs.source.mysql.settings import DatabaseSettings


class Connections:
    """Connections to the server that is followed; all that are still open are closed at the end."""

    def __init__(self, database: DatabaseSettings) -> None:
        self._database = database
        self._open: list[Connection] = []

    def open(self) -> Connection:
        """One more. Blocks. Raises as ``connect``."""
        connection = connect(self._database)
        self._open.append(connection)
        return connection

    def close(self) -> None:
        """Close all of them. Blocks shortly."""
        while self._open:
            hang_up(self._open.pop())
