"""Real catalogs of Iceberg tables: Iceberg's own REST server, with a gate before it that asks for OAuth2, and Hive's
metastore.

The REST server's jars are fetched with the first test that asks for it (14 MB, into the cache). Hive's metastore, and the
Derby that it keeps its tables in, come with PySpark. Both servers listen on all interfaces and cannot be set otherwise: each
does so in a network of its own.
"""

import contextlib
import http.client
import json
import secrets
import subprocess
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.sax.saxutils import escape

import pyspark
from hive_metastore.ThriftHiveMetastore import Client
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from libs.servers.ports import LOOPBACK
from libs.servers.process import ProcessSpec
from libs.setup import jar_download
from libs.setup.cache import cache_dir
from libs.setup.jars import jar_paths, jar_set
from libs.setup.java import find_java
from tests import own_network

LOCKS_DIR = Path(__file__).parent / "locks"
PROBE_TIMEOUT_S = 5.0
FORWARD_TIMEOUT_S = 120.0  # a commit on a busy machine
HOLD_TIMEOUT_S = 1_800.0
MEMORY_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_TABLES_TIMEOUT_S = 240.0
_LOCK_TABLES = """
CREATE TABLE TXNS (TXN_ID bigint PRIMARY KEY, TXN_STATE char(1) NOT NULL, TXN_STARTED bigint NOT NULL,
  TXN_LAST_HEARTBEAT bigint NOT NULL, TXN_USER varchar(128) NOT NULL, TXN_HOST varchar(128) NOT NULL);
CREATE TABLE HIVE_LOCKS (HL_LOCK_EXT_ID bigint NOT NULL, HL_LOCK_INT_ID bigint NOT NULL, HL_TXNID bigint,
  HL_DB varchar(128) NOT NULL, HL_TABLE varchar(128), HL_PARTITION varchar(767), HL_LOCK_STATE char(1) NOT NULL,
  HL_LOCK_TYPE char(1) NOT NULL, HL_LAST_HEARTBEAT bigint NOT NULL, HL_ACQUIRED_AT bigint, HL_USER varchar(128) NOT NULL,
  HL_HOST varchar(128) NOT NULL, HL_HEARTBEAT_COUNT integer, HL_AGENT_INFO varchar(128), HL_BLOCKEDBY_EXT_ID bigint,
  HL_BLOCKEDBY_INT_ID bigint, PRIMARY KEY(HL_LOCK_EXT_ID, HL_LOCK_INT_ID));
CREATE TABLE NEXT_LOCK_ID (NL_NEXT bigint NOT NULL);
INSERT INTO NEXT_LOCK_ID VALUES(1);
CREATE TABLE AUX_TABLE (MT_KEY1 varchar(128) NOT NULL, MT_KEY2 bigint NOT NULL, MT_COMMENT varchar(255),
  PRIMARY KEY(MT_KEY1, MT_KEY2));
"""
"""As Hive 2.3's schematool makes them: Iceberg's commits take a lock."""
_TOKENS_PATH = "/oauth/tokens"
_OF_ONE_HOP = ("connection", "transfer-encoding", "content-length", "host", "authorization", "date", "server")
_LOGGING = """
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = Console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1} %m%n
"""


def prepare_rest_catalog(data_dir: Path, *, port: int) -> ProcessSpec:
    """How to start it; its list of tables, and the tables, lie in ``data_dir``. It asks nobody who he is: see ``Gate``."""
    data_dir = _made(data_dir)
    jars = jar_download.fetched(jar_set("iceberg-rest", LOCKS_DIR), cache_dir())
    [sqlite] = [path for path in jar_paths("spark", cache_dir()) if path.name.startswith("sqlite-jdbc")]
    return ProcessSpec(
        name="rest-catalog",
        command=own_network.in_own_network(
            port, _java(data_dir, f"{jars}/*", str(sqlite), main=("org.apache.iceberg.rest.RESTCatalogServer",))
        ),
        environ={
            **own_network.ENVIRON,
            "CATALOG_URI": f"jdbc:sqlite:{data_dir / 'catalog.db'}?busy_timeout=30000&journal_mode=WAL",
            "CATALOG_JDBC_SCHEMA__VERSION": "V1",
            "CATALOG_WAREHOUSE": (data_dir / "warehouse").as_uri(),
            "CATALOG_REST_PORT": str(port),
        },
        working_dir=data_dir,
        ready=lambda: _serves_rest(port),
    )


def prepare_hive_metastore(data_dir: Path, *, port: int) -> ProcessSpec:
    """How to start it; its own tables lie in ``data_dir``. Makes those of locks, which it does not make itself."""
    data_dir = _made(data_dir)
    database = f"jdbc:derby:;databaseName={data_dir / 'metastore'};create=true"
    subprocess.run(
        _java(data_dir, main=("org.apache.derby.tools.ij",)),
        input=f"CONNECT '{database}';\n{_LOCK_TABLES}EXIT;\n",
        cwd=data_dir,
        text=True,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=_TABLES_TIMEOUT_S,
    )
    properties = {
        "javax.jdo.option.ConnectionURL": database,
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.connectionPoolingType": "None",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(data_dir / "warehouse"),
        "hive.metastore.server.min.threads": "4",
    }
    lines = [
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in properties.items()
    ]
    (data_dir / "hive-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
    return ProcessSpec(
        name="hive-metastore",
        command=own_network.in_own_network(
            port, _java(data_dir, main=("org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)))
        ),
        environ=own_network.ENVIRON,
        working_dir=data_dir,
        ready=lambda: _serves_hive(port),
    )


def _made(data_dir: Path) -> Path:
    data_dir = data_dir.absolute()
    data_dir.mkdir(parents=True, exist_ok=True)
    (data_dir / "log4j2.properties").write_text(_LOGGING)
    return data_dir


def _java(data_dir: Path, *first: str, main: tuple[str, ...]) -> tuple[str, ...]:
    """PySpark's jars, which have Hadoop, come last."""
    classes = ":".join([str(data_dir), *first, f"{Path(pyspark.__file__).parent / 'jars'}/*"])
    logging = f"-Dlog4j.configurationFile={data_dir / 'log4j2.properties'}"
    return (str(find_java(cache_dir()).executable), *MEMORY_OPTIONS, logging, "-cp", classes, *main)


def _serves_rest(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/v1/config")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _serves_hive(port: int) -> bool:
    socket = TSocket(LOOPBACK, port)
    socket.setTimeout(PROBE_TIMEOUT_S * 1000)
    transport = TBufferedTransport(socket)
    try:
        transport.open()
        return "default" in Client(TBinaryProtocol(transport)).get_all_databases()
    except (OSError, TTransportException):
        return False
    finally:
        transport.close()


@dataclass(slots=True, eq=False)
class HeldCommit:
    """A commit of rows that waits in a gate."""

    path: str
    """Of its request, which names the table."""
    is_done: threading.Event = field(default_factory=threading.Event)
    """The catalog has answered, or is never asked."""
    _is_free: threading.Event = field(default_factory=threading.Event)
    _is_lost: bool = False

    def go_on(self) -> None:
        """The catalog is asked, whether or not anybody waits for the answer."""
        self._is_free.set()

    def drop(self) -> None:
        """The catalog is never asked."""
        self._is_lost = True
        self._is_free.set()

    def wait(self) -> bool:
        """Whether to ask the catalog."""
        return self._is_free.wait(HOLD_TIMEOUT_S) and not self._is_lost


@dataclass(slots=True)
class Gate:
    """Stands before a REST catalog: gives tokens to callers that know the credential (OAuth2, client credentials), and lets
    nobody through without one. Iceberg's server asks nobody."""

    port: int
    catalog_port: int
    credential: str = field(default_factory=lambda: f"headwater:{secrets.token_hex(16)}")
    tokens: set[str] = field(default_factory=set)
    """All that were given."""
    passed: int = 0
    """Requests."""
    holds_commits: bool = False
    """Whether commits of rows wait, those that come from now on."""
    held: list[HeldCommit] = field(default_factory=list)
    """All that have waited."""

    @property
    def uri(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def tokens_uri(self) -> str:
        return f"{self.uri}{_TOKENS_PATH}"

    @property
    def hidden(self) -> tuple[str, ...]:
        """Secrets that may stand in no log, file or command line."""
        return (self.credential.partition(":")[2], *self.tokens)

    def token_for(self, form: Mapping[str, list[str]]) -> str | None:
        """None: the credential is wrong."""
        given = ":".join(form.get(name, [""])[0] for name in ("client_id", "client_secret"))
        if form.get("grant_type") != ["client_credentials"] or given != self.credential:
            return None
        token = secrets.token_hex(16)
        self.tokens.add(token)
        return token


@contextlib.contextmanager
def opened(gate: Gate) -> Iterator[Gate]:
    """While the block runs, it lets through requests that have a token."""
    server = ThreadingHTTPServer((LOOPBACK, gate.port), _handler(gate))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield gate
    finally:
        server.shutdown()
        server.server_close()


def _handler(gate: Gate) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            bearer = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            if self.path == _TOKENS_PATH:
                self._give_token(urllib.parse.parse_qs(content.decode()))
            elif bearer in gate.tokens:
                gate.passed += 1
                if gate.holds_commits and b'"add-snapshot"' in content:
                    self._hold(content)
                else:
                    self._forward(content)
            else:
                error = {"message": "no token", "type": "NotAuthorizedException", "code": HTTPStatus.UNAUTHORIZED}
                self._answer(HTTPStatus.UNAUTHORIZED, json.dumps({"error": error}).encode())

        do_GET = do_HEAD = do_POST = do_DELETE = _pass  # noqa: N815 - as the base class calls them

        def _give_token(self, form: Mapping[str, list[str]]) -> None:
            token = gate.token_for(form)
            if token is None:
                self._answer(HTTPStatus.UNAUTHORIZED, b'{"error": "invalid_client"}')
            else:
                answer = {"access_token": token, "token_type": "bearer", "expires_in": 3_600}
                self._answer(HTTPStatus.OK, json.dumps(answer).encode())

        def _hold(self, content: bytes) -> None:
            held = HeldCommit(self.path)
            gate.held.append(held)
            try:
                if held.wait():
                    with contextlib.suppress(ConnectionError):  # the caller may be dead
                        self._forward(content)
                else:
                    self.close_connection = True
            finally:
                held.is_done.set()

        def _forward(self, content: bytes) -> None:
            connection = http.client.HTTPConnection(LOOPBACK, gate.catalog_port, timeout=FORWARD_TIMEOUT_S)
            kept = {name: value for name, value in self.headers.items() if name.lower() not in _OF_ONE_HOP}
            try:
                connection.request(self.command, self.path, content, kept)
                answer = connection.getresponse()
                headers = {name: value for name, value in answer.getheaders() if name.lower() not in _OF_ONE_HOP}
                self._answer(answer.status, answer.read(), headers)
            finally:
                connection.close()

        def _answer(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in ({"Content-Type": "application/json"} if headers is None else headers).items():
                self.send_header(name, value)
            if status != HTTPStatus.NO_CONTENT:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    return Handler
