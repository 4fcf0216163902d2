"""Files that somebody else wrote, given to the commands and readers that take them: refused in words or read, never a crash.

    python -m tests.fuzz.foreign [--rounds N] [--seed S]

A round changes a good file somewhere: a byte, a key, a value at its edge, a bomb in its place. The outcome is a value or one
of our errors; no line of ours is made by a text of theirs, and memory stays bounded.
"""

import argparse
import io
import json
import random
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml
import zstandard

from libs.config.yaml_text import parse_yaml
from libs.errors import HeadwaterError, InvalidSettings
from libs.formats.protobuf_schema import read_protobuf_schema
from libs.mesh.mesh_settings import mesh_settings, mesh_sources
from libs.migrate.migrate import migrate
from libs.mysql.transaction_payload import inner_events
from libs.stand_ins.dts.recording import Masker, read_recording

CONNECTOR: Final[dict[str, Any]] = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "database.hostname": "db.internal",
    "database.port": 3307,
    "database.user": "debezium",
    "database.password": "s3cret",
    "database.server.id": "184054",
    "topic.prefix": "shop",
    "table.include.list": "shop.orders,shop\\.customers",
    "snapshot.select.statement.overrides.shop.orders": "SELECT * FROM shop.orders WHERE id > 9",
    "message.key.columns": "shop.orders:id,region;(.*).customers:email;",
    "column.mask.with.12.chars": "shop.customers.phone",
    "heartbeat.interval.ms": 10000,
    "custom.metric.tags": "team=billing, region=eu",
    "event.converting.failure.handling.mode": "warn",
}
VITESS: Final[dict[str, Any]] = {
    "connector.class": "io.debezium.connector.vitess.VitessConnector",
    "database.hostname": "vtgate",
    "topic.prefix": "shop",
    "vitess.keyspace": "commerce",
    "vitess.offset.storage.per.task": "true",
}
OFFSETS: Final[dict[str, Any]] = {
    "offsets": [
        {
            "partition": {"server": "shop", "task_key": "task0_2_0"},
            "offset": {
                "vgtid": '[{"keyspace":"commerce","shard":"-80","gtid":"MySQL56/a:1-3"}]',
                "transaction_epoch": 1,
            },
        }
    ]
}
MESH: Final = """kafka: {bootstrap_servers: 'kafka:9092'}
sources:
  shop: {kind: mysql, database: {host: db, user: reader, password: x}}
warehouses: {delta: {warehouse_dir: /lake}}
"""
RECORDING: Final = (
    '{"format":"headwater-dts-recording","version":1,"topic":"t","is_masked":false,"recorded_at_us":1}\n'
    '{"partition":0,"offset":3,"ps":7,"value_hex":"0801100118002202"}\n'
)
PROTO: Final = """syntax = "proto3";
package s.d.t;
message Envelope {
  optional Value before = 1;
  message Value { int64 id = 1; }
}
"""
EDGES: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0, 10**30, 1e308, [], {}, [[]], {"a\nb": "c"}),
    *("", " ", "\n", "'", '"', "#", "*a", "&a", "\r# w", "\u2028x", "\x85y: z", "\x1b]0;t\x07", "\ud800"),
    *("a\nb: [c]\n- d", "!!python/object/apply:os.system ['true']", "${env:HOME}", "x" * 70_000, "9" * 5_000),
)
_BOMBS: Final = (
    "[" * 100_000,
    "[" * 100_000 + "]" * 100_000,
    '{"a":' * 50_000,
    "a: &a [x]\n"
    + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12)),
    "{" * 50_000,
    "- " * 50_000,
    "? " * 20_000,
    "message A {" * 20_000,
)


def changed(rng: random.Random, value: Any) -> Any:
    """A JSON value with something in it otherwise."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice([*value])
        form = rng.randrange(4)
        if form == 0:
            return {**value, key: changed(rng, value[key])}
        if form == 1:
            return {
                (rng.choice(("", "\n", "a\nb: c")) + str(name) if name == key else name): v for name, v in value.items()
            }
        if form == 2:
            return {name: v for name, v in value.items() if name != key}
        return {
            **value,
            f"{key}{rng.choice(('', '.', chr(10), '.x' + chr(10) + 'include_tables: [z]'))}": rng.choice(EDGES),
        }
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], changed(rng, value[at]), *value[at + 1 :]]
    return rng.choice(EDGES)


def noisy(rng: random.Random, text: str) -> str:
    """A text with something in it otherwise, or a bomb."""
    form = rng.randrange(5)
    at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    if form == 0:
        return text[:at] + text[end:]
    if form == 1:
        return text[:at] + str(rng.choice(EDGES)) + text[at:]
    if form == 2:
        return rng.choice(_BOMBS)
    if form == 3:
        return text[:at] + rng.choice(_BOMBS) + text[at:]
    return text[:at] + chr(rng.choice((0, 9, 10, 13, 34, 39, 58, 91, 123, 0x85, 0x2028, 0xFEFF))) + text[at:]


def migrated(rng: random.Random) -> None:
    """Of a connector's JSON. The file written is the document that was meant, with any texts in it."""
    is_vitess = rng.random() < 0.3
    config = VITESS if is_vitess else CONNECTOR
    for _ in range(rng.randrange(1, 4)):
        changed_config = changed(rng, config)
        config = changed_config if isinstance(changed_config, dict) else config
    wrapped: dict[str, Any] = {"name": rng.choice(("shop", "a\nb", "../x")), "config": config}
    given = json.dumps(rng.choice((config, wrapped)))
    given = noisy(rng, given) if rng.random() < 0.3 else given
    offsets = json.dumps(changed(rng, OFFSETS)) if is_vitess else None
    offsets = noisy(rng, offsets) if offsets is not None and rng.random() < 0.3 else offsets
    try:
        migration = migrate(given, subject="connector.json", offsets=offsets)
    except InvalidSettings:
        return
    written = migration.text()
    written.encode()
    assert yaml.safe_load(written) == yaml.safe_load(yaml.safe_dump(migration.document, allow_unicode=True)), written
    assert "/" not in migration.source
    assert "s3cret" not in written


def mesh_file(rng: random.Random, folder: Path) -> None:
    """A file for ``--mesh``."""
    file = folder / "mesh.yaml"
    file.write_text(noisy(rng, MESH), encoding="utf-8", errors="surrogatepass")
    settings = mesh_settings(file, {})
    mesh_sources(settings)


def document(rng: random.Random) -> None:
    """YAML of any kind."""
    parse_yaml(noisy(rng, MESH), mistakes=[])


def recording(rng: random.Random, folder: Path) -> None:
    """A recording of a subscription."""
    file = folder / "recording.jsonl"
    lines = [json.dumps(changed(rng, json.loads(line))) for line in RECORDING.splitlines()]
    text = noisy(rng, RECORDING) if rng.random() < 0.5 else "\n".join(lines)
    file.write_bytes(text.encode(errors="surrogatepass"))
    _, messages = read_recording(file)
    for each in Masker(b"salt").masked(messages):
        assert 0 <= each.partition <= 10_000
        assert isinstance(each.value, bytes)


def compressed(rng: random.Random) -> None:
    """A compressed transaction of a log, cut, damaged, or of zeros without end."""
    body = rng.choice((bytes(1 << 20), rng.randbytes(900), b"\xff" * 4_000, bytes(13) + b"\x13\x00\x00\x00\x00\x00"))
    stream = zstandard.compress(body)
    stream = stream[: rng.randrange(len(stream) + 1)] if rng.random() < 0.3 else stream
    head = bytes((2, 1, rng.choice((0, 0, 0, 255, 7)), 1, 9, 254)) + len(stream).to_bytes(8, "little") + b"\x00"
    data = bytearray(head + stream)
    if rng.random() < 0.5:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    for _ in inner_events(io.BytesIO(bytes(data)), 4):
        pass


def protobuf_schema(rng: random.Random) -> None:
    """A schema that a registry has."""
    try:
        read_protobuf_schema(noisy(rng, PROTO))
    except ValueError:
        return


def play(rounds: int, seed: int) -> None:
    """Raises AssertionError, or the unforeseen error, with the round."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kinds: tuple[Callable[[random.Random], None], ...] = (
            migrated,
            migrated,
            lambda rng: mesh_file(rng, folder),
            document,
            lambda rng: recording(rng, folder),
            compressed,
            protobuf_schema,
        )
        for number in range(rounds):
            rng = random.Random(f"{seed}/{number}")
            try:
                kinds[number % len(kinds)](rng)
            except HeadwaterError:
                continue
            except BaseException as error:
                error.add_note(f"round {number} of seed {seed}")
                raise


def main(argv: list[str]) -> int:
    """The exit code: 0, every round held."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.foreign")
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    play(given.rounds, given.seed)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sys.stdout.write(f"{given.rounds} files read or refused in words; {kilobytes >> 10} MB at most\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
