"""The Dockerfile's images, built by buildah on a base that is made here of Debian's packages: no registry is asked for any.

``python -m tests.cluster.images`` builds them all, or the targets that it is given, and prints their sizes (`make images`).
Layers are kept in the cache (``images``, some 8 GB with those of an older Headwater), so that a second build takes unchanged
ones. Root only.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from libs.errors import HeadwaterError
from libs.setup import debs
from libs.setup.cache import cache_dir, locked
from libs.setup.jars import jars_dir
from libs.setup.progress import Display
from libs.setup.step import Progress, SetupFailed, run
from tests.cluster.programs import REPOSITORY

TAG: Final = "e2e"
BASE: Final = f"localhost/headwater-python:{debs.own_release()}"
PAUSE: Final = "localhost/headwater-pause:test"
"""The image that holds a pod's namespaces: the base, asleep."""
BASE_PACKAGES: Final = "python3.11,python3.11-venv,python3-pip,ca-certificates"
"""pip brings distutils, which venv needs and debootstrap does not find by itself."""
BASE_TIMEOUT_S: Final = 1_800.0
BUILD_TIMEOUT_S: Final = 3_600.0
REMEDY: Final = "see above; check the network, and run `make images` again"
# As docker.io's Debian images have it: dpkg does not wait for the disk after each file.
BASE_SETTINGS: Final = {
    "etc/dpkg/dpkg.cfg.d/unsafe-io": "force-unsafe-io\n",
    "etc/apt/apt.conf.d/no-recommends": 'APT::Install-Recommends "false";\nAcquire::Languages "none";\n',
}
# This machine's settings, for the time of the build: they do not come into an image.
MACHINE_FILES: Final = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pip.conf"))


def targets() -> tuple[str, ...]:
    """The Dockerfile's images."""
    text = (REPOSITORY / "Dockerfile").read_text()
    return tuple(re.findall(r"^FROM runtime AS (\S+)$", text, re.MULTILINE))


def reference(target: str, tag: str = TAG) -> str:
    """The name of an image."""
    return f"localhost/headwater-{target}:{tag}"


def build(wanted: Sequence[str], progress: Progress, *, source: Path = REPOSITORY, tag: str = TAG) -> None:
    """Build the images of ``wanted``, or take those that are there. Blocks, for a quarter of an hour when all is new.

    ``source``: the folder of the Dockerfile and of all that it copies.

    Raises:
        SetupFailed: a step failed; the message has its words.
    """
    with locked(cache_dir() / "images.lock"):
        if not _is_there(BASE):
            _make_base(progress)
        if not _is_there(PAUSE):
            container = _buildah("from", "--pull-never", BASE, purpose="beginning the pause image").strip()
            _buildah(
                "config", "--entrypoint", '["/usr/bin/sleep", "infinity"]', container, purpose="naming its command"
            )
            _buildah("commit", "--quiet", "--rm", container, PAUSE, purpose="writing the pause image")
        for target in wanted:
            progress.now(f"image {target}")
            _build_target(target, source, tag)


def write_archive(image: str, path: Path) -> None:
    """Write an image into a file that containerd reads (docker-archive).

    Raises:
        SetupFailed: there is no such image, or the disk is full.
    """
    _buildah("push", image, f"docker-archive:{path}:{image}", purpose=f"writing {image} into a file")


def size(target: str, tag: str = TAG) -> str:
    """The size of an image unpacked, with its base, as buildah says it (``256 MB``)."""
    return _buildah("images", "--format", "{{.Size}}", reference(target, tag), purpose="reading sizes").strip()


def _make_base(progress: Progress) -> None:
    """Debian's minimum with Python, as an image."""
    mirror = debs.debian_mirror()
    if mirror is None:
        raise SetupFailed("apt on this machine uses no mirror of Debian's archive", "build the images on Debian")
    progress.now("a base of Debian's packages")
    with tempfile.TemporaryDirectory(prefix="headwater-base-", dir=cache_dir()) as folder:
        root = Path(folder) / "root"
        run(
            [
                *("debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}"),
                *(debs.own_release(), root, mirror),
            ],
            purpose="making a base of Debian's packages",
            remedy=REMEDY,
            timeout_s=BASE_TIMEOUT_S,
        )
        for name, text in BASE_SETTINGS.items():
            (root / name).write_text(text)
        for name in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(root / name)
            (root / name / "partial").mkdir(parents=True)
        archive = Path(folder) / "root.tar"
        run(
            ["tar", "--one-file-system", "--exclude=./proc/*", "--exclude=./sys/*", "-C", root, "-cf", archive, "."],
            purpose="packing the base",
            remedy=REMEDY,
            timeout_s=BASE_TIMEOUT_S,
        )
        container = _buildah("from", "scratch", purpose="beginning the base").strip()
        _buildah("add", "--quiet", container, str(archive), "/", purpose="filling the base")
        _buildah("commit", "--quiet", "--rm", container, BASE, purpose="writing the base")


def _build_target(target: str, source: Path, tag: str) -> None:
    jars = jars_dir("spark", cache_dir())
    # The jars of this machine's cache, which are verified again, spare each build a download of 81 MB.
    volumes = [*((path, path) for path in MACHINE_FILES if path.exists()), (jars, Path("/tmp/cache/jars") / jars.name)]
    _buildah(
        "bud",
        *("--layers", "--isolation=chroot", "--network=host", "--pull-never", f"--build-arg=PYTHON_IMAGE={BASE}"),
        *(f"--volume={path}:{place}:ro" for path, place in volumes),
        *("--target", target, "--tag", reference(target, tag), str(source)),
        purpose=f"building image {target}",
    )


def _is_there(image: str) -> bool:
    command = [*_storage(), "inspect", "--type", "image", image]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _buildah(*arguments: str, purpose: str) -> str:
    return run([*_storage(), *arguments], purpose=purpose, remedy=REMEDY, timeout_s=BUILD_TIMEOUT_S)


def _storage() -> tuple[str, ...]:
    """buildah, with a storage of our own in the cache."""
    folder = cache_dir() / "images"
    return ("buildah", "--root", str(folder / "root"), "--runroot", str(folder / "run"), "--storage-driver", "overlay")


def main(wanted: Sequence[str], *, source: Path = REPOSITORY, tag: str = TAG) -> int:
    """Build, and print each size; the exit code."""
    chosen = tuple(wanted) or targets()
    try:
        with Display() as display:
            progress = display.begin("images")
            build(chosen, progress, source=source, tag=tag)
            display.end("images", "done")
    except (HeadwaterError, OSError) as error:
        sys.stderr.write(f"make images failed: {error}\n")
        return 1
    sys.stdout.write("".join(f"{target:24}{size(target, tag):>10}\n" for target in chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
