"""One shard's binlog as VStream events: the work of vttablet's vstreamer.

Vitess source ``go/vt/vttablet/tabletserver/vstreamer/vstreamer.go``. A transaction is BEGIN, the FIELD of each table
before its first row, its rows, GTID, COMMIT; a statement that is no transaction is GTID and DDL, or GTID and OTHER.
Events gather until a commit, or until a packet is full.
"""

import io
import itertools
import re
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import pymysql
import sqlglot
from google.protobuf import text_format
from sqlglot import exp

from libs.errors import PositionPurged, SourceUnavailable
from libs.mysql import binlog_events as events
from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.gtid import ExecutedGtids, GtidSet
from libs.mysql.packets import Packets
from libs.mysql.row_image import wire_columns
from libs.mysql.transaction_payload import inner_events
from libs.source.mysql.client import Connection, connect, raise_error_packet, start_dump
from libs.stand_ins.vtgate.fields import BINARY_COLLATION, TableFields, vitess_type
from libs.stand_ins.vtgate.row_values import RowReader
from libs.stand_ins.vtgate.rules import RowFilter, TableRule, rule_of
from libs.stand_ins.vtgate.schemas import Schemas
from libs.stand_ins.vtgate.topology import LOG_HEARTBEAT_S, SIDECAR, Refused, Shard, Tablet, position_text
from protos.vitess.binlogdata_pb2 import FieldEvent, Filter, Journal, RowChange, RowEvent, VEvent, VEventType
from protos.vitess.query_pb2 import Field, Type

JOURNAL_TABLE: Final = "resharding_journal"
HEARTBEAT_TABLE: Final = "heartbeat"
_NO_EVENT_OF_A_TRANSACTION: Final = re.compile(r"\s*(SAVEPOINT|ROLLBACK TO|RELEASE SAVEPOINT)\b", re.IGNORECASE)
_DDL: Final = re.compile(r"\s*(?:/\*.*?\*/\s*)*(CREATE|ALTER|DROP|RENAME|TRUNCATE)\b", re.IGNORECASE | re.DOTALL)
_CRC32: Final = 1
_replica_ids = itertools.count(900_000)  # MySQL ends the older of two dumps with the same one

BEGIN, COMMIT, DDL, OTHER = VEventType.BEGIN, VEventType.COMMIT, VEventType.DDL, VEventType.OTHER
_SENT_AT_ONCE: Final = frozenset((COMMIT, DDL, OTHER))


@dataclass(frozen=True, slots=True)
class TabletOptions:
    """Flags that an operator gives to vttablet."""

    packet_bytes: int = 250_000
    """Values of so many bytes fill a packet (--vstream_packet_size)."""
    copy_rows: int = 10_000
    """Rows copied from one read view; then the log is followed up to a newer one."""
    enum_as_text: bool = True
    """ENUM and SET come as text while streaming too (Vitess 22 and newer)."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the rows events of one table are read."""

    table: str
    reader: RowReader
    filter: RowFilter
    columns: int
    is_internal: bool = False
    is_journal: bool = False


class LogStream:
    """A tablet's log from a position on; ``packets`` is run once."""

    def __init__(
        self,
        shard: Shard,
        tablet: Tablet,
        position: GtidSet,
        filter_: Filter,
        *,
        vindex_columns: dict[str, str],
        with_heartbeat_table: bool,
        options: TabletOptions,
        schemas: Schemas,
        stop: threading.Event,
    ) -> None:
        self._shard = shard
        self._tablet = tablet
        self._executed = ExecutedGtids(position)
        self._filter = filter_
        self._vindex_columns = vindex_columns
        self._with_heartbeat_table = with_heartbeat_table
        self._options = options
        self._schemas = schemas
        self._stop = stop
        self._plans: dict[int, _Plan | None] = {}
        self._checksum_bytes = 0
        self._clock = (0, 0)
        self._connection: Connection | None = None

    @property
    def position(self) -> GtidSet:
        """The transactions whose COMMIT was handed out, or whose GTID was read."""
        return self._executed.snapshot()

    def packets(self, until: GtidSet | None = None) -> Iterator[list[VEvent]]:
        """Events as the tablet sends them; an empty packet now and then while nothing happens. Ends at ``until``, or when
        stopped.

        Raises Refused: the log cannot be read from the position, or an event cannot be understood.
        """
        if until is not None and self.position.is_superset(until):
            return
        buffered: list[VEvent] = []
        size = 0
        for kind, timestamp, body in self._log():
            for event in self._decoded(kind, timestamp, body):
                if event.type == VEventType.ROW:
                    row_bytes = sum(
                        len(change.before.values) + len(change.after.values) for change in event.row_event.row_changes
                    )
                    if size + row_bytes > self._options.packet_bytes and buffered:
                        yield buffered
                        buffered, size = [], 0
                    size += row_bytes
                buffered.append(event)
                if event.type in _SENT_AT_ONCE:
                    yield buffered
                    buffered, size = [], 0
                    if until is not None and self.position.is_superset(until):
                        return
            if kind in (events.HEARTBEAT, events.HEARTBEAT_V2):
                yield []

    # --- the log -----------------------------------------------------------------------------------------------------------

    def _log(self) -> Iterator[tuple[int, int, bytes]]:
        """Kind, time and body of each event."""
        dump = connect(self._tablet.settings)
        self._connection = self._tablet.connect()
        try:
            reader = start_dump(
                dump,
                BinlogPosition(gtid_set=str(self.position), file="", pos=0),
                also_done=GtidSet(),
                replica_server_id=next(_replica_ids),
                heartbeat_s=LOG_HEARTBEAT_S,
                spill_dir=Path(tempfile.gettempdir()),
            )
            while not self._stop.is_set():
                received, _ = reader.receive()
                if not isinstance(received, Packets):
                    received.read(events.HEADER_BYTES)
                    yield from self._compressed(received)
                    continue
                data, log = received.data, received.behind_ok()
                for place, end in log:
                    if data[place + events.KIND_OFFSET] == events.TRANSACTION_PAYLOAD:
                        yield from self._compressed(io.BytesIO(data[place + events.HEADER_BYTES : end]))
                    else:
                        yield self._event(data, place, end)
                if len(log) < len(received):
                    raise_error_packet(data, *received[len(log)])
                    raise SourceUnavailable("the server ended its log")
        except PositionPurged as error:
            raise Refused(
                "UNKNOWN",
                f"stream (at source tablet) error @ {position_text(self._executed.text())}: Cannot replicate because the "
                f"source purged required binary logs (errno 1236) (sqlstate HY000): {error}",
            ) from error
        finally:
            dump.close()
            self._connection.close()

    def _compressed(self, body: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
        """The events inside a compressed transaction; they have no checksum."""
        for inner in inner_events(body, 0):
            for place, end in inner:
                timestamp, kind, *_ = events.read_header(inner.data, place)
                yield kind, timestamp, inner.data[place + events.HEADER_BYTES : end]

    def _event(self, data: bytes, place: int, end: int) -> tuple[int, int, bytes]:
        timestamp, kind, _, size, _, _ = events.read_header(data, place)
        if kind == events.FORMAT_DESCRIPTION:
            self._checksum_bytes = events.CHECKSUM_BYTES if data[place + size - 5] == _CRC32 else 0
        return kind, timestamp, data[place + events.HEADER_BYTES : end - self._checksum_bytes]

    def _decoded(self, kind: int, timestamp: int, body: bytes) -> list[VEvent]:
        found: list[VEvent] = []
        if kind in (events.GTID, events.GTID_TAGGED):
            gtid = (events.parse_gtid if kind == events.GTID else events.parse_gtid_tagged)(body)
            self._executed.add(gtid.uuid, gtid.tag, gtid.number)
            has_clock = kind == events.GTID and body[25:26] == b"\x02"
            self._clock = struct.unpack_from("<qq", body, 26) if has_clock else (0, 0)
        elif kind == events.XID:
            found = [self._gtid(), VEvent(type=COMMIT)]
        elif kind == events.QUERY:
            found = self._statement(events.parse_query(body))
        elif kind == events.TABLE_MAP:
            found = self._map_table(int.from_bytes(body[:6], "little"), events.parse_table_map(body[6:]))
        elif kind in (events.WRITE_ROWS, events.UPDATE_ROWS, events.DELETE_ROWS):
            found = self._rows(kind, body)
        elif kind in _UNSUPPORTED:
            raise Refused("UNIMPLEMENTED", f"the stand-in does not read {_UNSUPPORTED[kind]}")
        now_ns = time.time_ns()
        for event in found:
            event.timestamp = timestamp
            event.current_time = now_ns
            event.keyspace, event.shard = self._shard.keyspace, self._shard.name
        return found

    def _gtid(self) -> VEvent:
        commit_parent, sequence_number = self._clock
        return VEvent(
            type=VEventType.GTID,
            gtid=position_text(self._executed.text()),
            commit_parent=commit_parent,
            sequence_number=sequence_number,
        )

    # --- statements --------------------------------------------------------------------------------------------------------

    def _statement(self, statement: events.QueryEvent) -> list[VEvent]:
        if statement.statement == "BEGIN":
            return [VEvent(type=BEGIN)]
        if statement.statement == "COMMIT":
            return [self._gtid(), VEvent(type=COMMIT)]
        if _NO_EVENT_OF_A_TRANSACTION.match(statement.statement):
            return []
        if _DDL.match(statement.statement) and self._must_send(statement):
            return [self._gtid(), VEvent(type=DDL, statement=statement.statement)]
        return [self._gtid(), VEvent(type=OTHER)]

    def _must_send(self, statement: events.QueryEvent) -> bool:
        """A DDL statement of a table that is streamed; one that cannot be parsed is sent, as Vitess does."""
        if statement.database not in ("", self._tablet.database):
            return False
        try:
            parsed = sqlglot.parse_one(statement.statement, read="mysql")
        except sqlglot.ParseError:
            return True
        if isinstance(parsed, exp.Create | exp.Drop) and parsed.args.get("kind") in ("DATABASE", "SCHEMA"):
            return False
        tables = [
            table for table in parsed.find_all(exp.Table) if table.db in ("", self._tablet.database) and table.name
        ]
        return not tables or any(rule_of(self._filter, table.name) is not None for table in tables)

    # --- rows --------------------------------------------------------------------------------------------------------------

    def _map_table(self, number: int, mapped: events.TableMapEvent) -> list[VEvent]:
        plan = self._plans.get(number)
        if number in self._plans and (plan is None or plan.table == mapped.table):
            return []
        plan = self._plans[number] = self._plan(mapped)
        if plan is None or plan.is_journal:
            return []
        fields = plan.filter.fields
        return [
            VEvent(
                type=VEventType.FIELD,
                field_event=FieldEvent(
                    table_name=plan.table,
                    fields=fields,
                    keyspace=self._shard.keyspace,
                    shard=self._shard.name,
                    enum_set_string_values=self._options.enum_as_text
                    and any(field.type in (Type.ENUM, Type.SET) for field in fields),
                    is_internal_table=plan.is_internal,
                ),
            )
        ]

    def _plan(self, mapped: events.TableMapEvent) -> _Plan | None:
        is_journal = (mapped.database, mapped.table) == (SIDECAR, JOURNAL_TABLE)
        is_heartbeat = (mapped.database, mapped.table) == (SIDECAR, HEARTBEAT_TABLE)
        rule: TableRule | None
        if is_journal or (is_heartbeat and self._with_heartbeat_table):
            rule = TableRule()
        elif mapped.database != self._tablet.database:
            return None
        else:
            rule = rule_of(self._filter, mapped.table)
        if rule is None:
            return None
        columns = wire_columns(mapped.column_types, mapped.metadata)
        fields = self._columns(mapped)
        return _Plan(
            table=mapped.table,
            reader=RowReader(columns, fields, enum_as_text=self._options.enum_as_text),
            filter=RowFilter(rule, mapped.table, fields, self._vindex_columns.get(mapped.table, "id")),
            columns=len(columns),
            is_internal=is_heartbeat,
            is_journal=is_journal,
        )

    def _columns(self, mapped: events.TableMapEvent) -> list[Field]:
        """The table's columns as it is now, where they fit the log's; else made-up ones, or an error, as the filter says."""
        anonymous = [
            Field(name=f"@{number}", type=vitess_type(code, 0), charset=BINARY_COLLATION)
            for number, code in enumerate(mapped.column_types, start=1)
        ]
        known: TableFields | None = self._schemas.at(
            self._tablet, mapped.database, mapped.table, self._executed.snapshot()
        )
        if known is None or len(known.fields) < len(anonymous):
            if self._filter.field_event_mode == Filter.ERR_ON_MISMATCH:
                raise Refused(
                    "UNKNOWN",
                    f"stream (at source tablet) error @ {position_text(self._executed.text())}: cannot determine table "
                    f"columns for {mapped.table}: event has {[field.type for field in anonymous]}, schema has "
                    f"{[field.name for field in known.fields] if known else 'no such table'}",
                )
            return anonymous
        fields = list(known.fields[: len(anonymous)])
        if all(
            _logged_type(field.type) == _logged_type(logged.type)
            for field, logged in zip(fields, anonymous, strict=True)
        ):
            return fields
        return anonymous

    def _rows(self, kind: int, body: bytes) -> list[VEvent]:
        plan = self._plans.get(int.from_bytes(body[:6], "little"))
        if plan is None:
            return []
        flags = int.from_bytes(body[6:8], "little")
        place = 8 + int.from_bytes(body[8:10], "little")
        count, place = events.read_packed(body, place)
        width = (count + 7) // 8
        first_present = int.from_bytes(body[place : place + width], "little")
        place += width
        second_bitmap = body[place : place + width]
        if kind == events.UPDATE_ROWS:
            place += width
        changes: list[RowChange] = []
        while place < len(body):
            row, place = plan.reader.read(body, place, first_present)
            change = RowChange(after=row) if kind == events.WRITE_ROWS else RowChange(before=row)
            if kind == events.UPDATE_ROWS:
                present = int.from_bytes(second_bitmap, "little")
                after, place = plan.reader.read(body, place, present)
                change.after.CopyFrom(after)
                if present != (1 << count) - 1:
                    change.data_columns.CopyFrom(RowChange.Bitmap(count=count, cols=second_bitmap))
            changes.append(change)
        if plan.is_journal:
            return [event for change in changes for event in self._journal(change)]
        passed = [filtered for change in changes if (filtered := self._filtered(plan, change)) is not None]
        if not passed:
            return []
        return [
            VEvent(
                type=VEventType.ROW,
                row_event=RowEvent(
                    table_name=plan.table,
                    row_changes=passed,
                    keyspace=self._shard.keyspace,
                    shard=self._shard.name,
                    flags=flags,
                    is_internal_table=plan.is_internal,
                ),
            )
        ]

    def _filtered(self, plan: _Plan, change: RowChange) -> RowChange | None:
        """An update that moves a row into the filter's rows is an insert, one that moves it out a delete."""
        assert self._connection is not None
        passed = RowChange()
        for side in ("before", "after"):
            if change.HasField(side):
                try:
                    row = plan.filter.passed(getattr(change, side), self._connection)
                except pymysql.Error as error:
                    raise Refused("UNKNOWN", f"the filter of {plan.table} fails: {error}") from error
                if row is not None:
                    getattr(passed, side).CopyFrom(row)
        if not passed.HasField("before") and not passed.HasField("after"):
            return None
        if change.HasField("data_columns"):
            passed.data_columns.CopyFrom(change.data_columns)
        return passed

    def _journal(self, change: RowChange) -> Iterator[VEvent]:
        """Columns of the journal's table: id, database, the journal as text."""
        if not change.HasField("after"):
            return
        number, database, _ = change.after.lengths
        values = change.after.values
        if values[number : number + database].decode() == self._tablet.database:
            journal = text_format.Parse(values[number + database :].decode(), Journal())
            yield VEvent(type=VEventType.JOURNAL, journal=journal)


_UNSUPPORTED: Final = {
    events.PARTIAL_UPDATE_ROWS: "partial JSON updates (binlog_row_value_options)",
    events.ANONYMOUS_GTID: "transactions without GTID",
}

_SAME_IN_THE_LOG: Final = {
    Type.UINT8: Type.INT8,
    Type.UINT16: Type.INT16,
    Type.UINT24: Type.INT24,
    Type.UINT32: Type.INT32,
    Type.UINT64: Type.INT64,
    Type.BLOB: Type.TEXT,
    Type.VARBINARY: Type.VARCHAR,
    Type.BINARY: Type.CHAR,
    Type.ENUM: Type.CHAR,
    Type.SET: Type.CHAR,
}


def _logged_type(found: "Type") -> "Type":
    """The log does not distinguish signed from unsigned, nor text from bytes."""
    return _SAME_IN_THE_LOG.get(found, found)
