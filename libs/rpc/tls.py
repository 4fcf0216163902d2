"""The files that a side of a gRPC connection proves itself with, and judges the other by."""

from pathlib import Path


def read_pem(name: str, path: str | None, mistakes: list[str]) -> bytes | None:
    """The file's content; None where none is named, or where it cannot be read: then a mistake of the setting ``name`` more."""
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        mistakes.append(f"{name}: {path} cannot be read ({error.strerror})")
        return None
