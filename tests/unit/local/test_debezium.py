"""Debezium's configuration: every property has its place, and a connector's JSON becomes a document that is good."""

import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from libs.cli.main import headwater
from libs.config.load import convert_document
from libs.errors import InvalidSettings
from libs.local.debezium.migrate import migrate
from libs.local.debezium.properties import PROPERTIES, Where, find, page
from libs.local.documents import MysqlDocument
from libs.types.tenant import TenantSpec

ROOT = Path(__file__).parents[3]
LISTED = (ROOT / "tests" / "golden" / "debezium-mysql" / "properties.tsv").read_text(encoding="utf-8").splitlines()
CONNECTOR = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "tasks.max": "1",
    "database.hostname": "db.internal",
    "database.port": 3307,
    "database.user": "debezium",
    "database.password": "dbz-s3cret",
    "database.server.id": "184054",
    "topic.prefix": "shop",
    "table.include.list": "shop.orders,shop\\.customers",
    "schema.history.internal.kafka.topic": "history",
    "time.precision.mode": "isostring",
    "decimal.handling.mode": "string",
    "binary.handling.mode": "base64-url-safe",
    "event.processing.failure.handling.mode": "warn",
    "snapshot.mode": "schema_only",
    "snapshot.select.statement.overrides": "shop.orders",
    "snapshot.select.statement.overrides.shop.orders": "SELECT * FROM shop.orders WHERE id > 9",
    "message.key.columns": "shop.orders:id,region;(.*).customers:email;",
    "provide.transaction.metadata": True,
    "tombstones.on.delete": "false",
    "column.mask.with.12.chars": "shop.customers.phone",
    "column.mask.hash.SHA-256.with.salt.CzQMA0cB5K": "shop.customers.email",
    "skipped.operations": "none",
    "heartbeat.interval.ms": 10000,
    "gtid.source.includes": "24da167-.*,aa.*",
    "connect.timeout.ms": "2500",
    "database.ssl.mode": "verify_ca",
    "database.ssl.truststore": "/etc/debezium/trust.jks",
    "custom.metric.tags": "team=billing, region=eu",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
}


@pytest.mark.parametrize("line", LISTED, ids=lambda line: line.split("\t")[0])
def test_every_property_of_the_connector_has_its_place(line: str) -> None:
    """As the connector's own ``config()`` lists them."""
    assert find(line.split("\t")[0]) is not None


VITESS_LISTED = (ROOT / "tests" / "golden" / "debezium-vitess" / "properties.txt").read_text().splitlines()
VITESS_PAGE = (ROOT / "docs" / "debezium-vitess-properties.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", VITESS_LISTED)
def test_every_property_of_the_vitess_connector_has_its_place(name: str) -> None:
    """As its own ``config()`` and ``ALL_FIELDS`` list them; a star on the page stands for any text."""
    rows = [line.split("|") for line in VITESS_PAGE.splitlines() if line.startswith("| ")]
    named = [pattern for row in rows for pattern in re.findall(r"`([^`]+)`", row[1])]

    assert any(re.fullmatch(re.escape(pattern).replace(r"\*", ".+"), name) for pattern in named)


def test_the_page_is_what_the_table_says() -> None:
    """Written by ``python -m libs.local.debezium.properties > docs/debezium-properties.md``."""
    assert (ROOT / "docs" / "debezium-properties.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("known", [each for each in PROPERTIES if each.ours], ids=lambda each: each.name)
def test_every_setting_that_is_named_exists(known: Any) -> None:
    """A setting that is renamed takes its line along."""
    record = {Where.SOURCE: MysqlDocument, Where.TENANT: TenantSpec}[known.where]
    for step in known.ours.split("."):
        fields = {each.name: each.type for each in msgspec.structs.fields(record)}
        assert step in fields
        kinds = [fields[step], *get_args(fields[step])]
        record = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)), record)


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_connector_becomes_a_good_document(is_wrapped: bool) -> None:
    """From Kafka Connect's REST form as from the bare configuration; no secret is in it."""
    text = json.dumps({"name": "shop-connector", "config": CONNECTOR} if is_wrapped else CONNECTOR)

    found = migrate(text, subject="connector.json")

    assert found.source == "shop"
    mistakes: list[str] = []
    assert convert_document(MysqlDocument, yaml.safe_load(found.text()), place="", mistakes=mistakes), mistakes
    assert found.document == {
        "database": {
            "host": "db.internal",
            "port": 3307,
            "user": "debezium",
            "password": "change-me",
            "connect_timeout_s": 2.5,
            "tls_mode": "verify_ca",
        },
        "metric_tags": {"team": "billing", "region": "eu"},
        "replica_server_id": 184054,
        "include_tables": ["shop.orders", "shop\\.customers"],
        "values": {"time_precision": "isostring", "decimal": "string", "binary": "base64-url-safe"},
        "failure_handling": "warn",
        "snapshot": {
            "mode": "schema_only",
            "select_overrides": {"shop.orders": "SELECT * FROM shop.orders WHERE id > 9"},
        },
        "key_columns": [
            {"tables": "shop.orders", "columns": "id|region"},
            {"tables": "(.*).customers", "columns": "email"},
        ],
        "transaction_metadata": True,
        "heartbeat_interval_s": 10.0,
        "gtid_source_includes": ["24da167-.*", "aa.*"],
    }
    assert "dbz-s3cret" not in found.text()
    assert "CzQMA0cB5K" not in found.text()
    assert any("constant: '************'" in line for line in found.tenant)
    assert any(line.startswith("skipped.operations: sources[].skip_operations: []") for line in found.tenant)
    assert [line.split(":")[0] for line in found.left_out] == [
        "database.ssl.truststore = /etc/debezium/trust.jks",
        "transforms.unwrap.type",
    ]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"table.includ.list": "a.b"}, "did you mean 'table.include.list'?"),
        ({"decimal.handling.mode": "presice"}, "did you mean 'precise'?"),
        ({"snapshot.mode": "intial"}, "did you mean 'initial'?"),
        ({"database.port": "many"}, "is no whole number"),
        ({"heartbeat.interval.ms": "10s"}, "is no whole number"),
        ({"gtid.source.excludes": "(aa"}, "is no regular expression"),
        ({"message.key.columns": "shop.orders"}, "is not <database>.<table>:<column>,<column>"),
        ({"message.key.columns": "shop.(orders:id"}, "is no regular expression"),
        ({"table.include.list": "shop.(orders"}, "is no regular expression"),
        ({"connector.class": "io.debezium.connector.postgresql.PostgresConnector"}, "is not io.debezium"),
    ],
)
def test_what_is_misspelt_is_refused_with_the_nearest_right_name(changed: dict[str, str], told: str) -> None:
    """And every mistake at once."""
    with pytest.raises(InvalidSettings) as refused:
        migrate(json.dumps({**CONNECTOR, **changed, "databse.user": "x"}), subject="connector.json")

    assert len(refused.value.mistakes) == 2
    assert told in str(refused.value)
    assert "did you mean 'database.user'?" in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"config": 1}', "{"])
def test_rubbish_is_refused_by_name(text: str) -> None:
    """Not with a traceback."""
    with pytest.raises(InvalidSettings, match=r"connector\.json"):
        migrate(text, subject="connector.json")


def test_the_command_writes_once_and_lists_the_rest(tmp_path: Path) -> None:
    """A second run does not overwrite what a person may have edited."""
    config, home = tmp_path / "connector.json", tmp_path / "home"
    config.write_text(json.dumps(CONNECTOR), encoding="utf-8")
    arguments = ["migrate", "debezium", str(config), "--home", str(home)]

    first = CliRunner().invoke(headwater, arguments)
    second = CliRunner().invoke(headwater, arguments)

    assert first.exit_code == 0
    assert "skipped.operations" in first.output
    assert "dbz-s3cret" not in first.output
    assert (home / "sources" / "shop.yaml").is_file()
    assert isinstance(second.exception, InvalidSettings)
