"""The archive of Spark's classes: where it lies, and what is left where none can be made."""

from pathlib import Path

import pytest

from libs.local.class_archive import archive_path, is_there, write
from libs.local.java import Java
from libs.local.step import Progress
from spark.jobs.session import java_options
from spark.jobs.settings import SessionSettings


@pytest.fixture
def java(tmp_path: Path) -> Java:
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    return Java(home, 17)


def a_repository(folder: Path, python: str) -> Path:
    executable = folder / ".venv" / "bin" / "python"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{python}\n")
    executable.chmod(0o755)
    return folder


def test_another_release_of_java_has_another_archive(tmp_path: Path, java: Java) -> None:
    before = archive_path(tmp_path, java)
    (java.home / "release").write_text('JAVA_VERSION="17.0.2"')

    assert archive_path(tmp_path, java) != before


def test_what_the_job_writes_is_there(tmp_path: Path, java: Java) -> None:
    repository = a_repository(tmp_path, 'echo classes > "$3"')
    assert not is_there(repository, java)

    write(repository, java, tmp_path, Progress())

    assert is_there(repository, java)
    assert archive_path(repository, java).read_text() == "classes\n"
    assert [path.name for path in (repository / ".venv").glob(".*")] == []


def test_a_job_that_fails_leaves_none_and_is_not_tried_again(tmp_path: Path, java: Java) -> None:
    repository = a_repository(tmp_path, 'echo half > "$3"; echo "error: no archive"; exit 1')

    write(repository, java, tmp_path, Progress())

    assert is_there(repository, java)
    settings = SessionSettings(jars_dir="unused", class_archive=str(archive_path(repository, java)))
    assert java_options(settings) == settings.java_options


def test_the_java_of_a_package_has_none(tmp_path: Path, java: Java) -> None:
    assert is_there(tmp_path, Java(java.home, 21, is_from_package=True))
    assert is_there(tmp_path, None)


def test_a_session_takes_an_archive_that_is_there(tmp_path: Path) -> None:
    archive = tmp_path / "with blank" / "classes.jsa"
    settings = SessionSettings(jars_dir="unused", class_archive=str(archive))
    assert java_options(settings) == settings.java_options

    archive.parent.mkdir()
    archive.write_text("classes")

    assert f'"-XX:SharedArchiveFile={archive}"' in java_options(settings)
