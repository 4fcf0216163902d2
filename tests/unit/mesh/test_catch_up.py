"""A sink that has tables which are parked: the tables that are waited for, and the reasons for which waiting is vain."""

from pathlib import Path
from typing import Any

import pytest

from libs.errors import ServiceUnavailable
from libs.mesh import catch_up
from libs.mesh.catch_up import StackHops
from libs.mesh.home import Home, home_at
from libs.sink_state.progress import ParkedTable, SinkProgress, TableProgress, encode_sink_progress
from libs.types.tenant import SinkSettings, SourceSelection, TenantSpec

SPEC = TenantSpec(tenant="acme", sources=(SourceSelection(name="shop"),), sink=SinkSettings())
NO_CONSUMER: Any = None


def home_with(folder: Path, *parked: ParkedTable | None) -> Home:
    tables = {
        str(nth): TableProgress(
            topic=str(nth), source="shop", table=f"shop.t{nth}", warehouse_table=f"t{nth}", parked=each
        )
        for nth, each in enumerate(parked)
    }
    home = home_at(folder)
    progress = home.sink_dir / "progress" / "acme.json"
    progress.parent.mkdir(parents=True)
    progress.write_bytes(encode_sink_progress(SinkProgress(tenant="acme", tables=tables)))
    return home


@pytest.fixture(autouse=True)
def caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's checkpoint is at the ends of the topics."""
    monkeypatch.setattr(catch_up, "_ends_of", lambda *_: {})
    monkeypatch.setattr(catch_up, "_sink_behind", lambda *_: None)


PARKED = ParkedTable(because="x; do y", from_offsets={0: 3}, to_offsets={0: 10})


def test_a_parked_table_makes_waiting_vain_but_for_who_tells_of_it(tmp_path: Path) -> None:
    home = home_with(tmp_path, None, PARKED)

    with pytest.raises(ServiceUnavailable, match="table t1 is parked: x; do y"):
        StackHops(home).sink_hop(NO_CONSUMER, SPEC)()
    assert StackHops(home, passes_parked=True).sink_hop(NO_CONSUMER, SPEC)() is None


def test_a_table_that_reads_what_waited_is_waited_for(tmp_path: Path) -> None:
    """Spark's checkpoint is beyond its events."""
    catching_up = ParkedTable(because="", from_offsets={0: 3}, to_offsets={0: 10}, is_catching_up=True)
    home = home_with(tmp_path, PARKED, catching_up)

    behind = StackHops(home, passes_parked=True).sink_hop(NO_CONSUMER, SPEC)()

    assert str(behind) == "table t1 is behind by at most 7 event(s)"
