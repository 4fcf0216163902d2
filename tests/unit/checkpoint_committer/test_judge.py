"""Which checkpoints count."""

from hypothesis import given
from hypothesis import strategies as st

from libs.types.checkpoint import Checkpoint, FencingToken
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from services.checkpoint_committer.judge import NOTHING_READ, Advance, Fenced, Stale, Standing, judge

ERP = SourcePartition(source="erp", name="0")


def checkpoint(rank: int, token: int) -> Checkpoint:
    return Checkpoint(
        partition=ERP,
        position=SourcePosition(source_kind="mysql", token=b"%d" % rank),
        order=EventOrder(epoch=0, rank=rank, tx_ordinal=1),
        fencing_token=FencingToken(token),
        committed_at_us=0,
        published_at_us=0,
    )


def test_the_first_checkpoint_counts() -> None:
    """With any token: leases are not asked."""
    assert judge(NOTHING_READ, checkpoint(1, token=7)) == Advance(checkpoint(1, token=7))


def test_a_heartbeat_counts() -> None:
    """Its order is the last one's: only the position moved on."""
    current = Standing(checkpoint(5, token=2))

    assert isinstance(judge(current, checkpoint(5, token=2)), Advance)


def test_the_same_owner_cannot_go_back() -> None:
    """It would repeat events that are out already."""
    current = Standing(checkpoint(5, token=2))

    assert judge(current, checkpoint(4, token=2)) == Stale(checkpoint(4, token=2))


def test_an_owner_of_before_is_fenced_by_a_newer_owners_checkpoint() -> None:
    """However far it got."""
    current = Standing(checkpoint(5, token=2))

    assert judge(current, checkpoint(9, token=1)) == Fenced(checkpoint(9, token=1), FencingToken(2))


def test_an_owner_of_before_is_fenced_by_a_reset_even_where_nothing_is_left() -> None:
    """A partition that was forgotten stays forgotten."""
    assert isinstance(judge(Standing(None, FencingToken(3)), checkpoint(9, token=2)), Fenced)


def test_a_new_owner_may_start_further_back() -> None:
    """After a reset its orders are lower than those of before."""
    current = Standing(checkpoint(50, token=2), FencingToken(3))

    assert isinstance(judge(current, checkpoint(4, token=4)), Advance)


@given(st.lists(st.builds(checkpoint, st.integers(0, 9), st.integers(1, 4)), max_size=30))
def test_token_and_order_of_what_is_in_force_never_fall(proposed: list[Checkpoint]) -> None:
    """With any checkpoints in the log, (token, order within a token) only grows."""
    standing = NOTHING_READ
    for each in proposed:
        before = standing.checkpoint
        if isinstance(judge(standing, each), Advance):
            standing = Standing(each, standing.oldest_token)
        after = standing.checkpoint

        if before is not None and after is not None:
            assert after.fencing_token >= before.fencing_token
            assert after.fencing_token > before.fencing_token or after.order >= before.order
