"""``headwater dts``: a slice of a DTS subscription into a file, and from a file into a topic."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from libs.cli.answer import answer, json_option
from libs.cli.terminal import echo
from libs.config.connections import KafkaAccess, KafkaSettings, SaslMechanism, SecurityProtocol
from libs.config.load import Secret
from libs.stand_ins.dts.recording import Masker, Slice, heading_of, read_recording, read_slice, replay, write_recording


@click.group()
def dts() -> None:
    """Record a Tencent DTS subscription, and play a recording into a topic."""


def _connection(
    bootstrap_servers: str,
    username: str | None,
    password: str,
    mechanism: str,
    protocol: str | None,
    ca_file: str | None,
) -> KafkaSettings:
    return KafkaAccess(
        bootstrap_servers=bootstrap_servers,
        username=username,
        password=Secret(password),
        security_protocol=None if protocol is None else SecurityProtocol(protocol),
        sasl_mechanism=SaslMechanism(mechanism),
        ssl_ca_file=ca_file,
    ).as_kafka()


_connection_options = (
    click.option("--bootstrap-servers", required=True, help="host:port of the Kafka."),
    click.option("--topic", required=True),
    click.option("--username", help="As DTS's console shows it; without a user there is no authentication."),
    click.option("--password", envvar="HEADWATER_DTS_PASSWORD", default="", help="Better as HEADWATER_DTS_PASSWORD."),
    click.option(
        "--sasl-mechanism",
        type=click.Choice([each.value for each in SaslMechanism if each.has_password]),
        default=SaslMechanism.SCRAM_SHA_512.value,
        show_default=True,
    ),
    click.option(
        "--security-protocol",
        type=click.Choice([each.value for each in SecurityProtocol]),
        help="Default: SASL_PLAINTEXT with a user, else PLAINTEXT.",
    ),
    click.option(
        "--ssl-ca-file", help="Certificate authority of the brokers (PEM); else those that the machine trusts."
    ),
)


_Command = TypeVar("_Command", bound=Callable[..., object])


def _with_connection(command: _Command) -> _Command:
    for option in reversed(_connection_options):
        command = option(command)
    return command


@dts.command()
@json_option
@_with_connection
@click.option("--group", "group_id", required=True, help="Consumer group; its offset is left as it is.")
@click.option("--partition", type=click.IntRange(0), default=0, show_default=True)
@click.option("--from-offset", type=click.IntRange(0), help="First message; by default the oldest that is there.")
@click.option("--max-messages", type=click.IntRange(1), default=1_000, show_default=True)
@click.option("--max-mb", type=click.IntRange(1), default=64, show_default=True)
@click.option("--mask", is_flag=True, help="Replace every value by another of its kind and length.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def record(
    bootstrap_servers: str, topic: str, username: str | None, password: str, sasl_mechanism: str,
    security_protocol: str | None, ssl_ca_file: str | None, group_id: str, partition: int, from_offset: int | None,
    max_messages: int, max_mb: int, mask: bool, file: Path,
) -> None:  # fmt: skip
    """Save a bounded slice of a subscription to FILE.

    With --mask equal values stay equal. Names of tables and columns, and DDL statements, are not masked. A message that
    cannot be read is left out.
    """
    if file.exists():
        raise click.UsageError(f"{file} is there already, and a recording is never overwritten: name another file")
    wanted = Slice(topic, partition, from_offset, max_messages, max_mb << 20)
    connection = _connection(bootstrap_servers, username, password, sasl_mechanism, security_protocol, ssl_ca_file)
    messages = read_slice(connection, wanted, group_id=group_id)
    if mask:
        messages = Masker(secrets.token_bytes(32)).masked(messages)
    count = write_recording(file, heading_of(wanted, is_masked=mask), messages)
    echo(f"{count:,} messages of {topic}[{partition}] in {file}{', masked' if mask else ''}")
    answer({"file": file, "topic": topic, "kafka_partition": partition, "messages": count, "is_masked": mask})


@dts.command("replay")
@json_option
@_with_connection
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def replay_command(
    bootstrap_servers: str, topic: str, username: str | None, password: str, sasl_mechanism: str,
    security_protocol: str | None, ssl_ca_file: str | None, file: Path,
) -> None:  # fmt: skip
    """Send the messages of FILE to a topic, with their partitions and DTS's counts. A missing topic is created."""
    _, messages = read_recording(file)
    connection = _connection(bootstrap_servers, username, password, sasl_mechanism, security_protocol, ssl_ca_file)
    sent = replay(connection, topic, messages)
    left_out = len(messages) - sent
    echo(f"{sent:,} messages to {topic}" + (f"; {left_out:,} were left out when they were masked" if left_out else ""))
    answer({"topic": topic, "sent": sent, "left_out": left_out})
