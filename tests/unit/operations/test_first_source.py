"""The address of a database, read; and the statements of its account."""

import re
from pathlib import Path

import pytest
import yaml

from libs.errors import InvalidSettings
from libs.mesh.documents import NAME_PATTERN, MysqlDocument, convert_source
from libs.mysql.grants import FOLLOWING, LOCKING, READING, create_user, grant_statements
from libs.operations import first_source
from libs.operations.database_url import DatabaseUrl, pattern_scalar
from libs.operations.first_source import read_url, source_name

ROOT = Path(__file__).parents[3]
GRANT = re.compile(r"GRANT ([A-Z_, ]+?) ON \*\.\*")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mysql://u@h/shop", DatabaseUrl("h", 3306, "u", None, ("shop",))),
        ("mysql://u:@h:3307/shop", DatabaseUrl("h", 3307, "u", "", ("shop",))),
        ("mysql://u%40x:p%2F%3A@h/my%20shop", DatabaseUrl("h", 3306, "u@x", "p/:", ("my shop",))),
        ("mysql://u@[::1]:3306/shop/", DatabaseUrl("::1", 3306, "u", None, ("shop",))),
        ("oracle://u@h/ORCL", DatabaseUrl("h", 1521, "u", None, ("ORCL",), "oracle")),
        (
            "oracle://c%23%23u:p@h:1522/orcl.example/ERP",
            DatabaseUrl("h", 1522, "c##u", "p", ("orcl.example", "ERP"), "oracle"),
        ),
    ],
)
def test_a_url_gives_its_parts(url: str, expected: DatabaseUrl) -> None:
    assert read_url(url) == expected


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("shop", "begins with 'nothing'"),
        ("postgres://u@h/shop", "begins with 'postgres'"),
        ("oracle://u@h/", "must name a service"),
        ("oracle://u@h/a/b/c", "must name a service"),
        ("oracle://u%20x:pass-word@h/ORCL", "a user's name is"),
        ("oracle://u:pass-word%22@h/ORCL", "no double quote"),
        ("mysql://h/shop", "has no user"),
        ("mysql://u@/shop", "has no host"),
        ("mysql://u:pass-word@h/", "must name one database"),
        ("mysql://u:pass-word@h/a/b", "must name one database"),
        ("mysql://u:pass-word@h:port/a", "mysql://user@host/database"),
        ("mysql://u:pass-word@h/a?ssl-mode=required", "after '?'"),
    ],
)
def test_a_wrong_url_is_named_without_its_password(url: str, says: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read_url(url)

    assert says in str(refused.value)
    assert "pass-word" not in str(refused.value)


@pytest.mark.parametrize("database", ["shop", "My_Shop", "ÄÖ", "a" * 64, "_", "2024-orders"])
def test_a_databases_name_gives_a_sources(database: str) -> None:
    assert NAME_PATTERN.fullmatch(source_name(database))


@pytest.mark.parametrize("odd", ["p'w\\d", 'quo"ted', "# none", "- a: {b}", "ü\u2028", "no", "1e3", "%s"])
def test_odd_names_and_passwords_come_back_from_the_document(odd: str) -> None:
    """Though YAML reads such a text as something else outside of quotes."""
    url = DatabaseUrl("db.example", 3306, odd, odd, (f"x{odd}",))
    server = first_source.SERVERS["mysql"]
    mistakes: list[str] = []

    text = server.source_text(url, odd, pattern_scalar(server.pattern(url)), None)
    document = convert_source(yaml.safe_load(text), mistakes)

    assert mistakes == []
    assert isinstance(document, MysqlDocument)
    assert (document.database.user, document.database.password.reveal()) == (odd, odd)
    assert re.fullmatch(document.include_tables[0], f"x{odd}.orders")


def test_a_password_is_a_literal_of_mysql() -> None:
    assert create_user("u", "it's \\ it") == r"CREATE USER IF NOT EXISTS 'u'@'%' IDENTIFIED BY 'it''s \\ it'"


def test_a_databases_name_is_an_identifier() -> None:
    assert grant_statements("u", ["a`b"])[1] == "GRANT SELECT ON `a``b`.* TO 'u'@'%'"


def test_every_page_names_the_privileges_that_the_code_knows() -> None:
    """README, docs and examples that show a whole GRANT show this one. A remedy names a single privilege."""
    known = {privilege.name for privilege in (*FOLLOWING, LOCKING)}
    pages = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("services/*/README.md"),
        *ROOT.glob("libs/mesh/*.py"),
    ]
    shown = {
        str(page.relative_to(ROOT)): {name.strip() for name in grant.split(",")}
        for page in pages
        for grant in GRANT.findall(page.read_text(encoding="utf-8"))
        if READING.name not in grant and "," in grant
    }

    assert shown
    assert {page: names for page, names in shown.items() if names != known} == {}
