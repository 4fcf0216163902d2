"""The Spark session of a job, and the lock that makes it the only writer of its state."""

import importlib
import logging
import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from libs.errors import InvalidSettings, TransientError
from spark.jvm.java import java_class, keep_type_checks
from spark.session.executors import executor_config, pod_config
from spark.session.local_files import write_files_in_process
from spark.settings import SessionSettings
from spark.sinks.port import NeedsClasses, Sink

_HIDDEN: Final = "(?i)secret|password|token|access[.]?key|credential|authorization"
"""Names of settings whose values nobody is shown: Spark's own pattern knows no credentials."""
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_TELL_TEXTS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's loggers of errors that Java raised: their texts may hold rows' values."""
_OF_SUBMIT: Final = frozenset(
    {
        *("spark.master", "spark.app.name", "spark.jars"),
        *("spark.driver.memory", "spark.driver.host", "spark.driver.bindAddress"),
        *("spark.driver.extraClassPath", "spark.driver.extraJavaOptions"),
    }
)
"""A session's settings from its submitter: its JVM runs already."""
_MALLOC_ARENAS: Final = "2"
_LOCK_POLL_S = 0.2
_ASKED_FOR_OFTEN: Final = (
    "functions",
    "PythonUtils",
    "PythonSQLUtils",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.expressions.Window",
    "org.apache.spark.sql.internal.SQLConf",
    "org.apache.spark.util.Utils",
)
"""Classes that PySpark has the JVM look for with each column, each list of columns, each schema and each error; those
with short names in every jar."""
_EXTENSIONS = "spark.sql.extensions"  # several warehouses may have some


def open_session(settings: SessionSettings, sinks: Collection[Sink], *, name: str) -> SparkSession:
    """Start the JVM and the session; takes 5 to 20 s. Jars are looked for in the settings' folders alone.

    Raises:
        InvalidSettings: one of them holds no jars, or none has a class that a warehouse needs.
    """
    jars = _jars(settings)
    _spare_pandas()
    # Each thread that compresses or compiles had a heap of glibc's to itself, and never gave memory back.
    os.environ.setdefault("MALLOC_ARENA_MAX", _MALLOC_ARENAS)
    if not settings.has_executors:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if settings.java_home is not None:
        os.environ["JAVA_HOME"] = settings.java_home
    config = {
        "spark.jars": ",".join(str(jar) for jar in jars),
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": java_options(settings),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A tenant with a large backlog must not keep the others from their cores.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        # A micro-batch lives for seconds: compressing it, cached or between two stages, costs more than it saves.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.shuffle.compress": "false",
        # A batch's generated classes are the same as the last one's, 170 of a history. Of Spark's 100 none was still there when
        # it was wanted again, and a third of the CPU went into compiling them. The adaptive planner numbers its stages again
        # each time; with the number in its name the same code is another class.
        "spark.sql.codegen.cache.maxEntries": "300",
        "spark.sql.codegen.useIdInClassName": "false",
        "spark.sql.streaming.stopTimeout": "8s",
        # For its errors PySpark notes which line of Python made each column, and asks the JVM several times a column for it:
        # where tables are many and small, more than their rows cost. Ours are logged by class and condition.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.ui.retainedExecutions": "10",
        # Those of a batch's writes, of a few tenants: ``phases`` asks for them.
        "spark.ui.retainedJobs": "60",
        "spark.ui.retainedStages": "120",
        "spark.redaction.regex": _HIDDEN,
    }
    if class_archive(settings) is not None:
        config["spark.driver.extraClassPath"] = class_path()
    extensions: list[str] = []
    for sink in sinks:
        wanted = dict(sink.session_config())
        extensions += filter(None, [wanted.pop(_EXTENSIONS, None)])
        config.update(wanted)
    if extensions:
        config[_EXTENSIONS] = ",".join(extensions)
    config = {"spark.master": settings.master, "spark.app.name": name, **config}
    if settings.has_executors:
        config.update(pod_config(_with_log_settings(settings.java_options)))
    if settings.executors is not None:
        # The executors' image has them in the same place.
        config["spark.jars"] = ",".join(f"local://{jar.absolute()}" for jar in jars)
        config.update(executor_config(settings.executors))
    if settings.is_submitted:
        config = {option: value for option, value in config.items() if option not in _OF_SUBMIT}
    config.update(settings.config)
    for name in _TELL_TEXTS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    _start_jvm(config)
    builder = SparkSession.builder
    for option, value in config.items():
        builder = builder.config(option, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    for each in _ASKED_FOR_OFTEN:
        java_class(session, each)
    keep_type_checks(session)
    _check_classes(session, sinks)
    write_files_in_process(session)
    return session


def _check_classes(session: SparkSession, sinks: Iterable[Sink]) -> None:
    """Else each batch would fail, by an error that names neither the setting nor the jar."""
    is_there = java_class(session, "org.apache.spark.util.Utils").classIsLoadable
    needed = [each for sink in sinks if isinstance(sink, NeedsClasses) for each in sink.needed_classes().items()]
    mistakes = [
        f"session.more_jars_dir: no jar has {name}; put {jar} there (docs/sinks/iceberg.md, Tables in an object store)"
        for name, jar in needed
        if not is_there(name)
    ]
    if mistakes:
        session.stop()
        raise InvalidSettings("sink_job", mistakes)


def _jars(settings: SessionSettings) -> list[Path]:
    remedies = {
        "jars_dir": "run `headwater setup`, in a checkout `make setup`",
        "more_jars_dir": "put them there, or leave it out",
    }
    found: list[Path] = []
    for name, remedy in remedies.items():
        folder = getattr(settings, name)
        if folder is None:
            continue
        jars = sorted(Path(folder).glob("*.jar"))
        if not jars:
            raise InvalidSettings("sink_job", [f"session.{name}: {folder} holds no jars; {remedy}"])
        found += jars
    return found


def _spare_pandas() -> None:
    """``lit``, and each list that goes to Java, ask the module of PySpark's test helpers whether there is NumPy. To know if
    pandas and Arrow are there it imports them, half of a driver's memory: for it, and for nobody else, they are not."""
    hidden = {name: None for name in ("pandas", "pyarrow", "google.rpc") if name not in sys.modules}
    sys.modules.update(hidden)  # type: ignore[arg-type]  # None: as Python's import has it, such a module cannot be imported
    try:
        importlib.import_module("pyspark.testing.utils")
    finally:
        for name in hidden:
            del sys.modules[name]


def _start_jvm(config: Mapping[str, str]) -> None:
    """Secrets are set later: a JVM's start options stand in its command line, visible to anybody who lists processes."""
    given = SparkConf()
    for option, value in config.items():
        if not re.search(_HIDDEN, option):
            given.set(option, value)
    SparkContext._ensure_initialized(conf=given)


def class_path() -> str:
    """PySpark's jars by name. An archive of classes fits jars in one order, and Java takes a folder's as the disk has them: an
    image that is unpacked elsewhere has another order."""
    return os.pathsep.join(sorted(str(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")))


def class_archive(settings: SessionSettings) -> Path | None:
    """The archive of the JVM's classes; None: there is none."""
    archive = None if settings.class_archive is None else Path(settings.class_archive)
    return archive if archive is not None and archive.is_file() and archive.stat().st_size else None


def java_options(settings: SessionSettings) -> str:
    """Of the JVM, with the archive of its classes where there is one."""
    archive = class_archive(settings)
    options = _with_log_settings(settings.java_options)
    if archive is None:
        return options
    # Where it does not fit, Java says so in a warning for each jar.
    return f'{options} "-XX:SharedArchiveFile={archive}" -Xlog:cds=off -Xlog:cds+dynamic=off'


def _with_log_settings(java_options: str) -> str:
    """A later option of the same name wins with Java: a user's own settings win."""
    return f'"-Dlog4j2.configurationFile={_LOG_SETTINGS}" {java_options}'


def lock_state(spark: SparkSession, state_dir: Path, *, timeout_s: float) -> Any:
    """Make this session the only one that writes under ``state_dir``; keep the returned lock for the session's life.

    The JVM holds it, not this process: a killed driver's JVM may still commit for a moment, and only its end releases the
    lock. Two sessions on one Spark checkpoint would both take the same batch.

    Raises:
        TransientError: another session held it for ``timeout_s``; end that one, or try again.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    path = state_dir / "session.lock"
    channel = java_class(spark, "java.io.RandomAccessFile")(str(path), "rw").getChannel()
    deadline_s = time.monotonic() + timeout_s
    while (lock := channel.tryLock()) is None:
        if time.monotonic() > deadline_s:
            raise TransientError(f"another session holds {path} for {timeout_s:.0f} s; stop that job first")
        time.sleep(_LOCK_POLL_S)
    return lock
