"""Debezium's envelope around a row, as bytes: the parts that repeat are made once.

A value is ``{"before":…,"after":…,"source":{…},"transaction":…,"op":…,"ts_ms":…,"ts_us":…,"ts_ns":…}``, in the order of
Debezium's fields (``golden/debezium-mysql``). The row images come encoded; the other members are joined around them.
"""

from typing import Final

import orjson

HEADWATER_VERSION: Final = "0.1.0"
"""``source.version`` of every event."""

BEFORE: Final = b'{"before":'
AFTER: Final = b',"after":'
AFTER_NULL: Final = b',"after":null'
BEFORE_NULL_AFTER: Final = b'{"before":null,"after":'


class MysqlSourceBlock:
    """The ``source`` block of one table's events: a template for each table, filled once for each rows event.

    ``connector`` names the road by which MySQL's changes come: ``mysql`` is the binlog."""

    __slots__ = ("_after_snapshot", "_before_times", "_table")

    def __init__(self, source: str, database: str, table: str | None, *, connector: str = "mysql") -> None:
        self._before_times = b'{"version":%b,"connector":%b,"name":%b,"ts_ms":' % (
            _text(HEADWATER_VERSION),
            _text(connector),
            _text(source),
        )
        self._after_snapshot = b',"db":%b,"sequence":' % _text(database)
        self._table = b',"table":%b,"server_id":' % (b"null" if table is None else _text(table))

    def head(
        self, *, time_us: int, snapshot: bytes, server_id: int, gtid: bytes, file: bytes, sequence: bytes = b"null"
    ) -> bytes:
        """Everything up to ``"pos":``; the result of ``source_place`` follows.

        ``snapshot``, ``gtid``, ``file`` and ``sequence`` (further members that order events) are JSON text, quotes included,
        or ``null``.
        """
        before, behind_ms, behind_sequence, between, behind_times = self.pieces(
            snapshot=snapshot, server_id=server_id, gtid=gtid, file=file
        )
        return b"%b%d%b%b%b%d%b%d000%b" % (
            before,
            time_us // 1000,
            behind_ms,
            sequence,
            behind_sequence,
            time_us,
            between,
            time_us,
            behind_times,
        )

    def pieces(self, *, snapshot: bytes, server_id: int, gtid: bytes, file: bytes) -> tuple[bytes, ...]:
        """The text before, between and after ``ts_ms``, ``sequence``, ``ts_us`` and ``ts_ns``: of rows events that differ
        in these and in their position alone."""
        return (
            self._before_times,
            b',"snapshot":%b%b' % (snapshot, self._after_snapshot),
            b',"ts_us":',
            b',"ts_ns":',
            b'%b%d,"gtid":%b,"file":%b,"pos":' % (self._table, server_id, gtid, file),
        )


class OracleSourceBlock:
    """The ``source`` block of one table's events from Oracle: members and their order are those of Debezium's connector.

    ``database`` is the pluggable database, or the database itself. SCNs are texts there, because they exceed 2**53."""

    __slots__ = ("_after_snapshot", "_before_times", "_names")

    def __init__(self, source: str, database: str, schema: str, table: str) -> None:
        self._before_times = b'{"version":%b,"connector":"oracle","name":%b,"ts_ms":' % (
            _text(HEADWATER_VERSION),
            _text(source),
        )
        self._after_snapshot = b',"db":%b,"sequence":null,"ts_us":' % _text(database)
        self._names = b',"schema":%b,"table":%b,"txId":' % (_text(schema), _text(table))

    def pieces(
        self,
        *,
        snapshot: bytes,
        transaction_id: str | None = None,
        commit_scn: int | None = None,
        user: str | None = None,
        commit_ts_ms: int | None = None,
        start_scn: int | None = None,
        start_ts_ms: int | None = None,
    ) -> tuple[bytes, ...]:
        """The texts before, between and after ``ts_ms``, ``ts_us``, ``ts_ns``, ``scn``, ``rs_id``, ``ssn``, ``redo_thread``,
        ``row_id`` and ``txSeq``, in which the changes of a transaction differ.

        ``snapshot`` is JSON text, quotes included. None is null.
        """
        return (
            self._before_times,
            b',"snapshot":%b%b' % (snapshot, self._after_snapshot),
            b',"ts_ns":',
            b'%b%b,"scn":' % (self._names, orjson.dumps(transaction_id)),
            b',"commit_scn":%b,"lcr_position":null,"rs_id":' % _scn(commit_scn),
            b',"ssn":',
            b',"redo_thread":',
            b',"user_name":%b,"redo_sql":null,"row_id":' % orjson.dumps(user),
            b',"commit_ts_ms":%b,"start_scn":%b,"start_ts_ms":%b,"txSeq":'
            % (orjson.dumps(commit_ts_ms), _scn(start_scn), orjson.dumps(start_ts_ms)),
            b"}",
        )

    def filled(self, *, snapshot: bytes, time_us: int, scn: int) -> bytes:
        """The whole block of rows that no transaction brought: of a snapshot, or of a change of the schema."""
        pieces = self.pieces(snapshot=snapshot)
        varying = (b"%d" % (time_us // 1000), b"%d" % time_us, b"%d000" % time_us, _scn(scn), *[b"null"] * 5)
        return b"".join(text for pair in zip(pieces, (*varying, b""), strict=True) for text in pair)


def _scn(scn: int | None) -> bytes:
    return b"null" if scn is None else b'"%d"' % scn


class VitessSourceBlock:
    """The ``source`` block of one table's events from one shard, without the members that ``removed`` names."""

    __slots__ = ("_open", "_template")

    def __init__(
        self, source: str, keyspace: str, table: str, shard: str, *, removed: frozenset[str] = frozenset()
    ) -> None:
        members = (
            ("version", _text(HEADWATER_VERSION)),
            ("connector", b'"vitess"'),
            ("name", _text(source)),
            ("ts_ms", None),
            ("snapshot", None),
            ("db", b'""'),
            ("sequence", b"null"),
            ("ts_us", None),
            ("ts_ns", None),
            ("keyspace", _text(keyspace)),
            ("table", _text(table)),
            ("shard", _text(shard)),
            ("vgtid", None),
        )
        kept = [(name, value) for name, value in members if f"source.{name}" not in removed]
        self._open = tuple(name for name, value in kept if value is None)
        self._template = b"{%b}" % b",".join(
            b'"%b":%b' % (name.encode(), b"%b" if value is None else value.replace(b"%", b"%%")) for name, value in kept
        )

    def filled(self, *, time_us: int, snapshot: bytes, vgtid: bytes) -> bytes:
        """The whole block; ``snapshot`` and ``vgtid`` are JSON text, quotes included."""
        values = {
            "ts_ms": b"%d" % (time_us // 1000),
            "snapshot": snapshot,
            "ts_us": b"%d" % time_us,
            "ts_ns": b"%d000" % time_us,
            "vgtid": vgtid,
        }
        return self._template % tuple([values[name] for name in self._open])


def source_place(position: int, row: int) -> bytes:
    """Where a row stands: the place of its rows event in the log's file, and the row's number within it."""
    return b'%d,"row":%d' % (position, row)


def source_tail(thread_id: int | None) -> bytes:
    """The end of a ``source`` block, after the row's number."""
    return b',"thread":%b,"query":null}' % (b"null" if thread_id is None else b"%d" % thread_id)


def event_tail(op: str, now_ns: int, *, removed: frozenset[str] = frozenset()) -> bytes:
    """The end of an event: its operation and when it was processed, without ``ts_us`` or ``ts_ns`` where removed."""
    times = (("ts_ms", now_ns // 1_000_000), ("ts_us", now_ns // 1_000), ("ts_ns", now_ns))
    members = (b',"%b":%d' % (name.encode(), time) for name, time in times if name not in removed)
    return b',"op":"%b"%b}' % (op.encode(), b"".join(members))


def json_text(text: str) -> bytes:
    """``text`` as a JSON string."""
    return orjson.dumps(text)


_text = json_text
