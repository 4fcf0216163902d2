"""The repository keeps its own rules: import arrows, fresh generated code, locks without addresses."""

import configparser
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from libs.setup.jars import jar_set

REPOSITORY = Path(__file__).parents[2]
REQUIREMENTS = sorted((REPOSITORY / "requirements").glob("*.txt"))
JAR_LOCKS = sorted(path for pattern in ("*/locks", "*/*/locks") for path in REPOSITORY.glob(f"{pattern}/*-jars.lock"))
GROUPS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["dependency-groups"]
UNLOCKED_GROUPS = {"service"}  # only ever part of others
TIMEOUT_S = 280


@pytest.mark.rest(because="`make lint` has the same, and .ci/run runs it beside the gate")
def test_import_arrows_hold() -> None:
    """Nothing imports against the arrows of .importlinter."""
    lint = _run([str(Path(sys.executable).with_name("lint-imports")), "--no-cache"])

    assert lint.returncode == 0, lint.stdout


def test_compiled_modules_keep_to_the_floors() -> None:
    """import-linter reads no *.pyx: these import the floors of .importlinter below their own, or their own folder."""
    layers = configparser.ConfigParser()
    layers.read(REPOSITORY / ".importlinter")
    rows = layers["importlinter:contract:libs-layers"]["layers"].split("\n")
    floors = {name: floor for floor, row in enumerate(rows) for name in re.findall(r"\w+", row)}
    sources = [path for suffix in ("pyx", "pxd") for path in (REPOSITORY / "libs").rglob(f"*.{suffix}")]
    upwards = [
        (str(path.relative_to(REPOSITORY)), imported)
        for path in sources
        for imported in re.findall(r"^(?:from|c?import) libs\.(\w+)", path.read_text(), re.M)
        if (own := path.relative_to(REPOSITORY).parts[1]) != imported and floors[imported] <= floors[own]
    ]

    assert len(sources) > 5
    assert upwards == []


def test_the_map_of_folders_has_each_folder() -> None:
    """docs/architecture.md names every folder of code, and none that is not there."""
    page = (REPOSITORY / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (`[^|]+`) \|", page[page.index("## Folders") : page.index("## Ten questions")], re.M)
    named = {folder for row in rows for folder in re.findall(r"`([^`]+)`", row)}
    there = {str(path.parent.relative_to(REPOSITORY)) for path in REPOSITORY.glob("*/*/__init__.py")}
    inner = {folder for folder in there if folder.split("/")[0] in ("libs", "services", "spark")}

    assert named == inner | {"protos", "bench", "tests"}


def test_each_question_is_answered_by_a_folder_that_is_there() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text()
    answers = re.findall(r"^\| [^|]+\? \| ([^|]+) \|$", page[page.index("## Ten questions") :], re.M)
    folders = [re.findall(r"`((?:libs|services|spark)/\w+)", answer) for answer in answers]

    assert len(answers) == 10
    assert all(folders)
    assert {folder for each in folders for folder in each if not (REPOSITORY / folder).is_dir()} == set()


def test_generated_protos_are_fresh(tmp_path: Path) -> None:
    """The committed Python code is the output of `make protos` from the .proto files, and there is no other."""
    sources = sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "protos").rglob("*.proto"))
    outputs = [f"--{kind}={tmp_path}" for kind in ("python_out", "pyi_out", "grpc_python_out")]

    made = _run([sys.executable, "-m", "grpc_tools.protoc", "-I.", *outputs, *sources])

    assert made.returncode == 0, made.stderr
    assert _generated(REPOSITORY) == _generated(tmp_path), "run `make protos`"


def test_setup_needs_the_standard_library_alone() -> None:
    """`python3.11 -m libs.setup` starts on a Python that has no package installed."""
    code = "import sys; sys.path.insert(0, '.'); import libs.setup.__main__"

    bare = _run([sys.executable, "-I", "-S", "-c", code])

    assert bare.returncode == 0, bare.stderr


def test_each_group_is_locked() -> None:
    """Each dependency group has its requirements file, and no file is without a group."""
    assert {path.stem for path in REQUIREMENTS} == set(GROUPS) - UNLOCKED_GROUPS


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.stem)
def test_lock_holds_what_its_group_asks_for(path: Path) -> None:
    """Every direct pin of pyproject.toml stands in the group's lock: run `make locks` after a change."""
    locked = {
        _normal(name): version
        for name, version in re.findall(r"^([\w.-]+)(?:\[[^]]*])?==(\S+)", path.read_text(), re.M)
    }
    asked = {_normal(name): version for name, version in _pins(path.stem)}

    assert {name: locked.get(name) for name in asked} == asked


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.stem)
def test_every_locked_package_has_hashes(path: Path) -> None:
    """No package is installed whose files are not known by hash."""
    entries = re.split(r"^(?=[A-Za-z0-9])", path.read_text(), flags=re.M)[1:]

    unhashed = [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry]

    assert entries
    assert unhashed == []


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.stem)
def test_lock_records_no_address(path: Path) -> None:
    """Which registry or mirror serves the files is the machine's affair."""
    recorded = re.findall(
        r"https?://|file:|--(?:extra-)?index-url|--find-links|\s@\s|/home/|/root/|/tmp/", path.read_text()
    )

    assert recorded == []


def test_packages_have_one_version_everywhere() -> None:
    """A service is tested (dev) with the very versions that its image installs."""
    versions: dict[str, set[str]] = {}
    for path in REQUIREMENTS:
        for line in re.findall(r"^[\w.-]+(?:\[[^]]*])?==[^\\\n]+", path.read_text(), re.M):
            package = Requirement(line)
            if package.marker is None or package.marker.evaluate():  # others are of a Python that is not ours
                versions.setdefault(_normal(package.name), set()).add(str(package.specifier))

    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


@pytest.mark.parametrize("lock", JAR_LOCKS, ids=lambda path: path.stem)
def test_jar_lock_and_pom_name_the_same_jars(lock: Path) -> None:
    """Maven is asked for the very jars that are verified, and no jar brings dependencies of its own."""
    jars = jar_set(lock.stem.removesuffix("-jars"), lock.parent)
    asked = ElementTree.parse(jars.pom).getroot().findall("dependencies/dependency")

    coordinates = {tuple(jar.findtext(tag) for tag in ("groupId", "artifactId", "version")) for jar in asked}
    floating = [jar.findtext("artifactId") for jar in asked if jar.findtext("exclusions/exclusion/artifactId") != "*"]

    assert coordinates == {(jar.group_id, jar.artifact_id, jar.version) for jar in jars.jars}
    assert floating == []


def test_help_lists_every_target() -> None:
    """`make help` lists each target that one may call."""
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.+)$", makefile, re.M)
    listed = _run(["make", "help"]).stdout

    assert targets is not None
    assert [name for name in targets[1].split() if not re.search(rf"^  make {name} ", listed, re.M)] == []


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def _generated(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text()
        for pattern in ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py")
        for path in (root / "protos").rglob(pattern)
    }


def _pins(group: str) -> list[tuple[str, str]]:
    """Name and version of each requirement of a dependency group, included groups' too (PEP 735)."""
    pins: list[tuple[str, str]] = []
    for item in GROUPS[group]:
        if isinstance(item, dict):
            pins += _pins(item["include-group"])
        else:
            name, _, version = item.partition("==")
            pins.append((name.partition("[")[0], version))
    return pins


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
