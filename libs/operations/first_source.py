"""``headwater init URL``: a home's first source and first tenant, from the address of a database.

Nothing is written over: a document that is there stays, and is asked about instead.
"""

import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

import yaml

from libs.errors import AccessDenied, InvalidSettings
from libs.mesh.documents import NAME_PATTERN, SourceDocument, convert_source, read_documents
from libs.mesh.home import Home, write_examples
from libs.mysql.preflight import PreflightReport
from libs.operations.database_url import DatabaseUrl, pattern_scalar, scalar
from libs.operations.first_mysql import MysqlServer
from libs.operations.first_oracle import OracleServer

_HIDDEN: Final = "…"


class Server(Protocol):
    """A kind of source that a URL may name: its account, its document, its pre-flight."""

    @property
    def shown_url(self) -> str:
        """A URL, as a message shows one."""
        ...

    @property
    def default_port(self) -> int:
        """Of a URL without one."""
        ...

    @property
    def product(self) -> str:
        """The server's name in messages."""
        ...

    def mistakes(self, url: DatabaseUrl) -> list[str]:
        """Of the parts that this kind alone has."""
        ...

    def name(self, url: DatabaseUrl) -> str:
        """The name that the source's is made of."""
        ...

    def pattern(self, url: DatabaseUrl) -> str:
        """The regular expression of the tables that are captured."""
        ...

    def account(self, url: DatabaseUrl, password: str) -> tuple[str, ...]:
        """The statements that make the account, CREATE USER first. Raises ValueError: the password fits none."""
        ...

    def account_notes(self) -> Sequence[str]:
        """Lines for the administrator who runs them."""
        ...

    def administrators_command(self, url: DatabaseUrl, account_file: Path) -> str:
        """The command that runs them."""
        ...

    def source_text(self, url: DatabaseUrl, password: str, pattern: str, tls_ca_file: str | None) -> str:
        """The source's document. ``pattern``: as YAML."""
        ...

    def password(self, document: SourceDocument, url: DatabaseUrl) -> str | None:
        """Of a document that follows the URL's server; None: it follows another one."""
        ...

    def check(self, document: SourceDocument) -> PreflightReport:
        """The pre-flight."""
        ...


SERVERS: Final[Mapping[str, Server]] = {"mysql": MysqlServer(), "oracle": OracleServer()}
"""By the URL's scheme."""
SHOWN_URL: Final = SERVERS["mysql"].shown_url
_SHOWN_URLS: Final = " or ".join(server.shown_url for server in SERVERS.values())


class Access(Enum):
    """Whether the server let the account in."""

    GRANTED = "granted"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class FirstSource:
    """The outcome of an ``init`` with a URL."""

    written: tuple[Path, ...]
    kept: tuple[Path, ...]
    """Documents that were there already."""
    account: tuple[str, ...]
    """The statements that make the account, without its password."""
    account_file: Path
    """The same statements with the password; readable by the home's owner only."""
    access: Access
    report: PreflightReport
    """Of the pre-flight. Empty where access was denied."""


def read_url(url: str) -> DatabaseUrl:
    """The parts of ``url``.

    Raises:
        InvalidSettings: a part is missing; the message never holds the password.
    """
    scheme = urlsplit(url).scheme if url.isprintable() else ""
    server = SERVERS.get(scheme)
    if server is None:
        raise InvalidSettings("URL", [f"begins with {scheme or 'nothing'!r}; write {_SHOWN_URLS}"])
    try:
        parts = urlsplit(url)
        port = parts.port or server.default_port
    except ValueError as error:
        raise InvalidSettings("URL", [f"{error}; write {server.shown_url}"]) from None
    found = DatabaseUrl(
        host=parts.hostname or "",
        port=port,
        user=unquote(parts.username or ""),
        password=None if parts.password is None else unquote(parts.password),
        path=tuple(map(unquote, parts.path.strip("/").split("/"))),
        kind=scheme,
    )
    mistakes = []
    if not found.host:
        mistakes.append(f"has no host; write {server.shown_url}")
    if not found.user:
        mistakes.append(f"has no user, whom Headwater is to log in as; write {server.shown_url}")
    mistakes += server.mistakes(found)
    if parts.query or parts.fragment:
        mistakes.append("has a part after '?' or '#': add such settings to the source's document")
    if mistakes:
        raise InvalidSettings("URL", mistakes)
    return found


def source_name(database: str) -> str:
    """The name of the source that follows ``database``: its letters and digits, in lower case."""
    name = re.sub(r"[^a-z0-9]+", "-", database.lower()).strip("-")[:40].rstrip("-")
    return name or "source"


def begin(home: Home, url: DatabaseUrl, *, source: str, tenant: str, tls_ca_file: str | None = None) -> FirstSource:
    """Write the documents of a source and a tenant, and ask the server. Blocks.

    Raises:
        InvalidSettings: a name is none, or another server's document has the name.
        SourceUnavailable: the server does not answer; nothing was written.
        PipelineHalted: the server cannot be asked under these settings; nothing was written.
    """
    _require_names(source, tenant)
    server = SERVERS[url.kind]
    source_file = home.sources_dir / f"{source}.yaml"
    tenant_file = home.tenants_dir / f"{tenant}.yaml"
    account_file = home.sources_dir / f"{source}.sql"
    there = _document_there(home, source, url)
    pattern = pattern_scalar(server.pattern(url))
    given = url.password if url.password is not None else _made_up_password()
    text = server.source_text(url, given, pattern, tls_ca_file)
    document, password = (_converted(text), given) if there is None else there
    try:
        statements = server.account(url, password)
    except ValueError as error:
        raise InvalidSettings("password", [str(error)]) from None
    access, report = _asked(server, document)
    written = list(write_examples(home))
    kept: list[Path] = []
    for path, content, mode in (
        (source_file, text, 0o600),
        (account_file, _account_text(source, statements, server.account_notes()), 0o600),
        (tenant_file, _tenant_text(tenant, source, pattern), 0o644),
    ):
        (written if _write_new(path, content, mode) else kept).append(path)
    return FirstSource(
        written=tuple(written),
        kept=tuple(kept),
        account=(server.account(url, _HIDDEN)[0], *statements[1:]),
        account_file=account_file,
        access=access,
        report=report,
    )


def _made_up_password() -> str:
    return secrets.token_urlsafe(18) + "-aA1"  # of each kind of character that validate_password asks for


def _require_names(source: str, tenant: str) -> None:
    for kind, name in (("source", source), ("tenant", tenant)):
        if not NAME_PATTERN.fullmatch(name):
            raise InvalidSettings(
                f"{kind} {name!r}", ["a name is lower-case letters, digits and '-', at most 40; choose another"]
            )


def _document_there(home: Home, source: str, url: DatabaseUrl) -> tuple[SourceDocument, str] | None:
    """The document that has the name already, with its password; None: there is none.

    Raises:
        InvalidSettings: it has mistakes, or follows another server.
    """
    path = home.sources_dir / f"{source}.yaml"
    if not path.exists():
        return None
    documents = read_documents(home)
    document = documents.sources.get(source)
    if document is None:
        raise InvalidSettings(str(path), list(documents.source_mistakes))
    password = SERVERS[url.kind].password(document, url)
    if password is None:
        raise InvalidSettings(str(path), ["follows another server already; give this one another name (--source)"])
    return document, password


def _converted(text: str) -> SourceDocument:
    mistakes: list[str] = []
    document = convert_source(yaml.safe_load(text), mistakes)
    if document is None:
        raise InvalidSettings("URL", mistakes)
    return document


def _asked(server: Server, document: SourceDocument) -> tuple[Access, PreflightReport]:
    try:
        return Access.GRANTED, server.check(document)
    except AccessDenied:
        return Access.DENIED, PreflightReport(())


def _write_new(path: Path, text: str, mode: int) -> bool:
    """Write a file that is not there yet. False: it is, and stays as it is."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        return False
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        stream.write(text)
    return True


def _tenant_text(tenant: str, source: str, pattern: str) -> str:
    return (
        "# yaml-language-server: $schema=../tenant.schema.json\n"
        "# The rows and columns of one tenant; acme.yaml.example beside this file shows every setting.\n"
        f"tenant: {scalar(tenant)}\n"
        "sources:\n"
        f"  - name: {scalar(source)}\n"
        f"    include_tables: [{pattern}]\n"
        "sink: {warehouse: iceberg, mode: mirror, trigger_s: 5}\n"
    )


def _account_text(source: str, statements: Sequence[str], notes: Sequence[str]) -> str:
    noted = "".join(f"-- {note}\n" for note in notes)
    lines = "".join(f"{statement};\n" for statement in statements)
    return (
        f"-- The account of sources/{source}.yaml, to be made by an administrator. It holds the password.\n"
        f"{noted}{lines}"
    )
