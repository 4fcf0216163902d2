"""Settings: from a file and the environment, every mistake at once."""

import enum
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from libs.config.connections import KafkaAccess, KafkaSettings, SecurityProtocol
from libs.config.load import Secret, load_settings
from libs.errors import InvalidSettings


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    host: str = "127.0.0.1"
    port: int = 9092
    password: Secret | None = None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    rows: int = 0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    timeout_s: float = 1.0
    is_fast: bool = False
    names: tuple[str, ...] = ()
    connection: Connection = Connection()
    tables: tuple[Table, ...] = ()


def load(document: str | None, tmp_path: Path, **environ: str) -> Settings:
    path = None
    if document is not None:
        path = tmp_path / "settings.yaml"
        path.write_text(document)
    return load_settings(Settings, path=path, environ=environ, subject="demo")


def mistakes_of(document: str | None, tmp_path: Path, **environ: str) -> tuple[str, ...]:
    with pytest.raises(InvalidSettings) as caught:
        load(document, tmp_path, **environ)
    return caught.value.mistakes


def without_lines(mistakes: Sequence[str]) -> list[str]:
    """Mistakes from their place on."""
    return [re.sub(r"^\S+\.yaml(:\d+)?: ", "", mistake) for mistake in mistakes]


def test_the_environment_wins_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    """Also inside a group, whose other fields keep their values."""
    settings = load(
        "source: erp\nconnection: {host: db, port: 1}\n", tmp_path, HEADWATER_CONNECTION__PORT="2", HOME="/home"
    )

    assert settings == Settings(source="erp", connection=Connection(host="db", port=2))


def test_the_environment_alone_suffices(tmp_path: Path) -> None:
    """Text becomes the field's type."""
    settings = load(None, tmp_path, HEADWATER_SOURCE="erp", HEADWATER_TIMEOUT_S="2.5", HEADWATER_IS_FAST="true")

    assert settings == Settings(source="erp", timeout_s=2.5, is_fast=True)


def test_groups_in_lists_are_read(tmp_path: Path) -> None:
    """Each element is a group of its own."""
    settings = load("source: erp\nnames: [a, b]\ntables: [{name: t}, {name: u, rows: 3}]\n", tmp_path)

    assert settings.names == ("a", "b")
    assert settings.tables == (Table(name="t"), Table(name="u", rows=3))


def test_every_mistake_is_listed_with_its_place(tmp_path: Path) -> None:
    """Missing, misspelt and of a wrong type, at every depth, from file and environment."""
    found = mistakes_of(
        "timeout_s: soon\nconection: {}\nconnection: {prt: 1}\ntables: [{rows: many}]\n",
        tmp_path,
        HEADWATER_SORCE="erp",
    )

    assert sorted(mistake.partition(":")[0] for mistake in without_lines(found)) == [
        "HEADWATER_SORCE",
        "conection",
        "connection.prt",
        "source",
        "tables[0].name",
        "tables[0].rows",
        "timeout_s",
    ]
    assert any("did you mean 'connection'?" in mistake for mistake in found)
    assert any("did you mean 'source'?" in mistake for mistake in found)


def test_a_mistake_of_the_file_has_its_line(tmp_path: Path) -> None:
    """One of the environment has none, though its place is in the file too."""
    found = mistakes_of("source: erp\n\nconnection:\n  port: x\ntimeout_s: 1\n", tmp_path, HEADWATER_TIMEOUT_S="soon")

    assert [mistake.partition(" Expected")[0] for mistake in found] == [
        "timeout_s:",
        f"{tmp_path}/settings.yaml:4: connection.port:",
    ]


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """Which of the two was meant, nobody knows."""
    assert mistakes_of("source: erp\nsource: shop\n", tmp_path) == (
        f"{tmp_path}/settings.yaml:2: source: stands here twice, first in line 1; keep one of them",
    )


@pytest.mark.parametrize(
    ("document", "reason"),
    [("[1, 2]\n", "must be a mapping"), ("a: [\n", "is not YAML"), ("\xff: \x00\n", "is not YAML")],
)
def test_a_file_that_is_no_document_is_refused(tmp_path: Path, document: str, reason: str) -> None:
    """The mistake names the file."""
    found = mistakes_of(document, tmp_path)

    assert reason in found[0]
    assert "settings.yaml" in found[0]


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """Rather than started with defaults."""
    with pytest.raises(InvalidSettings, match="cannot be read"):
        load_settings(Settings, path=tmp_path / "none.yaml", environ={}, subject="demo")


def test_an_empty_file_counts_as_no_settings(tmp_path: Path) -> None:
    """All from defaults and the environment."""
    assert load("", tmp_path, HEADWATER_SOURCE="erp") == Settings(source="erp")


def test_a_secret_does_not_print(tmp_path: Path) -> None:
    """Neither in repr nor in str, nor in its owner's repr."""
    settings = load("source: erp\nconnection: {password: sesame}\n", tmp_path)

    assert settings.connection.password is not None
    assert settings.connection.password.reveal() == "sesame"
    assert "sesame" not in f"{settings} {settings!r} {settings.connection.password}"


def test_variables_that_are_no_settings_are_left_alone(tmp_path: Path) -> None:
    """They belong to failpoints and to the embedded stack."""
    environ = {"HEADWATER_FAILPOINTS": "", "HEADWATER_CACHE": "/cache", "HEADWATER_HOME": "/home"}

    assert load("source: erp\n", tmp_path, **environ) == Settings(source="erp")


def test_a_variable_that_reaches_into_a_plain_setting_is_refused(tmp_path: Path) -> None:
    """``source`` is a text and has no parts."""
    assert "HEADWATER_SOURCE__NAME: source is no group" in " ".join(
        mistakes_of("source: erp\n", tmp_path, HEADWATER_SOURCE__NAME="x")
    )


class Choice(enum.Enum):
    FIRST = "first"
    SECOND = "second"


class Choosing(msgspec.Struct, frozen=True, kw_only=True):
    choice: Choice = Choice.FIRST
    other: Choice | None = None
    kafka: KafkaSettings = KafkaSettings()


class Switch(enum.Enum):
    ON = "on"
    OFF = "off"
    HALF = "half"


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    switch: Switch = Switch.HALF
    names: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("written", "meant"), [("on", Switch.ON), ("false", Switch.OFF), ("'off'", Switch.OFF), ("half", Switch.HALF)]
)
def test_a_choice_that_yaml_reads_as_a_boolean_is_what_was_written(tmp_path: Path, written: str, meant: Switch) -> None:
    """To YAML 1.1 ``on`` is true."""
    path = tmp_path / "settings.yaml"
    path.write_text(f"switch: {written}\n")

    assert load_settings(Switched, path=path, environ={}, subject="demo").switch is meant


def test_a_text_that_yaml_reads_as_a_number_is_told_with_the_remedy(tmp_path: Path) -> None:
    """A shard's name, for one. Quotes make neither a choice nor a list right."""
    path = tmp_path / "settings.yaml"
    path.write_text("names: [-80, 80-]\nswitch: 3\n")

    with pytest.raises(InvalidSettings) as caught:
        load_settings(Switched, path=path, environ={}, subject="demo")

    assert without_lines(caught.value.mistakes) == [
        "switch: Expected `str`, got `int`",
        "names: Expected `str`, got `int` - at `$[0]`; put quotes around it",
    ]
    assert not any("quotes" in mistake for mistake in mistakes_of("source: [a]\n", tmp_path))


def test_a_misspelt_choice_is_told_the_nearest_right_one(tmp_path: Path) -> None:
    """Also where it may be left out."""
    path = tmp_path / "settings.yaml"
    path.write_text("choice: secnd\nother: frist\n")

    with pytest.raises(InvalidSettings) as caught:
        load_settings(Choosing, path=path, environ={}, subject="demo")

    assert without_lines(caught.value.mistakes) == [
        "choice: unknown value 'secnd'; did you mean 'second'?",
        "other: unknown value 'frist'; did you mean 'first'?",
    ]


@pytest.mark.parametrize(
    ("kafka", "mistakes"),
    [
        ("{sasl_username: u, sasl_mechanism: PLAIN}", ["kafka.security_protocol: PLAINTEXT sends no user"]),
        (
            "{security_protocol: SSL, sasl_username: u, sasl_mechanism: PLAIN}",
            ["kafka.security_protocol: SSL sends no user"],
        ),
        ("{security_protocol: SASL_SSL}", ["kafka.security_protocol: SASL_SSL needs a user"]),
        ("{security_protocol: SASL_SSL, sasl_username: u}", ["kafka.sasl_mechanism: is missing"]),
        (
            "{sasl_username: u, sasl_mechanism: PLAIN, ssl_ca_file: ca.pem}",
            [
                "kafka.security_protocol: PLAINTEXT",
                "kafka.ssl_ca_file: is given, and security_protocol PLAINTEXT encrypts",
            ],
        ),
        ("{security_protocol: SASL_SSL, sasl_mechanism: OAUTHBEARER}", ["kafka.oauth: is missing"]),
        (
            "{security_protocol: SASL_SSL, sasl_mechanism: OAUTHBEARER, sasl_username: u, "
            "oauth: {token_url: 'https://idp/token', client_id: h, client_secret: s}}",
            ["kafka.sasl_username: has no effect with OAUTHBEARER"],
        ),
        (
            "{security_protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_username: u, "
            "oauth: {token_url: 'https://idp/token', client_id: h, client_secret: s}}",
            ["kafka.oauth: has no effect without sasl_mechanism OAUTHBEARER"],
        ),
        (
            "{security_protocol: SASL_SSL, sasl_mechanism: OAUTHBEARER, "
            "oauth: {token_url: 'http://idp/token', client_id: h, client_secret: s}}",
            ["kafka.oauth.token_url: http:// sends the client's secret in clear text"],
        ),
        (
            "{security_protocol: SASL_SSL, sasl_mechanism: OAUTHBEARER, "
            "oauth: {token_url: 'idp/token', client_id: h, client_secret: s}}",
            ["kafka.oauth.token_url: is no address"],
        ),
        (
            "{security_protocol: SSL, ssl_certificate_file: c.pem}",
            ["kafka.ssl_certificate_file: goes with ssl_key_file"],
        ),
        (
            "{ssl_certificate_file: c.pem, ssl_key_file: k.pem}",
            ["kafka.ssl_certificate_file: is given, and security_protocol PLAINTEXT encrypts nothing"],
        ),
        (
            "{security_protocol: SASL_TLS}",
            ["kafka.security_protocol: unknown value 'SASL_TLS'; did you mean 'SASL_SSL'"],
        ),
    ],
)
def test_a_kafka_that_contradicts_itself_is_refused_beside_other_mistakes(
    tmp_path: Path, kafka: str, mistakes: list[str]
) -> None:
    """Kafka's clients would pass the user over, or send a password unencrypted, without a word."""
    path = tmp_path / "settings.yaml"
    path.write_text(f"choice: thrd\nkafka: {kafka}\n")

    with pytest.raises(InvalidSettings) as caught:
        load_settings(Choosing, path=path, environ={}, subject="demo")

    assert all(
        found.startswith(wanted)
        for found, wanted in zip(without_lines(caught.value.mistakes)[1:], mistakes, strict=True)
    )


def test_a_user_without_a_protocol_goes_by_sasl() -> None:
    """Somebody else's Kafka comes as an address, a user, a password."""
    with_user = KafkaAccess(bootstrap_servers="k:1", username="u", password=Secret("p")).as_kafka()
    without = KafkaAccess(bootstrap_servers="k:1").as_kafka()

    assert (with_user.security_protocol, with_user.sasl_mechanism) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert (without.security_protocol, without.sasl_mechanism) == ("PLAINTEXT", None)


def test_a_user_whose_protocol_sends_none_is_refused() -> None:
    """The same contradictions as of Headwater's own Kafka."""
    with pytest.raises(InvalidSettings, match="security_protocol: SSL sends no user: take SASL_SSL"):
        KafkaAccess(bootstrap_servers="k:1", username="u", security_protocol=SecurityProtocol.SSL)
