"""Where a document takes a secret from, so that it stays out of the document itself.

    password_from: {env: SHOP_PASSWORD}
    password_from: {file: /run/secrets/shop}
    password_from: {command: 'vault kv get -field=password shop'}

Every secret of every document may be named so. It is read when the document is: at the start of a command or a service.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

SUFFIX: Final = "_from"
KINDS: Final = ("env", "file", "command")
COMMAND_TIMEOUT_S: Final = 30.0
_PLACEHOLDER: Final = re.compile(r"\$\{[^{}]*\}|\$[A-Za-z_][A-Za-z0-9_]*")


def placeholder_mistake(name: str, text: str) -> str | None:
    """The mistake of a secret that is a shell's or another tool's placeholder; None: it is none.

    Nothing replaces it, so the server would be given these very characters.
    """
    if not _PLACEHOLDER.fullmatch(text):
        return None
    variable = text.strip("${}")
    return f"{text} is not replaced here: write {name}{SUFFIX}: {{env: {variable or 'NAME'}}}"


def read_secret(source: Any, environ: Mapping[str, str] = os.environ) -> str:
    """The secret that ``source`` names. Blocks, for a command at most COMMAND_TIMEOUT_S. A last line break does not count.

    Raises:
        ValueError: it names none, or cannot be read; the text says why and holds nothing of the secret.
    """
    if not isinstance(source, dict) or len(source) != 1 or next(iter(source)) not in KINDS:
        raise ValueError("must be one of {env: NAME}, {file: PATH}, {command: LINE}")
    kind, place = next((str(kind), str(place)) for kind, place in source.items())
    match kind:
        case "env":
            if (text := environ.get(place)) is None:
                raise ValueError(f"the environment has no {place}: set it where this is started")
        case "file":
            try:
                text = Path(place).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"{place} cannot be read: {_why(error)}") from error
        case _:
            text = _output_of(place)
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise ValueError(f"{kind} {place} is empty")
    return text


def _output_of(line: str) -> str:
    try:
        ended = subprocess.run(shlex.split(line), capture_output=True, timeout=COMMAND_TIMEOUT_S, check=False)
        text = ended.stdout.decode()
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"the command cannot be run: {_why(error)}") from error
    if ended.returncode:
        # Without its output: a part of the secret may stand there.
        raise ValueError(f"the command ended with code {ended.returncode}; run it by hand to see why")
    return text


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer within {COMMAND_TIMEOUT_S:.0f} s"
    return "it is no UTF-8" if isinstance(error, UnicodeDecodeError) else "it is no command line"
