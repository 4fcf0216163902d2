"""Files of the local disk, written by a session's driver."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark.jvm.java import java_class
from tests.spark_session import SharedSpark

_FILES = 100


@pytest.fixture(name="local_files")
def _local_files(shared: SharedSpark) -> Any:
    settings = shared.session.sparkContext._jsc.hadoopConfiguration()
    return java_class(shared.session, "org.apache.hadoop.fs.FileSystem").getLocal(settings)


def test_writing_files_starts_no_process(shared: SharedSpark, local_files: Any, tmp_path: Path) -> None:
    def write() -> None:
        for number in range(_FILES):
            local_files.create(_path(shared, tmp_path / str(number))).close()

    assert _commands(shared, tmp_path, write) == []
    modes = {stat.S_IMODE((tmp_path / str(number)).stat().st_mode) for number in range(_FILES)}
    assert modes == {0o644}


def test_hadoops_own_files_start_one_each(shared: SharedSpark, tmp_path: Path) -> None:
    """Else the other tests, which look for such commands, would see none in any case."""
    (tmp_path / "file").touch()
    own = java_class(shared.session, "org.apache.hadoop.fs.RawLocalFileSystem")()
    permission = java_class(shared.session, "org.apache.hadoop.fs.permission.FsPermission")

    [command] = _commands(
        shared, tmp_path, lambda: own.setPermission(_path(shared, tmp_path / "file"), permission("0640"))
    )

    assert command.startswith("chmod")


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o751, 0o1777, 0o000])
def test_a_file_has_the_mode_that_is_asked_for(
    shared: SharedSpark, local_files: Any, tmp_path: Path, mode: int
) -> None:
    file = tmp_path / "file"
    file.touch()
    permission = java_class(shared.session, "org.apache.hadoop.fs.permission.FsPermission")
    local_files.setPermission(_path(shared, file), permission(f"{mode:04o}"))

    assert stat.S_IMODE(file.stat().st_mode) == mode


def _path(shared: SharedSpark, file: Path) -> Any:
    return java_class(shared.session, "org.apache.hadoop.fs.Path")(str(file))


def _commands(shared: SharedSpark, folder: Path, act: Callable[[], object]) -> list[str]:
    """The commands that Java started meanwhile and that name ``folder``: the session may have work of others."""
    recording = java_class(shared.session, "jdk.jfr.Recording")()
    recording.enable("jdk.ProcessStart")
    recording.start()
    act()
    recording.stop()
    file = java_class(shared.session, "java.io.File")(str(folder / "processes.jfr")).toPath()
    recording.dump(file)
    recording.close()
    events = java_class(shared.session, "jdk.jfr.consumer.RecordingFile").readAllEvents(file)
    commands = [str(event.getString("command")) for event in events]
    return [command for command in commands if str(folder) in command]
