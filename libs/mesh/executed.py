"""Which transactions a source has committed, and which of them a reader has read: the lag of a source partition."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from libs.mesh.documents import DtsDocument, MysqlDocument, SourceDocument, VitessDocument
from libs.mysql.gtid import GtidSet

Executed = Mapping[str, GtidSet]
"""The transactions of each log of a source: a keyspace's shards by name; a MySQL server's only log is called ""."""

_VITESS_FLAVOUR: Final = "MySQL56/"


def executed_now(document: SourceDocument) -> Executed:
    """Every transaction that the source of ``document`` has committed until now.

    Raises:
        SourceUnavailable: it does not answer.
        AccessDenied, SourceMisconfigured: user, password, grants or names are wrong.
    """
    # A client is imported where a source of its kind is asked: `status` would pay 0.3 CPU s for each that it does not need.
    match document:
        case MysqlDocument() | DtsDocument():
            from libs.source.mysql.executed import gtid_executed

            return {"": executed_of_mysql(gtid_executed(document.database))}
        case VitessDocument():
            from libs.mesh.vtgate import Vtgate

            with Vtgate(document.vtgate) as vtgate:
                return of_shards(vtgate.executed(document.keyspace), document.shards)


def executed_of_mysql(printed: str) -> GtidSet:
    """A server breaks a long set into lines."""
    return GtidSet.parse(printed.replace("\n", ""))


def of_shards(executed: Mapping[str, GtidSet], shards: Sequence[str]) -> dict[str, GtidSet]:
    """Those of ``shards``; of none named, all."""
    return {shard: executed[shard] for shard in shards if shard in executed} if shards else dict(executed)


def executed_in(token: bytes) -> Executed | None:
    """The transactions that a reader's position stands for; None where it stands for none.

    The one place outside the readers that looks into their positions, because only a comparison with the source can say that
    nothing is missing.
    """
    try:
        position = msgspec.json.decode(token)
    except msgspec.DecodeError:
        return None
    match position:
        case {"vgtid": [*shards]}:
            return {str(shard["shard"]): _of_vitess(str(shard["gtid"])) for shard in shards}
        case {"gtid_set": str(done), "synced_gtid_set": str(handed_over)}:
            # DTS sends no transaction of tables that nobody subscribed to; a CHECKPOINT says that they are done too.
            return {"": GtidSet.parse(done).union(GtidSet.parse(handed_over))}
        case {"gtid_set": str(done)}:
            return {"": GtidSet.parse(done)}
        case _:
            return None


def missing_transactions(wanted: Executed, done: Executed) -> int:
    """How many transactions of ``wanted`` are not in ``done``."""
    return sum(gtids.subtract(done.get(log, GtidSet())).transaction_count() for log, gtids in wanted.items())


def _of_vitess(gtid: str) -> GtidSet:
    """``current`` and an empty text stand for no place yet."""
    return GtidSet.parse(gtid.removeprefix(_VITESS_FLAVOUR)) if gtid.startswith(_VITESS_FLAVOUR) else GtidSet()
