"""How far Spark got, from its checkpoint."""

from pathlib import Path

from libs.local.home import home_at
from libs.local.sink_state import committed_offsets, sink_progress


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
    """Batch 2 was begun and may be lost: what batch 1 covers is sure."""
    checkpoint(tmp_path, {1: '{"t":{"0":10}}', 2: '{"t":{"0":20}}'}, commits=[0, 1])

    assert committed_offsets(home_at(tmp_path), "acme") == {"t": {0: 10}}


def test_the_newest_batch_is_the_largest_number(tmp_path: Path) -> None:
    """10 comes after 9, whatever the names' order says."""
    checkpoint(tmp_path, {9: '{"t":{"0":9}}', 10: '{"t":{"0":10}}'}, commits=[9, 10])

    assert committed_offsets(home_at(tmp_path), "acme") == {"t": {0: 10}}


def test_before_the_first_batch_there_is_nothing(tmp_path: Path) -> None:
    """No folder, or no commit yet; the same for the progress file."""
    assert committed_offsets(home_at(tmp_path), "acme") == {}
    checkpoint(tmp_path, {0: '{"t":{"0":9}}'}, commits=[])
    assert committed_offsets(home_at(tmp_path), "acme") == {}
    assert sink_progress(home_at(tmp_path), "acme") is None
