"""The text of a file that a person gives to a command, made by other programs."""

from pathlib import Path
from typing import Final

import click

from libs.errors import InvalidSettings

_MOST_BYTES: Final = 16 << 20
"""Offsets of thousands of tasks, or a migration of thousands of statements, have less."""


def given_text(file: Path, subject: str) -> str:
    """Its text; of ``-`` that of standard input. Raises InvalidSettings: it cannot be read, is too large, or not UTF-8."""
    try:
        if str(file) == "-":
            content = click.get_binary_stream("stdin").read(_MOST_BYTES + 1)
        else:
            with file.open("rb") as opened:
                content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise InvalidSettings(subject, [f"is larger than {_MOST_BYTES >> 20} MiB"])
        return content.decode()
    except OSError as error:
        raise InvalidSettings(subject, [f"cannot be read ({error.strerror})"]) from error
    except UnicodeDecodeError as error:
        raise InvalidSettings(subject, [f"is not UTF-8 (byte {error.start})"]) from error
