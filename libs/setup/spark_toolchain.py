"""Set-up's tools for Spark."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libs.setup.cache import cache_dir
from libs.setup.class_archive import archive_path
from libs.setup.jars import jars_dir
from libs.setup.java import find_java


@dataclass(frozen=True, slots=True)
class SparkToolchain:
    """Where it lies."""

    java_home: Path
    jars_dir: Path
    class_archive: Path
    """May be missing, or empty: Spark starts slower then."""

    @property
    def session(self) -> dict[str, Any]:
        """As settings of a job's ``session``."""
        return {
            "java_home": str(self.java_home),
            "jars_dir": str(self.jars_dir),
            "class_archive": str(self.class_archive),
        }


def find_toolchain() -> SparkToolchain:
    """Raises InvalidSettings when it is missing."""
    cache = cache_dir()
    java = find_java(cache)
    return SparkToolchain(java.home, jars_dir("spark", cache), archive_path(java, cache))
