"""The pre-flight, asked by a person: can the source of a document be followed?"""

import re

from libs.events.position_codec import PositionCodec
from libs.local.catch_up import checkpoints
from libs.local.documents import DtsDocument, MysqlDocument, SourceDocument, VitessDocument, nearest
from libs.local.home import Home
from libs.local.mysql_preflight import check_document
from libs.local.state import holder
from libs.local.vtgate import Vtgate
from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.preflight import Fault, PreflightReport

_MYSQL_POSITIONS = PositionCodec("mysql", BinlogPosition)


def preflight(document: SourceDocument, *, resume_from: BinlogPosition | None = None) -> PreflightReport:
    """Every fault of the source's server, and of what else the document names; each with its mend. Changes nothing. Blocks.

    ``resume_from``: whether the log of a MySQL source goes on there.

    Raises SourceUnavailable, AccessDenied; PipelineHalted where a server refuses to answer.
    """
    match document:
        case MysqlDocument() | DtsDocument():
            return check_document(document, resume_from=resume_from)
        case VitessDocument():
            return _of_keyspace(document)


def where(document: SourceDocument) -> str:
    """Who is asked, for a message."""
    match document:
        case MysqlDocument() | DtsDocument():
            return f"MySQL at {document.database.host}:{document.database.port}"
        case VitessDocument():
            return f"vtgate at {document.vtgate.host}:{document.vtgate.port}"


def resume_position(home: Home, source: str, document: SourceDocument) -> BinlogPosition | None:
    """Where the reader of a MySQL source will go on, by the checkpoint; None: it never began, or the stack does not run.

    Raises:
        ServiceUnavailable: the stack is up, and checkpoint_committer does not answer.
    """
    if not isinstance(document, MysqlDocument) or holder(home) is None:
        return None
    found = [each.position for each in checkpoints(home) if each.partition.source == source]
    return _MYSQL_POSITIONS.decode(found[0]) if found else None


def _of_keyspace(document: VitessDocument) -> PreflightReport:
    keyspace = document.keyspace
    with Vtgate(document.vtgate) as vtgate:
        keyspaces = vtgate.keyspaces()
        if keyspace not in keyspaces:
            return PreflightReport((Fault(f"vtgate has no keyspace {keyspace!r}", nearest(keyspace, keyspaces)),))
        faults = []
        serving = vtgate.shards(keyspace)
        if not serving:
            faults.append(Fault(f"no shard of keyspace {keyspace} serves", "look at its tablets: SHOW VITESS_TABLETS"))
        faults += [
            Fault(f"keyspace {keyspace} has no shard {shard!r}", f"{nearest(shard, serving)} Correct 'shards'")
            for shard in document.shards
            if serving and shard not in serving
        ]
        shards = document.shards or serving
        if serving and document.tasks > len(shards):
            faults.append(
                Fault(
                    f"{document.tasks} tasks are to read {len(shards)} shard(s), and one without a shard has nothing to read",
                    f"set tasks to {len(shards)} at most",
                )
            )
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
