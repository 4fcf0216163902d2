"""Which transactions a source has committed, and which of them a reader has read: the lag of a source partition."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from libs.mesh.documents import DtsDocument, MysqlDocument, OracleDocument, SourceDocument, VitessDocument
from libs.mysql.gtid import GtidSet


class CommittedScn(NamedTuple):
    """Every transaction of an Oracle database that is committed up to an SCN."""

    scn: int


Committed = GtidSet | CommittedScn
"""Transactions of one log: by their ids, or by the place up to which they are all there."""
Executed = Mapping[str, Committed]
"""The transactions of each log of a source: a keyspace's shards by name; the only log of any other kind is called ""."""


class Missing(NamedTuple):
    """Transactions that a reader has not read."""

    amount: int
    unit: str
    """Of ``amount``: transactions, or SCNs, of which nobody knows how many transactions they hold."""

    @property
    def transactions(self) -> int | None:
        """None: unknown."""
        return self.amount if self.unit == TRANSACTIONS or not self.amount else None

    def __str__(self) -> str:
        return f"{self.amount:,} {self.unit}"


TRANSACTIONS: Final = "transaction(s)"
SCNS: Final = "SCN(s)"
_VITESS_FLAVOUR: Final = "MySQL56/"


def executed_now(document: SourceDocument) -> Executed:
    """Every transaction that the source of ``document`` has committed until now.

    Raises:
        SourceUnavailable: it does not answer.
        AccessDenied, SourceMisconfigured: user, password, grants or names are wrong.
        PipelineHalted: the driver cannot talk to this server.
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
        case OracleDocument():
            from libs.source.oracle.executed import current_scn

            return {"": CommittedScn(current_scn(document.database))}


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
    return _executed_in(position)


def _executed_in(position: Any) -> Executed | None:
    match position:
        case {"vgtid": [*shards]}:
            return {str(shard["shard"]): _of_vitess(str(shard["gtid"])) for shard in shards}
        case {"gtid_set": str(done), "synced_gtid_set": str(handed_over)}:
            # DTS sends no transaction of tables that nobody subscribed to; a CHECKPOINT says that they are done too.
            return {"": GtidSet.parse(done).union(GtidSet.parse(handed_over))}
        case {"gtid_set": str(done)}:
            return {"": GtidSet.parse(done)}
        case {"dbid": int(), "done_scn": int(scn)}:
            return {"": CommittedScn(scn - 1)}  # at the SCN itself some commits may be left
        case _:
            return None


def missing_transactions(wanted: Executed, done: Executed) -> Missing:
    """How much of ``wanted`` is not in ``done``. All logs of a source are of one kind."""
    found = [_missing(committed, done.get(log)) for log, committed in wanted.items()]
    return Missing(sum(each.amount for each in found), found[0].unit if found else TRANSACTIONS)


def _missing(wanted: Committed, done: Committed | None) -> Missing:
    if isinstance(wanted, CommittedScn):
        reached = done.scn if isinstance(done, CommittedScn) else 0
        return Missing(max(0, wanted.scn - reached), SCNS)
    read = done if isinstance(done, GtidSet) else GtidSet()
    return Missing(wanted.subtract(read).transaction_count(), TRANSACTIONS)


def _of_vitess(gtid: str) -> GtidSet:
    """``current`` and an empty text stand for no place yet."""
    return GtidSet.parse(gtid.removeprefix(_VITESS_FLAVOUR)) if gtid.startswith(_VITESS_FLAVOUR) else GtidSet()
