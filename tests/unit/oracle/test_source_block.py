"""The ``source`` object of schema changes and copied rows has the members of a row's."""

import orjson

from libs.events.envelope import OracleSourceBlock
from libs.oracle.source_block import EventPlace, source_block
from libs.types.table import TableId

ORDERS = TableId(database="SHOP", table="ORDERS")


def test_a_copied_row_has_the_block_that_its_table_has() -> None:
    block = OracleSourceBlock("src", "PDB1", "SHOP", "ORDERS")
    filled = block.filled(snapshot=b'"first"', time_us=1_700_000_000_123_456, scn=7)
    assert source_block("src", "PDB1", ORDERS, EventPlace(1_700_000_000_123_456, 7, "first")) == filled


def test_a_statement_has_its_record_and_its_user() -> None:
    place = EventPlace(1_000_000, 1 << 60, thread=2, rs_id=" 0x000001.0000000a.0010 ", user='A"B')
    told = orjson.loads(source_block("src", "PDB1", ORDERS, place))
    assert {name: told[name] for name in ("snapshot", "scn", "rs_id", "redo_thread", "user_name", "txId")} == {
        "snapshot": "false",
        "scn": str(1 << 60),
        "rs_id": "0x000001.0000000a.0010",
        "redo_thread": 2,
        "user_name": 'A"B',
        "txId": None,
    }
