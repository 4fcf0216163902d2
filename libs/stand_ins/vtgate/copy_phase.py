"""A tablet's stream from its beginning: the copy of the tables, then the log. The work of vttablet's uvstreamer.

Vitess source ``vstreamer/copy.go`` and ``uvstreamer.go``. Tables are copied in alphabetical order, each in the order of its
key, out of read views that are a bounded number of rows long. Before each view's rows the log is followed up to the view's
position, with the changes of tables that are copied or being copied; those of tables still to come are left out, because
their rows will be read. So a row may come twice: changed in the log, then as it is in the view.

| sent | when |
|---|---|
| GTID, OTHER | the position asked for was "current" |
| BEGIN, FIELD, GTID | a table begins (GTID where the view is not where the stream stands) |
| ROW…, LASTPK, COMMIT | a packet of rows; from the table's second on with a BEGIN |
| BEGIN, LASTPK (completed), COMMIT | a table is done |
| COPY_COMPLETED | all are |
"""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pymysql

from libs.mysql.binlog_events import read_packed
from libs.mysql.gtid import GtidSet
from libs.mysql.identifiers import quote_identifier
from libs.source.mysql.client import Connection, query, select_raw
from libs.stand_ins.vtgate.fields import TableFields, table_fields, table_names
from libs.stand_ins.vtgate.log_stream import BEGIN, COMMIT, OTHER, LogStream, TabletOptions
from libs.stand_ins.vtgate.rules import TableRule, row_of, row_values, rule_of
from libs.stand_ins.vtgate.schemas import Schemas
from libs.stand_ins.vtgate.topology import Refused, Shard, Tablet, position_text
from libs.stand_ins.vtgate.vindex import keyspace_id
from protos.vitess.binlogdata_pb2 import (
    FieldEvent,
    Filter,
    LastPKEvent,
    RowChange,
    RowEvent,
    TableLastPK,
    VEvent,
    VEventType,
)
from protos.vitess.query_pb2 import Field, QueryResult, Row

_SELECT_TIMEOUT_S = 600.0
_DEADLOCK: Final = 1213


@dataclass(frozen=True, slots=True)
class TabletRequest:
    """vtgate's request to one tablet."""

    position: str
    """"current", empty, or a position."""
    table_p_ks: tuple[TableLastPK, ...]
    filter: Filter
    tables_to_copy: tuple[str, ...]
    """Empty: all."""
    with_heartbeat_table: bool


class TabletStream:
    """One tablet's events, from the requested place on; ``packets`` is run once."""

    def __init__(
        self,
        shard: Shard,
        tablet: Tablet,
        request: TabletRequest,
        *,
        vindex_columns: dict[str, str],
        options: TabletOptions,
        schemas: Schemas,
        stop: threading.Event,
    ) -> None:
        self._shard = shard
        self._tablet = tablet
        self._request = request
        self._vindex_columns = vindex_columns
        self._options = options
        self._schemas = schemas
        self._stop = stop
        self._position = GtidSet()
        self._uncopied: dict[str, Row | None] = {}
        """The tables still to be copied, or in the midst of it: and the key of the last row copied."""
        self._known: set[str] = set()
        """The tables of which the client gave a last key, if only an empty one."""

    def packets(self) -> Iterator[list[VEvent]]:
        """Events as the tablet sends them; without end. Raises Refused."""
        asked = self._request.position
        if asked == "current":
            self._position = _gtid_set(self._tablet.position())
            yield self._stamped([self._gtid(), VEvent(type=OTHER)])
        else:
            self._position = _gtid_set(asked)
        if not asked or self._request.table_p_ks:
            yield from self._copy()
            yield self._stamped([VEvent(type=VEventType.COPY_COMPLETED)])
        yield from self._follow(None)

    def _follow(self, until: GtidSet | None) -> Iterator[list[VEvent]]:
        log = LogStream(
            self._shard,
            self._tablet,
            self._position,
            self._request.filter,
            vindex_columns=self._vindex_columns,
            with_heartbeat_table=self._request.with_heartbeat_table,
            options=self._options,
            schemas=self._schemas,
            stop=self._stop,
        )
        for packet in log.packets(until):
            yield [event for event in packet if self._is_due(event)]
        self._position = log.position

    def _is_due(self, event: VEvent) -> bool:
        """No change of a table whose copy has not begun, and of which the client knows no last key: its rows will be read.

        One without a key counts (uvstreamer.go, shouldSendEventForTable); the copy begins again all the same (copy.go,
        getLastPKFromQR).
        """
        table = event.row_event.table_name or event.field_event.table_name
        return table not in self._uncopied or self._uncopied[table] is not None or table in self._known

    # --- the copy ----------------------------------------------------------------------------------------------------------

    def _copy(self) -> Iterator[list[VEvent]]:
        # A table that is not named in table_p_ks is copied from its beginning, also when it was done before (uvstreamer.go,
        # buildTablePlan): a client that goes on with a copy names the tables that are left, by tables_to_copy.
        last_keys = {last.table_name: last for last in self._request.table_p_ks}
        self._known = {name for name, last in last_keys.items() if last.HasField("lastpk")}
        for name in self._tables():
            last = last_keys.get(name)
            self._uncopied[name] = last.lastpk.rows[0] if last is not None and last.lastpk.rows else None
        for name in tuple(self._uncopied):
            yield from self._copy_table(name)
            del self._uncopied[name]

    def _tables(self) -> list[str]:
        connection = self._tablet.connect()
        try:
            names = table_names(connection, self._tablet.database)
        finally:
            connection.close()
        for rule in self._request.filter.rules:
            if not rule.match.startswith("/") and rule.match not in names:
                raise Refused("UNKNOWN", f"table {rule.match} is not present in the database")
        chosen = [name for name in names if rule_of(self._request.filter, name) is not None]
        if not self._request.tables_to_copy:
            return chosen
        return [name for name in chosen if name in self._request.tables_to_copy]

    def _copy_table(self, name: str) -> Iterator[list[VEvent]]:
        is_first = True
        while not self._stop.is_set():
            connection, seen = self._open_view(name)
            try:
                if self._position and not self._position.is_superset(seen):
                    yield from self._follow(seen)
                try:
                    copier = self._table_copy(connection, name)
                except pymysql.OperationalError as error:
                    if error.args[0] != _DEADLOCK:
                        raise
                    continue  # an ALTER takes the table from this view; vtgate begins again with another one
                if is_first:
                    opening = [VEvent(type=BEGIN), copier.field_event()]
                    if self._position != seen:
                        self._position = seen
                        opening.append(self._gtid())
                    yield self._stamped(opening)
                for rows in copier.packets(self._uncopied[name]):
                    self._uncopied[name] = copier.key_of(rows[-1])
                    closing = [
                        *([] if is_first else [VEvent(type=BEGIN)]),
                        *(copier.row_event(row) for row in rows),
                        self._last_pk(name, copier.key_fields, self._uncopied[name]),
                        VEvent(type=COMMIT),
                    ]
                    is_first = False
                    yield self._stamped(closing)
            finally:
                connection.close()
            if copier.has_reached_end:
                break
        done = self._last_pk(name, (), None)
        yield self._stamped([VEvent(type=BEGIN), done, VEvent(type=COMMIT)])

    def _table_copy(self, connection: Connection, name: str) -> "_TableCopy":
        """Raises Refused: the table is gone, or lacks a column that was asked for."""
        table = table_fields(connection, self._tablet.database, name)
        rule = rule_of(self._request.filter, name)
        if table is None or rule is None:
            raise Refused("UNKNOWN", f"table {name} was dropped while it was to be copied")
        vindex_column = self._vindex_columns.get(name, "id")
        return _TableCopy(
            connection, self._shard, name, table, rule, vindex_column=vindex_column, options=self._options
        )

    def _open_view(self, name: str) -> tuple[Connection, GtidSet]:
        """A read view and its position: the table is locked for the moment in which both are taken."""
        view, locker = self._tablet.connect(), self._tablet.connect()
        try:
            query(locker, f"LOCK TABLES {quote_identifier(name)} READ")
            query(view, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            query(view, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            executed = str(query(locker, "SELECT @@GLOBAL.gtid_executed")[0][0])
        except BaseException:
            view.close()
            raise
        finally:
            locker.close()
        return view, GtidSet.parse(executed.replace("\n", ""))

    # --- events ------------------------------------------------------------------------------------------------------------

    def _gtid(self) -> VEvent:
        return VEvent(type=VEventType.GTID, gtid=position_text(str(self._position)))

    def _last_pk(self, table: str, fields: Sequence[Field], key: Row | None) -> VEvent:
        last = TableLastPK(table_name=table)
        if key is not None:
            last.lastpk.CopyFrom(QueryResult(fields=fields, rows=[key]))
        return VEvent(type=VEventType.LASTPK, last_p_k_event=LastPKEvent(table_last_p_k=last, completed=key is None))

    def _stamped(self, found: list[VEvent]) -> list[VEvent]:
        """With shard and time of sending; the copy's events have no timestamp, because no statement wrote them."""
        now_ns = time.time_ns()
        for event in found:
            event.current_time = now_ns
            event.keyspace, event.shard = self._shard.keyspace, self._shard.name
        return found


class _TableCopy:
    """One table out of one read view."""

    def __init__(
        self,
        connection: Connection,
        shard: Shard,
        name: str,
        table: TableFields,
        rule: TableRule,
        *,
        vindex_column: str,
        options: TabletOptions,
    ) -> None:
        self._connection = connection
        self._shard = shard
        self._name = name
        self._table = table
        self._rule = rule
        self._options = options
        self.has_reached_end = False
        """The last row of the table has been read."""
        by_name = {field.name: field for field in table.fields}
        try:
            self._fields = [by_name[column] for column in rule.columns] if rule.columns else list(table.fields)
        except KeyError as error:
            raise Refused("INVALID_ARGUMENT", f"unknown column {error} in the filter of {name}") from error
        self.key_fields = [
            Field(name=field.name, type=field.type, charset=field.charset, flags=field.flags)
            for field in (by_name[column] for column in table.key)
        ]
        names = [field.name for field in table.fields]
        self._places = [names.index(field.name) for field in self._fields]
        self._key_places = [names.index(column) for column in table.key]
        self._vindex_place = names.index(vindex_column) if rule.key_range else 0

    def field_event(self) -> VEvent:
        """The columns asked for. ENUM and SET always come as text from a SELECT; a tablet whose log has numbers knows no
        flag to say so (Vitess before 22)."""
        return VEvent(
            type=VEventType.FIELD,
            field_event=FieldEvent(
                table_name=self._name,
                fields=self._fields,
                keyspace=self._shard.keyspace,
                shard=self._shard.name,
                enum_set_string_values=self._options.enum_as_text,
            ),
        )

    def row_event(self, row: Row) -> VEvent:
        """One event for each row, as Vitess's copy has it."""
        values = row_values(row)
        after = row if len(self._places) == len(values) else row_of([values[place] for place in self._places])
        return VEvent(
            type=VEventType.ROW,
            row_event=RowEvent(
                table_name=self._name,
                row_changes=[RowChange(after=after)],
                keyspace=self._shard.keyspace,
                shard=self._shard.name,
            ),
        )

    def key_of(self, row: Row) -> Row:
        """The values of the key's columns."""
        values = row_values(row)
        return row_of([values[place] for place in self._key_places])

    def packets(self, behind: Row | None) -> Iterator[list[Row]]:
        """Whole rows after the key ``behind``, a packet at a time; ``has_reached_end`` says whether there are more."""
        limit = self._options.copy_rows if self._table.has_key else None
        packet: list[Row] = []
        size = read = 0
        key_range = self._rule.key_range
        select = self._select(behind, limit)
        query(self._connection, "SET NAMES 'binary'")  # text comes in its column's character set, as from the log
        for raw in select_raw(self._connection, select, _SELECT_TIMEOUT_S):
            values = _text_row(raw)
            read += 1
            if key_range and not key_range.holds(keyspace_id(int(values[self._vindex_place] or 0))):
                continue
            packet.append(row_of(values))
            size += len(raw)
            if size >= self._options.packet_bytes:
                yield packet
                packet, size = [], 0
        if packet:
            yield packet
        self.has_reached_end = read != limit

    def _select(self, behind: Row | None, limit: int | None) -> str:
        key = [quote_identifier(column) for column in self._table.key]
        columns = ", ".join(quote_identifier(field.name) for field in self._table.fields)
        conditions = [f"({self._rule.condition})"] if self._rule.condition else []
        if behind is not None and self._table.has_key:
            literals = [
                self._literal(value, field) for value, field in zip(row_values(behind), self.key_fields, strict=True)
            ]
            conditions.append(_behind(key, literals))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        order = f" ORDER BY {', '.join(key)}" if self._table.has_key else ""
        bound = f" LIMIT {limit}" if limit is not None else ""
        return f"SELECT {columns} FROM {quote_identifier(self._name)}{where}{order}{bound}"

    def _literal(self, value: bytes | None, field: Field) -> str:
        """SQL for a key's value: text in the column's own character set, because the connection converts nothing."""
        if value is None:
            return "NULL"
        if field.flags & 32768:  # NUM_FLAG
            return value.decode()
        ((charset,),) = query(
            self._connection,
            "SELECT character_set_name FROM information_schema.collations WHERE id = %s",
            field.charset,
        )
        return f"_{charset} X'{value.hex()}'"


def _behind(key: Sequence[str], literals: Sequence[str]) -> str:
    """(a, b) > (x, y), column by column, so that MySQL goes along the index."""
    alternatives = []
    for place in range(len(key)):
        equal = [f"{column} = {literal}" for column, literal in zip(key[:place], literals[:place], strict=True)]
        alternatives.append(" AND ".join([*equal, f"{key[place]} > {literals[place]}"]))
    return "(" + " OR ".join(f"({alternative})" for alternative in alternatives) + ")"


def _text_row(raw: bytes) -> list[bytes | None]:
    """A row of MySQL's text protocol."""
    values: list[bytes | None] = []
    place = 0
    while place < len(raw):
        if raw[place] == 0xFB:
            values.append(None)
            place += 1
        else:
            length, place = read_packed(raw, place)
            values.append(raw[place : place + length])
            place += length
    return values


def _gtid_set(position: str) -> GtidSet:
    """Raises Refused: this is no position."""
    if not position:
        return GtidSet()
    flavour, slash, text = position.partition("/")
    if flavour != "MySQL56" or not slash:
        raise Refused("INVALID_ARGUMENT", f"could not decode position: {position}")
    try:
        return GtidSet.parse(text)
    except ValueError as error:
        raise Refused("INVALID_ARGUMENT", f"could not decode position: {position}: {error}") from error
