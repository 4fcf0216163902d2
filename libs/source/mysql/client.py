"""Talks to MySQL: ordinary statements, the dump of the log, and SELECTs whose rows stay undecoded bytes.

PyMySQL does the handshake, authentication and TLS; then its socket is read here, because it would make an object of every
packet. Everything in this module blocks; the reader calls it in threads. MySQL's errors become ours here.

Protocol: MySQL source documentation, "Client/Server Protocol" (packets, COM_QUERY, COM_BINLOG_DUMP_GTID).
"""

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import pymysql
from pymysql.constants import COMMAND

from libs.errors import (
    AccessDenied,
    HeadwaterError,
    PipelineHalted,
    PositionPurged,
    SourceMisconfigured,
    SourceUnavailable,
)
from libs.mysql.binlog_events import KIND_OFFSET, TRANSACTION_PAYLOAD, read_packed
from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.gtid import GtidSet
from libs.mysql.packets import MAX_PACKET, Packets, whole_packets
from libs.mysql.purged_log import reports_purged_log
from libs.source.mysql.settings import DatabaseSettings, TlsMode
from libs.source.spill import out_of_room_named, spill_file

_RECEIVE_BYTES: Final = 1 << 18
_OK, _ERROR, _EOF = 0x00, 0xFF, 0xFE

_NO_TLS: Final = 2026
_LOST: Final = 2013
_TOO_LARGE: Final = 2020
_PLUGIN_REFUSED: Final = 2061
_LOCAL_FILE: Final = 0xFB
"""First byte of an answer that asks for a file of the client's (LOCAL INFILE)."""
_DENIED: Final = frozenset({1044, 1045, 1142, 1143, 1227, 1370})
_REFUSED: Final = frozenset({1054})  # unknown column: PyMySQL counts it as operational
_REFUSED_STATES: Final = frozenset({"0A", "21", "22", "3D", "42"})
"""Classes of SQLSTATE: the statement cannot succeed, now or later."""
_LIMITS: Final = frozenset({1203, 1226})  # of a user's connections and queries an hour: of class 42 too, but they pass
_CANNOT_SEND_LOG: Final = 1236
"""Everything that ends a dump; see ``libs.mysql.purged_log``."""
_PURGED: Final = 1789
_SAME_ID_TEXT: Final = "same server_uuid/server_id"
_COM_BINLOG_DUMP: Final = 0x12
_COM_BINLOG_DUMP_GTID: Final = 0x1E


_LEAST_HANDSHAKE_S: Final = 30.0
_MOST_HANDSHAKE_BYTES: Final = 1 << 20
"""A greeting, a public key and the answers to three statements have some kilobytes."""
_MOST_ANSWER_BYTES: Final = 256 << 20
"""Of a statement whose rows become objects: the columns of 50,000 tables have 100 MB."""
_MOST_JOINED_BYTES: Final = (1 << 30) + (16 << 20)
"""MySQL's own packets and events end at 1 GB (manual, ``max_allowed_packet``)."""
_PLUGINS: Final = frozenset({b"caching_sha2_password", b"sha256_password", b"mysql_native_password"})
_PLUGIN_IN_CLEAR: Final = b"mysql_clear_password"


class Connection(pymysql.Connection):
    """A connection that one thread uses at a time, and that another one may end meanwhile (``hang_up``).

    An impostor under the server's address gets nothing of use: no file, and no password in clear text without
    TLS. A handshake has an end, and an answer a size.
    """

    def __init__(self, **options: Any) -> None:
        self.in_use = threading.Lock()
        self._bytes_left = _MOST_HANDSHAKE_BYTES
        self._is_late = False
        super().__init__(**options)

    def connect(self, sock: socket.socket | None = None) -> None:
        """As PyMySQL's, within a time: a server that sends a byte now and then does not hold the reader."""
        self._bytes_left, self._is_late = _MOST_HANDSHAKE_BYTES, False
        within_s = max(_LEAST_HANDSHAKE_S, 3 * (self.connect_timeout or 0))
        timer = threading.Timer(within_s, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            super().connect(sock)
        except pymysql.OperationalError as error:
            if self._is_late:
                text = f"the handshake did not end within {within_s:.0f} s"
                raise pymysql.OperationalError(_LOST, text) from error
            raise
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        self._is_late = True
        if (ours := self._sock) is not None:  # type: ignore[attr-defined]  # not in the stubs
            with contextlib.suppress(OSError):
                socket.socket.shutdown(ours, socket.SHUT_RDWR)

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        self._bytes_left = _MOST_ANSWER_BYTES
        super()._execute_command(command, sql)  # type: ignore[misc]  # not in the stubs

    def _read_bytes(self, num_bytes: int) -> bytes:
        self._bytes_left -= num_bytes
        if self._bytes_left < 0:
            self._force_close()  # type: ignore[attr-defined]  # not in the stubs
            raise pymysql.OperationalError(_TOO_LARGE, "it sent more than any answer has")
        data: bytes = super()._read_bytes(num_bytes)  # type: ignore[misc]  # not in the stubs
        return data

    def _process_auth(self, plugin_name: bytes, auth_packet: Any, handler: Any = None) -> Any:
        """Where the server asks for another way to log in than it did at first."""
        is_safe = plugin_name in _PLUGINS or (plugin_name == _PLUGIN_IN_CLEAR and self._secure)  # type: ignore[attr-defined]
        if not is_safe:
            name = plugin_name.decode(errors="replace")[:64]
            raise pymysql.OperationalError(_PLUGIN_REFUSED, name)
        return super()._process_auth(plugin_name, auth_packet, handler)  # type: ignore[misc]  # not in the stubs


def hang_up(connection: Connection) -> None:
    """Close a connection from which a thread may be reading: its call ends first, with SourceUnavailable. Blocks shortly.

    Never closed under that thread: OpenSSL knows its socket by the descriptor's number, and would read on from whatever is
    opened next under the same one, be it another connection to MySQL, to Kafka or to a service.
    """
    if (ours := connection._sock) is not None:  # type: ignore[attr-defined]  # not in the stubs
        with contextlib.suppress(OSError):
            socket.socket.shutdown(ours, socket.SHUT_RDWR)  # beneath TLS, whose state is the reading thread's
    with connection.in_use:
        if connection.open:
            connection.close()


def connect(settings: DatabaseSettings) -> Connection:
    """A connection in utf8mb4 and time zone +00:00.

    Raises:
        SourceUnavailable: try again.
        AccessDenied: user or password are wrong, or one side does not trust the other's certificate.
        PipelineHalted: a file of the settings cannot be read, or the server cannot satisfy ``tls_mode``.
    """
    mode = settings.tls_mode or (TlsMode.VERIFY_IDENTITY if settings.tls_ca_file else TlsMode.PREFERRED)
    try:
        try:
            return _connect(settings, mode)
        except pymysql.OperationalError as error:
            if mode is not TlsMode.PREFERRED or error.args[0] != _NO_TLS:
                raise
        return _connect(settings, TlsMode.DISABLED)
    except HeadwaterError:
        raise
    except Exception as error:
        raise as_ours(error, settings) from error


_SESSION: Final = (
    "SET SESSION time_zone = '+00:00', net_write_timeout = 600, "
    # A stored 2024-02-31 or 0000-00-00 is a literal of the next chunk: any other mode refuses to compare with it.
    "sql_mode = 'ALLOW_INVALID_DATES', "
    # A SELECT without LIMIT would end at the server's own, as if the table did.
    "sql_select_limit = 18446744073709551615, "
    # As global settings these end long or large SELECTs.
    "max_execution_time = 0, sql_big_selects = 1, "
    # CHAIN would open a transaction after each COMMIT, with a view and locks that stay; RELEASE would hang up.
    "completion_type = 0, "
    # The greeting says that it is on, whatever its global value; without it the first SELECT opens a transaction that stays.
    "autocommit = 1 "
    # A generated invisible primary key is a column of the log's rows, even if the server hides it.
    "/*!80030 , show_gipk_in_create_table_and_information_schema = ON */"
)


def _connect(settings: DatabaseSettings, mode: TlsMode) -> Connection:
    """Raises PyMySQL's errors; PipelineHalted: a file cannot be read."""
    return Connection(
        host=settings.host,
        port=settings.port,
        user=settings.user,
        # As bytes: of a text PyMySQL takes Latin-1, where MySQL's own clients and CREATE USER have UTF-8.
        password=settings.password.reveal().encode(),
        charset="utf8mb4",
        connect_timeout=int(settings.connect_timeout_s) or 1,
        read_timeout=600,  # a SELECT of one chunk on a slow disk
        autocommit=True,
        init_command=_SESSION,
        **_security(settings, mode),
    )


def _security(settings: DatabaseSettings, mode: TlsMode) -> dict[str, Any]:
    """PyMySQL's options for TLS and the server's key.

    Without a choice it does PREFERRED itself, and reads the system's authorities for each connection, whose certificates it
    then does not look at.
    """
    options: dict[str, Any] = {}
    try:
        if settings.server_public_key_file is not None:
            options["server_public_key"] = Path(settings.server_public_key_file).read_bytes()
        if mode is TlsMode.DISABLED:
            return options | {"ssl_disabled": True}
        if mode in (TlsMode.VERIFY_CA, TlsMode.VERIFY_IDENTITY):
            context = ssl.create_default_context(cafile=settings.tls_ca_file)
            context.check_hostname = mode is TlsMode.VERIFY_IDENTITY
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if settings.tls_certificate_file is not None:
            context.load_cert_chain(settings.tls_certificate_file, settings.tls_key_file)
    except OSError as error:  # ssl.SSLError too
        files = (
            settings.tls_ca_file,
            settings.tls_certificate_file,
            settings.tls_key_file,
            settings.server_public_key_file,
        )
        named = ", ".join(filter(None, files))
        raise PipelineHalted(f"a certificate or key cannot be read ({error}): check {named}") from error
    return options | {"ssl": context}


def servers_of(settings: DatabaseSettings) -> list[DatabaseSettings]:
    """The server, then those that may take its place, each as settings of its own."""
    servers = [settings]
    for server in settings.failover_servers:
        host, _, port = server.rpartition(":")
        servers.append(msgspec.structs.replace(settings, host=host.strip("[]"), port=int(port)))
    return servers


def connect_to_any(settings: DatabaseSettings) -> Connection:
    """A connection to the first server that answers, the failover servers' turn coming after the first; as ``connect``."""
    *others, last = servers_of(settings)
    for server in others:
        with contextlib.suppress(SourceUnavailable):
            return connect(server)
    return connect(last)


def purged(connection: Connection) -> GtidSet:
    """Transactions that the server's log does not hold any more."""
    return GtidSet.parse(str(query(connection, "SELECT @@GLOBAL.gtid_purged")[0][0]))


def query(connection: Connection, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
    """All rows of a statement, decoded by PyMySQL. Raises SourceUnavailable, AccessDenied, PipelineHalted."""
    try:
        with connection.in_use, connection.cursor() as cursor:
            cursor.execute(statement, arguments or None)
            return list(cursor.fetchall())
    except pymysql.Error as error:
        raise as_ours(error, None) from error
    except Exception as error:  # PyMySQL's, over bytes that are no answer: the bytes after them are none either
        connection._force_close()  # type: ignore[attr-defined]  # not in the stubs
        raise as_ours(error, None) from error


def as_ours(error: Exception, settings: DatabaseSettings | None) -> HeadwaterError:
    """MySQL's error as one of ours, by the next step."""
    code, text = (error.args[0], str(error.args[-1])) if error.args else (0, str(error))
    where = f"{settings.host}:{settings.port}" if settings is not None else "the source"
    if not isinstance(error, pymysql.Error):
        return _no_answer(error, where)
    cause = getattr(error, "original_exception", None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return AccessDenied(
            f"the certificate of MySQL at {where} is not trusted ({cause.verify_message}): check tls_ca_file, or let tls_mode "
            "ask for less"
        )
    if code == _NO_TLS:
        return PipelineHalted(f"MySQL at {where} offers no TLS: set it up there, or let tls_mode ask for less")
    if code == _PLUGIN_REFUSED:
        return AccessDenied(
            f"MySQL at {where} asks for the password by plug-in {text!r}, which is refused: mysql_clear_password needs TLS "
            "(tls_mode), and others than caching_sha2_password, sha256_password and mysql_native_password are not known here; "
            "check that the address is your server's, or give the user another plug-in"
        )
    if code in _DENIED:
        return AccessDenied(f"MySQL denies the reader at {where} ({text}): check user, password and grants")
    if code in (_CANNOT_SEND_LOG, _PURGED):
        return _log_withheld(code, text, where)
    if code in _REFUSED or isinstance(error, _REFUSALS):
        return PipelineHalted(f"MySQL refuses a statement of the reader at {where}: {text} (error {code})")
    if code in _CLIENT_ERRORS or not code:
        return SourceUnavailable(f"MySQL at {where} does not answer: {text}")
    return SourceUnavailable(f"MySQL at {where} cannot do it now: {text} (error {code})")


def _no_answer(error: Exception, where: str) -> HeadwaterError:
    """For PyMySQL's exceptions over bytes that MySQL does not send."""
    if "LOAD_LOCAL" in str(error):
        return _asked_for_file(where)
    return SourceUnavailable(
        f"what answers at {where} does not speak MySQL's protocol ({type(error).__name__}): check host and port"
    )


def _asked_for_file(where: str) -> PipelineHalted:
    return PipelineHalted(
        f"what answers at {where} asked for a file of this machine (LOCAL INFILE), which is never sent: check that the address "
        "is your server's, and who can change its answers; tls_mode: verify_identity keeps others out"
    )


_REFUSALS: Final = (pymysql.ProgrammingError, pymysql.NotSupportedError, pymysql.DataError, pymysql.IntegrityError)
_CLIENT_ERRORS: Final = range(2000, 3000)  # the connection, not the statement


def _log_withheld(code: int, text: str, where: str) -> HeadwaterError:
    """Why a server ends the dump of its log, or does not begin it."""
    if code == _PURGED or reports_purged_log(text):
        return PositionPurged(
            f"MySQL at {where} no longer holds the log to resume from ({text}): re-snapshot the source"
        )
    if _SAME_ID_TEXT in text.lower():
        return SourceMisconfigured(
            f"MySQL at {where} ended the log, because somebody else asked for it under the same server id ({text}): give every "
            "reader and every replica of the server its own id (replica_server_id)"
        )
    return PipelineHalted(
        f"MySQL at {where} cannot send its log ({text}): mend that at the server; what was read is kept, and the reader goes "
        "on behind it. Where the log is damaged, re-snapshot the source"
    )


def mysql_error_code(error: BaseException) -> int:
    """The number of MySQL's error that caused one of ours (manual, "Server Error Message Reference"); 0: there is none."""
    cause = error.__cause__
    return int(cause.args[0]) if isinstance(cause, pymysql.Error) and cause.args else 0


# --- undecoded packets -----------------------------------------------------------------------------------------------


class PacketReader:
    """Reads whole packets from a connection's socket, many at a time, without an object for each.

    A packet that is not complete yet waits for the next call; one of 16 MB and more comes joined and alone. Of the log, for
    which ``spill_dir`` is given, a compressed transaction of that size (it may have 1 GB, and more inside) comes as a file.
    """

    __slots__ = ("_in_use", "_poll", "_rest", "_socket", "_spill_dir")

    def __init__(self, connection: Connection, timeout_s: float, *, spill_dir: Path | None = None) -> None:
        self._spill_dir = spill_dir
        self._in_use = connection.in_use
        with connection.in_use:
            if connection._sock is None:  # type: ignore[attr-defined]  # not in the stubs
                raise SourceUnavailable("the connection to MySQL was closed")
            self._socket: socket.socket = connection._sock  # type: ignore[attr-defined]
            self._socket.settimeout(timeout_s)
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
        self._rest = b""

    def receive(self) -> tuple[Packets | BinaryIO, bool]:
        """Wait for at least one whole packet, then take the packets that are there; and whether more wait: the server is
        ahead of us.

        A file holds one TRANSACTION_PAYLOAD event, and stands at its beginning.

        Raises SourceUnavailable: server silent or gone. DiskFull: no room for the file.
        """
        with self._in_use:
            return self._received()

    def _received(self) -> tuple[Packets | BinaryIO, bool]:
        data, needed = self._rest, 4
        while True:
            data = self._filled(data, needed)
            packets, end, needed = whole_packets(data)
            if len(packets):
                self._rest = data[end:]
                return packets, self._more_waits()
            if _payload_bytes(data, 0) == MAX_PACKET and len(data) >= needed:
                return self._joined(data)

    def _more_waits(self) -> bool:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(self._poll.poll(0))

    def _joined(self, data: bytes) -> tuple[Packets | BinaryIO, bool]:
        is_log = self._spill_dir is not None
        if is_log and data[4] == _OK and data[5 + KIND_OFFSET] == TRANSACTION_PAYLOAD:
            return self._spilled(data)
        joined = b"".join(self._parts(data))
        return Packets(joined, [(0, len(joined))]), self._more_waits()

    def _spilled(self, data: bytes) -> tuple[BinaryIO, bool]:
        file = spill_file(self._spill_dir)
        for part in self._parts(data):
            with out_of_room_named(self._spill_dir):
                file.write(part)
        with out_of_room_named(self._spill_dir):
            file.seek(1)  # after the OK byte
        return file, self._more_waits()

    def _parts(self, data: bytes) -> Iterator[bytes]:
        """The payloads of a packet and of those that continue it."""
        length, whole = MAX_PACKET, 0
        while length == MAX_PACKET:
            data = self._filled(data, 4)
            length = _payload_bytes(data, 0)
            whole += length
            if whole > _MOST_JOINED_BYTES:
                raise SourceUnavailable(
                    "MySQL sent a packet that does not end: check that the address is your server's"
                )
            data = self._filled(data, 4 + length)
            yield data[4 : 4 + length]
            data = data[4 + length :]
        self._rest = data

    def _filled(self, data: bytes, needed: int) -> bytes:
        """``data`` and what follows it: at least ``needed`` bytes, and up to some hundred KB that wait already.

        TLS hands out 16 KB at a time, so one read alone would make a batch of a few rows out of a log that waits in full.
        """
        chunks, held = [data], len(data)
        while held < needed or (held < _RECEIVE_BYTES and self._more_waits()):
            try:
                chunks.append(self._receive_some(needed - held))
            except SourceUnavailable:
                if held < needed:
                    raise
                break  # MySQL says why before it closes: that is read first, the end is met again by the next call
            held += len(chunks[-1])
        return b"".join(chunks) if len(chunks) > 1 else data

    def _receive_some(self, missing: int) -> bytes:
        try:
            chunk = self._socket.recv(max(_RECEIVE_BYTES, min(missing, MAX_PACKET)))
        except TimeoutError as error:
            raise SourceUnavailable(
                "MySQL sent no row of a SELECT in time: the server is busy, or the condition that the SELECT has needs an index"
                if self._spill_dir is None
                else "MySQL sent nothing, not even a heartbeat: the connection counts as lost"
            ) from error
        except OSError as error:
            raise SourceUnavailable(f"the connection to MySQL broke: {error}") from error
        if not chunk:
            raise SourceUnavailable("MySQL closed the connection")
        return chunk


def _payload_bytes(data: bytes, place: int) -> int:
    return data[place] | data[place + 1] << 8 | data[place + 2] << 16


def select_packets(connection: Connection, statement: str, timeout_s: float) -> Iterator[tuple[Packets, int, int]]:
    """The rows of ``statement`` as undecoded text-protocol packets, many at a time: ``packets[first:end]`` are rows.

    The whole answer must be consumed before the connection is used again. Raises SourceUnavailable, AccessDenied,
    PipelineHalted.
    """
    _send(connection, COMMAND.COM_QUERY, statement)
    reader = PacketReader(connection, timeout_s)
    definitions_left = -1  # unknown: the first packet says how many columns there are
    while True:
        packets, _ = reader.receive()
        assert isinstance(packets, Packets)  # only the log spills
        data, first = packets.data, 0
        while first < len(packets) and definitions_left != 0:
            place, end = packets[first]
            if definitions_left < 0:
                definitions_left = _columns_of(data, place, end) + 2  # and the mark that ends them
            definitions_left -= 1
            first += 1
        if first == len(packets):
            continue
        # The answer ends with its last packet, and nothing follows it until the next statement.
        place, end = packets[len(packets) - 1]
        raise_error_packet(data, place, end)
        is_end = place < end and data[place] == _EOF and end - place < 9
        yield packets, first, len(packets) - is_end
        if is_end:
            return


_MOST_COLUMNS: Final = 4_096  # manual, "Limits on Table Column Count"


def _columns_of(data: bytes, place: int, end: int) -> int:
    """How many columns an answer begins with. Raises as ``select_packets``."""
    raise_error_packet(data, place, end)
    if place < end and data[place] == _LOCAL_FILE:
        raise _asked_for_file("the source")
    try:
        columns, behind = read_packed(data, place)
    except (IndexError, KeyError) as error:
        raise _no_answer(error, "the source") from error
    if not 0 < columns <= _MOST_COLUMNS or behind != end:
        raise _no_answer(ValueError("columns"), "the source")
    return columns


def select_raw(connection: Connection, statement: str, timeout_s: float) -> Iterator[bytes]:
    """As ``select_packets``, a row at a time."""
    for packets, first, end in select_packets(connection, statement, timeout_s):
        for nth in range(first, end):
            place, place_end = packets[nth]
            yield packets.data[place:place_end]


def start_dump(
    connection: Connection,
    position: BinlogPosition,
    *,
    also_done: GtidSet,
    replica_server_id: int,
    heartbeat_s: float,
    spill_dir: Path,
) -> PacketReader:
    """Ask for the log after ``position``; events follow, one a packet, each after an OK byte.

    Transactions ``also_done`` are not sent either.

    Raises SourceUnavailable, AccessDenied, PositionPurged.
    """
    for name in ("source", "master"):  # a server before 8.0.26 knows the second alone, and counts it in every release
        query(connection, f"SET @{name}_heartbeat_period = {int(heartbeat_s * 1e9)}")
        # The checksum is announced as the server has it: asking for none would make the server strip each one.
        query(connection, f"SET @{name}_binlog_checksum = @@GLOBAL.binlog_checksum")
    if position.by_file:
        command = _COM_BINLOG_DUMP
        payload = struct.pack("<IHI", position.pos, 0, replica_server_id) + position.file.encode()
    else:
        command = _COM_BINLOG_DUMP_GTID
        gtid_set = GtidSet.parse(position.gtid_set).union(also_done).encode_binary()
        payload = struct.pack("<HIIQI", 0, replica_server_id, 0, 4, len(gtid_set)) + gtid_set
    _send(connection, command, payload)
    # Three heartbeats: one may be late after a large event, two are a coincidence.
    return PacketReader(connection, timeout_s=3 * heartbeat_s + 1, spill_dir=spill_dir)


def _send(connection: Connection, command: int, payload: str | bytes) -> None:
    try:
        with connection.in_use:
            connection._execute_command(command, payload)
    except pymysql.Error as error:
        raise as_ours(error, None) from error


def raise_error_packet(data: bytes, place: int, end: int) -> None:
    """Raise MySQL's error, ours by what to do next, where the packet is one."""
    if place < end and data[place] == _ERROR:
        if end - place < 3:
            raise _no_answer(ValueError("error packet"), "the source")
        (code,) = struct.unpack_from("<H", data, place + 1)
        state, text = (
            part.decode("utf-8", errors="replace") for part in (data[place + 4 : place + 9], data[place + 9 : end])
        )
        is_refused = state[:2] in _REFUSED_STATES and code not in _LIMITS
        error = (pymysql.ProgrammingError if is_refused else pymysql.OperationalError)(code, text)
        raise as_ours(error, None) from error
