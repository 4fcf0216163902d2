"""The tenant document's JSON Schema, by a validator of others' making."""

import re
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from libs.mesh.home import EXAMPLE_TENANT
from libs.tenants.document import parse_tenant
from libs.tenants.schema import CHART_FILE, SCHEMA_FILE, chart_text, schema_text, tenant_schema

VALIDATOR = Draft202012Validator(tenant_schema())
GOOD = {"tenant": "acme", "sources": [{"name": "shop"}]}


def uncommented(example: str) -> str:
    """The example with every setting that it shows switched on."""
    example = example.replace("schemas: false", "schemas: true")
    lines = [re.sub(r"^(\s*)# ?(?=\s*(- )?[a-z_]+:|\s*- \{)", r"\1", line) for line in example.splitlines()]
    return "\n".join(line for line in lines if not line.startswith("yaml-language-server"))


def test_the_committed_schema_is_fresh() -> None:
    """The file is the output of ``make tenant-schema``."""
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), "run `make tenant-schema`"


def test_the_charts_values_hold_the_same_documents() -> None:
    present = CHART_FILE.read_text(encoding="utf-8")

    assert present == chart_text(present), "run `make tenant-schema`"


def test_it_is_a_schema() -> None:
    """By the meta-schema of its dialect."""
    Draft202012Validator.check_schema(tenant_schema())


def test_every_field_is_described() -> None:
    """An editor has something to show wherever the cursor stands."""
    bare = [
        f"{name}.{field}"
        for name, definition in tenant_schema()["$defs"].items()
        for field, of_field in definition.get("properties", {}).items()
        if not of_field.get("description")
    ]

    assert bare == []


def test_values_of_enumerations_are_described() -> None:
    """Each by its name."""
    assert "soft: It stays, marked in `_headwater_deleted`" in tenant_schema()["$defs"]["Deletes"]["description"]


@pytest.mark.parametrize("text", [EXAMPLE_TENANT, uncommented(EXAMPLE_TENANT)], ids=["as written", "all switched on"])
def test_the_example_of_init_fits(text: str) -> None:
    """The schema and the parser agree on it, with every commented line taken in too."""
    mistakes: list[str] = []

    assert list(VALIDATOR.iter_errors(yaml.safe_load(text))) == []
    assert parse_tenant(text, mistakes=mistakes) is not None, mistakes


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"tenant": "ACME Corp"}, ["tenant"]),
        ({"tenant": "a" * 41}, ["tenant"]),
        ({"sources": []}, ["sources"]),
        ({"sources": [{"nam": "shop"}]}, ["sources", 0]),
        ({"topics": {"kafka_partitions": 0}}, ["topics", "kafka_partitions"]),
        ({"sink": {"mode": "miror"}}, ["sink"]),
        ({"sinks": None}, []),
    ],
)
def test_what_the_parser_refuses_does_not_fit(change: dict[str, Any], path: list[object]) -> None:
    """An editor shows it while it is typed, at its place."""
    document = GOOD | change

    errors = list(VALIDATOR.iter_errors(document))

    assert list(VALIDATOR.iter_errors(GOOD)) == []
    assert [list(error.absolute_path)[: len(path)] for error in errors[:1]] == [path]
    assert parse_tenant(yaml.safe_dump(document), mistakes=[]) is None


def test_it_can_be_embedded_as_it_is() -> None:
    """In a chart's values, say: its references are relative to its own ``$id``."""
    around = {"type": "object", "properties": {"tenants": {"type": "array", "items": tenant_schema()}}}

    errors = list(Draft202012Validator(around).iter_errors({"tenants": [GOOD, {"tenant": "acme"}]}))

    assert [list(error.absolute_path) for error in errors] == [["tenants", 1]]
