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
from libs.mesh.documents import MysqlDocument
from libs.migrate.migrate import migrate
from libs.migrate.properties import PROPERTIES, Where, find, page
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


def test_every_property_of_the_connector_has_its_place() -> None:
    """As the connector's own ``config()`` lists them."""
    names = [line.split("\t")[0] for line in LISTED]

    assert [name for name in names if find(name) is None] == []


VITESS_LISTED = (ROOT / "tests" / "golden" / "debezium-vitess" / "properties.txt").read_text().splitlines()
VITESS_PAGE = (ROOT / "docs" / "debezium-vitess-properties.md").read_text(encoding="utf-8")


VITESS_NAMED = [
    pattern
    for row in (line.split("|") for line in VITESS_PAGE.splitlines() if line.startswith("| "))
    for pattern in re.findall(r"`([^`]+)`", row[1])
    if pattern == pattern.lower()  # transforms are classes
]
OF_OLDER_RELEASES = ("vitess.vtctld.*",)


def _is_of(pattern: str, name: str) -> bool:
    """A star on the page stands for any text."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".+"), name) is not None


def test_every_property_of_the_vitess_connector_has_its_place() -> None:
    """As its own ``config()``, ``ALL_FIELDS``, topic naming strategies and the part shared by Debezium's connectors list them,
    and one of each family that Kafka Connect passes on."""
    assert [name for name in VITESS_LISTED if not any(_is_of(pattern, name) for pattern in VITESS_NAMED)] == []


def test_no_property_is_named_that_the_vitess_connector_does_not_have() -> None:
    """Somebody would look for it in vain."""
    patterns = sorted(set(VITESS_NAMED) - set(OF_OLDER_RELEASES))

    assert [each for each in patterns if not any(_is_of(each, name) for name in VITESS_LISTED)] == []


def test_an_include_list_of_columns_is_the_tenants_own() -> None:
    """As a list of its patterns; the line names the key columns, which Debezium keeps without a word."""
    config = {**CONNECTOR, "column.include.list": "shop.orders.id, shop.orders.(total|note)"}

    (line,) = [
        each
        for each in migrate(json.dumps(config), subject="connector.json").tenant
        if each.startswith("column.include.list")
    ]

    assert line == (
        "column.include.list: sources[].include_columns: ['shop.orders.id', 'shop.orders.(total|note)']; name key columns too, "
        "which Debezium always keeps"
    )


def test_the_page_is_what_the_table_says() -> None:
    """Written by ``python -m libs.migrate.properties > docs/debezium-properties.md``."""
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


@pytest.mark.promise("migration")
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
    assert any("topics.transactions: true" in line for line in found.tenant)
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


def _migrated(**changed: str) -> Any:
    """The outcome for the connector above with some of its properties changed."""
    return migrate(json.dumps(CONNECTOR | changed), subject="connector.json")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("snapshot.locking.mode", "extended"),
        ("snapshot.query.mode", "custom"),
        ("topic.delimiter", "_"),
        ("topic.transaction", "tx"),
        ("topic.naming.strategy", "io.debezium.schema.DefaultRegexTopicNamingStrategy"),
        ("heartbeat.topics.prefix", "beats"),
        ("signal.kafka.topic", "shop-signals"),
        ("signal.enabled.channels", "source,file"),
        ("read.only", "false"),
        ("errors.max.retries", "10"),
        ("inconsistent.schema.handling.mode", "skip"),
        ("guardrail.collections.max", "500"),
        ("gtid.source.filter.dml.events", "false"),
        ("schema.history.internal.skip.unparseable.ddl", "true"),
        ("database.query.timeout.ms", "0"),
    ],
)
def test_a_value_that_asks_for_something_else_is_told(key: str, value: str) -> None:
    """Behaviour that is fixed here has no setting, so nobody would learn that the user's choice is gone."""
    assert any(line.startswith(f"{key} = {value}: ") for line in _migrated(**{key: value}).left_out)


def test_locks_are_carried_over() -> None:
    migration = _migrated(**{"snapshot.locking.mode": "none", "snapshot.lock.timeout.ms": "1500"})

    assert migration.document["snapshot"]["lock"] == "none"
    assert migration.document["snapshot"]["lock_wait_s"] == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("snapshot.query.mode", "select_all"),
        ("topic.delimiter", "."),
        ("topic.naming.strategy", "io.debezium.schema.SchemaTopicNamingStrategy"),
        ("signal.enabled.channels", "source, kafka"),
        ("errors.max.retries", "-1"),
        ("max.batch.size", "4096"),
        ("snapshot.fetch.size", "-2147483648"),
        ("transaction.boundary.interval.ms", "1000"),
        ("include.query", "false"),
        ("enable.time.adjuster", "false"),
        ("snapshot.delay.ms", "0"),
    ],
)
def test_a_value_that_asks_for_what_is_so_is_not_told(key: str, value: str) -> None:
    """The list is read only if it is short."""
    found = _migrated(**{key: value})

    assert find(key) is not None
    assert (found.left_out, found.document) == (_migrated().left_out, _migrated().document)


FOREIGN = {
    "converters": "isbn, geo",
    "isbn.type": "io.debezium.test.IsbnConverter",
    "isbn.schema.name": "io.debezium.mysql.type.Isbn",
    "geo.type": "x.Geo",
    "post.processors": "reselector",
    "reselector.type": "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
    "reselector.reselect.columns.include.list": "shop.orders:note",
    "database.allowPublicKeyRetrieval": "false",
    "database.connectionTimeZone": "Europe/Berlin",
    "database.useSSL": "false",
    "kafka.api.key": "k-s3cret",
    "output.data.format": "JSON",
    "signal.file": "signals.txt",
}
"""Names that the connector lets its user choose, that it passes on to JDBC, or that other products read."""


def test_what_others_read_stops_nothing_and_is_told() -> None:
    """A whole configuration is not refused for one key that was never Debezium's."""
    found = _migrated(**FOREIGN)

    assert found.document == _migrated().document
    assert [line.split(":")[0] for line in found.left_out[2:]] == list(FOREIGN)
    assert "s3cret" not in found.text()


OLDER = {
    "topic.prefix": "database.server.name",
    "table.include.list": "table.whitelist",
    "schema.history.internal.kafka.topic": "database.history.kafka.topic",
    "event.processing.failure.handling.mode": "event.deserialization.failure.handling.mode",
}


def test_a_connector_of_debezium_1_becomes_the_same_document() -> None:
    """By the names that its properties had."""
    of_1x = {OLDER.get(key, key): value for key, value in CONNECTOR.items()}

    found = migrate(json.dumps(of_1x), subject="connector.json")

    assert found == migrate(json.dumps(CONNECTOR), subject="connector.json")


@pytest.mark.parametrize(
    ("older", "path"),
    [
        ("database.whitelist", "include_tables"),
        ("database.blacklist", "exclude_tables"),
        ("table.blacklist", "exclude_tables"),
    ],
)
def test_older_lists_are_carried_over(older: str, path: str) -> None:
    """A list that is dropped would let in tables that were kept out."""
    config = {key: value for key, value in CONNECTOR.items() if key != "table.include.list"}

    assert migrate(json.dumps({**config, older: "secret"}), subject="c").document[path]


def test_of_two_names_for_one_thing_today_s_stands() -> None:
    """And the other one is reported."""
    found = _migrated(**{"table.whitelist": "old.*"})

    assert found.document["include_tables"] == ["shop.orders", "shop\\.customers"]
    assert any(line.startswith("table.whitelist: the older name of table.include.list") for line in found.left_out)


def test_recovery_by_its_older_name_is_recovery() -> None:
    """Before Debezium 2.6 it was called so."""
    assert _migrated(**{"snapshot.mode": "schema_only_recovery"}).document["snapshot"]["mode"] == "recovery"


def test_what_debezium_does_by_default_and_we_do_not_is_told() -> None:
    """TRUNCATE comes to tenants; JsonConverter's schemas do not."""
    config = {key: value for key, value in CONNECTOR.items() if key != "skipped.operations"}
    config["value.converter"] = "org.apache.kafka.connect.json.JsonConverter"

    found = migrate(json.dumps(config), subject="connector.json")

    assert any("sources[].skip_operations: [t]" in line for line in found.tenant)
    assert any(line.startswith("value.converter.schemas.enable is not set") for line in found.tenant)
    assert not any("is not set" in line for line in _migrated().tenant)


@pytest.mark.parametrize(("rows", "kept"), [("warn", "warn"), (None, "skip")])
@pytest.mark.parametrize("is_first", [False, True])
def test_the_mode_for_rows_goes_before_that_for_values(rows: str | None, kept: str, *, is_first: bool) -> None:
    """In any order; the other one is reported."""
    config = {key: value for key, value in CONNECTOR.items() if key != "event.processing.failure.handling.mode"}
    both = {"event.converting.failure.handling.mode": "skip"} | (
        {"event.processing.failure.handling.mode": rows} if rows else {}
    )
    found = migrate(
        json.dumps({**both, **config} if is_first else {**config, **dict(reversed(both.items()))}), subject="c"
    )

    assert found.document["failure_handling"] == kept
    assert any(line.startswith("event.converting.failure") for line in found.left_out) is (rows is not None)


def test_a_value_of_a_config_provider_is_told() -> None:
    """The document would else hold the placeholder's text."""
    found = _migrated(**{"database.user": "${file:/run/secrets/db:user}", "database.port": "${env:PORT}"})

    assert found.document["database"]["user"] == "change-me"
    assert "port" not in found.document["database"]
    assert [line.split(" = ")[0] for line in found.left_out][:2] == ["database.port", "database.user"]


@pytest.mark.parametrize(
    "known", [each for each in PROPERTIES if each.where is Where.SOURCE], ids=lambda each: each.name
)
def test_every_property_of_the_source_s_document_is_carried(known: Any) -> None:
    """Each property that has a setting on the page is judged: an impossible value is refused, or the value comes through."""
    name = known.name.replace("<table>", "shop.t")
    bare = {
        "connector.class": CONNECTOR["connector.class"],
        "database.hostname": "h",
        "database.user": "u",
        "name": "n",
    }
    without = migrate(json.dumps({**bare, "topic.prefix": "p"}), subject="c")
    if name in ("name", "topic.prefix", "snapshot.select.statement.overrides"):
        return
    try:
        found = migrate(json.dumps({**bare, "topic.prefix": "p", name: "7"}), subject="c")
    except InvalidSettings:
        return
    assert (found.document, found.left_out) != (without.document, without.left_out)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"config": 1}', "{"])
def test_rubbish_is_refused_by_name(text: str) -> None:
    """Not with a traceback."""
    with pytest.raises(InvalidSettings, match=r"connector\.json"):
        migrate(text, subject="connector.json")


def test_the_command_writes_once_and_lists_the_rest(tmp_path: Path) -> None:
    """A second run does not overwrite a document that a person may have edited."""
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
