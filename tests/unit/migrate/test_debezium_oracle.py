"""Configurations of Debezium's Oracle connector: every property has a place, and a good document comes of them."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from libs.config.load import convert_document
from libs.errors import InvalidSettings
from libs.mesh.documents import OracleDocument
from libs.migrate.carry import Migration
from libs.migrate.migrate import migrate
from libs.migrate.oracle_properties import ORACLE_PROPERTIES, page
from libs.migrate.properties import Where, find

ROOT = Path(__file__).parents[3]
LISTED = [
    line.split("\t")
    for connector, beginning in (("oracle", ""), ("mysql", "schema.history."))  # those of the history are alike
    for line in (ROOT / "tests" / "golden" / f"debezium-{connector}" / "properties.tsv").read_text().splitlines()
    if line.startswith(beginning)
]
CONNECTOR = {
    "connector.class": "io.debezium.connector.oracle.OracleConnector",
    "topic.prefix": "erp",
    "database.hostname": "oracle.example",
    "database.port": "1522",
    "database.user": "c##dbz",
    "database.password": "s3cret",
    "database.dbname": "ORCLCDB",
    "database.pdb.name": "ERP",
}


TOLD_OF_DEFAULTS = {
    "custom.sanitize.pattern", "database.query.timeout.ms", "internal.log.mining.read.only",
    "internal.log.mining.schema_changes.username.exclude.list", "internal.log.mining.transaction.snapshot.boundary.mode",
    "log.mining.query.filter.mode", "log.mining.read.only", "log.mining.restart.connection",
    "openlineage.integration.config.file.path", "openlineage.integration.job.description", "query.fetch.size",
    "secondary.port", "snapshot.locking.mode", "snapshot.mode.configuration.based.snapshot.data",
    "snapshot.mode.configuration.based.snapshot.on.data.error", "snapshot.mode.configuration.based.snapshot.on.schema.error",
    "snapshot.mode.configuration.based.snapshot.schema", "snapshot.mode.configuration.based.start.stream",
}  # fmt: skip
"""Values that ask for something else than the fixed behaviour here, or that have no meaning here."""


def migrated(**properties: str) -> Migration:
    return migrate(json.dumps({**CONNECTOR, **properties}), subject="connector.json")


def test_every_property_of_the_connector_has_its_place() -> None:
    """As its own ``config()`` lists them."""
    names = [name.replace("([^.]+)", "md5").replace("(.+)", "s").replace("(d+)", "5") for name, *_ in LISTED]

    assert len(names) == 169
    assert [name for name in names if find(name, ORACLE_PROPERTIES) is None] == []


def test_a_connectors_own_defaults_are_no_news() -> None:
    """A configuration that spells them out gives the same document, and reports only those that are not so here."""
    # As Java prints them.
    defaults = {
        name: value.removeprefix("class ").strip("[]")
        for name, value in LISTED
        if value not in ("null", "") and "(" not in name
    }

    written = migrated(**{name: value for name, value in defaults.items() if name not in CONNECTOR})

    assert written.document["snapshot"] == {"mode": "initial"}
    told = {re.split(r"[ :]", line)[0] for line in written.left_out}
    assert told == TOLD_OF_DEFAULTS


def test_the_page_is_what_the_table_says() -> None:
    """Written by ``python -m libs.migrate.oracle_properties > docs/debezium-oracle-properties.md``."""
    assert (ROOT / "docs" / "debezium-oracle-properties.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize(
    "known",
    [each for each in ORACLE_PROPERTIES if each.where is Where.SOURCE and each.ours],
    ids=lambda each: each.name,
)
def test_every_setting_that_is_named_exists(known: Any) -> None:
    """A setting that is renamed takes its line along."""
    record: Any = OracleDocument
    for step in known.ours.split("."):
        kinds = {each.name: each.type for each in msgspec.structs.fields(record)}
        assert step in kinds
        record = kinds[step]


def test_a_connector_becomes_a_good_document() -> None:
    """No secret is in it."""
    found = migrated(
        **{
            "table.include.list": r"ERP\.ORDERS,ERP\.ITEMS",
            "decimal.handling.mode": "string",
            "interval.handling.mode": "string",
            "legacy.decimal.handling.strategy": "true",
            "archive.destination.name": "LOG_ARCHIVE_DEST_2,LOG_ARCHIVE_DEST_1",
            "log.mining.session.max.ms": "300000",
            "log.mining.username.exclude.list": "BATCH, NIGHTLY",
            "snapshot.mode": "when_needed",
            "lob.enabled": "true",
            "snapshot.select.statement.overrides": "ERP.ORDERS",
            "snapshot.select.statement.overrides.ERP.ORDERS": "SELECT * FROM ERP.ORDERS WHERE DELETED = 0",
            "signal.data.collection": "ERP.SIGNALS",
            "provide.transaction.metadata": "true",
        }
    )

    mistakes: list[str] = []
    assert convert_document(OracleDocument, yaml.safe_load(found.text()), place="", mistakes=mistakes), mistakes
    assert found.document == {
        "kind": "oracle",
        "database": {
            "host": "oracle.example",
            "port": 1522,
            "user": "c##dbz",
            "password": "change-me",
            "service_name": "ORCLCDB",
            "pdb_name": "ERP",
        },
        "include_tables": [r"ERP\.ORDERS", r"ERP\.ITEMS"],
        "values": {"decimal": "string", "interval": "string", "zero_scale_numbers": "integer"},
        "mining": {
            "archive_destinations": [2, 1],
            "session_max_s": 300.0,
            "users": {"exclude": ["BATCH", "NIGHTLY"]},
        },
        "snapshot": {"mode": "when_needed", "select_overrides": {"ERP.ORDERS": "DELETED = 0"}},
        "signal_table": "ERP.SIGNALS",
        "lacking_values": "read_again",
        "transaction_metadata": True,
    }
    assert "s3cret" not in found.text()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("database.url", "jdbc:oracle:oci:@(DESCRIPTION=…)"),
        ("database.connection.adapter", "xstream"),
        ("snapshot.mode", "configuration_based"),
        ("log.mining.strategy", "redo_log_catalog"),
        ("snapshot.locking.mode", "shared"),
    ],
)
def test_what_is_not_so_here_is_told(key: str, value: str) -> None:
    """Rather than left out in silence."""
    assert any(line.startswith(f"{key}") for line in migrated(**{key: value}).left_out)


def test_a_select_that_is_no_condition_is_left_to_a_person() -> None:
    """Ours adds AS OF SCN, so it takes the condition alone."""
    key = "snapshot.select.statement.overrides"
    found = migrated(**{key: "ERP.T", f"{key}.ERP.T": "SELECT A FROM ERP.T"})

    assert "snapshot" not in found.document
    assert any(line.startswith(f"{key}.ERP.T: ") for line in found.left_out)


def test_mistakes_are_refused_with_the_nearest_right_name() -> None:
    with pytest.raises(InvalidSettings) as refused:
        migrated(**{"log.mining.strateg": "online_catalog", "archive.destination.name": "OTHER"})

    assert "did you mean 'log.mining.strategy'?" in str(refused.value)
    assert "archive.destination.name: 'OTHER' is no LOG_ARCHIVE_DEST_<number>" in str(refused.value)
