"""What ``headwater status`` shows of a keyspace."""

import io

from rich.console import Console

from libs.cli.status import PLAIN_WIDTH, shards_table
from libs.local.status import ShardStatus, SourceStatus


def shard(name: str, *, behind: int | None, lag_s: float = 0.5, is_ended: bool = False) -> ShardStatus:
    """A shard of which little is of interest."""
    return ShardStatus(
        shard=name,
        position="MySQL56/a:1-5",
        epoch=1,
        committed_at_us=1_700_000_000_000_000,
        lag_s=lag_s,
        transactions=1,
        rows=1_234,
        is_ended=is_ended,
        lag_transactions=behind,
    )


def shown(*shards: ShardStatus) -> list[str]:
    """The table's lines below its head."""
    source = SourceStatus(source="shop", source_partition="0", state="streaming", shards=shards)
    page = io.StringIO()
    Console(file=page, width=PLAIN_WIDTH).print(shards_table((source,)))
    return page.getvalue().splitlines()[1:]


def test_the_shards_furthest_behind_are_shown_first() -> None:
    """Ten of a source; the rest is counted."""
    lines = shown(*(shard(f"s{number:02d}", behind=number) for number in range(14)))

    assert [line.split()[1] for line in lines] == [*(f"s{number:02d}" for number in range(13, 3, -1)), "4"]
    assert "4 more in --json" in lines[-1]
    assert "1,234" in lines[0]


def test_a_shard_that_waits_at_a_reshard_says_so() -> None:
    """And what is not known is no zero."""
    (line,) = shown(shard("-80", behind=None, is_ended=True))

    assert "-80 (ended)" in line
    assert "?" in line
