"""A resync's needs before it begins, its waiting, and the state that a killed command leaves."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.errors import InvalidSettings
from libs.mesh.catch_up import Behind, CopyLost, copy_behind
from libs.mesh.home import Home, home_at
from libs.mesh.resync_notes import Resync, forget, running_resyncs, store
from libs.operations.resync import choose_table, mistakes_of
from libs.sink_state.progress import SinkProgress, TableProgress
from libs.types.checkpoint import Checkpoint, FencingToken, FinishedCopy, IncrementalSnapshot, TableCopy
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from libs.types.tenant import Operation, SinkMode, SinkSettings, SourceSelection, TenantSpec

ID = "resync-1"
SIGNAL_OFFSET = 7


def table(name: str = "shop.orders", source: str = "shop") -> TableProgress:
    return TableProgress(
        topic=f"acme.{source}.{name}", source=source, table=name, warehouse_table=f"acme.{source}.{name}"
    )


def progress(*tables: TableProgress) -> SinkProgress:
    return SinkProgress(tenant="acme", tables={each.topic: each for each in tables})


def checkpoint(**incremental: Any) -> Checkpoint:
    return Checkpoint(
        partition=SourcePartition(source="shop", name="shop"),
        position=SourcePosition(source_kind="mysql", token=b""),
        order=EventOrder(epoch=0, rank=1, tx_ordinal=0),
        fencing_token=FencingToken(1),
        committed_at_us=1,
        published_at_us=1,
        incremental=IncrementalSnapshot(**incremental),
    )


def behind(found: Checkpoint | None) -> Behind | None:
    return copy_behind(found, "shop", "shop.orders", ID, SIGNAL_OFFSET)


def test_a_copy_is_waited_for_until_its_end() -> None:
    copy = TableCopy(table="shop.orders", signal_id=ID, rows_read=5, rows_estimated=20)
    done = FinishedCopy(table="shop.orders", signal_id=ID, rows_read=20)

    assert "first checkpoint" in str(behind(None))
    assert "a signal" in str(behind(checkpoint()))
    assert "a signal" in str(behind(checkpoint(signals_offset=SIGNAL_OFFSET)))
    assert "5 of about 20 rows, paused" in str(behind(checkpoint(signals_offset=8, tables=(copy,), is_paused=True)))
    assert behind(checkpoint(signals_offset=8, finished=(done,))) is None


@pytest.mark.parametrize(
    "finished",
    [
        (),
        (FinishedCopy(table="shop.orders", signal_id="another"),),
        (FinishedCopy(table="shop.orders", signal_id=ID, condition="id > 7"),),
        (FinishedCopy(table="shop.items", signal_id=ID),),
    ],
)
def test_a_copy_that_left_the_list_without_its_end_is_lost(finished: tuple[FinishedCopy, ...]) -> None:
    """Built from half a copy, a table would lose the other half."""
    with pytest.raises(CopyLost, match="did not come to its end"):
        behind(checkpoint(signals_offset=8, finished=finished))


def test_a_table_is_named_as_shortly_as_it_is_plain() -> None:
    orders, items, others = table(), table("shop.items"), table("old.orders")

    assert choose_table(progress(orders, items), "acme", "orders") == orders
    assert choose_table(progress(orders, others), "acme", "old.orders") == others
    assert choose_table(progress(orders, table("shop.orders", "b")), "acme", "shop.shop.orders") == orders
    with pytest.raises(InvalidSettings, match=r"name one of shop\.old\.orders, shop\.shop\.orders"):
        choose_table(progress(orders, others), "acme", "orders")
    with pytest.raises(InvalidSettings, match="did you mean 'orders'"):
        choose_table(progress(orders), "acme", "order")
    with pytest.raises(InvalidSettings, match="there is none yet"):
        choose_table(None, "acme", "orders")


def test_all_that_stands_against_it_is_told_at_once() -> None:
    skipping = SourceSelection(name="shop", skip_operations=(Operation.DELETE, Operation.TRUNCATE))
    history = TenantSpec(tenant="acme", sources=(skipping,), sink=SinkSettings(mode=SinkMode.HISTORY))
    mirror = TenantSpec(tenant="acme", sources=(SourceSelection(name="shop"),), sink=SinkSettings())
    parked = msgspec.structs.replace(table(), parked_keys=3)

    found = mistakes_of(history, parked, no_copy_because="the reader of shop takes no signals")

    assert mistakes_of(mirror, table(), no_copy_because=None) == []
    assert len(found) == 3
    for words in ("leaves out d", "3 key(s) are parked", "takes no signals"):
        assert any(words in mistake for mistake in found), found
    gone = table(source="gone")
    assert "none of the tenant's any more" in mistakes_of(mirror, gone, no_copy_because=None)[0]
    assert "no sink" in mistakes_of(msgspec.structs.replace(mirror, sink=None), table(), no_copy_because=None)[0]


def test_a_log_needs_nothing_of_the_source() -> None:
    """Its rows come from its topic, also where operations are left out or the source is gone."""
    skipping = SourceSelection(name="shop", skip_operations=(Operation.DELETE,))
    log = TenantSpec(tenant="acme", sources=(skipping,), sink=SinkSettings(mode=SinkMode.APPEND))
    parked = msgspec.structs.replace(table(), parked_keys=1)

    assert mistakes_of(log, table(source="gone"), no_copy_because="there is nothing to copy from") == []
    assert len(mistakes_of(log, parked, no_copy_because=None)) == 1


def test_what_was_done_is_there_for_the_next_command(tmp_path: Path) -> None:
    """Each step replaces the file whole; one table's end leaves another's."""
    home = home_at(tmp_path)
    orders, items = resync("orders"), resync("items")
    store(home.data_dir, "acme", orders)
    store(home.data_dir, "acme", items)
    sent = msgspec.structs.replace(orders, signal_offset=7)
    store(home.data_dir, "acme", sent)

    assert running_resyncs(home.data_dir, "acme") == {"orders": sent, "items": items}
    assert forget(home.data_dir, "acme", "orders") == sent
    assert forget(home.data_dir, "acme", "orders") is None
    assert running_resyncs(home.data_dir, "acme") == {"items": items}
    assert running_resyncs(home.data_dir, "globex") == {}


def test_a_broken_file_is_named_with_the_remedy(tmp_path: Path) -> None:
    home: Home = home_at(tmp_path)
    store(home.data_dir, "acme", resync("orders"))
    (path,) = (home.data_dir / "resyncs").iterdir()
    path.write_text("{")

    with pytest.raises(InvalidSettings, match="remove it, and resync again"):
        running_resyncs(home.data_dir, "acme")


def resync(topic: str) -> Resync:
    return Resync(id=ID, topic=topic, source="shop", table=f"shop.{topic}", begun_at_us=1, from_offsets={0: 3, 1: 0})
