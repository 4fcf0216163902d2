"""How far a database has got: asked by commands, which have no reader's connection."""

from typing import Final

from libs.source.oracle.client import connect, hang_up, query
from libs.source.oracle.settings import OracleDatabaseSettings

_CURRENT: Final = "SELECT CURRENT_SCN FROM V$DATABASE"


def current_scn(settings: OracleDatabaseSettings) -> int:
    """An SCN at or above that of each transaction committed by now. Blocks.

    Raises:
        SourceUnavailable, AccessDenied, PipelineHalted: as ``libs.source.oracle.client.connect``.
    """
    connection = connect(settings)
    try:
        [(scn,)] = query(connection, _CURRENT)
    finally:
        hang_up(connection)
    return int(scn)
