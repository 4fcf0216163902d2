"""``on_unseen_change`` of sources whose readers cannot read a table again at a statement."""

from typing import Any, cast

import msgspec
import pytest

from libs.errors import PipelineHalted
from libs.events.batch import BatchBuilder, BatchIdentity
from libs.mesh.documents import DtsDocument, VitessDocument
from libs.mysql.ddl import show_create_to_schema
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.unseen_policy import UnseenAction, UnseenPolicy
from libs.telemetry.faults import lasting_faults
from libs.types.order import EventOrder
from libs.types.position import SourcePartition
from libs.types.table import TableId
from libs.types.value_modes import ValueModes
from services.dts_decoder.found import DdlStatement
from services.dts_decoder.position import DtsPosition
from services.dts_decoder.tables import SubscribedTables

ORDERS = TableId(database="shop", table="orders")
CREATE = "CREATE TABLE orders (id INT PRIMARY KEY, price DECIMAL(10,4))"


class History:
    async def record_schema_change(self, **_: Any) -> int:
        return 2


def subscribed(*policies: UnseenPolicy) -> SubscribedTables:
    identity = BatchIdentity(source="s", source_partition="0", connector="dts", run_id="r", fencing_token=1)
    tables = SubscribedTables(
        SourcePartition(source="s", name="0"),
        None,
        cast(SchemaHistoryClient, History()),
        BatchBuilder(identity),
        lambda _: True,
        ValueModes(),
        policies,
    )
    tables.schemas[ORDERS] = show_create_to_schema(ORDERS, CREATE)
    return tables


def statement(text: str) -> DdlStatement:
    return DdlStatement(
        database="shop",
        statement=text,
        order=EventOrder(epoch=0, rank=1, tx_ordinal=0),
        position=DtsPosition(topic="t", partition=0, offset=0),
        committed_at_us=0,
        server_id=1,
        gtid="a:7",
    )


@pytest.mark.parametrize(
    "text", ["ALTER TABLE orders DROP PARTITION p1", "ALTER TABLE orders MODIFY price DECIMAL(10,2)"]
)
async def test_a_subscription_halts_before_a_statement_that_changed_rows_unseen(text: str) -> None:
    """By the first rule that names the table; else the fault alone reports it, with its place."""
    halting = subscribed(UnseenPolicy(tables=r"shop\.orders", action=UnseenAction.HALT))
    warning = subscribed(UnseenPolicy(tables=r"shop\.items", action=UnseenAction.HALT))

    with pytest.raises(PipelineHalted, match=r"shop\.orders: .* \(at a:7\) changed rows .*on_unseen_change halts"):
        await halting.apply(statement(text))
    await warning.apply(statement(text))

    (fault,) = [fault for fault in lasting_faults() if fault.id == "rows_changed_unseen"]
    assert (fault.scope.table, "a:7" in fault.happened) == ("shop.orders", True)


@pytest.mark.parametrize("kind", ["dts", "vitess"])
def test_a_document_says_warn_or_halt_and_is_told_that_resync_is_not_there(kind: str) -> None:
    common = {
        "dts": {"database": {"host": "h", "user": "u"}, "subscription": {"topic": "t", "group_id": "g"}},
        "vitess": {"vtgate": {"host": "h", "port": 1}, "keyspace": "k"},
    }
    document = DtsDocument if kind == "dts" else VitessDocument

    def read(action: str) -> Any:
        rules = {"on_unseen_change": [{"tables": ".*", "action": action}]}
        return msgspec.convert({**common[kind], **rules}, document)

    assert [read(action).on_unseen_change[0].action.value for action in ("warn", "halt")] == ["warn", "halt"]
    with pytest.raises(msgspec.ValidationError, match=r"warn or halt, and run `headwater resync TENANT TABLE`"):
        read("resync")


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("RENAME TABLE orders TO bills", {"shop.bills"}),
        ("ALTER TABLE orders RENAME bills", {"shop.bills"}),
        ("RENAME TABLE orders TO x, items TO orders, x TO items", {"shop.orders", "shop.items"}),
        ("RENAME TABLE elsewhere.orders TO bills", {"shop.bills"}),
        ("RENAME TABLE _items_gho TO orders", set()),
    ],
)
async def test_a_subscription_reports_rows_that_came_under_another_name(text: str, reported: set[str]) -> None:
    """A shadow table has the rows of the table whose place it takes."""
    tables = subscribed()
    for name in ("items", "_items_gho"):
        table_id = TableId(database="shop", table=name)
        tables.schemas[table_id] = show_create_to_schema(table_id, CREATE.replace("orders", name))

    await tables.apply(statement(text))

    assert {fault.scope.table for fault in lasting_faults() if fault.id == "rows_changed_unseen"} == reported
