"""A Vitess connector of Debezium's becomes a good document, which goes on where the connector stood."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from libs.cli.main import headwater
from libs.errors import InvalidSettings
from libs.mesh.documents import VitessDocument, read_documents
from libs.mesh.home import home_at, write_examples
from libs.migrate.carry import Migration
from libs.migrate.migrate import migrate
from libs.migrate.properties import Where, find
from libs.migrate.vitess_properties import VITESS_PROPERTIES
from libs.source.vitess.vgtid import parse_vgtid

GOLDEN = Path(__file__).parents[2] / "golden" / "debezium-vitess"
LISTED = (GOLDEN / "properties.txt").read_text(encoding="utf-8").splitlines()
HOST = "11111111-1111-1111-1111-111111111111"
CLASS = "io.debezium.connector.vitess.VitessConnector"
TRANSFORMS = "io.debezium.connector.vitess.transforms"
CONNECTOR = {
    "connector.class": CLASS,
    "tasks.max": "1",
    "database.hostname": "vtgate.internal",
    "database.port": 15999,
    "database.user": "debezium",
    "database.password": "dbz-s3cret",
    "vitess.keyspace": "commerce",
    "vitess.shard": "-80,80-",
    "vitess.tablet.type": "MASTER",
    "vitess.stop_on_reshard": "true",
    "vitess.keepalive.interval.ms": "30000",
    "vitess.grpc.headers": "X-Region:eu,x-team:a",
    "vitess.grpc.max_inbound_message_size": "8388608",
    "vitess.stream.keyspace.heartbeats": "true",
    "vitess.exclude.keyspace.from.table.name": "false",
    "vitess.grpc.default.load.balancing.policy": "round_robin",
    "vitess.inherit.epoch": "true",
    "topic.prefix": "shop",
    "table.include.list": "commerce.orders,commerce\\.customers",
    "snapshot.mode": "initial",
    "snapshot.include.collection.list": "commerce.orders",
    "provide.transaction.metadata": "true",
    "transaction.metadata.factory": "io.debezium.connector.vitess.pipeline.txmetadata.VitessOrderedTransactionMetadataFactory",
    "transforms": "local,slim,quiet,route",
    "transforms.local.type": f"{TRANSFORMS}.UseLocalVgtid",
    "transforms.slim.type": f"{TRANSFORMS}.RemoveField",
    "transforms.slim.field_names": "ts_ns, source.sequence",
    "transforms.quiet.type": f"{TRANSFORMS}.FilterTransactionTopicRecords",
    "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "event.processing.failure.handling.mode": "warn",
    "heartbeat.interval.ms": "5000",
    "message.key.columns": "commerce.orders:id,region",
    "custom.metric.tags": "team=billing",
    "tombstones.on.delete": "false",
    "max.batch.size": "2048",
}


def migrated(offsets: str | None = None, **changed: str) -> Migration:
    return migrate(json.dumps({**CONNECTOR, **changed}), subject="connector.json", offsets=offsets)


def test_every_property_of_the_connector_has_its_place() -> None:
    """As its own classes list them."""
    assert [name for name in LISTED if find(name, VITESS_PROPERTIES) is None] == []


def test_the_page_names_every_property_of_the_table() -> None:
    """A property that `migrate` reports is found there."""
    page = (Path(__file__).parents[3] / "docs" / "debezium-vitess-properties.md").read_text(encoding="utf-8")
    named = re.findall(r"`([^`]+)`", page)
    lacking = [
        name for name in LISTED if not any(re.fullmatch(re.escape(each).replace(r"\*", ".+"), name) for each in named)
    ]

    assert not lacking


def test_a_connector_becomes_the_document_that_says_the_same() -> None:
    """No secret is in it. All that is not carried over is reported, and nothing else."""
    found = migrated()

    assert found.document == {
        "kind": "vitess",
        "vtgate": {
            "host": "vtgate.internal",
            "port": 15999,
            "user": "debezium",
            "password": "change-me",
            "keepalive_s": 30.0,
            "headers": {"x-region": "eu", "x-team": "a"},
            "max_message_bytes": 8388608,
        },
        "keyspace": "commerce",
        "shards": ["-80", "80-"],
        "stream": {
            "tablet_type": "primary",
            "stop_on_reshard": True,
            "stream_keyspace_heartbeats": True,
            "exclude_keyspace_from_table_name": False,
        },
        "include_tables": ["commerce.orders", "commerce\\.customers"],
        "snapshot": {"mode": "initial", "include_tables": ["commerce.orders"]},
        "events": {
            "transaction_metadata": "ordered",
            "use_local_vgtid": True,
            "remove_fields": ["ts_ns", "source.sequence"],
            "filter_transaction_topic": True,
        },
        "failure_handling": "warn",
        "heartbeat_interval_s": 5.0,
        "key_columns": [{"tables": "commerce.orders", "columns": "id|region"}],
        "metric_tags": {"team": "billing"},
    }
    assert "dbz-s3cret" not in found.text()
    assert any(line.startswith("tombstones.on.delete = false: format.tombstones") for line in found.tenant)
    assert not any("TRUNCATE" in line for line in found.tenant)  # a keyspace's is no event, there as here
    assert [line.split(":")[0] for line in found.left_out] == [
        "vitess.grpc.default.load.balancing.policy = round_robin",
        "transforms",
        "transforms.route.type",
        "the connector's offsets",
    ]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"vitess.keyspce": "x"}, "did you mean 'vitess.keyspace'?"),
        ({"vitess.tablet.type": "MASTR"}, "did you mean 'master'?"),
        ({"snapshot.mode": "recovery"}, "is no value of it"),
        ({"vitess.stop_on_reshard": "yes"}, "is neither true nor false"),
        ({"vitess.grpc.headers": "x-region"}, "is not <name>:<value>"),
        ({"vitess.vgtid": "[{}]"}, "is no VGTID"),
        ({"vitess.vgtid": '[{"keyspace": "other", "shard": "-80"}]'}, "is of keyspace other"),
        ({"vitess.gtid": f"MySQL56/{HOST}:1-9"}, "needs exactly one shard"),
        ({"tasks.max": "0"}, "is no number of tasks"),
        ({"vitess.offset.storage.per.task": "perhaps"}, "is neither true nor false"),
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        migrated(**changed)

    assert told in str(refused.value)


def test_a_keyspace_has_to_be_named() -> None:
    config = {key: value for key, value in CONNECTOR.items() if key != "vitess.keyspace"}

    with pytest.raises(InvalidSettings, match=r"vitess\.keyspace: is missing"):
        migrate(json.dumps(config), subject="connector.json")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vitess.keepalive.interval.ms", "9223372036854775807"),
        ("vitess.shard.epoch.map", '{"-80": 3}'),
        ("vitess.inherit.epoch", "false"),
        ("snapshot.mode", "custom"),
        ("tasks.max", "3"),
        ("transaction.metadata.factory", "com.example.Factory"),
        ("include.unknown.datatypes", "true"),
        ("heartbeat.action.query", "UPDATE beat SET at = NOW()"),
        ("signal.data.collection", "commerce.signals"),
        ("transforms.slim.field_names", "source.table"),
    ],
)
def test_a_value_that_asks_for_something_else_is_told(key: str, value: str) -> None:
    """By its name, with the reason."""
    starts = (f"{key} = {value}: ", f"{key}: ", f"RemoveField of {value}: ")

    assert any(line.startswith(starts) for line in migrated(**{key: value}).left_out)


def test_an_older_start_gives_way_to_today_s() -> None:
    """``vitess.gtid`` stands there in configurations of several years."""
    vgtid = json.dumps([{"keyspace": "commerce", "gtid": "current"}])

    assert migrated(**{"vitess.gtid": "current"}).document["start_vgtid"] == "current"
    assert migrated(**{"vitess.gtid": "current", "vitess.vgtid": vgtid}).document["start_vgtid"] == vgtid


@pytest.mark.parametrize(
    "known",
    [each for each in VITESS_PROPERTIES if each.where is Where.SOURCE and each.ours],
    ids=lambda each: each.name,
)
def test_every_setting_that_is_named_exists(known: Any) -> None:
    """A setting that is renamed takes its line along."""
    record: Any = VitessDocument
    for step in known.ours.split("."):
        kinds = {each.name: each.type for each in msgspec.structs.fields(record)}
        assert step in kinds
        record = kinds[step]


# --- offsets ---------------------------------------------------------------------------------------------------------------


def entry(shard: str, gtid: str, **rest: Any) -> dict[str, Any]:
    return {"keyspace": "commerce", "shard": shard, "gtid": gtid, "table_p_ks": [], **rest}


def offset(*entries: dict[str, Any], task: str | None = None, server: str = "shop", **rest: Any) -> dict[str, Any]:
    partition = {"server": server} | ({"task_key": task} if task is not None else {})
    return {"partition": partition, "offset": {"transaction_id": None, "vgtid": json.dumps(entries), **rest}}


def rest_answer(*offsets: dict[str, Any]) -> str:
    return json.dumps({"offsets": offsets})


def start_of(found: Migration) -> dict[str, str]:
    return {place.shard: place.gtid for place in parse_vgtid(found.document["start_vgtid"])}


PER_TASK = {"vitess.offset.storage.per.task": "true", "vitess.offset.storage.task.key.gen": "2", "tasks.max": "3"}


def test_streaming_goes_on_where_the_connector_stood() -> None:
    """The stored offset goes before where the connector once began."""
    stored = rest_answer(offset(entry("-80", "MySQL56/a:1-5"), entry("80-", "MySQL56/b:1-7")), offset(server="other"))

    found = migrated(stored, **{"vitess.vgtid": "current"})

    assert start_of(found) == {"-80": "MySQL56/a:1-5", "80-": "MySQL56/b:1-7"}
    assert not any("offsets" in line for line in found.left_out)


@pytest.mark.parametrize("form", ["offsets.json", "records.txt"])
def test_a_connectors_own_offset_becomes_the_start(form: str) -> None:
    """As the connector 3.5.0 stored it after 30 rows of the stand-in: the answer of Connect's REST interface, and the record
    that it is. The keys of several tasks' offsets (``task_key``) are those that the connector's ``VitessPartition`` has."""
    folder = GOLDEN / "offsets"
    stored = (folder / form).read_text(encoding="utf-8")
    told = json.loads((folder / "offsets.json").read_text(encoding="utf-8"))["offsets"][0]["offset"]

    found = migrate((folder / "connector.json").read_text(encoding="utf-8"), subject="connector.json", offsets=stored)

    assert parse_vgtid(found.document["start_vgtid"]) == parse_vgtid(told["vgtid"])
    assert sorted(start_of(found)) == ["-80", "80-"]
    assert [line.partition(": a ")[0] for line in found.left_out if "offsets" in line] == [
        "--offsets: transaction_epoch"
    ]


def test_of_each_shard_the_newest_generation_counts() -> None:
    """Generation 2 was not begun by every task; an offset newer than the configuration is another connector's."""
    stored = rest_answer(
        offset(entry("80-", "MySQL56/b:1-9"), task="task1_3_2"),
        offset(entry("-80", "MySQL56/a:1-3"), entry("80-", "MySQL56/b:1-3")),
        offset(entry("-80", "MySQL56/a:1-7"), task="task0_2_1"),
        offset(entry("80-", "MySQL56/b:1-7"), task="task1_2_1"),
        offset(entry("-80", "MySQL56/a:1-99"), task="task0_4_3"),
    )

    found = migrated(stored, **PER_TASK)

    assert start_of(found) == {"-80": "MySQL56/a:1-7", "80-": "MySQL56/b:1-9"}
    assert found.document["tasks"] == 2
    assert any(line.startswith("tasks.max = 3: there are 2 shard(s)") for line in found.left_out)


def test_the_offsets_topic_s_records_say_the_same() -> None:
    """The last of a key counts, and one without a value takes it away."""

    def record(stored: dict[str, Any], value: str | None = None) -> str:
        return f"{json.dumps(['shop', stored['partition']])}\t{value or json.dumps(stored['offset'])}"

    older, newer = (offset(entry("-80", f"MySQL56/a:1-{n}"), entry("80-", f"MySQL56/b:1-{n}")) for n in (4, 5))
    gone = offset(entry("-80", "MySQL56/a:1-9"), server="gone")

    found = migrated("\n".join([record(older), record(gone), record(newer), record(gone, "null"), ""]))

    assert start_of(found) == {"-80": "MySQL56/a:1-5", "80-": "MySQL56/b:1-5"}


def test_what_is_no_place_is_told() -> None:
    """A copy begins again, `current` is the place when the source is started, epochs begin at 0."""
    key = [{"table_name": "orders", "lastpk": {"fields": [], "rows": []}}]
    stored = rest_answer(
        offset(entry("-80", "MySQL56/a:1-5", table_p_ks=key), entry("80-", "current"), transaction_epoch='{"-80":1}')
    )

    found = migrated(stored)

    assert start_of(found) == {"-80": "", "80-": "current"}
    told = [line for line in found.left_out if line.startswith("--offsets")]
    assert [re.sub(r"^--offsets: ([^:]*):.*", r"\1", line) for line in told] == [
        "transaction_epoch",
        "shard -80",
        "shard 80-",
    ]


@pytest.mark.parametrize(
    ("stored", "changed", "told"),
    [
        ("{}", {}, "has no offsets"),
        ("hello", {}, "line 1 is no record of Connect's offsets topic"),
        (rest_answer(offset(server="w1")), {}, "has no offset of topic.prefix 'shop'; it has those of: w1"),
        (rest_answer(offset(entry("-80", "a"), task="task0_2_1")), {}, "no offset of a connector without tasks"),
        (rest_answer(offset(entry("-80", "a"), task="task0_2_3")), PER_TASK, "no offset of generation 2 or before"),
        (
            rest_answer({"partition": {"server": "shop"}, "offset": {"file": "x"}}),
            {},
            "the offset of shop has no vgtid",
        ),
        (rest_answer({"partition": {"server": "shop"}, "offset": {"vgtid": "x"}}), {}, "is no VGTID"),
        (rest_answer(offset(entry("-80", "MySQL56/a:1"))), {}, "names no place of shard 80-"),
        (rest_answer(offset(entry("-80", "x", keyspace="k2"), entry("80-", "x"))), {}, "is of keyspace k2"),
    ],
)
def test_offsets_that_are_not_the_connectors_are_refused(stored: str, changed: dict[str, str], told: str) -> None:
    """Beginning anywhere else would lose rows or repeat them."""
    with pytest.raises(InvalidSettings) as refused:
        migrated(stored, **changed)

    assert told in str(refused.value)


def test_a_mysql_connector_takes_no_offsets() -> None:
    config = {"database.hostname": "h", "database.user": "u", "topic.prefix": "shop"}

    with pytest.raises(InvalidSettings, match="is for the Vitess connector"):
        migrate(json.dumps(config), subject="connector.json", offsets="{}")


def test_the_command_writes_what_up_would_take(tmp_path: Path) -> None:
    """The document is one that the stack reads without a mistake."""
    home = home_at(tmp_path / "home")
    write_examples(home)
    config, stored = tmp_path / "connector.json", tmp_path / "offsets.json"
    config.write_text(json.dumps({"name": "shop", "config": {**CONNECTOR, **PER_TASK}}))
    stored.write_text(
        rest_answer(
            offset(entry("-80", f"MySQL56/{HOST}:1-5"), task="task0_2_2"),
            offset(entry("80-", f"MySQL56/{HOST}:1-6"), task="task1_2_2"),
        )
    )

    ran = CliRunner().invoke(
        headwater, ["migrate", "debezium", str(config), "--offsets", str(stored), "--home", str(home.root)]
    )

    assert ran.exit_code == 0, ran.output
    assert "set vtgate.password there" in ran.output
    document = read_documents(home).sources["shop"]
    assert isinstance(document, VitessDocument)
    assert document.tasks == 2
    assert [place.gtid for place in parse_vgtid(document.start_vgtid)] == [f"MySQL56/{HOST}:1-5", f"MySQL56/{HOST}:1-6"]
    assert yaml.safe_load((home.sources_dir / "shop.yaml").read_text())["kind"] == "vitess"
