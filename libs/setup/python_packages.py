"""uv and the repository's ``.venv`` with the locked packages.

Standard library only; called by set-up. ``requirements/dev.txt`` holds a hash of every file that may be
installed, so it does not matter which registry or mirror they come from.
"""

import hashlib
import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

from libs.setup.cache import staged_dir
from libs.setup.step import Progress, SetupFailed, folder_bytes, run

OLDEST_UV = (0, 5)  # knows dependency groups' lock files as we write them
VERSION_TIMEOUT_S = 20.0
INSTALL_TIMEOUT_S = 1_800.0
VENV_PACKAGE = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
DONE_FILE = "headwater-packages.sha256"
BEGUN_FILE = "headwater-packages.begun"
NETWORK_REMEDY = "check the network and run `make setup` again"


def venv_python(repository: Path) -> Path:
    """The interpreter of the repository's environment."""
    return repository / ".venv" / "bin" / "python"


def is_uv_there(cache: Path) -> bool:
    """Whether there is a uv to use."""
    return _machine_uv() is not None or _private_uv(cache).exists()


def uv_program(cache: Path) -> Path:
    """The uv to use: the machine's where it is new enough, else the one of ``install_uv``."""
    return _machine_uv() or _private_uv(cache)


def install_uv(cache: Path, repository: Path, progress: Progress) -> None:
    """Put the locked uv into an environment of its own in the cache. Blocks; call it under set-up's lock.

    Raises:
        SetupFailed: this Python has no pip, or the registry was not reached.
    """
    progress.now("making an environment for it")
    with staged_dir(_private_uv(cache).parents[1]) as staging:
        run(
            [sys.executable, "-m", "venv", staging],
            purpose="making a virtual environment for uv",
            remedy=f"install {VENV_PACKAGE} (as root: apt-get install {VENV_PACKAGE}), or put uv on the PATH",
            timeout_s=INSTALL_TIMEOUT_S,
        )
        progress.now("downloading it", done_bytes=lambda: folder_bytes(staging / "lib"))
        # -m pip, not bin/pip: scripts of an environment name the folder that they were made in, and that is renamed.
        pip: list[str | Path] = [
            staging / "bin" / "python",
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--quiet",
        ]
        run(
            [*pip, "--require-hashes", "--only-binary=:all:", "-r", repository / "requirements" / "uv.txt"],
            purpose="installing uv",
            remedy=NETWORK_REMEDY,
            timeout_s=INSTALL_TIMEOUT_S,
        )


def are_installed(repository: Path) -> bool:
    """Whether ``.venv`` holds the packages of requirements/dev.txt, installed by a set-up that came to its end."""
    try:
        done = (repository / ".venv" / DONE_FILE).read_text()
    except OSError:
        return False
    return done == _wanted(repository) and os.access(venv_python(repository), os.X_OK)


def make_environment(cache: Path, repository: Path) -> None:
    """Make an empty ``.venv``, in place of one that is broken or of another release of Python.

    Blocks; call it under set-up's lock.

    Raises:
        SetupFailed: the repository cannot be written to.
    """
    run(
        [
            *(uv_program(cache), "venv", "--quiet", "--clear", "--no-project"),
            *("--python", sys.executable, repository / ".venv"),
        ],
        purpose="making .venv",
        remedy=f"see that {repository} can be written to, and run `make setup` again",
        timeout_s=INSTALL_TIMEOUT_S,
    )


def install(cache: Path, repository: Path, progress: Progress) -> None:
    """Make ``.venv``, which is there, hold exactly requirements/dev.txt. Blocks; call it under set-up's lock.

    Raises:
        SetupFailed: the registry was not reached, a hash did not fit, or the disk is full.
    """
    uv = uv_program(cache)
    venv = repository / ".venv"
    # An install that was killed may have left half a package under a whole one's name: then all are laid again.
    was_interrupted = (venv / BEGUN_FILE).exists()
    (venv / DONE_FILE).unlink(missing_ok=True)
    (venv / BEGUN_FILE).touch()
    progress.now("installing")
    run(
        [
            *(uv, "pip", "sync", "--require-hashes", "--python", venv_python(repository)),
            *(("--reinstall",) if was_interrupted else ()),
            repository / "requirements" / "dev.txt",
        ],
        purpose="installing the Python packages",
        remedy="check the network and the disk (5 GB are needed), and run `make setup` again",
        timeout_s=INSTALL_TIMEOUT_S,
        environ=_uv_environ(),
        on_line=lambda line: progress.now(f"installing ({line})"),  # "Building pyspark==4.1.3", which takes longest
        cwd=repository,
    )
    (venv / DONE_FILE).write_text(_wanted(repository))
    (venv / BEGUN_FILE).unlink()


def install_beside(cache: Path, repository: Path, lock: str, folder: Path) -> None:
    """Put the packages of requirements/<lock>.txt, and no more, into ``folder``, for a PYTHONPATH. Blocks.

    Raises:
        SetupFailed: the registry was not reached, a hash did not fit, or the disk is full.
    """
    run(
        [
            *(
                uv_program(cache),
                "pip",
                "install",
                "--require-hashes",
                "--no-deps",
                "--target",
                folder,
            ),
            *("--python", venv_python(repository), "-r", repository / "requirements" / f"{lock}.txt"),
        ],
        purpose=f"installing requirements/{lock}.txt",
        remedy=NETWORK_REMEDY,
        timeout_s=INSTALL_TIMEOUT_S,
        environ=_uv_environ(),
        cwd=repository,
    )


def _uv_environ() -> dict[str, str]:
    """uv trusts the certificates that it brings; a company's proxy is trusted by the machine, as apt and pip do."""
    certificates = ssl.get_default_verify_paths()
    has_some = certificates.cafile or (certificates.capath and any(Path(certificates.capath).iterdir()))
    # The second name is that of older releases.
    return {"UV_SYSTEM_CERTS": "true", "UV_NATIVE_TLS": "true"} if has_some else {}


def _wanted(repository: Path) -> str:
    """What ``.venv`` should hold: the lock, and the release of Python that it was made for."""
    try:
        lock = (repository / "requirements" / "dev.txt").read_bytes()
    except OSError as error:
        raise SetupFailed("requirements/dev.txt is missing", "restore it, or make it with `make locks`") from error
    return hashlib.sha256(b"%d.%d\n" % sys.version_info[:2] + lock).hexdigest()


def is_environment(venv: Path) -> bool:
    """Whether it is whole enough to install into, and its interpreter exists and is of our release."""
    if not (venv / "pyvenv.cfg").exists():
        return False
    try:
        asked = subprocess.run(
            [venv / "bin" / "python", "-c", "import sys; print(*sys.version_info[:2])"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.stdout.split() == [str(part) for part in sys.version_info[:2]]


def _machine_uv() -> Path | None:
    path = shutil.which("uv")
    if path is None:
        return None
    try:
        # "uv 0.13.8 (x86_64-unknown-linux-gnu)"; a version manager's shim may be there without uv
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=True
        )
        version = tuple(int(part) for part in said.stdout.split()[1].split(".")[:2])
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return None
    return Path(path) if version >= OLDEST_UV else None


def _private_uv(cache: Path) -> Path:
    return cache / "uv" / "bin" / "uv"
