"""Which of a warehouse's places are folders or files of the machine itself."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit


def local_folders(places: Mapping[str, str]) -> dict[str, Path]:
    """Those of a warehouse's settings' ``places`` that no other machine has by itself, absolute; by the name of the field."""
    return {
        name: Path(urlsplit(place).path).absolute()
        for name, place in places.items()
        if urlsplit(place).scheme in ("", "file")
    }
