"""Faults about rows go on in the checkpoint, and end by the copy that brings the rows."""

import time

from libs.events.checkpoint_codec import decode_checkpoint, encode_checkpoint
from libs.source.kept_faults import kept_faults, lift_after_copy, lift_for_no_rows, note_replaced_topic, raise_again
from libs.telemetry.faults import (
    CATALOGUE,
    CHANGES_LOST,
    ROWS_CHANGED_UNSEEN,
    ROWS_SET_ASIDE,
    SOURCE_UNREACHABLE,
    lasting_faults,
    lift_fault,
    raise_fault,
)
from libs.types.checkpoint import Checkpoint, FencingToken
from libs.types.fault import FaultScope
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition

ORDERS = FaultScope(source="shop", table="shop.orders")
SHOP = FaultScope(source="shop")


def _checkpoint(topic_id: str = "") -> Checkpoint:
    return Checkpoint(
        partition=SourcePartition(source="shop", name="0"),
        position=SourcePosition(source_kind="mysql", token=b"t"),
        order=EventOrder(epoch=0, rank=1, tx_ordinal=0),
        fencing_token=FencingToken(1),
        committed_at_us=1,
        published_at_us=2,
        changes_topic_id=topic_id,
        faults=kept_faults("shop"),
    )


def _names() -> list[tuple[str, str]]:
    return sorted((fault.id, fault.scope.table) for fault in lasting_faults())


def _forget_all() -> None:
    """As a process that ends does."""
    for fault in lasting_faults():
        [kind] = [each for each in CATALOGUE if each.id == fault.id]
        lift_fault(kind, fault.scope)


def test_faults_about_rows_outlive_their_reader() -> None:
    """With their first moment; a connection that is away is none, and another source's are its own."""
    raised = raise_fault(ROWS_CHANGED_UNSEEN, ORDERS, happened="DROP PARTITION at gtid:7")
    raise_fault(ROWS_SET_ASIDE, ORDERS, happened="no sjis text")
    raise_fault(SOURCE_UNREACHABLE, SHOP, happened="refused")
    raise_fault(ROWS_SET_ASIDE, FaultScope(source="erp", table="a.b"), happened="no sjis text")
    stored = decode_checkpoint(encode_checkpoint(_checkpoint()))
    _forget_all()

    raise_again("shop", stored)

    assert _names() == [("rows_changed_unseen", "shop.orders"), ("rows_set_aside", "shop.orders")]
    [again] = [fault for fault in lasting_faults() if fault.id == raised.id]
    assert (again.happened, again.since_us) == (raised.happened, raised.since_us)


def test_a_source_that_is_copied_from_nothing_has_no_former_faults() -> None:
    raise_fault(ROWS_CHANGED_UNSEEN, ORDERS, happened="DROP PARTITION at gtid:7")

    raise_again("shop", None)

    assert _names() == []


def test_a_copy_ends_faults_from_before_it_alone() -> None:
    """A statement that came while the table was copied may concern rows that were copied already."""
    raise_fault(ROWS_CHANGED_UNSEEN, ORDERS, happened="TRUNCATE TABLE at -80")
    lift_after_copy("shop", "shop.orders", begun_us=0)
    assert _names() == [("rows_changed_unseen", "shop.orders")]

    lift_after_copy("shop", "shop.orders", begun_us=time.time_ns() // 1_000 + 1)
    assert _names() == []

    raise_fault(ROWS_SET_ASIDE, ORDERS, happened="no sjis text")
    lift_for_no_rows("shop", "shop.orders")
    assert _names() == []


def test_another_changes_topic_than_the_checkpoints_is_reported() -> None:
    """Kafka forgets the router's offset with the topic, so nobody else could."""
    note_replaced_topic(None, "headwater.changes.shop", "new")
    note_replaced_topic(_checkpoint(), "headwater.changes.shop", "new")
    note_replaced_topic(_checkpoint("same"), "headwater.changes.shop", "same")
    assert _names() == []

    note_replaced_topic(_checkpoint("old"), "headwater.changes.shop", "new")

    assert _names() == [(CHANGES_LOST.id, "")]
    assert kept_faults("shop")[0].id == CHANGES_LOST.id
