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
from collections.abc import Iterator
from pathlib import Path

from libs.errors import InvalidSettings
from libs.local.cache import staged_dir
from libs.local.debs import own_release, unpack
from libs.local.python_packages import NETWORK_REMEDY, install_beside, venv_python
from libs.local.step import Progress, folder_bytes, run

FOLDERS = ("libs", "services")
DONE_FILE = "headwater-compiled.sha256"
COMPILE_TIMEOUT_S = 600.0
CFLAGS = ("-O3", "-g", "-fwrapv", "-fPIC", "-shared", "-fvisibility=hidden")
COMPILERS = ("cc", "gcc", "clang")
HEADERS_REMEDY = "install Python 3.11's headers (as root: apt-get install libpython3.11-dev) and run `make setup` again"
COMPILER_REMEDY = "install a C compiler (as root: apt-get install gcc libc6-dev) and run `make setup` again"
SOURCE_REMEDY = "mend the module, or restore it with git, and run `make setup` again"


def are_built(repository: Path) -> bool:
    """Whether every module is there, made of the sources as they are now."""
    try:
        done = (repository / ".venv" / DONE_FILE).read_text()
    except OSError:
        return False
    sources = list(_sources(repository))
    return done == _fingerprint(repository, sources) and all(_built(source).exists() for source in sources)


def require_built(repository: Path) -> None:
    """Raises InvalidSettings when a module is missing, or older than its source: after a pull, say."""
    if not are_built(repository):
        raise InvalidSettings("compiled modules", ["missing, or older than their sources: run `make setup`"])


def build(cache: Path, repository: Path, progress: Progress) -> None:
    """Compile every module. Blocks; call it under set-up's lock, with the Python packages there.

    Raises:
        SetupFailed: no compiler or no headers could be had, or a module is wrong.
    """
    sources = list(_sources(repository))
    fingerprint = _fingerprint(repository, sources)
    compiler, environ = _compiler(cache, repository, progress)
    includes = [f"-I{folder}" for folder in _header_dirs(cache, progress)]
    with tempfile.TemporaryDirectory() as folder:
        for nth, source in enumerate(sources, 1):
            name = source.relative_to(repository)
            progress.now(f"{name} ({nth} of {len(sources)})")
            translated = Path(folder) / f"{nth}.c"
            run(
                [venv_python(repository), "-m", "cython", "-3", name, "-o", translated],
                purpose=f"translating {name}",
                remedy=SOURCE_REMEDY,
                timeout_s=COMPILE_TIMEOUT_S,
                cwd=repository,
            )
            built = _built(source)
            staged = built.with_name(f".{built.name}.{os.getpid()}")
            try:
                run(
                    [*compiler, *CFLAGS, *includes, translated, "-o", staged],
                    purpose=f"compiling {name}",
                    remedy=COMPILER_REMEDY,
                    timeout_s=COMPILE_TIMEOUT_S,
                    environ=environ,
                )
                staged.rename(built)
            finally:
                staged.unlink(missing_ok=True)
    (repository / ".venv" / DONE_FILE).write_text(fingerprint)


def _sources(repository: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((repository / folder).rglob("*.pyx"))


def _built(source: Path) -> Path:
    return source.with_name(source.stem + sysconfig.get_config_var("EXT_SUFFIX"))


def _fingerprint(repository: Path, sources: list[Path]) -> str:
    """Of all that decides what the modules become: sources, what they include, and Cython itself (in the lock)."""
    digest = hashlib.sha256(f"{sysconfig.get_config_var('EXT_SUFFIX')} {' '.join(CFLAGS)}\n".encode())
    included = sorted(path for folder in FOLDERS for path in (repository / folder).rglob("*.pxd"))
    for path in (*sources, *included, repository / "requirements" / "dev.txt"):
        digest.update(f"{path.relative_to(repository)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _compiler(cache: Path, repository: Path, progress: Progress) -> tuple[list[str | Path], dict[str, str]]:
    """The command, and what it must find in its environment."""
    if chosen := os.environ.get("CC"):
        return [*shlex.split(chosen)], {}
    for name in COMPILERS:
        if path := shutil.which(name):
            return [path], {}
    folder = cache / "zig"
    if not folder.exists():
        progress.now("downloading a C compiler", done_bytes=lambda: folder_bytes(cache, ".zig.*/**/*"))
        with staged_dir(folder) as staging:
            install_beside(cache, repository, "compiler", staging)
    return [sys.executable, "-m", "ziglang", "cc"], {"PYTHONPATH": str(folder)}


def _header_dirs(cache: Path, progress: Progress) -> list[Path]:
    own = Path(sysconfig.get_path("include"))
    if (own / "Python.h").exists():
        return [own]
    root = cache / "python-headers"
    if not root.exists():
        with staged_dir(root) as staging:
            unpack(
                ("libpython3.11-dev",),
                staging / "root",
                release=own_release(),
                is_wanted=lambda name: name == "libpython3.11-dev",
                progress=progress,
                remedy=f"{HEADERS_REMEDY}; or {NETWORK_REMEDY}",
            )
    # pyconfig.h of Debian names its machine's own by a path below /usr/include.
    include = root / "root" / "usr" / "include"
    return [include / "python3.11", include]
