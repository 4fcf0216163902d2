"""The archive of Spark's classes: where it lies, and that nothing is left where none can be made."""

import os
import shutil
from pathlib import Path

import pytest

from libs.setup import class_archive
from libs.setup.class_archive import archive_path, is_there, write
from libs.setup.java import Java
from libs.setup.spark_toolchain import find_toolchain
from libs.setup.step import Progress
from spark.session.class_archive import check_archive
from spark.session.start import java_options
from spark.settings import SessionSettings


@pytest.fixture
def java(tmp_path: Path) -> Java:
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    return Java(home, 17)


def a_repository(folder: Path, python: str) -> Path:
    (folder / "pyproject.toml").touch()
    executable = folder / ".venv" / "bin" / "python"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{python}\n")
    executable.chmod(0o755)
    return folder


def test_another_release_of_java_has_another_archive(tmp_path: Path, java: Java) -> None:
    before = archive_path(java, tmp_path, a_repository(tmp_path, "exit 1"))
    (java.home / "release").write_text('JAVA_VERSION="17.0.2"')

    assert archive_path(java, tmp_path, tmp_path) != before


def test_what_the_job_writes_is_there(tmp_path: Path, java: Java) -> None:
    repository = a_repository(tmp_path, 'echo classes > "$3"')
    assert not is_there(java, tmp_path, repository)

    write(java, tmp_path, tmp_path, Progress(), repository)

    assert is_there(java, tmp_path, repository)
    assert archive_path(java, tmp_path, repository).read_text() == "classes\n"
    assert [path.name for path in (repository / ".venv").glob(".*")] == []


def test_an_earlier_archive_of_the_environment_is_removed(tmp_path: Path, java: Java) -> None:
    """After another Java came; files beside it stay."""
    repository = a_repository(tmp_path, 'echo classes > "$3"')
    write(java, tmp_path, tmp_path, Progress(), repository)
    other = repository / ".venv" / "other.jsa"
    other.touch()
    (java.home / "release").write_text('JAVA_VERSION="17.0.2"')

    write(java, tmp_path, tmp_path, Progress(), repository)

    assert set((repository / ".venv").glob("*.jsa")) == {archive_path(java, tmp_path, repository), other}


def test_a_wheels_archives_are_told_apart_by_environment(
    tmp_path: Path, java: Java, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cache serves them all; an upgrade of one leaves the others' archives."""
    environments = [tmp_path / name / "jars" for name in ("one", "two")]
    for jars in environments:
        jars.mkdir(parents=True)
    monkeypatch.setattr(class_archive, "run", lambda command, **_: Path(command[3]).touch())
    root = tmp_path / "site-packages"
    root.mkdir()

    written = []
    for nth, jars in enumerate([environments[0], environments[1], environments[0]]):
        monkeypatch.setattr(class_archive, "_jars", lambda jars=jars: jars)
        os.utime(jars, ns=(nth, nth))
        write(java, tmp_path / "cache", jars, Progress(), root)
        written.append(archive_path(java, tmp_path / "cache", root))

    assert set((tmp_path / "cache" / "spark-classes").glob("*")) == set(written[1:])


def test_a_job_that_fails_leaves_none_and_is_not_tried_again(tmp_path: Path, java: Java) -> None:
    repository = a_repository(tmp_path, 'echo half > "$3"; echo "error: no archive"; exit 1')

    write(java, tmp_path, tmp_path, Progress(), repository)

    assert is_there(java, tmp_path, repository)
    settings = SessionSettings(jars_dir="unused", class_archive=str(archive_path(java, tmp_path, repository)))
    assert "SharedArchiveFile" not in java_options(settings)


def test_the_java_of_a_package_has_none(tmp_path: Path, java: Java) -> None:
    assert is_there(Java(java.home, 21, is_from_package=True), tmp_path)
    assert is_there(None, tmp_path)


@pytest.mark.servers  # starts Java
def test_an_archive_that_was_cut_off_or_changed_is_not_taken(tmp_path: Path) -> None:
    toolchain = find_toolchain()
    if not toolchain.class_archive.is_file() or not toolchain.class_archive.stat().st_size:
        pytest.skip("set-up could make no archive with this Java")
    settings = SessionSettings(java_home=str(toolchain.java_home), jars_dir="unused")
    check_archive(toolchain.class_archive, settings)
    archive = tmp_path / "classes.jsa"
    shutil.copyfile(toolchain.class_archive, archive)
    size = archive.stat().st_size

    with archive.open("r+b") as file:
        file.seek(size // 2)
        (byte,) = file.read(1)
        file.seek(size // 2)
        file.write(bytes([byte ^ 0xFF]))
    with pytest.raises(RuntimeError, match="is not taken"):
        check_archive(archive, settings)
    os.truncate(archive, size // 2)
    with pytest.raises(RuntimeError, match="is not taken"):
        check_archive(archive, settings)


def test_a_session_takes_an_archive_that_is_there(tmp_path: Path) -> None:
    archive = tmp_path / "with blank" / "classes.jsa"
    settings = SessionSettings(jars_dir="unused", class_archive=str(archive))
    assert "SharedArchiveFile" not in java_options(settings)

    archive.parent.mkdir()
    archive.write_text("classes")

    assert f'"-XX:SharedArchiveFile={archive}"' in java_options(settings)
