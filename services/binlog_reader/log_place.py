"""Where in the server's files the log stands."""

from libs.events.envelope import json_text
from libs.mysql import binlog_events as events


class LogPlace:
    """File and position, as rows name them."""

    __slots__ = ("file", "file_json", "made_at_s", "payload_end", "pos")

    def __init__(self, file: str, pos: int, made_at_s: int = 0) -> None:
        self.pos = pos
        self.made_at_s = made_at_s
        """When the server began the file; 0: the log is still to say it."""
        self.payload_end = 0
        """Where the compressed transaction ends that is being read; 0: none is."""
        self.enter(file)

    def enter(self, file: str) -> None:
        """Rows that follow are of ``file``."""
        self.file = file
        self.file_json = json_text(file)

    def rotate(self, body: bytes) -> None:
        """A rotate event: the log goes on in another file."""
        file = events.parse_rotate(body)
        if file != self.file:
            self.enter(file)
        self.pos = int.from_bytes(body[:8], "little")

    def unwrapped(self, position: int) -> int:
        """A header's position, of which the log has 32 bits only, as the place in the file that it means."""
        if self.payload_end:
            position = self.payload_end
        unwrapped = self.pos & ~0xFFFFFFFF | position
        return unwrapped if unwrapped >= self.pos or position == 0 else unwrapped + (1 << 32)

    def advance(self, end_position: int) -> None:
        """An event ended, by its header at ``end_position``."""
        self.pos = self.unwrapped(end_position)

    def at(self, pos: int) -> str:
        """A place for a message."""
        return f"{self.file}:{pos}"

    @property
    def now(self) -> str:
        """This place, for a message."""
        return self.at(self.pos)
