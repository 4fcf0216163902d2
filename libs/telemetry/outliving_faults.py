"""The file of faults that outlive their process: its supervisor names the file, and the next process reads it.

The embedded stack's supervisor removes the file when a stack begins. In Kubernetes it is in the pod's own volume, which a
container's restart leaves as it is. A process that is killed loses nothing; a machine that loses its power may lose the last
change.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from libs.types.fault import Fault

VARIABLE: Final = "HEADWATER_FAULTS_FILE"
"""Names the file; without it nothing outlives the process."""
SUFFIX: Final = ".faults"
"""Of the files that the embedded stack's supervisor names."""
_MOST: Final = 500
_UNFINISHED: Final = ".unfinished"

log = structlog.get_logger()


def load_faults() -> list[Fault]:
    """The faults that the process before has left; none where it left none, or where another release wrote them."""
    path = os.environ.get(VARIABLE)
    if not path:
        return []
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=list[Fault])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        log.warning("faults_not_read", file=path, reason=str(error))
        return []


def store_faults(faults: Sequence[Fault]) -> None:
    """Replace the file's content: the oldest faults, where there are very many. A disk that is full stops no process."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    unfinished = Path(path + _UNFINISHED)
    try:
        unfinished.write_bytes(msgspec.json.encode(sorted(faults, key=lambda each: each.since_us)[:_MOST]))
        unfinished.replace(path)
    except OSError as error:
        log.warning("faults_not_stored", file=path, reason=str(error))
