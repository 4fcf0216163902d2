"""Dockerfile, skaffold.yaml and the chart name the same images; skaffold.yaml is valid by skaffold's own schema."""

import copy
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
RESTART = 'kill -TERM "$(cat /tmp/service.pid)" || true'
IMAGES = {*(name.replace("_", "-") for name in SERVICES), "spark", "cli"}


OPTIONAL = {
    "dev-mysql": "binlog-reader",
    "dev-vitess": "vstream-reader",
    "dev-dts": "dts-decoder",
    "dev-oracle": "logminer-reader",
    "dev-spark": "spark",
    "dev-check": "cli",
}
"""Profiles for parts that not every mesh has, with their images."""


def with_profiles(*names: str) -> Any:
    """skaffold.yaml as these profiles make it: a profile's values replace, lists whole, then its patches come."""
    config = copy.deepcopy(SKAFFOLD)
    for name in names:
        [profile] = [each for each in config["profiles"] if each["name"] == name]
        config["build"] |= copy.deepcopy(profile.get("build", {}))
        for patch in profile["patches"]:
            *way, last = patch["path"].strip("/").split("/")
            place = config
            for step in way:
                place = place[int(step) if isinstance(place, list) else step]
            match patch["op"], last:
                case "add", "-":
                    place.append(copy.deepcopy(patch["value"]))
                case "add", _:
                    assert last not in place, patch
                    place[last] = copy.deepcopy(patch["value"])
                case "replace", _:
                    assert last in place, patch
                    place[last] = patch["value"]
                case "remove", _:
                    del place[last]
    return config


def stage(name: str) -> str:
    """A stage of the Dockerfile."""
    stages = re.split(r"^(?=FROM )", DOCKERFILE, flags=re.MULTILINE)
    [found] = [text for text in stages if re.match(rf"FROM \S+ AS {name}\n", text)]
    return found


def test_skaffold_is_valid_by_its_schema() -> None:
    schema: Any = json.loads((REPOSITORY / "tests" / "golden" / "skaffold" / "v4beta13.schema.json").read_text())

    jsonschema.validate(SKAFFOLD, schema)
    jsonschema.validate(with_profiles("dev", *OPTIONAL, "mine"), schema)

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


def test_a_developer_s_profiles_build_deploy_and_sync_the_same_images() -> None:
    """As they are without profiles but for the sync, which copies every Python file of an image to its place there."""
    plain = {each["image"]: each for each in SKAFFOLD["build"]["artifacts"]}
    [workdir] = re.findall(r"^WORKDIR (/app)$", DOCKERFILE, re.MULTILINE)
    copied = set(re.findall(r"^COPY (?!--from)(\w+) ", DOCKERFILE, re.MULTILINE))
    for optional in ((), ("dev-mysql",), tuple(OPTIONAL)):
        config = with_profiles("dev", *optional, "mine")
        [release] = config["deploy"]["helm"]["releases"]
        synced = {each["image"]: each.pop("sync") for each in config["build"]["artifacts"]}

        wanted = IMAGES - {image for profile, image in OPTIONAL.items() if profile not in optional}
        assert {each["image"]: each for each in config["build"]["artifacts"]} == {
            f"headwater-{name}": plain[f"headwater-{name}"] for name in wanted
        }
        assert {name.removeprefix("images.") for name in release["setValueTemplates"]} == wanted
        assert release["setValues"] == {"development": True, "sink.enabled": "dev-spark" in optional}
        for sync in synced.values():
            assert {(rule["src"], rule["dest"]) for rule in sync["manual"]} == {
                (f"{folder}/**/*.py", workdir) for folder in copied
            }
            assert sync["hooks"] == {"after": [{"container": {"command": ["/bin/sh", "-c", RESTART]}}]}


def test_without_the_profile_nothing_is_synced() -> None:
    """Into pods that cannot be written into."""
    assert not any("sync" in each for each in with_profiles("mine")["build"]["artifacts"])


def test_what_is_forwarded_is_a_service_of_the_chart_on_a_port_of_its_own() -> None:
    forwarded = [(each["resourceName"], each["port"]) for each in SKAFFOLD["portForward"]]
    local = [each["localPort"] for each in SKAFFOLD["portForward"]]

    callees = ("schema-history", "checkpoint-committer", "tenant-operator")
    assert forwarded == [
        *((f"headwater-{name}", 8080) for name in (*callees, "router", "sink")),
        *((f"headwater-{name}", 7000) for name in callees),
    ]
    assert len(set(local)) == len(local)


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


def test_the_image_of_the_command_holds_the_command_and_no_service() -> None:
    packages, final = stage("cli-packages"), stage("cli")

    assert "--require-hashes -r requirements/cli.txt" in packages
    assert 'ENTRYPOINT ["python", "-m", "libs.cli"]' in final
    assert final.rstrip().splitlines()[-2] == "USER 10001:10001"
    assert re.findall(r"^COPY --from=(\S+) (\S+)", final, re.MULTILINE) == [
        ("cli-packages", "/opt/headwater"),
        ("whole-code", "/src/libs"),
        ("whole-code", "/src/protos"),
        ("whole-code", "/record"),  # `headwater version` reads it
    ]


def test_images_hold_the_code_of_the_wheel() -> None:
    """All that the images copy comes out of the stage that unpacks it."""
    assert "hatchling build -t wheel" in stage("wheel")
    assert "pip install" in stage("whole-code") and "/dist/*.whl" in stage("whole-code")
    assert stage("code").startswith("FROM whole-code AS code")
    assert [line for line in stage("whole-code").splitlines() if line.startswith("COPY")] == [
        "COPY --from=wheel /dist /dist"
    ]


def test_the_build_copies_nothing_that_is_ignored() -> None:
    kept = {line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    copied = {path.split("/")[0] for line in lines for path in line.split()}

    assert copied == kept


def test_the_compose_file_builds_the_image_of_the_wheel_and_listens_on_loopback() -> None:
    """It was never run by Docker here: this holds its names to those of the Dockerfile."""
    services = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["services"]
    target = services["headwater"]["build"]["target"]
    packages, final = stage(f"{target}-packages"), stage(target)
    mounted = {volume.partition(":")[2] for volume in services["headwater"]["volumes"]}

    assert services["headwater"]["command"] == ["up"]
    assert 'ENTRYPOINT ["headwater"]' in final
    assert mounted == set(re.findall(r"-o headwater -g headwater (/\S+) (/\S+)", final)[0])
    assert "HEADWATER_CACHE=/cache" in final and "WORKDIR /data" in final
    assert "--no-deps --no-index /dist/*.whl" in packages
    assert set(re.findall(r"-r requirements/(\w+)\.txt", packages)) == {*SERVICES, "cli", "spark"}
    assert all(port.startswith("127.0.0.1:") for each in services.values() for port in each.get("ports", ()))
