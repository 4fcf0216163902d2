"""Files of the local disk, written by a session's driver."""

import stat
from pathlib import Path
from typing import Any

import psutil
import pytest

from spark.java import java_class
from tests.spark_session import SharedSpark

_FILES = 100


@pytest.fixture(name="local_files")
def _local_files(shared: SharedSpark) -> Any:
    settings = shared.session.sparkContext._jsc.hadoopConfiguration()
    return java_class(shared.session, "org.apache.hadoop.fs.FileSystem").getLocal(settings)


def test_writing_files_starts_no_process(shared: SharedSpark, local_files: Any, tmp_path: Path) -> None:
    before = _cpu_of_children(_java_pid(shared))
    for number in range(_FILES):
        local_files.create(_path(shared, tmp_path / str(number))).close()

    assert _cpu_of_children(_java_pid(shared)) == before
    modes = {stat.S_IMODE((tmp_path / str(number)).stat().st_mode) for number in range(_FILES)}
    assert modes == {0o644}


def test_a_checkpoint_starts_no_process(shared: SharedSpark, tmp_path: Path) -> None:
    """A session's first one loads Hadoop's ``Shell``, which looks once for a program: so the second is counted."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("row\n", encoding="utf-8")
    _write_checkpoint(shared, tmp_path / "in", tmp_path / "first")
    before = _cpu_of_children(_java_pid(shared))
    _write_checkpoint(shared, tmp_path / "in", tmp_path / "second")

    assert _cpu_of_children(_java_pid(shared)) == before
    assert (tmp_path / "second" / "commits" / "0").is_file()


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o751, 0o1777, 0o000])
def test_a_file_has_the_mode_that_is_asked_for(
    shared: SharedSpark, local_files: Any, tmp_path: Path, mode: int
) -> None:
    file = tmp_path / "file"
    file.touch()
    permission = java_class(shared.session, "org.apache.hadoop.fs.permission.FsPermission")
    local_files.setPermission(_path(shared, file), permission(f"{mode:04o}"))

    assert stat.S_IMODE(file.stat().st_mode) == mode


def _write_checkpoint(shared: SharedSpark, lines: Path, checkpoint: Path) -> None:
    query = (
        shared.session.readStream.text(str(lines))
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _path(shared: SharedSpark, file: Path) -> Any:
    return java_class(shared.session, "org.apache.hadoop.fs.Path")(str(file))


def _java_pid(shared: SharedSpark) -> int:
    pid: int = java_class(shared.session, "java.lang.ProcessHandle").current().pid()
    return pid


def _cpu_of_children(pid: int) -> float:
    """Of those that have ended: some milliseconds each."""
    times = psutil.Process(pid).cpu_times()
    return times.children_user + times.children_system
