"""The pre-flight, asked by a person: can the source of a document be followed?"""

import re

from libs.events.position_codec import PositionCodec
from libs.mesh.catch_up import checkpoints
from libs.mesh.documents import DtsDocument, MysqlDocument, OracleDocument, SourceDocument, VitessDocument
from libs.mesh.home import Home
from libs.mesh.state import holder
from libs.mesh.vtgate import Vtgate
from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.preflight import Fault, PreflightReport
from libs.operations.mysql_preflight import check_document
from libs.tenants.place import nearest
from libs.types.position import SourcePosition

_MYSQL_POSITIONS = PositionCodec("mysql", BinlogPosition)


def preflight(
    document: SourceDocument, *, resume_from: BinlogPosition | None = None, has_begun: bool = False
) -> PreflightReport:
    """Every fault of the source's server, and of the document's other names; each with its remedy. Changes nothing. Blocks.

    ``resume_from``: whether the log of a MySQL source goes on there.
    ``has_begun``: the source has a checkpoint, so that shards which a Vitess document names may have given way to others.

    Raises SourceUnavailable, AccessDenied; PipelineHalted where a server refuses to answer.
    """
    match document:
        case MysqlDocument() | DtsDocument():
            return check_document(document, resume_from=resume_from)
        case VitessDocument():
            return _of_keyspace(document, has_begun=has_begun)
        case OracleDocument():
            return _of_oracle(document)


def where(document: SourceDocument) -> str:
    """The asked server, for a message."""
    match document:
        case MysqlDocument() | DtsDocument():
            return f"MySQL at {document.database.host}:{document.database.port}"
        case VitessDocument():
            return f"vtgate at {document.vtgate.host}:{document.vtgate.port}"
        case OracleDocument():
            return f"Oracle at {document.database.host}:{document.database.port}/{document.database.service_name}"


def resume_position(home: Home, source: str, document: SourceDocument) -> BinlogPosition | None:
    """Where the reader of a MySQL source will go on, by the checkpoint; None: it never began, or the stack does not run.

    Raises:
        ServiceUnavailable: the stack is up, and checkpoint_committer does not answer.
    """
    if not isinstance(document, MysqlDocument):
        return None
    found = _positions(home, source)
    return _MYSQL_POSITIONS.decode(found[0]) if found else None


def reader_has_begun(home: Home, source: str, document: SourceDocument) -> bool:
    """Whether a keyspace has a reader's checkpoint; False for other kinds, and, as nobody knows, while the stack does not run.
    Raises as ``resume_position``."""
    return isinstance(document, VitessDocument) and bool(_positions(home, source))


def _positions(home: Home, source: str) -> list[SourcePosition]:
    if holder(home) is None:
        return []
    return [each.position for each in checkpoints(home) if each.partition.source == source]


def _of_keyspace(document: VitessDocument, *, has_begun: bool) -> PreflightReport:
    keyspace = document.keyspace
    with Vtgate(document.vtgate) as vtgate:
        keyspaces = vtgate.keyspaces()
        if keyspace not in keyspaces:
            return PreflightReport((Fault(f"vtgate has no keyspace {keyspace!r}", nearest(keyspace, keyspaces)),))
        faults = []
        serving = vtgate.shards(keyspace)
        if not serving:
            faults.append(Fault(f"no shard of keyspace {keyspace} serves", "look at its tablets: SHOW VITESS_TABLETS"))
        unknown = [
            Fault(
                f"keyspace {keyspace} has no shard {shard!r}",
                f"{nearest(shard, serving)} Correct 'shards'; where it gave way to others, the reader follows those by itself",
            )
            for shard in document.shards
            if serving and shard not in serving
        ]
        faults += unknown if not has_begun else []
        shards = document.shards or serving
        if serving and document.tasks > len(shards) and not (unknown and has_begun):
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
        return PreflightReport(tuple(faults), tuple(unknown if has_begun else ()))


def _of_oracle(document: OracleDocument) -> PreflightReport:
    # The driver is loaded where an Oracle database is asked.
    from libs.source.oracle.preflight import check_source

    found = check_source(document)
    return PreflightReport(
        tuple(Fault(each.what, each.mend) for each in found.faults),
        tuple(Fault(each.what, each.mend) for each in found.warnings),
    )


def _is_captured(document: VitessDocument, name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in document.include_tables) and not any(
        re.fullmatch(pattern, name) for pattern in document.exclude_tables
    )
