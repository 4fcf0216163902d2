"""``headwater init mysql://…``: the account and the documents of a MySQL server."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from libs.errors import InvalidSettings
from libs.mesh.documents import MysqlDocument, SourceDocument
from libs.mysql.grants import create_user, grant_statements
from libs.mysql.preflight import PreflightReport
from libs.operations.database_url import DatabaseUrl, scalar
from libs.operations.mysql_preflight import check_document


class MysqlServer:
    """See ``libs.operations.first_source.Server``."""

    shown_url = "mysql://user@host/database"
    default_port = 3306
    product = "MySQL"

    def mistakes(self, url: DatabaseUrl) -> list[str]:
        """A URL names one database."""
        is_one = len(url.path) == 1 and url.path[0]
        return [] if is_one else [f"must name one database; write {self.shown_url}"]

    def name(self, url: DatabaseUrl) -> str:
        """The database's."""
        return url.path[0]

    def pattern(self, url: DatabaseUrl) -> str:
        """Every table of the database."""
        return re.escape(url.path[0]) + r"\..*"

    def account(self, url: DatabaseUrl, password: str) -> tuple[str, ...]:
        """See ``libs.mysql.grants``."""
        return (create_user(url.user, password), *grant_statements(url.user, [url.path[0]]))

    def account_notes(self) -> Sequence[str]:
        """What an administrator has to know."""
        return ("MySQL before 8.0.23 has no FLUSH_TABLES: write RELOAD instead.",)

    def administrators_command(self, url: DatabaseUrl, account_file: Path) -> str:
        """Carries the account's statements out."""
        return f"mysql -h {url.host} -P {url.port} -u root -p < {shlex.quote(str(account_file))}"

    def source_text(self, url: DatabaseUrl, password: str, pattern: str, tls_ca_file: str | None) -> str:
        """The source's document."""
        tls = f"  tls_ca_file: {scalar(tls_ca_file)}\n" if tls_ca_file is not None else ""
        return (
            "# The database that is followed; shop.yaml.example beside this file shows every setting.\n"
            "kind: mysql\n"
            "database:\n"
            f"  host: {scalar(url.host)}\n"
            f"  port: {url.port}\n"
            f"  user: {scalar(url.user)}\n"
            f"  password: {scalar(password)}\n"
            f"{tls}"
            '# Regular expressions, each matched against the whole "database.table".\n'
            f"include_tables: [{pattern}]\n"
        )

    def password(self, document: SourceDocument, url: DatabaseUrl) -> str | None:
        """Of a document that follows the URL's server; None: it follows another one."""
        if not isinstance(document, MysqlDocument):
            return None
        there = document.database
        return there.password.reveal() if (there.host, there.port) == (url.host, url.port) else None

    def check(self, document: SourceDocument) -> PreflightReport:
        """The pre-flight. Raises as ``libs.operations.preflight.preflight``."""
        if not isinstance(document, MysqlDocument):
            raise InvalidSettings("URL", ["its document is of another kind"])
        return check_document(document, resume_from=None)
