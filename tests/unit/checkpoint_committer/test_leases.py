"""Owners and their leases: the one that gets it, and the token that it gets."""

from hypothesis import given
from hypothesis import strategies as st

from libs.types.checkpoint import FencingToken
from libs.types.position import SourcePartition
from services.checkpoint_committer.leases import Granted, Held, Holding, LeaseRequest, begin, decide_grant, given_up

ERP = SourcePartition(source="erp", name="0")
LEASE_S = 10.0


def ask(holding: Holding | None, owner: str, *, now_s: float) -> Granted | Held:
    newest = holding.lease.fencing_token if holding is not None else FencingToken(0)
    wanted = LeaseRequest(ERP, owner, int(LEASE_S * 1000))
    return decide_grant(holding, wanted, newest_token=newest, now_s=now_s, now_us=0)


def granted(holding: Holding | None, owner: str, *, now_s: float) -> Holding:
    decided = ask(holding, owner, now_s=now_s)
    assert isinstance(decided, Granted)
    return begin(decided.lease, now_s)


def test_the_first_owner_gets_token_1_and_keeps_it_over_renewals() -> None:
    """Each renewal holds for the whole length again."""
    first = granted(None, "a", now_s=0)
    renewed = granted(first, "a", now_s=9)

    assert (first.lease.fencing_token, renewed.lease.fencing_token) == (1, 1)
    assert ask(renewed, "b", now_s=18) == Held("a", 1.0)


def test_another_owner_waits_for_the_end_and_gets_a_greater_token() -> None:
    """The owner of before then has to wait in its turn."""
    first = granted(None, "a", now_s=0)
    second = granted(first, "b", now_s=10)

    assert second.lease.fencing_token == 2
    assert isinstance(ask(second, "a", now_s=11), Held)


def test_an_owner_that_is_late_keeps_its_token_if_nobody_came_between() -> None:
    """Nobody else can have published meanwhile."""
    first = granted(None, "a", now_s=0)

    assert granted(first, "a", now_s=99).lease.fencing_token == 1


def test_a_lease_that_was_given_up_is_free_at_once_and_its_token_is_remembered() -> None:
    """The next token is greater, also for the same owner."""
    first = granted(None, "a", now_s=0)
    free = begin(given_up(first.lease, fencing_token=first.lease.fencing_token, now_us=0), 1)

    assert granted(free, "b", now_s=1).lease.fencing_token == 2
    assert granted(free, "a", now_s=1).lease.fencing_token == 2


def test_a_token_that_was_only_seen_in_checkpoints_is_outgrown() -> None:
    """Where the leases were lost, checkpoints still fence the owners of before."""
    decided = decide_grant(None, LeaseRequest(ERP, "a", 1000), newest_token=FencingToken(41), now_s=0, now_us=0)

    assert isinstance(decided, Granted)
    assert decided.lease.fencing_token == 42


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 30)), max_size=40))
def test_two_owners_never_hold_at_once_and_tokens_never_repeat(asks: list[tuple[str, float]]) -> None:
    """Over any sequence of asks, a token belongs to one owner, and a new one starts after the old one's end."""
    holding: Holding | None = None
    owner_of_token: dict[int, str] = {}
    now_s = 0.0
    for owner, wait_s in asks:
        now_s += wait_s
        decided = ask(holding, owner, now_s=now_s)
        if isinstance(decided, Granted):
            assert holding is None or holding.lease.owner == owner or now_s >= holding.ends_at_s
            holding = begin(decided.lease, now_s)
            assert owner_of_token.setdefault(holding.lease.fencing_token, owner) == owner
