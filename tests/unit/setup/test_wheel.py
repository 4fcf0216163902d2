"""The wheel: the names that it brings, its requirements, and the code that its command runs."""

import ast
import configparser
import os
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 240
FOREIGN = ("libs", "services", "spark", "protos")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with the packages of this environment, and the modules that are compiled here already."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def site_packages(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel installed, beside packages that have the names of our folders."""
    folder = tmp_path_factory.mktemp("site-packages")
    zipfile.ZipFile(wheel).extractall(folder)
    _write_foreign(folder)
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A user's folder, with packages of such names too."""
    _write_foreign(tmp_path)
    return tmp_path


def test_the_wheel_brings_one_name_to_site_packages(wheel: Path) -> None:
    """``libs``, ``spark`` and ``services`` are names that other packages may have."""
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.split("/")[0] for name in names} == {"headwater", "headwater-0.1.0.dist-info"}


def test_the_wheel_fits_other_machines_of_its_kind(wheel: Path) -> None:
    """Its tag names an old glibc, as package indexes want it, and is one of those that pip takes here."""
    _, _, _, tags = parse_wheel_filename(wheel.name)
    (tag,) = tags

    assert tag.platform.startswith("manylinux_2_")
    assert tag in set(sys_tags())


def test_the_wheel_has_all_that_runs_and_nothing_that_only_builds(wheel: Path) -> None:
    packed = {name.removeprefix("headwater/") for name in zipfile.ZipFile(wheel).namelist()}
    listed = subprocess.run(["git", "ls-files", *FOREIGN], cwd=ROOT, capture_output=True, text=True, check=True)
    sources = [Path(name) for name in listed.stdout.splitlines()]
    left_out = {str(path) for path in sources if (ROOT / path).exists()} - packed
    compiled = {path.stem for path in sources if path.suffix == ".pyx"}

    assert {Path(name).suffix for name in left_out if not name.startswith("libs/testing/")} == {
        *(".pyx", ".pxd", ".proto", ".md"),
    }
    assert compiled == {Path(name).name.split(".")[0] for name in packed if name.endswith(".so")}
    assert {
        "spark/jvm/RowMerge.java",
        "libs/setup/locks/spark-jars.lock",
        "libs/tenants/tenant.schema.json",
    } <= packed


def test_each_group_of_a_service_is_an_extra_and_the_wheel_requires_all(wheel: Path) -> None:
    metadata = _metadata(wheel)
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    requires = metadata.get_all("Requires-Dist") or []
    services = {path.parent.name for path in ROOT.glob("services/*/__init__.py")}

    assert {name.replace("-", "_") for name in metadata.get_all("Provides-Extra") or []} == services | {"spark", "cli"}
    assert "aiokafka==0.14.0; extra == 'router'" in requires
    assert "pyspark==4.1.3; extra == 'spark'" in requires
    assert {each for each in groups["spark"] if isinstance(each, str)} <= set(requires)
    assert {each for each in groups["cli"] if isinstance(each, str)} <= set(requires)


@pytest.mark.parametrize("way", ["script", "module"])
def test_the_command_runs_its_own_code_in_any_folder(site_packages: Path, elsewhere: Path, way: str) -> None:
    """Packages named as our folders lie in the current folder and in site-packages; both would end the process."""
    (entry,) = site_packages.glob("*.dist-info/entry_points.txt")
    entries = configparser.ConfigParser()
    entries.read(entry)
    module, function = entries["console_scripts"]["headwater"].split(":")
    # As pip's script: it imports the function and calls it.
    script = f"import sys; from {module} import {function}; sys.argv[0] = 'headwater'; {function}()"
    command = ["-P", "-c", script] if way == "script" else ["-m", "headwater"]

    version = _run(site_packages, elsewhere, [*command, "--version"])
    assert (version.stdout, version.returncode) == ("headwater 0.1.0\n", 0), version.stderr
    shown = _run(site_packages, elsewhere, [*command, "setup", "--help"])
    assert "Download what the embedded stack" in shown.stdout, shown.stderr


def test_processes_of_the_command_run_its_code_too(site_packages: Path, elsewhere: Path) -> None:
    """With the environment that the stack gives them, which the Python workers of Spark inherit."""
    program = (
        "import os, subprocess, sys; sys.path.insert(0, os.environ['ROOT'])\n"
        "from libs.mesh.processes import PYTHON_ENVIRON\n"
        "command = [sys.executable, '-c', 'import libs, services, spark; print(services.__file__)']\n"
        "sys.exit(subprocess.run(command, env={**os.environ, **PYTHON_ENVIRON}).returncode)"
    )
    ran = _run(site_packages, elsewhere, ["-P", "-c", program], {"ROOT": str(site_packages / "headwater")})

    assert ran.stdout.strip() == str(site_packages / "headwater" / "services" / "__init__.py"), ran.stderr


def test_remedies_name_the_command_that_a_wheel_has(site_packages: Path, elsewhere: Path) -> None:
    """There is no Makefile beside it."""
    program = (
        "import os, sys; sys.path.insert(0, os.environ['ROOT'])\n"
        "from pathlib import Path\n"
        "from libs.setup.mysql_program import REMEDY\n"
        "from libs.setup import run\n"
        "print(REMEDY); print([step.name for step in run._chosen(run._steps(Path('none'), Path('none')), run.PARTS['spark'])])"
    )
    ran = _run(site_packages, elsewhere, ["-P", "-c", program], {"ROOT": str(site_packages / "headwater")})

    assert "run `headwater setup` again" in ran.stdout, ran.stderr
    assert ast.literal_eval(ran.stdout.splitlines()[1]) == [
        *("Maven", "jars of Kafka and Spark", "Kafka's classes", "Spark's classes", "MySQL", "PostgreSQL"),
    ]


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def _write_foreign(folder: Path) -> None:
    for name in FOREIGN:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").write_text(f"raise SystemExit('the foreign {name} was imported')\n")


def _run(
    site_packages: Path, folder: Path, arguments: list[str], environ: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(site_packages), **(environ or {})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
