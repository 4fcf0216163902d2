"""Maven, to fetch the locked jars with: the machine's own, else Debian's unpacked into the cache.

Standard library only; called by set-up.
"""

import os
import pwd
import shutil
from dataclasses import dataclass
from pathlib import Path

from libs.setup import trust_store
from libs.setup.cache import staged_dir
from libs.setup.debs import unpack
from libs.setup.installation import SETUP_COMMAND
from libs.setup.java import Java
from libs.setup.step import Progress, SetupFailed

REMEDY = f"check the network and run `{SETUP_COMMAND}` again, or install Maven so that mvn is on the PATH"
# Everything but central is refused: pom files of others must not send Maven to servers that the lock never saw.
SETTINGS = """<settings>
  <mirrors>
    <mirror>
      <id>nothing-but-central</id>
      <mirrorOf>*,!central</mirrorOf>
      <url>http://0.0.0.0/</url>
      <blocked>true</blocked>
    </mirror>
  </mirrors>
</settings>
"""


@dataclass(frozen=True, slots=True)
class Maven:
    """A Maven and the settings to give it."""

    command: tuple[str, ...]
    settings_options: tuple[str, ...]


def is_there(cache: Path) -> bool:
    """Whether ``find_maven`` would answer."""
    return shutil.which("mvn") is not None or _launcher(_private_dir(cache)).exists()


def find_maven(cache: Path, java: Java) -> Maven:
    """The Maven to use, run by ``java``.

    Raises:
        SetupFailed: there is none.
    """
    trust = trust_store.options(cache) if java.is_from_package else ()
    if on_path := shutil.which("mvn"):
        return Maven((on_path, *trust), _settings_options(cache))
    private = _private_dir(cache)
    if not _launcher(private).exists():
        raise SetupFailed("Maven is missing", REMEDY)
    # The work of Debian's start script, with paths below our folder.
    command = (
        str(java.executable),
        *trust,
        "-classpath",
        str(_launcher(private)),
        f"-Dclassworlds.conf={private / 'etc/maven/m2.conf'}",
        f"-Dmaven.conf={private / 'etc/maven'}",
        f"-Dmaven.home={private / 'usr/share/maven'}",
        f"-Dmaven.multiModuleProjectDirectory={private}",
        "org.codehaus.plexus.classworlds.launcher.Launcher",
    )
    return Maven(command, _settings_options(cache))


def install(cache: Path, progress: Progress) -> None:
    """Unpack Debian's Maven into the cache. Blocks; call it under set-up's lock.

    Raises:
        SetupFailed: it could not be downloaded.
    """
    with staged_dir(_private_dir(cache).parent) as staging:
        unpack(
            ("maven",),
            staging / "root",
            # Its Java libraries; the Java itself is found or installed by ``libs.setup.java``.
            is_wanted=lambda name: name == "maven" or (name.startswith("lib") and name.endswith("-java")),
            progress=progress,
            remedy=REMEDY,
        )


def _settings_options(cache: Path) -> tuple[str, ...]:
    """The user's own settings where there are some: they know the way to the registry here."""
    for home in (Path.home(), _home_by_password_file()):
        if (home / ".m2" / "settings.xml").exists():
            return ("--settings", str(home / ".m2" / "settings.xml"))
    path = cache / "maven-settings.xml"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != SETTINGS:
        path.write_text(SETTINGS)
    return ("--settings", str(path))


def _home_by_password_file() -> Path:
    """The home folder as Java, and so Maven, finds it, without regard to $HOME."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path.home()


def _private_dir(cache: Path) -> Path:
    return cache / "maven" / "debian-sid" / "root"


def _launcher(private: Path) -> Path:
    return private / "usr/share/maven/boot/plexus-classworlds-2.x.jar"
