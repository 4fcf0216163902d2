"""The pre-flight, asked by a person: can the source of a document be followed?"""

import re

from libs.local.documents import DtsDocument, MysqlDocument, SourceDocument, VitessDocument, nearest
from libs.local.vtgate import Vtgate
from libs.mysql.preflight import Fault, PreflightReport, check_source
from libs.source.mysql.client import connect


def preflight(document: SourceDocument) -> PreflightReport:
    """Every fault of the source's server, each with its mend; changes nothing. Blocks.

    Raises SourceUnavailable, AccessDenied; and SourceMisconfigured where vtgate refuses to answer.
    """
    match document:
        case MysqlDocument() | DtsDocument():
            return _of_mysql(document)
        case VitessDocument():
            return _of_keyspace(document)


def where(document: SourceDocument) -> str:
    """Who is asked, for a message."""
    match document:
        case MysqlDocument() | DtsDocument():
            return f"MySQL at {document.database.host}:{document.database.port}"
        case VitessDocument():
            return f"vtgate at {document.vtgate.host}:{document.vtgate.port}"


def _of_mysql(document: MysqlDocument | DtsDocument) -> PreflightReport:
    connection = connect(document.database)
    try:
        return check_source(connection, needs_full_images=document.values.unavailable_placeholder is None)
    finally:
        connection.close()


def _of_keyspace(document: VitessDocument) -> PreflightReport:
    keyspace = document.keyspace
    with Vtgate(document.vtgate) as vtgate:
        keyspaces = vtgate.keyspaces()
        if keyspace not in keyspaces:
            return PreflightReport((Fault(f"vtgate has no keyspace {keyspace!r}", nearest(keyspace, keyspaces)),))
        faults = []
        if not vtgate.shards(keyspace):
            faults.append(Fault(f"no shard of keyspace {keyspace} serves", "look at its tablets: SHOW VITESS_TABLETS"))
        names = [f"{keyspace}.{table}" for table in vtgate.tables(keyspace)]
        if not any(_is_captured(document, name) for name in names):
            faults.append(
                Fault("include_tables matches no table", f"correct the patterns; {nearest('', sorted(names))}")
            )
        return PreflightReport(tuple(faults))


def _is_captured(document: VitessDocument, name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in document.include_tables) and not any(
        re.fullmatch(pattern, name) for pattern in document.exclude_tables
    )
