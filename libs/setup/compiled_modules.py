"""The modules that are compiled (``*.pyx``): Cython makes C of them, a C compiler makes Python modules beside them.

Standard library only; called by set-up. Both the compiler and Python's headers are the machine's own where it has them; else
the compiler is zig out of a Python package, and the headers are Debian's, both in the cache: nothing is installed into the
machine. A module is replaced whole, so that processes that run keep the one they have.
"""

import hashlib
import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from libs.errors import InvalidSettings
from libs.setup.cache import staged_dir
from libs.setup.debs import own_release, unpack
from libs.setup.python_packages import NETWORK_REMEDY, install_beside
from libs.setup.step import Progress, folder_bytes, run

FOLDERS = ("libs", "services")
DONE_FILE = "headwater-compiled.sha256"
"""A line a module: its sources' digest, and its name."""
COMPILE_TIMEOUT_S = 600.0
# -g1: functions and lines, for profilers and traces; variables too would cost a quarter more time.
CFLAGS = ("-O3", "-g1", "-fwrapv", "-fPIC", "-shared", "-fvisibility=hidden")
# -Xclang: zig's own driver takes some of these for itself, and links parts that only count for programs.
SANITIZED_CFLAGS = (
    *("-O1", "-g", "-fwrapv", "-fPIC", "-shared", "-fvisibility=hidden"),
    *("-Xclang", "-fsanitize=address", "-Xclang", "-fsanitize-coverage-type=3"),
    *("-Xclang", "-fsanitize-coverage-inline-8bit-counters", "-Xclang", "-fsanitize-coverage-pc-table"),
    *("-Xclang", "-fsanitize-coverage-trace-cmp"),
)
COMPILERS = ("cc", "gcc", "clang")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
HEADERS_PACKAGE = f"libpython{VERSION}-dev"
HEADERS_REMEDY = (
    f"install Python {VERSION}'s headers (as root: apt-get install {HEADERS_PACKAGE}) and run `make setup` again"
)
COMPILER_REMEDY = "install a C compiler (as root: apt-get install gcc libc6-dev) and run `make setup` again"
SOURCE_REMEDY = "mend the module, or restore it with git, and run `make setup` again"


def are_built(repository: Path) -> bool:
    """Whether every module is there, made of the sources as they are now."""
    return not _stale(repository)


def require_built(repository: Path) -> None:
    """Raises InvalidSettings when a module is missing, or older than its source: after a pull, say."""
    if not are_built(repository):
        raise InvalidSettings("compiled modules", ["missing, or older than their sources: run `make setup`"])


def is_cython_there(cache: Path, repository: Path) -> bool:
    """Whether the cache has the Cython of requirements/build.txt."""
    return _cython_dir(cache, repository).exists()


def install_cython(cache: Path, repository: Path) -> None:
    """Put requirements/build.txt into the cache, so that compiling waits for no other Python package.

    Blocks; call it under set-up's lock, with ``.venv`` there.

    Raises:
        SetupFailed: the registry was not reached, a hash did not fit, or the disk is full.
    """
    with staged_dir(_cython_dir(cache, repository)) as staging:
        install_beside(cache, repository, "build", staging)


def build(cache: Path, repository: Path, progress: Progress) -> None:
    """Compile every module. Blocks; call it under set-up's lock, after ``install_cython``.

    Raises:
        SetupFailed: no compiler or no headers could be had, or a module is wrong.
    """
    stale = _stale(repository)
    compiler, environ = c_compiler(cache, repository, progress)
    includes = _includes(cache, progress)
    digests = _digests(repository)
    done = _recorded(repository)

    cython = _cython_dir(cache, repository)

    def compile_one(source: Path) -> Path:
        _compile(repository, source, _built(source), [*compiler, *CFLAGS, *includes], environ, cython)
        return source

    progress.now(f"{len(stale)} modules")
    # The largest first: else the last one has one core busy, and nobody the others.
    stale.sort(key=lambda source: -source.stat().st_size)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        compiled = [pool.submit(compile_one, source) for source in stale]
        try:
            for count, finished in enumerate(as_completed(compiled), 1):
                name = str(finished.result().relative_to(repository))
                done[name] = digests[name]
                record = "".join(f"{done[name]} {name}\n" for name in sorted(done.keys() & digests.keys()))
                (repository / ".venv" / DONE_FILE).write_text(record)
                progress.now(f"{name} ({count} of {len(stale)})")
        finally:
            pool.shutdown(cancel_futures=True)


def build_into(folder: Path, cache: Path, root: Path, progress: Progress) -> None:
    """Compile every module below ``folder``, by the Cython and for the Python that run this: a wheel's build. Blocks.

    Raises:
        SetupFailed: no compiler or no headers could be had, or a module is wrong.
    """
    compiler, environ = c_compiler(cache, root, progress)
    command = [*compiler, *CFLAGS, "-s", *_includes(cache, progress)]

    def compile_one(source: Path) -> None:
        built = folder / _built(source).relative_to(root)
        built.parent.mkdir(parents=True, exist_ok=True)
        _compile(root, source, built, command, environ)

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for finished in as_completed([pool.submit(compile_one, source) for source in _sources(root)]):
            finished.result()


def built_names(root: Path) -> list[str]:
    """Of each compiled module, its path below ``root``."""
    return [str(_built(source).relative_to(root)) for source in _sources(root)]


def build_sanitized(cache: Path, repository: Path, folders: Sequence[str], into: Path, progress: Progress) -> None:
    """Compile the modules of ``folders`` for a fuzzer, below ``into``: AddressSanitizer, and counters of reached code.

    Always by zig's clang, which alone has both. Their loader brings the sanitizer's functions (LD_PRELOAD). Blocks.

    Raises:
        SetupFailed: zig or Python's headers could not be had, or a module is wrong.
    """
    compiler, environ = _zig(cache, repository, progress)
    command = [*compiler, *SANITIZED_CFLAGS, *_includes(cache, progress)]
    sources = [source for folder in folders for source in sorted((repository / folder).glob("*.pyx"))]
    for source in sources:
        built = into / _built(source).relative_to(repository)
        built.parent.mkdir(parents=True, exist_ok=True)
        progress.now(f"sanitized {source.relative_to(repository)}")
        _compile(repository, source, built, command, environ, _cython_dir(cache, repository))


def _compile(
    repository: Path,
    source: Path,
    built: Path,
    compile_command: list[str | Path],
    environ: dict[str, str],
    cython: Path | None = None,
) -> None:
    """``cython``: the folder that has Cython, where the interpreter that runs this has none."""
    name = source.relative_to(repository)
    staged = built.with_name(f".{built.name}.{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        translated = Path(folder) / f"{source.stem}.c"
        run(
            [sys.executable, "-m", "cython", "-3", name, "-o", translated],
            purpose=f"translating {name}",
            remedy=SOURCE_REMEDY,
            timeout_s=COMPILE_TIMEOUT_S,
            environ={"PYTHONPATH": str(cython)} if cython else {},
            cwd=repository,
        )
        try:
            run(
                [*compile_command, translated, "-o", staged],
                purpose=f"compiling {name}",
                remedy=COMPILER_REMEDY,
                timeout_s=COMPILE_TIMEOUT_S,
                environ=environ,
            )
            staged.rename(built)
        finally:
            staged.unlink(missing_ok=True)


def _stale(repository: Path) -> list[Path]:
    """Modules that are missing, or were made of other sources."""
    done, digests = _recorded(repository), _digests(repository)
    return [
        source
        for source in _sources(repository)
        if done.get(name := str(source.relative_to(repository))) != digests[name] or not _built(source).exists()
    ]


def _recorded(repository: Path) -> dict[str, str]:
    """The origin of each module that is there: its digest by its source's name."""
    try:
        lines = (repository / ".venv" / DONE_FILE).read_text().splitlines()
    except OSError:
        return {}
    return {name: digest for digest, _, name in (line.partition(" ") for line in lines)}


def _sources(repository: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((repository / folder).rglob("*.pyx"))


def _cython_dir(cache: Path, repository: Path) -> Path:
    """Of the Cython that is locked, for the Python that runs this."""
    lock = hashlib.sha256((repository / "requirements" / "build.txt").read_bytes()).hexdigest()
    return cache / f"cython-{VERSION}-{lock[:12]}"


def _built(source: Path) -> Path:
    return source.with_name(source.stem + sysconfig.get_config_var("EXT_SUFFIX"))


def _digests(repository: Path) -> dict[str, str]:
    """Of all that decides a module's code, by its source's name: the source, what it may include, and Cython itself
    (in the lock)."""
    shared = hashlib.sha256(f"{sysconfig.get_config_var('EXT_SUFFIX')} {' '.join(CFLAGS)}\n".encode())
    included = sorted(path for folder in FOLDERS for path in (repository / folder).rglob("*.pxd"))
    for path in (*included, repository / "requirements" / "build.txt"):
        shared.update(f"{path.relative_to(repository)}\n".encode() + path.read_bytes())
    digests = {}
    for source in _sources(repository):
        own = shared.copy()
        own.update(source.read_bytes())
        digests[str(source.relative_to(repository))] = own.hexdigest()
    return digests


def c_compiler(cache: Path, repository: Path, progress: Progress) -> tuple[list[str | Path], dict[str, str]]:
    """The command, and the variables that it must find in its environment."""
    if chosen := os.environ.get("CC"):
        return [*shlex.split(chosen)], {}
    for name in COMPILERS:
        if path := shutil.which(name):
            return [path], {}
    return _zig(cache, repository, progress)


def _zig(cache: Path, repository: Path, progress: Progress) -> tuple[list[str | Path], dict[str, str]]:
    folder = cache / "zig"
    if not folder.exists():
        progress.now("downloading a C compiler", done_bytes=lambda: sum(map(folder_bytes, cache.glob(".zig.*"))))
        with staged_dir(folder) as staging:
            install_beside(cache, repository, "compiler", staging)
    return [sys.executable, "-m", "ziglang", "cc"], {"PYTHONPATH": str(folder)}


def _includes(cache: Path, progress: Progress) -> list[str]:
    return [f"-I{folder}" for folder in _header_dirs(cache, progress)]


def _header_dirs(cache: Path, progress: Progress) -> list[Path]:
    own = Path(sysconfig.get_path("include"))
    if (own / "Python.h").exists():
        return [own]
    root = cache / f"python-headers-{VERSION}"
    if not root.exists():
        with staged_dir(root) as staging:
            unpack(
                (HEADERS_PACKAGE,),
                staging / "root",
                release=own_release(),
                is_wanted=lambda name: name == HEADERS_PACKAGE,
                progress=progress,
                remedy=f"{HEADERS_REMEDY}; or {NETWORK_REMEDY}",
            )
    # pyconfig.h of Debian names its machine's own by a path below /usr/include.
    include = root / "root" / "usr" / "include"
    return [include / f"python{VERSION}", include]
