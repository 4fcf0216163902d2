"""The initial copy: every row of the captured tables as of one position of the log.

**Consistency.** All rows are read in REPEATABLE READ transactions that were opened together, so they are those of one moment.
Their position is taken at that moment: ``FLUSH TABLES WITH READ LOCK`` holds commits back while they open and
``gtid_executed`` is read, a few milliseconds, and is released before the first row is read. Where the user may not lock, the
position is read before they open: MySQL adds a GTID to ``gtid_executed`` after the engine's commit, so each of them holds at
least everything up to that position; its later rows come again from the log, where they change nothing.

**Resuming.** A table is read in chunks along its key, and each chunk is published with the place it ends at. After a crash a
new read view is opened at a later position; the log is followed up to there first, with every change delivered, and then
the copy goes on after the last chunk. Rows of finished chunks are right because the log was followed for them; rows still
to come are read as of the new view, and their order (after the new position's) is above every change delivered before. A table
without a key is read whole, in one Kafka transaction, and again from its beginning after a crash.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import structlog

from libs.errors import AccessDenied, PipelineHalted, SourceUnavailable
from libs.events.batch import MAX_BATCH_ROWS, OP_READ, BatchBuilder, RowRun
from libs.events.envelope import BEFORE_NULL_AFTER, MysqlSourceBlock, event_tail, json_text, source_place, source_tail
from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.chunk_query import (
    KeyPlace,
    can_order_by,
    chunk_list,
    chunk_statement,
    count_statement,
    place_of,
    places_changed,
)
from libs.mysql.column_type import UnknownColumnType, parse_column_type
from libs.mysql.ddl import show_create_to_schema
from libs.mysql.ddl_syntax import DdlNotUnderstood, StatementContext
from libs.mysql.gtid import GtidSet
from libs.mysql.identifiers import quote_table
from libs.mysql.preflight import seeing_grant
from libs.mysql.reached_names import Definition
from libs.mysql.row_key import row_key
from libs.mysql.shown_definition import doubtful_members, members_query, with_members, with_readable_literals
from libs.mysql.text_row import select_list, text_rows_decoder, undecodable_text
from libs.mysql.text_rows import TextRowsDecoder
from libs.source.mysql.client import Connection, connect, mysql_error_code, query, select_raw
from libs.source.mysql.settings import DatabaseSettings
from libs.types.checkpoint import SnapshotProgress
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema

log = structlog.get_logger()

_LOCK_WAIT_S: Final = 2
_COUNT_LIMIT_MS: Final = 540_000  # below the connection's read_timeout of 600 s
_TIME_LIMIT: Final = 3024
_SELECT_TIMEOUT_S: Final = 600.0
"""How long MySQL may take for the first row of a chunk."""


@dataclass(frozen=True, slots=True)
class ReadView:
    """An open REPEATABLE READ transaction and the position that its rows are of."""

    connection: Connection
    position: BinlogPosition
    order: EventOrder
    """Of the last transaction that the rows hold; theirs is the one ``after`` it."""
    taken_at_us: int


@dataclass(frozen=True, slots=True)
class CopiedAt:
    """As of which place of the log some rows are, without a read view of their own."""

    position: BinlogPosition
    order: EventOrder
    """As of ``ReadView``."""
    taken_at_us: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one table, in key order."""

    rows: Sequence[tuple[bytes, bytes]]
    """(row as JSON, key as JSON)."""
    last_key: bytes
    """Where the next chunk begins, after this one."""
    has_more: bool


def begin_view(connection: Connection) -> None:
    """Begin the transaction that rows are read in: it shows the rows committed now, without later ones. Blocks."""
    query(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")


def open_read_view(
    settings: DatabaseSettings,
    *,
    epoch: int,
    lock_wait_s: int = _LOCK_WAIT_S,
    beside: Callable[[], None] | None = None,
    waits_for_xa: bool = False,
) -> ReadView:
    """Open the transaction that all rows are read in. Blocks; holds no lock when it returns.

    ``lock_wait_s``: how long the lock may be waited for; 0: it is not asked for.
    ``beside`` is called in the same moment: it opens further views, of the same position. Where the user may not lock, each
    shows at least everything up to it; later rows come from the log too, with a greater order. It must not wait
    for long: writers do meanwhile.
    ``waits_for_xa``: there is no such moment while an XA transaction is prepared.

    Raises SourceUnavailable, AccessDenied; of a server without GTIDs also where there is no lock to be had.
    """
    view, locker = connect(settings), connect(settings)
    try:
        has_gtids = query(view, "SELECT @@GLOBAL.gtid_mode")[0][0] == "ON"
        is_locked = lock_wait_s > 0 and _try_lock(locker, lock_wait_s, must_lock=not has_gtids)
        if not (has_gtids or is_locked):
            # The log's end is ahead of the engine's commits: only a lock makes the two one moment.
            raise AccessDenied(
                "the snapshot of a server without GTIDs needs a lock for a moment: GRANT RELOAD ON *.* to the user and let "
                "snapshot.lock be minimal, or set gtid_mode=ON"
            )
        if waits_for_xa:
            _require_no_prepared_xa(locker)
        executed = executed_gtids(locker)
        begin_view(view)
        if beside is not None:
            beside()
        if waits_for_xa and not is_locked:
            _require_no_prepared_xa(locker)
        file, pos = log_end(locker)
        if is_locked:
            query(locker, "UNLOCK TABLES")
    except BaseException:
        view.close()
        raise
    finally:
        locker.close()
    gtid_set = str(executed) if has_gtids else ""
    position = BinlogPosition(gtid_set=gtid_set, file=file, pos=pos, epoch=epoch, by_file=not has_gtids)
    log.info("read_view_opened", gtid_set=gtid_set, file=file, pos=pos, with_lock=is_locked)
    return ReadView(
        connection=view,
        position=position,
        order=EventOrder(epoch=epoch, rank=position.rank, tx_ordinal=0),
        taken_at_us=time.time_ns() // 1_000,
    )


def _try_lock(connection: Connection, wait_s: int, *, must_lock: bool) -> bool:
    """Whether commits are held back now. Raises SourceUnavailable: it ``must_lock``, and a statement is in the way."""
    query(connection, f"SET SESSION lock_wait_timeout = {wait_s}")
    try:
        _require_no_long_statement(connection, wait_s)
        query(connection, "FLUSH TABLES WITH READ LOCK")
    except (AccessDenied, SourceUnavailable, PipelineHalted) as error:
        if must_lock and isinstance(error, SourceUnavailable):
            raise SourceUnavailable(
                "the snapshot of a server without GTIDs needs a lock for a moment, which is not to be had within "
                f"snapshot.lock_wait_s: {error}"
            ) from error
        log.info("snapshot_lock_skipped", reason=str(error))
        return False
    return True


def _require_no_long_statement(connection: Connection, wait_s: int) -> None:
    """A flush that has waited in vain leaves each table that a statement has open closed to everybody else until that one ends.

    Sees other users' statements with the right PROCESS alone. Raises SourceUnavailable.
    """
    running = query(
        connection,
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND IN ('Query', 'Execute') AND INFO IS NOT NULL "
        "AND USER NOT IN ('system user', 'event_scheduler') AND ID <> CONNECTION_ID() AND TIME >= %s",
        wait_s,
    )
    if running[0][0]:
        raise SourceUnavailable(f"{running[0][0]} statement(s) have been running for {wait_s} s and more")


def _require_no_prepared_xa(connection: Connection) -> None:
    """A view shows nothing of an XA transaction that is prepared, and the log after its position does not have the rows.

    Raises SourceUnavailable while there is one. Without the right to ask (XA_RECOVER_ADMIN) its XA COMMIT will halt the reader.
    """
    try:
        prepared = query(connection, "XA RECOVER")
    except (AccessDenied, SourceUnavailable, PipelineHalted):  # error 1401 for lack of the right
        return
    if prepared:
        raise SourceUnavailable(
            f"{len(prepared)} XA transaction(s) are prepared at the source (XA RECOVER lists them): the snapshot waits until "
            "they are committed or rolled back"
        )


def executed_gtids(connection: Connection) -> GtidSet:
    """Every transaction that the server has committed and shows to a reader now. Blocks."""
    return GtidSet.parse(str(query(connection, "SELECT @@GLOBAL.gtid_executed")[0][0]))


def log_end(connection: Connection) -> tuple[str, int]:
    """File and place where the log ends. MySQL 8.4 renamed the statement."""
    try:
        rows = query(connection, "SHOW BINARY LOG STATUS")
    except PipelineHalted:
        rows = query(connection, "SHOW MASTER STATUS")
    return (str(rows[0][0]), int(rows[0][1])) if rows else ("", 0)


def oldest_position(settings: DatabaseSettings, *, epoch: int) -> BinlogPosition:
    """Where the log that the server still holds begins. Blocks. Raises SourceUnavailable, AccessDenied."""
    connection = connect(settings)
    try:
        [(purged, mode)] = query(connection, "SELECT @@GLOBAL.gtid_purged, @@GLOBAL.gtid_mode")
        logs = query(connection, "SHOW BINARY LOGS")
        has_gtids = mode == "ON"
        return BinlogPosition(
            gtid_set=str(GtidSet.parse(str(purged))) if has_gtids else "",
            file=str(logs[0][0]) if logs else "",
            pos=4,
            epoch=epoch,
            by_file=not has_gtids,
        )
    finally:
        connection.close()


def captured_tables(connection: Connection) -> list[TableId]:
    """Every base table of the server outside its own schemas, by name."""
    rows = query(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' "
        "AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY 1, 2",
    )
    return [TableId(database=str(database), table=str(table)) for database, table in rows]


def source_tables(settings: DatabaseSettings) -> list[TableId]:
    """``captured_tables``, by a connection of its own. Blocks. Raises SourceUnavailable, AccessDenied."""
    connection = connect(settings)
    try:
        return captured_tables(connection)
    finally:
        connection.close()


def estimated_rows(connection: Connection, tables: Sequence[TableId]) -> int:
    """Rows of ``tables`` by the server's statistics of now: an estimate."""
    if not tables:
        return 0
    query(connection, "SET SESSION information_schema_stats_expiry = 0")  # else they may be a day old, or none
    placeholders = ", ".join(["(%s, %s)"] * len(tables))
    names = [name for table in tables for name in (table.database, table.table)]
    rows = query(
        connection,
        "SELECT COALESCE(SUM(TABLE_ROWS), 0) FROM information_schema.TABLES "
        f"WHERE (TABLE_SCHEMA, TABLE_NAME) IN ({placeholders})",
        *names,
    )
    return int(rows[0][0])


def create_statement(connection: Connection, table_id: TableId) -> tuple[str, str]:
    """``SHOW CREATE TABLE`` with what that text lacks (``libs.mysql.shown_definition``), and the default character set of the
    table's database."""
    [(_, statement)] = query(connection, f"SHOW CREATE TABLE {quote_table(table_id)}")
    charsets = query(
        connection,
        "SELECT DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s",
        table_id.database,
    )
    charset = str(charsets[0][0]) if charsets else "utf8mb4"
    if "?" in statement:
        statement = _made_whole(connection, table_id, charset)
    return str(statement), charset


def _made_whole(connection: Connection, table_id: TableId, database_charset: str) -> str:
    """``SHOW CREATE TABLE`` of a table whose definition has question marks that may be other characters."""
    query(connection, "SET character_set_results = binary")
    try:
        [(_, shown)] = query(connection, f"SHOW CREATE TABLE {quote_table(table_id)}")
    finally:
        query(connection, "SET character_set_results = utf8mb4")
    statement = with_readable_literals(shown)
    try:
        schema = show_create_to_schema(table_id, statement, database_charset)
    except (DdlNotUnderstood, UnknownColumnType):
        return statement  # the caller says so
    members: dict[str, dict[int, str]] = {}
    for column in schema.columns:
        mysql_type = parse_column_type(column.source_type)
        if numbers := doubtful_members(mysql_type.members, column.charset):
            rows = query(connection, members_query(table_id, column.name, mysql_type.name, numbers))
            members[column.name] = {int(number): str(member) for number, member in rows}
    return with_members(statement, members) if members else statement


def table_definitions(settings: DatabaseSettings, tables: Sequence[TableId]) -> dict[TableId, tuple[str, str]]:
    """``create_statement`` of those of ``tables`` that exist now. Blocks. Raises SourceUnavailable, AccessDenied."""
    connection = connect(settings)
    try:
        existing = set(captured_tables(connection))
        return {table_id: create_statement(connection, table_id) for table_id in tables if table_id in existing}
    finally:
        connection.close()


_REACHING: Final = """
SELECT TABLE_NAME, TABLE_SCHEMA, VIEW_DEFINITION FROM information_schema.VIEWS WHERE TABLE_SCHEMA <> 'sys'
UNION ALL SELECT EVENT_OBJECT_TABLE, TRIGGER_SCHEMA, ACTION_STATEMENT FROM information_schema.TRIGGERS
WHERE TRIGGER_SCHEMA <> 'sys'
UNION ALL SELECT ROUTINE_NAME, ROUTINE_SCHEMA, ROUTINE_DEFINITION FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA <> 'sys'
UNION ALL SELECT REFERENCED_TABLE_NAME, CONSTRAINT_SCHEMA, TABLE_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS
"""


def reaching_definitions(settings: DatabaseSettings) -> tuple[list[Definition], str]:
    """Views, triggers, routines and foreign keys that the server has now, as far as the user may see them; and the statement
    that lets it see all of them, empty where it does. Blocks. Raises SourceUnavailable, AccessDenied."""
    connection = connect(settings)
    try:
        definitions = [
            Definition(str(name), str(database), str(text or ""))
            for name, database, text in query(connection, _REACHING)
        ]
        return definitions, seeing_grant([str(row[0]) for row in query(connection, "SHOW GRANTS")])
    finally:
        connection.close()


def database_charsets(connection: Connection) -> dict[str, str]:
    """The character set that tables of each database get when they name none."""
    rows = query(connection, "SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA")
    return {str(database): str(charset) for database, charset in rows}


def database_collations(connection: Connection) -> dict[str, tuple[str, str]]:
    """Default character set and collation of each database; of the server itself under the name ``""``."""
    rows = query(
        connection,
        "SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA "
        "UNION ALL SELECT '', @@GLOBAL.character_set_server, @@GLOBAL.collation_server",
    )
    return {str(database): (str(charset), str(collation)) for database, charset, collation in rows}


_NAMES_OF_UTC: Final = ("UTC", "GMT", "UCT", "Universal", "Zulu", "Coordinated Universal Time")


def statement_context(connection: Connection) -> StatementContext:
    """The server's settings that change what a DDL statement means."""
    names = ("character_set_server", "explicit_defaults_for_timestamp", "lower_case_table_names", "system_time_zone")
    [(charset, explicit, lower_case, zone)] = query(
        connection, "SELECT " + ", ".join(f"@@GLOBAL.{name}" for name in names)
    )
    return StatementContext(
        server_charset=str(charset),
        explicit_defaults_for_timestamp=bool(explicit),
        is_server_in_utc=str(zone) in _NAMES_OF_UTC,
        lower_case_table_names=int(lower_case),
    )


# --- chunks --------------------------------------------------------------------------------------------------------------


def is_chunked(schema: TableSchema) -> bool:
    """The table can be read along its key, chunk by chunk; else it is read whole."""
    return can_order_by(schema, row_key(schema))


def without_places(
    progress: SnapshotProgress | None,
    before: Mapping[TableId, TableSchema],
    applied: Mapping[TableId, TableSchema | None],
) -> SnapshotProgress | None:
    """``progress`` once a DDL has made ``applied`` of the tables: one whose places mean something else begins again."""
    for table_id, after in applied.items():
        was, name = before.get(table_id), str(table_id)
        if progress is None or was is None or after is None or not places_changed(was, after):
            continue
        is_current = progress.current_table == name
        progress = msgspec.structs.replace(
            progress,
            ranges=tuple(each for each in progress.ranges if each.table != name),
            current_table="" if is_current else progress.current_table,
            last_key=b"" if is_current else progress.last_key,
        )
    return progress


def _statement(schema: TableSchema, last_key: KeyPlace, chunk_rows: int) -> str:
    """The SELECT for the rows after ``last_key``; one more row than a chunk means that there are more."""
    if not is_chunked(schema):
        return f"SELECT {select_list(schema)} FROM {quote_table(schema.table_id)}"
    key = row_key(schema)
    return chunk_statement(schema, chunk_list(schema, key), key, behind=last_key, limit=chunk_rows + 1)


def read_chunk(view: ReadView, schema: TableSchema, last_key: bytes, chunk_rows: int) -> Chunk:
    """The next rows of a table after ``last_key``. Blocks.

    Raises:
        SourceUnavailable: connection lost, or the table changed since the view was opened; resume with a new view.
        UndecodableValue: a value does not fit its column; the message names it.
    """
    decoder = text_rows_decoder(schema)
    limit = chunk_rows if is_chunked(schema) else None
    rows: list[tuple[bytes, bytes]] = []
    last_packet = b""
    has_more = False
    for packet in select_raw(view.connection, _statement(schema, last_key, chunk_rows), _SELECT_TIMEOUT_S):
        if len(rows) == limit:
            has_more = True
            continue
        rows.append(_decoded(schema, decoder, packet))
        last_packet = packet
    return Chunk(
        rows=rows, last_key=place_of(schema, row_key(schema), last_packet) if has_more else b"", has_more=has_more
    )


def _decoded(schema: TableSchema, decoder: TextRowsDecoder, packet: bytes) -> tuple[bytes, bytes]:
    try:
        return decoder.row(packet)
    except Exception as error:
        raise undecodable_text(schema, decoder, error) from error


def rows_in_view(
    connection: Connection,
    schema: TableSchema,
    *,
    behind: KeyPlace = b"",
    until: KeyPlace = b"",
    condition: str = "",
    table: str = "",
) -> int | None:
    """How many rows of a table with a key the view of ``connection`` has after one place, and up to another. Blocks.

    None: counting took too long.

    Raises as ``read_chunk``.
    """
    statement = count_statement(
        schema,
        row_key(schema),
        behind=behind,
        until=until,
        condition=condition,
        table=table,
        limit_ms=_COUNT_LIMIT_MS,
    )
    try:
        [(rows,)] = query(connection, statement)
    except AccessDenied:
        raise
    except PipelineHalted as error:
        if mysql_error_code(error) == _TIME_LIMIT:
            log.warning("copy_not_counted", table=str(schema.table_id))
            return None
        raise SourceUnavailable(
            f"{schema.table_id} was changed since the snapshot's view was opened: {error}"
        ) from error
    return int(rows)


def read_whole(view: ReadView, schema: TableSchema) -> Iterator[list[tuple[bytes, bytes]]]:
    """All rows of a table that cannot be chunked, some at a time. Blocks. Raises as ``read_chunk``."""
    decoder = text_rows_decoder(schema)
    rows: list[tuple[bytes, bytes]] = []
    for packet in select_raw(view.connection, _statement(schema, b"", 0), _SELECT_TIMEOUT_S):
        rows.append(_decoded(schema, decoder, packet))
        if len(rows) > MAX_BATCH_ROWS:
            yield rows[:-1]  # the last row is kept back: it may be the table's last, which is marked
            rows = rows[-1:]
    yield rows


# --- events --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where some rows stand within the whole snapshot: Debezium marks the first and last ones."""

    is_first_table: bool
    is_last_table: bool
    begins_table: bool
    ends_table: bool

    def of_part(self, *, is_first: bool, is_last: bool) -> "Place":
        """The place of one part of these rows."""
        return replace(self, begins_table=self.begins_table and is_first, ends_table=self.ends_table and is_last)

    def marker(self, row: int, rows: int) -> bytes:
        """``source.snapshot`` of a row, as JSON text."""
        if row == 0 and self.begins_table and self.is_first_table:
            return b'"first"'
        if row == rows - 1 and self.ends_table:
            return b'"last"' if self.is_last_table else b'"last_in_data_collection"'
        return b'"first_in_data_collection"' if row == 0 and self.begins_table else b'"true"'


def append_rows(
    batch: BatchBuilder,
    rows: Sequence[tuple[bytes, bytes]],
    *,
    source: str,
    schema: TableSchema,
    view: "ReadView | CopiedAt",
    marker: Callable[[int, int], bytes],
    connector: str = "mysql",
    for_tenants: tuple[str, ...] = (),
) -> None:
    """Rows of a copy as ``r`` events, with the order after their view: above all that they hold, below any later change.

    ``marker`` gives ``source.snapshot``, as JSON text, of the row of that number among so many.
    ``for_tenants``: only they get the rows; empty: all tenants that see the table.
    """
    run = batch.open_run(
        RowRun(
            table_id=schema.table_id,
            schema_version=schema.version,
            transaction_id="",
            first_order=view.order.after(),
            committed_at_us=view.taken_at_us,
            is_snapshot=True,
            for_tenants=for_tenants,
        )
    )
    tails = {
        text: copied_tail(view, schema.table_id, source, text, time.time_ns(), connector=connector)
        for text in {marker(row, len(rows)) for row in (0, 1, len(rows) - 2, len(rows) - 1)}
    }
    for row, (image, key) in enumerate(rows):
        tail = tails[marker(row, len(rows))]
        run.rows.append(OP_READ, key, b"%b%b%b" % (BEFORE_NULL_AFTER, image, tail))
    batch.close_run()


def copied_tail(
    view: ReadView | CopiedAt, table_id: TableId, source: str, marker: bytes, now_ns: int, *, connector: str = "mysql"
) -> bytes:
    """The envelope after the image of a copied row; ``marker``: its ``source.snapshot``, as JSON text."""
    head = MysqlSourceBlock(source, table_id.database, table_id.table, connector=connector).head(
        time_us=view.taken_at_us // 1_000_000 * 1_000_000,
        snapshot=marker,
        server_id=0,
        gtid=b"null",
        file=json_text(view.position.file),
    )
    place = source_place(view.position.pos, 0) + source_tail(None)
    return b',"source":' + head + place + b',"transaction":null' + event_tail("r", now_ns)
