"""Positions of every kind of reader, as ``check`` and ``status`` read them."""

import json

import pytest

from libs.mesh.executed import CommittedScn, Missing, executed_in, missing_transactions
from libs.mysql.gtid import GtidSet
from libs.source.vitess.vgtid import ShardGtid, format_vgtid
from services.dts_decoder import position as dts
from services.logminer_reader import position as oracle
from services.vstream_reader import position as vitess

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"


def executed(**logs: str) -> dict[str, GtidSet]:
    return {log.strip("_"): GtidSet.parse(gtids) for log, gtids in logs.items()}


def test_of_a_binlog() -> None:
    """One log without a name."""
    assert executed_in(json.dumps({"gtid_set": f"{A}:1-5"}).encode()) == executed(_=f"{A}:1-5")


def test_of_a_subscription() -> None:
    """Transactions count that DTS says it handed over: those of other tables never come."""
    position = dts.DtsPosition(topic="t", partition=0, offset=7, gtid_set=f"{A}:1-3:6", synced_gtid_set=f"{A}:1-4")

    assert executed_in(dts.encode_position(position).token) == executed(_=f"{A}:1-4:6")


def test_of_a_keyspace() -> None:
    """Shard by shard; one whose copy has not begun stands nowhere."""
    shards = [
        format_vgtid((ShardGtid(keyspace="ks", shard=shard, gtid=gtid),))[1:-1].encode()
        for shard, gtid in (("-80", f"MySQL56/{A}:1-5"), ("80-", f"MySQL56/{B}:1-2"), ("c0-", "current"))
    ]

    found = executed_in(vitess.encode_position(shards, {"-80": 0}, {}).token)

    assert found == {"-80": GtidSet.parse(f"{A}:1-5"), "80-": GtidSet.parse(f"{B}:1-2"), "c0-": GtidSet()}


@pytest.mark.parametrize("token", [b"", b"no JSON", b'{"scn": 5}', b"[]"])
def test_of_something_else(token: bytes) -> None:
    """Rather unknown than wrong."""
    assert executed_in(token) is None


def test_what_is_missing_is_counted_log_by_log() -> None:
    """The same server's transactions in another shard's log are other ones; a log that is not there at all lacks everything."""
    wanted = {"-80": GtidSet.parse(f"{A}:1-10"), "80-": GtidSet.parse(f"{A}:1-4")}

    assert missing_transactions(wanted, wanted).transactions == 0
    assert missing_transactions(wanted, {"-80": GtidSet.parse(f"{A}:1-7,{B}:1-99")}).transactions == 3 + 4


def test_of_a_databases_redo() -> None:
    """Every commit below the SCN is done, of those at it perhaps not all."""
    position = oracle.LogminerPosition(dbid=1, resetlogs_change=1, resetlogs_id=9, done_scn=1_000, done_commits=2)

    assert executed_in(oracle.encode_position(position).token) == {"": CommittedScn(999)}


def test_nobody_knows_how_many_transactions_a_span_of_scns_holds() -> None:
    """So their number is unknown, until there is none."""
    wanted = {"": CommittedScn(1_000)}

    assert missing_transactions(wanted, {"": CommittedScn(999)}) == Missing(1, "SCN(s)")
    assert missing_transactions(wanted, {"": CommittedScn(999)}).transactions is None
    assert missing_transactions(wanted, {"": CommittedScn(1_001)}).transactions == 0
    assert missing_transactions(wanted, {}).amount == 1_000
