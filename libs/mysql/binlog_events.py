"""The binlog's events, as far as a reader needs them: from bytes to small records.

Layout: MySQL source ``libbinlogevents/include/{control_events,rows_event,statement_events}.h``; all numbers are
little-endian. Row images are not read here (``row_image``).
"""

import struct
from dataclasses import dataclass
from typing import Final

from libs.mysql.charsets import charset_of_collation_id, python_codec
from libs.mysql.shown_definition import with_readable_literals

QUERY, ROTATE, FORMAT_DESCRIPTION, XID, TABLE_MAP = 2, 4, 15, 16, 19
HEARTBEAT, ROWS_QUERY, WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS = 27, 29, 30, 31, 32
GTID, ANONYMOUS_GTID, PREVIOUS_GTIDS, XA_PREPARE, PARTIAL_UPDATE_ROWS = 33, 34, 35, 38, 39
TRANSACTION_PAYLOAD, HEARTBEAT_V2, GTID_TAGGED = 40, 41, 42
EXECUTE_LOAD_QUERY, INCIDENT = 18, 26

HEADER_BYTES: Final = 19
KIND_OFFSET: Final = 4
"""Place of the event's type within its header."""
END_OFFSET: Final = 13
"""Place of the event's end position within its header."""
CHECKSUM_BYTES: Final = 4
TABLE_ID_BYTES: Final = 6
"""The number that a table map gives to its table; the rows events after it begin with it."""
ROWS_POST_HEADER_BYTES: Final = 8
"""Table id and flags of a rows event; the length of the extra data follows."""

THREAD_SPECIFIC: Final = 4
"""Flag of a statement that uses a temporary table (MySQL source ``LOG_EVENT_THREAD_SPECIFIC_F``)."""

read_header = struct.Struct("<IBIIIH").unpack_from
"""(data, place) → timestamp in s, type, server id, event size, end position (32 bits, wraps), flags."""


_SIZE_AND_END = struct.Struct("<II")
_SIZE_OFFSET: Final = 9


def without_checksum(event: bytes, checksum_bytes: int) -> bytes:
    """The event as a server without checksums would have written it at the same place."""
    size, end = _SIZE_AND_END.unpack_from(event, _SIZE_OFFSET)
    sizes = _SIZE_AND_END.pack(size - checksum_bytes, (end - checksum_bytes) & 0xFFFFFFFF)
    return event[:_SIZE_OFFSET] + sizes + event[_SIZE_OFFSET + _SIZE_AND_END.size : len(event) - checksum_bytes]


@dataclass(frozen=True, slots=True)
class GtidEvent:
    """Opens a transaction."""

    uuid: str
    tag: str
    """Empty: none."""
    number: int
    committed_at_us: int
    """Commit time at the server that the transaction came from; 0 where the server does not say (before 8.0.1)."""

    def __str__(self) -> str:
        """As MySQL writes it."""
        return f"{self.uuid}:{self.tag}:{self.number}" if self.tag else f"{self.uuid}:{self.number}"


_GTID_FIXED = struct.Struct("<B16sq")


def parse_gtid(body: bytes) -> GtidEvent:
    """GTID_LOG_EVENT's body.

    After flags, uuid and number stand the logical clocks (type code 2 and 16 bytes), then the immediate commit time in 7
    bytes; its top bit says that the original commit time follows in 7 more.
    """
    _, uuid, number = _GTID_FIXED.unpack_from(body, 0)
    committed_at_us = 0
    if len(body) >= 49 and body[25] == 2:
        immediate = int.from_bytes(body[42:49], "little")
        committed_at_us = immediate & ~(1 << 55)
        if immediate >> 55 and len(body) >= 56:
            committed_at_us = int.from_bytes(body[49:56], "little")
    return GtidEvent(uuid=_uuid_text(uuid), tag="", number=number, committed_at_us=committed_at_us)


def parse_gtid_tagged(body: bytes) -> GtidEvent:
    """GTID_TAGGED_LOG_EVENT's body (MySQL 8.3 and later).

    It is written by ``mysql::serialization`` (MySQL source libs/mysql/serialization; ``Gtid_event::define_fields``):
    version, size, last field that must be understood, then each field after its number, in ascending order; those of no
    use here follow. Numbers have as many bytes as their first one has ones at its low end, and one.
    """
    place = 0
    for _ in ("version", "size", "last field"):
        _, place = _read_varlen(body, place)
    uuid, tag, number, times = b"", "", 0, {}
    while place < len(body):
        field, place = _read_varlen(body, place)
        if field == _FIELD_UUID:
            digits = bytearray()
            for _ in range(16):
                byte, place = _read_varlen(body, place)
                digits.append(byte)
            uuid = bytes(digits)
        elif field == _FIELD_TAG:
            size, place = _read_varlen(body, place)
            tag = body[place : place + size].decode("ascii")
            place += size
        else:
            value, place = _read_varlen(body, place)
            if field == _FIELD_NUMBER:
                number = value >> 1 ^ -(value & 1)  # a signed one: zigzag
            elif field in (_FIELD_IMMEDIATE_TIME, _FIELD_ORIGINAL_TIME):
                times[field] = value
                if field == _FIELD_ORIGINAL_TIME:
                    break
            elif field > _FIELD_ORIGINAL_TIME:
                break
    committed_at_us = times.get(_FIELD_ORIGINAL_TIME, times.get(_FIELD_IMMEDIATE_TIME, 0))
    return GtidEvent(uuid=_uuid_text(uuid), tag=tag, number=number, committed_at_us=committed_at_us)


_FIELD_FLAGS, _FIELD_UUID, _FIELD_NUMBER, _FIELD_TAG = range(4)
_FIELD_IMMEDIATE_TIME, _FIELD_ORIGINAL_TIME = 6, 7


def _read_varlen(data: bytes, place: int) -> tuple[int, int]:
    first = data[place]
    size = 1
    while size < 9 and first & 1 << (size - 1):
        size += 1
    if size == 9:
        return int.from_bytes(data[place + 1 : place + 9], "little"), place + 9
    return int.from_bytes(data[place : place + size], "little") >> size, place + size


def _uuid_text(raw: bytes) -> str:
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@dataclass(frozen=True, slots=True)
class QueryEvent:
    """A statement: BEGIN, COMMIT, ROLLBACK, or DDL."""

    thread_id: int
    error_code: int
    database: str
    statement: str
    sql_mode: int
    """The session's ``sql_mode`` as a bit set (MySQL source sql/system_variables.h, MODE_…)."""
    client_charset: str = "utf8mb4"
    """The session's ``character_set_client``, in which the statement was sent."""
    connection_charset: str = "utf8mb4"
    server_charset: str | None = None
    """The session's ``character_set_server``: that of a database that is made without one. None: the event lacks it."""
    database_charset: str | None = None
    """The session's ``character_set_database``. None: that of ``database``, as nearly always."""
    explicit_defaults_for_timestamp: bool | None = None
    """None: the event lacks it, because nothing in the statement depends on it."""
    is_of_server: bool = False
    """The server wrote the text, as SHOW CREATE TABLE does: a member of an ENUM or SET beyond utf8mb3 is a question mark."""
    time_zone: str = ""
    """The session's ``time_zone``; empty: the event lacks it, because nothing in the statement depends on it."""
    uses_temporary_table: bool = False
    has_ddl_number: bool = False
    """The storage engine carried out DDL. An engine without atomic DDL, and a statement that did nothing, have none."""
    changed_databases: frozenset[str] | None = None
    """Databases in which the statement changed tables, also by a trigger or a function. None: more than the event names."""


def parse_query(body: bytes, flags: int = 0) -> QueryEvent:
    """QUERY_EVENT's body; ``flags``: the header's."""
    return _parse_query(body, 13, flags)


def parse_load_query(body: bytes) -> QueryEvent:
    """EXECUTE_LOAD_QUERY_EVENT's body: a LOAD DATA that is logged as a statement, with the places of its file's name."""
    return _parse_query(body, 26, 0)


def _parse_query(body: bytes, fixed_bytes: int, flags: int) -> QueryEvent:
    thread_id, _, database_length, error_code, status_length = struct.unpack_from("<IIBHH", body, 0)
    place = fixed_bytes + status_length
    status = _status(body[fixed_bytes:place])
    database = body[place : place + database_length].decode("utf-8")
    charsets = status.get(_CHARSET_CODE, b"")
    explicit = status.get(_EXPLICIT_TIMESTAMP_CODE)
    of_database = status.get(_DATABASE_CHARSET_CODE)
    client_charset = charset_of_collation_id(int.from_bytes(charsets[:2], "little"))
    statement = body[place + database_length + 1 :]
    return QueryEvent(
        thread_id=thread_id,
        error_code=error_code,
        database=database,
        statement=_statement_text(statement, client_charset, flags),
        is_of_server=_is_of_server(statement, flags),
        sql_mode=int.from_bytes(status.get(_SQL_MODE_CODE, b""), "little"),
        client_charset=client_charset,
        connection_charset=charset_of_collation_id(int.from_bytes(charsets[2:4], "little")),
        server_charset=charset_of_collation_id(int.from_bytes(charsets[4:6], "little")) if charsets else None,
        database_charset=charset_of_collation_id(int.from_bytes(of_database, "little")) if of_database else None,
        explicit_defaults_for_timestamp=None if explicit is None else explicit != b"\0",
        time_zone=status.get(_TIME_ZONE_CODE, b"")[1:].decode("ascii", errors="replace"),
        uses_temporary_table=bool(flags & THREAD_SPECIFIC),
        has_ddl_number=_DDL_NUMBER_CODE in status,
        changed_databases=_changed_databases(status.get(_DATABASES_CODE)),
    )


def _changed_databases(counted: bytes | None) -> frozenset[str] | None:
    """Of a number and so many names, each with a zero after it."""
    if counted is None or counted[0] == _TOO_MANY_DATABASES:
        return None
    return frozenset(name.decode("utf-8") for name in counted[1:].split(b"\0")[:-1])


def _statement_text(statement: bytes, client_charset: str, flags: int) -> str:
    """A statement is logged as the client sent it, in its character set; only some that the server writes itself are UTF-8.

    A literal with an introducer may have any bytes. Others that are none of either are replaced: a name of them is no captured
    table's.
    """
    codec = "utf-8" if client_charset == "binary" or _is_of_server(statement, flags) else python_codec(client_charset)
    try:
        return statement.decode(codec)
    except UnicodeDecodeError:
        if codec == "utf-8" and client_charset != "binary":
            return with_readable_literals(statement)
        return statement.decode(
            python_codec(client_charset) if client_charset != "binary" else "latin-1", errors="replace"
        )


def _is_of_server(statement: bytes, flags: int) -> bool:
    """The server wrote a table's definition: of CREATE TABLE … SELECT, LIKE a temporary table, or with a key that it made (as
    MySQL 9.7 has them)."""
    return statement.startswith(b"CREATE TABLE ") and (
        bool(flags & THREAD_SPECIFIC)
        or statement.endswith(b" START TRANSACTION")
        or b"\n  `my_row_id` bigint unsigned NOT NULL AUTO_INCREMENT /*!80023 INVISIBLE */," in statement
    )


_SQL_MODE_CODE, _CATALOG_CODE, _CHARSET_CODE, _TIME_ZONE_CODE, _CATALOG_NZ_CODE, _DATABASE_CHARSET_CODE = (
    1,
    2,
    4,
    5,
    6,
    8,
)
_INVOKER_CODE, _DATABASES_CODE, _EXPLICIT_TIMESTAMP_CODE, _DDL_NUMBER_CODE = 11, 12, 16, 17
_STATUS_BYTES: Final = {
    0: 4, _SQL_MODE_CODE: 8, 3: 4, _CHARSET_CODE: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, _EXPLICIT_TIMESTAMP_CODE: 1,
    _DDL_NUMBER_CODE: 8, 18: 2, 19: 1, 20: 1, 21: 1,
}  # fmt: skip
_STATUS_TEXTS: Final = {_CATALOG_CODE: 2, _TIME_ZONE_CODE: 1, _CATALOG_NZ_CODE: 1}
"""Bytes around each text: its length, and of the oldest form a zero after it."""
_TOO_MANY_DATABASES: Final = 254


def _status(status: bytes) -> dict[int, bytes]:
    """The status variables by their code, up to one that is not known here (MySQL source statement_events.h)."""
    found: dict[int, bytes] = {}
    place = 0
    while place < len(status):
        code = status[place]
        place += 1
        if code in _STATUS_TEXTS:
            size = status[place] + _STATUS_TEXTS[code]
        elif code == _INVOKER_CODE:  # user and host
            size = status[place] + 1
            size += status[place + size] + 1
        elif code == _DATABASES_CODE:
            size = 1
            for _ in range(status[place] if status[place] != _TOO_MANY_DATABASES else 0):
                size = status.index(0, place + size) + 1 - place
        elif code in _STATUS_BYTES:
            size = _STATUS_BYTES[code]
        else:
            break
        found[code] = status[place : place + size]
        place += size
    return found


@dataclass(frozen=True, slots=True)
class TableMapEvent:
    """Names the table that the next row events concern, and its columns' layout."""

    database: str
    table: str
    column_types: bytes
    metadata: bytes
    """Of the types: widths, lengths, precisions."""
    optional_metadata: bytes
    """The input of ``table_map_metadata``."""


def parse_table_map(body: bytes) -> TableMapEvent:
    """TABLE_MAP_EVENT's body from its seventh byte on (the flags): without the table id, which varies."""
    place = 2
    database_length = body[place]
    database = body[place + 1 : place + 1 + database_length].decode("utf-8")
    place += 2 + database_length
    table_length = body[place]
    table = body[place + 1 : place + 1 + table_length].decode("utf-8")
    place += 2 + table_length
    columns, place = read_packed(body, place)
    types = body[place : place + columns]
    metadata_length, place = read_packed(body, place + columns)
    nulls_place = place + metadata_length
    return TableMapEvent(
        database=database,
        table=table,
        column_types=types,
        metadata=body[place:nulls_place],
        optional_metadata=body[nulls_place + (columns + 7) // 8 :],
    )


def parse_rotate(body: bytes) -> str:
    """ROTATE_EVENT's body → name of the file that follows."""
    return body[8:].decode("utf-8")


_XA_PREPARE_FIXED = struct.Struct("<?III")


def parse_xa_prepare(body: bytes) -> tuple[str, bool]:
    """XA_PREPARE_LOG_EVENT's body → xid as XA COMMIT names it in the log, and whether this already commits (ONE PHASE)."""
    is_one_phase, format_id, global_bytes, branch_bytes = _XA_PREPARE_FIXED.unpack_from(body, 0)
    names = body[_XA_PREPARE_FIXED.size :]
    branch = names[global_bytes : global_bytes + branch_bytes]
    return f"X'{names[:global_bytes].hex()}',X'{branch.hex()}',{format_id}", is_one_phase


def read_packed(data: bytes, place: int) -> tuple[int, int]:
    """A length-encoded integer and the place after it (MySQL manual, "Length-Encoded Integer Type")."""
    first = data[place]
    if first < 251:
        return first, place + 1
    width = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[place + 1 : place + 1 + width], "little"), place + 1 + width
