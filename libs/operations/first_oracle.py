"""``headwater init oracle://…``: the account and the documents of an Oracle database."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from libs.errors import InvalidSettings
from libs.mesh.documents import OracleDocument, SourceDocument
from libs.mysql.preflight import PreflightReport
from libs.operations.database_url import DatabaseUrl, scalar
from libs.operations.preflight import preflight
from libs.oracle.grants import create_user, grant_statements, is_common


class OracleServer:
    """See ``libs.operations.first_source.Server``."""

    shown_url = "oracle://user@host/service"
    default_port = 1521
    product = "Oracle"

    def mistakes(self, url: DatabaseUrl) -> list[str]:
        """A URL names a service, and a schema where only one is captured. The user's name and password fit a statement."""
        mistakes = []
        if len(url.path) not in (1, 2) or not all(url.path):
            mistakes.append(f"must name a service, and may name a schema after it; write {self.shown_url}")
        if url.user:
            try:
                create_user(url.user, url.password or "x")
            except ValueError as error:
                mistakes.append(str(error))
        return mistakes

    def name(self, url: DatabaseUrl) -> str:
        """The schema's, or else the service's without its domain."""
        return url.path[-1].split(".", 1)[0]

    def pattern(self, url: DatabaseUrl) -> str:
        """Every table of the schema, or of all schemas but Oracle's own."""
        return re.escape(url.path[1]) + r"\..*" if len(url.path) > 1 else ".*"

    def account(self, url: DatabaseUrl, password: str) -> tuple[str, ...]:
        """See ``libs.oracle.grants``."""
        return (create_user(url.user, password), *grant_statements(url.user))

    def account_notes(self) -> Sequence[str]:
        """What an administrator has to know."""
        return (
            "Instead of SELECT ANY TABLE and FLASHBACK ANY TABLE, each captured table will do:",
            "  GRANT SELECT, FLASHBACK ON <schema>.<table> TO <user>;",
        )

    def administrators_command(self, url: DatabaseUrl, account_file: Path) -> str:
        """Carries the account's statements out."""
        return f"sqlplus sys@//{url.host}:{url.port}/{url.path[0]} as sysdba @{shlex.quote(str(account_file))}"

    def source_text(self, url: DatabaseUrl, password: str, pattern: str, tls_ca_file: str | None) -> str:
        """The source's document.

        Raises:
            InvalidSettings: TLS is asked for.
        """
        if tls_ca_file is not None:
            raise InvalidSettings("--tls-ca-file", ["is for MySQL: TLS (TCPS) is not offered for Oracle yet"])
        pdb = (
            "  # pdb_name: ERP                  # the pluggable database whose tables are captured\n"
            if is_common(url.user)
            else ""
        )
        return (
            "# The database that is followed; docs/oracle.md shows every setting.\n"
            "kind: oracle\n"
            "database:\n"
            f"  host: {scalar(url.host)}\n"
            f"  port: {url.port}\n"
            f"  service_name: {scalar(url.path[0])}\n"
            f"{pdb}"
            f"  user: {scalar(url.user)}\n"
            f"  password: {scalar(password)}\n"
            '# Regular expressions, each matched against the whole "SCHEMA.TABLE", in the case that Oracle has.\n'
            f"include_tables: [{pattern}]\n"
        )

    def password(self, document: SourceDocument, url: DatabaseUrl) -> str | None:
        """Of a document that follows the URL's server; None: it follows another one."""
        if not isinstance(document, OracleDocument):
            return None
        there = document.database
        is_same = (there.host, there.port, there.service_name) == (url.host, url.port, url.path[0])
        return there.password.reveal() if is_same else None

    def check(self, document: SourceDocument) -> PreflightReport:
        """The pre-flight. Raises as ``libs.operations.preflight.preflight``."""
        return preflight(document)
