"""A broker's template: where it lies, and which remains where none can be made."""

from pathlib import Path

import pytest

from libs.setup.jars import VERIFIED_FILE, cached_dir, jar_set
from libs.setup.java import Java
from libs.setup.kafka_template import STORAGE, template_dir, write
from libs.setup.step import Progress


@pytest.fixture
def java(tmp_path: Path) -> Java:
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    return Java(home, 17)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """With the jars of Kafka, as far as their marks go."""
    folder = cached_dir(jar_set("kafka"), tmp_path / "cache")
    folder.mkdir(parents=True)
    (folder / VERIFIED_FILE).write_text("sizes and times")
    return tmp_path / "cache"


def a_repository(folder: Path, python: str) -> Path:
    (folder / "pyproject.toml").touch()
    executable = folder / ".venv" / "bin" / "python"
    executable.parent.mkdir(parents=True, exist_ok=True)
    executable.write_text(f"#!/bin/sh\n{python}\n")
    executable.chmod(0o755)
    return folder


def test_another_java_and_jars_that_were_laid_again_have_another_template(cache: Path, java: Java) -> None:
    first = template_dir(java, cache)
    (java.home / "release").write_text('JAVA_VERSION="17.0.2"')
    second = template_dir(java, cache)
    (cached_dir(jar_set("kafka"), cache) / VERIFIED_FILE).write_text("other times")

    assert len({first, second, template_dir(java, cache)}) == 3


def test_what_the_job_writes_is_there_and_an_earlier_template_goes(tmp_path: Path, cache: Path, java: Java) -> None:
    """Whole or absent: under its name only once the job has ended."""
    repository = a_repository(tmp_path, f'mkdir "$3/{STORAGE}"')
    write(java, cache, Progress(), repository)
    earlier = template_dir(java, cache)
    assert [path.name for path in earlier.iterdir()] == [STORAGE]
    (java.home / "release").write_text('JAVA_VERSION="17.0.2"')

    write(java, cache, Progress(), repository)

    assert list(earlier.parent.iterdir()) == [template_dir(java, cache)]


def test_a_job_that_fails_leaves_an_empty_template_and_is_not_tried_again(
    tmp_path: Path, cache: Path, java: Java
) -> None:
    write(java, cache, Progress(), a_repository(tmp_path, f'mkdir "$3/{STORAGE}"; echo "error: no port"; exit 1'))

    assert list(template_dir(java, cache).iterdir()) == []
