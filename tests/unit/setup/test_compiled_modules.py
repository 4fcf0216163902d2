"""The step of set-up that compiles: a module that is wrong is named, one that changed is made again."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.errors import InvalidSettings
from libs.setup import compiled_modules, debs
from libs.setup.cache import cache_dir
from libs.setup.step import Progress, SetupFailed

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True, scope="module")
def unoptimised() -> Iterator[None]:
    """Nobody measures the modules' speed here."""
    flags = ("-O0", *(flag for flag in compiled_modules.CFLAGS if flag not in ("-O3", "-g1")))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compiled_modules, "CFLAGS", flags)
        yield


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one module, and this one's packages."""
    return repository_in(tmp_path)


@pytest.fixture(scope="module")
def _built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = repository_in(tmp_path_factory.mktemp("repository"))
    compiled_modules.build(cache_dir(), made, Progress())
    return made


@pytest.fixture
def built(_built_once: Path, tmp_path: Path) -> Path:
    """The same with its module built."""
    return shutil.copytree(_built_once, tmp_path / "copy")


def repository_in(folder: Path) -> Path:
    (folder / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
    # a link would lose the environment: Python finds it by the file that it was called as
    wrapper = folder / ".venv" / "bin" / "python"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    (folder / "requirements").mkdir()
    # compiler.txt: where the machine has no C compiler, the modules are made by the one that set-up keeps in the cache
    for lock in ("build.txt", "compiler.txt"):
        shutil.copy(ROOT / "requirements" / lock, folder / "requirements")
    (folder / "libs").mkdir()
    (folder / "services").mkdir()
    (folder / "libs" / "answer.pyx").write_text("def answer(int number):\n    return number + 2\n")
    return folder


def test_modules_are_built_once_and_again_when_they_change(repository: Path, tmp_path: Path) -> None:
    assert not compiled_modules.are_built(repository)
    compiled_modules.build(cache_dir(), repository, Progress())
    assert compiled_modules.are_built(repository)
    said = subprocess.run(
        [sys.executable, "-c", "import answer; print(answer.answer(40))"],
        cwd=repository / "libs",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert said.stdout == "42\n"
    compiled_modules.require_built(repository)
    (repository / "libs" / "answer.pyx").write_text("def answer(int number):\n    return number\n")
    assert not compiled_modules.are_built(repository)
    with pytest.raises(InvalidSettings, match=r"(?s)compiled modules.*make setup"):
        compiled_modules.require_built(repository)


def test_only_what_changed_is_made_anew(built: Path) -> None:
    """A declaration that others may include concerns all of them."""
    [answer] = (built / "libs").glob("*.so")
    made_ns = answer.stat().st_mtime_ns
    (built / "services" / "other.pyx").write_text("cpdef other(): pass\n")
    compiled_modules.build(cache_dir(), built, Progress())
    [other] = (built / "services").glob("*.so")
    other_made_ns = other.stat().st_mtime_ns

    (built / "services" / "other.pyx").write_text("cpdef other(): return 1\n")
    compiled_modules.build(cache_dir(), built, Progress())
    assert answer.stat().st_mtime_ns == made_ns
    assert other.stat().st_mtime_ns > other_made_ns

    (built / "services" / "other.pxd").write_text("cpdef other()\n")
    assert [path.name for path in compiled_modules._stale(built)] == ["answer.pyx", "other.pyx"]


def test_a_module_that_is_wrong_is_named_with_the_remedy(repository: Path, tmp_path: Path) -> None:
    (repository / "libs" / "answer.pyx").write_text("def answer(:\n")
    with pytest.raises(SetupFailed, match=r"translating libs/answer\.pyx.*make setup"):
        compiled_modules.build(cache_dir(), repository, Progress())
    assert not compiled_modules.are_built(repository)


def test_a_compiler_that_fails_leaves_the_module_that_was_there(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [module] = (built / "libs").glob("*.so")
    before = module.read_bytes()
    (built / "libs" / "answer.pyx").write_text("def answer(int number):\n    return number\n")
    monkeypatch.setenv("CC", "false")
    with pytest.raises(SetupFailed, match="install a C compiler"):
        compiled_modules.build(cache_dir(), built, Progress())
    assert module.read_bytes() == before
    assert [path.name for path in (built / "libs").iterdir() if path.name.startswith(".")] == []


def test_release_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "os-release"
    monkeypatch.setattr(debs, "RELEASE_FILE", file)
    assert debs.own_release() == "sid"
    file.write_text('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_CODENAME=bookworm\n')
    assert debs.own_release() == "bookworm"
