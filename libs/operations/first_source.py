"""``headwater init URL``: a home's first source and first tenant, from the address of a database.

Nothing is written over: a document that is there stays, and is asked about instead.
"""

import os
import re
import secrets
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import yaml

from libs.errors import AccessDenied, InvalidSettings
from libs.mesh.documents import NAME_PATTERN, MysqlDocument, convert_source, read_documents
from libs.mesh.home import Home, write_examples
from libs.mysql.grants import create_user, grant_statements
from libs.mysql.preflight import PreflightReport
from libs.operations.mysql_preflight import check_document

SHOWN_URL: Final = "mysql://user@host/database"
_DEFAULT_PORT: Final = 3306
_HIDDEN: Final = "…"


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """``mysql://user:password@host:port/database``."""

    host: str
    port: int
    user: str
    password: str | None
    """None: the URL has none. ``user:@host`` is an empty one."""
    database: str


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
    mistakes = []
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORT
    except ValueError as error:
        raise InvalidSettings("URL", [f"{error}; write {SHOWN_URL}"]) from None
    database = unquote(parts.path.strip("/"))
    if parts.scheme == "oracle":
        mistakes.append(
            "names an Oracle database, and `init` asks MySQL servers alone: write sources/<name>.yaml as docs/oracle.md shows "
            "it, then `headwater validate <name>` lists each missing grant with its statement"
        )
    elif parts.scheme != "mysql":
        mistakes.append(f"begins with {parts.scheme or 'nothing'!r}; write {SHOWN_URL}")
    if not parts.hostname:
        mistakes.append(f"has no host; write {SHOWN_URL}")
    if not parts.username:
        mistakes.append(f"has no user, whom Headwater is to log in as; write {SHOWN_URL}")
    if not database or "/" in database:
        mistakes.append(f"must name one database; write {SHOWN_URL}")
    if parts.query or parts.fragment:
        mistakes.append("has a part after '?' or '#': add such settings to the source's document")
    if mistakes:
        raise InvalidSettings("URL", mistakes)
    assert parts.hostname is not None and parts.username is not None
    password = None if parts.password is None else unquote(parts.password)
    return DatabaseUrl(parts.hostname, port, unquote(parts.username), password, database)


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
    source_file = home.sources_dir / f"{source}.yaml"
    tenant_file = home.tenants_dir / f"{tenant}.yaml"
    account_file = home.sources_dir / f"{source}.sql"
    document = _document_there(home, source, url)
    password = url.password if url.password is not None else _made_up_password()
    text = _source_text(url, password, tls_ca_file)
    if document is None:
        document = _converted(text)
    else:
        password = document.database.password.reveal()
    access, report = _asked(document)
    statements = (create_user(url.user, password), *grant_statements(url.user, [url.database]))
    written = list(write_examples(home))
    kept: list[Path] = []
    for path, content, mode in (
        (source_file, text, 0o600),
        (account_file, _account_text(source, statements), 0o600),
        (tenant_file, _tenant_text(tenant, source, url.database), 0o644),
    ):
        (written if _write_new(path, content, mode) else kept).append(path)
    return FirstSource(
        written=tuple(written),
        kept=tuple(kept),
        account=(create_user(url.user, _HIDDEN), *statements[1:]),
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


def _document_there(home: Home, source: str, url: DatabaseUrl) -> MysqlDocument | None:
    """The document that has the name already. Raises InvalidSettings: it has mistakes, or follows another server."""
    path = home.sources_dir / f"{source}.yaml"
    if not path.exists():
        return None
    documents = read_documents(home)
    document = documents.sources.get(source)
    if document is None:
        raise InvalidSettings(str(path), list(documents.source_mistakes))
    there = (document.database.host, document.database.port) if isinstance(document, MysqlDocument) else None
    if not isinstance(document, MysqlDocument) or there != (url.host, url.port):
        raise InvalidSettings(str(path), ["follows another server already; give this one another name (--source)"])
    return document


def _converted(text: str) -> MysqlDocument:
    mistakes: list[str] = []
    document = convert_source(yaml.safe_load(text), mistakes)
    if not isinstance(document, MysqlDocument):
        raise InvalidSettings("URL", mistakes)
    return document


def _asked(document: MysqlDocument) -> tuple[Access, PreflightReport]:
    try:
        return Access.GRANTED, check_document(document, resume_from=None)
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


def _scalar(value: str) -> str:
    """A text as YAML, in quotes: any text is read as itself."""
    return yaml.safe_dump(value, default_style='"', allow_unicode=True, width=10**9).strip()


def _pattern(database: str) -> str:
    return yaml.safe_dump(re.escape(database) + r"\..*", default_style="'", allow_unicode=True, width=10**9).strip()


def _source_text(url: DatabaseUrl, password: str, tls_ca_file: str | None) -> str:
    tls = f"  tls_ca_file: {_scalar(tls_ca_file)}\n" if tls_ca_file is not None else ""
    return (
        "# The database that is followed; shop.yaml.example beside this file shows every setting.\n"
        "kind: mysql\n"
        "database:\n"
        f"  host: {_scalar(url.host)}\n"
        f"  port: {url.port}\n"
        f"  user: {_scalar(url.user)}\n"
        f"  password: {_scalar(password)}\n"
        f"{tls}"
        '# Regular expressions, each matched against the whole "database.table".\n'
        f"include_tables: [{_pattern(url.database)}]\n"
    )


def _tenant_text(tenant: str, source: str, database: str) -> str:
    return (
        "# yaml-language-server: $schema=../tenant.schema.json\n"
        "# The rows and columns of one tenant; acme.yaml.example beside this file shows every setting.\n"
        f"tenant: {_scalar(tenant)}\n"
        "sources:\n"
        f"  - name: {_scalar(source)}\n"
        f"    include_tables: [{_pattern(database)}]\n"
        "sink: {warehouse: iceberg, mode: mirror, trigger_s: 5}\n"
    )


def _account_text(source: str, statements: tuple[str, ...]) -> str:
    lines = "".join(f"{statement};\n" for statement in statements)
    return (
        f"-- The account of sources/{source}.yaml, to be made by an administrator. It holds the password.\n"
        "-- MySQL before 8.0.23 has no FLUSH_TABLES: write RELOAD instead.\n"
        f"{lines}"
    )
