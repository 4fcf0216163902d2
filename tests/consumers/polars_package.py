"""Polars, which nothing else needs: 175 MB, fetched into the cache with the first test that asks for it."""

import hashlib
import importlib
import sys
from pathlib import Path
from typing import Any, Final

from libs.setup import python_packages
from libs.setup.cache import cache_dir, locked, staged_dir

REPOSITORY: Final = Path(__file__).parents[2]


def polars() -> Any:
    """The module."""
    if (folder := str(_folder())) not in sys.path:
        sys.path.append(folder)
    return importlib.import_module("polars")


def _folder() -> Path:
    lock = REPOSITORY / "requirements" / "polars.txt"
    folder = cache_dir() / "polars" / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    with locked(cache_dir() / "polars.lock"):
        if not folder.is_dir():
            with staged_dir(folder) as staging:
                python_packages.install_beside(cache_dir(), REPOSITORY, "polars", staging)
    return folder
