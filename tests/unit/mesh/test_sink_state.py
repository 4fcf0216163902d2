"""How far Spark got, from its checkpoint."""

from pathlib import Path

from libs.mesh.home import home_at
from libs.mesh.sink_state import committed_offsets, parked_tables, sink_progress
from libs.sink_state.progress import ParkedTable, SinkProgress, TableProgress, encode_sink_progress


def checkpoint(root: Path, batches: dict[int, str], commits: list[int]) -> None:
    folder = root / "data" / "sink" / "checkpoints" / "acme"
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for batch, offsets in batches.items():
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offsets}')
    for batch in commits:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        (folder / "commits" / f".{batch}.crc").write_bytes(b"crc")


def test_only_a_committed_batch_counts(tmp_path: Path) -> None:
    """Batch 2 was begun and may be lost: offsets that batch 1 covers are sure."""
    checkpoint(tmp_path, {1: '{"t":{"0":10}}', 2: '{"t":{"0":20}}'}, commits=[0, 1])

    assert committed_offsets(home_at(tmp_path), "acme") == {"t": {0: 10}}


def test_the_newest_batch_is_the_largest_number(tmp_path: Path) -> None:
    """10 comes after 9, though the names sort otherwise."""
    checkpoint(tmp_path, {9: '{"t":{"0":9}}', 10: '{"t":{"0":10}}'}, commits=[9, 10])

    assert committed_offsets(home_at(tmp_path), "acme") == {"t": {0: 10}}


def test_before_the_first_batch_there_is_nothing(tmp_path: Path) -> None:
    """No folder, or no commit yet; the same for the progress file."""
    assert committed_offsets(home_at(tmp_path), "acme") == {}
    checkpoint(tmp_path, {0: '{"t":{"0":9}}'}, commits=[])
    assert committed_offsets(home_at(tmp_path), "acme") == {}
    assert sink_progress(home_at(tmp_path), "acme") is None


def test_tables_that_wait_for_a_human_are_told_with_the_reason_and_since_when(tmp_path: Path) -> None:
    """One that catches up waits for nobody; of one that nothing was ever written into no time is known."""
    assert parked_tables(home_at(tmp_path), "acme") == {}
    folder = tmp_path / "data" / "sink" / "progress"
    folder.mkdir(parents=True)
    (folder / "acme.json").write_bytes(
        encode_sink_progress(
            SinkProgress(
                tenant="acme",
                tables={
                    "a": table(
                        "a", ParkedTable(because="x; do y", from_offsets={}, to_offsets={}), 1_700_000_000_000_000
                    ),
                    "b": table("b", ParkedTable(because="z", from_offsets={}, to_offsets={}), 0),
                    "c": table("c", ParkedTable(because="", from_offsets={}, to_offsets={}, is_catching_up=True), 1),
                    "d": table("d", None, 1),
                },
            )
        )
    )

    assert parked_tables(home_at(tmp_path), "acme") == {
        ("shop", "shop.a"): "parked, last written at 2023-11-14T22:13:20+00:00: x; do y",
        ("shop", "shop.b"): "parked: z",
    }


def table(name: str, parked: ParkedTable | None, written_at_us: int) -> TableProgress:
    return TableProgress(
        topic=name,
        source="shop",
        table=f"shop.{name}",
        warehouse_table=f"acme.shop.shop.{name}",
        parked=parked,
        written_at_us=written_at_us,
    )
