"""Debian packages unpacked into a folder of our own: the machine's own packages stay untouched, no root needed.

Used for MySQL, which Debian's stable releases lack, and where they are missing for Maven and Python's headers. They come
from the very mirror that the machine already uses: the first two from the unstable release ("sid"; MySQL with the C
library it needs), the headers from the machine's own release.
apt checks the archive's signature and each package's hash. Standard library only.
"""

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from libs.setup.installation import SETUP_COMMAND
from libs.setup.step import Progress, SetupFailed, folder_bytes, run

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCES_DIR = Path("/etc/apt")
RELEASE_FILE = Path("/etc/os-release")
SID = "sid"
UPDATE_TIMEOUT_S = 300.0
DOWNLOAD_TIMEOUT_S = 900.0
UNPACK_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class _Deb:
    name: str
    size_bytes: int


def debian_mirror() -> str | None:
    """The mirror of Debian's archive that this machine's apt uses; None when it uses none (another distribution)."""
    if not KEYRING.exists():
        return None
    for path in sorted([SOURCES_DIR / "sources.list", *(SOURCES_DIR / "sources.list.d").glob("*")]):
        if path.suffix in (".list", ".sources") and path.is_file():
            for address in _addresses(path.read_text(errors="replace")):
                # The archive proper ends in /debian; its neighbours are debian-security and debian-backports.
                if address.rstrip("/").endswith("/debian"):
                    return address
    return None


def _addresses(text: str) -> Iterator[str]:
    """Of both formats of apt sources (sources.list(5)): one-line and deb822."""
    for line in text.splitlines():
        if match := re.match(r"deb\s+(?:\[[^]]*]\s+)?(\S+)", line):
            yield match[1]
        elif match := re.match(r"URIs:\s*(\S.*)", line):
            yield from match[1].split()


def own_release() -> str:
    """The code name of the Debian release that this machine runs; sid where it does not say."""
    try:
        text = RELEASE_FILE.read_text()
    except OSError:
        return SID
    match = re.search(r'^VERSION_CODENAME="?(\w+)', text, re.MULTILINE)
    return match[1] if match else SID


def unpack(
    packages: Sequence[str],
    folder: Path,
    *,
    release: str = SID,
    is_wanted: Callable[[str], bool],
    progress: Progress,
    remedy: str,
) -> None:
    """Unpack ``packages`` and those of their dependencies that ``is_wanted`` by name into ``folder``.

    Blocks. Nothing is configured and no maintainer script runs: only the files are there.

    Raises:
        SetupFailed: no Debian mirror, no network, no such package.
    """
    mirror = debian_mirror()
    if mirror is None:
        raise SetupFailed("apt on this machine uses no mirror of Debian's archive", remedy)
    apt_dir = folder.with_name(f"{folder.name}.apt")
    config = _write_apt_config(apt_dir, mirror, release)

    progress.now("reading Debian's package index", done_bytes=lambda: folder_bytes(apt_dir / "lists"))
    run(
        ["apt-get", "-c", config, "-q", "update"],
        purpose="reading Debian's package index",
        remedy=remedy,
        timeout_s=UPDATE_TIMEOUT_S,
    )
    debs = [deb for deb in _closure(config, packages, remedy) if is_wanted(deb.name)]
    archives = apt_dir / "archives"
    progress.now(
        f"downloading {len(debs)} Debian packages",
        done_bytes=lambda: folder_bytes(archives, "*.deb"),
        total_bytes=sum(deb.size_bytes for deb in debs),
    )
    run(
        ["apt-get", "-c", config, "-q", "download", *(deb.name for deb in debs)],
        purpose="downloading Debian packages",
        remedy=remedy,
        timeout_s=DOWNLOAD_TIMEOUT_S,
        cwd=archives,
    )
    progress.now("unpacking")
    folder.mkdir(parents=True, exist_ok=True)
    for archive in sorted(archives.glob("*.deb")):
        run(
            ["dpkg-deb", "--extract", archive, folder],
            purpose=f"unpacking {archive.name}",
            remedy=f"free some disk space and run `{SETUP_COMMAND}` again",
            timeout_s=UNPACK_TIMEOUT_S,
        )
    shutil.rmtree(apt_dir)


def _write_apt_config(apt_dir: Path, mirror: str, release: str) -> Path:
    """An apt of its own: only the release's main, no installed packages, nothing outside ``apt_dir`` written."""
    for name in ("lists/partial", "cache/archives/partial", "archives"):
        (apt_dir / name).mkdir(parents=True)
    (apt_dir / "status").touch()
    (apt_dir / "debian.list").write_text(f"deb [signed-by={KEYRING}] {mirror} {release} main\n")
    config = apt_dir / "apt.conf"
    config.write_text(
        f'Dir::Etc::sourcelist "{apt_dir}/debian.list";\n'
        'Dir::Etc::sourceparts "-";\n'
        f'Dir::State::lists "{apt_dir}/lists";\n'
        f'Dir::State::status "{apt_dir}/status";\n'
        f'Dir::Cache "{apt_dir}/cache";\n'
        'APT::Sandbox::User "root";\n'  # no switch of user: the folder is ours alone
        'APT::Update::Error-Mode "any";\n'  # an index that was not fetched is an error, not a warning
        'APT::Install-Recommends "false";\n'
        'Acquire::Languages "none";\n'
        'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";\n'
        'Acquire::Check-Valid-Until "false";\n'  # a mirror that lags; signatures are checked all the same
        'Acquire::Retries "3";\n'
    )
    return config


def _closure(config: Path, packages: Sequence[str], remedy: str) -> list[_Deb]:
    listed = run(
        ["apt-get", "-c", config, "-qq", "--print-uris", "-o", "Debug::NoLocking=true", "install", *packages],
        purpose="resolving Debian packages",
        remedy=remedy,
        timeout_s=UPDATE_TIMEOUT_S,
    )
    # 'ADDRESS' mysql-server-core_9.7.4-2_amd64.deb 24567890 SHA256:…
    found = re.findall(r"^'[^']+' ([^_\s]+)_\S+\.deb (\d+) ", listed, re.MULTILINE)
    return [_Deb(name, int(size)) for name, size in found]
