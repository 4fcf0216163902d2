"""Where the topic stands: in Kafka, and in the log of the server before it. Transactions that came are known by their GTIDs."""

import contextlib

import msgspec

from libs.mysql.gtid import ExecutedGtids, GtidSet, InvalidGtid, parse_gtid
from services.dts_decoder.header_text import text_of
from services.dts_decoder.messages import EntryReader
from services.dts_decoder.position import DtsPosition


class TopicPlace:
    """The place of the newest entry, and the transactions up to it."""

    def __init__(self, position: DtsPosition) -> None:
        self._position = position
        self._executed = ExecutedGtids(GtidSet.parse(position.gtid_set))
        self._gtid: tuple[bytes, str, tuple[str, str, int] | None] = (b"", "", None)

    @property
    def position(self) -> DtsPosition:
        """To resume from only between transactions."""
        return msgspec.structs.replace(self._position, gtid_set=self._executed.text())

    @property
    def ps(self) -> int | None:
        """Of the newest whole message."""
        return self._position.ps

    def entries_taken(self, offset: int) -> int:
        """How many entries of the message at this offset were taken before."""
        return self._position.entry if offset == self._position.offset else 0

    def stand(self, offset: int, entry: int, ps: int | None) -> None:
        """Everything before ``entry`` of the message at ``offset`` was taken."""
        self._position = msgspec.structs.replace(self._position, offset=offset, entry=entry, ps=ps)

    def epoch(self, reader: EntryReader) -> int:
        """Grows where the source has no GTIDs and DTS pulls from another server: its places begin again."""
        before = self._position
        if not reader.gtid and before.server_id and reader.server_id != before.server_id:
            return before.epoch + 1
        return before.epoch

    def passed(self, gtid: str, reader: EntryReader | None) -> None:
        """The transaction came, and stood at the entry; None: an entry of no transaction ended it."""
        if gtid:
            with contextlib.suppress(InvalidGtid):  # MariaDB's: known by its place
                self._executed.add(*parse_gtid(gtid))
        if reader is not None:
            self._position = msgspec.structs.replace(
                self._position,
                epoch=self.epoch(reader),
                server_id=reader.server_id,
                file=text_of(reader.file_name),
                pos=reader.position,
                gtid=gtid,
                seq_id=reader.seq_id,
            )

    def gtid_of(self, reader: EntryReader) -> tuple[str, tuple[str, str, int] | None]:
        """The GTID's text, and its parts where it is of MySQL's form; computed once for the entries of a transaction."""
        raw, text, parts = self._gtid
        if raw is not reader.gtid:
            text, parts = text_of(reader.gtid), None
            with contextlib.suppress(InvalidGtid):
                parts = parse_gtid(text)
            self._gtid = reader.gtid, text, parts
        return text, parts

    def has_passed(self, reader: EntryReader) -> bool:
        """The transaction of the entry came already."""
        parts = self.gtid_of(reader)[1]
        if parts is not None:
            return self._executed.contains(*parts)
        last = self._position
        if not last.file or last.server_id != reader.server_id:
            return False
        return (_file_number(text_of(reader.file_name)), reader.position) <= (_file_number(last.file), last.pos)

    def synced(self, gtid_set: str) -> None:
        """A CHECKPOINT names the transactions that DTS has synchronised.

        The set counts one checkpoint late: by then all of it has come, in every sense that DTS may give to "synced".
        """
        try:
            synced = str(GtidSet.parse(gtid_set))
        except InvalidGtid:  # MariaDB's, say: its transactions are known by their places
            return
        before = self._position.synced_gtid_set
        if before:
            self._executed = ExecutedGtids(self._executed.snapshot().union(GtidSet.parse(before)))
        self._position = msgspec.structs.replace(self._position, synced_gtid_set=synced)


def _file_number(name: str) -> tuple[int, str]:
    """``mysql-bin.000009`` comes before ``mysql-bin.000010``, and before ``mysql-bin.1000000``."""
    _, _, number = name.rpartition(".")
    return (int(number), "") if number.isdigit() else (0, name)
