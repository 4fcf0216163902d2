"""Dockerfile, skaffold.yaml and the chart name the same images; skaffold.yaml is valid by skaffold's own schema."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.cluster import images

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()
SKAFFOLD = yaml.safe_load((REPOSITORY / "skaffold.yaml").read_text())
VALUES_SCHEMA = json.loads((REPOSITORY / "charts" / "headwater" / "values.schema.json").read_text())
SERVICES = sorted(path.parent.name for path in (REPOSITORY / "services").glob("*/__main__.py"))
IMAGES = {*(name.replace("_", "-") for name in SERVICES), "spark"}


def stage(name: str) -> str:
    """A stage of the Dockerfile."""
    stages = re.split(r"^(?=FROM )", DOCKERFILE, flags=re.MULTILINE)
    [found] = [text for text in stages if re.match(rf"FROM \S+ AS {name}\n", text)]
    return found


def test_skaffold_is_valid_by_its_schema() -> None:
    schema: Any = json.loads((REPOSITORY / "tests" / "golden" / "skaffold" / "v4beta13.schema.json").read_text())

    jsonschema.validate(SKAFFOLD, schema)

    with pytest.raises(jsonschema.ValidationError):  # the schema refuses at all
        jsonschema.validate(SKAFFOLD | {"built": {}}, schema)


def test_every_service_is_built_and_deployed() -> None:
    built = {
        each["image"].removeprefix("headwater-"): each["docker"]["target"] for each in SKAFFOLD["build"]["artifacts"]
    }
    [release] = SKAFFOLD["deploy"]["helm"]["releases"]
    deployed = {name.removeprefix("images.") for name in release["setValueTemplates"]}

    assert built == {name: name for name in IMAGES}
    assert set(images.targets()) == IMAGES
    assert deployed == IMAGES
    assert set(VALUES_SCHEMA["properties"]["images"]["properties"]) == IMAGES
    assert (REPOSITORY / release["chartPath"] / "Chart.yaml").is_file()


@pytest.mark.parametrize(
    "warehouse", [{"password": "x"}, {"catalog": {"credential": "a:x"}}, {"catalog": {"token": "x"}}]
)
def test_a_warehouse_secret_stands_in_no_value_of_the_chart(warehouse: dict[str, Any]) -> None:
    """It would be rendered into a ConfigMap."""
    sink = VALUES_SCHEMA | VALUES_SCHEMA["properties"]["sink"]
    good = {"settings": {"warehouses": {"iceberg": {"warehouse_dir": "w", "catalog": {"kind": "rest", "uri": "u"}}}}}

    jsonschema.validate(good, sink)

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"settings": {"warehouses": {"any": warehouse}}}, sink)


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_holds_its_own_packages_by_hash_and_runs_without_root(service: str) -> None:
    image = service.replace("_", "-")
    packages, final = stage(f"{image}-packages"), stage(image)

    assert f"--require-hashes -r requirements/{service}.txt" in packages
    assert f'ENTRYPOINT ["python", "-m", "services.{service}"]' in final
    assert final.rstrip().splitlines()[-2] == "USER 10001:10001"
    assert set(re.findall(r"services/(\w+) ", final)) == {service}


def test_the_build_copies_nothing_that_is_ignored() -> None:
    kept = {line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {path.split("/")[0] for path in re.findall(r"^COPY (?!--from)(\S+)", DOCKERFILE, re.MULTILINE)}

    assert copied == kept
