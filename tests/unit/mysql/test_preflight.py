"""The pre-flight refuses servers that it cannot follow by their version alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from libs.mysql.preflight import check_source, seeing_grant


class Server:
    """Answers the first question, about its version, and no other."""

    def __init__(self, version: str, comment: str) -> None:
        self._answer = (version, comment)

    @contextmanager
    def cursor(self) -> Iterator["Server"]:
        yield self

    def execute(self, statement: str) -> None:
        assert statement == "SELECT VERSION(), @@version_comment"

    def fetchall(self) -> list[tuple[Any, ...]]:
        return [self._answer]


@pytest.mark.parametrize(
    ("version", "comment", "says"),
    [
        ("5.7.44-log", "MySQL Community Server", "older than 8.0"),
        ("5.6.51", "Percona Server", "older than 8.0"),
        ("10.11.6-MariaDB-1", "Debian 12", "MariaDB"),
        ("11.4.2", "mariadb.org binary distribution", "MariaDB"),
    ],
)
def test_other_servers_are_refused_before_their_settings_are_asked(version: str, comment: str, says: str) -> None:
    report = check_source(Server(version, comment))  # type: ignore[arg-type]

    assert len(report.faults) == 1
    assert says in report.faults[0].what


@pytest.mark.parametrize(
    ("grants", "missing"),
    [
        (
            ["GRANT REPLICATION SLAVE ON *.* TO `h`@`%`", "GRANT SELECT ON `d`.* TO `h`@`%`"],
            "SHOW VIEW, TRIGGER, SHOW_ROUTINE",
        ),
        (["GRANT SELECT, SHOW VIEW ON *.* TO `h`@`%`", "GRANT TRIGGER ON `d`.* TO `h`@`%`"], "TRIGGER"),
        (["GRANT SHOW VIEW, TRIGGER ON *.* TO `h`@`%`", "GRANT SHOW_ROUTINE ON *.* TO `h`@`%`"], ""),
        (["GRANT ALL PRIVILEGES ON *.* TO `h`@`%`"], ""),
    ],
)
def test_the_rights_to_see_what_a_statement_reaches_are_named(grants: list[str], missing: str) -> None:
    """SELECT on the whole server shows routines, as SHOW_ROUTINE does."""
    assert seeing_grant(grants) == (f"GRANT {missing} ON *.* TO `h`@`%`" if missing else "")
