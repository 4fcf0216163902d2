"""docs/tenants.md shows documents: each must be one."""

import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from libs.config.load import convert_document
from libs.tenants.document import read_tenant
from libs.tenants.masks import encryption
from libs.tenants.row_filter import condition_mistakes
from libs.tenants.schema import tenant_schema
from libs.tenants.topic_quotas import TopicQuotaSettings

PAGE = (Path(__file__).parents[3] / "docs" / "tenants.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
QUOTAS = [shown for shown in SHOWN if shown.startswith("per_tenant:")]
EXAMPLES = [shown for shown in SHOWN if shown not in QUOTAS]


def whole(example: str) -> str:
    """An example as a document: the parts that it leaves out are put around it."""
    if example.startswith("  "):
        example = f"sources:\n- name: shop\n{example}"
    if "sources:" not in example:
        example = f"sources: [{{name: shop}}]\n{example}"
    return example if "tenant: " in example else f"tenant: acme\n{example}"


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_good_documents(example: str) -> None:
    """By the parser, the filters' language and the JSON Schema."""
    mistakes: list[str] = []

    assert read_tenant(whole(example), mistakes=mistakes, check_condition=condition_mistakes) is not None, mistakes
    assert list(Draft202012Validator(tenant_schema()).iter_errors(yaml.safe_load(whole(example)))) == []


def test_the_example_of_topic_quotas_is_a_good_one() -> None:
    (example,) = QUOTAS
    mistakes: list[str] = []

    quotas = convert_document(TopicQuotaSettings, yaml.safe_load(example), place="", mistakes=mistakes)

    assert quotas is not None, mistakes
    assert (quotas.of("acme"), quotas.of("globex")) == (500, 200)


def test_every_setting_of_the_tables_part_is_on_the_page() -> None:
    """The settings of a selection and a mask."""
    definitions = tenant_schema()["$defs"]
    names = {
        name
        for record in ("SourceSelection", "ColumnMask", "TopicSettings", "FormatSettings")
        for name in definitions[record]["properties"]
    }

    assert {name for name in names if f"{name}" not in PAGE} == set()


def test_the_recipe_for_reading_values_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands on the page."""
    (recipe,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "pii").write_text("0123456789abcdef\n")
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {"value": encryption(b"0123456789abcdef")("Müller".encode())}

    exec(recipe, found)

    assert found["text"] == "Müller"
