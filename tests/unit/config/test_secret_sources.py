"""Secrets from the environment, a file or a command; placeholders that nothing replaces are refused."""

from pathlib import Path

import msgspec
import pytest

from libs.config.load import Secret, convert_document
from libs.config.secret_sources import read_secret


class Database(msgspec.Struct, frozen=True, kw_only=True):
    """As a source's document has it."""

    user: str
    password: Secret = Secret("")
    token: Secret | None = None


class Source(msgspec.Struct, frozen=True, kw_only=True):
    database: Database


def converted(database: dict[str, object]) -> tuple[Source | None, list[str]]:
    mistakes: list[str] = []
    found = convert_document(Source, {"database": {"user": "u", **database}}, place="", mistakes=mistakes)
    return found, mistakes


def test_each_place_gives_the_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A last line break does not count; any characters are taken."""
    monkeypatch.setenv("SHOP_PASSWORD", "pä→€")
    (tmp_path / "token").write_text("日本\n", encoding="utf-8")
    found, mistakes = converted(
        {"password_from": {"env": "SHOP_PASSWORD"}, "token_from": {"file": str(tmp_path / "token")}}
    )

    assert mistakes == []
    assert found is not None
    assert (found.database.password.reveal(), found.database.token and found.database.token.reveal()) == (
        "pä→€",
        "日本",
    )
    assert read_secret({"command": "printf '%s\n' 'a b'"}) == "a b"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"env": "NO_SUCH_VARIABLE"}, "the environment has no NO_SUCH_VARIABLE"),
        ({"file": "/no/such/file"}, "/no/such/file cannot be read: No such file or directory"),
        ({"command": "/no/such/command"}, "the command cannot be run: No such file or directory"),
        ({"command": "sh -c 'echo secret; exit 3'"}, "the command ended with code 3"),
        ({"command": "true"}, "command true is empty"),
        ({"vault": "x"}, "must be one of"),
        ({"env": "A", "file": "b"}, "must be one of"),
        ("A", "must be one of"),
    ],
)
def test_a_secret_that_cannot_be_read_is_a_mistake(source: object, says: str) -> None:
    """With the place, and without a command's output."""
    found, mistakes = converted({"password_from": source})

    assert found is None
    assert len(mistakes) == 1
    assert mistakes[0].startswith("database.password_from: ")
    assert says in mistakes[0]
    assert "secret" not in mistakes[0].partition(": ")[2]


def test_a_secret_is_named_once() -> None:
    _, mistakes = converted({"password": "x", "password_from": {"env": "HOME"}})

    assert mistakes == ["database.password_from: password stands there too; leave one of them out"]


@pytest.mark.parametrize("text", ["${DB_PASSWORD}", "$DB_PASSWORD", "${env:DB_PASSWORD}"])
def test_a_placeholder_is_refused_with_what_to_write(text: str) -> None:
    """It would be taken literally, and the server's refusal gives nobody the reason."""
    _, mistakes = converted({"password": text})

    assert len(mistakes) == 1
    assert "is not replaced here: write password_from: {env: " in mistakes[0]


def test_only_secrets_are_read_from_elsewhere() -> None:
    _, mistakes = converted({"user_from": {"env": "USER"}})

    assert len(mistakes) == 1
    assert "database.user_from: unknown name" in mistakes[0]
